//! What a consumer pops from, and how many messages it has from there (`docs/spec/07-client.md` 17).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{MessageQueue, PopProcessQueueInfo};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::consumer::stats::TopicStats;
use crate::consumer::subscription::now_ms;
use crate::message::MessageExt;

/// Without a pop for so long, an assignment is given up: its task must be stuck.
const POP_IDLE_MAX: Duration = Duration::from_secs(120);

/// A queue, or all queues of a broker (number -1), that this consumer pops from, from the moment a broker assigns it until
/// it assigns something else.
#[derive(Debug)]
pub(crate) struct PopQueue {
    pub(crate) queue: MessageQueue,
    /// Cancelled when it is taken away: nothing more is popped, and what waits for the listener is left to others.
    pub(crate) dropped: CancellationToken,
    /// Counts of the topic.
    pub(crate) stats: Arc<TopicStats>,
    last_pop_ms: AtomicI64,
    /// Messages that were popped and not settled.
    count: AtomicUsize,
    /// Bytes of their bodies.
    bytes: AtomicUsize,
    consumed: Mutex<Consumed>,
}

/// Messages that are to be acknowledged, together as soon as the acknowledgement before them is answered.
#[derive(Debug, Default)]
struct Consumed {
    messages: Vec<Arc<MessageExt>>,
    /// A task acknowledges them.
    is_taken_care_of: bool,
}

impl PopQueue {
    pub(crate) fn new(queue: MessageQueue, stats: Arc<TopicStats>, dropped: CancellationToken) -> Self {
        Self {
            queue,
            dropped,
            stats,
            last_pop_ms: AtomicI64::new(now_ms()),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            consumed: Mutex::default(),
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.is_cancelled()
    }

    pub(crate) fn note_pop(&self) {
        self.last_pop_ms.store(now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn is_pop_expired(&self) -> bool {
        now_ms() - self.last_pop_ms.load(Ordering::Relaxed) > POP_IDLE_MAX.as_millis() as i64
    }

    /// This consumer has got so many messages, with so many bytes in their bodies.
    pub(crate) fn take_in(&self, count: usize, bytes: usize) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many messages are no longer this consumer's.
    pub(crate) fn let_go(&self, count: usize, bytes: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Messages that were popped and not settled.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes of their bodies.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// These are to be acknowledged. True: the caller has to see to it that [`take_consumed`](Self::take_consumed) is
    /// called until it returns nothing.
    pub(crate) fn put_consumed(&self, messages: &[Arc<MessageExt>]) -> bool {
        let mut consumed = self.consumed.lock();
        consumed.messages.extend_from_slice(messages);
        !std::mem::replace(&mut consumed.is_taken_care_of, true)
    }

    /// What is to be acknowledged now.
    pub(crate) fn take_consumed(&self) -> Vec<Arc<MessageExt>> {
        let mut consumed = self.consumed.lock();
        consumed.is_taken_care_of = !consumed.messages.is_empty();
        std::mem::take(&mut consumed.messages)
    }

    /// For administrators.
    pub(crate) fn info(&self) -> PopProcessQueueInfo {
        PopProcessQueueInfo {
            droped: self.is_dropped(),
            last_pop_timestamp: self.last_pop_ms.load(Ordering::Relaxed),
            wait_ack_count: self.count() as i32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::stats::ConsumerStats;
    use crate::consumer::testing::message;

    #[test]
    fn one_task_acknowledges_what_comes_meanwhile() {
        let stats = ConsumerStats::new("me", "g").topic("T");
        let queue = PopQueue::new(MessageQueue::new("T", "a", -1), stats, CancellationToken::new());
        let messages: Vec<_> = (0..4).map(|offset| Arc::new(message("T", offset))).collect();
        queue.take_in(4, 4);
        assert_eq!((queue.count(), queue.bytes(), queue.info().wait_ack_count), (4, 4, 4));
        assert!(queue.put_consumed(&messages[..1]), "somebody has to begin");
        assert!(!queue.put_consumed(&messages[1..2]));
        assert_eq!(queue.take_consumed().len(), 2);
        assert!(!queue.put_consumed(&messages[2..3]), "it is still being done");
        assert_eq!(queue.take_consumed().len(), 1);
        assert!(queue.take_consumed().is_empty());
        assert!(queue.put_consumed(&messages[3..]), "it has ended");
        queue.let_go(4, 4);
        assert_eq!((queue.count(), queue.bytes()), (0, 0));
    }
}
