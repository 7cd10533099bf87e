//! Questions about offsets, and the commit (`docs/spec/03-broker.md` 4.6, 12.6).

use std::sync::Arc;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Connection;
use ferromq_store::{
    AcceptAll, Boundary, ConsumeQueue, ReadRequest, ReadStatus, RecordRef, RecordSink, Residency,
};

use super::Commit;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::service::Handler;

/// Field of a slave's answer to GET_ALL_CONSUMER_OFFSET: consumers have committed here what the master may not know. Not of
/// RocketMQ's protocol; its brokers ignore it.
pub(crate) const OWN_PROGRESS: &str = "ferromqOwnProgress";

pub(super) fn route(code: i32) -> Option<Handler> {
    Some(match code {
        // A group without progress makes us look for message 0, which may be on the disk.
        request::QUERY_CONSUMER_OFFSET => Handler::Blocking(query_consumer_offset),
        request::UPDATE_CONSUMER_OFFSET => Handler::Inline(update_consumer_offset),
        request::SEARCH_OFFSET_BY_TIMESTAMP => Handler::Blocking(search_offset_by_timestamp),
        request::GET_MAX_OFFSET => Handler::Inline(get_max_offset),
        request::GET_MIN_OFFSET => Handler::Inline(get_min_offset),
        request::GET_EARLIEST_MSG_STORETIME => Handler::Blocking(get_earliest_msg_storetime),
        request::GET_ALL_CONSUMER_OFFSET => Handler::Blocking(get_all_consumer_offset),
        _ => return None,
    })
}

fn query_consumer_offset(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let (group, topic) = (request.text("consumerGroup")?, request.text("topic")?);
    let queue_id: i32 = request.number("queueId")?;
    let found = |offset: i64| Ok(RemotingCommand::success().with("offset", offset));
    let pending = if broker.config().use_server_side_reset_offset {
        broker.offsets.pending_reset(group, topic, queue_id)
    } else {
        None
    };
    if let Some(offset) = pending.or_else(|| broker.offsets.committed(group, topic, queue_id)) {
        return found(offset);
    }
    if broker.config().enable_d_leger_commit_log && broker.store.is_follower() && !broker.offsets.is_kept() {
        // A member that lost its disk must not send a group back to the begin; another one knows more or becomes master soon.
        let remark = format!("this replica has not copied the progress of {group} yet, ask the master");
        return Err(Refusal::new(response::SYSTEM_BUSY, remark).with_field_map());
    }
    let not_found = |remark: &str| Err(Refusal::new(response::QUERY_NOT_FOUND, remark).with_field_map());
    if request.field("setZeroIfNotFound").is_some() && !request.boolean("setZeroIfNotFound") {
        return not_found("Not found, do not set to zero, maybe this group boot first");
    }
    if broker.store.find_queue(topic, queue_id).is_some_and(|queue| begins_in_memory(broker, &queue)) {
        // A new group on a small queue begins at its begin, wherever it wanted to begin.
        return found(0);
    }
    not_found("Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
}

/// Whether the queue's first message ever is still there, in the part of the log that is taken to be in memory.
fn begins_in_memory(broker: &Broker, queue: &ConsumeQueue) -> bool {
    struct Discard;
    impl RecordSink for Discard {
        fn push(&mut self, _: i64, _: RecordRef<'_>) {}
    }
    broker.store.dispatch_to_confirmed();
    if queue.min_offset() > 0 || queue.max_offset() <= 0 {
        return false;
    }
    let first = ReadRequest { offset: 0, max_messages: 1, max_bytes: usize::MAX, residency: Residency::Any };
    let outcome = broker.store.read(queue, first, &AcceptAll, &mut Discard);
    // A reader that lags beyond that part is told to ask a slave.
    outcome.status == ReadStatus::Found && !outcome.suggest_slave
}

fn update_consumer_offset(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let (group, topic) = (request.text("consumerGroup")?, request.text("topic")?);
    let refuse = |code, remark: String| Err(Refusal::new(code, remark).with_field_map());
    if broker.groups.get(group).is_none() {
        return refuse(response::SUBSCRIPTION_GROUP_NOT_EXIST, format!("Group {group} not exist!"));
    }
    let Some(config) = broker.topics.get(topic) else {
        return refuse(response::TOPIC_NOT_EXIST, format!("Topic {topic} not exist!"));
    };
    let Some(queue_id) = request.number_or_none::<i32>("queueId")? else {
        return refuse(response::INVALID_PARAMETER, format!("QueueId is null, topic is {topic}"));
    };
    let Some(offset) = request.number_or_none::<i64>("commitOffset")? else {
        return refuse(response::INVALID_PARAMETER, format!("Offset is null, topic is {topic}"));
    };
    let done = RemotingCommand::success().with_field_map();
    if broker.config().use_server_side_reset_offset
        && broker.offsets.pending_reset(group, topic, queue_id).is_some()
    {
        return Ok(done.with_remark("Offset has been previously reset"));
    }
    let client = connection.client_address();
    let committed = match broker.store.find_queue(topic, queue_id) {
        Some(queue) => broker.offsets.commit(&broker.store, &client, group, &queue, offset),
        None if (0..config.read_queue_nums.max(config.write_queue_nums)).contains(&queue_id) => {
            broker.offsets.commit_up_to(|| 0, &client, group, topic, queue_id, offset)
        }
        None => {
            broker.offsets.complain(|kept_quiet| {
                tracing::warn!(%client, group, topic, queue_id, offset, kept_quiet, "progress on no queue is ignored");
            });
            return Ok(
                done.with_remark(format!("queueId[{queue_id}] is not a queue of topic[{topic}], ignored"))
            );
        }
    };
    Ok(match committed {
        Commit::Done => done,
        Commit::Capped { end } => {
            done.with_remark(format!("offset {offset} is beyond the queue's end, {end} is recorded"))
        }
        Commit::Negative => done.with_remark(format!("offset {offset} is negative, ignored")),
    })
}

fn get_max_offset(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    // So that what was acknowledged is counted.
    broker.store.dispatch_to_confirmed();
    let offset = queue(broker, request)?.map_or(0, |queue| queue.max_offset());
    Ok(RemotingCommand::success().with("offset", offset))
}

fn get_min_offset(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let offset = queue(broker, request)?.map_or(0, |queue| queue.min_offset());
    Ok(RemotingCommand::success().with("offset", offset).with_remark(""))
}

fn search_offset_by_timestamp(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let timestamp = request.number("timestamp")?;
    let upper = request.field("boundaryType").is_some_and(|boundary| boundary.eq_ignore_ascii_case("upper"));
    let boundary = if upper { Boundary::Upper } else { Boundary::Lower };
    broker.store.dispatch_to_confirmed();
    let queue = queue(broker, request)?;
    let offset = queue.map_or(0, |queue| broker.store.offset_by_time(&queue, timestamp, boundary));
    Ok(RemotingCommand::success().with("offset", offset))
}

fn get_earliest_msg_storetime(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    broker.store.dispatch_to_confirmed();
    let timestamp = queue(broker, request)?.and_then(|queue| broker.store.earliest_time(&queue));
    Ok(RemotingCommand::success().with("timestamp", timestamp.unwrap_or(-1)))
}

/// The queue that the request names, if it is known. Other than in Java, asking makes no queue.
fn queue(broker: &Broker, request: &RemotingCommand) -> Result<Option<Arc<ConsumeQueue>>, Refusal> {
    Ok(broker.store.find_queue(request.text("topic")?, request.number("queueId")?))
}

fn get_all_consumer_offset(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    let answer = RemotingCommand::success().with_body(json::to_vec(&broker.offsets.snapshot()));
    // A master of ours that returns wants to know.
    let has_own = broker.store.is_follower() && broker.offsets.has_own();
    Ok(answer.with_some(OWN_PROGRESS, has_own.then_some(true)))
}
