//! Directories of the Java broker (`crates/store/tests/data`): topics and offsets that are in their `config/`, whole and damaged.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferromq_broker::RunningBroker;
use ferromq_broker::config::BrokerConfig;
use ferromq_protocol::body::{ConsumerOffsetSerializeWrapper, TopicConfigSerializeWrapper};
use ferromq_protocol::code::request;
use serde_json::Value;
use support::{Peer, start};

fn archive(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../store/tests/data/{name}.tar.gz"))
}

/// Unpacks a store; its root is `store` below the returned directory.
fn unpack(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let tar = Command::new("tar").arg("xzf").arg(archive(name)).arg("-C").arg(directory.path()).status();
    assert!(tar.expect("tar").success(), "{name}");
    directory
}

fn description(name: &str) -> Value {
    let output = Command::new("tar").arg("xzOf").arg(archive(name)).arg("description.json").output();
    serde_json::from_slice(&output.expect("tar").stdout).expect("a description")
}

/// The settings without which the store does not open.
fn settings(description: &Value) -> Vec<(&str, &str)> {
    let lines = description["configuration"].as_array().expect("lines");
    let lines = lines.iter().map(|line| line.as_str().expect("text").split_once('=').expect("key=value"));
    // Those that we know; the store's own are among them.
    lines.filter(|(key, _)| BrokerConfig::default().set(key, "1").unwrap_or(true)).collect()
}

async fn topics(peer: &Peer) -> TopicConfigSerializeWrapper {
    peer.ask(request::GET_ALL_TOPIC_CONFIG, &()).await
}

async fn offsets(peer: &Peer) -> ConsumerOffsetSerializeWrapper {
    peer.ask(request::GET_ALL_CONSUMER_OFFSET, &()).await
}

async fn check(broker: &RunningBroker, description: &Value, what: &str) {
    let peer = Peer::connect(broker).await;
    check_topics(&peer, description, what).await;
    check_offsets(&peer, description, what).await;
}

async fn check_topics(peer: &Peer, description: &Value, what: &str) {
    let found = topics(peer).await.topic_config_table;
    for (name, expected) in description["topics"].as_object().expect("topics") {
        let mut topic = serde_json::to_value(&found[name.as_str()]).expect("a topic");
        if expected.get("attributes").is_none() {
            topic.as_object_mut().expect("fields").remove("attributes");
        }
        assert_eq!(topic, *expected, "{what} {name}");
    }
}

async fn check_offsets(peer: &Peer, description: &Value, what: &str) {
    let found = offsets(peer).await;
    let of_queues = |offsets: &Value| -> BTreeMap<i32, i64> {
        let offsets = offsets.as_object().expect("offsets");
        offsets
            .iter()
            .map(|(id, offset)| (id.parse().expect("an id"), offset.as_i64().expect("an offset")))
            .collect()
    };
    for (key, expected) in description["consumerOffsets"].as_object().expect("offsets") {
        assert_eq!(found.offset_table.get(key), Some(&of_queues(expected)), "{what} {key}");
    }
    if let Some(light) = description["lmqOffsets"].as_object() {
        let found = serde_json::to_value(&found.lmq_offset_table).expect("a table");
        assert_eq!(found.as_object(), Some(light), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_and_offsets_are_taken_over() {
    for name in [
        "base-4.9.7-clean",
        "base-5.3.3-kill",
        "batchcq-5.3.3-clean",
        "compaction-5.3.3-kill",
        "cqext-4.9.7-kill",
        "cqext-5.3.3-clean",
        "expired-5.3.3-clean",
        "full-4.9.7-kill",
        "full-5.3.3-clean",
        "lmq-4.9.7-clean",
        "lmq-5.3.3-kill",
        "timer-5.3.3-clean",
    ] {
        let directory = unpack(name);
        let description = description(name);
        for what in ["first start", "second start"] {
            let broker = start(directory.path(), &settings(&description)).await;
            check(&broker, &description, &format!("{name} {what}")).await;
            broker.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_replaced_by_its_backup() {
    for base in ["base-4.9.7-clean", "base-5.3.3-clean"] {
        let description = description(base);
        for variant in
            ["offsets-truncated-bak-ok", "offsets-zero-bytes", "topics-empty", "topics-truncated-bak-ok"]
        {
            let directory = unpack(&format!("{base}--{variant}"));
            let broker = start(directory.path(), &settings(&description)).await;
            check(&broker, &description, &format!("{base} {variant}")).await;
            broker.shutdown().await;
        }
    }
}

/// Without a backup the broker does not start with an empty table, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_lost_is_not_taken_for_an_empty_one() {
    for base in ["base-4.9.7-clean", "base-5.3.3-clean"] {
        let description = description(base);
        for (variant, file) in [
            ("offsets-truncated-no-bak", "consumerOffset.json"),
            ("topics-truncated-no-bak", "topics.json"),
            ("topics-both-truncated", "topics.json"),
        ] {
            let directory = unpack(&format!("{base}--{variant}"));
            let path = directory.path().join("store/config").join(file);
            let before = std::fs::read(&path).expect("the file");
            let mut config = BrokerConfig::default();
            let root = directory.path().join("store").display().to_string();
            for (key, value) in settings(&description).into_iter().chain([
                ("storePathRootDir", root.as_str()),
                ("listenPort", "0"),
                ("brokerIP1", "127.0.0.1"),
            ]) {
                assert!(config.set(key, value).expect("a valid setting"), "{key}");
            }
            let error = RunningBroker::start(config).await.err().expect("no start").to_string();
            assert!(error.contains(file), "{error}");
            assert_eq!(std::fs::read(&path).expect("the file"), before, "{base} {variant}");
        }
    }
}

/// When the whole directory is gone, there are at least the topics whose messages there are.
#[tokio::test(flavor = "multi_thread")]
async fn topics_are_made_from_queues_when_their_file_is_missing() {
    for base in ["base-4.9.7-clean", "base-5.3.3-clean"] {
        let description = description(base);
        let directory = unpack(&format!("{base}--config-missing"));
        let broker = start(directory.path(), &settings(&description)).await;
        let found = topics(&Peer::connect(&broker).await).await.topic_config_table;
        let queues =
            |topic: &str| (found[topic].read_queue_nums, found[topic].write_queue_nums, found[topic].perm);
        assert_eq!((queues("T1"), queues("T2")), ((2, 2, 6), (1, 1, 6)), "{base}");
        broker.shutdown().await;
    }
}
