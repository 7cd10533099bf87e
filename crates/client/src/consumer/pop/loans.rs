//! What a POP consumer's application has received and not acknowledged, for administrators and metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::queue::PopQueue;
use crate::message::MessageExt;

/// How often loans are ended whose time is over.
const LOOK_PERIOD: Duration = Duration::from_secs(10);

/// Messages by their receipts.
#[derive(Debug, Default)]
pub(super) struct Loans {
    by_receipt: Mutex<HashMap<String, Loan>>,
}

/// A message that the application has.
#[derive(Debug)]
struct Loan {
    queue: Arc<PopQueue>,
    bytes: usize,
    since: Instant,
    until: Instant,
}

impl Loan {
    fn end(&self, succeeded: bool) {
        self.queue.let_go(1, self.bytes);
        let counts = if succeeded { (1, 0) } else { (0, 1) };
        self.queue.stats.consumed(self.since.elapsed(), counts.0, counts.1);
    }
}

impl Loans {
    /// The application gets these messages for some time.
    pub(super) fn begin(&self, queue: &Arc<PopQueue>, messages: &[MessageExt], time: Duration) {
        let since = Instant::now();
        let mut by_receipt = self.by_receipt.lock();
        for message in messages {
            let Some(receipt) = message.receipt_handle() else { continue };
            let (queue, bytes) = (queue.clone(), message.body.len());
            queue.take_in(1, bytes);
            by_receipt.insert(receipt.to_owned(), Loan { queue, bytes, since, until: since + time });
        }
    }

    /// A message was acknowledged, or became a dead letter.
    pub(super) fn end(&self, message: &MessageExt, succeeded: bool) {
        let ended = message.receipt_handle().and_then(|receipt| self.by_receipt.lock().remove(receipt));
        if let Some(loan) = ended {
            loan.end(succeeded);
        }
    }

    /// The application has a message for this time from now on, under another receipt than before.
    pub(super) fn prolong(&self, receipt_before: &str, message: &MessageExt, time: Duration) {
        let Some(receipt) = message.receipt_handle() else { return };
        let mut by_receipt = self.by_receipt.lock();
        if let Some(loan) = by_receipt.remove(receipt_before) {
            by_receipt.insert(receipt.to_owned(), Loan { until: Instant::now() + time, ..loan });
        }
    }

    /// Messages whose time is over come again: they were not consumed.
    pub(super) fn end_overdue(&self) {
        let now = Instant::now();
        self.by_receipt.lock().retain(|_, loan| {
            let goes_on = now < loan.until;
            if !goes_on {
                loan.end(false);
            }
            goes_on
        });
    }

    /// Ends loans from time to time.
    pub(super) async fn keep_ended(&self) {
        loop {
            sleep(LOOK_PERIOD).await;
            self.end_overdue();
        }
    }
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::body::MessageQueue;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::consumer::stats::ConsumerStats;
    use crate::consumer::testing::message;
    use crate::message::properties as names;

    fn received(receipt: &str) -> MessageExt {
        let mut message = message("T", 0);
        message.properties.insert(names::POP_CK, receipt);
        message
    }

    #[tokio::test(start_paused = true)]
    async fn a_loan_ends_by_an_acknowledgement_or_when_its_time_is_over() {
        let stats = ConsumerStats::new("me", "g").topic("T");
        let queue = MessageQueue::new("T", "a", -1);
        let queue = Arc::new(PopQueue::new(queue, stats, CancellationToken::new()));
        let (loans, second) = (Loans::default(), Duration::from_secs(1));
        let messages = ["done", "slow", "forgotten"].map(received);
        loans.begin(&queue, &messages, 10 * second);
        assert_eq!((queue.count(), queue.bytes()), (3, 3));
        loans.end(&messages[0], true);
        loans.end(&messages[0], true);
        assert_eq!(queue.count(), 2, "once is enough");
        loans.prolong("slow", &received("slower"), 30 * second);
        tokio::time::advance(10 * second).await;
        loans.end_overdue();
        assert_eq!(queue.count(), 1);
        loans.end(&received("slower"), false);
        assert_eq!((queue.count(), queue.bytes()), (0, 0));
        let status = queue.stats.status();
        assert_eq!((status.consume_ok_tps, status.consume_failed_msgs), (0.1, 2));
    }
}
