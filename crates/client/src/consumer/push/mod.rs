//! Consumers that call a listener (`docs/spec/07-client.md` 12 to 16).

mod concurrent;
mod core;
mod listener;
mod orderly;
mod pop_loop;
mod popped;
mod pull_loop;
mod send_back;
mod waiting;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{ConsumeType, MessageModel, MessageQueue};

use self::core::{PushCore, PushSettings};
use self::listener::Listener;
use super::allocate::AllocateStrategy;
use super::pop::Origin;
use super::subscriber::{ConsumeFrom, Subscriber, SubscriberSettings};
use super::subscription::Filter;
use crate::client::Client;
use crate::error::Error;
use crate::instance::Round;
use crate::validate;

pub use self::listener::{ConsumeOrderlyResult, ConsumeResult, Delivery};

/// A consumer that pulls messages by itself and calls a listener with them.
///
/// Dropping it stops it at once. [`shutdown`](Self::shutdown) lets running listeners finish and commits their progress.
#[derive(Debug)]
pub struct PushConsumer {
    core: Arc<PushCore>,
    /// Keeps the client alive.
    _client: Client,
}

impl Drop for PushConsumer {
    fn drop(&mut self) {
        self.core.abandon();
    }
}

impl PushConsumer {
    /// Subscribes to a topic, or to other messages of it. Queues of a new topic come with the next rebalance, which is soon.
    ///
    /// # Errors
    /// If the topic's name or the filter can't be used.
    pub async fn subscribe(&self, topic: &str, filter: impl Into<Filter>) -> Result<(), Error> {
        let subscriber = &self.core.subscriber;
        subscriber.subscribe(topic, &filter.into())?;
        subscriber.instance.heartbeat(Round::Changed).await;
        subscriber.rebalance_now.notify_one();
        Ok(())
    }

    /// Ends the subscription to a topic. Its queues are given up at the next rebalance, which is soon.
    pub fn unsubscribe(&self, topic: &str) {
        let subscriber = &self.core.subscriber;
        subscriber.unsubscribe(topic);
        subscriber.unsubscribe(&Origin::RetryV1.real_topic(topic, &subscriber.group));
        self.core.subscriber.rebalance_now.notify_one();
    }

    /// Pulls nothing more until [`resume`](Self::resume). Messages that are here already still reach the listener.
    pub fn suspend(&self) {
        self.core.set_suspended(true);
    }

    /// Goes on after [`suspend`](Self::suspend).
    pub fn resume(&self) {
        self.core.set_suspended(false);
    }

    /// The queues that this consumer has now. Number -1 stands for all queues of a broker, which it pops from.
    pub fn assigned_queues(&self) -> Vec<MessageQueue> {
        let pulled = self.core.subscriber.process_queues().into_iter().map(|queue| queue.queue.clone());
        let popped = self.core.subscriber.pop_queues().into_iter().map(|queue| queue.queue.clone());
        pulled.chain(popped).collect()
    }

    /// Stops pulling, lets running listeners finish (but not longer than the builder's `await_termination`), commits the
    /// progress, gives locks back and tells the brokers.
    pub async fn shutdown(&self) {
        self.core.shutdown().await;
    }
}

/// Settings of a [`PushConsumer`]; their names are those of Java's `DefaultMQPushConsumer`.
#[derive(Clone, Debug)]
#[must_use]
pub struct PushConsumerBuilder {
    client: Client,
    group: String,
    subscriptions: Vec<(String, Filter)>,
    listener: Option<Listener>,
    subscriber: SubscriberSettings,
    settings: PushSettings,
}

impl PushConsumerBuilder {
    pub(crate) fn new(client: Client, group: String) -> Self {
        Self {
            client,
            group,
            subscriptions: Vec::new(),
            listener: None,
            subscriber: SubscriberSettings::default(),
            settings: PushSettings::default(),
        }
    }

    /// Subscribes to a topic; may be called several times.
    pub fn subscribe(mut self, topic: impl Into<String>, filter: impl Into<Filter>) -> Self {
        self.subscriptions.push((topic.into(), filter.into()));
        self
    }

    /// The listener, called with several deliveries at a time, in no particular order. It returns a [`ConsumeResult`] or a
    /// `Result`, whose error means "later". As any future, it must not block its thread.
    pub fn listener<F, R>(mut self, listener: impl Fn(Delivery) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: Into<ConsumeResult>,
    {
        self.listener = Some(Listener::concurrent(listener));
        self
    }

    /// The listener, called with one delivery of each queue at a time, in the order of the queue. It returns a
    /// [`ConsumeOrderlyResult`] or a `Result`, whose error means "the queue waits".
    pub fn orderly_listener<F, R>(mut self, listener: impl Fn(Delivery) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: Into<ConsumeOrderlyResult>,
    {
        self.listener = Some(Listener::orderly(listener));
        self
    }

    /// Every consumer of the group gets every message, and keeps its progress in a file of its own. Default: the members of
    /// the group share the messages. A stable file needs a client with an
    /// [`instance_name`](crate::ClientBuilder::instance_name) if there are several on one machine.
    pub fn broadcasting(mut self) -> Self {
        self.subscriber.model = MessageModel::Broadcasting;
        self
    }

    /// Directory of the progress of broadcasting consumers; default `~/.rocketmq_offsets`.
    pub fn local_offset_store_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.subscriber.offset_directory = Some(directory.into());
        self
    }

    /// Where the group begins in queues that it has no progress in; default [`ConsumeFrom::LastOffset`].
    pub fn consume_from(mut self, from: ConsumeFrom) -> Self {
        self.subscriber.consume_from = from;
        self
    }

    /// How the members share out queues; the same for all of them. Default [`AllocateStrategy::Average`].
    pub fn allocate_message_queue_strategy(mut self, strategy: AllocateStrategy) -> Self {
        self.subscriber.strategy = strategy;
        self
    }

    /// Whether the members of the group share out the queues among themselves; default true. With false, brokers do it,
    /// which may then also make the group pop instead of pull ([`set_consume_mode`](crate::admin::Admin::set_consume_mode)),
    /// so that its members share messages instead of queues. Brokers before 5.0 leave it to the members all the same.
    /// Without meaning for [`orderly`](Self::orderly_listener) and [`broadcasting`](Self::broadcasting) consumers.
    pub fn client_rebalance(mut self, on: bool) -> Self {
        self.subscriber.assigned_by_broker = !on;
        self
    }

    /// How long popped messages are invisible to others, 5 s to 5 min; what takes the listener longer comes again. Default
    /// 1 min.
    pub fn pop_invisible_time(mut self, time: Duration) -> Self {
        self.settings.pop_invisible_time = time;
        self
    }

    /// Most messages that one pop brings, up to 32; default 32.
    pub fn pop_batch_nums(mut self, messages: usize) -> Self {
        self.settings.pop_batch_size = messages;
        self
    }

    /// Popped messages that are not finished above which nothing more is popped from the same broker; default 96.
    pub fn pop_threshold_for_queue(mut self, messages: usize) -> Self {
        self.settings.pop_threshold = messages;
        self
    }

    /// Most deliveries that the listener has at one time (`consumeThreadMax`); default 20.
    pub fn consume_concurrency(mut self, deliveries: usize) -> Self {
        self.settings.concurrency = deliveries;
        self
    }

    /// Most messages in one delivery; default 1.
    pub fn consume_message_batch_max_size(mut self, messages: usize) -> Self {
        self.settings.batch_max = messages;
        self
    }

    /// Most messages that one pull brings; default 32.
    pub fn pull_batch_size(mut self, messages: usize) -> Self {
        self.settings.pull_batch_size = messages;
        self
    }

    /// Wait between two pulls of a queue; default none.
    pub fn pull_interval(mut self, interval: Duration) -> Self {
        self.settings.pull_interval = interval;
        self
    }

    /// Messages of one queue that wait for the listener above which nothing more is pulled from it; default 1000.
    pub fn pull_threshold_for_queue(mut self, messages: usize) -> Self {
        self.settings.threshold_messages = messages;
        self
    }

    /// The same in MiB of bodies; default 100.
    pub fn pull_threshold_size_for_queue(mut self, mib: usize) -> Self {
        self.settings.threshold_mib = mib;
        self
    }

    /// Messages of one topic that wait for the listener, over all its queues: replaces the threshold for queues.
    pub fn pull_threshold_for_topic(mut self, messages: usize) -> Self {
        self.settings.topic_threshold_messages = Some(messages);
        self
    }

    /// The same in MiB of bodies.
    pub fn pull_threshold_size_for_topic(mut self, mib: usize) -> Self {
        self.settings.topic_threshold_mib = Some(mib);
        self
    }

    /// Distance between the oldest unfinished and the newest message of a queue above which nothing more is pulled from it
    /// (not for orderly listeners); default 2000.
    pub fn consume_concurrently_max_span(mut self, offsets: u16) -> Self {
        self.settings.span_max = i64::from(offsets);
        self
    }

    /// How often a message is tried again before it becomes a dead letter; default 16, for orderly listeners without end.
    pub fn max_reconsume_times(mut self, times: u16) -> Self {
        self.settings.reconsume_times_max = Some(i32::from(times));
        self
    }

    /// How long a queue waits after an orderly listener did not finish; default 1 s.
    pub fn suspend_current_queue_time(mut self, time: Duration) -> Self {
        self.settings.suspend_time = time;
        self
    }

    /// Whether an orderly listener's success commits at once; default true. Otherwise it says
    /// [`ConsumeOrderlyResult::Commit`] when it wants to.
    pub fn auto_commit(mut self, on: bool) -> Self {
        self.settings.auto_commit = on;
        self
    }

    /// After how long a message that the listener still has is given back, to be tried again elsewhere; default 15 min.
    pub fn consume_timeout(mut self, timeout: Duration) -> Self {
        self.settings.consume_timeout = timeout;
        self
    }

    /// Send the filter with each pull instead of relying on heartbeats (`postSubscriptionWhenPull`); default false.
    pub fn post_subscription_when_pull(mut self, on: bool) -> Self {
        self.settings.post_subscription = on;
        self
    }

    /// Whether the group belongs to a unit.
    pub fn unit_mode(mut self, on: bool) -> Self {
        self.subscriber.unit_mode = on;
        self
    }

    /// How long [`PushConsumer::shutdown`] waits for running listeners (`awaitTerminationMillisWhenShutdown`); default
    /// 10 s. What is not finished then is consumed again by others.
    pub fn await_termination(mut self, timeout: Duration) -> Self {
        self.settings.await_termination = timeout;
        self
    }

    /// Trace what becomes of messages in this group (`enableTrace`); default false.
    pub fn enable_trace(mut self, on: bool) -> Self {
        self.subscriber.trace.enabled = on;
        self
    }

    /// The topic of the trace (`traceTopic`); default `RMQ_SYS_TRACE_TOPIC`, which brokers have with `traceTopicEnable`.
    pub fn trace_topic(mut self, topic: impl Into<String>) -> Self {
        self.subscriber.trace.topic = Some(topic.into());
        self
    }

    /// Starts the consumer.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a setting can't be used, [`Error::GroupInUse`], [`Error::Closed`]; [`Error::Refused`] if a
    /// broker does not take a filter. A topic without route is no error.
    pub async fn start(mut self) -> Result<PushConsumer, Error> {
        validate::group(&self.group)?;
        self.subscriber.trace.check()?;
        self.settings.check()?;
        let listener = self.listener.ok_or_else(|| Error::invalid("push consumer", "it has no listener"))?;
        let is_ordered = matches!(listener, Listener::Orderly(_));
        let is_clustering = self.subscriber.model == MessageModel::Clustering;
        self.subscriber.assigned_by_broker &= is_clustering && !is_ordered;
        if self.subscriber.assigned_by_broker && !self.subscriber.strategy.is_known_to_brokers() {
            let reason =
                format!("brokers know AVG and AVG_BY_CIRCLE, not {}", self.subscriber.strategy.name());
            return Err(Error::invalid("client_rebalance(false)", reason));
        }
        let instance = self.client.instance().clone();
        let kind = ConsumeType::ConsumePassively;
        let subscriber = Subscriber::new(instance.clone(), self.group, kind, is_ordered, self.subscriber);
        for (topic, filter) in &self.subscriptions {
            subscriber.subscribe(topic, filter)?;
        }
        if subscriber.is_clustering() {
            subscriber.subscribe_retries();
        }
        let core = Arc::new(PushCore::new(Arc::new(subscriber), listener, self.settings));
        instance.join_consumer(&core.subscriber.group, core.clone())?;
        // From here on a drop undoes the registration, also when this future is dropped.
        let consumer = PushConsumer { core, _client: self.client };
        if let Err(error) = consumer.core.subscriber.introduce().await {
            consumer.shutdown().await;
            return Err(error);
        }
        consumer.core.run();
        Ok(consumer)
    }
}
