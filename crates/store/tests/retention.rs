//! What is deleted, and when (`docs/spec/02-store.md` §12).

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ferromq_store::*;
use parking_lot::Mutex;
use support::*;

const FILE: u64 = 4096;
/// Each is one log file, because no two fit into one.
const BODY: usize = 2500;

/// Options with which only the test itself starts a round of deletion, once the first one is over that every store begins with.
fn options(root: &Path) -> StoreOptions {
    StoreOptions {
        commit_log_file_size: FILE as u32,
        clean_resource_interval: Duration::from_secs(3600),
        delete_commit_log_files_interval: Duration::ZERO,
        disk_usage: DiskUsageSource::Fixed(|directory| looked(directory, 10)),
        ..small(root)
    }
}

/// Directories whose use was asked for.
static LOOKED_AT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// What a disk says about its use.
fn looked(directory: &Path, used: u8) -> Option<u8> {
    LOOKED_AT.lock().insert(directory.to_owned());
    Some(used)
}

/// Opens a store and waits until it has looked at the disk for the first time.
fn open(options: StoreOptions) -> Arc<Store> {
    let looked_at_last = options.root.join("consumequeue");
    LOOKED_AT.lock().remove(&looked_at_last);
    let store = Store::open(options).unwrap();
    while !LOOKED_AT.lock().contains(&looked_at_last) {
        std::thread::yield_now();
    }
    store
}

/// Sends messages to topic `T`, a log file each, and waits until they are flushed.
fn fill(store: &Store, files: usize) {
    let mut end = 0;
    for number in 0..files {
        end = send(store, &Message::new("T", 0, vec![0; BODY]).with("KEYS", &format!("k{number}"))).end();
    }
    assert!(store.flushed().wait_blocking(end, Duration::from_secs(20)));
    store.dispatch_to_confirmed();
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Makes the first log files look as if they were written so long ago.
fn age(root: &Path, count: usize, hours: u64) {
    let then = SystemTime::now() - Duration::from_secs(hours * 3600);
    for file in &files(&root.join("commitlog"))[..count] {
        File::options().write(true).open(file).unwrap().set_modified(then).unwrap();
    }
}

#[test]
fn files_go_when_they_are_older_than_file_reserved_time_and_the_last_one_stays() {
    let root = tempfile::tempdir().unwrap();
    let options = StoreOptions { file_reserved: Duration::from_secs(10 * 3600), ..options(root.path()) };
    let store = open(options);
    fill(&store, 8);
    age(root.path(), 3, 11);
    assert_eq!(store.delete_expired_files(), 3);
    assert_eq!(store.min_offset(), 3 * FILE);
    // A younger file ends the round, also if there are old ones behind it.
    age(root.path(), 4, 11);
    age(root.path(), 1, 9);
    assert_eq!(store.delete_expired_files(), 0);
    age(root.path(), 5, 11);
    assert_eq!(store.delete_expired_files(), 4);
    assert_eq!(store.min_offset(), 7 * FILE);
    assert_eq!(drain(&store, &store.queue("T", 0)).len(), 1);
}

#[test]
fn a_round_deletes_so_many_files_and_the_next_ones_follow() {
    let root = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        delete_file_batch_max: 2,
        clean_resource_interval: Duration::from_millis(1),
        ..options(root.path())
    };
    let store = open(options);
    fill(&store, 12);
    age(root.path(), 9, 100);
    // Not by itself: it is no hour for that.
    assert_eq!(store.min_offset(), 0);
    assert!((1..=2).contains(&store.delete_expired_files()));
    while store.min_offset() < 9 * FILE {
        std::thread::yield_now();
    }
    assert_eq!(store.min_offset(), 9 * FILE);
}

/// As full as there are log files: 50 percent and 5 for each.
fn used_by_log_files(directory: &Path) -> Option<u8> {
    let log = directory.parent()?.join("commitlog");
    looked(directory, 50 + 5 * fs::read_dir(log).ok()?.count() as u8)
}

#[test]
fn a_disk_that_is_nearly_full_costs_the_oldest_files_until_it_is_not() {
    let root = tempfile::tempdir().unwrap();
    let options =
        StoreOptions { disk_usage: DiskUsageSource::Fixed(used_by_log_files), ..options(root.path()) };
    let store = open(options);
    fill(&store, 8);
    // Eight files and the next one that is prepared: 95 percent. 85 are allowed, those are seven files.
    while files(&root.path().join("commitlog")).len() < 9 {
        std::thread::yield_now();
    }
    store.delete_expired_files();
    assert_eq!(store.min_offset(), 2 * FILE);
    assert_eq!(store.delete_expired_files(), 0, "none of them is old");
    // Above 75 percent, old ones go at any hour.
    age(root.path(), 3, 73);
    assert_eq!(store.delete_expired_files(), 3);
    assert!(store.disk_full().is_none());
}

#[test]
fn a_file_that_is_read_ends_a_round_of_forced_deletion() {
    let root = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        disk_usage: DiskUsageSource::Fixed(|directory| looked(directory, 86)),
        ..options(root.path())
    };
    let store = open(StoreOptions { clean_file_forcibly: false, ..options.clone() });
    fill(&store, 6);
    assert_eq!(store.delete_expired_files(), 0, "cleanFileForciblyEnable is off");
    let reader = store.record_at(0).unwrap().unwrap();
    let bytes = reader.to_vec();
    store.set_retention(&options);
    assert_eq!(store.delete_expired_files(), 1, "the disk gets no emptier as long as it is read");
    assert_eq!(store.delete_expired_files(), 1);
    assert_eq!(store.min_offset(), 2 * FILE);
    assert!(store.record_at(0).unwrap().is_none(), "new readers don't find it");
    assert_eq!(&*reader, bytes, "the one that was there reads on");
    drop(reader);
    assert_eq!(store.delete_expired_files(), 3, "all but the last");
}

#[test]
fn queues_and_index_are_trimmed_to_the_logs_begin() {
    let root = tempfile::tempdir().unwrap();
    let store = open(StoreOptions { delete_file_batch_max: 100, ..options(root.path()) });
    // A queue file holds 20 units, an index file 39 keys.
    fill(&store, 90);
    store.shutdown();
    drop(store);
    let store = open(StoreOptions { delete_file_batch_max: 100, ..options(root.path()) });
    let names = |directory: &str| files(&root.path().join(directory)).len();
    assert_eq!((names("consumequeue/T/0"), names("index")), (5, 3));
    age(root.path(), 45, 100);
    assert_eq!(store.delete_expired_files(), 45);
    let queue = store.queue("T", 0);
    assert_eq!((queue.min_offset(), queue.max_offset()), (45, 90));
    assert_eq!((names("consumequeue/T/0"), names("index")), (3, 2));
    let outcome = store.read(&queue, request(7), &AcceptAll, &mut Vec::<u8>::new());
    assert_eq!((outcome.status, outcome.next_offset), (ReadStatus::OffsetTooSmall, 45));
    let found = |key| store.query("T", key, 9, 0, i64::MAX, false).records.len();
    assert_eq!([found("k44"), found("k45"), found("k89")], [0, 1, 1]);
    // The last file of each stays, whatever is in it.
    age(root.path(), 44, 100);
    assert_eq!(store.delete_expired_files(), 44);
    assert_eq!((queue.min_offset(), names("consumequeue/T/0"), names("index")), (89, 1, 1));
}

#[test]
fn consumers_read_and_files_go_at_the_same_time() {
    let root = tempfile::tempdir().unwrap();
    let store = open(StoreOptions { delete_file_batch_max: 1, ..options(root.path()) });
    fill(&store, 60);
    age(root.path(), 59, 100);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| read_until_one_is_left(&store));
        }
        while store.min_offset() < 59 * FILE {
            store.delete_expired_files();
        }
    });
}

fn read_until_one_is_left(store: &Arc<Store>) {
    let queue = store.queue("T", 0);
    let mut held: Vec<RecordSlice> = Vec::new();
    while store.min_offset() < 59 * FILE {
        let mut offset = queue.min_offset();
        while offset < 60 {
            let outcome =
                store.read(&queue, ReadRequest { max_messages: 3, ..request(offset) }, &AcceptAll, &mut held);
            assert!(outcome.next_offset > offset, "{outcome:?}");
            offset = outcome.next_offset;
        }
        for record in held.drain(..) {
            let view =
                ferromq_protocol::message::RecordView::whole(&record, record.physical_offset()).unwrap();
            assert_eq!(view.body(), [0; BODY]);
        }
    }
}
