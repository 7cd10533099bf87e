//! The inside of a lite pull consumer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo, MessageQueue};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::consumer::process_queue::ProcessQueue;
use crate::consumer::rebalance::Given;
use crate::consumer::subscriber::Subscriber;
use crate::error::Error;
use crate::instance::member::{BoxFuture, ConsumerMember};
use crate::message::MessageExt;

/// Settings of a lite pull consumer that do not change.
#[derive(Clone, Debug)]
pub(super) struct LiteSettings {
    pub(super) auto_commit: bool,
    pub(super) auto_commit_interval: Duration,
    pub(super) pull_batch_size: usize,
    pub(super) threshold_all: usize,
    pub(super) threshold_messages: usize,
    pub(super) threshold_mib: usize,
    pub(super) span_max: i64,
}

impl Default for LiteSettings {
    fn default() -> Self {
        Self {
            auto_commit: true,
            auto_commit_interval: Duration::from_secs(5),
            pull_batch_size: 10,
            threshold_all: 10_000,
            threshold_messages: 1000,
            threshold_mib: 100,
            span_max: 2000,
        }
    }
}

/// Who decides which queues are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Undecided,
    Subscribed,
    Assigned,
}

/// What one pull brought.
struct Batch {
    queue: Arc<ProcessQueue>,
    messages: Vec<Arc<MessageExt>>,
}

/// The inside of a [`LitePullConsumer`](super::LitePullConsumer).
pub(crate) struct LiteCore {
    pub(super) subscriber: Arc<Subscriber>,
    pub(super) settings: LiteSettings,
    pub(super) paused: Mutex<BTreeSet<MessageQueue>>,
    mode: Mutex<Mode>,
    batches: mpsc::UnboundedSender<Batch>,
    /// Held by the poll that waits.
    arrived: tokio::sync::Mutex<mpsc::UnboundedReceiver<Batch>>,
    /// Messages in `batches`.
    waiting: AtomicUsize,
    next_commit: Mutex<Instant>,
}

impl std::fmt::Debug for LiteCore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "LiteCore({:?}, {:?})", self.subscriber.group, self.settings)
    }
}

impl LiteCore {
    pub(super) fn new(subscriber: Arc<Subscriber>, settings: LiteSettings) -> Self {
        let (batches, arrived) = mpsc::unbounded_channel();
        Self {
            subscriber,
            paused: Mutex::default(),
            mode: Mutex::new(Mode::Undecided),
            batches,
            arrived: tokio::sync::Mutex::new(arrived),
            waiting: AtomicUsize::new(0),
            next_commit: Mutex::new(Instant::now() + settings.auto_commit_interval),
            settings,
        }
    }

    pub(super) fn be_subscribed(&self) -> Result<(), Error> {
        self.decide(Mode::Subscribed)
    }

    pub(super) fn be_assigned(&self) -> Result<(), Error> {
        self.decide(Mode::Assigned)?;
        self.subscriber.assign_by_hand();
        Ok(())
    }

    fn decide(&self, wanted: Mode) -> Result<(), Error> {
        let mut mode = self.mode.lock();
        if *mode != Mode::Undecided && *mode != wanted {
            let reason = "Subscribe and assign are mutually exclusive.";
            return Err(Error::invalid(format!("consumer {}", self.subscriber.group), reason));
        }
        *mode = wanted;
        Ok(())
    }

    /// Starts all tasks.
    pub(super) fn run(self: &Arc<Self>) {
        let core = self.clone();
        let start = move |given| {
            if let Given::Pulled(assigned) = given {
                core.start_queue(assigned.queue, Some(assigned.offset));
            }
        };
        self.spawn(self.subscriber.clone().keep_balanced(start));
        self.spawn(self.subscriber.clone().keep_offsets());
        self.spawn(self.subscriber.clone().keep_stats());
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.subscriber.stop.clone();
        self.subscriber.instance.spawn(async move {
            stop.run_until_cancelled_owned(task).await;
        });
    }

    fn start_queue(self: &Arc<Self>, queue: Arc<ProcessQueue>, offset: Option<i64>) {
        self.spawn(self.clone().pull_queue(queue, offset));
    }

    pub(super) async fn assign(self: &Arc<Self>, wanted: BTreeSet<MessageQueue>) {
        for queue in self.subscriber.process_queues() {
            if !wanted.contains(&queue.queue) {
                self.subscriber.give_up(&queue).await;
            }
        }
        for queue in wanted {
            if self.subscriber.process_queue(&queue).is_none() {
                self.start_queue(self.subscriber.adopt(&queue), None);
            }
        }
    }

    /// Begins with the queue anew: what was pulled before belongs to the old hand and is passed over.
    pub(super) fn seek(self: &Arc<Self>, queue: &MessageQueue, offset: i64) -> Result<(), Error> {
        let not_assigned = || Error::invalid(format!("seek in {queue}"), "the queue is not assigned");
        let old = self.subscriber.process_queue(queue).ok_or_else(not_assigned)?;
        old.drop_now();
        self.start_queue(self.subscriber.adopt(queue), Some(offset));
        Ok(())
    }

    pub(super) fn hand_over(&self, queue: &Arc<ProcessQueue>, messages: Vec<Arc<MessageExt>>) {
        self.waiting.fetch_add(messages.len(), Ordering::Relaxed);
        // The receiver lives as long as this.
        let _ = self.batches.send(Batch { queue: queue.clone(), messages });
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) async fn poll(&self, timeout: Duration) -> Vec<Arc<MessageExt>> {
        let deadline = Instant::now() + timeout;
        self.commit_if_due();
        let polling = async {
            let mut arrived = self.arrived.lock().await;
            loop {
                let Some(batch) = arrived.recv().await else { return Vec::new() };
                self.waiting.fetch_sub(batch.messages.len(), Ordering::Relaxed);
                if batch.queue.is_dropped() {
                    continue;
                }
                if let Some(offset) = batch.queue.remove(&batch.messages, Instant::now()) {
                    batch.queue.polled.store(offset, Ordering::Relaxed);
                }
                // What the application does with them is not known.
                if let Some(traced) = self.subscriber.trace_delivery(&batch.messages) {
                    traced.end(batch.messages.len(), false, Duration::MAX);
                }
                return batch.messages;
            }
        };
        let stopped = self.subscriber.stop.run_until_cancelled(timeout_at(deadline, polling));
        stopped.await.and_then(Result::ok).unwrap_or_default()
    }

    fn commit_if_due(&self) {
        let is_due = {
            let mut next = self.next_commit.lock();
            let now = Instant::now();
            let is_due = self.settings.auto_commit && now >= *next;
            if is_due {
                *next = now + self.settings.auto_commit_interval;
            }
            is_due
        };
        if is_due {
            self.commit();
        }
    }

    pub(super) fn commit(&self) {
        for queue in self.subscriber.process_queues() {
            let polled = queue.polled.load(Ordering::Relaxed);
            if polled >= 0 {
                queue.progress.update(polled, false);
            }
        }
    }

    pub(super) async fn shutdown(&self) {
        self.subscriber.stop.cancel();
        if self.settings.auto_commit {
            self.commit();
        }
        self.subscriber.persist_offsets().await;
        self.subscriber.leave().await;
    }
}

impl ConsumerMember for LiteCore {
    fn heartbeat(&self) -> ConsumerData {
        self.subscriber.heartbeat()
    }

    fn topics(&self) -> Vec<String> {
        self.subscriber.topics()
    }

    fn wake_rebalance(&self) {
        self.subscriber.rebalance_now.notify_one();
    }

    fn offsets(&self, topic: &str) -> BTreeMap<MessageQueue, i64> {
        self.subscriber.offsets.of_topic(topic)
    }

    fn running_info(&self) -> ConsumerRunningInfo {
        self.subscriber.running_info()
    }

    /// As in Java: an application that asks for messages decides itself where it goes on.
    fn reset_offsets(self: Arc<Self>, topic: String, _: BTreeMap<MessageQueue, i64>) -> BoxFuture<()> {
        tracing::warn!(group = self.subscriber.group, topic, "only push consumers can be reset");
        Box::pin(std::future::ready(()))
    }

    fn consume_directly(self: Arc<Self>, _: MessageExt) -> BoxFuture<Option<ConsumeMessageDirectlyResult>> {
        Box::pin(std::future::ready(None))
    }

    fn shutdown(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { LiteCore::shutdown(&self).await })
    }
}
