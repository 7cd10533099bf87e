//! Names of topics and groups: prefixes, system names and the rules that a name must keep
//! (`docs/spec/03-broker.md` 2.4, 12.1).

use thiserror::Error;

/// Prefix of the topic that holds a group's messages to be retried.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of the topic that holds a group's dead letters.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Prefix of light queues.
pub const LMQ_PREFIX: &str = "%LMQ%";
/// Prefix of groups that belong to the system.
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
/// Prefix of topics that belong to the system.
pub const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";

/// Template of automatically created topics.
pub const AUTO_CREATE_TOPIC: &str = "TBW102";
/// Topic of messages with a delay level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Topic of messages with a timer.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Topic of half messages.
pub const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Topic of decisions about half messages.
pub const OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Topic of half messages that were checked too often.
pub const TRANS_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Topic of message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Topic for tests of the broker itself.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Topic for load tests.
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// Topic of notices about moved offsets.
pub const OFFSET_MOVED_EVENT: &str = "OFFSET_MOVED_EVENT";

/// Longest topic name, characters.
pub const TOPIC_LENGTH_MAX: usize = 127;
/// Longest name of a group, characters.
pub const GROUP_LENGTH_MAX: usize = 255;

const SYSTEM_TOPICS: [&str; 10] = [
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    TRACE_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    "CHECKPOINT_TOPIC",
];

const SYSTEM_GROUPS: [&str; 11] = [
    "DEFAULT_CONSUMER",
    "DEFAULT_PRODUCER",
    "TOOLS_CONSUMER",
    "SCHEDULE_CONSUMER",
    "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER",
    "SELF_TEST_C_GROUP",
    "SELF_TEST_P_GROUP",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PULL",
];

/// Which rule a topic's name breaks; the text is the remark that clients get.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TopicNameError {
    /// Nothing but white space.
    #[error("The specified topic is blank.")]
    Blank,
    /// A character outside of the set.
    #[error("The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")]
    IllegalCharacters,
    /// More than [`TOPIC_LENGTH_MAX`] characters.
    #[error("The specified topic is longer than topic max length.")]
    TooLong,
}

/// Whether every character may stand in the name of a topic or group.
pub fn has_legal_characters(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'-' | b'_'))
}

/// Checks the name of a topic that a client sends to.
pub fn check_topic(topic: &str) -> Result<(), TopicNameError> {
    if topic.trim().is_empty() {
        Err(TopicNameError::Blank)
    } else if !has_legal_characters(topic) {
        Err(TopicNameError::IllegalCharacters)
    } else if topic.len() > TOPIC_LENGTH_MAX {
        Err(TopicNameError::TooLong)
    } else {
        Ok(())
    }
}

/// Whether the name belongs to the system on every broker. Brokers add their own names to these (12.1).
pub fn is_system_topic(topic: &str) -> bool {
    topic.starts_with(SYSTEM_TOPIC_PREFIX) || SYSTEM_TOPICS.contains(&topic)
}

/// The names of the topics that belong to the system on every broker.
pub fn system_topics() -> impl Iterator<Item = &'static str> {
    SYSTEM_TOPICS.into_iter()
}

/// Whether clients must not send to the topic.
pub fn is_forbidden_to_clients(topic: &str) -> bool {
    [
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    ]
    .contains(&topic)
}

/// Whether the group belongs to the system.
pub fn is_system_group(group: &str) -> bool {
    group.starts_with(SYSTEM_GROUP_PREFIX) || SYSTEM_GROUPS.contains(&group)
}

/// The names of groups that belong to the system.
pub fn system_groups() -> impl Iterator<Item = &'static str> {
    SYSTEM_GROUPS.into_iter()
}

/// Name of a group's retry topic.
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// Name of a group's dead letter topic.
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_in_the_order_of_the_rules() {
        assert_eq!(check_topic(" "), Err(TopicNameError::Blank));
        assert_eq!(check_topic("a b"), Err(TopicNameError::IllegalCharacters));
        assert_eq!(check_topic(&"t".repeat(128)), Err(TopicNameError::TooLong));
        assert_eq!(check_topic("%RETRY%g-1_x|y"), Ok(()));
    }

    #[test]
    fn system_names_are_case_sensitive() {
        assert!(is_system_topic("rmq_sys_wheel_timer"));
        assert!(!is_system_topic("RMQ_SYS_other"));
        assert!(is_system_group("CID_RMQ_SYS_TRANS"));
    }
}
