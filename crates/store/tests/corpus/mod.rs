//! The stores that the Java broker wrote, and what is known of them (`tests/data`).

#![allow(dead_code, unreachable_pub, reason = "every test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use ferromq_store::StoreOptions;
use serde_json::Value;

use crate::support::small;

/// Stores that nobody damaged.
pub const WHOLE: [&str; 30] = [
    "base-4.9.7-clean",
    "base-4.9.7-kill",
    "base-5.3.3-clean",
    "base-5.3.3-kill",
    "batchcq-5.3.3-clean",
    "batchcq-5.3.3-kill",
    "compaction-5.3.3-clean",
    "compaction-5.3.3-kill",
    "compaction-5.3.3-live-before-run",
    "cqext-4.9.7-clean",
    "cqext-4.9.7-kill",
    "cqext-5.3.3-clean",
    "cqext-5.3.3-kill",
    "crc-5.3.3-clean",
    "expired-4.9.7-clean",
    "expired-4.9.7-kill",
    "expired-5.3.3-clean",
    "expired-5.3.3-kill",
    "full-4.9.7-clean",
    "full-4.9.7-kill",
    "full-5.3.3-clean",
    "full-5.3.3-kill",
    "ipv6-4.9.7-clean",
    "ipv6-5.3.3-clean",
    "lmq-4.9.7-clean",
    "lmq-4.9.7-kill",
    "lmq-5.3.3-clean",
    "lmq-5.3.3-kill",
    "timer-5.3.3-clean",
    "timer-5.3.3-kill",
];

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// What was done to the stores that were damaged by hand, apart from those whose `config/` was: the tests of the broker open these.
pub fn damaged() -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(data("damaged.json")).unwrap()).unwrap();
    let of_config = |damaged: &Value| {
        let (_, variant) = damaged["name"].as_str().unwrap().split_once("--").unwrap();
        ["config-", "offsets-", "topics-"].iter().any(|files| variant.starts_with(files))
    };
    all.into_iter().filter(|damaged| !of_config(damaged)).collect()
}

/// What is in a store that nobody damaged.
pub fn description(name: &str) -> Value {
    let archive = data(&format!("{name}.tar.gz"));
    let output = Command::new("tar").arg("xzOf").arg(archive).arg("description.json").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Unpacks a store; its root is `store` below the returned directory.
pub fn unpack(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let archive = data(&format!("{name}.tar.gz"));
    let status =
        Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(directory.path()).status().unwrap();
    assert!(status.success(), "{name}");
    directory
}

pub fn options(root: &Path, description: &Value) -> StoreOptions {
    let mut options = small(root);
    for line in description["configuration"].as_array().unwrap() {
        let (key, value) = line.as_str().unwrap().split_once('=').unwrap();
        match key {
            "mappedFileSizeCommitLog" => options.commit_log_file_size = value.parse().unwrap(),
            "mappedFileSizeConsumeQueue" => options.consume_queue_file_size = value.parse().unwrap(),
            "maxHashSlotNum" => options.index_slots = value.parse().unwrap(),
            "maxIndexNum" => options.index_units = value.parse().unwrap(),
            "mapperFileSizeBatchConsumeQueue" => {
                options.batch_consume_queue_file_size = value.parse().unwrap()
            }
            "enableMultiDispatch" => options.multi_dispatch_enabled = value == "true",
            _ => {}
        }
    }
    options
}

pub fn number(value: &Value) -> i64 {
    value.as_i64().unwrap()
}
