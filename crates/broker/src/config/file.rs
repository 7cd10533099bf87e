//! Reading a configuration file, and writing changes back to it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ferromq_protocol::java_properties::{self, BadUnicodeEscape};
use thiserror::Error;

use super::{BrokerConfig, BrokerRole, InvalidValue, SETTINGS, Setting};
use crate::replication::raft;

/// Something in a configuration file that the broker can start without, but its owner should know of.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigWarning {
    /// Nobody knows this key.
    #[error("{}:{line}: unknown key `{key}`, it has no effect{}", file.display(), meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default())]
    UnknownKey {
        /// The file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: usize,
        /// The key.
        key: String,
        /// A key that differs from it in upper and lower case only.
        meant: Option<&'static str>,
    },
}

/// Why the settings don't do.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("can't read the configuration file {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a properties file.
    #[error("{}: {source}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: BadUnicodeEscape,
    },
    /// A value that its setting can't have.
    #[error("{}:{line}: {source}", file.display())]
    Value {
        /// The file.
        file: PathBuf,
        /// Line in the file, from 1.
        line: usize,
        /// What is wrong with it.
        source: InvalidValue,
    },
    /// `namesrvAddr` is not a list of addresses.
    #[error(
        "The Name Server Address[{0}] illegal, please set it as follows, \"127.0.0.1:9876;192.168.0.1:9876\""
    )]
    NameServerAddress(String),
    /// Settings that can't be together.
    #[error("{0}")]
    Conflict(&'static str),
    /// Settings of the Raft group that make no sense.
    #[error("enableDLegerCommitLog=true: {0}")]
    Raft(String),
    /// Controller mode together with DLedger.
    #[error("The config enableControllerMode and enableDLegerCommitLog cannot both be true.")]
    ControllerAndDledger,
    /// A setting that asks for what this version can't do, and must not pretend to.
    #[error("{key}={value}: {reason}")]
    NotSupported {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// Why that matters.
        reason: &'static str,
    },
}

impl ConfigError {
    /// Status that the process ends with (`docs/spec/03-broker.md` 17.1).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Read { .. } | Self::Syntax { .. } | Self::Value { .. } => 255,
            Self::NameServerAddress(_) | Self::Conflict(_) | Self::Raft(_) | Self::NotSupported { .. } => 253,
            Self::ControllerAndDledger => 252,
        }
    }
}

/// Changed settings could not be written.
#[derive(Debug, Error)]
#[error("can't write the configuration file {}: {reason}", file.display())]
pub struct SaveError {
    file: PathBuf,
    reason: String,
}

impl BrokerConfig {
    /// The defaults with what `file` says on top. Configuration updates will be written to that file.
    pub fn from_file(file: &Path) -> Result<(BrokerConfig, Vec<ConfigWarning>), ConfigError> {
        let mut config = Self::default();
        let warnings = config.read(file)?;
        config.broker_config_path = Some(file.display().to_string());
        Ok((config, warnings))
    }

    /// Puts what `file` says on top.
    pub fn read(&mut self, file: &Path) -> Result<Vec<ConfigWarning>, ConfigError> {
        let text = fs::read(file).map_err(|source| ConfigError::Read { file: file.to_owned(), source })?;
        let properties = java_properties::parse(&text);
        let properties =
            properties.map_err(|source| ConfigError::Syntax { file: file.to_owned(), source })?;
        let mut warnings = Vec::new();
        for property in properties {
            let (line, key) = (property.line, property.key);
            let known = self.set(&key, &property.value);
            if !known.map_err(|source| ConfigError::Value { file: file.to_owned(), line, source })? {
                let meant =
                    SETTINGS.iter().map(|setting| setting.key).find(|known| known.eq_ignore_ascii_case(&key));
                warnings.push(ConfigWarning::UnknownKey { file: file.to_owned(), line, key, meant });
            }
        }
        Ok(warnings)
    }

    /// Fills in what follows from other settings, and checks that they go together. Call it when all are set.
    pub fn resolve(&mut self) -> Result<(), ConfigError> {
        if self.check_name_servers().is_err() {
            return Err(ConfigError::NameServerAddress(self.namesrv_addr.clone().unwrap_or_default()));
        }
        if self.enable_controller_mode && self.enable_d_leger_commit_log {
            return Err(ConfigError::ControllerAndDledger);
        }
        if self.enable_controller_mode {
            if self.controller_addr.trim().is_empty() {
                return Err(ConfigError::Conflict("enableControllerMode=true needs controllerAddr"));
            }
            // Without role until a controller gives one, whatever the file says.
            (self.broker_role, self.broker_id) = (BrokerRole::Slave, -1);
        } else if self.broker_role == BrokerRole::Slave && self.broker_id <= 0 {
            return Err(ConfigError::Conflict("Slave's brokerId must be > 0"));
        }
        self.check_supported()?;
        if self.broker_role != BrokerRole::Slave {
            self.broker_id = 0;
        }
        if self.enable_d_leger_commit_log {
            raft::check(self).map_err(|error| ConfigError::Raft(error.to_string()))?;
            // Until the group has a leader.
            self.broker_id = -1;
        }
        self.ha_listen_port = self.ha_port();
        Ok(())
    }

    /// Refuses what must not be ignored: who relies on it would lose messages, or let strangers in.
    fn check_supported(&self) -> Result<(), ConfigError> {
        let is_path_list = self.store_path_commit_log.as_ref().is_some_and(|path| path.contains([',', ';']));
        let asked_for = [
            ("storeType", self.store_type != "default", "only the store type `default` is there"),
            ("configManagerVersion", self.config_manager_version != "v1", "only the version `v1` is there"),
            ("storePathCommitLog", is_path_list, "this version keeps its log in one directory"),
            (
                "readOnlyCommitLogStorePaths",
                self.read_only_commit_log_store_paths.is_some(),
                "this version keeps its log in one directory",
            ),
            ("aclEnable", self.acl_enable, NO_ACCESS_CONTROL),
            ("authenticationEnabled", self.authentication_enabled, NO_ACCESS_CONTROL),
            ("authorizationEnabled", self.authorization_enabled, NO_ACCESS_CONTROL),
        ];
        match asked_for.into_iter().find(|(_, is_asked_for, _)| *is_asked_for) {
            Some((key, _, reason)) => {
                let value = Setting::find(key).and_then(|setting| (setting.get)(self)).unwrap_or_default();
                Err(ConfigError::NotSupported { key, value, reason })
            }
            None => Ok(()),
        }
    }

    /// Says what `namesrvAddr` should be if it is not.
    pub(super) fn check_name_servers(&self) -> Result<(), &'static str> {
        let is_address = |address: &str| {
            let (host, port) = address.rsplit_once(':').unwrap_or_default();
            !host.is_empty() && !host.contains([',', '/', ' ']) && port.parse::<u16>().is_ok()
        };
        match &self.namesrv_addr {
            Some(list) if !list.trim_end_matches(';').split(';').all(is_address) => {
                Err("addresses such as 10.0.0.1:9876;10.0.0.2:9876")
            }
            _ => Ok(()),
        }
    }

    /// The file that changes are written to: the one the settings came from, else `config/broker-changes.properties` in the
    /// store.
    pub fn changes_file(&self) -> PathBuf {
        match &self.broker_config_path {
            Some(path) => path.into(),
            None => Path::new(&self.store_path_root_dir).join("config/broker-changes.properties"),
        }
    }

    /// Writes what differs from `previous` to [`changes_file`](Self::changes_file). The file's other lines stay as they
    /// are. Its previous content is kept beside it, with `.bak` added to the name.
    pub fn save(&self, previous: &BrokerConfig) -> Result<(), SaveError> {
        let file = self.changes_file();
        let before = previous.entries();
        let after = self.entries();
        let changes: Vec<(&str, &str)> = after
            .iter()
            .filter(|entry| !before.contains(entry))
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        if changes.is_empty() {
            return Ok(());
        }
        let failed = |reason: String| SaveError { file: file.clone(), reason };
        let old = match fs::read(&file) {
            Ok(old) => old,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error.to_string())),
        };
        let new = java_properties::edit(&old, &changes).map_err(|error| failed(error.to_string()))?;
        replace(&file, &old, &new).map_err(|error| failed(error.to_string()))
    }
}

const NO_ACCESS_CONTROL: &str = "this version has no access control, everyone would be let in";

/// There is a whole file at every moment, the old or the new one.
fn replace(file: &Path, old: &[u8], new: &str) -> io::Result<()> {
    let beside = |suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let write = |path: &Path, content: &[u8]| {
        let mut out = File::create(path)?;
        out.write_all(content)?;
        out.sync_all()
    };
    if !old.is_empty() {
        write(&beside(".bak"), old)?;
    }
    let fresh = beside(".tmp");
    write(&fresh, new.as_bytes())?;
    fs::rename(&fresh, file)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(BrokerConfig, Vec<String>), String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("broker.conf");
        fs::write(&file, text).unwrap();
        let shown = |text: String| text.replace(&directory.path().display().to_string(), "");
        match BrokerConfig::from_file(&file) {
            Ok((config, warnings)) => Ok((config, warnings.iter().map(|w| shown(w.to_string())).collect())),
            Err(error) => Err(shown(error.to_string())),
        }
    }

    /// The sample of the distribution.
    #[test]
    fn reads_an_unchanged_file() {
        let text = "# Licensed\n\nbrokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n\
            deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n";
        let (config, warnings) = read(text).unwrap();
        assert_eq!((config.broker_name.as_str(), config.file_reserved_time), ("broker-a", 48));
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn blanks_around_values_don_t_matter() {
        let (config, _) =
            read("autoCreateTopicEnable = false \nlistenPort= 20911\t\nmessageDelayLevel=1s 5s \n").unwrap();
        assert_eq!((config.auto_create_topic_enable, config.listen_port), (false, 20911));
        assert_eq!(config.message_delay_level.delays_ms(), [1000, 5000]);
    }

    #[test]
    fn unknown_keys_are_kept_and_named() {
        let (config, warnings) = read("a.b=1\nAutoCreateTopicEnable=true\n").unwrap();
        assert_eq!(
            warnings,
            [
                "/broker.conf:1: unknown key `a.b`, it has no effect",
                "/broker.conf:2: unknown key `AutoCreateTopicEnable`, it has no effect; \
                    did you mean `autoCreateTopicEnable`?",
            ]
        );
        assert!(config.entries().contains(&("a.b", "1".to_owned())));
    }

    #[test]
    fn what_this_version_does_not_act_on_can_be_told() {
        let (config, _) = read("sendMessageThreadPoolNums=99\nbrokerName=a\npopPollingSize=1024\n").unwrap();
        assert_eq!(config.without_effect(), ["sendMessageThreadPoolNums"]);
    }

    #[test]
    fn malformed_values_are_shown_where_they_stand() {
        for (text, error) in [
            ("#\nlistenPort=1 0911", "2: listenPort must be a whole number from 0 to 65535, not `1 0911`"),
            ("traceOn=yes", "1: traceOn must be true or false, not `yes`"),
            (
                "\nbrokerRole=MASTER",
                "2: brokerRole must be one of ASYNC_MASTER, SYNC_MASTER, SLAVE, not `MASTER`",
            ),
            (
                "diskSpaceWarningLevelRatio=100",
                "1: diskSpaceWarningLevelRatio must be a whole number from 35 to 99, not `100`",
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), format!("/broker.conf:{error}"));
        }
        assert!(read("a=\\u1").unwrap_err().starts_with("/broker.conf: line 1: `\\u` needs"));
        assert!(
            BrokerConfig::from_file(Path::new("/none")).unwrap_err().to_string().starts_with("can't read")
        );
    }

    fn resolve(settings: &[(&str, &str)]) -> Result<BrokerConfig, ConfigError> {
        let mut config = BrokerConfig::default();
        for (key, value) in settings {
            config.set(key, value).unwrap();
        }
        config.resolve().map(|()| config)
    }

    #[test]
    fn ports_follow_from_the_listen_port() {
        let config = resolve(&[("listenPort", "20911"), ("brokerIP1", "h")]).unwrap();
        assert_eq!((config.ha_listen_port, config.fast_listen_port()), (20912, 20909));
        assert_eq!(config.broker_address(), "h:20911");
        assert_eq!(resolve(&[("haListenPort", "7")]).unwrap().ha_listen_port, 7);
    }

    #[test]
    fn settings_that_don_t_go_together_stop_the_start() {
        let failure = |settings: &[(&str, &str)]| {
            let error = resolve(settings).unwrap_err();
            (error.exit_code(), error.to_string())
        };
        for id in ["0", "-1"] {
            let slave = [("brokerRole", "SLAVE"), ("brokerId", id)];
            assert_eq!(failure(&slave), (253, "Slave's brokerId must be > 0".into()));
        }
        assert_eq!(resolve(&[("brokerRole", "SLAVE"), ("brokerId", "3")]).unwrap().broker_id, 3);
        assert_eq!(resolve(&[("brokerRole", "SYNC_MASTER"), ("brokerId", "3")]).unwrap().broker_id, 0);
        assert_eq!(failure(&[("enableControllerMode", "true"), ("enableDLegerCommitLog", "true")]).0, 252);
        assert_eq!(
            failure(&[("authenticationEnabled", "true")]),
            (
                253,
                "authenticationEnabled=true: this version has no access control, everyone would be let in"
                    .into()
            )
        );
        for (key, value) in
            [("storeType", "defaultRocksDB"), ("configManagerVersion", "v2"), ("storePathCommitLog", "/a,/b")]
        {
            assert_eq!(failure(&[(key, value)]).0, 253, "{key}");
        }
        for list in ["127.0.0.1", ":9876", "a:9876;;b:1", "a:99999", "a:9876,b:9876"] {
            assert_eq!(failure(&[("namesrvAddr", list)]).0, 253, "{list}");
        }
        assert!(resolve(&[("namesrvAddr", "a:9876;[::1]:9876;")]).is_ok());
    }

    #[test]
    fn saving_keeps_comments_and_the_previous_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("broker.conf");
        let old = "# mine\nbrokerName=a\nfileReservedTime=72\nother=1\n";
        fs::write(&file, old).unwrap();
        let (before, _) = BrokerConfig::from_file(&file).unwrap();
        let mut after = before.clone();
        after.file_reserved_time = 48;
        after.region_id = "a b".into();
        after.save(&before).unwrap();
        let saved = fs::read_to_string(&file).unwrap();
        assert_eq!(saved, "# mine\nbrokerName=a\nfileReservedTime=48\nother=1\nregionId=a b\n");
        assert_eq!(fs::read_to_string(directory.path().join("broker.conf.bak")).unwrap(), old);
    }

    #[test]
    fn without_a_file_changes_go_into_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().display().to_string();
        let before = BrokerConfig { store_path_root_dir: root, ..BrokerConfig::default() };
        let after = BrokerConfig { file_reserved_time: 48, ..before.clone() };
        after.save(&before).unwrap();
        let saved = fs::read_to_string(directory.path().join("config/broker-changes.properties")).unwrap();
        assert_eq!(saved, "fileReservedTime=48\n");
    }
}
