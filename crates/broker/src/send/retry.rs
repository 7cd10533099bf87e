//! Messages that a consumer could not handle: where they go next (`docs/spec/03-broker.md` 2.6 step 2, 2.10).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use ferromq_protocol::body::TopicConfig;
use ferromq_protocol::code::response;
use ferromq_protocol::names;
use ferromq_protocol::send::SendHeader;
use ferromq_protocol::version::V3_4_9;

use super::Target;
use super::check::UNIT_SUBSCRIPTION;
use crate::answer::{FAQ, Refusal};
use crate::broker::Broker;

/// The dead letter queue, if a message that a consumer sends to its retry topic has been tried often enough.
///
/// `group` is what follows the retry prefix.
pub(super) fn dead_letter_target(
    broker: &Arc<Broker>,
    group: &str,
    header: &SendHeader<'_>,
    version: i32,
) -> Result<Option<Target<'static>>, Refusal> {
    // The retry topic of a POP group is `%RETRY%group+topic`.
    let group = match group.split_once('+') {
        Some((group, topic)) if !topic.contains('+') => group,
        _ => group,
    };
    let settings = broker.groups.get_or_create(&broker.config(), group).map_err(|_| unknown_group(group))?;
    let limit = header.max_reconsume_times.filter(|_| version >= V3_4_9).unwrap_or(settings.retry_max_times);
    // A group that consumes in order must not see a message again behind later ones.
    if header.reconsume_times <= limit && !broker.locks.has_live_lock(group, Instant::now()) {
        return Ok(None);
    }
    Ok(Some(Target { topic: Cow::Owned(dead_letter_topic(broker, group).topic_name.clone()), queue_id: 0 }))
}

pub(super) fn unknown_group(group: &str) -> Refusal {
    let remark = format!("subscription group not exist, {group} {FAQ}");
    Refusal::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
}

/// The group's dead letter topic, made now if there is none.
pub(super) fn dead_letter_topic(broker: &Broker, group: &str) -> Arc<TopicConfig> {
    broker.topics.create_by_send_back(&names::dlq_topic(group), 1, false, 0)
}

/// The group's retry topic, made now if there is none.
pub(super) fn retry_topic(broker: &Broker, group: &str, queues: i32, unit_mode: bool) -> Arc<TopicConfig> {
    let sys_flag = if unit_mode { UNIT_SUBSCRIPTION } else { 0 };
    broker.topics.create_by_send_back(&names::retry_topic(group), queues, false, sys_flag)
}
