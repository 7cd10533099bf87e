//! The inside of a push consumer: its tasks, its end, and what brokers may ask of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{
    CMResult, ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo, MessageQueue,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::concurrent::Chunk;
use super::listener::{ConsumeOrderlyResult, Delivery, Listener, call};
use super::waiting::Waiting;
use crate::consumer::rebalance::{Assigned, Given};
use crate::consumer::subscriber::Subscriber;
use crate::error::Error;
use crate::instance::member::{BoxFuture, ConsumerMember};
use crate::message::MessageExt;
use crate::producer::ProducerCore;

/// Group of the producer that sends messages back.
const INNER_PRODUCER_GROUP: &str = "CLIENT_INNER_PRODUCER";

/// How long popped messages may be invisible to others.
const POP_INVISIBLE_MIN: Duration = Duration::from_secs(5);
const POP_INVISIBLE_MAX: Duration = Duration::from_secs(300);

/// Settings of a push consumer that do not change.
#[derive(Clone, Debug)]
pub(super) struct PushSettings {
    pub(super) concurrency: usize,
    pub(super) batch_max: usize,
    pub(super) pull_batch_size: usize,
    pub(super) pull_interval: Duration,
    pub(super) threshold_messages: usize,
    pub(super) threshold_mib: usize,
    pub(super) topic_threshold_messages: Option<usize>,
    pub(super) topic_threshold_mib: Option<usize>,
    pub(super) span_max: i64,
    pub(super) reconsume_times_max: Option<i32>,
    pub(super) suspend_time: Duration,
    pub(super) auto_commit: bool,
    pub(super) consume_timeout: Duration,
    pub(super) post_subscription: bool,
    pub(super) await_termination: Duration,
    pub(super) pop_invisible_time: Duration,
    pub(super) pop_batch_size: usize,
    /// Popped messages above which nothing more is popped from the same queue, or queues of a broker.
    pub(super) pop_threshold: usize,
}

impl Default for PushSettings {
    fn default() -> Self {
        Self {
            concurrency: 20,
            batch_max: 1,
            pull_batch_size: 32,
            pull_interval: Duration::ZERO,
            threshold_messages: 1000,
            threshold_mib: 100,
            topic_threshold_messages: None,
            topic_threshold_mib: None,
            span_max: 2000,
            reconsume_times_max: None,
            suspend_time: Duration::from_secs(1),
            auto_commit: true,
            consume_timeout: Duration::from_secs(15 * 60),
            post_subscription: false,
            await_termination: Duration::from_secs(10),
            pop_invisible_time: Duration::from_secs(60),
            pop_batch_size: 32,
            pop_threshold: 96,
        }
    }
}

impl PushSettings {
    /// Checks the ranges of 1.3.
    pub(super) fn check(&self) -> Result<(), Error> {
        let topic_messages = self.topic_threshold_messages.unwrap_or(1);
        let topic_mib = self.topic_threshold_mib.unwrap_or(1);
        for (name, value, max) in [
            ("consume_concurrency", self.concurrency, 1000),
            ("consume_message_batch_max_size", self.batch_max, 1024),
            ("pull_batch_size", self.pull_batch_size, 1024),
            ("pull_threshold_for_queue", self.threshold_messages, 65_535),
            ("pull_threshold_size_for_queue", self.threshold_mib, 1024),
            ("pull_threshold_for_topic", topic_messages, 6_553_500),
            ("pull_threshold_size_for_topic", topic_mib, 102_400),
            ("pop_batch_nums", self.pop_batch_size, 32),
            ("pop_threshold_for_queue", self.pop_threshold, 65_535),
        ] {
            if !(1..=max).contains(&value) {
                return Err(Error::invalid(name, format!("{value} is out of range [1, {max}]")));
            }
        }
        let (invisible, range) = (self.pop_invisible_time, POP_INVISIBLE_MIN..=POP_INVISIBLE_MAX);
        if !range.contains(&invisible) {
            let reason =
                format!("{invisible:?} is out of range {POP_INVISIBLE_MIN:?} to {POP_INVISIBLE_MAX:?}");
            return Err(Error::invalid("pop_invisible_time", reason));
        }
        Ok(())
    }
}

/// The inside of a [`PushConsumer`](super::PushConsumer).
#[derive(Debug)]
pub(crate) struct PushCore {
    pub(super) subscriber: Arc<Subscriber>,
    pub(super) listener: Listener,
    pub(super) settings: PushSettings,
    /// What waits for a concurrent listener.
    pub(super) waiting: Waiting<Chunk>,
    /// A place for each delivery that an orderly listener may have at one time.
    pub(super) places: Semaphore,
    pub(super) inner_producer: ProducerCore,
    suspended: AtomicBool,
    /// Tasks that call the listener.
    consuming: TaskTracker,
    /// Cancelled when listeners are not waited for any more.
    abandoned: CancellationToken,
}

impl PushCore {
    pub(super) fn new(subscriber: Arc<Subscriber>, listener: Listener, settings: PushSettings) -> Self {
        let instance = subscriber.instance.clone();
        Self {
            waiting: Waiting::new(),
            places: Semaphore::new(settings.concurrency),
            inner_producer: ProducerCore::inner(instance.clone(), INNER_PRODUCER_GROUP),
            suspended: AtomicBool::new(false),
            consuming: TaskTracker::new(),
            abandoned: instance.stop.child_token(),
            subscriber,
            listener,
            settings,
        }
    }

    /// Starts all tasks.
    pub(super) fn run(self: &Arc<Self>) {
        let core = self.clone();
        let start = move |given| match given {
            Given::Pulled(assigned) => core.start_queue(assigned),
            Given::Popped(queue) => core.spawn(core.clone().pop_queue(queue)),
        };
        self.spawn(self.subscriber.clone().keep_balanced(start));
        self.spawn(self.subscriber.clone().keep_offsets());
        self.spawn(self.subscriber.clone().keep_stats());
        if self.subscriber.is_locking {
            self.spawn(self.subscriber.clone().keep_locks());
        }
        if matches!(self.listener, Listener::Concurrent(_)) {
            self.spawn(self.clone().give_back_overdue());
            for _ in 0..self.settings.concurrency {
                self.spawn_consuming(self.clone().work());
            }
        }
    }

    /// Runs a task until it ends or the consumer stops.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.subscriber.stop.clone();
        self.subscriber.instance.spawn(async move {
            stop.run_until_cancelled_owned(task).await;
        });
    }

    /// Runs a task that calls the listener: it may finish what it has begun when the consumer stops.
    pub(super) fn spawn_consuming(&self, task: impl Future<Output = ()> + Send + 'static) {
        let abandoned = self.abandoned.clone();
        let task = async move {
            abandoned.run_until_cancelled_owned(task).await;
        };
        self.subscriber.instance.tasks.spawn(self.consuming.track_future(task));
    }

    fn start_queue(self: &Arc<Self>, assigned: Assigned) {
        if matches!(self.listener, Listener::Orderly(_)) {
            self.spawn_consuming(self.clone().consume_in_order(assigned.queue.clone()));
        }
        self.spawn(self.clone().pull_queue(assigned));
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Relaxed)
    }

    pub(super) fn set_suspended(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
        if !suspended {
            self.subscriber.rebalance_now.notify_one();
        }
    }

    pub(super) async fn shutdown(&self) {
        let subscriber = &self.subscriber;
        subscriber.stop.cancel();
        self.waiting.close();
        self.consuming.close();
        let finished = tokio::time::timeout(self.settings.await_termination, self.consuming.wait()).await;
        if finished.is_err() {
            let group = &subscriber.group;
            tracing::warn!(group, "listeners still run, their messages will be consumed again");
        }
        self.abandoned.cancel();
        subscriber.persist_offsets().await;
        if subscriber.is_locking {
            subscriber.unlock_all().await;
        }
        subscriber.leave().await;
    }

    /// Stops without waiting for anything.
    pub(super) fn abandon(&self) {
        self.abandoned.cancel();
        self.subscriber.abandon();
    }
}

impl ConsumerMember for PushCore {
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
        let mut info = self.subscriber.running_info();
        let orderly = matches!(self.listener, Listener::Orderly(_));
        info.properties.insert("PROP_CONSUMEORDERLY".to_owned(), orderly.to_string());
        info.properties.insert("PROP_THREADPOOL_CORE_SIZE".to_owned(), self.settings.concurrency.to_string());
        info
    }

    fn reset_offsets(self: Arc<Self>, topic: String, offsets: BTreeMap<MessageQueue, i64>) -> BoxFuture<()> {
        Box::pin(async move {
            for (queue, offset) in offsets.into_iter().filter(|(queue, _)| queue.topic == topic) {
                let Some(process_queue) = self.subscriber.process_queue(&queue) else { continue };
                // Frozen first: nothing that is on its way can put the old progress back.
                self.subscriber.offsets.update_and_freeze(&queue, offset);
                self.subscriber.give_up(&process_queue).await;
            }
            self.subscriber.rebalance_now.notify_one();
        })
    }

    fn consume_directly(
        self: Arc<Self>,
        message: MessageExt,
    ) -> BoxFuture<Option<ConsumeMessageDirectlyResult>> {
        Box::pin(async move {
            let started = Instant::now();
            let delivery = Delivery::new([Arc::new(message)].into(), 0..1)?;
            let (order, result) = match &self.listener {
                Listener::Concurrent(listener) => {
                    let called = call(&**listener, &delivery).await;
                    let is_done = called.map(|result| result.succeeded_of(1) == 1);
                    (false, is_done.map(|done| if done { CMResult::Success } else { CMResult::Later }))
                }
                Listener::Orderly(listener) => {
                    let called = call(&**listener, &delivery).await;
                    let result = called.map(|result| match result {
                        ConsumeOrderlyResult::Success => CMResult::Success,
                        ConsumeOrderlyResult::Commit => CMResult::Commit,
                        ConsumeOrderlyResult::Rollback => CMResult::Rollback,
                        ConsumeOrderlyResult::SuspendCurrentQueue(_) => CMResult::Later,
                    });
                    (true, result)
                }
            };
            Some(ConsumeMessageDirectlyResult {
                order,
                auto_commit: !order || self.settings.auto_commit,
                remark: result.is_err().then(|| "the listener panicked".to_owned()),
                consume_result: Some(result.unwrap_or(CMResult::ThrowException)),
                spent_time_mills: started.elapsed().as_millis() as i64,
            })
        })
    }

    fn shutdown(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { PushCore::shutdown(&self).await })
    }
}
