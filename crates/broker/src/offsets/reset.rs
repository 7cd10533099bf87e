//! Moving groups: INVOKE_BROKER_TO_RESET_OFFSET (222) and CLONE_GROUP_OFFSET (314) (`docs/spec/03-broker.md` 4.6).

use std::sync::Arc;

use ferromq_protocol::body::{MessageQueue, ResetOffsetBody, TopicConfig};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::version::Language;
use ferromq_remoting::Connection;
use ferromq_store::Boundary;

use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::client::calls::{self, ClientReset};
use crate::service::Handler;

pub(super) fn route(code: i32) -> Option<Handler> {
    Some(match code {
        request::INVOKE_BROKER_TO_RESET_OFFSET => Handler::Blocking(reset_offset),
        request::CLONE_GROUP_OFFSET => Handler::Blocking(clone_group_offset),
        _ => return None,
    })
}

/// What the request asks for.
struct Wanted<'r> {
    group: &'r str,
    topic: &'r str,
    timestamp: i64,
    is_force: bool,
}

fn reset_offset(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    if broker.store.is_follower() {
        return Err(Refusal::system_error("Can not reset offset in slave broker"));
    }
    let wanted = Wanted {
        group: request.text("group")?,
        topic: request.text("topic")?,
        timestamp: request.number("timestamp")?,
        is_force: request.boolean("isForce"),
    };
    let queue_id = request.number_or_none("queueId")?.filter(|queue_id: &i32| *queue_id >= 0);
    let offset = request.number_or_none("offset")?.filter(|offset: &i64| *offset != -1);
    broker.store.dispatch_to_confirmed();
    let body = if broker.config().use_server_side_reset_offset {
        reset_here(broker, &wanted, queue_id, offset)?
    } else {
        reset_at_clients(broker, &wanted, request.language == Some(Language::CPP))?
    };
    Ok(RemotingCommand::success().with_body(json::to_vec(&body)))
}

/// Moves the group whether or not its consumers are connected: their next pulls are sent to the new offsets.
fn reset_here(
    broker: &Broker,
    wanted: &Wanted<'_>,
    queue_id: Option<i32>,
    offset: Option<i64>,
) -> Result<ResetOffsetBody, Refusal> {
    let Wanted { group, topic, timestamp, .. } = *wanted;
    let config = topic_config(broker, topic)?;
    if broker.groups.get(group).is_none() {
        let remark = format!("Group {group} does not exist");
        return Err(Refusal::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
    }
    let targets: Vec<(i32, i64)> = match (queue_id, offset) {
        (Some(queue_id), Some(offset)) => {
            let (min, max) = range(broker, topic, queue_id);
            if !(min..=max.saturating_add(1)).contains(&offset) {
                return Err(Refusal::system_error(format!(
                    "Target offset {offset} not in consume queue range [{min}-{max}]"
                )));
            }
            vec![(queue_id, offset)]
        }
        (Some(queue_id), None) => vec![(queue_id, offset_at(broker, topic, queue_id, timestamp))],
        (None, _) => (0..config.read_queue_nums)
            .map(|queue_id| (queue_id, offset_at(broker, topic, queue_id, timestamp)))
            .collect(),
    };
    let mut body = ResetOffsetBody::default();
    for (queue_id, target) in targets {
        // One behind the end is a legal target, but no progress.
        let committed = target.min(range(broker, topic, queue_id).1);
        broker.offsets.reset(group, topic, queue_id, target, committed);
        body.offset_table.insert(message_queue(broker, topic, queue_id), target);
        // Pulls that wait for messages shall not wait for the reset as well.
        if let Some(queue) = broker.store.find_queue(topic, queue_id) {
            broker.held_pulls.wake_queue(&queue);
        }
    }
    tracing::info!(group, topic, timestamp, ?offset, queues = body.offset_table.len(), "offsets were reset");
    Ok(body)
}

/// Tells the connected consumers to move by themselves (`useServerSideResetOffset=false`).
fn reset_at_clients(broker: &Broker, wanted: &Wanted<'_>, for_cpp: bool) -> Result<ResetOffsetBody, Refusal> {
    let Wanted { group, topic, timestamp, is_force } = *wanted;
    let config = topic_config(broker, topic)?;
    let mut body = ResetOffsetBody::default();
    for queue_id in 0..config.write_queue_nums {
        let Some(committed) = broker.offsets.committed(group, topic, queue_id) else {
            return Err(Refusal::system_error(format!("THe consumer group <{group}> not exist")));
        };
        let target = offset_at(broker, topic, queue_id, timestamp);
        let target = if is_force { target } else { target.min(committed) };
        body.offset_table.insert(message_queue(broker, topic, queue_id), target);
    }
    let reset = ClientReset { group, topic, timestamp, is_force, offsets: &body, for_cpp };
    calls::reset_offsets(broker, &reset)?;
    Ok(body)
}

fn topic_config(broker: &Broker, topic: &str) -> Result<Arc<TopicConfig>, Refusal> {
    let missing = || Refusal::new(response::TOPIC_NOT_EXIST, format!("Topic {topic} does not exist"));
    broker.topics.get(topic).ok_or_else(missing)
}

fn message_queue(broker: &Broker, topic: &str, queue_id: i32) -> MessageQueue {
    MessageQueue::new(topic, &broker.config().broker_name, queue_id)
}

/// First offset of a queue, and the one behind its last message.
fn range(broker: &Broker, topic: &str, queue_id: i32) -> (i64, i64) {
    let queue = broker.store.find_queue(topic, queue_id);
    queue.map_or((0, 0), |queue| (queue.min_offset(), queue.max_offset()))
}

/// Offset of the first message stored at or after the time; a negative time means the end.
fn offset_at(broker: &Broker, topic: &str, queue_id: i32, timestamp: i64) -> i64 {
    let Some(queue) = broker.store.find_queue(topic, queue_id) else { return 0 };
    if timestamp < 0 {
        return queue.max_offset();
    }
    broker.store.offset_by_time(&queue, timestamp, Boundary::Lower)
}

fn clone_group_offset(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let (from, to) = (request.text("srcGroup")?, request.text("destGroup")?);
    // Java does nothing useful without a topic; here it means all of the group's topics.
    let topic = request.field("topic").filter(|topic| !topic.trim().is_empty());
    broker.offsets.clone_group(from, to, topic);
    tracing::info!(from, to, topic, "offsets were cloned");
    Ok(RemotingCommand::success())
}
