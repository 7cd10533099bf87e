//! Looking into stores without opening them: what is sound has no findings, what is damaged is named, and not a byte changes.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod corpus;
mod support;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferromq_store::offline::*;
use ferromq_store::{Store, StoreOptions};

use corpus::*;

/// Collects what a check says.
#[derive(Default)]
struct Heard {
    findings: Vec<Finding>,
    progress: Vec<CheckProgress>,
}

impl CheckReport for Heard {
    fn found(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    fn progress(&mut self, progress: CheckProgress) {
        self.progress.push(progress);
    }
}

fn check(options: StoreOptions) -> (Checked, Heard) {
    let topics: HashSet<String> = topics(&options.root);
    let store = OfflineStore::open(options).unwrap();
    let mut heard = Heard::default();
    let checked = store.check(Some(&topics), &mut heard).unwrap();
    (checked, heard)
}

fn topics(root: &Path) -> HashSet<String> {
    let bytes = fs::read(root.join("config/topics.json")).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    value["topicConfigTable"].as_object().unwrap().keys().cloned().collect()
}

/// Every file with its content, length on the disk and times.
fn image(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u64, i64, i64)> {
    let mut image = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let content = if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
                Vec::new()
            } else {
                // A file that was just unpacked gets its blocks when it is written back.
                fs::File::open(entry.path()).unwrap().sync_all().unwrap();
                fs::read(entry.path()).unwrap()
            };
            let metadata = entry.metadata().unwrap();
            image.insert(entry.path(), (content, metadata.blocks(), metadata.mtime(), metadata.ctime()));
        }
    }
    image
}

/// Findings that mean that something is wrong.
fn wrong(heard: &Heard) -> Vec<&Finding> {
    heard.findings.iter().filter(|finding| finding.problem.severity() > Severity::Note).collect()
}

fn kinds(heard: &Heard) -> Vec<&'static str> {
    heard.findings.iter().map(|finding| finding.problem.kind()).collect()
}

/// Whether a finding says that the message at an offset is damaged or gone.
fn tells_of(problem: &Problem, offset: u64) -> bool {
    match problem {
        Problem::LogDamaged { offset: from, whole_again_at, .. } => {
            (*from..*whole_again_at).contains(&offset)
        }
        Problem::LogFilesMissing { from, to } => (*from..*to).contains(&offset),
        Problem::TornTail { offset: from, .. } => *from <= offset,
        Problem::UnitsBehindEnd(range) => range.physical_offset <= offset,
        _ => false,
    }
}

#[test]
fn whole_stores_are_sound() {
    for name in WHOLE {
        let directory = unpack(name);
        let description = description(name);
        let root = directory.path().join("store");
        let before = image(&root);
        let (checked, mut heard) = check(options(&root, &description));
        if name.starts_with("full-4.9.7") {
            // 4.9 destroyed the queue of half messages when it deleted TopicGone.
            heard.findings.retain(|finding| !matches!(&finding.problem, Problem::UnitsMissing(range) if range.topic == "RMQ_SYS_TRANS_HALF_TOPIC"));
        }
        assert_eq!(wrong(&heard), Vec::<&Finding>::new(), "{name}");
        let mut notes =
            if name.contains("-kill") || name.contains("-live") { vec!["not-closed"] } else { Vec::new() };
        if name.starts_with("full") {
            // TopicGone, which was deleted.
            notes.push("deleted-topic");
        }
        assert_eq!(kinds(&heard), notes, "{name}");
        assert_eq!(checked.log_min, number(&description["min"]) as u64, "{name}");
        assert_eq!(checked.log_end, number(&description["max"]) as u64, "{name}");
        assert_eq!(checked.records, description["records"].as_array().unwrap().len() as u64, "{name}");
        let bytes = OfflineStore::open(options(&root, &description)).unwrap().log_bytes();
        assert!(heard.progress.contains(&CheckProgress::Log { done: bytes, of: bytes }), "{name}");
        assert!(image(&root) == before, "{name}: nothing is changed");
    }
}

#[test]
fn damage_is_found_and_named() {
    for damaged in damaged() {
        let name = damaged["name"].as_str().unwrap();
        let variant = name.split_once("--").unwrap().1;
        let base = description(damaged["base"].as_str().unwrap());
        let directory = unpack(name);
        let root = directory.path().join("store");
        let before = image(&root);
        let (_, heard) = check(options(&root, &base));
        assert!(image(&root) == before, "{name}: nothing is changed");
        let wrong = wrong(&heard);
        let is_sound = match variant {
            // Nothing is lost, or wrong.
            "abort-added"
            | "abort-removed"
            | "cq-zero-last-file"
            | "log-foreign-file"
            | "log-zero-filled-next"
            | "log-zero-length-next" => true,
            // Looks as if the file had expired.
            "log-first-missing" => true,
            // Nothing but a checksum of the whole record could tell, unless it is the tag that was damaged.
            "properties-damaged" => name.contains("5.3.3"),
            _ => false,
        };
        assert_eq!(wrong.is_empty(), is_sound, "{name}: {wrong:#?}");
        if is_sound || variant == "properties-damaged" {
            continue;
        }
        let hurt: Vec<u64> =
            damaged["damagedRecordsAt"].as_array().unwrap().iter().map(|at| number(at) as u64).collect();
        for offset in &hurt {
            assert!(
                wrong.iter().any(|finding| tells_of(&finding.problem, *offset)),
                "{name}: {offset} in {wrong:#?}"
            );
        }
        if let Some(first) = hurt.first() {
            let named = format!("offset {first}");
            assert!(
                wrong.iter().any(|finding| finding.problem.to_string().contains(&named)),
                "{name}: {wrong:#?}"
            );
            assert!(wrong.iter().any(|finding| finding.problem.severity() == Severity::Damage), "{name}");
        }
    }
}

#[test]
fn findings_name_file_and_byte() {
    let directory = unpack("base-5.3.3-clean--crc-last-file");
    let root = directory.path().join("store");
    let (_, heard) = check(options(&root, &description("base-5.3.3-clean")));
    let found: Vec<_> =
        heard.findings.iter().map(|finding| (finding.file.as_path(), finding.position)).collect();
    let log = root.join("commitlog/00000000000000196608");
    let queue = root.join("consumequeue/T1/0/00000000000000001600");
    assert_eq!(found, [(log.as_path(), Some(216_589 - 196_608)), (queue.as_path(), Some(11 * 20))]);
}

#[test]
fn wrong_units_and_links_are_found() {
    let directory = unpack("base-5.3.3-clean");
    let root = directory.path().join("store");
    let queue = root.join("consumequeue/T1/0/00000000000000000000");
    let mut bytes = fs::read(&queue).unwrap();
    // The tags code of unit 3, the offset of unit 7.
    bytes[3 * 20 + 19] ^= 1;
    bytes[7 * 20 + 7] ^= 1;
    fs::write(&queue, bytes).unwrap();
    let index = fs::read_dir(root.join("index")).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let mut bytes = fs::read(&index).unwrap();
    let unit = |number: usize| 40 + 4 * 20 + 20 * number;
    // The hash of unit 5: its message has no such key. The link of unit 30: what lies before is not found.
    bytes[unit(5) + 3] ^= 1;
    bytes[unit(30) + 16..unit(30) + 20].fill(0xFF);
    fs::write(&index, bytes).unwrap();
    let (_, heard) = check(options(&root, &description("base-5.3.3-clean")));
    let problems: Vec<_> = heard.findings.iter().map(|finding| finding.problem.clone()).collect();
    let wrong = |from| {
        problems.iter().any(|problem| matches!(problem, Problem::UnitsWrong(range) if (&*range.topic, range.queue_id, range.from, range.to) == ("T1", 0, from, from + 1)))
    };
    assert!(wrong(3) && wrong(7), "{problems:#?}");
    let has = |expected: fn(&Problem) -> bool| assert!(problems.iter().any(expected), "{problems:#?}");
    has(|problem| matches!(problem, Problem::KeysMissing { messages: 1, .. }));
    has(|problem| matches!(problem, Problem::IndexUnitsWithoutMessage { units: 1, unit: 5, .. }));
    has(|problem| matches!(problem, Problem::IndexLinks { .. }));
}

#[test]
fn file_sizes_are_those_that_the_store_was_written_with() {
    for name in WHOLE {
        let directory = unpack(name);
        let root = directory.path().join("store");
        let expected = options(&root, &description(name));
        let mut found = StoreOptions::new(&root);
        Layout::of(&root, &root.join("commitlog")).unwrap().apply(&mut found);
        let sizes = |options: &StoreOptions| {
            let index = (options.index_slots, options.index_units);
            (
                options.commit_log_file_size,
                options.consume_queue_file_size,
                options.batch_consume_queue_file_size,
                index,
                options.multi_dispatch_enabled,
            )
        };
        assert_eq!(sizes(&found), sizes(&expected), "{name}");
    }
}

#[test]
fn a_store_in_use_is_not_looked_into() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(support::small(root.path())).unwrap();
    let error = OfflineStore::open(support::small(root.path())).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    store.shutdown();
    OfflineStore::open(support::small(root.path())).unwrap();
}

/// Physical offsets of the messages of a selection, and of the damage met.
fn select(options: &StoreOptions, selection: &Selection) -> (Vec<u64>, Vec<u64>) {
    let (mut messages, mut damaged) = (Vec::new(), Vec::new());
    let store = OfflineStore::open(options.clone()).unwrap();
    let mut take = |selected: Selected<'_>| {
        match selected {
            Selected::Message(record) => messages.push(record.physical_offset()),
            Selected::Damage { offset, .. } => damaged.push(offset),
        }
        ControlFlow::Continue(())
    };
    store.messages(selection, &mut take).unwrap();
    (messages, damaged)
}

#[test]
fn selected_messages_are_those_for_which_everything_holds() {
    let directory = unpack("base-5.3.3-clean");
    let description = description("base-5.3.3-clean");
    let options = options(&directory.path().join("store"), &description);
    let records = description["records"].as_array().unwrap();
    let expected = |holds: &dyn Fn(&serde_json::Value) -> bool| -> Vec<u64> {
        records
            .iter()
            .filter(|record| holds(record))
            .map(|record| number(&record["physicalOffset"]) as u64)
            .collect()
    };
    let all = Selection::default();
    assert_eq!(select(&options, &all).0, expected(&|_| true));
    // In the middle of a record: from the next one on.
    let middle = Selection { physical: 70_000..150_000, ..all.clone() };
    let in_range = expected(&|record| (70_000..150_000).contains(&number(&record["physicalOffset"])));
    assert_eq!(select(&options, &middle), (in_range, vec![]));

    let of_queue = |record: &serde_json::Value| record["topic"] == "T1" && record["queueId"] == 1;
    let queue = Selection { topic: Some("T1".into()), queue_id: Some(1), ..all.clone() };
    let times = (number(&records[60]["storeTimestamp"]), number(&records[190]["storeTimestamp"]));
    for read_log in [false, true] {
        let queue = Selection { read_log, ..queue.clone() };
        assert_eq!(select(&options, &queue).0, expected(&of_queue));
        let some = Selection { queue_offsets: 30..55, ..queue.clone() };
        let holds = |record: &serde_json::Value| {
            of_queue(record) && (30..55).contains(&number(&record["queueOffset"]))
        };
        assert_eq!(select(&options, &some).0, expected(&holds));
        let some = Selection { store_times_ms: times, ..queue.clone() };
        let holds = |record: &serde_json::Value| {
            of_queue(record) && (times.0..=times.1).contains(&number(&record["storeTimestamp"]))
        };
        assert_eq!(select(&options, &some).0, expected(&holds));
        let wanted = records[123]["properties"]["UNIQ_KEY"].as_str().unwrap();
        let topic = records[123]["topic"].as_str().unwrap().to_owned();
        let keyed = Selection { topic: Some(topic), key: Some(wanted.to_owned()), read_log, ..all.clone() };
        assert_eq!(select(&options, &keyed).0, [number(&records[123]["physicalOffset"]) as u64]);
    }
    // Without queues the log has it all.
    fs::remove_dir_all(options.root.join("consumequeue")).unwrap();
    assert_eq!(select(&options, &queue).0, expected(&of_queue));
}

#[test]
fn damage_is_told_and_the_rest_is_selected() {
    let directory = unpack("base-5.3.3-clean--crc-last-file");
    let description = description("base-5.3.3-clean");
    let options = options(&directory.path().join("store"), &description);
    let (messages, damaged) = select(&options, &Selection::default());
    assert_eq!((messages.len(), damaged), (249, vec![216_589]));
    let queue = Selection { topic: Some("T1".into()), queue_id: Some(0), ..Selection::default() };
    let (messages, damaged) = select(&options, &queue);
    assert_eq!((messages.len(), damaged), (99, vec![216_589]));
}

#[test]
fn statistics_are_sums_of_what_is_there() {
    let directory = unpack("full-5.3.3-kill");
    let description = description("full-5.3.3-kill");
    let options = options(&directory.path().join("store"), &description);
    let statistics = OfflineStore::open(options).unwrap().statistics(&mut |_| {}).unwrap();
    let records = description["records"].as_array().unwrap();
    let amount = |topic: Option<&str>| {
        let records = records.iter().filter(|record| topic.is_none_or(|topic| record["topic"] == topic));
        records.fold(Amount::default(), |sum, record| Amount {
            messages: sum.messages + 1,
            bytes: sum.bytes + number(&record["size"]) as u64,
        })
    };
    assert_eq!(statistics.amount, amount(None));
    assert_eq!(statistics.log_end, number(&description["max"]) as u64);
    assert_eq!((statistics.log.files, statistics.log.bytes), (7, 7 << 20));
    let times = records.iter().map(|record| number(&record["storeTimestamp"]));
    assert_eq!(statistics.store_times_ms, times.clone().min().zip(times.max()));
    for (name, topic) in &statistics.topics {
        assert_eq!(topic.amount, amount(Some(name)), "{name}");
        let days = topic.days.values().fold((0, 0), |sum, day| (sum.0 + day.messages, sum.1 + day.bytes));
        assert_eq!(days, (topic.amount.messages, topic.amount.bytes), "{name}");
    }
    assert_eq!(statistics.topics["TopicA"].queues, 4);
    assert_eq!(statistics.topics["TopicGone"].queues, 0);
}

#[test]
fn a_rebuilt_store_has_all_that_its_log_has() {
    let damaged = damaged();
    let derived = damaged.iter().filter(|damaged| {
        let name = damaged["name"].as_str().unwrap();
        let derived = ["--cq-", "--index-", "--checkpoint-"];
        name.starts_with("base-5.3.3") && derived.iter().any(|what| name.contains(what))
    });
    let derived =
        derived.map(|damaged| (damaged["name"].as_str().unwrap(), damaged["base"].as_str().unwrap()));
    for (name, base) in WHOLE.into_iter().map(|name| (name, name)).chain(derived) {
        let directory = unpack(name);
        let description = description(base);
        let options = options(&directory.path().join("store"), &description);
        let rebuilt = rebuild(&options, &|_| {}).unwrap();
        let records = description["records"].as_array().unwrap();
        assert_eq!(rebuilt.records, records.len() as u64, "{name}");
        assert_eq!(rebuilt.log_end, number(&description["max"]) as u64, "{name}");
        let (checked, heard) = check(options.clone());
        assert_eq!(wrong(&heard), Vec::<&Finding>::new(), "{name}");
        assert!(!kinds(&heard).contains(&"not-closed"), "{name}");
        assert_eq!(checked.records, rebuilt.records, "{name}");
        let store = Store::open(options).unwrap();
        for (queue_name, expected) in description["queues"].as_object().unwrap() {
            let (topic, queue_id) = queue_name.rsplit_once('/').unwrap();
            if topic == "BatchT" {
                continue;
            }
            let queue = store.queue(topic, queue_id.parse().unwrap());
            let units = store.consume_queue_units(&queue, 0, usize::MAX);
            let units: Vec<_> =
                units.iter().map(|unit| (unit.queue_offset, unit.physical_offset as i64)).collect();
            let expected = expected["units"].as_array().unwrap().iter();
            let expected: Vec<_> = expected.map(|unit| (number(&unit[0]), number(&unit[1]))).collect();
            assert_eq!(units, expected, "{name} {queue_name}");
        }
    }
}

#[test]
fn a_rebuild_keeps_offsets_that_only_the_list_of_queues_knows() {
    use support::{Message, send, small};
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    for _ in 0..5 {
        send(&store, &Message::new("T", 3, "x"));
    }
    store.shutdown();
    // The log's only file is gone, as if it had expired; another begins.
    let log = root.path().join("commitlog");
    fs::rename(log.join("00000000000000000000"), log.join("00000000000000065536")).unwrap();
    fs::write(log.join("00000000000000065536"), vec![0; 65536]).unwrap();
    rebuild(&small(root.path()), &|_| {}).unwrap();
    let store = Store::open(small(root.path())).unwrap();
    assert_eq!(send(&store, &Message::new("T", 3, "x")).queue_offset, 5);
}

/// Small files of both kinds that a topic of batches has.
fn with_batches(root: &Path) -> StoreOptions {
    let batch_topics = vec!["BatchT".to_owned()];
    StoreOptions { batch_topics, batch_consume_queue_file_size: 460, ..support::small(root) }
}

/// Offset of each record of `fill_with_batches`, and where it lies.
type Records = Vec<(Range<i64>, u64)>;

/// A store with 24 records of one to four messages in queue 1 of a topic of batches, after a clean stop.
fn fill_with_batches(root: &Path) -> Records {
    use ferromq_protocol::message::sysflag;
    use support::{Message, send};
    fs::create_dir(root.join("config")).unwrap();
    fs::write(root.join("config/topics.json"), r#"{"topicConfigTable":{"BatchT":{},"T":{}}}"#).unwrap();
    let store = Store::open(with_batches(root)).unwrap();
    let mut records = Vec::new();
    for number in 0..24 {
        let messages = number % 4 + 1;
        let mut sent = Message::new("BatchT", 1, vec![b'm'; messages * 22]);
        if messages > 1 {
            sent = sent.with("INNER_NUM", &messages.to_string());
            sent.sys_flag = sysflag::NEED_UNWRAP | sysflag::INNER_BATCH;
        }
        let outcome = send(&store, &sent);
        records.push((outcome.queue_offset..outcome.queue_offset + messages as i64, outcome.physical_offset));
        send(&store, &Message::new("T", 1, "between"));
    }
    store.shutdown();
    records
}

/// Something found: kind, file, byte in it, queue offsets, place in the log.
type Found<'a> = (&'static str, &'a str, Option<u64>, Range<i64>, u64);

/// What is wrong with queue 1 of the topic of batches.
fn ranges<'a>(heard: &'a Heard, root: &Path) -> Vec<Found<'a>> {
    let all = heard.findings.iter().map(|finding| {
        let range = match &finding.problem {
            Problem::UnitsMissing(range)
            | Problem::UnitsWrong(range)
            | Problem::UnitsWithoutMessage(range)
            | Problem::UnitsBehindEnd(range) => range,
            other => panic!("{other:?}"),
        };
        assert_eq!((&*range.topic, range.queue_id), ("BatchT", 1));
        let file = finding.file.strip_prefix(root).unwrap().to_str().unwrap();
        let kind = finding.problem.kind();
        (kind, file, finding.position, range.from..range.to, range.physical_offset)
    });
    all.collect()
}

const BATCH_FILES: [&str; 3] = [
    "batchconsumequeue/BatchT/1/00000000000000000000",
    "batchconsumequeue/BatchT/1/00000000000000000460",
    "batchconsumequeue/BatchT/1/00000000000000000920",
];
const UNIT_FILES: [&str; 3] = [
    "batchconsumequeue.units/BatchT/1/00000000000000000000",
    "batchconsumequeue.units/BatchT/1/00000000000000000400",
    "batchconsumequeue.units/BatchT/1/00000000000000000800",
];

/// Changes bytes of a file.
fn damage(file: &Path, change: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

#[test]
fn damaged_queues_of_batches_are_found_and_laid_anew() {
    let whole = tempfile::tempdir().unwrap();
    let records = fill_with_batches(whole.path());
    let log_end = records[23].1 + 10_000;
    // Where records 0 to 23 begin in the queue, and its end.
    let base = |record: usize| records.get(record).map_or(60, |(offsets, _)| offsets.start);
    let at = |record: usize| records[record].1;
    type Damage<'a> = Box<dyn Fn(&Path) + 'a>;
    let cases: Vec<(&str, Damage<'_>, Vec<Found<'_>>)> = vec![
        ("nothing", Box::new(|_| {}), vec![]),
        (
            "tag, place and queue offset of a unit",
            Box::new(|root| {
                damage(&root.join(BATCH_FILES[0]), |bytes| {
                    bytes[3 * 46 + 19] ^= 1;
                    bytes[6 * 46] ^= 1;
                    bytes[8 * 46 + 30] ^= 1;
                });
            }),
            vec![
                ("units-wrong", BATCH_FILES[0], Some(3 * 46), base(3)..base(4), at(3)),
                ("units-wrong", BATCH_FILES[0], Some(6 * 46), base(6)..base(7), at(6)),
                ("units-wrong", BATCH_FILES[0], Some(8 * 46), base(8)..base(9), at(8)),
            ],
        ),
        (
            "nonsense",
            Box::new(|root| damage(&root.join(BATCH_FILES[1]), |bytes| bytes[46..92].fill(0xFF))),
            vec![("units-wrong", BATCH_FILES[1], Some(46), base(11)..base(12), at(11))],
        ),
        (
            "the last units",
            Box::new(|root| damage(&root.join(BATCH_FILES[2]), |bytes| bytes[2 * 46..].fill(0))),
            vec![("units-missing", BATCH_FILES[2], Some(2 * 46), base(22)..base(24), at(22))],
        ),
        (
            "a file in the middle",
            Box::new(|root| fs::remove_file(root.join(BATCH_FILES[1])).unwrap()),
            vec![("units-missing", BATCH_FILES[1], Some(0), base(10)..base(20), at(10))],
        ),
        (
            "the first file",
            Box::new(|root| fs::remove_file(root.join(BATCH_FILES[0])).unwrap()),
            vec![("units-missing", BATCH_FILES[1], Some(0), base(0)..base(10), at(0))],
        ),
        (
            "all files",
            Box::new(|root| fs::remove_dir_all(root.join("batchconsumequeue")).unwrap()),
            vec![("units-missing", BATCH_FILES[0], Some(0), 0..60, 0)],
        ),
        (
            "a unit is there twice, and one too many",
            Box::new(|root| {
                damage(&root.join(BATCH_FILES[2]), |bytes| {
                    bytes.copy_within(3 * 46..4 * 46, 4 * 46);
                    bytes.copy_within(3 * 46..4 * 46, 5 * 46);
                    bytes[5 * 46..5 * 46 + 8].copy_from_slice(&log_end.to_be_bytes());
                });
            }),
            vec![
                ("units-without-message", BATCH_FILES[2], Some(4 * 46), base(23)..base(24), at(23)),
                ("units-behind-end", BATCH_FILES[2], Some(5 * 46), base(23)..base(24), log_end),
            ],
        ),
        (
            "our own units",
            Box::new(|root| damage(&root.join(UNIT_FILES[0]), |bytes| bytes[7 * 20 + 7] ^= 1)),
            vec![("units-wrong", UNIT_FILES[0], Some(7 * 20), 7..8, at(3))],
        ),
        (
            "the end of our own units",
            Box::new(|root| {
                damage(&root.join(UNIT_FILES[2]), |bytes| {
                    bytes[18 * 20..].fill(0);
                    bytes[19 * 20..].copy_from_slice(&[0xFF; 20]);
                    bytes[19 * 20..19 * 20 + 12].copy_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 9]);
                });
            }),
            vec![
                ("units-missing", UNIT_FILES[2], Some(18 * 20), 58..59, at(23)),
                ("units-wrong", UNIT_FILES[2], Some(19 * 20), 59..60, at(23)),
            ],
        ),
        (
            "a unit of ours behind the end",
            Box::new(|root| {
                let mut file = vec![0; 400];
                file[..12].copy_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 9]);
                fs::write(root.join("batchconsumequeue.units/BatchT/1/00000000000000001200"), file).unwrap();
            }),
            vec![(
                "units-behind-end",
                "batchconsumequeue.units/BatchT/1/00000000000000001200",
                Some(0),
                60..61,
                1 << 24,
            )],
        ),
        (
            "all of our own units",
            Box::new(|root| fs::remove_dir_all(root.join("batchconsumequeue.units")).unwrap()),
            vec![("units-missing", UNIT_FILES[0], Some(0), 0..60, 0)],
        ),
        (
            "all of our own units, where another broker wrote last",
            Box::new(|root| {
                fs::remove_dir_all(root.join("batchconsumequeue.units")).unwrap();
                fs::remove_file(root.join("ferromq.marks")).unwrap();
            }),
            vec![],
        ),
    ];
    for (name, damage, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("store");
        let copied = Command::new("cp").arg("-a").arg(whole.path()).arg(&root).status().unwrap();
        assert!(copied.success());
        damage(&root);
        let before = image(&root);
        let (checked, heard) = check(with_batches(&root));
        assert!(image(&root) == before, "{name}: nothing is changed");
        assert_eq!(ranges(&heard, &root), expected, "{name}");
        assert_eq!(checked.records, 48, "{name}");

        rebuild(&with_batches(&root), &|_| {}).unwrap();
        let (_, heard) = check(with_batches(&root));
        assert_eq!(heard.findings, [], "{name}");
        for file in BATCH_FILES.iter().chain(&UNIT_FILES) {
            let content = |root: &Path| fs::read(root.join(file)).unwrap();
            assert!(content(&root) == content(whole.path()), "{name}: {file}");
        }
    }
}

#[test]
fn files_of_batches_with_other_lengths_and_names_are_found() {
    let directory = tempfile::tempdir().unwrap();
    fill_with_batches(directory.path());
    fs::write(directory.path().join(BATCH_FILES[0]).with_file_name("00000000000000000046"), [0; 460])
        .unwrap();
    let last = fs::File::options().write(true).open(directory.path().join(BATCH_FILES[2])).unwrap();
    last.set_len(400).unwrap();
    let (_, heard) = check(with_batches(directory.path()));
    let problems: Vec<_> = heard.findings.iter().map(|finding| &finding.problem).collect();
    let setting = "mapperFileSizeBatchConsumeQueue";
    let expected = [
        &Problem::QueueFileName { setting, expected: 460 },
        &Problem::QueueFileLength { len: 400, setting, expected: 460 },
    ];
    assert_eq!(problems, expected);
}

#[test]
fn damaged_queues_of_batches_that_another_broker_wrote_are_found() {
    let name = "batchcq-5.3.3-clean";
    let directory = unpack(name);
    let root = directory.path().join("store");
    let options = options(&root, &description(name));
    let queues = fs::read_dir(root.join("batchconsumequeue/BatchT")).unwrap();
    let file = queues.map(|queue| queue.unwrap().path().join("00000000000000000000")).min().unwrap();
    damage(&file, |bytes| bytes[46 + 19] ^= 1);
    let (_, heard) = check(options);
    let places: Vec<_> = heard
        .findings
        .iter()
        .map(|finding| (finding.problem.kind(), &finding.file, finding.position))
        .collect();
    assert_eq!(places, [("units-wrong", &file, Some(46))]);
}

#[test]
fn messages_of_batches_are_selected_by_queue() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let records = fill_with_batches(root);
    let options = with_batches(root);
    let all: Vec<u64> = records.iter().map(|(_, physical_offset)| *physical_offset).collect();
    let queue = Selection { topic: Some("BatchT".into()), queue_id: Some(1), ..Selection::default() };
    // In the middle of record 3, which holds the messages 6 to 9, to the begin of record 7, which holds 16 to 19.
    let some = Selection { queue_offsets: 8..17, ..queue.clone() };
    let later = Selection { physical: all[5]..all[9], ..queue.clone() };
    let check = |read_log| {
        let select = |selection: &Selection| select(&options, &Selection { read_log, ..selection.clone() }).0;
        assert_eq!(select(&queue), all);
        assert_eq!(select(&some), all[3..8]);
        assert_eq!(select(&later), all[5..9]);
    };
    check(true);
    check(false);
    // Without what other brokers read our own units tell, and without both the log.
    fs::remove_dir_all(root.join("batchconsumequeue")).unwrap();
    check(false);
    fs::remove_dir_all(root.join("batchconsumequeue.units")).unwrap();
    check(false);
}

#[test]
fn messages_of_batches_that_another_broker_wrote_are_selected_by_queue() {
    let name = "batchcq-5.3.3-kill";
    let directory = unpack(name);
    let description = description(name);
    let options = options(&directory.path().join("store"), &description);
    let records = description["records"].as_array().unwrap();
    let of_queue = |record: &&serde_json::Value| record["topic"] == "BatchT" && record["queueId"] == 1;
    let expected: Vec<u64> =
        records.iter().filter(of_queue).map(|record| number(&record["physicalOffset"]) as u64).collect();
    assert!(!expected.is_empty());
    let queue = Selection { topic: Some("BatchT".into()), queue_id: Some(1), ..Selection::default() };
    assert_eq!(select(&options, &queue), (expected, vec![]));
}
