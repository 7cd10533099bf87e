//! HEART_BEAT (34) and UNREGISTER_CLIENT (35) (`docs/spec/03-broker.md` 4.1 to 4.3).

use std::sync::Arc;
use std::time::Instant;

use ferromq_protocol::body::{ConsumeType, ConsumerData, HeartbeatData, SubscriptionGroupConfig};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::retry_topic;
use ferromq_remoting::Connection;

use super::group::Membership;
use super::{Client, calls};
use crate::answer::Answer;
use crate::broker::Broker;
use crate::clock;
use crate::service::Handler;

/// Bit of a topic's `topicSysFlag`: units subscribe to it.
const TOPIC_SYS_FLAG_UNIT_SUB: i32 = 2;

pub(super) fn route(code: i32) -> Option<Handler> {
    Some(match code {
        request::HEART_BEAT => Handler::Inline(heart_beat),
        request::UNREGISTER_CLIENT => Handler::Inline(unregister_client),
        _ => return None,
    })
}

fn heart_beat(broker: &Arc<Broker>, connection: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let beat: HeartbeatData = json::from_slice(&request.body)?;
    let client = Client {
        connection: connection.clone(),
        client_id: beat.client_id.as_str().into(),
        language: request.language,
        version: request.version,
        heard: Instant::now(),
        heard_ms: clock::now_ms(),
    };
    let classic = beat.heartbeat_fingerprint == 0;
    let mut sub_change = classic;
    for data in &beat.consumer_data_set {
        if let Some(changed) = register_consumer(broker, &client, data, &beat) {
            sub_change |= changed;
        }
    }
    for data in &beat.producer_data_set {
        broker.producers.register(&data.group_name, &client);
    }
    Ok(RemotingCommand::success().with("IS_SUPPORT_HEART_BEAT_V2", true).with("IS_SUB_CHANGE", sub_change))
}

/// Registers one group of the client, and says whether the client has to tell its subscriptions. `None`: the group is
/// passed over without a word, because a heartbeat can't say what is wrong with one of its groups; the pulls will be told.
fn register_consumer(
    broker: &Arc<Broker>,
    client: &Client,
    data: &ConsumerData,
    beat: &HeartbeatData,
) -> Option<bool> {
    let config = broker.config();
    if config.reject_pull_consumer_enable && data.consume_type == Some(ConsumeType::ConsumeActively) {
        return None;
    }
    let group = broker.groups.get_or_create(&config, &data.group_name).ok()?;
    make_retry_topic(broker, &group, data, beat.without_sub);
    let registered = broker.consumers.register(&Membership {
        client,
        data,
        fingerprint: beat.heartbeat_fingerprint,
        without_sub: beat.without_sub,
        now_ms: client.heard_ms,
    });
    broker.locks.adopt(&data.group_name, &client.client_id, client.connection.id(), client.heard);
    if registered.changed {
        calls::notify_consumer_ids_changed(broker, &data.group_name);
    }
    Some(registered.sub_change)
}

fn make_retry_topic(
    broker: &Broker,
    group: &SubscriptionGroupConfig,
    data: &ConsumerData,
    without_sub: bool,
) {
    let topic = retry_topic(&group.group_name);
    // A short heartbeat does not say whether the group consumes in order, so it can't change that.
    if without_sub && broker.topics.contains(&topic) {
        return;
    }
    let is_ordered = |topic: &str| broker.topics.get(topic).is_some_and(|topic| topic.order);
    let order = data.subscription_data_set.iter().any(|subscription| is_ordered(&subscription.topic));
    let sys_flag = if data.unit_mode { TOPIC_SYS_FLAG_UNIT_SUB } else { 0 };
    broker.topics.create_by_send_back(&topic, group.retry_queue_nums, order, sys_flag);
}

fn unregister_client(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    if let Some(group) = request.field("producerGroup") {
        broker.producers.unregister(connection.id(), group);
    }
    if let Some(group) = request.field("consumerGroup") {
        // Java tells the members even if a stranger leaves.
        if broker.consumers.unregister(connection.id(), group) {
            calls::notify_consumer_ids_changed(broker, group);
        }
    }
    Ok(RemotingCommand::success().with_field_map())
}
