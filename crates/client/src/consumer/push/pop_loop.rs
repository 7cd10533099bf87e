//! Bringing messages that brokers lend to the listener (`docs/spec/07-client.md` 17).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::concurrent::{Chunk, Source};
use super::core::PushCore;
use super::popped::bytes_of;
use super::pull_loop::{FLOW_CONTROL_DELAY, SUSPENDED_DELAY};
use crate::consumer::pop::{PopOptions, PopQueue, Popped};
use crate::message::MessageExt;

/// How long the broker may hold a pop.
const BROKER_POLL_MAX: Duration = Duration::from_secs(15);
/// How soon a broker is asked again that holds too many pops already.
const POLLING_FULL_DELAY: Duration = Duration::from_secs(1);
/// A broker whose clock is ahead of ours may take requests for outdated and not wait: two pops are at least so far apart.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(100);

impl PushCore {
    /// Pops until what is popped from is assigned to others.
    pub(super) async fn pop_queue(self: Arc<Self>, queue: Arc<PopQueue>) {
        queue.dropped.run_until_cancelled(self.pop_on(&queue)).await;
        self.forget_dropped();
    }

    async fn pop_on(&self, queue: &Arc<PopQueue>) {
        let subscriber = &self.subscriber;
        let options = PopOptions {
            messages_max: self.settings.pop_batch_size,
            invisible_time: self.settings.pop_invisible_time,
            poll: BROKER_POLL_MAX,
            attempt: None,
        };
        loop {
            queue.note_pop();
            if let Some(delay) = self.delay_before_pop(queue) {
                tokio::time::sleep(delay).await;
                continue;
            }
            let started = Instant::now();
            match subscriber.pop(&queue.queue, &options).await {
                Ok(Popped::Found(messages)) => {
                    let returns_at = Instant::now() + options.invisible_time;
                    let wanted = subscriber.sort_out(messages, self.reconsume_times_max()).await;
                    self.deliver_popped(queue, wanted.into_iter().map(Arc::new).collect(), returns_at);
                    if !self.settings.pull_interval.is_zero() {
                        tokio::time::sleep(self.settings.pull_interval).await;
                    }
                }
                Ok(Popped::Nothing) => tokio::time::sleep_until(started + POLL_INTERVAL_MIN).await,
                Ok(Popped::Full) => tokio::time::sleep(POLLING_FULL_DELAY).await,
                Err(error) => {
                    tracing::warn!(group = subscriber.group, queue = %queue.queue, %error, "pop failed");
                    tokio::time::sleep(subscriber.delay_after(&error)).await;
                }
            }
        }
    }

    fn deliver_popped(&self, queue: &Arc<PopQueue>, messages: Vec<Arc<MessageExt>>, returns_at: Instant) {
        queue.take_in(messages.len(), bytes_of(&messages));
        // All queues of a broker may be popped from at once, but a delivery is from one.
        let of_one_queue = messages.chunk_by(|left, right| left.queue == right.queue);
        self.waiting.put(of_one_queue.map(|messages| {
            let source = Source::Popped { queue: queue.clone(), returns_at };
            Chunk::new(source, messages.into(), self.settings.batch_max)
        }));
    }

    /// How long the next pop has to wait; `None` if not at all.
    fn delay_before_pop(&self, queue: &PopQueue) -> Option<Duration> {
        if self.is_suspended() {
            return Some(SUSPENDED_DELAY);
        }
        (queue.count() > self.settings.pop_threshold).then_some(FLOW_CONTROL_DELAY)
    }
}
