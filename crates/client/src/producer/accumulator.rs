//! Automatic batching: sends that come soon after each other share a request (`docs/spec/07-client.md` 7.5).
//!
//! Messages that can be one batch are held back until there are enough of them, or the first has waited long enough. A task
//! of its own sends the batch then and tells each sender its part of the answer, so that nobody depends on somebody else's
//! future.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::names::RETRY_PREFIX;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ProducerCore;
use super::request::Outgoing;
use super::result::SendResult;
use crate::error::Error;
use crate::message::{Message, batch, properties as names};
use crate::validate;

/// Properties of one message in a batch, bytes. Brokers add those of the batch, and take no more than 32767 in all.
const PROPERTIES_BYTES_MAX: usize = 16 * 1024;

/// Properties of messages that are never batched.
const ALONE: [&str; 6] = [
    names::DELAY,
    names::TIMER_DELAY_MS,
    names::TIMER_DELIVER_MS,
    names::TRAN_MSG,
    names::PRODUCER_GROUP,
    names::MESSAGE_TYPE,
];

/// Settings of automatic batching.
#[derive(Clone, Debug)]
pub(super) struct BatchSettings {
    pub(super) enabled: bool,
    pub(super) delay_max: Duration,
    pub(super) bytes_max: usize,
    pub(super) total_bytes_max: usize,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            delay_max: Duration::from_millis(10),
            bytes_max: 32 * 1024,
            total_bytes_max: 32 * 1024 * 1024,
        }
    }
}

impl BatchSettings {
    /// Checks the ranges of 1.2.
    pub(super) fn check(&self) -> Result<(), Error> {
        let delay_max_ms = self.delay_max.as_millis();
        if !(1..=30_000).contains(&delay_max_ms) {
            let reason = format!("{delay_max_ms} ms is out of range [1, 30000]");
            return Err(Error::invalid("batch_max_delay", reason));
        }
        let bytes_max = self.bytes_max;
        if !(1..=2 * 1024 * 1024).contains(&bytes_max) {
            let reason = format!("{bytes_max} is out of range [1, 2097152]");
            return Err(Error::invalid("batch_max_bytes", reason));
        }
        Ok(())
    }
}

/// What messages of one batch have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    topic: String,
    /// `None`: whichever queue is next.
    queue: Option<MessageQueue>,
    wait: Option<String>,
    tags: Option<String>,
    is_oneway: bool,
}

impl Key {
    fn new(message: &Message, queue: Option<MessageQueue>, is_oneway: bool) -> Self {
        let property = |name| message.get_property(name).map(str::to_owned);
        Self {
            topic: message.topic.clone(),
            queue,
            wait: property(names::WAIT),
            tags: property(names::TAGS),
            is_oneway,
        }
    }
}

type Receipt = oneshot::Sender<Result<SendResult, Error>>;

/// Messages that are held back together.
#[derive(Debug, Default)]
struct Batch {
    messages: Vec<Message>,
    /// Of each message that is not one-way.
    receipts: Vec<Receipt>,
    bytes: usize,
}

/// A batch that takes more messages, and who waits until it no longer does.
#[derive(Debug)]
struct OpenBatch {
    batch: Batch,
    full: oneshot::Sender<Batch>,
}

/// Holds back the messages of one producer.
#[derive(Debug)]
pub(super) struct Accumulator {
    settings: BatchSettings,
    open: Mutex<HashMap<Key, OpenBatch>>,
    /// In open batches, and in those that are on their way.
    held_bytes: AtomicUsize,
    sending: TaskTracker,
    /// Cancelled, under the lock of `open`, when nothing is held back any more.
    closing: CancellationToken,
}

impl Accumulator {
    pub(super) fn new(settings: &BatchSettings) -> Option<Arc<Self>> {
        settings.enabled.then(|| {
            Arc::new(Self {
                settings: settings.clone(),
                open: Mutex::default(),
                held_bytes: AtomicUsize::new(0),
                sending: TaskTracker::new(),
                closing: CancellationToken::new(),
            })
        })
    }

    /// Whether a message is held back; others are sent alone. Those that are wrong are not looked at here.
    pub(super) fn takes(&self, message: &Message) -> bool {
        !message.topic.starts_with(RETRY_PREFIX)
            && !ALONE.iter().any(|name| message.get_property(name).is_some())
            && message.properties.encoded().len() <= PROPERTIES_BYTES_MAX
            && batch::size(message) < self.settings.bytes_max
            && self.held_bytes.load(Ordering::Relaxed) < self.settings.total_bytes_max
    }

    /// Sends a message with others, to this queue or any.
    pub(super) async fn send(
        self: &Arc<Self>,
        core: &Arc<ProducerCore>,
        message: Message,
        queue: Option<MessageQueue>,
    ) -> Result<SendResult, Error> {
        let (receipt, answer) = oneshot::channel();
        self.add(core, message, queue, Some(receipt))?;
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| Err(core.closed_error())),
            // From then on nobody carries what is held back.
            () = core.instance.stop.cancelled() => Err(core.closed_error()),
        }
    }

    /// As [`send`](Self::send) without an answer: the message is only held back when this returns.
    pub(super) fn send_oneway(
        self: &Arc<Self>,
        core: &Arc<ProducerCore>,
        message: Message,
        queue: Option<MessageQueue>,
    ) -> Result<(), Error> {
        self.add(core, message, queue, None)
    }

    /// Sends what is held back, and waits until all of it has been answered. What comes later is refused.
    pub(super) async fn close(&self) {
        {
            let _open = self.open.lock();
            self.closing.cancel();
        }
        self.sending.close();
        self.sending.wait().await;
    }

    fn add(
        self: &Arc<Self>,
        core: &Arc<ProducerCore>,
        mut message: Message,
        queue: Option<MessageQueue>,
        receipt: Option<Receipt>,
    ) -> Result<(), Error> {
        core.check_open()?;
        // One message that is wrong must not spoil a batch.
        validate::message(&message, core.settings.max_message_size)?;
        message.identify();
        let key = Key::new(&message, queue, receipt.is_none());
        let bytes = batch::size(&message);
        let mut open = self.open.lock();
        if self.closing.is_cancelled() {
            return Err(core.closed_error());
        }
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        if open.get(&key).is_some_and(|open| open.batch.bytes + bytes > self.settings.bytes_max)
            && let Some(OpenBatch { batch, full }) = open.remove(&key)
        {
            // Its task waits for it, or for the lock.
            let _ = full.send(batch);
        }
        let batch = &mut open
            .entry(key)
            .or_insert_with_key(|key| {
                let (full, taken) = oneshot::channel();
                let carrying = self.clone().carry(core.clone(), key.clone(), taken);
                core.instance.spawn(self.sending.track_future(carrying));
                OpenBatch { batch: Batch::default(), full }
            })
            .batch;
        batch.messages.push(message);
        batch.receipts.extend(receipt);
        batch.bytes += bytes;
        Ok(())
    }

    /// Waits until a batch takes no more messages, and sends it.
    async fn carry(self: Arc<Self>, core: Arc<ProducerCore>, key: Key, mut full: oneshot::Receiver<Batch>) {
        let waited = tokio::select! {
            batch = &mut full => batch.ok(),
            () = tokio::time::sleep(self.settings.delay_max) => None,
            () = self.closing.cancelled() => None,
        };
        let Some(Batch { messages, receipts, bytes }) = waited.or_else(|| self.take(&key, &mut full)) else {
            return;
        };
        send(&core, &key, messages, receipts).await;
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The batch of a task whose time is over.
    fn take(&self, key: &Key, full: &mut oneshot::Receiver<Batch>) -> Option<Batch> {
        let mut open = self.open.lock();
        // If it has just become full, the open one with this key is another.
        full.try_recv().ok().or_else(|| open.remove(key).map(|open| open.batch))
    }
}

/// Sends the messages of a batch, and tells those who wait for it what became of theirs.
async fn send(core: &Arc<ProducerCore>, key: &Key, messages: Vec<Message>, receipts: Vec<Receipt>) {
    let ids: Vec<String> = messages
        .iter()
        .map(|message| message.get_property(names::UNIQ_KEY).unwrap_or_default().to_owned())
        .collect();
    let timeout = core.settings.send_msg_timeout;
    let outgoing = match Outgoing::accumulated(core, messages, key.tags.as_deref()).await {
        Ok(outgoing) => outgoing,
        Err(error) => return refuse(receipts, &error),
    };
    if key.is_oneway {
        if let Err(error) = core.send_oneway(&outgoing, key.queue.as_ref(), timeout).await {
            tracing::warn!(topic = key.topic, messages = ids.len(), %error, "one-way messages were not sent");
        }
        return;
    }
    let sent = match &key.queue {
        Some(queue) => core.send_chosen(&outgoing, |_| Some(queue.clone()), timeout).await,
        None => core.send_anywhere(&outgoing, timeout).await,
    };
    match sent {
        Ok(result) => {
            for (receipt, part) in receipts.into_iter().zip(parts(&result, ids)) {
                // Nobody waits for it if the sender's future was dropped.
                let _ = receipt.send(Ok(part));
            }
        }
        Err(error) => refuse(receipts, &error),
    }
}

fn refuse(receipts: Vec<Receipt>, error: &Error) {
    for receipt in receipts {
        let _ = receipt.send(Err(error.clone()));
    }
}

/// What the answer to a batch says about each of its messages, which have these ids.
fn parts(result: &SendResult, ids: Vec<String>) -> impl Iterator<Item = SendResult> + '_ {
    let offset_ids: Vec<&str> = result.offset_msg_id.split(',').collect();
    // A batch that is stored as one record has one for all.
    let has_each = offset_ids.len() == ids.len();
    ids.into_iter().enumerate().map(move |(position, msg_id)| SendResult {
        msg_id,
        offset_msg_id: if has_each { offset_ids[position] } else { &result.offset_msg_id }.to_owned(),
        queue_offset: result.queue_offset + position as i64,
        ..result.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer::SendStatus;

    fn accumulator() -> Arc<Accumulator> {
        let settings = BatchSettings { enabled: true, ..BatchSettings::default() };
        Accumulator::new(&settings).unwrap()
    }

    #[test]
    fn what_can_t_be_in_a_batch_is_sent_alone() {
        let accumulator = accumulator();
        let message = || Message::new("T", "x");
        assert!(accumulator.takes(&message()));
        assert!(accumulator.takes(&message().tag("A").sharding_key("k").without_waiting_for_store()));
        for alone in [
            message().delay_level(1),
            message().deliver_after(Duration::from_secs(1)),
            message().system(names::TRAN_MSG, "true"),
            message().system(names::MESSAGE_TYPE, "reply"),
            message().property("long", "x".repeat(PROPERTIES_BYTES_MAX)),
            Message::new("%RETRY%g", "x"),
            Message::new("T", vec![0; 32 * 1024]),
        ] {
            assert!(!accumulator.takes(&alone), "{alone:?}");
        }
        accumulator.held_bytes.store(32 * 1024 * 1024, Ordering::Relaxed);
        assert!(!accumulator.takes(&message()), "as much is held back as may be");
    }

    #[test]
    fn messages_of_a_batch_are_alike() {
        let queue = || Some(MessageQueue::new("T", "a", 0));
        let key = |message: &Message, queue, is_oneway| Key::new(message, queue, is_oneway);
        let plain = Message::new("T", "x");
        assert_eq!(key(&plain, None, false), key(&Message::new("T", "y").keys(["k"]), None, false));
        for different in [
            key(&Message::new("U", "x"), None, false),
            key(&Message::new("T", "x").tag("A"), None, false),
            key(&Message::new("T", "x").without_waiting_for_store(), None, false),
            key(&plain, queue(), false),
            key(&plain, None, true),
        ] {
            assert_ne!(key(&plain, None, false), different);
        }
    }

    #[test]
    fn settings_have_the_ranges_of_the_spec_1_2() {
        let check = |delay_max_ms, bytes_max| {
            let delay_max = Duration::from_millis(delay_max_ms);
            BatchSettings { delay_max, bytes_max, ..BatchSettings::default() }.check().is_ok()
        };
        assert!(check(1, 1) && check(30_000, 2_097_152));
        assert!(!check(0, 1) && !check(30_001, 1) && !check(1, 0) && !check(1, 2_097_153));
    }

    #[test]
    fn each_message_has_its_part_of_the_answer() {
        let result = |offset_msg_id: &str| SendResult {
            status: SendStatus::SendOk,
            msg_id: "1,2".to_owned(),
            offset_msg_id: offset_msg_id.to_owned(),
            queue: MessageQueue::new("T", "a", 3),
            queue_offset: 7,
            transaction_id: None,
            recall_handle: None,
            region_id: "r".to_owned(),
            trace_on: true,
        };
        let parts = |offset_msg_id: &str| -> Vec<(String, String, i64)> {
            let ids = vec!["1".to_owned(), "2".to_owned()];
            let parts = parts(&result(offset_msg_id), ids).collect::<Vec<_>>().into_iter();
            parts.map(|part| (part.msg_id, part.offset_msg_id, part.queue_offset)).collect()
        };
        let part = |id: &str, offset_id: &str, offset| (id.to_owned(), offset_id.to_owned(), offset);
        assert_eq!(parts("O1,O2"), [part("1", "O1", 7), part("2", "O2", 8)]);
        assert_eq!(parts("O"), [part("1", "O", 7), part("2", "O", 8)], "stored as one record");
    }
}
