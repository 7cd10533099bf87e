//! Whether a send may be stored, and in which topic and queue (`docs/spec/03-broker.md` 2.3 to 2.5).

use std::sync::Arc;

use ferromq_protocol::body::{TopicConfig, TopicFilterType};
use ferromq_protocol::code::response;
use ferromq_protocol::names;
use ferromq_protocol::send::SendHeader;
use ferromq_remoting::Connection;
use ferromq_store::ConsumeQueue;
use jiff::tz::TimeZone;

use crate::answer::{FAQ, Refusal};
use crate::broker::Broker;
use crate::clock;
use crate::config::BrokerConfig;
use crate::stats::{StatsItem, TopicPutStats};
use crate::topics::{NotCreated, PERM_WRITE, TopicText};

/// Bits of a topic's `topicSysFlag`.
const UNIT: i32 = 1;
pub(super) const UNIT_SUBSCRIPTION: i32 = 2;

/// Refuses sends before the time that `startAcceptSendRequestTimeStamp` names.
pub(super) fn accepts_sends_now(config: &BrokerConfig) -> Result<(), Refusal> {
    let from = i64::try_from(config.start_accept_send_request_time_stamp).unwrap_or(i64::MAX);
    if from == 0 || clock::now_ms() >= from {
        return Ok(());
    }
    let time = jiff::Timestamp::from_millisecond(from).map(|time| time.to_zoned(TimeZone::system()));
    let text =
        time.map_or_else(|_| from.to_string(), |time| time.strftime("%Y-%m-%d %H:%M:%S,%3f").to_string());
    Err(Refusal::system_error(format!("broker unable to service, until {text}")))
}

pub(super) fn is_multi_tag(topic: &TopicConfig) -> bool {
    topic.topic_filter_type == TopicFilterType::MultiTag
}

pub(super) fn is_compacted(topic: &TopicConfig) -> bool {
    topic.attributes.get("cleanup.policy").is_some_and(|policy| policy == "COMPACTION")
}

/// The queue that a message is stored in: the one that its sender names, or any (2.6 step 1).
pub(super) fn choose_queue(wanted: i32, topic: &TopicConfig) -> Result<i32, Refusal> {
    if wanted >= 0 {
        return Ok(wanted);
    }
    any_queue(topic.write_queue_nums)
        .ok_or_else(|| Refusal::system_error(format!("topic[{}] has no write queue", topic.topic_name)))
}

/// One of so many queues; `None` of none.
pub(crate) fn any_queue(queues: i32) -> Option<i32> {
    use std::cell::Cell;
    thread_local! {
        /// Spreads messages evenly, which is what choosing at random is for.
        static NEXT: Cell<u32> = const { Cell::new(0) };
    }
    let queues = u32::try_from(queues).ok().filter(|queues| *queues > 0)?;
    let next = NEXT.replace(NEXT.get().wrapping_add(1));
    Some((next % queues) as i32)
}

/// The topic that a connection sent to last, checked, with its queues: most senders send to one topic.
#[derive(Debug, Default)]
pub(crate) struct TopicLookup {
    version: u64,
    topic: Option<Arc<TopicConfig>>,
    queues: Vec<Option<Arc<QueueTarget>>>,
}

/// A queue to store into, and where that is counted.
#[derive(Debug)]
pub(super) struct QueueTarget {
    pub(super) queue: Arc<ConsumeQueue>,
    pub(super) stats: TopicPutStats,
    pub(super) latency: Arc<StatsItem>,
}

impl QueueTarget {
    pub(super) fn new(broker: &Broker, topic: &str, queue_id: i32) -> Arc<Self> {
        Arc::new(Self {
            queue: broker.store.queue(topic, queue_id),
            stats: broker.stats.topic_put(topic),
            latency: broker.stats.topic_put_latency(topic, queue_id),
        })
    }
}

impl TopicLookup {
    /// The topic of a send, after all checks of 2.4; created if it may be (2.5).
    pub(super) fn checked(
        &mut self,
        broker: &Arc<Broker>,
        config: &BrokerConfig,
        connection: &Connection,
        header: &SendHeader<'_>,
    ) -> Result<Arc<TopicConfig>, Refusal> {
        let version = broker.topics.version();
        let known =
            self.topic.as_ref().filter(|topic| self.version == version && topic.topic_name == *header.topic);
        let topic = match known {
            Some(topic) => topic.clone(),
            None => {
                let topic = look_up(broker, config, connection, header)?;
                *self = Self { version, topic: Some(topic.clone()), queues: Vec::new() };
                topic
            }
        };
        if topic.order && config.broker_permission as i32 & PERM_WRITE == 0 {
            let remark = format!("the broker[{}] sending message is forbidden", config.broker_ip1);
            return Err(Refusal::new(response::NO_PERMISSION, remark));
        }
        if header.queue_id >= topic.write_queue_nums.max(topic.read_queue_nums) {
            return Err(illegal_queue(header.queue_id, &topic, connection));
        }
        Ok(topic)
    }

    /// A queue of the topic that was checked last.
    pub(super) fn queue(&mut self, broker: &Broker, queue_id: i32) -> Arc<QueueTarget> {
        /// Queues above this are looked up each time: a topic can have very many.
        const REMEMBERED_MAX: usize = 64;
        let topic = self.topic.as_ref().expect("a topic was checked before its queue is asked for");
        let position = usize::try_from(queue_id).unwrap_or(usize::MAX);
        if position >= REMEMBERED_MAX {
            return QueueTarget::new(broker, &topic.topic_name, queue_id);
        }
        if self.queues.len() <= position {
            self.queues.resize(position + 1, None);
        }
        let target = || QueueTarget::new(broker, &topic.topic_name, queue_id);
        self.queues[position].get_or_insert_with(target).clone()
    }
}

fn illegal_queue(queue_id: i32, topic: &TopicConfig, connection: &Connection) -> Refusal {
    let producer = connection.client_address();
    let remark = format!("request queueId[{queue_id}] is illegal, {} Producer: {producer}", TopicText(topic));
    Refusal::new(response::INVALID_PARAMETER, remark)
}

fn look_up(
    broker: &Arc<Broker>,
    config: &BrokerConfig,
    connection: &Connection,
    header: &SendHeader<'_>,
) -> Result<Arc<TopicConfig>, Refusal> {
    let topic = &*header.topic;
    names::check_topic(topic)
        .map_err(|error| Refusal::new(response::INVALID_PARAMETER, error.to_string()))?;
    if names::is_forbidden_to_clients(topic) {
        let remark = format!("Sending message to topic[{topic}] is forbidden.");
        return Err(Refusal::new(response::NO_PERMISSION, remark));
    }
    if let Some(known) = broker.topics.get(topic) {
        return Ok(known);
    }
    tracing::info!(topic, peer = %connection.client_address(), "topic is unknown, creating it");
    let sys_flag = match (header.unit_mode, topic.starts_with(names::RETRY_PREFIX)) {
        (false, _) => 0,
        (true, true) => UNIT_SUBSCRIPTION,
        (true, false) => UNIT,
    };
    let default_topic = header.default_topic.as_deref().unwrap_or_default();
    match broker.topics.create_by_send(
        config,
        topic,
        default_topic,
        header.default_topic_queue_nums,
        sys_flag,
    ) {
        Ok(created) => Ok(created),
        Err(_) if topic.starts_with(names::RETRY_PREFIX) => {
            Ok(broker.topics.create_by_send_back(topic, 1, false, sys_flag))
        }
        Err(NotCreated::NoQueues(topic)) => Err(illegal_queue(header.queue_id.max(0), &topic, connection)),
        Err(reason) => {
            tracing::warn!(topic, %reason, peer = %connection.client_address(), "a message's topic is not created");
            let remark = format!("topic[{topic}] not exist, apply first please!{FAQ}");
            Err(Refusal::new(response::TOPIC_NOT_EXIST, remark))
        }
    }
}
