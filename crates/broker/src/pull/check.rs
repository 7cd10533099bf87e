//! Whether a consumer may pull (`docs/spec/03-broker.md` 3.2).

use std::sync::Arc;

use ferromq_protocol::body::{ConsumeType, EXPRESSION_TYPE_TAG, MessageModel};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_protocol::header::{FieldOut, Head, write_response};
use ferromq_protocol::{names, pull};
use ferromq_remoting::Connection;

use super::filter::{TagFilter, is_tag_type};
use super::{Asked, Checked};
use crate::answer::{FAQ, Refusal};
use crate::broker::Broker;
use crate::clock;
use crate::topics::PERM_READ;

/// Why a NO_PERMISSION answer was given: the `forbiddenType` of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forbidden {
    Broker = 1,
    Group = 2,
    Topic = 3,
    Broadcasting = 4,
    Subscription = 5,
}

/// A pull that is not served.
#[derive(Debug)]
pub(super) struct PullRefusal {
    refusal: Refusal,
    forbidden: Option<Forbidden>,
}

impl PullRefusal {
    fn new(code: i32, remark: String) -> Self {
        Self { refusal: Refusal::new(code, remark).with_field_map(), forbidden: None }
    }

    /// A request that could not be read: its answer has no field map at all.
    pub(super) fn bare(refusal: Refusal) -> Self {
        Self { refusal, forbidden: None }
    }

    fn no_permission(why: Forbidden, remark: String) -> Self {
        Self { forbidden: Some(why), ..Self::new(response::NO_PERMISSION, remark) }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, encoding: HeaderEncoding, opaque: i32) {
        let head = Head::response(self.refusal.code, opaque, Some(&self.refusal.remark));
        let forbidden = self.forbidden.map(|why| ("forbiddenType", FieldOut::Number(why as i64)));
        let fields = self.refusal.field_map.then(|| forbidden.into_iter());
        write_response(out, encoding, &head, fields, b"");
    }
}

pub(super) fn check(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    asked: &Asked<'_>,
) -> Result<Checked, PullRefusal> {
    let config = broker.config();
    let header = &asked.header;
    let (group_name, topic_name) = (&*header.consumer_group, &*header.topic);
    if broker.store.is_follower() && !config.slave_read_enable {
        return Err(PullRefusal::bare(Refusal::rejected()));
    }
    if config.broker_permission as i32 & PERM_READ == 0 {
        let remark = format!("the broker[{}] pulling message is forbidden", config.broker_ip1);
        return Err(PullRefusal::no_permission(Forbidden::Broker, remark));
    }
    if asked.code == request::LITE_PULL_MESSAGE && !config.lite_pull_message_enable {
        let remark = format!("the broker[{}] for lite pull consumer is forbidden", config.broker_ip1);
        return Err(PullRefusal::no_permission(Forbidden::Broker, remark));
    }
    let group = broker.groups.get_or_create(&config, group_name).map_err(|_| {
        let remark = format!("subscription group [{group_name}] does not exist, {FAQ}");
        PullRefusal::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    })?;
    if !group.consume_enable {
        let remark = format!("subscription group no permission, {group_name}");
        return Err(PullRefusal::no_permission(Forbidden::Group, remark));
    }
    let topic = broker.topics.get(topic_name).ok_or_else(|| {
        let remark = format!("topic[{topic_name}] not exist, apply first please! {FAQ}");
        PullRefusal::new(response::TOPIC_NOT_EXIST, remark)
    })?;
    if topic.perm & PERM_READ == 0 {
        let remark = format!("the topic[{topic_name}] pulling message is forbidden");
        return Err(PullRefusal::no_permission(Forbidden::Topic, remark));
    }
    if !(0..topic.read_queue_nums).contains(&header.queue_id) {
        let remark = format!(
            "queueId[{}] is illegal, topic:[{topic_name}] topicConfig.readQueueNums:[{}] consumer:[/{}]",
            header.queue_id,
            topic.read_queue_nums,
            connection.client_address()
        );
        return Err(PullRefusal::new(response::INVALID_PARAMETER, remark));
    }
    let filter = if header.has(pull::FLAG_SUBSCRIPTION) {
        carried_subscription(broker, asked)?
    } else {
        registered_subscription(broker, connection, asked, group.consume_broadcast_enable)?
    };
    if config.reject_pull_consumer_enable && is_rejected(broker, connection, group_name) {
        let remark =
            format!("the consumer's group info not exist, or the pull consumer is rejected by server.{FAQ}");
        return Err(PullRefusal::new(response::SUBSCRIPTION_NOT_EXIST, remark));
    }
    let queue = broker.store.queue(topic_name, header.queue_id);
    Ok(Checked { topic, group, filter, queue })
}

/// The subscription in the pull itself.
fn carried_subscription(broker: &Broker, asked: &Asked<'_>) -> Result<TagFilter, PullRefusal> {
    let header = &asked.header;
    let expression = header.subscription.as_deref().unwrap_or_default();
    let expression_type = header.expression_type.as_deref();
    if !is_tag_type(expression_type) {
        return Err(unsupported(expression_type.unwrap_or_default()));
    }
    let filter = TagFilter::from_expression(expression).ok_or_else(|| {
        let remark = "parse the consumer's subscription failed".to_owned();
        PullRefusal::new(response::SUBSCRIPTION_PARSE_FAILED, remark)
    })?;
    let (group, topic) = (&*header.consumer_group, &*header.topic);
    broker.consumers.compensation.told(
        group,
        topic,
        (EXPRESSION_TYPE_TAG, expression),
        clock::now_ms(),
        || filter.to_subscription(topic, expression, header.sub_version),
    );
    Ok(filter)
}

/// The subscription that the consumer registered with its heartbeats.
fn registered_subscription(
    broker: &Broker,
    connection: &Connection,
    asked: &Asked<'_>,
    broadcast_enabled: bool,
) -> Result<TagFilter, PullRefusal> {
    let header = &asked.header;
    let (group, topic) = (&*header.consumer_group, &*header.topic);
    let Some(consumer) = broker.consumers.for_pull(connection.id(), group, topic) else {
        let remark = format!("the consumer's group info not exist{FAQ}");
        return Err(PullRefusal::new(response::SUBSCRIPTION_NOT_EXIST, remark));
    };
    if !broadcast_enabled && consumer.message_model == Some(MessageModel::Broadcasting) {
        let remark = format!("the consumer group[{group}] can not consume by broadcast way");
        return Err(PullRefusal::no_permission(Forbidden::Broadcasting, remark));
    }
    if broker.groups.is_read_forbidden(group, topic) {
        let remark = format!("the consumer group[{group}] is forbidden for topic[{topic}]");
        return Err(PullRefusal::no_permission(Forbidden::Subscription, remark));
    }
    let Some(subscription) = consumer.subscription else {
        let remark = format!("the consumer's subscription not exist{FAQ}");
        return Err(PullRefusal::new(response::SUBSCRIPTION_NOT_EXIST, remark));
    };
    if subscription.sub_version < header.sub_version {
        let remark = "the consumer's subscription not latest".to_owned();
        return Err(PullRefusal::new(response::SUBSCRIPTION_NOT_LATEST, remark));
    }
    if !is_tag_type(Some(&subscription.expression_type)) {
        return Err(unsupported(&subscription.expression_type));
    }
    Ok(TagFilter::from_subscription(&subscription))
}

/// Whether `rejectPullConsumerEnable` shuts this consumer out: only members of a group may pull for it.
fn is_rejected(broker: &Broker, connection: &Connection, group: &str) -> bool {
    if names::is_system_group(group) {
        return false;
    }
    match broker.consumers.model(group) {
        None => true,
        Some((Some(ConsumeType::ConsumeActively), _)) => {
            !broker.consumers.clients(group).iter().any(|client| client.connection.id() == connection.id())
        }
        Some(_) => false,
    }
}

/// Expressions over properties are not evaluated by this broker, whatever `enablePropertyFilter` says.
fn unsupported(expression_type: &str) -> PullRefusal {
    let remark = format!("The broker does not support consumer to filter message by {expression_type}");
    PullRefusal::new(response::SYSTEM_ERROR, remark)
}
