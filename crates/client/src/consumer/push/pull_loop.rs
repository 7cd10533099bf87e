//! Bringing messages of one queue to the listener (`docs/spec/07-client.md` 12.2).

use std::sync::Arc;
use std::time::Duration;

use super::core::PushCore;
use super::listener::Listener;
use crate::consumer::process_queue::ProcessQueue;
use crate::consumer::pull::{PullOptions, PullStatus};
use crate::consumer::rebalance::Assigned;

/// How long a suspended consumer waits before it looks again.
pub(super) const SUSPENDED_DELAY: Duration = Duration::from_secs(1);
/// How long a queue waits when the listener has enough of it.
pub(super) const FLOW_CONTROL_DELAY: Duration = Duration::from_millis(50);
/// How long the broker may hold a pull.
const BROKER_SUSPEND_MAX: Duration = Duration::from_secs(15);
/// Most bytes that one pull brings.
const PULL_BYTES_MAX: i32 = 262_144;

/// Why the pulls of a queue ended, other than that it was taken away.
struct OffsetIllegal {
    /// Where the broker says the queue is to be read.
    next_offset: i64,
}

impl PushCore {
    /// Pulls a queue until it is taken away.
    pub(super) async fn pull_queue(self: Arc<Self>, assigned: Assigned) {
        let Assigned { queue, offset } = assigned;
        let pulls = self.pull_until_illegal(&queue, offset);
        let Some(OffsetIllegal { next_offset }) = queue.run_until_dropped(pulls).await else {
            return self.forget_dropped();
        };
        let subscriber = &self.subscriber;
        tracing::warn!(group = subscriber.group, queue = %queue.queue, next_offset, "the offset was illegal");
        // The next rebalance takes the queue again, and begins where the broker says.
        subscriber.offsets.update_and_freeze(&queue.queue, next_offset);
        subscriber.give_up(&queue).await;
        self.forget_dropped();
        subscriber.rebalance_now.notify_one();
    }

    async fn pull_until_illegal(
        self: &Arc<Self>,
        queue: &Arc<ProcessQueue>,
        mut offset: i64,
    ) -> OffsetIllegal {
        let subscriber = &self.subscriber;
        let options = PullOptions {
            is_lite: false,
            messages_max: self.settings.pull_batch_size,
            bytes_max: PULL_BYTES_MAX,
            suspend: BROKER_SUSPEND_MAX,
            with_subscription: self.settings.post_subscription,
        };
        loop {
            queue.note_pull();
            if let Some(delay) = self.delay_before_pull(queue) {
                tokio::time::sleep(delay).await;
                continue;
            }
            match subscriber.pull(queue, offset, &options).await {
                Ok(pulled) => {
                    offset = pulled.next_offset;
                    match pulled.status {
                        PullStatus::Found => {
                            queue.put(&pulled.messages);
                            if matches!(self.listener, Listener::Concurrent(_)) {
                                self.deliver(queue, pulled.messages);
                            }
                            if !self.settings.pull_interval.is_zero() {
                                tokio::time::sleep(self.settings.pull_interval).await;
                            }
                        }
                        PullStatus::NotFound if queue.is_empty() => {
                            // Nothing is unfinished, so everything that did not match is done.
                            queue.progress.update(offset, true);
                        }
                        PullStatus::NotFound => {}
                        PullStatus::OffsetIllegal => return OffsetIllegal { next_offset: offset },
                    }
                }
                Err(error) => {
                    tracing::warn!(group = subscriber.group, queue = %queue.queue, %error, "pull failed");
                    tokio::time::sleep(subscriber.delay_after(&error)).await;
                }
            }
        }
    }

    /// How long the next pull has to wait; `None` if not at all.
    fn delay_before_pull(&self, queue: &ProcessQueue) -> Option<Duration> {
        if self.is_suspended() {
            return Some(SUSPENDED_DELAY);
        }
        if self.subscriber.is_locking && !queue.is_locked() {
            return Some(self.subscriber.instance.settings.pull_delay_when_exception);
        }
        let is_ordered = matches!(self.listener, Listener::Orderly(_));
        let (messages_max, mib_max) = self.thresholds();
        let amount = queue.amount();
        let has_enough = amount.messages > messages_max
            || amount.bytes >> 20 > mib_max
            || (!is_ordered && amount.span > self.settings.span_max);
        has_enough.then_some(FLOW_CONTROL_DELAY)
    }

    /// Most messages and MiB of one queue: those for topics are divided among all queues that this consumer has.
    fn thresholds(&self) -> (usize, usize) {
        let settings = &self.settings;
        let share = |of_topic: Option<usize>, of_queue: usize| match of_topic {
            Some(of_topic) => (of_topic / self.subscriber.queue_count().max(1)).max(1),
            None => of_queue,
        };
        (
            share(settings.topic_threshold_messages, settings.threshold_messages),
            share(settings.topic_threshold_mib, settings.threshold_mib),
        )
    }
}
