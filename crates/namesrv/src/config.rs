//! The settings of a name server (`docs/spec/06-namesrv.md` 11).

use std::num::NonZeroU32;
use std::path::PathBuf;

use ferromq_settings::at_least_one;

ferromq_settings::settings! {
    /// All settings of a name server, with RocketMQ's names and defaults.
    ///
    /// Those of Java's thread pools, semaphores and socket buffers are known and listed, and have no effect here.
    pub struct NamesrvConfig {
        /// Where an installation of RocketMQ would lie; nothing here needs one.
        "rocketmqHome" rocketmq_home: Option<String> = std::env::var("ROCKETMQ_HOME").ok(),
        /// File of the key/value configuration.
        "kvConfigPath" kv_config_path: String = in_home("kvConfig.json"),
        /// File that code 318 writes. Whoever reads a configuration file puts its path here.
        "configStorePath" config_store_path: String = in_home("namesrv.properties"),
        /// For the cluster-test mode, which is not offered.
        "productEnvName" product_env_name: String = "center".to_owned(),
        /// Cluster-test mode; not offered.
        "clusterTest" cluster_test: bool = false,
        /// Whether routes carry the topic's order configuration.
        "orderMessageEnable" order_message_enable: bool = false,
        /// Whether answers to registrations carry the order configurations of all topics.
        "returnOrderTopicConfigToBroker" return_order_topic_config_to_broker: bool = true,
        /// Without effect.
        "clientRequestThreadPoolNums" client_request_thread_pool_nums: i32 = 8,
        /// Without effect.
        "defaultThreadPoolNums" default_thread_pool_nums: i32 = 16,
        /// Without effect.
        "clientRequestThreadPoolQueueCapacity" client_request_thread_pool_queue_capacity: i32 = 50_000,
        /// Without effect.
        "defaultThreadPoolQueueCapacity" default_thread_pool_queue_capacity: i32 = 10_000,
        /// How often brokers are searched for silent ones, ms.
        "scanNotActiveBrokerInterval" scan_not_active_broker_interval: NonZeroU32 = at_least_one(5000),
        /// How many removals of brokers may wait.
        "unRegisterBrokerQueueCapacity" unregister_broker_queue_capacity: NonZeroU32 = at_least_one(3000),
        /// Whether routes name a slave as master where a set without master allows it.
        "supportActingMaster" support_acting_master: bool = false,
        /// Whether code 206 is answered.
        "enableAllTopicList" enable_all_topic_list: bool = true,
        /// Whether codes 224 and 311 to 313 are answered.
        "enableTopicList" enable_topic_list: bool = true,
        /// Whether brokers are told when the smallest id of their set changes (code 905).
        "notifyMinBrokerIdChanged" notify_min_broker_id_changed: bool = false,
        /// Whether a controller runs in the same process. Whoever starts the name server sees to it.
        "enableControllerInNamesrv" enable_controller_in_namesrv: bool = false,
        /// Whether routes are refused for a while after the start, until brokers had time to register.
        "needWaitForService" need_wait_for_service: bool = false,
        /// How long that is, s.
        "waitSecondsForService" wait_seconds_for_service: u32 = 45,
        /// Whether a broker's topics that its registration does not name are removed.
        "deleteTopicWithBrokerRegistration" delete_topic_with_broker_registration: bool = false,
        /// Settings that code 318 must not change, joined by `;`. Read once at the start.
        "configBlackList" config_black_list: String = "configBlackList;configStorePath;kvConfigPath".to_owned(),

        /// Address to listen on.
        "bindAddress" bind_address: String = "0.0.0.0".to_owned(),
        /// Port to listen on; 0 lets the system choose.
        "listenPort" listen_port: u16 = 9876,
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
        /// Silence in both directions after which a connection is closed, s.
        "serverChannelMaxIdleTimeSeconds" server_channel_max_idle_time_seconds: NonZeroU32 = at_least_one(120),
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
        "serverNettyWorkerGroupEnable" server_netty_worker_group_enable: bool = true,
        /// Without effect.
        "serverPooledByteBufAllocatorEnable" server_pooled_byte_buf_allocator_enable: bool = true,
        /// Whether clients are sent away for a while before the name server stops.
        "enableShutdownGracefully" enable_shutdown_gracefully: bool = false,
        /// How long that is, s.
        "shutdownWaitTimeSeconds" shutdown_wait_time_seconds: u32 = 30,
        /// Without effect.
        "useEpollNativeSelector" use_epoll_native_selector: bool = false,
    }
}

fn in_home(file: &str) -> String {
    let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("."));
    home.join("namesrv").join(file).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use ferromq_settings::Settings as _;

    use super::*;

    /// `docs/spec/06-namesrv.md` 16.9
    #[test]
    fn all_keys_are_listed_in_order() {
        let mut config = NamesrvConfig { rocketmq_home: None, listen_port: 0, ..NamesrvConfig::default() };
        config.kv_config_path = "<home>/namesrv/kvConfig.json".to_owned();
        config.config_store_path = "<home>/namesrv/namesrv.properties".to_owned();
        let spec = include_str!("../../../docs/spec/06-namesrv.md");
        let from = spec.find("bindAddress=0.0.0.0\n").unwrap();
        let expected = &spec[from..][..spec[from..].find("```").unwrap()];
        assert_eq!(config.properties(), expected);
        assert_eq!(NamesrvConfig::KEYS.len(), config.items().len() + 1);
    }
}
