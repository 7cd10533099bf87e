use std::path::Path;

use ferromq_protocol::message::RecordFields;

use super::*;
use crate::{AcceptAll, ReadRequest, RecordSlice, Residency, Store};

#[test]
fn gaps_between_index_files_are_seen() {
    let mut coverage = Coverage::new(vec![(100, 200), (200, 300), (400, 500)]);
    assert!(coverage.is_gap(99));
    assert!(!coverage.is_gap(100) && !coverage.is_gap(200) && !coverage.is_gap(300));
    assert!(coverage.is_gap(301));
    assert!(!coverage.is_gap(500) && !coverage.is_gap(501));
    assert!(!Coverage::default().is_gap(0));
}

#[test]
fn the_way_depends_on_what_the_last_run_left() {
    let marks = Marks {
        boot: "b1".into(),
        abort: "7 n".into(),
        written: 50,
        synced: 20,
        index_synced: 10,
        checkpoint_modified_s: 5,
        ..Marks::default()
    };
    let clean = Marks { clean: true, ..marks.clone() };
    let way = |marks: Option<&Marks>, abort, boot| choose(marks, abort, boot, 5);
    assert!(matches!(way(None, None, "b1"), Way::Everything(_)));
    assert!(matches!(way(Some(&clean), None, "b1"), Way::Clean(_)));
    assert!(matches!(choose(Some(&clean), None, "b1", 6), Way::Everything(_)));
    assert!(matches!(way(Some(&marks), None, "b1"), Way::Everything(_)));
    assert!(matches!(way(Some(&clean), Some("7 n"), "b1"), Way::Everything(_)));
    assert!(matches!(way(Some(&marks), Some("8"), "b1"), Way::Everything(_)));
    let of_way = |boot| match way(Some(&marks), Some("7 n"), boot) {
        Way::FromMark { marks, rebooted } => (marks.written, marks.index_synced, rebooted),
        way => panic!("{way:?}"),
    };
    assert_eq!(of_way("b1"), (50, u64::MAX, false));
    assert_eq!(of_way("b2"), (20, 10, true));
    assert_eq!(of_way(""), (20, 10, true));
}

fn options(root: &Path) -> StoreOptions {
    StoreOptions {
        commit_log_file_size: 64 << 10,
        consume_queue_file_size: 400,
        index_slots: 20,
        index_units: 400,
        ..StoreOptions::new(root)
    }
}

/// Sends messages with these numbers, the first that the queue has not given yet.
fn send(store: &Store, numbers: std::ops::Range<i64>) {
    let host = "10.0.0.1:1".parse().unwrap();
    for number in numbers {
        let properties = format!("KEYS\u{1}k{number}\u{2}");
        let fields =
            RecordFields { properties: properties.as_bytes(), ..RecordFields::new("T", 0, host, b"body") };
        let mut batch = store.new_batch();
        batch.push(&store.queue("T", 0), &fields).unwrap();
        store.append(&mut batch).unwrap();
        assert_eq!(batch.outcomes()[0].queue_offset, number);
    }
}

/// A store that was stopped behind message 50, and was not behind message 120, all of which are in files.
fn leave_unclean(root: &Path) {
    let store = Store::open(options(root)).unwrap();
    send(&store, 0..50);
    store.shutdown();
    drop(store);
    let store = Store::open(options(root)).unwrap();
    send(&store, 50..120);
    store.dispatch_to_confirmed();
    store.write_queues_for_test();
}

/// Now the machine was restarted meanwhile.
fn change_boot(root: &Path) {
    let (mut file, marks) = crate::marks::MarksFile::open(root).unwrap();
    let mut marks = Marks { boot: "another".into(), ..marks.unwrap() };
    assert!(marks.synced < marks.written);
    file.write(&mut marks, false).unwrap();
}

/// All messages that the queue gives.
fn read(store: &Store) -> Vec<RecordSlice> {
    let queue = store.queue("T", 0);
    let mut records = Vec::new();
    let mut offset = 0;
    while offset < 120 {
        let request =
            ReadRequest { offset, max_messages: 32, max_bytes: usize::MAX, residency: Residency::Any };
        offset = store.read(&queue, request, &AcceptAll, &mut records).next_offset;
    }
    assert_eq!(queue.next_offset(), 120);
    records
}

/// A power cut: what was not forced to the disk is zeros, and the machine has another boot id.
#[test]
fn after_a_power_cut_only_what_was_forced_to_the_disk_is_believed() {
    let root = tempfile::tempdir().unwrap();
    leave_unclean(root.path());
    change_boot(root.path());
    for unsynced in ["consumequeue/T/0/00000000000000001200", "consumequeue/T/0/00000000000000001600"] {
        std::fs::write(root.path().join(unsynced), [0; 400]).unwrap();
    }
    let index = std::fs::read_dir(root.path().join("index")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&index).unwrap();
    bytes[40..].fill(0);
    std::fs::write(&index, bytes).unwrap();

    let store = Store::open(options(root.path())).unwrap();
    assert_eq!(read(&store).len(), 120);
    for number in 0..120 {
        let found = store.query("T", &format!("k{number}"), 9, 0, i64::MAX, false);
        assert_eq!(found.records.len(), 1, "{number}");
    }
}

/// Seen by a message that is damaged: who reads the log finds it.
#[test]
fn after_a_kill_the_log_is_read_from_what_was_written_to_files_and_after_a_power_cut_from_what_was_forced() {
    for is_power_cut in [false, true] {
        let root = tempfile::tempdir().unwrap();
        leave_unclean(root.path());
        let log = root.path().join("commitlog/00000000000000000000");
        let mut bytes = std::fs::read(&log).unwrap();
        let bodies = bytes.windows(4).enumerate().filter(|(_, bytes)| bytes == b"body");
        let (body, _) = { bodies }.nth(60).unwrap();
        bytes[body] = b'B';
        std::fs::write(&log, bytes).unwrap();
        if is_power_cut {
            change_boot(root.path());
        }
        let store = Store::open(options(root.path())).unwrap();
        assert_eq!(read(&store).len(), if is_power_cut { 119 } else { 120 });
        assert!(!root.path().join("ferromq.queues.recent").exists(), "it was of the run before");
    }
}
