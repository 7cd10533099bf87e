//! Tables of texts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Keys and values: answer to codes 28 (5.5), 103 (order topics) and 219.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KVTable {
    /// The values by key.
    pub table: BTreeMap<String, String>,
}

/// The name server's file `kvConfig.json` (`docs/spec/06-namesrv.md` 9), written in one line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KVConfigSerializeWrapper {
    /// Namespace to key to value.
    pub config_table: BTreeMap<String, BTreeMap<String, String>>,
}

#[cfg(test)]
mod tests {
    use super::super::sample::assert_sample;
    use super::*;

    #[test]
    fn samples() {
        let table = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        assert_sample(&KVTable { table: table.clone() }, r#"{"table":{"a":"b"}}"#);
        let config = KVConfigSerializeWrapper { config_table: BTreeMap::from([("ns".to_owned(), table)]) };
        assert_sample(&config, r#"{"configTable":{"ns":{"a":"b"}}}"#);
    }
}
