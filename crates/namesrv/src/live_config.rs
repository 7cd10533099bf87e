//! The settings of a running name server, which clients may change (`docs/spec/06-namesrv.md` 10).

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ferromq_protocol::java_properties::Property;
use parking_lot::Mutex;

use crate::config::NamesrvConfig;
use crate::file;

/// What no client may change, whatever the black list of the configuration says.
const FORBIDDEN_KEYS: [&str; 4] = ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"];

/// Parts of names, in small letters, of settings that say where files lie or what is run. The configuration file may
/// hold such entries of other programs; they are not for clients either.
const FORBIDDEN_PARTS: [&str; 7] = ["path", "home", "file", "dir", "class", "command", "script"];

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

    /// Whether clients must not change this setting.
    pub(crate) fn is_forbidden(&self, key: &str) -> bool {
        let small = key.to_ascii_lowercase();
        self.black_list.contains(key) || FORBIDDEN_PARTS.iter().any(|part| small.contains(part))
    }

    /// Changes settings. A value that is not what it should be leaves its setting as it is, as in RocketMQ.
    pub(crate) fn change(&self, properties: &[Property]) {
        let _changing = self.changing.lock();
        let mut config = NamesrvConfig::clone(&self.current.load());
        for Property { key, value, .. } in properties {
            match config.change(key, value) {
                Ok(()) => tracing::info!(key, value, "setting changed by a client"),
                Err(error) => tracing::warn!(key, %error, "setting not changed"),
            }
        }
        self.current.store(Arc::new(config));
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

    #[test]
    fn a_malformed_value_changes_nothing_else() {
        let config = LiveConfig::new(NamesrvConfig::default());
        let property = |key: &str, value: &str| Property { key: key.into(), value: value.into(), line: 1 };
        config.change(&[property("defaultThreadPoolNums", "abc"), property("orderMessageEnable", "true")]);
        let expected = NamesrvConfig { order_message_enable: true, ..NamesrvConfig::default() };
        assert_eq!(**config.load(), expected);
    }

    #[test]
    fn a_value_cannot_smuggle_another_entry_into_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("namesrv.conf").to_string_lossy().into_owned();
        let config =
            LiveConfig::new(NamesrvConfig { config_store_path: path.clone(), ..NamesrvConfig::default() });
        config.change(&[Property {
            key: "productEnvName".into(),
            value: "x\nkvConfigPath=/evil".into(),
            line: 1,
        }]);
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
