//! The topics that a broker has from the start (`docs/spec/03-broker.md` 12.1).

use std::collections::BTreeSet;

use ferromq_protocol::body::TopicConfig;
use ferromq_protocol::names::{self, SYSTEM_TOPIC_PREFIX};

use super::{PERM_INHERIT, PERM_READ, PERM_WRITE};
use crate::config::BrokerConfig;

/// Levels of delay that the schedule topic has queues for, whatever `messageDelayLevel` says.
const SCHEDULE_QUEUES: i32 = 18;

/// The topics that exist on a broker with these settings. What `topics.json` says of them counts more.
pub(super) fn built_in(config: &BrokerConfig) -> Vec<TopicConfig> {
    let BrokerConfig { broker_cluster_name: cluster, broker_name: broker, .. } = config;
    let read_write = PERM_READ | PERM_WRITE;
    let template_if = |enabled| if enabled { PERM_INHERIT | read_write } else { PERM_INHERIT };
    let queues = |number| i32::try_from(number).unwrap_or(i32::MAX);
    let topic = |name: &str, queues, perm| TopicConfig { perm, ..TopicConfig::new(name, queues) };
    let mut topics = vec![
        topic(names::SELF_TEST_TOPIC, 1, read_write),
        topic(names::BENCHMARK_TOPIC, 1024, read_write),
        topic(cluster, 16, template_if(config.cluster_topic_enable)),
        topic(broker, 1, template_if(config.broker_topic_enable)),
        topic(names::OFFSET_MOVED_EVENT, 1, read_write),
        topic(names::SCHEDULE_TOPIC, SCHEDULE_QUEUES, read_write),
        topic(&format!("{cluster}_REPLY_TOPIC"), 1, read_write),
        topic(
            &format!("{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}"),
            queues(config.revive_queue_num),
            read_write,
        ),
        topic(&format!("{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker}"), 1, PERM_INHERIT),
        topic(names::HALF_TOPIC, 1, read_write),
        topic(names::OP_HALF_TOPIC, 1, read_write),
    ];
    if config.auto_create_topic_enable {
        let default_queues = queues(config.default_topic_queue_nums);
        topics.push(topic(names::AUTO_CREATE_TOPIC, default_queues, template_if(true)));
    }
    if config.trace_topic_enable {
        topics.push(topic(&config.msg_trace_topic_name, 1, read_write));
    }
    if config.timer_wheel_enable {
        topics.push(topic(names::TIMER_TOPIC, 1, read_write));
    }
    topics
}

/// The names that belong to the system on a broker with these topics.
pub(super) fn names(built_in: &[TopicConfig]) -> BTreeSet<String> {
    let own = built_in.iter().map(|topic| topic.topic_name.clone());
    own.chain(names::system_topics().map(str::to_owned)).collect()
}
