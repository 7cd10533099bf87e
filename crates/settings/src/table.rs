//! Tables of settings.

use std::collections::BTreeMap;

use ferromq_protocol::java_properties;

use crate::value::{self, SetError};

/// A table of settings, declared by [`settings!`](crate::settings).
pub trait Settings: Clone + Send + Sync + 'static {
    /// The keys that [`set`](Self::set) knows.
    const KEYS: &'static [&'static str];

    /// Takes one entry of a configuration file. Blanks around the value do not count.
    ///
    /// # Errors
    /// The setting keeps its value then.
    fn set(&mut self, key: &str, value: &str) -> Result<(), SetError>;

    /// Keys and values of everything that is set, sorted by key: what `-p` prints and clients are told.
    fn items(&self) -> BTreeMap<&str, String>;

    /// Entries of the configuration file that are no settings.
    fn unknown_mut(&mut self) -> &mut BTreeMap<String, String>;

    /// Takes a change that a client asked for. What is neither a setting nor in the configuration file has no effect.
    ///
    /// # Errors
    /// The setting keeps its value then.
    fn change(&mut self, key: &str, value: &str) -> Result<(), SetError> {
        match self.set(key, value) {
            Err(SetError::UnknownKey) => {
                if let Some(kept) = self.unknown_mut().get_mut(key) {
                    *kept = value::parse(value)?;
                }
                Ok(())
            }
            result => result,
        }
    }

    /// [`items`](Self::items) as the text of a configuration file.
    fn properties(&self) -> String {
        java_properties::write(self.items().iter().map(|(key, value)| (*key, value.as_str())))
    }
}

/// Declares a table of settings: for each its meaning, key, field with type, and default.
///
/// ```
/// ferromq_settings::settings! {
///     /// Settings of a server.
///     pub struct Config {
///         /// Port to listen on.
///         "listenPort" listen_port: u16 = 9876,
///     }
/// }
/// use ferromq_settings::Settings as _;
/// let mut config = Config::default();
/// config.set("listenPort", "9877").unwrap();
/// assert_eq!(config.listen_port, 9877);
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$struct_doc:meta])*
        $vis:vis struct $name:ident {
            $($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$struct_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$doc])* #[doc = concat!("\n\nKey `", $key, "`.")] pub $field: $type,)*
            /// Entries of the configuration file that are no settings. As in RocketMQ they are shown to clients and
            /// written back to the file.
            pub unknown: std::collections::BTreeMap<String, String>,
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* unknown: std::collections::BTreeMap::new() }
            }
        }

        impl $crate::Settings for $name {
            const KEYS: &'static [&'static str] = &[$($key),*];

            fn set(&mut self, key: &str, value: &str) -> Result<(), $crate::SetError> {
                let value = value.trim();
                match key {
                    $($key => self.$field = $crate::parse(value)?,)*
                    _ => return Err($crate::SetError::UnknownKey),
                }
                Ok(())
            }

            fn items(&self) -> std::collections::BTreeMap<&str, String> {
                let known = [$(($key, $crate::Setting::text(&self.$field))),*];
                let known = known.into_iter().filter_map(|(key, value)| Some((key, value?)));
                self.unknown.iter().map(|(key, value)| (key.as_str(), value.clone())).chain(known).collect()
            }

            fn unknown_mut(&mut self) -> &mut std::collections::BTreeMap<String, String> {
                &mut self.unknown
            }
        }
    };
}

#[cfg(test)]
pub(crate) mod sample {
    use std::num::NonZeroU32;

    settings! {
        /// A table for tests.
        pub(crate) struct SampleConfig {
            /// A port.
            "listenPort" listen_port: u16 = 9876,
            /// A switch.
            "enableTopicList" enable_topic_list: bool = true,
            /// A count.
            "defaultThreadPoolNums" default_thread_pool_nums: i32 = 16,
            /// A period, ms.
            "scanNotActiveBrokerInterval" scan_not_active_broker_interval: NonZeroU32 = crate::at_least_one(5000),
            /// A name.
            "productEnvName" product_env_name: String = "center".to_owned(),
            /// A path.
            "kvConfigPath" kv_config_path: String = "/kvConfig.json".to_owned(),
            /// Where changes are written to.
            "configStorePath" config_store_path: String = "/namesrv.properties".to_owned(),
            /// Nothing unless set.
            "rocketmqHome" rocketmq_home: Option<String> = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sample::SampleConfig;
    use super::*;

    #[test]
    fn values_are_trimmed_and_checked() {
        let mut config = SampleConfig::default();
        assert_eq!(config.set("listenPort", " 9877 "), Ok(()));
        assert_eq!(config.set("enableTopicList", "FALSE"), Ok(()));
        assert_eq!((config.listen_port, config.enable_topic_list), (9877, false));
        assert_eq!(config.set("noSuchKey", "1"), Err(SetError::UnknownKey));
        let error = config.set("listenPort", "98765").unwrap_err();
        assert_eq!(error.to_string(), "`98765` is not a port (0 to 65535)");
        let error = config.set("enableTopicList", "yes").unwrap_err();
        assert_eq!(error.to_string(), "`yes` is not `true` or `false`");
        assert!(config.set("scanNotActiveBrokerInterval", "0").is_err());
        assert!(config.set("productEnvName", &"x".repeat(4097)).is_err());
        assert_eq!(config.listen_port, 9877);
    }

    #[test]
    fn unknown_entries_of_the_file_are_kept_and_others_ignored() {
        let mut config = SampleConfig::default();
        config.unknown.insert("clientWorkerThreads".to_owned(), "4".to_owned());
        assert_eq!(config.change("clientWorkerThreads", "5"), Ok(()));
        assert_eq!(config.change("noSuchKey", "1"), Ok(()));
        assert_eq!(config.items()["clientWorkerThreads"], "5");
        assert!(!config.items().contains_key("noSuchKey"));
    }
}
