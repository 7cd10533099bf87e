//! CONSUMER_SEND_MSG_BACK: a consumer returns a message that it could not handle (`docs/spec/03-broker.md` 2.10).

use std::sync::Arc;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::{RecordFields, RecordView, id::offset_id};
use ferromq_protocol::names;
use ferromq_protocol::version::V3_4_9;
use ferromq_remoting::Connection;

use super::{check, properties, refuse_append, retry};
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::service::Handler;
use crate::stats::StatsName;
use crate::topics::PERM_WRITE;

/// The first retry waits for the third delay level, 10 s.
const FIRST_RETRY_LEVEL: i32 = 3;

pub(crate) fn route(code: i32) -> Option<Handler> {
    // Reads the message, which may have left the page cache.
    (code == request::CONSUMER_SEND_MSG_BACK).then_some(Handler::Blocking(send_back))
}

fn send_back(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let offset: i64 = request.number("offset")?;
    let group = request.text("group")?;
    let wanted_level: i32 = request.number("delayLevel")?;
    let limit: Option<i32> = request.number_or_none("maxReconsumeTimes")?;
    let config = broker.config();
    if broker.store.is_follower() && config.enable_slave_acting_master {
        return Err(Refusal::system_error(format!("no master available along with {}", config.broker_ip1)));
    }
    if broker.store.is_follower() {
        return Err(Refusal::rejected());
    }
    let settings = broker.groups.get_or_create(&config, group).map_err(|_| retry::unknown_group(group))?;
    if config.broker_permission as i32 & PERM_WRITE == 0 {
        let remark = format!("the broker[{}] sending message is forbidden", config.broker_ip1);
        return Err(Refusal::new(response::NO_PERMISSION, remark));
    }
    let Some(retry_queue) = check::any_queue(settings.retry_queue_nums) else {
        return Ok(RemotingCommand::success());
    };
    let retry_topic =
        retry::retry_topic(broker, group, settings.retry_queue_nums, request.boolean("unitMode"));
    if retry_topic.perm & PERM_WRITE == 0 {
        let remark = format!("the topic[{}] sending message is forbidden", retry_topic.topic_name);
        return Err(Refusal::new(response::NO_PERMISSION, remark));
    }
    let missing = || Refusal::system_error(format!("look message by offset failed, {offset}"));
    let physical = u64::try_from(offset).map_err(|_| missing())?;
    let record = broker.store.record_at(physical).ok().flatten().ok_or_else(missing)?;
    let message = RecordView::parse(&record).map_err(|_| missing())?;
    let topic = message.topic().ok_or_else(missing)?;

    let limit = limit.filter(|_| request.version >= V3_4_9).unwrap_or(settings.retry_max_times);
    let tried = message.reconsume_times();
    let is_dead = tried >= limit || wanted_level < 0;
    let level = match wanted_level {
        _ if is_dead => 0,
        0 => FIRST_RETRY_LEVEL.saturating_add(tried),
        level => level,
    }
    .min(broker.schedule.level_max());

    let first_copy = offset_id(message.store_host(), physical);
    let (level_text, queue_text) = (level.to_string(), retry_queue.to_string());
    let origin_topic = message.property("RETRY_TOPIC").unwrap_or(topic);
    let mut changes = vec![
        ("RETRY_TOPIC", origin_topic),
        ("ORIGIN_MESSAGE_ID", message.property("ORIGIN_MESSAGE_ID").unwrap_or(&first_copy)),
        ("WAIT", "false"),
    ];
    let (target, queue_id) = if is_dead {
        changes.push(("DELAY", &level_text));
        (retry::dead_letter_topic(broker, group).topic_name.clone(), 0)
    } else if level > 0 {
        changes.extend(properties::delay_changes(&level_text, &retry_topic.topic_name, &queue_text));
        (names::SCHEDULE_TOPIC.to_owned(), level - 1)
    } else {
        changes.push(("DELAY", &level_text));
        (retry_topic.topic_name.clone(), retry_queue)
    };
    let stored_properties = properties::replaced(message.properties(), &changes);
    let copy = RecordFields {
        topic: &target,
        queue_id,
        flag: message.flag(),
        sys_flag: message.sys_flag(),
        born_timestamp: message.born_timestamp(),
        born_host: message.born_host(),
        store_host: broker.store_host(),
        reconsume_times: tried + 1,
        prepared_transaction_offset: 0,
        body: message.body(),
        properties: &stored_properties,
    };
    let term = broker.store.term();
    let stored = broker.put(&copy).map_err(|error| match error {
        crate::broker::PutError::Append(error) => refuse_append(broker, &error),
        crate::broker::PutError::Record(error) => Refusal::system_error(error.to_string()),
        crate::broker::PutError::Escape(error) => Refusal::system_error(error.to_string()),
    })?;
    if !broker.is_agreed(stored.end(), term) {
        return Err(Refusal::system_error("the Raft group has not agreed on the retry"));
    }
    let origin = request.field("originTopic").unwrap_or(origin_topic);
    broker.stats.item(StatsName::SNDBCK_PUT_NUMS, &format!("{origin_topic}@{group}")).add(1, 1);
    if is_dead {
        let owner = request.field("Owner").unwrap_or("null");
        let key = format!("{owner}@{origin}@{group}@SEND_BACK_TO_DLQ");
        broker.stats.item(StatsName::SNDBCK2DLQ_TIMES, &key).add(1, 1);
    }
    Ok(RemotingCommand::success())
}
