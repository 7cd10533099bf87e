//! Pulling a queue ahead of the application's polls.

use std::sync::Arc;
use std::time::Duration;

use super::core::LiteCore;
use crate::consumer::process_queue::ProcessQueue;
use crate::consumer::pull::{PullOptions, PullStatus};

/// How long a paused queue waits before it looks again.
const PAUSED_DELAY: Duration = Duration::from_secs(1);
/// How long a queue waits when the application has enough to poll.
const FLOW_CONTROL_DELAY: Duration = Duration::from_millis(50);
/// How long a queue waits for whose beginning its broker can't be asked.
const NO_OFFSET_DELAY: Duration = Duration::from_secs(3);
/// How long the broker may hold a pull.
const BROKER_SUSPEND_MAX: Duration = Duration::from_secs(20);

impl LiteCore {
    /// Pulls a queue until it is taken away or sought.
    pub(super) async fn pull_queue(self: Arc<Self>, queue: Arc<ProcessQueue>, offset: Option<i64>) {
        let pulls = async {
            let mut offset = match offset {
                Some(offset) => offset,
                None => self.first_offset(&queue).await,
            };
            loop {
                self.pull_once(&queue, &mut offset).await;
            }
        };
        let _: Option<()> = queue.run_until_dropped(pulls).await;
    }

    async fn first_offset(&self, queue: &ProcessQueue) -> i64 {
        loop {
            if let Some(offset) = self.subscriber.offsets.get(&queue.queue) {
                return offset;
            }
            match self.subscriber.first_offset(&queue.queue).await {
                Ok(offset) => return offset,
                Err(error) => tracing::warn!(queue = %queue.queue, %error, "where to begin is not known"),
            }
            tokio::time::sleep(NO_OFFSET_DELAY).await;
        }
    }

    async fn pull_once(&self, queue: &Arc<ProcessQueue>, offset: &mut i64) {
        queue.note_pull();
        if self.paused.lock().contains(&queue.queue) {
            return tokio::time::sleep(PAUSED_DELAY).await;
        }
        if self.has_enough(queue) {
            return tokio::time::sleep(FLOW_CONTROL_DELAY).await;
        }
        let options = PullOptions {
            is_lite: true,
            messages_max: self.settings.pull_batch_size,
            bytes_max: i32::MAX,
            suspend: BROKER_SUSPEND_MAX,
            with_subscription: true,
        };
        match self.subscriber.pull(queue, *offset, &options).await {
            Ok(pulled) => {
                if pulled.status == PullStatus::OffsetIllegal {
                    let (from, to) = (*offset, pulled.next_offset);
                    tracing::warn!(queue = %queue.queue, from, to, "the offset was illegal");
                }
                *offset = pulled.next_offset;
                if !pulled.messages.is_empty() {
                    queue.put(&pulled.messages);
                    self.hand_over(queue, pulled.messages);
                }
            }
            Err(error) => {
                tracing::warn!(queue = %queue.queue, %error, "pull failed");
                tokio::time::sleep(self.subscriber.delay_after(&error)).await;
            }
        }
    }

    fn has_enough(&self, queue: &ProcessQueue) -> bool {
        let (settings, amount) = (&self.settings, queue.amount());
        self.waiting() > settings.threshold_all
            || amount.messages > settings.threshold_messages
            || amount.bytes >> 20 > settings.threshold_mib
            || amount.span > settings.span_max
    }
}
