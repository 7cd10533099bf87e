//! Deliveries to an orderly listener (`docs/spec/07-client.md` 16).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::PushCore;
use super::listener::{ConsumeOrderlyResult, Delivery, Listener, call};
use crate::consumer::process_queue::ProcessQueue;
use crate::message::MessageExt;

/// How long a queue waits whose lock this client does not have.
const NOT_LOCKED_DELAY: Duration = Duration::from_secs(3);
/// How long a queue may wait because its listener wants so.
const SUSPEND_MIN: Duration = Duration::from_millis(10);
const SUSPEND_MAX: Duration = Duration::from_secs(30);

impl PushCore {
    /// Delivers the messages of a queue one after another, until it is taken away.
    pub(super) async fn consume_in_order(self: Arc<Self>, queue: Arc<ProcessQueue>) {
        while !queue.is_dropped() && !self.subscriber.stop.is_cancelled() {
            let wait = if self.subscriber.is_locking
                && !queue.is_locked()
                && !self.subscriber.lock_one(&queue.queue).await
            {
                Some(NOT_LOCKED_DELAY)
            } else {
                self.deliver_next(&queue).await
            };
            let waiting = async {
                match wait {
                    Some(time) => tokio::time::sleep(time).await,
                    // Messages come, or a lock.
                    None if queue.has_waiting() => {}
                    None => queue.arrived.notified().await,
                }
            };
            tokio::select! {
                () = waiting => {}
                () = queue.dropped() => {}
                () = self.subscriber.stop.cancelled() => {}
            }
        }
    }

    /// Delivers the next messages if there are any, and returns how long the queue has to wait then.
    async fn deliver_next(&self, queue: &ProcessQueue) -> Option<Duration> {
        let Listener::Orderly(listener) = &self.listener else { return None };
        let _place = tokio::select! {
            place = self.places.acquire() => place,
            () = self.subscriber.stop.cancelled() => return None,
        };
        // A rebalance does not give the queue away as long as this is held.
        let _consuming = queue.consuming.lock().await;
        if queue.is_dropped() {
            return None;
        }
        let started = Instant::now();
        let messages: Arc<[_]> = queue.take(self.settings.batch_max, started).into();
        let delivery = Delivery::new(messages.clone(), 0..messages.len())?;
        let traced = self.subscriber.trace_delivery(&messages);
        let result = call(&**listener, &delivery).await;
        let has_panicked = result.is_err();
        let result = result.unwrap_or(ConsumeOrderlyResult::SuspendCurrentQueue(None));
        let is_done = matches!(result, ConsumeOrderlyResult::Success | ConsumeOrderlyResult::Commit);
        let (succeeded, failed) = if is_done { (messages.len(), 0) } else { (0, messages.len()) };
        queue.stats.consumed(started.elapsed(), succeeded, failed);
        if let Some(traced) = traced {
            traced.end(succeeded, has_panicked, self.settings.consume_timeout);
        }
        let is_ours = !queue.is_dropped() || (self.subscriber.is_locking && queue.is_locked());
        if !is_ours {
            // Whoever has the queue now gets them again.
            return None;
        }
        self.settle_in_order(queue, &messages, result).await
    }

    async fn settle_in_order(
        &self,
        queue: &ProcessQueue,
        messages: &[Arc<MessageExt>],
        result: ConsumeOrderlyResult,
    ) -> Option<Duration> {
        let auto_commit = self.settings.auto_commit;
        match result {
            ConsumeOrderlyResult::Success if !auto_commit => None,
            ConsumeOrderlyResult::Rollback if !auto_commit => {
                queue.rollback();
                Some(self.suspend_time(None))
            }
            ConsumeOrderlyResult::SuspendCurrentQueue(time) => match self.to_be_retried(messages).await {
                Some(messages) => {
                    queue.consume_again(messages);
                    Some(self.suspend_time(time))
                }
                None if auto_commit => {
                    commit(queue);
                    None
                }
                None => None,
            },
            ConsumeOrderlyResult::Success | ConsumeOrderlyResult::Commit | ConsumeOrderlyResult::Rollback => {
                commit(queue);
                None
            }
        }
    }

    fn suspend_time(&self, wanted: Option<Duration>) -> Duration {
        wanted.unwrap_or(self.settings.suspend_time).clamp(SUSPEND_MIN, SUSPEND_MAX)
    }

    /// The messages with their counts raised, if they may be tried again. Those that were tried too often become dead
    /// letters; when that is so for all of them, there is nothing to try.
    async fn to_be_retried(&self, messages: &[Arc<MessageExt>]) -> Option<Vec<Arc<MessageExt>>> {
        let times_max = self.settings.reconsume_times_max.unwrap_or(i32::MAX);
        let mut again = Vec::with_capacity(messages.len());
        let mut any = false;
        for message in messages {
            if message.reconsume_times < times_max || !self.send_to_retry_topic(message, times_max).await {
                any = true;
            }
            let mut counted = (**message).clone();
            counted.reconsume_times = counted.reconsume_times.saturating_add(1);
            again.push(Arc::new(counted));
        }
        any.then_some(again)
    }
}

fn commit(queue: &ProcessQueue) {
    if let Some(offset) = queue.commit() {
        queue.progress.update(offset, false);
    }
}
