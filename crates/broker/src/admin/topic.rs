//! What the broker knows about its topics (`docs/spec/03-broker.md` 12.6).

use std::collections::BTreeSet;
use std::sync::Arc;

use ferromq_protocol::body::{
    GroupList, MessageQueue, TopicConfigAndMappingSerializeWrapper, TopicConfigAndQueueMapping, TopicList,
    TopicOffset, TopicStatsTable,
};
use ferromq_protocol::code::response;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Connection;
use ferromq_store::{ConsumeQueue, Store};

use super::answer_body;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// GET_ALL_TOPIC_CONFIG: all of them. As up to 5.3.3 there are no pages: clients that ask for pages see by the missing
/// total that this is everything, and the paging of theirs loses a topic now and then. Slaves also learn which topics were deleted.
pub(super) fn get_all_topic_config(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    let topics = broker.topics.snapshot();
    let body = TopicConfigAndMappingSerializeWrapper {
        data_version: topics.data_version,
        topic_config_table: topics.topic_config_table,
        deleted_topics: broker.store.deleted_topics(),
        ..TopicConfigAndMappingSerializeWrapper::default()
    };
    Ok(RemotingCommand::success().with_field_map().with_body(json::to_vec(&body)))
}

/// GET_TOPIC_CONFIG.
pub(super) fn get_topic_config(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let topic = request.text("topic")?;
    let Some(config) = broker.topics.get(topic) else {
        let remark = format!("No topic in this broker. topic: {topic}");
        return Err(Refusal::new(response::TOPIC_NOT_EXIST, remark));
    };
    let topic_config = Arc::unwrap_or_clone(config);
    answer_body(&TopicConfigAndQueueMapping { topic_config, mapping_detail: None })
}

/// GET_TOPIC_STATS_INFO: the begin and end of every queue that can be read or written.
pub(super) fn get_topic_stats_info(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let topic = request.text("topic")?;
    let Some(config) = broker.topics.get(topic) else { return Err(unknown_topic(topic)) };
    broker.store.dispatch_to_confirmed();
    let broker_name = &broker.config().broker_name;
    let queues = 0..config.read_queue_nums.max(config.write_queue_nums);
    let offset_table = queues.map(|queue_id| {
        let queue = broker.store.find_queue(topic, queue_id);
        let offset = queue.map(|queue| topic_offset(&broker.store, &queue)).unwrap_or_default();
        (MessageQueue::new(topic, broker_name, queue_id), offset)
    });
    answer_body(&TopicStatsTable {
        offset_table: offset_table.collect(),
        topic_put_tps: broker.stats.topic_put_tps(topic),
    })
}

fn topic_offset(store: &Store, queue: &ConsumeQueue) -> TopicOffset {
    let max_offset = queue.max_offset();
    TopicOffset {
        last_update_timestamp: store.store_time_at(queue, max_offset - 1).unwrap_or(0),
        max_offset,
        min_offset: queue.min_offset(),
    }
}

/// GET_SYSTEM_TOPIC_LIST_FROM_BROKER.
pub(super) fn get_system_topic_list(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    _: &RemotingCommand,
) -> Answer {
    let topic_list = broker.topics.system_topics().iter().cloned().collect();
    answer_body(&TopicList { broker_addr: None, topic_list })
}

/// QUERY_TOPIC_CONSUME_BY_WHO: the groups that subscribe to a topic now, and those that have got somewhere in it.
///
/// 5.3.3 names the topic instead of the former, and so shows a group that does not exist.
pub(super) fn query_topic_consume_by_who(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let topic = request.text("topic")?;
    let mut group_list: BTreeSet<String> = broker.offsets.groups_of(topic).into_iter().collect();
    group_list.extend(broker.consumers.groups_subscribing_to(topic));
    answer_body(&GroupList { group_list })
}

/// QUERY_TOPICS_BY_CONSUMER: the topics in which a group has got somewhere.
pub(super) fn query_topics_by_consumer(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let topics = broker.offsets.topics_of(request.text("group")?);
    answer_body(&TopicList { broker_addr: Some(broker.config().broker_address()), topic_list: topics })
}

/// The refusal for a topic that is not configured here.
pub(super) fn unknown_topic(topic: &str) -> Refusal {
    Refusal::new(response::TOPIC_NOT_EXIST, format!("topic[{topic}] not exist"))
}
