//! The settings of a running server, which clients may change (`docs/spec/06-namesrv.md` 10).

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ferromq_protocol::java_properties::Property;
use parking_lot::Mutex;
use thiserror::Error;

use crate::file;
use crate::table::Settings;
use crate::value::SetError;

/// What no client may change, whatever the black list of the configuration says.
const FORBIDDEN_KEYS: [&str; 4] = ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"];

/// Parts of names, in small letters, of settings that say where files lie or what is run. The configuration file may
/// hold such entries of other programs; they are not for clients either.
const FORBIDDEN_PARTS: [&str; 7] = ["path", "home", "file", "dir", "class", "command", "script"];

/// What is not for clients, and where changes are written to.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What the server is called in sentences.
    pub server: &'static str,
    /// Keys of what is read only at the start.
    pub start_only: &'static [&'static str],
    /// Keys that the operator keeps from clients, joined by `;`.
    pub black_list: String,
    /// The file that gets all settings after a change.
    pub file: PathBuf,
}

/// Why settings are not changed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ChangeError {
    /// It is not for clients.
    #[error("Can not update config in black list.")]
    Forbidden,
    /// The value would have no effect before the next start.
    #[error("{key} can't be changed while the {server} runs, only in its configuration file")]
    StartOnly {
        /// The server.
        server: &'static str,
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
#[derive(Debug)]
pub struct LiveSettings<C> {
    current: ArcSwap<C>,
    rules: Rules,
    black_list: HashSet<String>,
    /// Held while settings are changed, and while their file is written, so that an older content never replaces a
    /// newer one.
    changing: Mutex<()>,
    writing: Mutex<()>,
}

impl<C: Settings> LiveSettings<C> {
    /// Settings as the server starts with them.
    pub fn new(config: C, rules: Rules) -> Self {
        let own = rules.black_list.split(';').map(|key| key.trim().to_owned());
        let black_list = FORBIDDEN_KEYS.iter().map(|key| (*key).to_owned()).chain(own).collect();
        Self {
            current: ArcSwap::from_pointee(config),
            rules,
            black_list,
            changing: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// The settings as they are now.
    pub fn load(&self) -> arc_swap::Guard<Arc<C>> {
        self.current.load()
    }

    fn is_forbidden(&self, key: &str) -> bool {
        let small = key.to_ascii_lowercase();
        self.black_list.contains(key) || FORBIDDEN_PARTS.iter().any(|part| small.contains(part))
    }

    /// Changes settings for a client: all of them or none. Unknown ones are ignored, as in RocketMQ.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn change(&self, properties: &[Property]) -> Result<(), ChangeError> {
        if properties.iter().any(|property| self.is_forbidden(&property.key)) {
            return Err(ChangeError::Forbidden);
        }
        let _changing = self.changing.lock();
        let current = self.current.load();
        let mut config = C::clone(&current);
        for Property { key, value, .. } in properties {
            config.change(key, value).map_err(|error| ChangeError::Malformed { key: key.clone(), error })?;
        }
        let (before, after) = (current.items(), config.items());
        if let Some(key) = self.rules.start_only.iter().find(|key| before.get(*key) != after.get(*key)) {
            let server = self.rules.server;
            return Err(ChangeError::StartOnly { server, key: (*key).to_owned() });
        }
        for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
            tracing::info!(key, value, "setting changed by a client");
        }
        self.current.store(Arc::new(config));
        Ok(())
    }

    /// Writes all settings to their file. Blocks.
    ///
    /// # Errors
    /// The file is as it was then.
    pub fn save(&self) -> io::Result<()> {
        let _writing = self.writing.lock();
        let config = self.current.load_full();
        file::replace(&self.rules.file, config.properties().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::sample::SampleConfig;

    fn live(black_list: &str, file: PathBuf) -> LiveSettings<SampleConfig> {
        let rules = Rules {
            server: "name server",
            start_only: &["listenPort"],
            black_list: black_list.to_owned(),
            file,
        };
        LiveSettings::new(SampleConfig::default(), rules)
    }

    #[test]
    fn nothing_that_leads_to_files_or_programs_can_be_changed() {
        let config = live("productEnvName; listenPort", PathBuf::new());
        let forbidden: Vec<_> = SampleConfig::KEYS.iter().filter(|key| config.is_forbidden(key)).collect();
        let expected = ["listenPort", "productEnvName", "kvConfigPath", "configStorePath", "rocketmqHome"];
        assert_eq!(forbidden, expected.iter().collect::<Vec<_>>());
        for key in ["controllerStorePath", "tls.server.keyPath", "storePathRootDir", "messageFilterClass"] {
            assert!(config.is_forbidden(key), "{key}");
        }
    }

    fn property(key: &str, value: &str) -> Property {
        Property { key: key.to_owned(), value: value.to_owned(), line: 1 }
    }

    #[test]
    fn all_is_changed_or_nothing() {
        let config = live("", PathBuf::new());
        let change = |key: &str, value: &str| {
            let changed = config.change(&[property("enableTopicList", "false"), property(key, value)]);
            changed.map_err(|error| error.to_string())
        };
        let malformed = "defaultThreadPoolNums: `abc` is not a 32-bit number";
        assert_eq!(change("defaultThreadPoolNums", "abc"), Err(malformed.to_owned()));
        let start_only =
            "listenPort can't be changed while the name server runs, only in its configuration file";
        assert_eq!(change("listenPort", "1"), Err(start_only.to_owned()));
        assert_eq!(change("kvConfigPath", "/x"), Err("Can not update config in black list.".to_owned()));
        assert_eq!(**config.load(), SampleConfig::default());

        assert_eq!(change("listenPort", "9876"), Ok(()));
        assert_eq!(change("noSuchKey", "1"), Ok(()));
        let expected = SampleConfig { enable_topic_list: false, ..SampleConfig::default() };
        assert_eq!(**config.load(), expected);
    }

    #[test]
    fn a_value_cannot_smuggle_another_entry_into_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("namesrv.conf");
        let config = live("", file.clone());
        config.change(&[property("productEnvName", "x\nkvConfigPath=/evil")]).unwrap();
        config.save().unwrap();
        let mut again = SampleConfig::default();
        for Property { key, value, .. } in
            ferromq_protocol::java_properties::parse(&std::fs::read(file).unwrap()).unwrap()
        {
            again.set(&key, &value).unwrap();
        }
        assert_eq!(again, **config.load());
    }
}
