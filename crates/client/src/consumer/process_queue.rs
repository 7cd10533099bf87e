//! The messages of one queue that a consumer has and has not finished (`docs/spec/07-client.md` 13).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{MessageQueue, ProcessQueueInfo};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::stats::TopicStats;
use super::subscription::now_ms;
use crate::message::MessageExt;

/// Without a pull for so long, a queue is given up: its task must be stuck.
const PULL_IDLE_MAX: Duration = Duration::from_secs(120);
/// A lock that was not confirmed for so long may belong to another consumer by now.
const LOCK_LIVE_MAX: Duration = Duration::from_secs(30);

/// One queue in the hands of this consumer, from the moment a rebalance gives it until one takes it away.
#[derive(Debug)]
pub(crate) struct ProcessQueue {
    pub(crate) queue: MessageQueue,
    /// Cancelled when the queue is taken away: results that come later mean nothing.
    pub(crate) dropped: CancellationToken,
    /// Messages have come.
    pub(crate) arrived: Notify,
    /// Orderly consumers hold it while their listener runs, so that the queue is not given away meanwhile.
    pub(crate) consuming: tokio::sync::Mutex<()>,
    /// Id of the broker to pull from.
    pub(crate) pull_from: AtomicI64,
    /// Where a lite pull consumer is: behind the last message that was polled, -1 at the beginning.
    pub(crate) polled: AtomicI64,
    /// Counts of the topic.
    pub(crate) stats: Arc<TopicStats>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By queue offset.
    messages: BTreeMap<i64, Cached>,
    /// Orderly: messages that were handed out and not committed yet.
    in_hand: BTreeMap<i64, Cached>,
    bytes: usize,
    /// Largest offset that was ever put in.
    offset_max: i64,
    last_pull: Instant,
    last_pull_ms: i64,
    last_consume_ms: i64,
    lock: Lock,
    unlock_attempts: i64,
}

#[derive(Clone, Debug)]
struct Cached {
    message: Arc<MessageExt>,
    started: Option<Instant>,
}

/// An orderly consumer's lock of the queue at its broker.
#[derive(Clone, Copy, Debug)]
struct Lock {
    held: bool,
    confirmed: Instant,
    confirmed_ms: i64,
}

impl Lock {
    /// As [`ProcessQueue::set_locked`] says, now.
    fn now(held: bool) -> Self {
        Self { held, confirmed: Instant::now(), confirmed_ms: now_ms() }
    }
}

impl ProcessQueue {
    pub(crate) fn new(queue: MessageQueue, stats: Arc<TopicStats>, dropped: CancellationToken) -> Self {
        Self {
            queue,
            dropped,
            arrived: Notify::new(),
            consuming: tokio::sync::Mutex::default(),
            pull_from: AtomicI64::new(0),
            polled: AtomicI64::new(-1),
            stats,
            state: Mutex::new(State {
                messages: BTreeMap::new(),
                in_hand: BTreeMap::new(),
                bytes: 0,
                offset_max: 0,
                last_pull: Instant::now(),
                last_pull_ms: now_ms(),
                last_consume_ms: now_ms(),
                lock: Lock::now(false),
                unlock_attempts: 0,
            }),
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.is_cancelled()
    }

    /// Takes in what a pull brought.
    pub(crate) fn put(&self, messages: &[Arc<MessageExt>]) {
        let mut state = self.state.lock();
        for message in messages {
            let cached = Cached { message: message.clone(), started: None };
            if state.messages.insert(message.queue_offset, cached).is_none() {
                state.bytes += message.body.len();
                state.offset_max = message.queue_offset;
            }
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Removes messages that are done and returns up to where everything is done now; `None` if there was nothing.
    ///
    /// Progress is held back by the oldest message that is not finished.
    pub(crate) fn remove<'m>(&self, messages: impl IntoIterator<Item = &'m Arc<MessageExt>>) -> Option<i64> {
        let mut state = self.state.lock();
        state.last_consume_ms = now_ms();
        if state.messages.is_empty() {
            return None;
        }
        for message in messages {
            if let Some(cached) = state.messages.remove(&message.queue_offset) {
                state.bytes -= cached.message.body.len();
            }
        }
        Some(state.messages.first_key_value().map_or(state.offset_max + 1, |(offset, _)| *offset))
    }

    /// Whether a message is here and not finished.
    pub(crate) fn contains(&self, message: &MessageExt) -> bool {
        self.state.lock().messages.contains_key(&message.queue_offset)
    }

    /// A message was not finished again: its copy here counts one more.
    pub(crate) fn count_reconsume(&self, message: &Arc<MessageExt>) -> Arc<MessageExt> {
        let mut counted = (**message).clone();
        counted.reconsume_times += 1;
        let counted = Arc::new(counted);
        if let Some(cached) = self.state.lock().messages.get_mut(&message.queue_offset) {
            cached.message = counted.clone();
        }
        counted
    }

    /// The listener begins with these.
    pub(crate) fn note_start(&self, messages: &[Arc<MessageExt>]) {
        let now = Instant::now();
        let mut state = self.state.lock();
        for message in messages {
            if let Some(cached) = state.messages.get_mut(&message.queue_offset) {
                cached.started = Some(now);
            }
        }
    }

    /// The oldest message, if the listener has had it for longer than `timeout`.
    pub(crate) fn overdue(&self, timeout: Duration) -> Option<Arc<MessageExt>> {
        let state = self.state.lock();
        let (_, first) = state.messages.first_key_value()?;
        first.started.filter(|started| started.elapsed() > timeout).map(|_| first.message.clone())
    }

    /// Orderly: hands out the next messages.
    pub(crate) fn take(&self, count: usize) -> Vec<Arc<MessageExt>> {
        let mut state = self.state.lock();
        state.last_consume_ms = now_ms();
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some((offset, cached)) = state.messages.pop_first()
        {
            taken.push(cached.message.clone());
            state.in_hand.insert(offset, cached);
        }
        taken
    }

    /// Orderly: everything in hand is done. Returns the progress, if there was anything.
    pub(crate) fn commit(&self) -> Option<i64> {
        let mut state = self.state.lock();
        let next = state.in_hand.last_key_value().map(|(offset, _)| offset + 1);
        let done = std::mem::take(&mut state.in_hand);
        state.bytes -= done.values().map(|cached| cached.message.body.len()).sum::<usize>();
        next
    }

    /// Orderly: everything in hand is to be handed out again.
    pub(crate) fn rollback(&self) {
        let mut state = self.state.lock();
        let mut again = std::mem::take(&mut state.in_hand);
        state.messages.append(&mut again);
    }

    /// Orderly: these are to be handed out again, as they are now.
    pub(crate) fn consume_again(&self, messages: Vec<Arc<MessageExt>>) {
        let mut state = self.state.lock();
        for message in messages {
            state.in_hand.remove(&message.queue_offset);
            state.messages.insert(message.queue_offset, Cached { message, started: None });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.messages.is_empty() && state.in_hand.is_empty()
    }

    /// Whether messages wait to be handed out.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.state.lock().messages.is_empty()
    }

    /// Messages that wait for the listener or are with it.
    pub(crate) fn count(&self) -> usize {
        let state = self.state.lock();
        state.messages.len() + state.in_hand.len()
    }

    /// Bytes of their bodies.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Distance between the oldest and the newest one.
    pub(crate) fn span(&self) -> i64 {
        let state = self.state.lock();
        match (state.messages.first_key_value(), state.messages.last_key_value()) {
            (Some((first, _)), Some((last, _))) => last - first,
            _ => 0,
        }
    }

    pub(crate) fn note_pull(&self) {
        let mut state = self.state.lock();
        (state.last_pull, state.last_pull_ms) = (Instant::now(), now_ms());
    }

    pub(crate) fn is_pull_expired(&self) -> bool {
        self.state.lock().last_pull.elapsed() > PULL_IDLE_MAX
    }

    /// The broker says whether this client has the lock.
    pub(crate) fn set_locked(&self, locked: bool) {
        let mut state = self.state.lock();
        if locked {
            state.lock = Lock::now(true);
            drop(state);
            self.arrived.notify_one();
        } else {
            state.lock.held = false;
        }
    }

    /// Whether the lock was confirmed recently enough to rely on it.
    pub(crate) fn is_locked(&self) -> bool {
        let lock = self.state.lock().lock;
        lock.held && lock.confirmed.elapsed() <= LOCK_LIVE_MAX
    }

    /// How long ago the lock was confirmed.
    pub(crate) fn lock_age(&self) -> Duration {
        self.state.lock().lock.confirmed.elapsed()
    }

    /// The queue could not be given back, because its listener is still running.
    pub(crate) fn note_unlock_attempt(&self) {
        self.state.lock().unlock_attempts += 1;
    }

    /// For administrators.
    pub(crate) fn info(&self, commit_offset: i64) -> ProcessQueueInfo {
        let state = self.state.lock();
        let ends = |map: &BTreeMap<i64, Cached>| {
            let first = map.first_key_value().map_or(0, |(offset, _)| *offset);
            (first, map.last_key_value().map_or(0, |(offset, _)| *offset))
        };
        let (cached, in_hand) = (ends(&state.messages), ends(&state.in_hand));
        ProcessQueueInfo {
            cached_msg_count: state.messages.len() as i32,
            cached_msg_min_offset: cached.0,
            cached_msg_max_offset: cached.1,
            cached_msg_size_in_mib: (state.bytes >> 20) as i32,
            commit_offset,
            droped: self.is_dropped(),
            last_consume_timestamp: state.last_consume_ms,
            last_lock_timestamp: state.lock.confirmed_ms,
            last_pull_timestamp: state.last_pull_ms,
            locked: state.lock.held,
            transaction_msg_count: state.in_hand.len() as i32,
            transaction_msg_min_offset: in_hand.0,
            transaction_msg_max_offset: in_hand.1,
            try_unlock_times: state.unlock_attempts,
        }
    }

    pub(crate) fn pull_from(&self) -> i64 {
        self.pull_from.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pull_from(&self, broker_id: i64) {
        self.pull_from.store(broker_id, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::stats::ConsumerStats;
    use super::super::testing::message;
    use super::*;

    fn queue_with(offsets: std::ops::Range<i64>) -> (ProcessQueue, Vec<Arc<MessageExt>>) {
        let stats = ConsumerStats::new("me", "g").topic("T");
        let queue = ProcessQueue::new(MessageQueue::new("T", "a", 0), stats, CancellationToken::new());
        let messages: Vec<_> = offsets.map(|offset| Arc::new(message("T", offset))).collect();
        queue.put(&messages);
        (queue, messages)
    }

    #[test]
    fn progress_waits_for_the_oldest_unfinished_message() {
        let (queue, messages) = queue_with(10..14);
        assert_eq!((queue.count(), queue.span(), queue.bytes()), (4, 3, 4));
        assert_eq!(queue.remove(&messages[1..3]), Some(10));
        assert_eq!(queue.remove(&messages[..1]), Some(13));
        assert_eq!(queue.remove(&messages[3..]), Some(14));
        assert_eq!((queue.remove(&messages), queue.bytes()), (None, 0));
    }

    #[test]
    fn orderly_messages_are_committed_or_handed_out_again() {
        let (queue, _) = queue_with(5..8);
        let offsets =
            |messages: &[Arc<MessageExt>]| messages.iter().map(|m| m.queue_offset).collect::<Vec<_>>();
        let taken = queue.take(2);
        assert_eq!((offsets(&taken), queue.count()), (vec![5, 6], 3));
        assert_eq!(queue.commit(), Some(7));
        assert_eq!(offsets(&queue.take(2)), [7]);
        queue.rollback();
        let again = queue.take(2);
        assert_eq!(offsets(&again), [7]);
        queue.consume_again(again);
        assert_eq!((queue.commit(), queue.count()), (None, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn locks_and_pulls_expire() {
        let (queue, _) = queue_with(0..1);
        assert!(!queue.is_locked());
        queue.set_locked(true);
        tokio::time::advance(LOCK_LIVE_MAX).await;
        assert!(queue.is_locked());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!queue.is_locked() && !queue.is_pull_expired());
        tokio::time::advance(PULL_IDLE_MAX).await;
        assert!(queue.is_pull_expired());
        queue.note_pull();
        assert!(!queue.is_pull_expired());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_message_can_be_overdue() {
        let (queue, messages) = queue_with(0..2);
        let timeout = Duration::from_secs(60);
        tokio::time::advance(timeout * 2).await;
        assert!(queue.overdue(timeout).is_none(), "it was not started");
        queue.note_start(&messages[..1]);
        tokio::time::advance(timeout * 2).await;
        assert_eq!(queue.overdue(timeout).unwrap().queue_offset, 0);
    }
}
