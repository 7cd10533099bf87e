//! What becomes of popped messages that the listener has had (`docs/spec/07-client.md` 17).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::concurrent::ConcurrentListener;
use super::core::PushCore;
use super::listener::{ConsumeResult, Delivery};
use crate::consumer::pop::PopQueue;
use crate::message::MessageExt;

/// Seconds after which messages come again, by delay level.
const DELAYS: [u64; 16] = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200];

impl PushCore {
    /// Delivers messages and does what the listener says about them, unless they are somebody else's by then.
    pub(super) async fn consume_popped(
        self: &Arc<Self>,
        listener: &ConcurrentListener,
        queue: &Arc<PopQueue>,
        delivery: &Delivery,
        returns_at: Instant,
    ) {
        let started = Instant::now();
        if queue.is_dropped() || started >= returns_at {
            // They come again, to whoever is there then.
            return let_go(queue, delivery);
        }
        let (result, ended) = self.call_listener(listener, delivery, &queue.stats, started).await;
        if ended >= returns_at {
            let group = &self.subscriber.group;
            tracing::warn!(group, id = %delivery[0].msg_id(), "the listener took too long, the messages come again");
            return let_go(queue, delivery);
        }
        let (done, failed) = delivery.split_at(result.succeeded_of(delivery.len()));
        if !done.is_empty() && queue.put_consumed(done) {
            self.spawn_consuming(self.clone().acknowledge_consumed(queue.clone()));
        }
        for message in failed {
            self.put_off(message, result).await;
        }
        let_go(queue, failed);
    }

    /// Acknowledges what was consumed, and what is consumed meanwhile.
    async fn acknowledge_consumed(self: Arc<Self>, queue: Arc<PopQueue>) {
        loop {
            let done = queue.take_consumed();
            let acknowledged = match &done[..] {
                [] => return,
                [message] => self.subscriber.ack(message).await,
                messages => self.subscriber.ack_all(messages).await,
            };
            if let Err(error) = acknowledged {
                let group = &self.subscriber.group;
                tracing::warn!(group, queue = %queue.queue, %error, "not acknowledged, some messages come again");
            }
            let_go(&queue, &done);
        }
    }

    /// Has a message that was not consumed come again later, or makes it a dead letter.
    async fn put_off(&self, message: &MessageExt, result: ConsumeResult) {
        let level = result.next_delay_level();
        let is_last = level < 0 || message.reconsume_times >= self.reconsume_times_max();
        if is_last {
            match self.subscriber.bury(message).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(id = %message.msg_id(), %error, "it did not become a dead letter, and comes again");
                }
            }
        }
        let delay = delay_of(if level > 0 { level } else { message.reconsume_times });
        let mut message = message.clone();
        if let Err(error) = self.subscriber.change_invisible_time(&mut message, delay).await {
            tracing::warn!(id = %message.msg_id(), %error, "it comes again at another time than it should");
        }
    }
}

fn let_go(queue: &PopQueue, messages: &[Arc<MessageExt>]) {
    queue.let_go(messages.len(), bytes_of(messages));
}

/// Bytes of the messages' bodies.
pub(super) fn bytes_of(messages: &[Arc<MessageExt>]) -> usize {
    messages.iter().map(|message| message.body.len()).sum()
}

fn delay_of(level: i32) -> Duration {
    let level = usize::try_from(level).unwrap_or(0);
    Duration::from_secs(DELAYS[level.min(DELAYS.len() - 1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_with_the_level_up_to_two_hours() {
        let seconds = [-1, 0, 1, 11, 15, 16, i32::MAX].map(|level| delay_of(level).as_secs());
        assert_eq!(seconds, [10, 10, 30, 600, 7200, 7200, 7200]);
    }
}
