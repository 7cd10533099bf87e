//! A recovered store against the model.

use std::collections::{BTreeMap, BTreeSet};

use ferromq_protocol::message::RecordView;
use ferromq_store::Store;

use super::model::{End, Model, Place, QueueKey, Sent, State};
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
        if !seen.contains(&serial) && sent.physical_offset >= model.expired {
            sent.becomes(State::Lost, |_| true);
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

/// Everything that can be read of every queue is what was sent, and everywhere where it belongs. Returns the serial numbers, with
/// those of half messages that are in the log.
pub(crate) fn read_everything(store: &Store, model: &Model) -> BTreeSet<usize> {
    let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
    for key in queues(model) {
        let (topic, queue_id) = &key;
        let queue = store.queue(topic, *queue_id);
        let records = drain_records(store, &queue);
        let units = store.consume_queue_units(&queue, 0, usize::MAX);
        let units: BTreeMap<_, _> =
            units.iter().map(|unit| (unit.queue_offset, unit.physical_offset)).collect();
        let mut first = None;
        let mut offsets = 0;
        for record in &records {
            let view = RecordView::parse(record).unwrap();
            view.check(record.physical_offset()).unwrap();
            let serial = serial_of(&view);
            let sent = &model.sent[serial];
            let Some(Place { offsets: places, .. }) = sent.place_in(&key) else {
                panic!("message {serial} came back in {key:?}: {}", brief(sent));
            };
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
            for offset in places.clone() {
                let unit = units.get(&offset);
                assert_eq!(unit, Some(&sent.physical_offset), "message {serial} at {offset} of {key:?}");
            }
            first.get_or_insert(places.start);
            offsets += places.clone().count();
            *seen.entry(serial).or_default() += 1;
        }
        let readable = units.values().filter(|at| **at >= store.min_offset()).count();
        assert_eq!(readable, offsets, "units of {key:?} that are read, each once");
        let (min, max) = (queue.min_offset(), queue.max_offset());
        assert!(min <= first.unwrap_or(max), "{topic}-{queue_id} begins at {min}");
    }
    for topic in store.topics() {
        let is_known = |place: &Place| place.queue.0 == *topic && place.state != State::Deleted;
        let known = |sent: &Sent| sent.places.iter().any(is_known);
        let offsets: Vec<_> = store.queues_of(&topic).iter().map(|queue| queue.next_offset()).collect();
        assert!(model.sent.iter().any(known), "topic {topic} came back: {offsets:?}");
    }
    for (serial, sent) in model.sent.iter().enumerate() {
        if sent.places.is_empty() && sent.state == State::There && is_in_log(store, serial, sent) {
            seen.insert(serial, 0);
        }
        let there = sent.places.iter().filter(|place| place.state == State::There).count();
        let found = seen.get(&serial).copied();
        assert!(
            found.is_none_or(|found| found == there) || sent.physical_offset < model.expired,
            "message {serial} is in {found:?} of {there} queues: {}",
            brief(sent)
        );
    }
    seen.into_keys().collect()
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

fn is_in_log(store: &Store, serial: usize, sent: &Sent) -> bool {
    let at = store.record_at(sent.physical_offset).ok().flatten();
    at.is_some_and(|record| {
        let view = RecordView::parse(&record).unwrap();
        view.check(sent.physical_offset).is_ok() && serial_of(&view) == serial
    })
}

fn check_look_ups(store: &Store, model: &Model, seen: &BTreeSet<usize>) {
    for (serial, sent) in model.sent.iter().enumerate() {
        let there = is_in_log(store, serial, sent);
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
                usize::from(sent.state != State::Deleted && seen.contains(&serial)),
                "message {serial} by key {key}: {}",
                brief(sent)
            );
        }
    }
}

/// Every queue that ever was.
pub(crate) fn queues(model: &Model) -> BTreeSet<QueueKey> {
    model.sent.iter().flat_map(|sent| &sent.places).map(|place| place.queue.clone()).collect()
}

fn brief(sent: &Sent) -> String {
    let Sent { queue: (topic, queue_id), places, physical_offset, end, acknowledged, state, .. } = sent;
    let places: Vec<_> = places
        .iter()
        .map(|Place { queue: (name, id), offsets, state }| format!("{name}-{id} {offsets:?} {state:?}"))
        .collect();
    format!(
        "{topic}-{queue_id} {places:?} at {physical_offset}..{end}, acknowledged {acknowledged}, {state:?}"
    )
}
