//! The settings of a name server (`docs/spec/06-namesrv.md` 11).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ferromq_protocol::java_properties;
use thiserror::Error;

/// Longest text that a setting may have, bytes: longer ones are mistakes, and 319 answers all of them in one frame.
const TEXT_BYTES_MAX: usize = 4096;

/// Why a setting was not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SetError {
    /// No setting has this name. It may be kept in [`NamesrvConfig::unknown`].
    #[error("a name server has no such setting")]
    UnknownKey,
    /// The value is not what it should be. (Java skips such a value without a word.)
    #[error("`{value}` is not {wanted}")]
    Malformed {
        /// What it should be.
        wanted: &'static str,
        /// What it is, cut to a readable length.
        value: String,
    },
}

/// A type that settings have.
trait Setting: Sized {
    /// What a text has to be, for error messages.
    const WANTED: &'static str;

    fn parse(text: &str) -> Option<Self>;

    /// `None` leaves the setting out of listings.
    fn text(&self) -> Option<String>;
}

macro_rules! number_setting {
    ($($type:ty: $wanted:literal),*) => {$(
        impl Setting for $type {
            const WANTED: &'static str = $wanted;

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}

number_setting! {
    u16: "a port (0 to 65535)",
    i32: "a 32-bit number",
    u32: "a number from 0 up",
    NonZeroU32: "a number from 1 up"
}

impl Setting for bool {
    const WANTED: &'static str = "`true` or `false`";

    fn parse(text: &str) -> Option<Self> {
        [true, false]
            .into_iter()
            .find(|value| text.eq_ignore_ascii_case(if *value { "true" } else { "false" }))
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Setting for String {
    const WANTED: &'static str = "a text of at most 4096 bytes";

    fn parse(text: &str) -> Option<Self> {
        (text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
    }

    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Setting for Option<String> {
    const WANTED: &'static str = String::WANTED;

    fn parse(text: &str) -> Option<Self> {
        String::parse(text).map(Some)
    }

    fn text(&self) -> Option<String> {
        self.clone()
    }
}

/// Declares [`NamesrvConfig`]: for each setting its key, its field with type, and its default.
macro_rules! settings {
    ($($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $default:expr,)*) => {
        /// All settings, with RocketMQ's names and defaults.
        ///
        /// Those of Java's thread pools, semaphores and socket buffers are known and listed, and have no effect here.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct NamesrvConfig {
            $($(#[$doc])* #[doc = concat!("\n\nKey `", $key, "`.")] pub $field: $type,)*
            /// Entries of the configuration file that are no settings. Like RocketMQ's, the name server shows them
            /// (code 319) and writes them back to the file (code 318).
            pub unknown: BTreeMap<String, String>,
        }

        impl Default for NamesrvConfig {
            fn default() -> Self {
                Self { $($field: $default,)* unknown: BTreeMap::new() }
            }
        }

        impl NamesrvConfig {
            const KEYS: &'static [&'static str] = &[$($key),*];

            /// Takes one entry of a configuration file. Blanks around the value do not count.
            ///
            /// # Errors
            /// The setting keeps its value then.
            pub fn set(&mut self, key: &str, value: &str) -> Result<(), SetError> {
                let value = value.trim();
                match key {
                    $($key => self.$field = parse(value)?,)*
                    _ => return Err(SetError::UnknownKey),
                }
                Ok(())
            }

            /// Keys and values of everything that is set, sorted by key: what `-p` prints and code 319 answers.
            pub fn items(&self) -> BTreeMap<&str, String> {
                let known = [$(($key, self.$field.text())),*];
                let known = known.into_iter().filter_map(|(key, value)| Some((key, value?)));
                self.unknown.iter().map(|(key, value)| (key.as_str(), value.clone())).chain(known).collect()
            }
        }
    };
}

settings! {
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
    /// Whether a controller runs in the name server; not offered.
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

impl NamesrvConfig {
    /// The keys that [`set`](Self::set) knows.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        Self::KEYS.iter().copied()
    }

    /// Takes a change that a client asked for. What is neither a setting nor in the configuration file has no effect.
    pub(crate) fn change(&mut self, key: &str, value: &str) -> Result<(), SetError> {
        match self.set(key, value) {
            Err(SetError::UnknownKey) => {
                if let Some(kept) = self.unknown.get_mut(key) {
                    *kept = parse(value)?;
                }
                Ok(())
            }
            result => result,
        }
    }

    /// [`items`](Self::items) as the text of a configuration file.
    pub(crate) fn properties(&self) -> String {
        java_properties::write(self.items().iter().map(|(key, value)| (*key, value.as_str())))
    }
}

fn parse<S: Setting>(text: &str) -> Result<S, SetError> {
    S::parse(text)
        .ok_or_else(|| SetError::Malformed { wanted: S::WANTED, value: text.chars().take(64).collect() })
}

fn in_home(file: &str) -> String {
    let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("."));
    home.join("namesrv").join(file).to_string_lossy().into_owned()
}

const fn at_least_one(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_trimmed_and_checked() {
        let mut config = NamesrvConfig::default();
        assert_eq!(config.set("listenPort", " 9877 "), Ok(()));
        assert_eq!(config.set("enableTopicList", "FALSE"), Ok(()));
        assert_eq!((config.listen_port, config.enable_topic_list), (9877, false));
        assert_eq!(config.set("noSuchKey", "1"), Err(SetError::UnknownKey));
        let error = config.set("listenPort", "98765").unwrap_err();
        assert_eq!(error.to_string(), "`98765` is not a port (0 to 65535)");
        let error = config.set("supportActingMaster", "yes").unwrap_err();
        assert_eq!(error.to_string(), "`yes` is not `true` or `false`");
        assert!(config.set("scanNotActiveBrokerInterval", "0").is_err());
        assert!(config.set("productEnvName", &"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
        assert_eq!(config.listen_port, 9877);
    }

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
        assert_eq!(NamesrvConfig::keys().count(), config.items().len() + 1);
    }

    #[test]
    fn unknown_entries_of_the_file_are_kept_and_others_ignored() {
        let mut config = NamesrvConfig::default();
        config.unknown.insert("clientWorkerThreads".to_owned(), "4".to_owned());
        assert_eq!(config.change("clientWorkerThreads", "5"), Ok(()));
        assert_eq!(config.change("noSuchKey", "1"), Ok(()));
        assert_eq!(config.items()["clientWorkerThreads"], "5");
        assert!(!config.items().contains_key("noSuchKey"));
    }
}
