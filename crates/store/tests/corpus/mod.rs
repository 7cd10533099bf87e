//! The stores that the Java broker wrote, and what is known of them (`tests/data`).

#![allow(dead_code, unreachable_pub, reason = "every test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use ferromq_store::StoreOptions;
use serde_json::Value;

use crate::support::small;

/// Stores that nobody damaged.
pub const WHOLE: [&str; 9] = [
    "base-5.3.3-clean",
    "base-5.3.3-kill",
    "full-5.3.3-kill",
    "lmq-5.3.3-kill",
    "ipv6-5.3.3-clean",
    "crc-5.3.3-clean",
    "expired-5.3.3-kill",
    "expired-4.9.7-clean",
    "batchcq-5.3.3-clean",
];

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub fn json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(data(&format!("{name}.json"))).unwrap()).unwrap()
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
            "enableMultiDispatch" => options.multi_dispatch_enabled = value == "true",
            _ => {}
        }
    }
    options
}

pub fn number(value: &Value) -> i64 {
    value.as_i64().unwrap()
}
