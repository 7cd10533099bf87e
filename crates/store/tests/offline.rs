//! Looking into stores without opening them: what is sound has no findings, what is damaged is named, and not a byte changes.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod corpus;
mod support;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
            let metadata = entry.metadata().unwrap();
            let content = if metadata.is_dir() {
                directories.push(entry.path());
                Vec::new()
            } else {
                fs::read(entry.path()).unwrap()
            };
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
        Problem::UnitsBehindEnd { physical_offset, .. } => *physical_offset <= offset,
        _ => false,
    }
}

#[test]
fn whole_stores_are_sound() {
    for name in WHOLE {
        let directory = unpack(name);
        let description = json(name);
        let root = directory.path().join("store");
        let before = image(&root);
        let (checked, heard) = check(options(&root, &description));
        assert_eq!(wrong(&heard), Vec::<&Finding>::new(), "{name}");
        let mut notes = if name.contains("-kill") { vec!["not-closed"] } else { Vec::new() };
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
    for damaged in json("damaged").as_array().unwrap() {
        let name = damaged["name"].as_str().unwrap();
        let variant = name.split_once("--").unwrap().1;
        let base = json(damaged["base"].as_str().unwrap());
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
            // Nothing but a checksum of the whole record could tell.
            "properties-damaged" => true,
            _ => false,
        };
        assert_eq!(wrong.is_empty(), is_sound, "{name}: {wrong:#?}");
        if is_sound {
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
    let (_, heard) = check(options(&root, &json("base-5.3.3-clean")));
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
    let (_, heard) = check(options(&root, &json("base-5.3.3-clean")));
    let problems: Vec<_> = heard.findings.iter().map(|finding| finding.problem.clone()).collect();
    let wrong = |from| {
        problems.iter().any(|problem| matches!(problem, Problem::UnitsWrong { topic, queue_id: 0, from: f, to, .. } if topic == "T1" && (*f, *to) == (from, from + 1)))
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
        let expected = options(&root, &json(name));
        let mut found = StoreOptions::new(&root);
        Layout::of(&root, &root.join("commitlog")).unwrap().apply(&mut found);
        let sizes = |options: &StoreOptions| {
            let index = (options.index_slots, options.index_units);
            (
                options.commit_log_file_size,
                options.consume_queue_file_size,
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
