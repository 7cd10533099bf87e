//! Deliveries to a concurrent listener (`docs/spec/07-client.md` 15).

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::PushCore;
use super::listener::{Call, ConsumeResult, Listener, call};
use crate::consumer::pop::PopQueue;
use crate::consumer::process_queue::ProcessQueue;
use crate::consumer::stats::TopicStats;
use crate::message::MessageExt;

/// How long messages stay here that could not even be given back.
const LOCAL_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Messages that are given back in one look at a queue because the listener has had them for too long.
const OVERDUE_MAX: usize = 16;
/// Delay level of those.
const OVERDUE_DELAY_LEVEL: i32 = 3;
/// Tries before a message becomes a dead letter.
const RECONSUME_TIMES_MAX: i32 = 16;

/// What a concurrent consumer calls.
pub(super) type ConcurrentListener = Arc<Call<ConsumeResult>>;

/// Messages on their way to the listener, all from one queue.
#[derive(Debug)]
pub(super) enum Chunk {
    Pulled {
        queue: Arc<ProcessQueue>,
        messages: Part,
    },
    Popped {
        queue: Arc<PopQueue>,
        messages: Part,
        /// When the messages become visible to other members of the group.
        returns_at: Instant,
    },
}

/// Some of the messages that came together: whoever has a part shares the list.
#[derive(Debug)]
pub(super) struct Part {
    all: Arc<[Arc<MessageExt>]>,
    range: Range<usize>,
}

impl Part {
    /// The list in parts of at most this size.
    pub(super) fn parts_of(messages: &[Arc<MessageExt>], size: usize) -> impl Iterator<Item = Self> {
        let all: Arc<[_]> = messages.into();
        let starts = (0..all.len()).step_by(size);
        starts.map(move |start| Self { range: start..all.len().min(start + size), all: all.clone() })
    }
}

impl Deref for Part {
    type Target = [Arc<MessageExt>];

    fn deref(&self) -> &Self::Target {
        &self.all[self.range.clone()]
    }
}

impl Chunk {
    fn is_dropped(&self) -> bool {
        match self {
            Self::Pulled { queue, .. } => queue.is_dropped(),
            Self::Popped { queue, .. } => queue.is_dropped(),
        }
    }
}

impl PushCore {
    /// Has messages of a queue delivered as soon as there is a worker for them.
    pub(super) fn deliver(&self, queue: &Arc<ProcessQueue>, messages: &[Arc<MessageExt>]) {
        let parts = Part::parts_of(messages, self.settings.batch_max);
        self.waiting.put(parts.map(|messages| Chunk::Pulled { queue: queue.clone(), messages }));
    }

    /// Nothing that waits for the listener from queues that were taken away reaches it any more.
    pub(super) fn forget_dropped(&self) {
        self.waiting.retain(|chunk| !chunk.is_dropped());
    }

    /// One worker: delivers what waits, until the consumer stops.
    pub(super) async fn work(self: Arc<Self>) {
        let Listener::Concurrent(listener) = &self.listener else { return };
        while let Some(chunk) = self.waiting.next().await {
            match chunk {
                Chunk::Pulled { queue, messages } => {
                    self.consume_pulled(listener, &queue, &messages).await;
                }
                Chunk::Popped { queue, messages, returns_at } => {
                    self.consume_popped(listener, &queue, &messages, returns_at).await;
                }
            }
        }
    }

    /// Calls the listener and counts what it did.
    pub(super) async fn call_listener(
        &self,
        listener: &ConcurrentListener,
        messages: &[Arc<MessageExt>],
        stats: &TopicStats,
    ) -> ConsumeResult {
        let traced = self.subscriber.trace_delivery(messages);
        let started = Instant::now();
        let result = call(&**listener, messages).await;
        let has_panicked = result.is_err();
        let result = result.unwrap_or_else(|_| ConsumeResult::reconsume_later());
        let succeeded = result.succeeded_of(messages.len());
        if let Some(traced) = traced {
            traced.end(succeeded, has_panicked, self.settings.consume_timeout);
        }
        stats.consumed(started.elapsed(), succeeded, messages.len() - succeeded);
        result
    }

    /// Delivers messages and does what the listener says about them.
    async fn consume_pulled(
        self: &Arc<Self>,
        listener: &ConcurrentListener,
        queue: &Arc<ProcessQueue>,
        messages: &[Arc<MessageExt>],
    ) {
        if queue.is_dropped() {
            return;
        }
        queue.note_start(messages);
        let result = self.call_listener(listener, messages, &queue.stats).await;
        if queue.is_dropped() {
            // Whoever has the queue now gets them again.
            return;
        }
        let staying = self.settle(queue, messages, result).await;
        if !staying.is_empty() {
            self.spawn_consuming(self.clone().deliver_later(queue.clone(), staying));
        }
    }

    /// Delivers messages again after a while that could not be given back.
    async fn deliver_later(self: Arc<Self>, queue: Arc<ProcessQueue>, messages: Vec<Arc<MessageExt>>) {
        let pause = self.subscriber.pause_unless_dropped(&queue, LOCAL_RETRY_DELAY);
        if self.subscriber.stop.run_until_cancelled(pause).await == Some(true) {
            self.deliver(&queue, &messages);
        }
    }

    /// Gives back what failed and notes the progress. Returns the messages that stay here, because they could not be given
    /// back: they hold up the progress until they are done.
    async fn settle(
        &self,
        queue: &ProcessQueue,
        messages: &[Arc<MessageExt>],
        result: ConsumeResult,
    ) -> Vec<Arc<MessageExt>> {
        let (succeeded, failed) = messages.split_at(result.succeeded_of(messages.len()));
        let (mut given_back, mut staying) = (Vec::new(), Vec::new());
        for message in failed {
            if !self.subscriber.is_clustering() {
                tracing::warn!(queue = %queue.queue, id = message.msg_id, "not consumed, and broadcast messages do not come again");
                given_back.push(message.clone());
            } else if !queue.contains(message)
                || self.send_back(message, result.next_delay_level(), self.reconsume_times_max()).await
            {
                // Or it was given back already, because it took too long.
                given_back.push(message.clone());
            } else {
                staying.push(queue.count_reconsume(message));
            }
        }
        let progress = queue.remove(succeeded.iter().chain(&given_back));
        if let Some(offset) = progress.filter(|_| !queue.is_dropped()) {
            self.subscriber.offsets.update(&queue.queue, offset, true);
        }
        staying
    }

    pub(super) fn reconsume_times_max(&self) -> i32 {
        self.settings.reconsume_times_max.unwrap_or(RECONSUME_TIMES_MAX)
    }

    /// Gives messages back that the listener has had for too long, so that they do not hold up the progress for ever.
    pub(super) async fn give_back_overdue(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.settings.consume_timeout).await;
            for queue in self.subscriber.process_queues() {
                for _ in 0..OVERDUE_MAX {
                    let Some(message) = queue.overdue(self.settings.consume_timeout) else { break };
                    let given_back =
                        self.send_back(&message, OVERDUE_DELAY_LEVEL, self.reconsume_times_max()).await;
                    if !given_back {
                        break;
                    }
                    tracing::warn!(queue = %queue.queue, id = message.msg_id, "the listener takes too long");
                    if let Some(offset) = queue.remove([&message]) {
                        self.subscriber.offsets.update(&queue.queue, offset, true);
                    }
                }
            }
        }
    }
}
