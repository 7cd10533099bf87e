//! The settings of a running name server, which clients may change (`docs/spec/06-namesrv.md` 10).

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ferromq_protocol::java_properties::Property;
use parking_lot::Mutex;
use thiserror::Error;

use crate::config::{NamesrvConfig, SetError};
use crate::file;

/// What no client may change, whatever the black list of the configuration says.
const FORBIDDEN_KEYS: [&str; 4] = ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"];

/// Parts of names, in small letters, of settings that say where files lie or what is run. The configuration file may
/// hold such entries of other programs; they are not for clients either.
const FORBIDDEN_PARTS: [&str; 7] = ["path", "home", "file", "dir", "class", "command", "script"];

/// What is read only at the start.
const START_ONLY_KEYS: [&str; 4] =
    ["bindAddress", "listenPort", "serverChannelMaxIdleTimeSeconds", "unRegisterBrokerQueueCapacity"];

/// Why settings are not changed.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ChangeError {
    /// It is not for clients.
    #[error("Can not update config in black list.")]
    Forbidden,
    /// The value would have no effect before the next start.
    #[error("{key} can't be changed while the name server runs, only in its configuration file")]
    StartOnly {
        /// The setting.
        key: String,
    },
    /// The value is not what it should be.
    #[error("{key}: {error}")]
    Malformed {
        /// The setting.
        key: String,
        /// What is wrong.
        error: SetError,
    },
}

/// The settings, read at each use.
pub(crate) struct LiveConfig {
    current: ArcSwap<NamesrvConfig>,
    black_list: HashSet<String>,
    /// Held while settings are changed, and while their file is written, so that an older content never replaces a
    /// newer one.
    changing: Mutex<()>,
    writing: Mutex<()>,
}

impl LiveConfig {
    pub(crate) fn new(config: NamesrvConfig) -> Self {
        let own = config.config_black_list.split(';').map(|key| key.trim().to_owned());
        let black_list = FORBIDDEN_KEYS.iter().map(|key| (*key).to_owned()).chain(own).collect();
        Self {
            current: ArcSwap::from_pointee(config),
            black_list,
            changing: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<NamesrvConfig>> {
        self.current.load()
    }

    fn is_forbidden(&self, key: &str) -> bool {
        let small = key.to_ascii_lowercase();
        self.black_list.contains(key) || FORBIDDEN_PARTS.iter().any(|part| small.contains(part))
    }

    /// Changes settings for a client: all of them or none. Unknown ones are ignored, as in RocketMQ.
    pub(crate) fn change(&self, properties: &[Property]) -> Result<(), ChangeError> {
        if properties.iter().any(|property| self.is_forbidden(&property.key)) {
            return Err(ChangeError::Forbidden);
        }
        let _changing = self.changing.lock();
        let current = self.current.load();
        let mut config = NamesrvConfig::clone(&current);
        for Property { key, value, .. } in properties {
            config.change(key, value).map_err(|error| ChangeError::Malformed { key: key.clone(), error })?;
        }
        let (before, after) = (current.items(), config.items());
        if let Some(key) = START_ONLY_KEYS.into_iter().find(|key| before.get(key) != after.get(key)) {
            return Err(ChangeError::StartOnly { key: key.to_owned() });
        }
        for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
            tracing::info!(key, value, "setting changed by a client");
        }
        self.current.store(Arc::new(config));
        Ok(())
    }

    /// Writes all settings to their file. Blocks.
    pub(crate) fn save(&self) -> io::Result<()> {
        let _writing = self.writing.lock();
        let config = self.current.load_full();
        file::replace(Path::new(&config.config_store_path), config.properties().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_leads_to_files_or_programs_can_be_changed() {
        let config = LiveConfig::new(NamesrvConfig {
            config_black_list: "productEnvName; listenPort".to_owned(),
            ..NamesrvConfig::default()
        });
        let forbidden: Vec<_> = NamesrvConfig::keys().filter(|key| config.is_forbidden(key)).collect();
        let expected = [
            "rocketmqHome",
            "kvConfigPath",
            "configStorePath",
            "productEnvName",
            "configBlackList",
            "listenPort",
        ];
        assert_eq!(forbidden, expected);
        for key in ["controllerStorePath", "tls.server.keyPath", "storePathRootDir", "messageFilterClass"] {
            assert!(config.is_forbidden(key), "{key}");
        }
    }

    fn property(key: &str, value: &str) -> Property {
        Property { key: key.to_owned(), value: value.to_owned(), line: 1 }
    }

    #[test]
    fn all_is_changed_or_nothing() {
        let config = LiveConfig::new(NamesrvConfig::default());
        let change = |key: &str, value: &str| {
            let changed = config.change(&[property("orderMessageEnable", "true"), property(key, value)]);
            changed.map_err(|error| error.to_string())
        };
        let malformed = "defaultThreadPoolNums: `abc` is not a 32-bit number";
        assert_eq!(change("defaultThreadPoolNums", "abc"), Err(malformed.to_owned()));
        let start_only =
            "listenPort can't be changed while the name server runs, only in its configuration file";
        assert_eq!(change("listenPort", "1"), Err(start_only.to_owned()));
        assert_eq!(change("kvConfigPath", "/x"), Err("Can not update config in black list.".to_owned()));
        assert_eq!(**config.load(), NamesrvConfig::default());

        assert_eq!(change("listenPort", "9876"), Ok(()));
        assert_eq!(change("noSuchKey", "1"), Ok(()));
        let expected = NamesrvConfig { order_message_enable: true, ..NamesrvConfig::default() };
        assert_eq!(**config.load(), expected);
    }

    #[test]
    fn a_value_cannot_smuggle_another_entry_into_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("namesrv.conf").to_string_lossy().into_owned();
        let config =
            LiveConfig::new(NamesrvConfig { config_store_path: path.clone(), ..NamesrvConfig::default() });
        config.change(&[property("productEnvName", "x\nkvConfigPath=/evil")]).unwrap();
        config.save().unwrap();
        let mut again = NamesrvConfig::default();
        for Property { key, value, .. } in
            ferromq_protocol::java_properties::parse(&std::fs::read(path).unwrap()).unwrap()
        {
            again.set(&key, &value).unwrap();
        }
        assert_eq!(again, **config.load());
    }
}
