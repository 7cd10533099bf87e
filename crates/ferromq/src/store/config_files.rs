//! The broker's configuration files in a store, as far as they must be readable.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use ferromq_protocol::json;
use ferromq_store::offline::{Finding, Problem};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Looks at every `config/*.json`. A broker that can't read one takes its `.bak`.
pub(super) fn check(root: &Path, mut found: impl FnMut(Finding)) {
    let directory = root.join("config");
    let Ok(entries) = fs::read_dir(&directory) else { return };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort_unstable();
    for file in files {
        let Err(reason) = read::<IgnoredAny>(&file) else { continue };
        let mut backup = file.clone().into_os_string();
        backup.push(".bak");
        let then = match read::<IgnoredAny>(Path::new(&backup)) {
            Ok(_) => "the broker takes its backup, which may be older",
            Err(_) => "and there is no backup that can be read",
        };
        let problem = Problem::StateFile { reason: format!("can't be read: {reason}; {then}") };
        found(Finding { file, position: None, problem });
    }
}

/// Topics that the broker of a store knows. `None` if no file tells.
pub(super) fn topics(root: &Path) -> Option<HashSet<String>> {
    #[derive(Deserialize)]
    struct Topics {
        #[serde(rename = "topicConfigTable")]
        table: BTreeMap<String, IgnoredAny>,
    }
    let file = |name| read::<Topics>(&root.join("config").join(name)).ok();
    let topics = file("topics.json").or_else(|| file("topics.json.bak"))?;
    Some(topics.table.into_keys().collect())
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, String> {
    let bytes = fs::read(file).map_err(|error: io::Error| error.to_string())?;
    json::from_slice(&bytes).map_err(|error| error.to_string())
}
