//! The name of one queue.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One queue of a topic on one broker: element and map key of many bodies.
///
/// The order is Java's: topic, broker name, queue id. Consumers rely on it when they share out queues.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueue {
    /// Name of the broker (not its address).
    pub broker_name: String,
    /// Number of the queue, from 0; -1 means all queues where POP assignments are told.
    pub queue_id: i32,
    /// The topic.
    pub topic: String,
}

impl MessageQueue {
    /// The queue with this number.
    pub fn new(topic: impl Into<String>, broker_name: impl Into<String>, queue_id: i32) -> Self {
        MessageQueue { broker_name: broker_name.into(), queue_id, topic: topic.into() }
    }
}

impl Ord for MessageQueue {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.topic, &self.broker_name, self.queue_id).cmp(&(
            &other.topic,
            &other.broker_name,
            other.queue_id,
        ))
    }
}

impl PartialOrd for MessageQueue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As Java prints it, which ends up in remarks.
impl fmt::Display for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MessageQueue [topic={}, brokerName={}, queueId={}]",
            self.topic, self.broker_name, self.queue_id
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{MQ, assert_sample, mq};
    use super::*;

    #[test]
    fn sample() {
        assert_sample(&mq(), MQ);
    }

    #[test]
    fn the_topic_comes_first_in_order() {
        assert!(MessageQueue::new("A", "b9", 9) < MessageQueue::new("B", "b0", 0));
        assert!(MessageQueue::new("A", "b0", 2) < MessageQueue::new("A", "b0", 10));
    }
}
