//! Topics whose batches are one record each (`queue.type=BatchCQ`).

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use ferromq_protocol::message::{RecordView, sysflag};
use ferromq_store::*;
use support::*;

fn options(root: &std::path::Path) -> StoreOptions {
    StoreOptions {
        batch_topics: vec!["BatchT".to_owned()],
        batch_consume_queue_file_size: 460,
        ..small(root)
    }
}

fn batch(messages: u32) -> Message {
    let mut message = Message::new("BatchT", 1, vec![b'm'; messages as usize * 22])
        .with("INNER_NUM", &messages.to_string());
    message.sys_flag = sysflag::NEED_UNWRAP | sysflag::INNER_BATCH;
    message
}

/// Sends single messages and batches of up to four, `first` to `last`.
fn send_some(store: &Store, numbers: std::ops::Range<u32>, expected: &mut Vec<(i64, u32)>) {
    for number in numbers {
        let count = number % 4 + 1;
        let sent = if count == 1 { Message::new("BatchT", 1, "one") } else { batch(count) };
        let next = expected.last().map_or(0, |(base, count)| base + i64::from(*count));
        assert_eq!(send(store, &sent).queue_offset, next);
        expected.push((next, count));
    }
}

/// First offset and number of messages of each record.
fn stored(store: &Store) -> Vec<(i64, u32)> {
    let records = drain_records(store, &store.queue("BatchT", 1));
    let fields = |record: &RecordSlice| {
        let view = RecordView::whole(record, record.physical_offset()).unwrap();
        let base = view.property("INNER_BASE").map_or(view.queue_offset(), |base| base.parse().unwrap());
        assert_eq!(base, view.queue_offset());
        (base, view.property("INNER_NUM").map_or(1, |count| count.parse().unwrap()))
    };
    records.iter().map(fields).collect()
}

#[test]
fn batches_survive_stops_and_crashes() {
    for crc_property in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        for round in 0..6 {
            let options = StoreOptions { append_crc_property: crc_property, ..options(root.path()) };
            let store = Store::open(options).unwrap();
            assert_eq!(stored(&store), expected, "{round}");
            send_some(&store, round * 30..round * 30 + 30, &mut expected);
            assert_eq!(stored(&store), expected, "{round}");
            if round % 3 == 0 {
                store.shutdown();
            }
        }
    }
}

/// docs/spec/02-store.md §18.2 Q5
#[test]
fn a_read_in_the_middle_returns_the_whole_batch() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(options(root.path())).unwrap();
    [batch(3), batch(3), Message::new("BatchT", 1, "c")].iter().for_each(|sent| {
        send(&store, sent);
    });
    let queue = store.queue("BatchT", 1);
    for (offset, bases) in [(0, &[0, 3, 6][..]), (2, &[0, 3, 6]), (3, &[3, 6]), (5, &[3, 6]), (6, &[6])] {
        let mut records: Vec<RecordSlice> = Vec::new();
        let outcome = store.read(&queue, request(offset), &AcceptAll, &mut records);
        assert_eq!((outcome.status, outcome.next_offset), (ReadStatus::Found, 7), "{offset}");
        let found: Vec<i64> =
            records.iter().map(|record| RecordView::parse(record).unwrap().queue_offset()).collect();
        assert_eq!(found, bases, "{offset}");
    }
    let past = store.read(&queue, request(7), &AcceptAll, &mut Vec::<RecordSlice>::new());
    assert_eq!(past.status, ReadStatus::OffsetOverflowOne);
    let time = store.store_time_at(&queue, 4).unwrap();
    assert_eq!(store.offset_by_time(&queue, time - 1_000_000, Boundary::Lower), 0);
    assert_eq!(store.offset_by_time(&queue, time + 1_000_000, Boundary::Lower), 7);
}

#[test]
fn a_deleted_topic_begins_anew() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(options(root.path())).unwrap();
    send_some(&store, 0..20, &mut Vec::new());
    store.dispatch_to_confirmed();
    store.delete_topic("BatchT").unwrap();
    store.declare_batch_topic("BatchT");
    let mut expected = Vec::new();
    send_some(&store, 0..9, &mut expected);
    assert_eq!(stored(&store), expected);
    drop(store);
    let store = Store::open(options(root.path())).unwrap();
    assert_eq!(stored(&store), expected);
}

#[test]
fn a_batch_must_say_how_many_messages_it_holds() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(options(root.path())).unwrap();
    let queue = store.queue("BatchT", 1);
    let mut without = Message::new("BatchT", 1, "x");
    without.sys_flag = sysflag::INNER_BATCH;
    let mut short = batch(7);
    short.body.pop();
    for refused in [without, short, batch(0), batch(32_768)] {
        let mut pushed = store.new_batch();
        assert!(matches!(pushed.push(&queue, &refused.fields()), Err(PushError::InnerBatch)));
        assert!(pushed.is_empty());
    }
}
