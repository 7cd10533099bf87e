//! How far groups have come (`docs/spec/10-admin.md` 19).
//!
//! What is reported is what a group has yet to get: progress beyond a queue's end, which old files may hold, counts as
//! its end, so that no backlog is negative.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_protocol::body::{ConsumeStats, ConsumeStatsList, MessageQueue, OffsetWrapper, TopicConfig};
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;

use super::answer_body;
use crate::answer::Answer;
use crate::broker::Broker;

/// GET_CONSUME_STATS: one group, in the topics that are asked for or else in all in which it has got somewhere.
pub(super) fn get_consume_stats(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let group = request.text("consumerGroup")?;
    broker.store.dispatch_to_confirmed();
    let mut all = ConsumeStats::default();
    for topic in asked_topics(request).unwrap_or_else(|| broker.offsets.topics_of(group)) {
        if let Some(stats) = consume_stats(broker, group, &topic, |_| true) {
            all.consume_tps += stats.consume_tps;
            all.offset_table.extend(stats.offset_table);
        }
    }
    answer_body(&all)
}

/// The topics that a request names; `None` means all.
fn asked_topics(request: &RemotingCommand) -> Option<Vec<String>> {
    let given = |field| request.field(field).map(str::trim).filter(|text| !text.is_empty());
    match given("topicList") {
        Some(list) => Some(
            list.split(';').map(str::trim).filter(|topic| !topic.is_empty()).map(str::to_owned).collect(),
        ),
        None => given("topic").map(|topic| vec![topic.to_owned()]),
    }
}

/// GET_BROKER_CONSUME_STATS: every group; with `isOrder` only in ordered topics.
pub(super) fn get_broker_consume_stats(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let only_ordered = request.boolean("isOrder");
    broker.store.dispatch_to_confirmed();
    let mut list = ConsumeStatsList {
        broker_addr: Some(broker.config().broker_address()),
        ..ConsumeStatsList::default()
    };
    for group in broker.groups.all() {
        let group = &group.group_name;
        let topics = broker.offsets.topics_of(group);
        let stats: Vec<ConsumeStats> = topics
            .iter()
            .filter_map(|topic| consume_stats(broker, group, topic, |config| config.order || !only_ordered))
            .collect();
        for offsets in stats.iter().flat_map(|stats| stats.offset_table.values()) {
            list.total_diff += offsets.broker_offset - offsets.consumer_offset;
            list.total_inflight_diff += offsets.pull_offset - offsets.consumer_offset;
        }
        list.consume_stats_list.push(BTreeMap::from([(group.clone(), stats)]));
    }
    answer_body(&list)
}

/// How far a group has come in each queue of a topic that can be read. `None` if the topic is not configured or not
/// wanted, or if the group is online and no longer subscribes to it.
fn consume_stats(
    broker: &Broker,
    group: &str,
    topic: &str,
    is_wanted: impl Fn(&TopicConfig) -> bool,
) -> Option<ConsumeStats> {
    let config = broker.topics.get(topic).filter(|config| is_wanted(config))?;
    if broker.consumers.subscribes(group, topic) == Some(false) {
        return None;
    }
    let broker_name = &broker.config().broker_name;
    let queues = (0..config.read_queue_nums).map(|queue_id| {
        (MessageQueue::new(topic, broker_name, queue_id), offsets_of_queue(broker, group, topic, queue_id))
    });
    Some(ConsumeStats {
        offset_table: queues.collect(),
        consume_tps: broker.stats.group_get_tps(topic, group),
    })
}

fn offsets_of_queue(broker: &Broker, group: &str, topic: &str, queue_id: i32) -> OffsetWrapper {
    let queue = broker.store.find_queue(topic, queue_id);
    let broker_offset = queue.as_ref().map_or(0, |queue| queue.max_offset());
    let committed = broker.offsets.committed(group, topic, queue_id).unwrap_or(0);
    let consumer_offset = committed.clamp(0, broker_offset);
    let pulled = broker.offsets.pulled(group, topic, queue_id).unwrap_or(0);
    let last_consumed = queue.and_then(|queue| broker.store.store_time_at(&queue, consumer_offset - 1));
    OffsetWrapper {
        broker_offset,
        consumer_offset,
        last_timestamp: last_consumed.unwrap_or(0),
        pull_offset: pulled.clamp(consumer_offset, broker_offset),
    }
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::code::request;

    use super::*;

    #[test]
    fn a_list_of_topics_wins_over_one() {
        let request = RemotingCommand::request(request::GET_CONSUME_STATS);
        assert_eq!(asked_topics(&request), None);
        let request = request.with("topic", "T");
        assert_eq!(asked_topics(&request), Some(vec!["T".to_owned()]));
        let request = request.with("topicList", "A; B;");
        assert_eq!(asked_topics(&request), Some(vec!["A".to_owned(), "B".to_owned()]));
        assert_eq!(asked_topics(&request.with("topicList", " ").with("topic", "")), None);
    }
}
