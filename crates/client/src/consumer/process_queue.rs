//! The messages of one queue that a consumer has and has not finished (`docs/spec/07-client.md` 13).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{MessageQueue, ProcessQueueInfo};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::offsets::Progress;
use super::stats::TopicStats;
use super::subscription::now_ms;
use super::window::{Cached, Window};
use crate::message::MessageExt;

/// Without a pull for so long, a queue is given up: its task must be stuck.
const PULL_IDLE_MAX: Duration = Duration::from_secs(120);
/// A lock that was not confirmed for so long may belong to another consumer by now.
const LOCK_LIVE_MAX: Duration = Duration::from_secs(30);

/// One queue in the hands of this consumer, from the moment a rebalance gives it until one takes it away.
#[derive(Debug)]
pub(crate) struct ProcessQueue {
    pub(crate) queue: MessageQueue,
    /// How far the group has come in it.
    pub(crate) progress: Arc<Progress>,
    /// Cancelled when the queue is taken away, and with the client.
    dropped: CancellationToken,
    /// The queue was taken away: results that come later mean nothing.
    is_dropped: AtomicBool,
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
    messages: Window,
    /// Orderly: messages that were handed out and not committed yet.
    in_hand: Window,
    bytes: usize,
    /// Largest offset that was ever put in.
    offset_max: i64,
    last_pull: Instant,
    last_consume: Instant,
    lock: Lock,
    unlock_attempts: i64,
}

/// What a consumer has of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Messages that wait for the listener or are with it.
    pub(crate) messages: usize,
    /// Bytes of their bodies.
    pub(crate) bytes: usize,
    /// Distance between the oldest and the newest one.
    pub(crate) span: i64,
}

/// An orderly consumer's lock of the queue at its broker.
#[derive(Clone, Copy, Debug)]
struct Lock {
    held: bool,
    confirmed: Instant,
}

impl Lock {
    /// As [`ProcessQueue::set_locked`] says, now.
    fn now(held: bool) -> Self {
        Self { held, confirmed: Instant::now() }
    }
}

impl ProcessQueue {
    pub(crate) fn new(
        queue: MessageQueue,
        progress: Arc<Progress>,
        stats: Arc<TopicStats>,
        dropped: CancellationToken,
    ) -> Self {
        Self {
            queue,
            progress,
            dropped,
            is_dropped: AtomicBool::new(false),
            arrived: Notify::new(),
            consuming: tokio::sync::Mutex::default(),
            pull_from: AtomicI64::new(0),
            polled: AtomicI64::new(-1),
            stats,
            state: Mutex::new(State {
                messages: Window::default(),
                in_hand: Window::default(),
                bytes: 0,
                offset_max: 0,
                last_pull: Instant::now(),
                last_consume: Instant::now(),
                lock: Lock::now(false),
                unlock_attempts: 0,
            }),
        }
    }

    /// The queue was taken away.
    pub(crate) fn drop_now(&self) {
        self.is_dropped.store(true, Ordering::Release);
        self.dropped.cancel();
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Waits until the queue is taken away, or the client ends.
    pub(crate) async fn dropped(&self) {
        self.dropped.cancelled().await;
    }

    /// Goes on with something until then; `None` if it did not get done.
    pub(crate) async fn run_until_dropped<F: Future>(&self, work: F) -> Option<F::Output> {
        self.dropped.run_until_cancelled(work).await
    }

    /// Takes in what a pull brought.
    pub(crate) fn put(&self, messages: &[Arc<MessageExt>]) {
        let mut state = self.state.lock();
        for message in messages {
            if state.messages.insert(Cached::waiting(message.clone())).is_none() {
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
    pub(crate) fn remove<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m Arc<MessageExt>>,
        now: Instant,
    ) -> Option<i64> {
        let mut state = self.state.lock();
        state.last_consume = now;
        if state.messages.is_empty() {
            return None;
        }
        for message in messages {
            if let Some(removed) = state.messages.remove(message.queue_offset) {
                state.bytes -= removed.message.body.len();
            }
        }
        Some(state.messages.first_offset().unwrap_or(state.offset_max + 1))
    }

    /// Removes messages that are done, and notes the progress unless the queue was taken away.
    pub(crate) fn finish<'m>(&self, messages: impl IntoIterator<Item = &'m Arc<MessageExt>>, now: Instant) {
        let progress = self.remove(messages, now);
        if let Some(offset) = progress.filter(|_| !self.is_dropped()) {
            self.progress.update(offset, true);
        }
    }

    /// Whether a message is here and not finished.
    pub(crate) fn contains(&self, message: &MessageExt) -> bool {
        self.state.lock().messages.get_mut(message.queue_offset).is_some()
    }

    /// A message was not finished again: its copy here counts one more.
    pub(crate) fn count_reconsume(&self, message: &Arc<MessageExt>) -> Arc<MessageExt> {
        let mut counted = (**message).clone();
        counted.reconsume_times += 1;
        let counted = Arc::new(counted);
        if let Some(cached) = self.state.lock().messages.get_mut(message.queue_offset) {
            cached.message = counted.clone();
        }
        counted
    }

    /// The listener begins with these.
    pub(crate) fn note_start(&self, messages: &[Arc<MessageExt>], now: Instant) {
        let mut state = self.state.lock();
        for message in messages {
            if let Some(cached) = state.messages.get_mut(message.queue_offset) {
                cached.started = Some(now);
            }
        }
    }

    /// The oldest message, if the listener has had it for longer than `timeout`.
    pub(crate) fn overdue(&self, timeout: Duration) -> Option<Arc<MessageExt>> {
        let state = self.state.lock();
        let first = state.messages.first()?;
        first.started.filter(|started| started.elapsed() > timeout).map(|_| first.message.clone())
    }

    /// Orderly: hands out the next messages.
    pub(crate) fn take(&self, count: usize, now: Instant) -> Vec<Arc<MessageExt>> {
        let mut state = self.state.lock();
        state.last_consume = now;
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(cached) = state.messages.pop_first()
        {
            taken.push(cached.message.clone());
            state.in_hand.insert(cached);
        }
        taken
    }

    /// Orderly: everything in hand is done. Returns the progress, if there was anything.
    pub(crate) fn commit(&self) -> Option<i64> {
        let mut state = self.state.lock();
        let next = state.in_hand.last_offset().map(|offset| offset + 1);
        let done: usize = state.in_hand.drain().map(|cached| cached.message.body.len()).sum();
        state.bytes -= done;
        next
    }

    /// Orderly: everything in hand is to be handed out again.
    pub(crate) fn rollback(&self) {
        let State { messages, in_hand, .. } = &mut *self.state.lock();
        for cached in in_hand.drain() {
            messages.insert(cached);
        }
    }

    /// Orderly: these are to be handed out again, as they are now.
    pub(crate) fn consume_again(&self, messages: Vec<Arc<MessageExt>>) {
        let mut state = self.state.lock();
        for message in messages {
            state.in_hand.remove(message.queue_offset);
            state.messages.insert(Cached::waiting(message));
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

    /// How much is here.
    pub(crate) fn amount(&self) -> Amount {
        let state = self.state.lock();
        let span = match (state.messages.first_offset(), state.messages.last_offset()) {
            (Some(first), Some(last)) => last - first,
            _ => 0,
        };
        Amount { messages: state.messages.len() + state.in_hand.len(), bytes: state.bytes, span }
    }

    pub(crate) fn note_pull(&self) {
        self.state.lock().last_pull = Instant::now();
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
    pub(crate) fn info(&self) -> ProcessQueueInfo {
        let state = self.state.lock();
        let ends = |window: &Window| (window.first_offset().unwrap_or(0), window.last_offset().unwrap_or(0));
        let (cached, in_hand) = (ends(&state.messages), ends(&state.in_hand));
        ProcessQueueInfo {
            cached_msg_count: state.messages.len() as i32,
            cached_msg_min_offset: cached.0,
            cached_msg_max_offset: cached.1,
            cached_msg_size_in_mib: (state.bytes >> 20) as i32,
            commit_offset: self.progress.offset().unwrap_or(-1),
            droped: self.is_dropped(),
            last_consume_timestamp: ms_of(state.last_consume),
            last_lock_timestamp: ms_of(state.lock.confirmed),
            last_pull_timestamp: ms_of(state.last_pull),
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

/// A time in the past on the clock of the calendar, ms since 1970.
fn ms_of(time: Instant) -> i64 {
    now_ms() - time.elapsed().as_millis() as i64
}

#[cfg(test)]
mod tests {
    use super::super::stats::ConsumerStats;
    use super::super::testing::message;
    use super::*;

    fn queue_with(offsets: std::ops::Range<i64>) -> (ProcessQueue, Vec<Arc<MessageExt>>) {
        let stats = ConsumerStats::new("me", "g").topic("T");
        let progress = Arc::<Progress>::default();
        let queue =
            ProcessQueue::new(MessageQueue::new("T", "a", 0), progress, stats, CancellationToken::new());
        let messages: Vec<_> = offsets.map(|offset| Arc::new(message("T", offset))).collect();
        queue.put(&messages);
        (queue, messages)
    }

    #[test]
    fn progress_waits_for_the_oldest_unfinished_message() {
        let (queue, messages) = queue_with(10..14);
        assert_eq!(queue.amount(), Amount { messages: 4, bytes: 4, span: 3 });
        let finish = |messages: &[Arc<MessageExt>]| {
            queue.finish(messages, Instant::now());
            queue.progress.offset()
        };
        assert_eq!(finish(&messages[1..3]), Some(10));
        assert_eq!(finish(&messages[..1]), Some(13));
        assert_eq!(finish(&messages[3..]), Some(14));
        assert_eq!((queue.remove(&messages, Instant::now()), queue.amount().bytes), (None, 0));
    }

    #[test]
    fn progress_of_a_queue_that_was_taken_away_means_nothing() {
        let (queue, messages) = queue_with(10..12);
        queue.finish(&messages[..1], Instant::now());
        queue.drop_now();
        queue.finish(&messages[1..], Instant::now());
        assert_eq!(queue.progress.offset(), Some(11));
        assert!(queue.is_dropped() && queue.info().droped);
    }

    #[test]
    fn orderly_messages_are_committed_or_handed_out_again() {
        let (queue, _) = queue_with(5..8);
        let offsets =
            |messages: &[Arc<MessageExt>]| messages.iter().map(|m| m.queue_offset).collect::<Vec<_>>();
        let taken = queue.take(2, Instant::now());
        assert_eq!((offsets(&taken), queue.amount().messages), (vec![5, 6], 3));
        assert_eq!(queue.commit(), Some(7));
        assert_eq!(offsets(&queue.take(2, Instant::now())), [7]);
        queue.rollback();
        let again = queue.take(2, Instant::now());
        assert_eq!(offsets(&again), [7]);
        queue.consume_again(again);
        assert_eq!((queue.commit(), queue.amount().messages), (None, 1));
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
        queue.note_start(&messages[..1], Instant::now());
        tokio::time::advance(timeout * 2).await;
        assert_eq!(queue.overdue(timeout).unwrap().queue_offset, 0);
    }
}
