//! One consume queue (`docs/spec/02-store.md` §6).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering, fence};

/// Handle of one queue of a topic. There is exactly one per queue for the life of the store, so it may be cached for
/// ever; deleting the topic resets it in place.
#[derive(Debug)]
pub struct ConsumeQueue {
    topic: Arc<str>,
    queue_id: i32,
    next_offset: AtomicI64,
    max_offset: AtomicI64,
    min_offset: AtomicI64,
    watchers: AtomicU32,
}

impl ConsumeQueue {
    /// Topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Queue id.
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }

    /// First readable offset. Equal to [`max_offset`](Self::max_offset) when nothing is readable.
    pub fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    /// Offset behind the last readable message.
    pub fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// The offset that the next appended message gets ("uncommitted" max offset).
    pub fn next_offset(&self) -> i64 {
        self.next_offset.load(Ordering::Acquire)
    }

    /// Asks the dispatcher to report messages of this queue to the
    /// [`ArrivalListener`](crate::ArrivalListener) as long as the guard lives.
    ///
    /// After this returns, check [`max_offset`](Self::max_offset) again: a message that came before is not reported, any
    /// later one is.
    pub fn watch(self: &Arc<Self>) -> QueueWatch {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        QueueWatch { queue: Arc::clone(self) }
    }
}

/// Keeps a queue watched, see [`ConsumeQueue::watch`].
#[derive(Debug)]
pub struct QueueWatch {
    queue: Arc<ConsumeQueue>,
}

impl QueueWatch {
    /// The watched queue.
    pub fn queue(&self) -> &Arc<ConsumeQueue> {
        &self.queue
    }
}

impl Drop for QueueWatch {
    fn drop(&mut self) {
        self.queue.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}
