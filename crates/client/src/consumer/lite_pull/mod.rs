//! Consumers that are asked for messages (`docs/spec/07-client.md` 18).

mod core;
mod pull_loop;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferromq_protocol::body::{ConsumeType, MessageModel, MessageQueue};

use self::core::{LiteCore, LiteSettings};
use super::allocate::AllocateStrategy;
use super::subscriber::{ConsumeFrom, Subscriber, SubscriberSettings};
use super::subscription::Filter;
use crate::client::Client;
use crate::error::Error;
use crate::instance::{QueueEnd, Round};
use crate::message::MessageExt;
use crate::validate;

/// A consumer whose application asks for messages with [`poll`](Self::poll). They are pulled ahead in the background.
///
/// It either [subscribes](Self::subscribe), and the members of the group share the queues, or has queues
/// [assigned](Self::assign) by the application.
#[derive(Debug)]
pub struct LitePullConsumer {
    core: Arc<LiteCore>,
    /// Keeps the client alive.
    _client: Client,
}

impl Drop for LitePullConsumer {
    fn drop(&mut self) {
        self.core.subscriber.abandon();
    }
}

impl LitePullConsumer {
    /// Subscribes to a topic. Its queues come with the next rebalance, which is soon.
    ///
    /// # Errors
    /// If the name or the filter can't be used, or queues were [assigned](Self::assign).
    pub async fn subscribe(&self, topic: &str, filter: impl Into<Filter>) -> Result<(), Error> {
        self.core.be_subscribed()?;
        self.core.subscriber.subscribe(topic, &filter.into())?;
        self.core.subscriber.instance.heartbeat(Round::Changed).await;
        self.core.subscriber.rebalance_now.notify_one();
        Ok(())
    }

    /// Ends the subscription to a topic. Its queues are given up at the next rebalance, which is soon.
    pub fn unsubscribe(&self, topic: &str) {
        self.core.subscriber.unsubscribe(topic);
        self.core.subscriber.rebalance_now.notify_one();
    }

    /// Reads these queues from now on, and no others. Filters of topics can be given to the builder
    /// ([`filter_for_assigned`](LitePullConsumerBuilder::filter_for_assigned)).
    ///
    /// # Errors
    /// If the consumer has subscriptions.
    pub async fn assign(&self, queues: impl IntoIterator<Item = MessageQueue>) -> Result<(), Error> {
        self.core.be_assigned()?;
        self.core.assign(queues.into_iter().collect()).await;
        Ok(())
    }

    /// The queues that this consumer has now.
    pub fn assignment(&self) -> Vec<MessageQueue> {
        let queues = self.core.subscriber.process_queues();
        queues.iter().map(|queue| queue.queue.clone()).collect()
    }

    /// The next messages, all of one queue and in its order; none if none came in time.
    ///
    /// With automatic commits, it also commits from time to time what earlier polls returned.
    ///
    /// # Cancellation
    /// Safe: messages are only taken by a poll that returns them.
    pub async fn poll(&self, timeout: Duration) -> Vec<Arc<MessageExt>> {
        self.core.poll(timeout).await
    }

    /// Commits everything that polls have returned. It is written to the broker soon, and at the
    /// [shutdown](Self::shutdown).
    pub fn commit(&self) {
        self.core.commit();
    }

    /// Sets the progress of queues; with `persist` the brokers are told at once.
    pub async fn commit_offsets(&self, offsets: &BTreeMap<MessageQueue, i64>, persist: bool) {
        for (queue, offset) in offsets {
            self.core.subscriber.offsets.update(queue, *offset, false);
        }
        if persist {
            self.core.subscriber.offsets.persist_all(&offsets.keys().cloned().collect()).await;
        }
    }

    /// Goes on at this offset of a queue. Messages of the queue that were pulled ahead are dropped.
    ///
    /// # Errors
    /// If the queue is not assigned or does not have the offset, or its broker can't be asked.
    pub async fn seek(&self, queue: &MessageQueue, offset: i64) -> Result<(), Error> {
        let (min, max) =
            (self.queue_end(queue, QueueEnd::Min).await?, self.queue_end(queue, QueueEnd::Max).await?);
        if !(min..=max).contains(&offset) {
            let reason = format!("offset {offset} is not in [{min}, {max}]");
            return Err(Error::invalid(format!("seek in {queue}"), reason));
        }
        self.core.seek(queue, offset)
    }

    /// Goes on with the oldest message of a queue.
    ///
    /// # Errors
    /// If the queue is not assigned, or its broker can't be asked.
    pub async fn seek_to_begin(&self, queue: &MessageQueue) -> Result<(), Error> {
        self.core.seek(queue, self.queue_end(queue, QueueEnd::Min).await?)
    }

    /// Goes on behind the newest message of a queue.
    ///
    /// # Errors
    /// If the queue is not assigned, or its broker can't be asked.
    pub async fn seek_to_end(&self, queue: &MessageQueue) -> Result<(), Error> {
        self.core.seek(queue, self.queue_end(queue, QueueEnd::Max).await?)
    }

    /// Pulls nothing more from these queues until [`resume`](Self::resume).
    pub fn pause(&self, queues: impl IntoIterator<Item = MessageQueue>) {
        self.core.paused.lock().extend(queues);
    }

    /// Goes on pulling from queues that were [paused](Self::pause).
    pub fn resume<'a>(&self, queues: impl IntoIterator<Item = &'a MessageQueue>) {
        let mut paused = self.core.paused.lock();
        for queue in queues {
            paused.remove(queue);
        }
    }

    /// The group's progress in a queue; `None` if there is none yet.
    ///
    /// # Errors
    /// If the broker can't be asked.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<i64>, Error> {
        match self.core.subscriber.offsets.get(queue) {
            Some(offset) => Ok(Some(offset)),
            None => self.core.subscriber.offsets.load(queue).await,
        }
    }

    /// The queues of a topic that can be read.
    ///
    /// # Errors
    /// If there is no route.
    pub async fn fetch_message_queues(&self, topic: &str) -> Result<Vec<MessageQueue>, Error> {
        Ok(self.core.subscriber.instance.refresh_route(topic).await?.subscribe.clone())
    }

    /// Offset of the first message of a queue that was stored at this time or later.
    ///
    /// # Errors
    /// If the broker can't be asked.
    pub async fn offset_for_timestamp(&self, queue: &MessageQueue, time: SystemTime) -> Result<i64, Error> {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.core.subscriber.instance.offset_at(queue, since.as_millis() as i64).await
    }

    /// Stops pulling, commits (with automatic commits everything that polls have returned), and tells the brokers.
    pub async fn shutdown(&self) {
        self.core.shutdown().await;
    }

    async fn queue_end(&self, queue: &MessageQueue, end: QueueEnd) -> Result<i64, Error> {
        self.core.subscriber.instance.queue_end(queue, end).await
    }
}

/// Settings of a [`LitePullConsumer`]; their names are those of Java's `DefaultLitePullConsumer`.
#[derive(Clone, Debug)]
#[must_use]
pub struct LitePullConsumerBuilder {
    client: Client,
    group: String,
    subscriptions: Vec<(String, Filter)>,
    filters: Vec<(String, Filter)>,
    subscriber: SubscriberSettings,
    settings: LiteSettings,
}

impl LitePullConsumerBuilder {
    pub(crate) fn new(client: Client, group: String) -> Self {
        Self {
            client,
            group,
            subscriptions: Vec::new(),
            filters: Vec::new(),
            subscriber: SubscriberSettings::default(),
            settings: LiteSettings::default(),
        }
    }

    /// Subscribes to a topic; may be called several times.
    pub fn subscribe(mut self, topic: impl Into<String>, filter: impl Into<Filter>) -> Self {
        self.subscriptions.push((topic.into(), filter.into()));
        self
    }

    /// Which messages of a topic are wanted whose queues will be [assigned](LitePullConsumer::assign).
    pub fn filter_for_assigned(mut self, topic: impl Into<String>, filter: impl Into<Filter>) -> Self {
        self.filters.push((topic.into(), filter.into()));
        self
    }

    /// Every consumer of the group gets every message; see
    /// [`PushConsumerBuilder::broadcasting`](crate::PushConsumerBuilder::broadcasting).
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

    /// Whether polls commit what earlier polls returned; default true. Otherwise call [`LitePullConsumer::commit`].
    pub fn auto_commit(mut self, on: bool) -> Self {
        self.settings.auto_commit = on;
        self
    }

    /// How often they do; default 5 s, at least 1 s.
    pub fn auto_commit_interval(mut self, interval: Duration) -> Self {
        self.settings.auto_commit_interval = interval.max(Duration::from_secs(1));
        self
    }

    /// Most messages that one pull brings, and one poll returns; default 10.
    pub fn pull_batch_size(mut self, messages: usize) -> Self {
        self.settings.pull_batch_size = messages.clamp(1, 1024);
        self
    }

    /// Messages of all queues pulled ahead above which nothing more is pulled; default 10000.
    pub fn pull_threshold_for_all(mut self, messages: usize) -> Self {
        self.settings.threshold_all = messages;
        self
    }

    /// The same for one queue; default 1000.
    pub fn pull_threshold_for_queue(mut self, messages: usize) -> Self {
        self.settings.threshold_messages = messages;
        self
    }

    /// The same in MiB of bodies; default 100.
    pub fn pull_threshold_size_for_queue(mut self, mib: usize) -> Self {
        self.settings.threshold_mib = mib;
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
    /// [`Error::Invalid`], [`Error::GroupInUse`], [`Error::Closed`]; [`Error::Refused`] if a broker does not take a filter.
    /// A topic without route is no error.
    pub async fn start(self) -> Result<LitePullConsumer, Error> {
        validate::group(&self.group)?;
        self.subscriber.trace.check()?;
        let instance = self.client.instance().clone();
        let kind = ConsumeType::ConsumeActively;
        let subscriber = Subscriber::new(instance.clone(), self.group, kind, false, self.subscriber);
        for (topic, filter) in &self.subscriptions {
            subscriber.subscribe(topic, filter)?;
        }
        for (topic, filter) in &self.filters {
            subscriber.filter_assigned(topic, filter)?;
        }
        let core = Arc::new(LiteCore::new(Arc::new(subscriber), self.settings));
        if !self.subscriptions.is_empty() {
            core.be_subscribed()?;
        }
        instance.join_consumer(&core.subscriber.group, core.clone())?;
        // From here on a drop undoes the registration, also when this future is dropped.
        let consumer = LitePullConsumer { core, _client: self.client };
        if let Err(error) = consumer.core.subscriber.introduce().await {
            consumer.shutdown().await;
            return Err(error);
        }
        consumer.core.run();
        Ok(consumer)
    }
}
