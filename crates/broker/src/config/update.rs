//! What a client may change while the broker runs (UPDATE_BROKER_CONFIG, `docs/spec/03-broker.md` 17.3).

use ferromq_protocol::code::response;
use ferromq_protocol::java_properties::{self, BadUnicodeEscape};
use thiserror::Error;

use super::{BrokerConfig, Change, InvalidValue, Setting};

/// Why a change was refused. Nothing was changed then.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UpdateError {
    /// A key of the black list.
    #[error("Can not update config in black list.")]
    BlackListed,
    /// A key that no client may ever change.
    #[error("{key} can only be changed in the broker's configuration file, never by a client")]
    Sealed {
        /// The key.
        key: &'static str,
    },
    /// A key that is only read at the start.
    #[error("{key} can't be changed while the broker runs; change it in the configuration file and restart")]
    NotAtRuntime {
        /// The key.
        key: &'static str,
    },
    /// A value that its setting can't have.
    #[error(transparent)]
    Invalid(#[from] InvalidValue),
    /// The text is not properties.
    #[error(transparent)]
    Syntax(#[from] BadUnicodeEscape),
}

impl UpdateError {
    /// Response code.
    pub fn code(&self) -> i32 {
        match self {
            Self::BlackListed | Self::Sealed { .. } => response::NO_PERMISSION,
            Self::NotAtRuntime { .. } => response::ILLEGAL_OPERATION,
            Self::Invalid(_) | Self::Syntax(_) => response::INVALID_PARAMETER,
        }
    }
}

impl BrokerConfig {
    /// The settings after a client's changes, given as properties text. Unknown keys are ignored. A setting that can't
    /// be changed may be named with the value that it has.
    pub fn update(&self, properties: &[u8]) -> Result<BrokerConfig, UpdateError> {
        let properties = java_properties::parse(properties)?;
        for property in &properties {
            if self.is_black_listed(&property.key) {
                return Err(UpdateError::BlackListed);
            }
            if let Some(Setting { key, change: Change::Sealed, .. }) = Setting::find(&property.key) {
                return Err(UpdateError::Sealed { key });
            }
        }
        let mut updated = self.clone();
        for property in &properties {
            let Some(setting) = Setting::find(&property.key) else { continue };
            updated.set(setting.key, &property.value)?;
            if setting.change == Change::Restart && (setting.get)(&updated) != (setting.get)(self) {
                return Err(UpdateError::NotAtRuntime { key: setting.key });
            }
        }
        updated.check_name_servers().map_err(|wanted| InvalidValue {
            key: "namesrvAddr".to_owned(),
            wanted: wanted.to_owned(),
            value: updated.namesrv_addr.clone().unwrap_or_default(),
        })?;
        Ok(updated)
    }

    fn is_black_listed(&self, key: &str) -> bool {
        matches!(key, "brokerConfigPath" | "rocketmqHome" | "configBlackList")
            || self.config_black_list.split(';').any(|listed| listed == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(text: &str) -> Result<BrokerConfig, UpdateError> {
        BrokerConfig::default().update(text.as_bytes())
    }

    #[test]
    fn live_settings_change() {
        let config =
            update("brokerPermission=4\nautoCreateTopicEnable=false\nregionId=a b c\nfileReservedTime=48")
                .unwrap();
        assert_eq!((config.broker_permission, config.auto_create_topic_enable), (4, false));
        assert_eq!((config.region_id.as_str(), config.file_reserved_time), ("a b c", 48));
    }

    #[test]
    fn unknown_keys_and_an_empty_text_change_nothing() {
        let before = BrokerConfig::default().entries().len();
        for text in ["", "noSuchKey=1", "MaxMessageSize=1"] {
            let config = update(text).unwrap();
            assert_eq!((config.entries().len(), config.max_message_size), (before, 4_194_304));
        }
    }

    #[test]
    fn the_black_list_is_refused_as_a_whole() {
        for key in ["brokerConfigPath", "rocketmqHome", "configBlackList"] {
            let error = update(&format!("fileReservedTime=1\n{key}=x")).unwrap_err();
            assert_eq!(
                (error.code(), error.to_string().as_str()),
                (16, "Can not update config in black list.")
            );
        }
        let strict = BrokerConfig { config_black_list: "a;traceOn".into(), ..BrokerConfig::default() };
        assert_eq!(strict.update(b"traceOn=false").unwrap_err(), UpdateError::BlackListed);
    }

    #[test]
    fn no_path_no_class_no_right_from_a_client() {
        for key in ["storePathRootDir", "storePathCommitLog", "messageStorePlugIn", "authenticationProvider"]
        {
            let error = update(&format!("{key}=/x")).unwrap_err();
            assert_eq!(error.code(), 16);
            assert!(error.to_string().starts_with(key), "{error}");
        }
    }

    #[test]
    fn no_key_that_names_a_file_or_code_is_forgotten() {
        let words = ["Path", "Home", "RootDir", "PlugIn", "Provider", "Class", "Command", "storeType"];
        for setting in super::super::SETTINGS {
            let names_one = words.iter().any(|word| setting.key.contains(word));
            assert!(!names_one || setting.change == Change::Sealed, "{}", setting.key);
        }
    }

    #[test]
    fn what_is_read_at_the_start_says_so() {
        let error = update("messageDelayLevel=1s 5s").unwrap_err();
        assert_eq!(error, UpdateError::NotAtRuntime { key: "messageDelayLevel" });
        assert!(error.to_string().contains("restart"));
        assert!(update("flushDiskType=ASYNC_FLUSH\nlistenPort=10911").is_ok());
    }

    #[test]
    fn malformed_values_are_refused() {
        let error = update("maxMessageSize=abc").unwrap_err();
        assert_eq!(error.code(), 29);
        assert_eq!(
            error.to_string(),
            "maxMessageSize must be a whole number from 0 to 2147483647, not `abc`"
        );
        assert!(update("namesrvAddr=nowhere").is_err());
        assert!(update("fileReservedTime=1\ntraceOn=maybe").is_err());
    }
}
