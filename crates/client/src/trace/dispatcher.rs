//! Sends the records of one producer or consumer, several in one message, in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Event, Losses, QUEUE_MAX, Role};
use crate::error::Error;
use crate::instance::Instance;
use crate::message::Message;
use crate::producer::ProducerCore;

/// So many events are sent at once, or whatever there is after a while.
const BATCH_EVENTS: usize = 20;
const BATCH_DELAY_MAX: Duration = Duration::from_secs(5);
/// Text in one message, unless it is a single record.
const TEXT_BYTES_MAX: usize = 128_000;
/// Keys of one message: a broker takes no more than 32767 bytes of properties.
const KEYS_BYTES_MAX: usize = 30_000;
/// How often the log tells of losses, as long as there are any.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Traces that this process has begun.
static TRACES: AtomicU32 = AtomicU32::new(0);

/// Gathers events and sends them.
pub(super) struct Dispatcher {
    group: String,
    topic: Arc<str>,
    queue: mpsc::Receiver<Event>,
    producer: ProducerCore,
    losses: Arc<Losses>,
    last_error: Option<Error>,
    reported_at: Option<Instant>,
}

impl Dispatcher {
    pub(super) fn new(
        instance: &Arc<Instance>,
        role: Role,
        group: &str,
        topic: &Arc<str>,
        queue: mpsc::Receiver<Event>,
        losses: Arc<Losses>,
    ) -> Self {
        let role = match role {
            Role::Produce => "PRODUCE",
            Role::Consume => "CONSUME",
        };
        let number = TRACES.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let sender = format!("_INNER_TRACE_PRODUCER-{group}-{role}-{number}");
        Self {
            group: group.to_owned(),
            topic: topic.clone(),
            queue,
            producer: ProducerCore::of_trace(instance.clone(), &sender),
            losses,
            last_error: None,
            reported_at: None,
        }
    }

    /// Runs until all who hand in events are gone, or until `closing` and everything is sent.
    pub(super) async fn run(mut self, closing: CancellationToken) {
        let mut events = Vec::new();
        loop {
            let is_open = self.gather(&mut events, &closing).await;
            self.send(std::mem::take(&mut events), !is_open).await;
            self.report(!is_open);
            if !is_open {
                return;
            }
        }
    }

    /// Waits until enough events are there, or the first of them has waited long enough. False: there will be no more.
    async fn gather(&mut self, events: &mut Vec<Event>, closing: &CancellationToken) -> bool {
        let mut deadline = None;
        while events.len() < BATCH_EVENTS {
            let in_time = deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                count = self.queue.recv_many(events, QUEUE_MAX) => {
                    if count == 0 {
                        return false;
                    }
                    deadline.get_or_insert_with(|| Instant::now() + BATCH_DELAY_MAX);
                }
                () = sleep_until(in_time), if deadline.is_some() => return true,
                // What is in the queue still comes out of it.
                () = closing.cancelled(), if !self.queue.is_closed() => self.queue.close(),
            }
        }
        true
    }

    /// Sends events. At the end, what can't be sent is not waited for: one failure, and the rest is given up.
    async fn send(&mut self, events: Vec<Event>, is_end: bool) {
        let mut messages = pack(events).into_iter();
        for Packed { text, keys, records } in messages.by_ref() {
            let message = Message::new(&*self.topic, text).keys(keys);
            if let Err(error) = self.producer.send(message).await {
                self.losses.add(records);
                self.last_error = Some(error);
                if is_end {
                    break;
                }
            }
        }
        self.losses.add(messages.map(|message| message.records).sum());
    }

    /// Tells the log of losses, now and then.
    fn report(&mut self, is_end: bool) {
        let was_recent = self.reported_at.is_some_and(|time| time.elapsed() < REPORT_INTERVAL);
        if was_recent && !is_end {
            return;
        }
        let lost = self.losses.take_unreported();
        if lost == 0 {
            return;
        }
        self.reported_at = Some(Instant::now());
        let (group, topic) = (&self.group, &*self.topic);
        match self.last_error.take() {
            Some(error) => {
                tracing::warn!(group, topic, lost, %error, "records of the message trace were lost")
            }
            None => {
                tracing::warn!(group, topic, lost, "records of the message trace were lost: too many at once")
            }
        }
    }
}

/// The content of one message.
#[derive(Debug, Default, PartialEq)]
struct Packed {
    text: String,
    /// By which the message is found: ids and keys of all messages that it tells of.
    keys: BTreeSet<String>,
    records: usize,
}

/// The records of each topic, in messages that are not too large.
fn pack(events: Vec<Event>) -> Vec<Packed> {
    let mut topics: BTreeMap<String, Vec<Event>> = BTreeMap::new();
    for event in events {
        match topics.get_mut(&event.topic) {
            Some(events) => events.push(event),
            None => drop(topics.insert(event.topic.clone(), vec![event])),
        }
    }
    topics.into_values().flat_map(|events| pack_topic(&events)).collect()
}

fn pack_topic(events: &[Event]) -> Vec<Packed> {
    let (mut packed, mut keys_bytes, mut text) = (vec![Packed::default()], 0, String::new());
    for record in events.iter().flat_map(|event| &event.records) {
        text.clear();
        record.encode_into(&mut text);
        let keys: BTreeSet<&str> = record.keys().chain([record.msg_id()]).collect();
        let more_keys_bytes: usize = keys.iter().map(|key| key.len() + 1).sum();
        let is_full = packed.last().is_some_and(|last| {
            last.records > 0
                && (last.text.len() + text.len() > TEXT_BYTES_MAX
                    || keys_bytes + more_keys_bytes > KEYS_BYTES_MAX)
        });
        if is_full {
            packed.push(Packed::default());
            keys_bytes = 0;
        }
        let Some(last) = packed.last_mut() else { break };
        last.text.push_str(&text);
        last.records += 1;
        for key in keys {
            if !last.keys.contains(key) {
                keys_bytes += key.len() + 1;
                last.keys.insert(key.to_owned());
            }
        }
    }
    packed.retain(|message| message.records > 0);
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceRecord;
    use crate::trace::record::decode;

    fn record(id: &str, keys: &str) -> TraceRecord {
        TraceRecord::SubBefore {
            timestamp: 1,
            region_id: "r".to_owned(),
            group: "g".to_owned(),
            request_id: "q".to_owned(),
            msg_id: id.to_owned(),
            retry_times: 0,
            keys: (!keys.is_empty()).then(|| keys.to_owned()),
        }
    }

    fn event(topic: &str, records: &[TraceRecord]) -> Event {
        Event { topic: topic.to_owned(), records: records.to_vec() }
    }

    #[test]
    fn records_of_one_topic_are_one_message_with_all_keys() {
        let events = vec![
            event("A", &[record("1", "k1 k2"), record("2", "")]),
            event("B", &[record("3", "")]),
            event("A", &[record("4", "k2")]),
        ];
        let packed = pack(events);
        let keys: Vec<Vec<&str>> =
            packed.iter().map(|message| message.keys.iter().map(String::as_str).collect()).collect();
        assert_eq!(keys, [vec!["1", "2", "4", "k1", "k2"], vec!["3"]]);
        let told: Vec<_> = decode(&packed[0].text).collect();
        assert_eq!(told, [record("1", "k1 k2"), record("2", ""), record("4", "k2")]);
    }

    #[test]
    fn messages_are_split_before_they_are_too_large() {
        let long = "x".repeat(1000);
        let records: Vec<_> = (0..300).map(|id| record(&format!("{id}"), &long)).collect();
        let packed = pack(vec![event("A", &records)]);
        assert!(packed.len() >= 3, "{} messages", packed.len());
        assert!(packed.iter().all(|message| message.text.len() <= TEXT_BYTES_MAX));
        let different: Vec<_> = (0..300).map(|id| record(&format!("{id}"), &format!("{id}{long}"))).collect();
        let packed = pack(vec![event("A", &different)]);
        let keys_bytes = |message: &Packed| message.keys.iter().map(|key| key.len() + 1).sum::<usize>();
        assert!(packed.iter().all(|message| keys_bytes(message) <= KEYS_BYTES_MAX));
        assert_eq!(packed.iter().map(|message| message.records).sum::<usize>(), 300);
        let huge = record("1", &"y".repeat(2 * TEXT_BYTES_MAX));
        assert_eq!(pack(vec![event("A", &[huge.clone(), huge])]).len(), 2, "a single record is not cut");
    }
}
