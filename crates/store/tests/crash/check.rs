//! A recovered store against the model.

use std::collections::BTreeSet;

use ferromq_protocol::message::RecordView;
use ferromq_store::Store;

use super::model::{End, Model, QueueKey, Sent, State};
use crate::support::drain_records;

/// Serial number of the message in a record.
fn serial_of(view: &RecordView<'_>) -> usize {
    u32::from_be_bytes(view.body()[..4].try_into().unwrap()) as usize
}

/// The store was opened after such an end: nothing promised is missing, nothing is there that should not be. What is missing
/// otherwise is lost from now on, and what is there is promised.
pub(crate) fn after_start(store: &Store, model: &mut Model, end: End) {
    if let Some(topic) = model.deleting.take()
        && store.queues_of(&topic).iter().all(|queue| queue.next_offset() == 0)
    {
        model.topic_was_deleted(&topic);
    }
    check_waterlines(store);
    let seen = read_everything(store, model);
    for (serial, sent) in model.sent.iter().enumerate() {
        assert!(
            seen.contains(&serial) || !model.must_survive(sent, end),
            "message {serial} is lost: {}, flushed {}",
            brief(sent),
            model.flushed
        );
    }
    check_offsets(store, model, end);
    for serial in &seen {
        model.sent[*serial].acknowledged = true;
    }
    for (serial, sent) in model.sent.iter_mut().enumerate() {
        if sent.state == State::There && !seen.contains(&serial) && sent.physical_offset >= model.expired {
            sent.state = State::Lost;
        }
    }
    check_look_ups(store, model, &seen);
    model.flushed = store.flushed().get();
    for queue in queues(model) {
        let next = store.queue(&queue.0, queue.1).next_offset();
        if next > 0 {
            model.next.insert(queue.clone(), next);
            model.kept.insert(queue, next);
        } else {
            model.next.remove(&queue);
        }
    }
}

/// Everything that can be read of every queue is what was sent. Returns the serial numbers.
pub(crate) fn read_everything(store: &Store, model: &Model) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    for (topic, queue_id) in queues(model) {
        let queue = store.queue(&topic, queue_id);
        let records = drain_records(store, &queue);
        for record in &records {
            let view = RecordView::parse(record).unwrap();
            view.check(record.physical_offset()).unwrap();
            let serial = serial_of(&view);
            let sent = &model.sent[serial];
            assert_eq!(sent.state, State::There, "message {serial} came back: {}", brief(sent));
            assert_eq!(
                (
                    view.topic(),
                    view.queue_id(),
                    view.queue_offset(),
                    record.physical_offset(),
                    view.store_timestamp()
                ),
                (
                    Some(&*sent.queue.0),
                    sent.queue.1,
                    sent.queue_offset,
                    sent.physical_offset,
                    sent.store_timestamp
                ),
                "message {serial}"
            );
            assert!(
                view.body() == sent.body && view.properties() == sent.properties,
                "message {serial} has changed"
            );
            assert!(seen.insert(serial), "message {serial} is there twice");
        }
        let (min, max) = (queue.min_offset(), queue.max_offset());
        let first = records.first().map(|record| RecordView::parse(record).unwrap().queue_offset());
        assert!(min <= first.unwrap_or(max), "{topic}-{queue_id} begins at {min}");
    }
    for topic in store.topics() {
        let known = |sent: &Sent| sent.queue.0 == *topic && sent.state != State::Deleted;
        let offsets: Vec<_> = store.queues_of(&topic).iter().map(|queue| queue.next_offset()).collect();
        assert!(model.sent.iter().any(known), "topic {topic} came back: {offsets:?}");
    }
    seen
}

fn check_waterlines(store: &Store) {
    store.dispatch_to_confirmed();
    let end = store.appended().get();
    assert_eq!((store.flushed().get(), store.confirmed().get(), store.dispatched().get()), (end, end, end));
    assert!(store.min_offset() <= end);
}

fn check_offsets(store: &Store, model: &Model, end: End) {
    for queue in queues(model) {
        let handle = store.queue(&queue.0, queue.1);
        let (min, max, next) = (handle.min_offset(), handle.max_offset(), handle.next_offset());
        assert!(0 <= min && min <= max && max == next, "{queue:?}: {min} {max} {next}");
        let given = model.given(&queue, end);
        assert!(next >= given, "{queue:?} goes on at {next}, offsets below {given} were given");
    }
}

fn check_look_ups(store: &Store, model: &Model, seen: &BTreeSet<usize>) {
    for (serial, sent) in model.sent.iter().enumerate() {
        let at = store.record_at(sent.physical_offset).ok().flatten();
        let there = at.is_some_and(|record| {
            let view = RecordView::parse(&record).unwrap();
            view.check(sent.physical_offset).is_ok() && serial_of(&view) == serial
        });
        if seen.contains(&serial) {
            assert!(there, "message {serial} is not at its physical offset: {}", brief(sent));
        } else if sent.state == State::Lost {
            assert!(
                !there,
                "message {serial} is in the log and can't be read, or came back: {}",
                brief(sent)
            );
        }
        if sent.state != State::Deleted && sent.physical_offset < model.expired {
            continue;
        }
        for key in &sent.keys {
            let found = store.query(&sent.queue.0, key, 64, 0, i64::MAX, false).records;
            let times = found
                .iter()
                .filter(|record| serial_of(&RecordView::parse(record).unwrap()) == serial)
                .count();
            assert_eq!(
                times,
                usize::from(seen.contains(&serial)),
                "message {serial} by key {key}: {}",
                brief(sent)
            );
        }
    }
}

/// Every queue that ever was.
pub(crate) fn queues(model: &Model) -> BTreeSet<QueueKey> {
    model.sent.iter().map(|sent| sent.queue.clone()).collect()
}

fn brief(sent: &Sent) -> String {
    let Sent { queue: (topic, queue_id), queue_offset, physical_offset, end, acknowledged, state, .. } = sent;
    format!(
        "{topic}-{queue_id} {queue_offset} at {physical_offset}..{end}, acknowledged {acknowledged}, {state:?}"
    )
}
