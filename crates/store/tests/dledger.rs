//! Stores of Java's DLedger mode become ours: same messages, same queue offsets, same order. What is damaged is named, and nothing
//! whole gets lost with it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod corpus;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferromq_protocol::message::{RecordFields, encode_blank, set_log_fields};
use ferromq_store::offline::dledger::*;
use ferromq_store::offline::{OfflineStore, Selected, Selection};
use ferromq_store::{Store, StoreOptions};

use corpus::{data, unpack};
use support::{host, small};

/// Size of the files that are made here.
const FILE: u64 = 64 << 10;
const HEADER: u64 = 48;

/// Topic, queue, queue offset and body.
type Stored = (String, i32, i64, Vec<u8>);

/// All messages of a store, in the order of the log.
fn messages(store: &StoreOptions) -> Vec<Stored> {
    let mut messages = Vec::new();
    let offline = OfflineStore::open(store.clone()).unwrap();
    offline
        .messages(&Selection { read_log: true, ..Selection::default() }, &mut |selected| {
            let Selected::Message(record) = selected else { panic!("{selected:?}") };
            let topic = record.topic().unwrap().to_owned();
            messages.push((topic, record.queue_id(), record.queue_offset(), record.body().to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    messages
}

/// Every file and what is in it.
fn image(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut image = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => directories.push(path),
                false => drop(image.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    image
}

fn import_from(root: &Path, options: &ImportOptions) -> Result<(Survey, Imported), ImportError> {
    let source = DledgerSource::open(root, None, &[], None)?;
    let survey = source.survey(&mut |_| {})?;
    let imported = import(&source, &survey, options, &|_, _, _| {})?;
    Ok((survey, imported))
}

/// A source that is written entry by entry, as a leader does.
struct Member {
    directory: tempfile::TempDir,
    position: u64,
    index: i64,
    term: i64,
    /// Queue offsets by queue.
    next: [i64; 4],
    written: Vec<Stored>,
    /// Where the entries begin.
    positions: Vec<u64>,
}

impl Member {
    fn new() -> Member {
        Member::behind(0)
    }

    /// With entries from an offset on.
    fn behind(position: u64) -> Member {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("source");
        fs::create_dir_all(root.join("dledger-n0/data")).unwrap();
        fs::create_dir_all(root.join("config")).unwrap();
        fs::write(root.join("config/consumerOffset.json"), "{\"offsetTable\":{}}").unwrap();
        let (written, positions) = (Vec::new(), Vec::new());
        Member { directory, position, index: 0, term: 1, next: [0; 4], written, positions }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("source")
    }

    fn target(&self) -> StoreOptions {
        small(&self.directory.path().join("target"))
    }

    fn options(&self) -> ImportOptions {
        ImportOptions { store: self.target(), uncommitted: Uncommitted::Refuse, skip_damaged: false }
    }

    fn file(&self, position: u64) -> fs::File {
        let path = self.root().join(format!("dledger-n0/data/{:020}", position / FILE * FILE));
        let file =
            fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(FILE).unwrap();
        file
    }

    fn write_at(&self, position: u64, bytes: &[u8]) {
        self.file(position).write_all_at(bytes, position % FILE).unwrap();
    }

    /// Appends a message to queue `number % 4`.
    fn message(&mut self, number: usize) {
        let queue_id = number % 4;
        let offset = self.next[queue_id];
        self.next[queue_id] += 1;
        self.message_at(number, offset);
    }

    /// With a queue offset of its own.
    fn message_at(&mut self, number: usize, queue_offset: i64) {
        let queue_id = (number % 4) as i32;
        let body = format!("message {number} {}", "x".repeat(number * 37 % 900)).into_bytes();
        let properties = format!("KEYS\u{1}k{number}\u{2}");
        let fields = RecordFields {
            properties: properties.as_bytes(),
            ..RecordFields::new("T", queue_id, host(), &body)
        };
        let mut record = Vec::new();
        fields.encode_with_crc_property_into(&mut record).unwrap();
        let size = HEADER + record.len() as u64;
        let rest = FILE - self.position % FILE;
        if size + 8 > rest {
            self.write_at(self.position, &[(-1i32).to_be_bytes(), (rest as i32).to_be_bytes()].concat());
            self.position += rest;
        }
        set_log_fields(&mut record, queue_offset, self.position + HEADER, 1_700_000_000_000 + number as i64);
        ferromq_protocol::message::seal_crc_property(&mut record);
        self.entry(1, &record);
        self.written.push(("T".to_owned(), queue_id, queue_offset, body));
    }

    fn entry(&mut self, magic: i32, body: &[u8]) {
        let mut entry = Vec::new();
        entry.extend_from_slice(&magic.to_be_bytes());
        entry.extend_from_slice(&(HEADER as i32 + body.len() as i32).to_be_bytes());
        entry.extend_from_slice(&self.index.to_be_bytes());
        entry.extend_from_slice(&self.term.to_be_bytes());
        entry.extend_from_slice(&self.position.to_be_bytes());
        entry.extend_from_slice(&[0; 12]);
        entry.extend_from_slice(&(body.len() as i32).to_be_bytes());
        entry.extend_from_slice(body);
        self.write_at(self.position, &entry);
        self.positions.push(self.position);
        self.position += entry.len() as u64;
        self.index += 1;
    }

    fn commit_up_to(&self, index: i64) {
        let text = format!("endIndex={}\ncommittedIndex={index}\n", self.index - 1);
        fs::write(self.root().join("dledger-n0/checkpoint"), text).unwrap();
    }

    fn with_messages(count: usize) -> Member {
        let mut member = Member::new();
        (0..count).for_each(|number| member.message(number));
        member.commit_up_to(count as i64 - 1);
        member
    }
}

#[test]
fn the_store_of_a_java_broker_becomes_ours() {
    let directory = unpack("dledger-5.3.3");
    let root = directory.path().join("store");
    let expected: serde_json::Value =
        serde_json::from_slice(&fs::read(data("dledger-5.3.3.expected.json")).unwrap()).unwrap();
    let before = image(&root);
    let target = StoreOptions {
        commit_log_file_size: 256 << 10,
        consume_queue_file_size: 600_000,
        ..small(&directory.path().join("new"))
    };
    let options =
        ImportOptions { store: target.clone(), uncommitted: Uncommitted::Refuse, skip_damaged: false };
    let (survey, imported) = import_from(&root, &options).unwrap();
    assert_eq!((survey.messages, survey.last_index, survey.committed_index), (434, Some(433), Some(433)));
    assert_eq!((survey.damaged, survey.tail, imported.findings), (0, None, vec![]));
    assert_eq!(image(&root), before);

    let stored = messages(&target);
    let entries = expected["entries"].as_array().unwrap();
    assert_eq!(stored.len(), entries.len());
    for (entry, (topic, queue_id, queue_offset, body)) in entries.iter().zip(stored) {
        let message = &entry["message"];
        assert_eq!(message["topic"], topic);
        assert_eq!(message["queueId"], queue_id);
        assert_eq!(message["queueOffset"], queue_offset);
        // Of a long one the begin is known.
        assert!(body.starts_with(message["body"].as_str().unwrap().as_bytes()));
    }
    // Behind everything that the old offsets can name.
    assert_eq!(imported.store.log_min, 512 << 10);
    for file in ["topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json"] {
        let file = Path::new("config").join(file);
        assert_eq!(fs::read(target.root.join(&file)).unwrap(), fs::read(root.join(&file)).unwrap());
    }
    let store = Store::open(target).unwrap();
    for (queue_id, queue) in expected["consumeQueueH4"].as_object().unwrap() {
        let queue_id = queue_id.parse().unwrap();
        assert_eq!(store.queue("h4", queue_id).next_offset(), queue["count"].as_i64().unwrap());
    }
}

#[test]
fn the_log_from_before_dledger_comes_first() {
    let mut member = Member::behind(2 * FILE);
    let root = member.root();
    let store = Store::open(small(&root)).unwrap();
    let mut written = Vec::new();
    let mut batch = store.new_batch();
    for number in 0..150 {
        let body = format!("before {number} {}", "y".repeat(500)).into_bytes();
        batch
            .push(&store.queue("T", number % 4), &RecordFields::new("T", number % 4, host(), &body))
            .unwrap();
        written.push(("T".to_owned(), number % 4, i64::from(number / 4), body));
    }
    store.append(&mut batch).unwrap();
    let end = store.appended().get();
    store.shutdown();
    drop(store);
    assert!((FILE..2 * FILE).contains(&end), "{end}");
    let last = fs::File::options().write(true).open(root.join("commitlog/00000000000000065536")).unwrap();
    last.write_all_at(&encode_blank((2 * FILE - end) as u32), end - FILE).unwrap();
    (0..4)
        .for_each(|queue| member.next[queue] = written.iter().filter(|m| m.1 == queue as i32).count() as i64);
    (0..150).for_each(|number| member.message(number));
    member.commit_up_to(149);

    let (survey, imported) = import_from(&root, &member.options()).unwrap();
    assert_eq!((survey.messages_before, survey.messages, survey.damaged), (150, 150, 0));
    assert_eq!(imported.findings, []);
    written.append(&mut member.written.clone());
    assert_eq!(messages(&member.target()), written);
    // The log from before is needed: without it, nothing is imported.
    fs::remove_file(root.join("commitlog/00000000000000065536")).unwrap();
    fs::remove_dir_all(member.target().root).unwrap();
    let error = import_from(&root, &member.options()).unwrap_err().to_string();
    assert!(error.contains("nothing is there from offset 65536 to 131072"), "{error}");
}

#[test]
fn what_is_not_known_to_be_committed_waits_for_a_decision() {
    let member = Member::with_messages(100);
    member.commit_up_to(89);
    let error = import_from(&member.root(), &member.options()).unwrap_err();
    assert!(matches!(error, ImportError::Uncommitted { messages: 10, committed: Some(89) }), "{error}");
    assert!(!member.target().root.exists());
    for (uncommitted, count) in [(Uncommitted::Keep, 100), (Uncommitted::Drop, 90)] {
        let options = ImportOptions { uncommitted, ..member.options() };
        let (_, imported) = import_from(&member.root(), &options).unwrap();
        assert_eq!((imported.dropped, imported.findings), (100 - count as u64, vec![]));
        assert_eq!(messages(&member.target()), member.written[..count]);
        fs::remove_dir_all(member.target().root).unwrap();
    }
    fs::remove_file(member.root().join("dledger-n0/checkpoint")).unwrap();
    let error = import_from(&member.root(), &member.options()).unwrap_err();
    assert!(matches!(error, ImportError::Uncommitted { messages: 100, committed: None }), "{error}");
    // The checkpoint before that one.
    fs::write(member.root().join("dledger-n0/checkpoint.bak"), "committedIndex=99\nendIndex=99\n").unwrap();
    import_from(&member.root(), &member.options()).unwrap();
}

/// A member that followed another leader has cut its log; bytes of the old end may be left behind the new one.
#[test]
fn what_a_change_of_leaders_left_behind_the_end_is_no_part_of_the_log() {
    let mut member = Member::with_messages(100);
    let (index, position) = (member.index, member.position);
    (member.index, member.position, member.term) = (90, member.positions[90], 2);
    member.written.truncate(90);
    member.next = [25, 22, 22, 22];
    member.message_at(90, 22);
    member.commit_up_to(90);
    let (survey, imported) = import_from(&member.root(), &member.options()).unwrap();
    assert!(survey.tail.is_some());
    assert_eq!((survey.last_index, survey.last_term, survey.uncommitted), (Some(90), 2, 0));
    assert_eq!(imported.findings, []);
    assert_eq!(messages(&member.target()), member.written);
    assert_eq!((index, position > member.position), (100, true));
}

#[test]
fn entries_of_later_versions_without_a_message_are_left_out() {
    let mut member = Member::new();
    member.entry(2, b"");
    (0..10).for_each(|number| member.message(number));
    member.entry(3, b"members");
    (10..20).for_each(|number| member.message(number));
    member.commit_up_to(21);
    let (survey, _) = import_from(&member.root(), &member.options()).unwrap();
    assert_eq!((survey.controls, survey.messages, survey.damaged), (2, 20, 0));
    assert_eq!(messages(&member.target()), member.written);
}

/// `docs/spec/05-ha.md` §10.5, 3a.
#[test]
fn messages_that_a_killed_java_broker_hides_can_be_read_again() {
    let mut member = Member::new();
    (0..400).for_each(|number| member.message(number));
    // Cut to 80 of 100.
    member.next = [80; 4];
    (400..480).for_each(|number| member.message(number));
    member.commit_up_to(479);
    let (survey, imported) = import_from(&member.root(), &member.options()).unwrap();
    let repeated =
        |queue_id| RepeatedOffsets { topic: "T".to_owned(), queue_id, from: 80, raised_by: 20, messages: 20 };
    assert_eq!(survey.repeated, (0..4).map(repeated).collect::<Vec<_>>());
    assert_eq!(imported.findings, []);
    let mut expected = member.written.clone();
    expected[400..].iter_mut().for_each(|message| message.2 += 20);
    assert_eq!(messages(&member.target()), expected);
    let store = Store::open(member.target()).unwrap();
    (0..4).for_each(|queue_id| assert_eq!(store.queue("T", queue_id).next_offset(), 120));
}

#[test]
fn a_queue_whose_messages_have_expired_goes_on_where_it_was() {
    let member = Member::with_messages(40);
    let queue = member.root().join("consumequeue/Expired/3");
    fs::create_dir_all(&queue).unwrap();
    // 20 units in a file of 400 bytes: offsets 40 to 46 were given.
    let mut file = vec![0; 400];
    for unit in 0..7u64 {
        file[unit as usize * 20..][..8].copy_from_slice(&(unit * 200 + 48).to_be_bytes());
        file[unit as usize * 20 + 8..][..4].copy_from_slice(&150u32.to_be_bytes());
    }
    fs::write(queue.join("00000000000000000800"), file).unwrap();
    let (_, imported) = import_from(&member.root(), &member.options()).unwrap();
    assert_eq!((imported.empty_queues, imported.findings), (1, vec![]));
    let store = Store::open(member.target()).unwrap();
    let queue = store.queue("Expired", 3);
    assert_eq!((queue.min_offset(), queue.max_offset(), queue.next_offset()), (47, 47, 47));
    let mut batch = store.new_batch();
    batch.push(&queue, &RecordFields::new("Expired", 3, host(), b"next")).unwrap();
    store.append(&mut batch).unwrap();
    assert_eq!(batch.outcomes()[0].queue_offset, 47);
}

#[test]
fn damage_is_named_and_costs_only_what_is_damaged() {
    let member = Member::with_messages(200);
    let position = member.positions[100];
    // A byte of the body.
    member.write_at(position + HEADER + 95, b"?");
    let error = import_from(&member.root(), &member.options()).unwrap_err();
    let ImportError::Damaged { count: 1, first } = &error else { panic!("{error}") };
    assert!(first.file.ends_with(format!("dledger-n0/data/{:020}", position / FILE * FILE)), "{error}");
    assert_eq!(
        (first.position, first.whole_again_at),
        (position % FILE, Some(member.positions[101] + HEADER))
    );
    assert!(first.reason.contains("body CRC"), "{error}");
    assert!(!member.target().root.exists());

    let options = ImportOptions { skip_damaged: true, ..member.options() };
    import_from(&member.root(), &options).unwrap();
    let mut left = member.written.clone();
    left.remove(100);
    assert_eq!(messages(&member.target()), left);
}

#[test]
fn a_damaged_header_costs_no_message() {
    for (at, bytes) in [(0, &[9; 4]), (4, &[0x7f; 4]), (8, &[0x7f; 4]), (16, &[0x7f; 4]), (24, &[1; 4])] {
        let member = Member::with_messages(200);
        member.write_at(member.positions[100] + at, bytes);
        let options = ImportOptions { skip_damaged: true, ..member.options() };
        let (survey, _) = import_from(&member.root(), &options).unwrap();
        assert!(survey.damaged >= 1, "{at}");
        assert_eq!(messages(&member.target()), member.written, "{at}");
    }
}

#[test]
fn committed_entries_that_are_missing_are_damage() {
    let member = Member::with_messages(300);
    // The last file is gone.
    fs::remove_file(member.root().join("dledger-n0/data/00000000000000131072")).unwrap();
    let error = import_from(&member.root(), &member.options()).unwrap_err().to_string();
    assert!(error.contains("entries up to 299 were committed, the last whole one is"), "{error}");
    // One in the middle is gone.
    let member = Member::with_messages(300);
    fs::remove_file(member.root().join("dledger-n0/data/00000000000000065536")).unwrap();
    let error = import_from(&member.root(), &member.options()).unwrap_err().to_string();
    assert!(error.contains("nothing is there from offset 65536 to 131072"), "{error}");
    let options = ImportOptions { skip_damaged: true, ..member.options() };
    import_from(&member.root(), &options).unwrap();
    let is_left = |number: &usize| member.positions[*number] / FILE != 1;
    let left: Vec<Stored> = (0..300).filter(is_left).map(|number| member.written[number].clone()).collect();
    assert_eq!(messages(&member.target()), left);
}

/// Anything may be damaged in any way: what was not touched is there, and nothing else.
#[test]
fn whatever_is_damaged_the_rest_is_imported() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let member = Member::with_messages(150);
        let mut touched = std::collections::HashSet::new();
        for _ in 0..random.usize(1..4) {
            let at = random.u64(0..member.position);
            let bytes: Vec<u8> = (0..random.usize(1..300)).map(|_| random.u8(..)).collect();
            let end = (at + bytes.len() as u64).min((at / FILE + 1) * FILE).min(member.position);
            member.write_at(at, &bytes[..(end - at) as usize]);
            for (number, position) in member.positions.iter().enumerate() {
                let next = member.positions.get(number + 1).copied().unwrap_or(member.position);
                if at < next && end > position + HEADER {
                    touched.insert(number);
                }
            }
        }
        let options =
            ImportOptions { skip_damaged: true, uncommitted: Uncommitted::Keep, ..member.options() };
        import_from(&member.root(), &options).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let found = messages(&member.target());
        for (number, message) in member.written.iter().enumerate() {
            let is_there = found.contains(message);
            assert!(is_there || touched.contains(&number), "{seed}: message {number} is lost");
        }
        assert!(found.len() <= 150, "{seed}");
    }
}

#[test]
fn nothing_is_overwritten_and_nothing_is_begun_that_would_be() {
    let member = Member::with_messages(10);
    let target = member.target();
    fs::create_dir(&target.root).unwrap();
    fs::write(target.root.join("something"), "of somebody").unwrap();
    let error = import_from(&member.root(), &member.options()).unwrap_err();
    assert!(matches!(error, ImportError::TargetExists { .. }), "{error}");
    assert_eq!(fs::read_dir(&target.root).unwrap().count(), 1);
    fs::remove_file(target.root.join("something")).unwrap();

    let work = member.directory.path().join("target.importing");
    fs::create_dir(&work).unwrap();
    let error = import_from(&member.root(), &member.options()).unwrap_err();
    assert!(matches!(error, ImportError::Unfinished { .. }) && work.exists(), "{error}");
    fs::remove_dir(&work).unwrap();
    // An empty directory is what a mount gives.
    import_from(&member.root(), &member.options()).unwrap();
    assert!(!work.exists());

    let inside = ImportOptions { store: small(&member.root().join("new")), ..member.options() };
    let error = import_from(&member.root(), &inside).unwrap_err();
    assert!(matches!(error, ImportError::TargetInSource { .. }), "{error}");
    fs::create_dir_all(member.root().join("dledger-n1/data")).unwrap();
    let error = import_from(&member.root(), &member.options()).unwrap_err().to_string();
    assert!(error.contains("n0, n1") && error.contains("--member"), "{error}");
    let error = import_from(member.directory.path(), &member.options()).unwrap_err();
    assert!(matches!(error, ImportError::NoDledger { .. }), "{error}");
}

#[test]
fn a_source_that_a_broker_has_open_is_refused() {
    let member = Member::with_messages(10);
    let _broker = Store::open(small(&member.root())).unwrap();
    let error = import_from(&member.root(), &member.options()).unwrap_err().to_string();
    assert!(error.contains("is in use by"), "{error}");
}
