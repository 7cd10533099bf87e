//! The settings of a controller (`docs/spec/05-ha.md` 7.1).

use std::num::NonZeroU32;
use std::path::PathBuf;

use ferromq_settings::at_least_one;

ferromq_settings::settings! {
    /// All settings of a controller, with RocketMQ's names and defaults.
    ///
    /// Those of Java's threads, sockets and data files are known and listed, and have no effect here.
    pub struct ControllerConfig {
        /// Where an installation of RocketMQ would lie; nothing here needs one.
        "rocketmqHome" rocketmq_home: Option<String> = std::env::var("ROCKETMQ_HOME").ok(),
        /// File that code 1009 writes. Whoever reads a configuration file puts its path here.
        "configStorePath" config_store_path: String = in_home("controller/controller.properties"),
        /// Settings that code 1009 must not change, joined by `;`. Read once at the start.
        "configBlackList" config_black_list: String = "configBlackList;configStorePath".to_owned(),
        /// Which keys name the group: `DLedger` those of `controllerDLeger…`, `jRaft` those of `jRaft…`.
        "controllerType" controller_type: String = "DLedger".to_owned(),
        /// Name of the group. Controllers of another group are refused.
        "controllerDLegerGroup" controller_dleger_group: Option<String> = None,
        /// All controllers of the group: `n0-host:port;n1-host:port;…`. The own port is the one to listen on.
        "controllerDLegerPeers" controller_dleger_peers: Option<String> = None,
        /// Which of them this one is: `n0`, …
        "controllerDLegerSelfId" controller_dleger_self_id: Option<String> = None,
        /// Folder of everything that the group must not forget. Empty means `~/<controllerType>Controller`.
        "controllerStorePath" controller_store_path: String = String::new(),
        /// Name of the group when `controllerType` is `jRaft`.
        "jRaftGroupId" jraft_group_id: String = "jRaft-Controller".to_owned(),
        /// Which entry of `jRaftInitConf` this controller is.
        "jRaftServerId" jraft_server_id: String = "localhost:9880".to_owned(),
        /// All controllers of the group, joined by `,`. They name the controllers; nothing listens there.
        "jRaftInitConf" jraft_init_conf: String = "localhost:9880,localhost:9881,localhost:9882".to_owned(),
        /// Where the controllers listen, in the order of `jRaftInitConf`.
        "jRaftControllerRPCAddr" jraft_controller_rpc_addr: String =
            "localhost:9770,localhost:9771,localhost:9772".to_owned(),
        /// Silence of the leading controller after which another one is elected, ms; up to twice as long.
        "jRaftElectionTimeoutMs" jraft_election_timeout_ms: NonZeroU32 = at_least_one(1000),
        /// Without effect: a snapshot is made when enough has changed.
        "jRaftSnapshotIntervalSecs" jraft_snapshot_interval_secs: i32 = 3600,
        /// Without effect.
        "jRaftScanWaitTimeoutMs" jraft_scan_wait_timeout_ms: i32 = 1000,
        /// How often brokers are searched for silent ones, ms.
        "scanNotActiveBrokerInterval" scan_not_active_broker_interval: NonZeroU32 = at_least_one(5000),
        /// How often broker sets are searched for those whose master is gone, ms.
        "scanInactiveMasterInterval" scan_inactive_master_interval: NonZeroU32 = at_least_one(5000),
        /// Whether a broker outside of the SyncStateSet may become master when nobody inside is alive. Messages may be
        /// lost then.
        "enableElectUncleanMaster" enable_elect_unclean_master: bool = false,
        /// Whether brokers are told of elections at once (code 1008).
        "notifyBrokerRoleChanged" notify_broker_role_changed: bool = true,
        /// How often an election is tried when the group of controllers does not agree in time.
        "electMasterMaxRetryCount" elect_master_max_retry_count: u32 = 3,
        /// Without effect: nothing is read that could be out of date.
        "processReadEvent" process_read_event: bool = false,
        /// Requests that may be under way; more are refused.
        "controllerRequestThreadPoolQueueCapacity" controller_request_thread_pool_queue_capacity: NonZeroU32 =
            at_least_one(50_000),
        /// Without effect.
        "controllerThreadPoolNums" controller_thread_pool_nums: i32 = 16,
        /// Without effect.
        "mappedFileSize" mapped_file_size: i32 = 1_073_741_824,
        /// Without effect.
        "metricsExporterType" metrics_exporter_type: String = "DISABLE".to_owned(),

        /// Address to listen on.
        "bindAddress" bind_address: String = "0.0.0.0".to_owned(),
        /// Without effect: the list of controllers says where to listen.
        "listenPort" listen_port: u16 = 9876,
        /// Silence in both directions after which a connection is closed, s.
        "serverChannelMaxIdleTimeSeconds" server_channel_max_idle_time_seconds: NonZeroU32 = at_least_one(120),
        /// Without effect.
        "serverWorkerThreads" server_worker_threads: i32 = 8,
        /// Without effect.
        "serverCallbackExecutorThreads" server_callback_executor_threads: i32 = 0,
        /// Without effect.
        "serverSelectorThreads" server_selector_threads: i32 = 3,
        /// Without effect.
        "serverOnewaySemaphoreValue" server_oneway_semaphore_value: i32 = 256,
        /// Without effect.
        "serverAsyncSemaphoreValue" server_async_semaphore_value: i32 = 64,
        /// Without effect.
        "serverSocketSndBufSize" server_socket_snd_buf_size: i32 = 0,
        /// Without effect.
        "serverSocketRcvBufSize" server_socket_rcv_buf_size: i32 = 0,
        /// Without effect.
        "writeBufferHighWaterMark" write_buffer_high_water_mark: i32 = 0,
        /// Without effect.
        "writeBufferLowWaterMark" write_buffer_low_water_mark: i32 = 0,
        /// Without effect.
        "serverSocketBacklog" server_socket_backlog: i32 = 1024,
        /// Without effect.
        "serverPooledByteBufAllocatorEnable" server_pooled_byte_buf_allocator_enable: bool = true,
        /// Without effect.
        "useEpollNativeSelector" use_epoll_native_selector: bool = false,
    }
}

/// What is read only at the start.
pub(crate) const START_ONLY: [&str; 14] = [
    "bindAddress",
    "controllerDLegerGroup",
    "controllerDLegerPeers",
    "controllerDLegerSelfId",
    "controllerRequestThreadPoolQueueCapacity",
    "controllerStorePath",
    "controllerType",
    "jRaftControllerRPCAddr",
    "jRaftElectionTimeoutMs",
    "jRaftGroupId",
    "jRaftInitConf",
    "jRaftServerId",
    "listenPort",
    "serverChannelMaxIdleTimeSeconds",
];

impl ControllerConfig {
    /// Folder of what the group must not forget.
    pub fn store_path(&self) -> PathBuf {
        match self.controller_store_path.as_str() {
            "" => PathBuf::from(in_home(&format!("{}Controller", self.controller_type))),
            path => PathBuf::from(path),
        }
    }
}

fn in_home(path: &str) -> String {
    let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("."));
    home.join(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use ferromq_settings::Settings as _;

    use super::*;

    #[test]
    fn the_store_is_named_after_the_type_unless_it_is_set() {
        let mut config = ControllerConfig::default();
        assert!(config.store_path().ends_with("DLedgerController"), "{}", config.store_path().display());
        config.set("controllerStorePath", "/data/controller").unwrap();
        assert_eq!(config.store_path(), PathBuf::from("/data/controller"));
    }

    #[test]
    fn what_is_read_only_at_the_start_are_settings() {
        for key in START_ONLY {
            assert!(ControllerConfig::KEYS.contains(&key), "{key}");
        }
    }
}
