//! Messages that are not in memory.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use ferromq_protocol::message::RecordView;
use ferromq_store::*;
use rustix::fs::{Advice, fadvise};
use support::*;

/// Bytes in a message.
const BODY: usize = 4 << 10;
/// Reads for which messages are brought in at a time, as in `read_ahead`.
const READS_AHEAD: i64 = 32;

/// A directory on a disk: what is in a file system in memory never gets cold.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn options(root: &Path) -> StoreOptions {
    StoreOptions { commit_log_file_size: 4 << 20, consume_queue_file_size: 200_000, ..small(root) }
}

/// Makes the system forget what is in the files below a directory. Nobody must have them open.
fn forget(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            forget(&path);
        } else {
            let file = File::open(path).unwrap();
            file.sync_all().unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }
}

/// A store that holds `messages` of topic `T` and as many of `Other`, one after the other, and has just been opened.
fn stopped_store(root: &Path, messages: i64) {
    let store = Store::open(options(root)).unwrap();
    for number in 0..messages {
        let tag = if number % 500 == 0 { "rare" } else { "frequent" };
        send(&store, &Message::new("T", 0, vec![number as u8; BODY]).with("TAGS", tag));
        send(&store, &Message::new("Other", 0, vec![0; BODY]));
    }
    store.shutdown();
}

struct Reader {
    store: Arc<Store>,
    queue: Arc<ConsumeQueue>,
}

impl Reader {
    fn open(root: &Path) -> Reader {
        let store = Store::open(options(root)).unwrap();
        let queue = store.queue("T", 0);
        Reader { store, queue }
    }

    fn read(&self, residency: Residency, offset: i64, max_messages: usize) -> (ReadStatus, i64) {
        self.read_filtered(residency, offset, max_messages, &AcceptAll)
    }

    fn read_filtered(
        &self,
        residency: Residency,
        offset: i64,
        max_messages: usize,
        filter: &dyn MessageFilter,
    ) -> (ReadStatus, i64) {
        let mut found: Vec<RecordSlice> = Vec::new();
        let request = ReadRequest { residency, max_messages, ..request(offset) };
        let outcome = self.store.read(&self.queue, request, filter, &mut found);
        for record in &found {
            let record = RecordView::parse(record).unwrap();
            assert_eq!(record.body(), [record.queue_offset() as u8; BODY]);
        }
        (outcome.status, outcome.next_offset)
    }
}

#[test]
fn a_cold_message_is_read_only_by_who_may_wait_and_then_the_next_ones_are_there_too() {
    let root = directory();
    stopped_store(root.path(), 1500);
    forget(root.path());
    let reader = Reader::open(root.path());
    assert_eq!(reader.read(Residency::HotOnly, 0, 4), (ReadStatus::Cold, 0));
    assert_eq!(reader.read(Residency::HotOnly, 0, 4), (ReadStatus::Cold, 0), "asking did not read it");
    assert_eq!(reader.read(Residency::Any, 0, 4), (ReadStatus::Found, 4));
    // What the next reads will ask for came with it.
    let mut offset = 4;
    while offset < 4 * READS_AHEAD {
        let (status, next) = reader.read(Residency::HotOnly, offset, 4);
        assert_eq!((status, next), (ReadStatus::Found, offset + 4));
        offset = next;
    }
    // No more than that.
    assert_eq!(reader.read(Residency::HotOnly, 1000, 4), (ReadStatus::Cold, 1000));
    // A long read ends where the cold begins, and goes on there.
    let mut offset = 0;
    while offset < 1500 {
        let (status, next) = match reader.read(Residency::HotOnly, offset, 32) {
            (ReadStatus::Cold, _) => reader.read(Residency::Any, offset, 32),
            found => found,
        };
        assert!(status == ReadStatus::Found && next > offset);
        offset = next;
    }
}

#[test]
fn only_messages_that_pass_the_filter_are_brought_in() {
    struct Tag(i64);
    impl MessageFilter for Tag {
        fn matches_unit(&self, tags_code: i64) -> bool {
            tags_code == self.0
        }
    }
    let root = directory();
    stopped_store(root.path(), 1500);
    forget(root.path());
    let reader = Reader::open(root.path());
    let rare = Tag(ferromq_protocol::message::tags_code(Some("rare")));
    let read = |residency, offset| reader.read_filtered(residency, offset, 1, &rare);
    assert_eq!(read(Residency::Any, 0), (ReadStatus::Found, 1));
    assert_eq!(read(Residency::HotOnly, 1), (ReadStatus::Found, 501));
    assert_eq!(read(Residency::HotOnly, 501), (ReadStatus::Found, 1001));
    assert_eq!(reader.read(Residency::HotOnly, 501, 1), (ReadStatus::Cold, 501), "what lies between is not");
}

#[test]
fn units_that_are_not_in_memory_are_cold_too() {
    let root = directory();
    stopped_store(root.path(), 1500);
    let reader = Reader::open(root.path());
    // The log is in memory and so is what the check of the queue looked at; the rest of the queue's file is not.
    assert_eq!(reader.read(Residency::Any, 0, 1), (ReadStatus::Found, 1));
    assert_eq!(reader.read(Residency::HotOnly, 700, 1), (ReadStatus::Found, 701));
    forget(&root.path().join("consumequeue"));
    assert_eq!(reader.read(Residency::HotOnly, 700, 1), (ReadStatus::Cold, 700));
    assert_eq!(reader.read(Residency::Any, 700, 1), (ReadStatus::Found, 701));
    assert_eq!(reader.read(Residency::HotOnly, 701, 1), (ReadStatus::Found, 702));
}
