//! Light queues: a message goes to its own queue and to those that `INNER_MULTI_DISPATCH` names; each gives it an offset.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use ferromq_protocol::message::RecordView;
use ferromq_store::*;
use support::*;

const OFFSETS: &str = "INNER_MULTI_QUEUE_OFFSET";

fn options(root: &std::path::Path) -> StoreOptions {
    StoreOptions { light_queues_enabled: true, multi_dispatch_enabled: true, ..small(root) }
}

fn message(topic: &str, light_queues: &str) -> Message {
    Message::new(topic, 2, "lmq1").with("TAGS", "TagA").with("INNER_MULTI_DISPATCH", light_queues)
}

/// Bodies and offsets (as the property says) of the messages in a light queue.
fn light(store: &Store, name: &str) -> Vec<(Vec<u8>, String)> {
    let records = drain_records(store, &store.queue(name, 0));
    let fields = |record: &RecordSlice| {
        let view = RecordView::whole(record, record.physical_offset()).unwrap();
        (view.body().to_vec(), view.property(OFFSETS).unwrap().to_owned())
    };
    records.iter().map(fields).collect()
}

#[test]
fn a_record_is_that_of_the_reference() {
    // docs/spec/02-store.md §18.1 R11; the reference writes the properties in another order.
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(options(root.path())).unwrap();
    let sent = message("TopicTest", "%LMQ%a,%LMQ%b").with("WAIT", "true");
    assert_eq!((send(&store, &sent).size, send(&store, &sent).size), (188, 188));
    let record = store.record_at(188).unwrap().unwrap();
    let view = RecordView::whole(&record, 188).unwrap();
    assert_eq!(
        (view.queue_offset(), view.property(OFFSETS), view.property("TAGS")),
        (1, Some("1,1"), Some("TagA"))
    );
}

#[test]
fn every_queue_gets_the_message_at_the_next_offset_whatever_happens() {
    for crc_property in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let options = || StoreOptions { append_crc_property: crc_property, ..options(root.path()) };
        let mut expected = [const { Vec::new() }; 2];
        for round in 0..4 {
            let store = Store::open(options()).unwrap();
            for number in 0..150 {
                let both = number % 3 == 0;
                let mut sent = message("T", if both { "%LMQ%a,%LMQ%b" } else { "%LMQ%a" });
                sent.body = format!("{round} {number}").into_bytes();
                let mut offsets = expected[0].len().to_string();
                if both {
                    offsets = format!("{offsets},{}", expected[1].len());
                    expected[1].push((sent.body.clone(), offsets.clone()));
                }
                expected[0].push((sent.body.clone(), offsets));
                assert_eq!(send(&store, &sent).queue_offset, round * 150 + number);
            }
            assert_eq!([light(&store, "%LMQ%a"), light(&store, "%LMQ%b")], expected, "round {round}");
            if round == 1 {
                store.shutdown();
            }
        }
    }
}

/// Concurrent senders to different queues of a topic share light queues: no offset is given twice or left out.
#[test]
fn offsets_are_dense_and_unique_with_many_senders() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(options(root.path())).unwrap();
    std::thread::scope(|scope| {
        for queue_id in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..100 {
                    let sent = Message { queue_id, ..message("T", "%LMQ%a") };
                    assert_eq!(send(store, &sent).queue_offset, number);
                }
            });
        }
    });
    let offsets: Vec<String> = light(&store, "%LMQ%a").into_iter().map(|(_, offset)| offset).collect();
    assert_eq!(offsets, (0..400).map(|offset| offset.to_string()).collect::<Vec<_>>());
}

/// Only a queue that gets the message gives it an offset.
#[test]
fn no_offsets_are_taken_for_what_is_not_dispatched() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(options(root.path())).unwrap();
    let elsewhere = "../x".repeat(2);
    for (topic, light_queues) in [
        ("%RETRY%g", "%LMQ%a"),
        ("SCHEDULE_TOPIC_XXXX", "%LMQ%a"),
        ("rmq_sys_x", "%LMQ%a"),
        ("T", "%LMQ%a,plain"),
        ("T", "plain,%LMQ%a"),
        ("T", &format!("%LMQ%a,%LMQ%{elsewhere}")),
    ] {
        let outcome = send(&store, &message(topic, light_queues));
        let record = store.record_at(outcome.physical_offset).unwrap().unwrap();
        assert_eq!(RecordView::parse(&record).unwrap().property(OFFSETS), None, "{topic} {light_queues}");
    }
    send(&store, &message("T", "%LMQ%a"));
    assert_eq!(light(&store, "%LMQ%a"), [(b"lmq1".to_vec(), "0".to_owned())]);
}

#[test]
fn watchers_of_a_light_queue_are_told() {
    struct Told(std::sync::mpsc::Sender<(String, i64)>);
    impl ArrivalListener for Told {
        fn arrived(&self, arrivals: &[Arrival]) {
            for arrival in arrivals {
                self.0.send((arrival.queue.topic().to_owned(), arrival.queue_offset)).unwrap();
            }
        }
    }
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(options(root.path())).unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    store.set_arrival_listener(std::sync::Arc::new(Told(sender)));
    let _watch = store.queue("%LMQ%b", 0).watch();
    send(&store, &message("T", "%LMQ%a,%LMQ%b"));
    assert_eq!(told.recv().unwrap(), ("%LMQ%b".to_owned(), 0));
}
