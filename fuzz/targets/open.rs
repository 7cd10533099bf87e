//! A store directory with any damage: it opens or says why not, never panics, and shows nothing that was not stored.

#![no_main]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ferromq_protocol::message::{RecordFields, RecordView, properties};
use ferromq_store::{DiskUsageSource, Store, StoreOptions};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Damage {
    after_a_kill: bool,
    edits: Vec<Edit>,
}

#[derive(Debug, Arbitrary)]
struct Edit {
    /// Which file, by its place in the sorted list.
    file: u8,
    /// Where, as a part of the file's length.
    at: u16,
    what: What,
}

#[derive(Debug, Arbitrary)]
enum What {
    Flip(u8),
    Write([u8; 8]),
    Zero(u16),
    Cut,
    Extend(u16, u8),
    Delete,
    /// Another file's bytes take this one's place.
    Replace(u8),
    /// Bytes from another place of the same file.
    Move(u16, u16),
}

type Files = Vec<(PathBuf, Vec<u8>)>;

/// A store after a clean stop and after a kill, and what was stored in it.
struct Originals {
    clean: Files,
    killed: Files,
    bodies: HashSet<Vec<u8>>,
}

fn options(root: &Path) -> StoreOptions {
    StoreOptions {
        commit_log_file_size: 8 << 10,
        consume_queue_file_size: 200,
        index_slots: 10,
        index_units: 40,
        disk_usage: DiskUsageSource::Fixed(|_| Some(10)),
        delete_when_hours: Vec::new(),
        ..StoreOptions::new(root)
    }
}

fn originals() -> &'static Originals {
    static ORIGINALS: OnceLock<Originals> = OnceLock::new();
    ORIGINALS.get_or_init(|| {
        let root = tempfile::tempdir().expect("a directory");
        let mut bodies = HashSet::new();
        let store = Store::open(options(root.path())).expect("a new store opens");
        for number in 0..90u32 {
            let body = format!("message {number} {}", "x".repeat(number as usize % 5 * 60)).into_bytes();
            append(&store, number, &body);
            bodies.insert(body);
        }
        store.shutdown();
        drop(store);
        let clean = files(root.path());
        let store = Store::open(options(root.path())).expect("it opens again");
        for number in 90..100u32 {
            let body = format!("message {number}").into_bytes();
            append(&store, number, &body);
            bodies.insert(body);
        }
        store.dispatch_to_confirmed();
        let killed = files(root.path());
        Originals { clean, killed, bodies }
    })
}

fn append(store: &Store, number: u32, body: &[u8]) {
    let mut list = Vec::new();
    properties::append(&mut list, "KEYS", &format!("key{}", number % 7));
    properties::append(&mut list, "TAGS", "TagA");
    let host = "127.0.0.1:10911".parse().expect("an address");
    let queue = store.queue(["A", "B"][number as usize % 2], number as i32 % 3);
    let fields =
        RecordFields { properties: &list, ..RecordFields::new(queue.topic(), queue.queue_id(), host, body) };
    let mut batch = store.new_batch();
    batch.push(&queue, &fields).expect("it fits");
    store.append(&mut batch).expect("there is room");
}

fn files(root: &Path) -> Files {
    let mut files = Files::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root").to_path_buf();
                files.push((name, fs::read(&path).expect("a file")));
            }
        }
    }
    files.sort();
    files
}

fn damage(files: &mut Files, edits: &[Edit]) {
    for edit in edits.iter().take(8) {
        if files.is_empty() {
            return;
        }
        let number = edit.file as usize % files.len();
        if let What::Replace(other) = edit.what {
            let bytes = files[other as usize % files.len()].1.clone();
            files[number].1 = bytes;
            continue;
        }
        if let What::Delete = edit.what {
            files.remove(number);
            continue;
        }
        let bytes = &mut files[number].1;
        let at = bytes.len() * edit.at as usize / 65536;
        match edit.what {
            What::Flip(bits) if at < bytes.len() => bytes[at] ^= bits,
            What::Write(new) => bytes[at..].iter_mut().zip(new).for_each(|(byte, new)| *byte = new),
            What::Zero(len) => bytes[at..].iter_mut().take(len as usize).for_each(|byte| *byte = 0),
            What::Cut => bytes.truncate(at),
            What::Extend(len, byte) => bytes.resize(bytes.len() + len as usize, byte),
            What::Move(to, len) => {
                let to = bytes.len() * to as usize / 65536;
                let len = (len as usize).min(bytes.len() - at.max(to));
                bytes.copy_within(at..at + len, to);
            }
            _ => {}
        }
    }
}

fuzz_target!(|input: Damage| {
    let originals = originals();
    let mut files = if input.after_a_kill { originals.killed.clone() } else { originals.clean.clone() };
    damage(&mut files, &input.edits);
    let root = tempfile::tempdir().expect("a directory");
    for (name, bytes) in &files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }
    for _ in 0..2 {
        let Ok(store) = Store::open(options(root.path())) else { return };
        read_everything(&store, &originals.bodies);
        append(&store, 1, b"message 1 and one more");
        store.shutdown();
    }
});

fn read_everything(store: &Store, bodies: &HashSet<Vec<u8>>) {
    for topic in store.topics() {
        for queue in store.queues_of(&topic) {
            for unit in store.consume_queue_units(&queue, queue.min_offset(), 1000) {
                let Ok(Some(record)) = store.record_at(unit.physical_offset) else { continue };
                let view = RecordView::parse(&record).expect("only records are read");
                // After a clean stop nobody reads the whole log: a body may have lost bits, and its CRC says so.
                let known = bodies.contains(view.body()) || view.body() == b"message 1 and one more";
                assert!(known || view.check(unit.physical_offset).is_err(), "nobody stored {unit:?}");
            }
        }
        let found = store.query(&topic, "key3", 32, 0, i64::MAX, false);
        assert!(found.records.len() <= 32);
    }
}
