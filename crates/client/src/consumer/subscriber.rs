//! What push and lite pull consumers have in common: group, subscriptions, queues, progress.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferromq_protocol::body::{
    ConsumeFromWhere, ConsumeType, ConsumerData, ConsumerRunningInfo, MessageModel, MessageQueue,
    SubscriptionData,
};
use ferromq_protocol::names::{RETRY_PREFIX, retry_topic};
use ferromq_protocol::version;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::allocate::AllocateStrategy;
use super::local_offsets::LocalOffsets;
use super::offsets::OffsetStore;
use super::pop::PopQueue;
use super::process_queue::ProcessQueue;
use super::stats::ConsumerStats;
use super::subscription::{Filter, now_ms};
use crate::error::Error;
use crate::instance::{Instance, QueueEnd, Round};
use crate::message::MessageExt;
use crate::trace::{Role, Trace, TraceSettings, TracedDelivery};
use crate::validate;

/// Where a group begins in a queue that it has no progress in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsumeFrom {
    /// Behind the newest message. Brokers begin with the oldest one all the same while a topic is young.
    #[default]
    LastOffset,
    /// With the oldest message.
    FirstOffset,
    /// With the first message stored at this time or later.
    Timestamp(SystemTime),
}

impl ConsumeFrom {
    fn on_wire(self) -> ConsumeFromWhere {
        match self {
            Self::LastOffset => ConsumeFromWhere::ConsumeFromLastOffset,
            Self::FirstOffset => ConsumeFromWhere::ConsumeFromFirstOffset,
            Self::Timestamp(_) => ConsumeFromWhere::ConsumeFromTimestamp,
        }
    }
}

/// Settings that all consumers have.
#[derive(Clone, Debug)]
pub(crate) struct SubscriberSettings {
    pub(crate) model: MessageModel,
    pub(crate) consume_from: ConsumeFrom,
    pub(crate) strategy: AllocateStrategy,
    /// Brokers share out the queues, not the members of the group themselves.
    pub(crate) assigned_by_broker: bool,
    pub(crate) unit_mode: bool,
    /// Directory of a broadcasting consumer's progress.
    pub(crate) offset_directory: Option<std::path::PathBuf>,
    pub(crate) trace: TraceSettings,
}

impl Default for SubscriberSettings {
    fn default() -> Self {
        Self {
            model: MessageModel::Clustering,
            consume_from: ConsumeFrom::default(),
            strategy: AllocateStrategy::default(),
            assigned_by_broker: false,
            unit_mode: false,
            offset_directory: None,
            trace: TraceSettings::default(),
        }
    }
}

/// The part of a consumer that knows which queues it has and how far it is in them.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) instance: Arc<Instance>,
    pub(crate) group: String,
    pub(crate) settings: SubscriberSettings,
    pub(crate) kind: ConsumeType,
    /// Whether queues are locked at their brokers, so that no one else consumes them.
    pub(crate) is_locking: bool,
    pub(crate) offsets: OffsetStore,
    pub(crate) stats: ConsumerStats,
    /// `None`: deliveries are not traced.
    trace: Option<Trace>,
    /// Cancelled when nothing more is to be pulled.
    pub(crate) stop: CancellationToken,
    pub(crate) rebalance_now: Notify,
    pub(crate) started_ms: i64,
    /// Whether the group was left: from then on its name belongs to whoever takes it next.
    has_left: AtomicBool,
    subscriptions: RwLock<BTreeMap<String, Arc<SubscriptionData>>>,
    /// Filters of topics that are not subscribed to.
    assigned_filters: RwLock<BTreeMap<String, Arc<SubscriptionData>>>,
    /// Since when topics are looked for that have no route.
    pub(super) missing: Mutex<BTreeMap<String, Instant>>,
    /// The application says which queues are read; there is nothing to share out.
    assigned_by_hand: AtomicBool,
    /// The queues that a rebalance gave and none has taken away.
    pub(super) queues: Mutex<BTreeMap<MessageQueue, Arc<ProcessQueue>>>,
    /// What brokers have assigned to be popped from.
    pub(super) pop_queues: Mutex<BTreeMap<MessageQueue, Arc<PopQueue>>>,
}

impl Subscriber {
    pub(crate) fn new(
        instance: Arc<Instance>,
        group: String,
        kind: ConsumeType,
        is_ordered: bool,
        settings: SubscriberSettings,
    ) -> Self {
        let is_clustering = settings.model == MessageModel::Clustering;
        let offsets = if is_clustering {
            OffsetStore::remote(instance.clone(), &group)
        } else {
            let directory = settings.offset_directory.clone().unwrap_or_else(LocalOffsets::default_directory);
            OffsetStore::local(LocalOffsets::new(&directory, &instance.identity.lasting_id, &group))
        };
        Self {
            is_locking: is_ordered && is_clustering,
            offsets,
            stats: ConsumerStats::new(&instance.identity.client_id, &group),
            trace: Trace::start(&instance, &settings.trace, Role::Consume, &group),
            stop: instance.stop.child_token(),
            rebalance_now: Notify::new(),
            started_ms: now_ms(),
            has_left: AtomicBool::new(false),
            subscriptions: RwLock::default(),
            assigned_filters: RwLock::default(),
            missing: Mutex::default(),
            assigned_by_hand: AtomicBool::new(false),
            queues: Mutex::default(),
            pop_queues: Mutex::default(),
            instance,
            group,
            settings,
            kind,
        }
    }

    pub(crate) fn is_clustering(&self) -> bool {
        self.settings.model == MessageModel::Clustering
    }

    /// Adds or replaces a subscription.
    pub(crate) fn subscribe(&self, topic: &str, filter: &Filter) -> Result<(), Error> {
        validate::topic(topic)?;
        let data = filter.subscription(topic)?;
        self.subscriptions.write().insert(topic.to_owned(), Arc::new(data));
        Ok(())
    }

    /// Subscribes to the messages that this group did not finish.
    pub(crate) fn subscribe_retries(&self) {
        self.subscribe_to_all_of(&retry_topic(&self.group));
    }

    /// Subscribes to all messages of a topic of the system.
    pub(super) fn subscribe_to_all_of(&self, topic: &str) {
        if let Ok(data) = Filter::all().subscription(topic) {
            self.subscriptions.write().insert(topic.to_owned(), Arc::new(data));
        }
    }

    /// Which messages of a topic are wanted whose queues are assigned by hand; brokers get it with each pull.
    pub(crate) fn filter_assigned(&self, topic: &str, filter: &Filter) -> Result<(), Error> {
        validate::topic(topic)?;
        self.assigned_filters.write().insert(topic.to_owned(), Arc::new(filter.subscription(topic)?));
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, topic: &str) {
        self.subscriptions.write().remove(topic);
    }

    pub(crate) fn is_subscribed(&self, topic: &str) -> bool {
        self.subscriptions.read().contains_key(topic)
    }

    /// The subscription to a topic; that to everything where there is none, as for queues that were assigned by hand.
    pub(crate) fn subscription(&self, topic: &str) -> Arc<SubscriptionData> {
        let known = self.subscriptions.read().get(topic).cloned();
        known.or_else(|| self.assigned_filters.read().get(topic).cloned()).unwrap_or_else(|| {
            Arc::new(SubscriptionData {
                topic: topic.to_owned(),
                sub_string: ferromq_protocol::body::SUB_ALL.to_owned(),
                ..SubscriptionData::default()
            })
        })
    }

    pub(crate) fn subscriptions(&self) -> Vec<SubscriptionData> {
        self.subscriptions.read().values().map(|data| (**data).clone()).collect()
    }

    pub(crate) fn topics(&self) -> Vec<String> {
        self.subscriptions.read().keys().cloned().collect()
    }

    /// Marks a subscription as changed, so that brokers compare nothing with an older one.
    pub(super) fn renew_subscription(&self, topic: &str) {
        if let Some(data) = self.subscriptions.write().get_mut(topic) {
            Arc::make_mut(data).sub_version = now_ms();
        }
    }

    pub(crate) fn process_queue(&self, queue: &MessageQueue) -> Option<Arc<ProcessQueue>> {
        self.queues.lock().get(queue).filter(|queue| !queue.is_dropped()).cloned()
    }

    /// All queues that this consumer has.
    pub(crate) fn process_queues(&self) -> Vec<Arc<ProcessQueue>> {
        self.queues.lock().values().filter(|queue| !queue.is_dropped()).cloned().collect()
    }

    /// One that this consumer pops from.
    pub(crate) fn pop_queue(&self, queue: &MessageQueue) -> Option<Arc<PopQueue>> {
        self.pop_queues.lock().get(queue).cloned()
    }

    /// All queues that this consumer pops from.
    pub(crate) fn pop_queues(&self) -> Vec<Arc<PopQueue>> {
        self.pop_queues.lock().values().filter(|queue| !queue.is_dropped()).cloned().collect()
    }

    fn drop_queues(&self) {
        self.process_queues().iter().for_each(|queue| queue.drop_now());
        self.pop_queues().iter().for_each(|queue| queue.dropped.cancel());
    }

    pub(crate) fn heartbeat(&self) -> ConsumerData {
        let consume_from = match self.kind {
            ConsumeType::ConsumePassively => self.settings.consume_from,
            ConsumeType::ConsumeActively | ConsumeType::ConsumePop => ConsumeFrom::LastOffset,
        };
        ConsumerData {
            consume_from_where: Some(consume_from.on_wire()),
            consume_type: Some(self.kind),
            group_name: self.group.clone(),
            message_model: Some(self.settings.model),
            subscription_data_set: self.subscriptions(),
            unit_mode: self.settings.unit_mode,
        }
    }

    /// From now on the application says which queues are read.
    pub(crate) fn assign_by_hand(&self) {
        self.assigned_by_hand.store(true, Ordering::Release);
    }

    pub(super) fn is_assigned_by_hand(&self) -> bool {
        self.assigned_by_hand.load(Ordering::Acquire)
    }

    /// Begins the trace of a delivery, if it is traced.
    pub(crate) fn trace_delivery(&self, messages: &[Arc<MessageExt>]) -> Option<TracedDelivery<'_>> {
        self.trace.as_ref()?.delivery(messages)
    }

    /// How many queues this consumer has.
    pub(crate) fn queue_count(&self) -> usize {
        self.queues.lock().len()
    }

    /// Leaves the group in an orderly way, when everything else was done.
    pub(crate) async fn leave(&self) {
        self.drop_queues();
        self.note_cached();
        if let Some(trace) = &self.trace {
            trace.close().await;
        }
        if !self.has_left.swap(true, Ordering::AcqRel) {
            self.instance.leave_consumer(&self.group).await;
        }
    }

    /// Stops everything at once and tells nobody.
    pub(crate) fn abandon(&self) {
        self.stop.cancel();
        self.drop_queues();
        self.note_cached();
        if !self.has_left.swap(true, Ordering::AcqRel) {
            self.instance.drop_consumer(&self.group);
        }
    }

    /// What administrators are shown of any consumer.
    pub(crate) fn running_info(&self) -> ConsumerRunningInfo {
        let queues = self.process_queues();
        let info = |queue: &Arc<ProcessQueue>| (queue.queue.clone(), queue.info());
        ConsumerRunningInfo {
            properties: self.properties(),
            subscription_set: self.subscriptions(),
            mq_table: queues.iter().map(info).collect(),
            mq_pop_table: self
                .pop_queues()
                .iter()
                .map(|popped| (popped.queue.clone(), popped.info()))
                .collect(),
            status_table: self.stats.status_table(),
            ..ConsumerRunningInfo::default()
        }
    }

    fn properties(&self) -> BTreeMap<String, String> {
        let kind = match self.kind {
            ConsumeType::ConsumeActively => "CONSUME_ACTIVELY",
            ConsumeType::ConsumePassively => "CONSUME_PASSIVELY",
            ConsumeType::ConsumePop => "CONSUME_POP",
        };
        let model = if self.is_clustering() { "CLUSTERING" } else { "BROADCASTING" };
        [
            ("consumerGroup", self.group.clone()),
            ("messageModel", model.to_owned()),
            ("allocateMessageQueueStrategy", self.settings.strategy.name()),
            ("PROP_CONSUME_TYPE", kind.to_owned()),
            ("PROP_CONSUMEORDERLY", self.is_locking.to_string()),
            ("PROP_CLIENT_VERSION", version::name(version::CURRENT)),
            ("PROP_CONSUMER_START_TIMESTAMP", self.started_ms.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Makes this consumer known: routes first, because they tell which brokers get the heartbeat.
    pub(crate) async fn introduce(&self) -> Result<(), Error> {
        for topic in self.topics() {
            if let Err(error) = self.instance.refresh_route(&topic).await {
                tracing::debug!(%error, "no route at the start");
            }
        }
        for subscription in self.subscriptions() {
            if subscription.expression_type != ferromq_protocol::body::EXPRESSION_TYPE_TAG {
                self.instance.check_subscription(&self.group, &subscription).await?;
            }
        }
        self.instance.heartbeat(Round::Changed).await;
        // The first heartbeat of a group makes its broker create the retry topic.
        let retries = retry_topic(&self.group);
        if self.is_subscribed(&retries) && self.instance.routes.get(&retries).is_none() {
            self.instance.doubt_route(&retries);
        }
        Ok(())
    }

    /// Tells stores the progress in all queues from time to time.
    pub(crate) async fn keep_offsets(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.instance.settings.persist_consumer_offset_interval).await;
            self.persist_offsets().await;
        }
    }

    pub(crate) async fn persist_offsets(&self) {
        let queues: BTreeSet<_> = self.process_queues().iter().map(|queue| queue.queue.clone()).collect();
        self.offsets.persist_all(&queues).await;
    }

    /// Where to begin in a queue (14.4).
    pub(crate) async fn first_offset(&self, queue: &MessageQueue) -> Result<i64, Error> {
        if let Some(stored) = self.offsets.load(queue).await? {
            return Ok(stored);
        }
        let is_retry = queue.topic.starts_with(RETRY_PREFIX);
        match self.settings.consume_from {
            // Whatever is to be retried was meant for this group.
            ConsumeFrom::LastOffset if is_retry => Ok(0),
            ConsumeFrom::LastOffset => self.instance.queue_end(queue, QueueEnd::Max).await,
            // Wherever the queue begins: the broker answers a pull at 0 with its real beginning.
            ConsumeFrom::FirstOffset => Ok(0),
            ConsumeFrom::Timestamp(_) if is_retry => self.instance.queue_end(queue, QueueEnd::Max).await,
            ConsumeFrom::Timestamp(time) => {
                let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
                self.instance.offset_at(queue, since.as_millis() as i64).await
            }
        }
    }

    /// Waits, but not longer than the queue is ours. False if it no longer is.
    pub(crate) async fn pause_unless_dropped(&self, queue: &ProcessQueue, time: Duration) -> bool {
        queue.run_until_dropped(tokio::time::sleep(time)).await.is_some()
    }
}
