//! `broker.conf`: every key, its default and its meaning.
//!
//! The tables in `table/` hold one entry for each key; the macro in `setting.rs` makes [`BrokerConfig`] and
//! [`SETTINGS`] out of them. A new setting is one new entry there.
//!
//! Read first: a table, then [`BrokerConfig::from_file`], [`BrokerConfig::update`].

#[macro_use]
mod setting;
#[macro_use]
mod table;
mod derived;
mod file;
#[cfg(test)]
mod reference;
mod update;
mod value;

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

pub use derived::store_options;
use derived::{home_store, host_name, local_address, processors};
use ferromq_protocol::frame::HeaderEncoding;
pub use file::{ConfigError, ConfigWarning, SaveError};
pub use setting::{Change, Setting};
pub use update::UpdateError;
pub use value::{
    BrokerRole, DelayLevels, FlushDiskType, HoursOfDay, MessageRequestMode, MetricsExporterType, Secret,
};
use value::{Malformed, SettingValue};

identity_settings! { [
    messaging_settings thread_settings store_settings delay_settings replication_settings operations_settings settings
] }

impl Setting {
    /// The setting with this key.
    pub fn find(key: &str) -> Option<&'static Setting> {
        static BY_KEY: OnceLock<HashMap<&str, &Setting>> = OnceLock::new();
        BY_KEY
            .get_or_init(|| SETTINGS.iter().map(|setting| (setting.key, setting)).collect())
            .get(key)
            .copied()
    }
}

/// A value that a setting can't have.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{key} must be {wanted}, not `{value}`")]
pub struct InvalidValue {
    /// The key.
    pub key: String,
    /// What the value has to be.
    pub wanted: String,
    /// The value.
    pub value: String,
}

impl BrokerConfig {
    /// Changes one setting; whether the key is known. An unknown one is kept and shown, without effect.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, InvalidValue> {
        let value = value.trim();
        let Some(setting) = Setting::find(key) else {
            self.unknown.insert(key.to_owned(), value.to_owned());
            return Ok(false);
        };
        let in_range = setting.range.is_none_or(|(least, most)| {
            value.parse::<u64>().is_ok_and(|number| (least..=most).contains(&number))
        });
        let result = match setting.range {
            Some((least, most)) if !in_range => {
                Err(Malformed::new(format!("a whole number from {least} to {most}")))
            }
            _ => (setting.set)(self, value),
        };
        let invalid =
            |Malformed(wanted)| InvalidValue { key: key.to_owned(), wanted, value: value.to_owned() };
        result.map_err(invalid).map(|()| true)
    }

    /// All settings that have a value, as GET_BROKER_CONFIG and `-p` show them: sorted by key. Secrets are masked.
    pub fn entries(&self) -> Vec<(&str, String)> {
        let known = SETTINGS.iter().filter_map(|setting| Some((setting.key, (setting.get)(self)?)));
        let unknown = self.unknown.iter().map(|(key, value)| (key.as_str(), value.clone()));
        let mut entries: Vec<_> = known.chain(unknown).collect();
        entries.sort_unstable();
        entries
    }

    /// The settings that `-m` shows, sorted by key.
    pub fn important_entries(&self) -> Vec<(&str, String)> {
        let is_important = |key: &str| Setting::find(key).is_some_and(|setting| setting.important);
        self.entries().into_iter().filter(|(key, _)| is_important(key)).collect()
    }

    /// Keys that were changed but that this version does not act on.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let default = Self::default();
        let is_changed = |setting: &&Setting| (setting.get)(self) != (setting.get)(&default);
        let unused = SETTINGS.iter().filter(|setting| setting.change == Change::Unused);
        unused.filter(is_changed).map(|setting| setting.key).collect()
    }

    /// How this process writes headers.
    pub fn header_encoding(&self) -> HeaderEncoding {
        self.header_encoding
    }

    /// Address that clients are told.
    pub fn broker_address(&self) -> String {
        format!("{}:{}", self.broker_ip1, self.listen_port)
    }

    /// Address that slaves are told.
    pub fn ha_server_address(&self) -> String {
        format!("{}:{}", self.broker_ip2, self.ha_port())
    }

    /// Port of the fast listener. 0, any free port, if `listenPort` is.
    pub fn fast_listen_port(&self) -> u32 {
        self.listen_port.saturating_sub(2)
    }

    /// Port for slaves; 0, any free port, if `listenPort` and `haListenPort` are.
    pub(crate) fn ha_port(&self) -> u32 {
        match (self.ha_listen_port, self.listen_port) {
            // Any free port.
            (0, 0) => 0,
            (0, listen_port) => listen_port + 1,
            (ha_listen_port, _) => ha_listen_port,
        }
    }
}
