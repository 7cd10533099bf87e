//! The key/value configuration (`docs/spec/06-namesrv.md` 9).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, io};

use ferromq_protocol::body::{KVConfigSerializeWrapper, KVTable};
use ferromq_protocol::json;
use parking_lot::{Mutex, RwLock};
use thiserror::Error;

/// Namespace of the order configurations: topic to `broker:queues;broker:queues`. The only one with a meaning.
pub(crate) const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// Most bytes that all namespaces, keys and values may have together. Every answer to a registration holds a whole
/// namespace and must stay far below the limit of a frame.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// One more entry would exceed the limit.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the key/value configuration is limited to {BYTES_MAX} bytes")]
pub(crate) struct TooLarge;

/// Texts by namespace and key, mirrored in a file.
pub(crate) struct KvConfig {
    path: PathBuf,
    tables: RwLock<Tables>,
    /// Held while the file is written, so that an older content never replaces a newer one.
    writing: Mutex<()>,
}

#[derive(Default)]
struct Tables {
    by_namespace: BTreeMap<String, BTreeMap<String, String>>,
    bytes: usize,
}

impl KvConfig {
    /// Reads the file. One that is missing or can't be read is an empty configuration, as in RocketMQ; the next change
    /// keeps its content beside the new one.
    pub(crate) fn load(path: PathBuf) -> Self {
        let read = fs::read(&path).map(|text| json::from_slice::<KVConfigSerializeWrapper>(&text));
        let by_namespace = match read {
            Ok(Ok(config)) => config.config_table,
            Ok(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "the key/value configuration is not readable and ignored");
                BTreeMap::new()
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "can't read the key/value configuration");
                }
                BTreeMap::new()
            }
        };
        let bytes =
            by_namespace.values().flatten().map(|(key, value)| key.len() + value.len()).sum::<usize>()
                + by_namespace.keys().map(String::len).sum::<usize>();
        Self { path, tables: RwLock::new(Tables { by_namespace, bytes }), writing: Mutex::default() }
    }

    /// Sets or, without a value, clears one key. The namespace exists from then on.
    pub(crate) fn put(&self, namespace: &str, key: &str, value: Option<&str>) -> Result<(), TooLarge> {
        let mut tables = self.tables.write();
        let old = tables.by_namespace.get(namespace).and_then(|table| table.get(key));
        let removed = old.map_or(0, |old| key.len() + old.len());
        let new_namespace = if tables.by_namespace.contains_key(namespace) { 0 } else { namespace.len() };
        let added = value.map_or(0, |value| key.len() + value.len()) + new_namespace;
        let bytes = tables.bytes - removed + added;
        if bytes > BYTES_MAX && added > removed {
            return Err(TooLarge);
        }
        tables.bytes = bytes;
        let table = tables.by_namespace.entry(namespace.to_owned()).or_default();
        match value {
            Some(value) => table.insert(key.to_owned(), value.to_owned()),
            None => table.remove(key),
        };
        Ok(())
    }

    /// The value of one key.
    pub(crate) fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.tables.read().by_namespace.get(namespace)?.get(key).cloned()
    }

    /// Forgets one key. A namespace stays when it has no keys left.
    pub(crate) fn delete(&self, namespace: &str, key: &str) {
        let mut tables = self.tables.write();
        let Some(table) = tables.by_namespace.get_mut(namespace) else { return };
        if let Some(value) = table.remove(key) {
            tables.bytes -= key.len() + value.len();
        }
    }

    /// All keys of a namespace.
    pub(crate) fn list(&self, namespace: &str) -> Option<KVTable> {
        let table = self.tables.read().by_namespace.get(namespace)?.clone();
        Some(KVTable { table })
    }

    /// Writes the file. Blocks.
    pub(crate) fn save(&self) -> io::Result<()> {
        let _writing = self.writing.lock();
        let config_table = self.tables.read().by_namespace.clone();
        ferromq_settings::replace(&self.path, &json::to_vec(&KVConfigSerializeWrapper { config_table }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> KvConfig {
        KvConfig::load(PathBuf::from("/nonexistent/kvConfig.json"))
    }

    #[test]
    fn survives_a_restart_in_the_reference_form() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvConfig.json");
        let kv = KvConfig::load(path.clone());
        kv.put(ORDER_TOPIC_CONFIG, "TopicOrder", Some("broker-a:4;broker-b:4")).unwrap();
        kv.save().unwrap();
        // docs/spec/06-namesrv.md 16.5
        let text = r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"TopicOrder":"broker-a:4;broker-b:4"}}}"#;
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let again = KvConfig::load(path);
        assert_eq!(again.get(ORDER_TOPIC_CONFIG, "TopicOrder").as_deref(), Some("broker-a:4;broker-b:4"));
        assert_eq!(again.tables.read().bytes, kv.tables.read().bytes);
    }

    #[test]
    fn an_emptied_namespace_stays() {
        let kv = empty();
        assert_eq!(kv.list("ns"), None);
        kv.put("ns", "k", Some("v")).unwrap();
        kv.put("ns", "k2", None).unwrap();
        assert_eq!(kv.get("ns", "k2"), None);
        kv.delete("ns", "k");
        kv.delete("ns", "k");
        kv.delete("other", "k");
        assert_eq!(kv.list("ns"), Some(KVTable::default()));
        assert_eq!(kv.tables.read().bytes, 2);
    }

    #[test]
    fn is_bounded() {
        let kv = empty();
        let large = "x".repeat(BYTES_MAX / 2);
        kv.put("ns", "k", Some(&large)).unwrap();
        assert_eq!(kv.put("ns", "k2", Some(&large)), Err(TooLarge));
        kv.put("ns", "k", Some(&large)).unwrap();
        kv.put("ns", "k", Some("small")).unwrap();
        kv.put("ns", "k2", Some(&large)).unwrap();
    }

    #[test]
    fn a_broken_file_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvConfig.json");
        fs::write(&path, "{oops").unwrap();
        assert_eq!(KvConfig::load(path).list("ns"), None);
    }
}
