//! Stores that the Java broker wrote, whole and damaged: each opens with what is in it, and damage costs only what is damaged.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod corpus;
mod support;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use corpus::*;
use ferromq_protocol::message::{RecordView, properties};
use ferromq_store::*;
use serde_json::Value;
use support::*;

fn check_record(store: &Store, expected: &Value) {
    let offset = number(&expected["physicalOffset"]) as u64;
    let record = store.record_at(offset).unwrap().unwrap();
    let view = RecordView::whole(&record, offset).unwrap();
    let fields = [
        ("size", view.size() as i64),
        ("version", if view.is_v2() { 2 } else { 1 }),
        ("queueId", i64::from(view.queue_id())),
        ("queueOffset", view.queue_offset()),
        ("sysFlag", i64::from(view.sys_flag())),
        ("flag", i64::from(view.flag())),
        ("bornTimestamp", view.born_timestamp()),
        ("storeTimestamp", view.store_timestamp()),
        ("reconsumeTimes", i64::from(view.reconsume_times())),
        ("preparedTransactionOffset", view.prepared_transaction_offset()),
    ];
    for (name, value) in fields {
        assert_eq!(value, number(&expected[name]), "{name} at {offset}");
    }
    assert_eq!(view.topic(), expected["topic"].as_str());
    let host = |name: &str| {
        expected[name].as_str().unwrap().rsplit_once(':').map(|(ip, port)| {
            (ip.trim_matches(['[', ']']).parse::<std::net::IpAddr>().unwrap(), port.parse::<u16>().unwrap())
        })
    };
    assert_eq!(Some((view.born_host().ip(), view.born_host().port())), host("bornHost"));
    assert_eq!(Some((view.store_host().ip(), view.store_host().port())), host("storeHost"));
    for (name, value) in expected["properties"].as_object().unwrap() {
        assert_eq!(view.property(name), value.as_str(), "{name} at {offset}");
    }
    assert_eq!(
        properties::iter(view.properties()).map(|(name, _)| name).collect::<HashSet<_>>().len(),
        expected["properties"].as_object().unwrap().len()
    );
}

#[test]
fn whole_stores_open_with_all_that_is_in_them() {
    for name in WHOLE {
        let directory = unpack(name);
        let description = description(name);
        let root = directory.path().join("store");
        let for_others = root.join("batchconsumequeue");
        let for_others_before = for_others.exists().then(|| files(&for_others));
        for restart in ["first", "after a clean stop", "after a crash"] {
            let store = Store::open(options(&root, &description)).unwrap();
            assert_eq!(store.min_offset(), number(&description["min"]) as u64, "{name}");
            assert_eq!(store.appended().get(), number(&description["max"]) as u64, "{name}");
            for record in description["records"].as_array().unwrap() {
                check_record(&store, record);
            }
            for (queue_name, queue_expected) in description["queues"].as_object().unwrap() {
                let (topic, queue_id) = queue_name.rsplit_once('/').unwrap();
                let queue = store.queue(topic, queue_id.parse().unwrap());
                let what = format!("{name} {queue_name} {restart}");
                assert_eq!(
                    (queue.min_offset(), queue.max_offset()),
                    (number(&queue_expected["min"]), number(&queue_expected["max"])),
                    "{what}"
                );
                assert_eq!(queue.next_offset(), queue.max_offset(), "{what}");
                let units: Vec<[i64; 4]> = store
                    .consume_queue_units(&queue, 0, usize::MAX)
                    .iter()
                    .map(|unit| {
                        [unit.queue_offset, unit.physical_offset as i64, i64::from(unit.size), unit.tags_code]
                    })
                    .collect();
                assert_eq!(units, expected_units(&description, queue_expected), "{what}");
                let at: Vec<u64> =
                    drain_records(&store, &queue).iter().map(|record| record.physical_offset()).collect();
                let mut expected: Vec<u64> = units.iter().map(|unit| unit[1] as u64).collect();
                // The messages of a batch share a record.
                expected.dedup();
                assert_eq!(at, expected, "{what}");
            }
            check_keys(&store, &description, &HashSet::new(), name);
            if restart == "first" {
                store.shutdown();
            }
            drop(store);
            assert!(for_others_before == for_others.exists().then(|| files(&for_others)), "{name}");
        }
    }
}

/// The units of a queue: queue offset, physical offset, size, tags code.
fn expected_units(description: &Value, queue: &Value) -> Vec<[i64; 4]> {
    let units = queue["units"].as_array().unwrap().iter();
    if queue["kind"] == "BatchCQ" {
        // First queue offset, physical offset, size, tags code, time, number of messages.
        let of_batch = |unit: &Value| {
            let [base, physical_offset, size, tags_code] = std::array::from_fn(|field| number(&unit[field]));
            (base..base + number(&unit[5])).map(move |offset| [offset, physical_offset, size, tags_code])
        };
        return units.flat_map(of_batch).collect();
    }
    units
        .map(|unit| {
            let mut fields: [i64; 4] = std::array::from_fn(|field| number(&unit[field]));
            if fields[3] < i64::from(i32::MIN) {
                // The address of an extension, which holds the tags code; we take that from the record.
                let records = description["records"].as_array().unwrap();
                let record =
                    records.iter().find(|record| number(&record["physicalOffset"]) == fields[1]).unwrap();
                let tags = record["properties"]["TAGS"].as_str().unwrap();
                fields[3] = i64::from(ferromq_protocol::message::java_string_hash(tags));
            }
            fields
        })
        .collect()
}

/// Every key of every record (that is not hurt) finds it.
fn check_keys(store: &Store, description: &Value, hurt: &HashSet<i64>, name: &str) {
    let mut expected: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    for record in description["records"].as_array().unwrap() {
        let offset = number(&record["physicalOffset"]);
        // Messages of a topic that was deleted are found again after a rebuild; those of prepared ones are too.
        if hurt.contains(&offset) {
            continue;
        }
        let topic = record["topic"].as_str().unwrap();
        let keys = record["properties"]["KEYS"]
            .as_str()
            .unwrap_or_default()
            .split(' ')
            .filter(|key| !key.is_empty());
        let unique = record["properties"]["UNIQ_KEY"].as_str();
        for key in keys.chain(unique).collect::<HashSet<_>>() {
            expected.entry((topic.to_owned(), key.to_owned())).or_default().push(offset as u64);
        }
    }
    for ((topic, key), offsets) in expected {
        let found = store.query(&topic, &key, 64, 0, i64::MAX, false).records;
        let found: Vec<u64> = found.iter().map(|record| record.physical_offset()).collect();
        let newest = &offsets[offsets.len().saturating_sub(64)..];
        assert_eq!(found, newest, "{name}: {topic} {key}");
    }
}

#[test]
fn damage_costs_only_what_is_damaged_after_a_stop_of_5_3() {
    damage_costs_only_what_is_damaged("base-5.3.3-clean");
}

#[test]
fn damage_costs_only_what_is_damaged_after_a_crash_of_5_3() {
    damage_costs_only_what_is_damaged("base-5.3.3-kill");
}

#[test]
fn damage_costs_only_what_is_damaged_after_a_stop_of_4_9() {
    damage_costs_only_what_is_damaged("base-4.9.7-clean");
}

#[test]
fn damage_costs_only_what_is_damaged_after_a_crash_of_4_9() {
    damage_costs_only_what_is_damaged("base-4.9.7-kill");
}

fn damage_costs_only_what_is_damaged(base_name: &str) {
    let base = description(base_name);
    for damaged in damaged().iter().filter(|damaged| damaged["base"] == base_name) {
        let name = damaged["name"].as_str().unwrap();
        let variant = name.split_once("--").unwrap().1;
        let directory = unpack(name);
        let root = directory.path().join("store");
        if variant == "log-all-missing" {
            let error = Store::open(options(&root, &base)).unwrap_err().to_string();
            assert!(error.contains("no log file"), "{error}");
            continue;
        }
        let mut hurt: HashSet<i64> =
            damaged["damagedRecordsAt"].as_array().unwrap().iter().map(number).collect();
        if variant == "properties-damaged" {
            // Nothing but a checksum of the whole record could tell.
            hurt.clear();
        }
        let mut sent: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for round in 0..4 {
            let store = Store::open(options(&root, &base)).unwrap_or_else(|error| panic!("{name}: {error}"));
            check_damaged(&store, name, &base, &hurt, &sent);
            for queue_name in base["queues"].as_object().unwrap().keys() {
                let (topic, queue_id) = queue_name.rsplit_once('/').unwrap();
                let outcome = send(&store, &Message::new(topic, queue_id.parse().unwrap(), "new"));
                let max = number(&base["queues"][queue_name]["max"]);
                // Units that were added by hand behind the log's end count as given after a crash.
                let given = if variant == "cq-longer" && name.contains("-kill") && queue_name == "T2/0" {
                    max + 3
                } else {
                    max
                };
                assert_eq!(outcome.queue_offset, given + round, "{name} {queue_name}");
                sent.entry(queue_name.clone()).or_default().push(outcome.queue_offset);
            }
            if round % 2 == 0 {
                store.shutdown();
            }
        }
    }
}

/// Topics, groups and offsets of such a store can't be read, so it is not touched.
#[test]
fn stores_in_rocksdb_are_refused() {
    for name in ["rocksdb-5.3.3-clean", "rocksdb-v2-5.3.3-clean"] {
        let directory = unpack(name);
        let root = directory.path().join("store");
        let before = files(&root);
        let error = Store::open(options(&root, &description(name))).unwrap_err().to_string();
        assert!(error.contains("RocksDB") && error.contains("nothing was changed"), "{error}");
        assert_eq!(files(&root), before, "{name}");
    }
}

/// Every file below a directory with its content.
fn files(directory: &std::path::Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files(&path));
        } else if path.file_name().unwrap() != "lock" {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

fn check_damaged(
    store: &Arc<Store>,
    name: &str,
    base: &Value,
    hurt: &HashSet<i64>,
    sent: &BTreeMap<String, Vec<i64>>,
) {
    for queue_name in base["queues"].as_object().unwrap().keys() {
        let (topic, queue_id) = queue_name.rsplit_once('/').unwrap();
        let queue = store.queue(topic, queue_id.parse().unwrap());
        let whole = base["queues"][queue_name]["units"].as_array().unwrap().iter();
        let whole = whole.filter(|unit| !hurt.contains(&number(&unit[1]))).map(|unit| number(&unit[0]));
        let expected: Vec<i64> = whole.chain(sent.get(queue_name).into_iter().flatten().copied()).collect();
        // `drain` checks that each record is whole and what its front says.
        let found: Vec<i64> = drain(store, &queue).iter().map(|(offset, _)| *offset).collect();
        assert_eq!(found, expected, "{name} {queue_name}");
    }
    if !name.contains("properties-damaged") {
        check_keys(store, base, hurt, name);
    }
}
