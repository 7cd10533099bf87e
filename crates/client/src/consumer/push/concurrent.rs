//! Deliveries to a concurrent listener (`docs/spec/07-client.md` 15).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::PushCore;
use super::listener::{Call, ConsumeResult, Delivery, Listener, call};
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

/// Messages of one queue on their way to the listener: an iterator over deliveries.
#[derive(Debug)]
pub(super) struct Chunk {
    source: Source,
    messages: Arc<[Arc<MessageExt>]>,
    /// Which of them are still here.
    rest: Range<usize>,
    /// Most messages in one delivery.
    batch_max: usize,
}

/// How messages came.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Pulled(Arc<ProcessQueue>),
    Popped {
        queue: Arc<PopQueue>,
        /// When the messages become visible to other members of the group.
        returns_at: Instant,
    },
}

impl Chunk {
    pub(super) fn new(source: Source, messages: Arc<[Arc<MessageExt>]>, batch_max: usize) -> Self {
        Self { source, rest: 0..messages.len(), messages, batch_max }
    }

    fn is_dropped(&self) -> bool {
        match &self.source {
            Source::Pulled(queue) => queue.is_dropped(),
            Source::Popped { queue, .. } => queue.is_dropped(),
        }
    }
}

impl Iterator for Chunk {
    type Item = (Source, Delivery);

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.rest.end.min(self.rest.start + self.batch_max);
        let delivery = Delivery::new(self.messages.clone(), self.rest.start..end)?;
        self.rest.start = end;
        Some((self.source.clone(), delivery))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let deliveries = self.rest.len().div_ceil(self.batch_max);
        (deliveries, Some(deliveries))
    }
}

impl ExactSizeIterator for Chunk {}

impl PushCore {
    /// Has messages of a queue delivered as soon as there is a worker for them.
    pub(super) fn deliver(&self, queue: &Arc<ProcessQueue>, messages: Vec<Arc<MessageExt>>) {
        self.waiting.put([Chunk::new(
            Source::Pulled(queue.clone()),
            messages.into(),
            self.settings.batch_max,
        )]);
    }

    /// Nothing that waits for the listener from queues that were taken away reaches it any more.
    pub(super) fn forget_dropped(&self) {
        self.waiting.retain(|chunk| !chunk.is_dropped());
    }

    /// One worker: delivers what waits, until the consumer stops.
    pub(super) async fn work(self: Arc<Self>) {
        let Listener::Concurrent(listener) = &self.listener else { return };
        while let Some((source, delivery)) = self.waiting.next().await {
            match source {
                Source::Pulled(queue) => self.consume_pulled(listener, &queue, &delivery).await,
                Source::Popped { queue, returns_at } => {
                    self.consume_popped(listener, &queue, &delivery, returns_at).await;
                }
            }
        }
    }

    /// Calls the listener and counts what it did. Returns when it had ended, too.
    pub(super) async fn call_listener(
        &self,
        listener: &ConcurrentListener,
        delivery: &Delivery,
        stats: &TopicStats,
        started: Instant,
    ) -> (ConsumeResult, Instant) {
        let traced = self.subscriber.trace_delivery(delivery);
        let result = call(&**listener, delivery).await;
        let ended = Instant::now();
        let has_panicked = result.is_err();
        let result = result.unwrap_or_else(|_| ConsumeResult::reconsume_later());
        let succeeded = result.succeeded_of(delivery.len());
        if let Some(traced) = traced {
            traced.end(succeeded, has_panicked, self.settings.consume_timeout);
        }
        stats.consumed(ended - started, succeeded, delivery.len() - succeeded);
        (result, ended)
    }

    /// Delivers messages and does what the listener says about them.
    async fn consume_pulled(
        self: &Arc<Self>,
        listener: &ConcurrentListener,
        queue: &Arc<ProcessQueue>,
        delivery: &Delivery,
    ) {
        if queue.is_dropped() {
            return;
        }
        let started = Instant::now();
        queue.note_start(delivery, started);
        let (result, ended) = self.call_listener(listener, delivery, &queue.stats, started).await;
        if queue.is_dropped() {
            // Whoever has the queue now gets them again.
            return;
        }
        let (succeeded, failed) = delivery.split_at(result.succeeded_of(delivery.len()));
        queue.finish(succeeded, ended);
        if failed.is_empty() {
            return;
        }
        let staying = self.settle_failed(queue, failed, result).await;
        if !staying.is_empty() {
            self.spawn_consuming(self.clone().deliver_later(queue.clone(), staying));
        }
    }

    /// Delivers messages again after a while that could not be given back.
    async fn deliver_later(self: Arc<Self>, queue: Arc<ProcessQueue>, messages: Vec<Arc<MessageExt>>) {
        let pause = self.subscriber.pause_unless_dropped(&queue, LOCAL_RETRY_DELAY);
        if self.subscriber.stop.run_until_cancelled(pause).await == Some(true) {
            self.deliver(&queue, messages);
        }
    }

    /// Gives back what failed and notes the progress. Returns the messages that stay here, because they could not be given
    /// back: they hold up the progress until they are done.
    async fn settle_failed(
        &self,
        queue: &ProcessQueue,
        failed: &[Arc<MessageExt>],
        result: ConsumeResult,
    ) -> Vec<Arc<MessageExt>> {
        let (mut given_back, mut staying) = (Vec::new(), Vec::new());
        for message in failed {
            if !self.subscriber.is_clustering() {
                tracing::warn!(queue = %queue.queue, id = %message.msg_id(), "not consumed, and broadcast messages do not come again");
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
        queue.finish(&given_back, Instant::now());
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
                    tracing::warn!(queue = %queue.queue, id = %message.msg_id(), "the listener takes too long");
                    queue.finish([&message], Instant::now());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::body::MessageQueue;
    use tokio_util::sync::CancellationToken;

    use super::super::super::stats::ConsumerStats;
    use super::super::super::testing::message;
    use super::*;

    #[test]
    fn what_came_together_is_delivered_in_order_and_in_parts() {
        let stats = ConsumerStats::new("me", "g").topic("T");
        let queue = MessageQueue::new("T", "a", 0);
        let queue = ProcessQueue::new(queue, Arc::default(), stats, CancellationToken::new());
        let messages: Arc<[_]> = (0..5).map(|offset| Arc::new(message("T", offset))).collect();
        let mut chunk = Chunk::new(Source::Pulled(Arc::new(queue)), messages, 2);
        let mut parts = Vec::new();
        while chunk.len() > 0 {
            let left = chunk.len();
            let (_, delivery) = chunk.next().unwrap();
            assert_eq!(chunk.len(), left - 1);
            parts.push(delivery.iter().map(|message| message.queue_offset).collect::<Vec<_>>());
        }
        assert_eq!(parts, [vec![0, 1], vec![2, 3], vec![4]]);
        assert!(chunk.next().is_none());
    }
}
