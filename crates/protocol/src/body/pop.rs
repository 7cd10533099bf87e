//! Acknowledging popped messages, many at once.

use serde::{Deserialize, Serialize};

/// Body of code 200151.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BatchAckMessageRequestBody {
    /// What is acknowledged, one for each pop of a queue.
    pub acks: Vec<BatchAck>,
    /// Name of the broker that the messages were popped from.
    pub broker_name: String,
}

/// Acknowledges messages that came with one pop from one queue (`docs/spec/04-pop-timer.md` 2).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchAck {
    /// Base64 of bytes in which bit i (of byte i / 8, the lowest first) stands for the message at `start_offset + i`.
    #[serde(rename = "b", alias = "bitSet")]
    pub bit_set: String,
    /// The group.
    #[serde(rename = "c", alias = "consumerGroup")]
    pub consumer_group: String,
    /// For how long the pop made the messages invisible, ms.
    #[serde(rename = "it", alias = "invisibleTime")]
    pub invisible_time: i64,
    /// When the pop was, ms.
    #[serde(rename = "pt", alias = "popTime")]
    pub pop_time: i64,
    /// The queue.
    #[serde(rename = "q", alias = "queueId")]
    pub queue_id: i32,
    /// Which topic the queue belongs to: `0` the topic itself, `1` and `2` the group's retry topic under its old and its
    /// new name.
    #[serde(rename = "r", alias = "retry")]
    pub retry: String,
    /// The queue in which the broker keeps book of the pop.
    #[serde(rename = "rq", alias = "reviveQueueId")]
    pub revive_queue_id: i32,
    /// Where the pop began to read.
    #[serde(rename = "so", alias = "startOffset")]
    pub start_offset: i64,
    /// The topic that was popped, never a retry topic.
    #[serde(rename = "t", alias = "topic")]
    pub topic: String,
}

#[cfg(test)]
mod tests {
    use super::super::sample::assert_sample;
    use super::*;
    use crate::json;

    #[test]
    fn many_acknowledgements() {
        let ack = BatchAck {
            bit_set: "BQ==".to_owned(),
            consumer_group: "G".to_owned(),
            invisible_time: 60_000,
            pop_time: 1_700_000_000_000,
            queue_id: 2,
            retry: "0".to_owned(),
            revive_queue_id: 3,
            start_offset: 100,
            topic: "T".to_owned(),
        };
        let body = BatchAckMessageRequestBody { acks: vec![ack], broker_name: "b0".to_owned() };
        assert_sample(
            &body,
            r#"{"acks":[{"b":"BQ==","c":"G","it":60000,"pt":1700000000000,"q":2,"r":"0","rq":3,"so":100,"t":"T"}],"brokerName":"b0"}"#,
        );
        let long = r#"{"acks":[{"bitSet":"BQ==","consumerGroup":"G","invisibleTime":60000,"popTime":1700000000000,
            "queueId":2,"retry":"0","reviveQueueId":3,"startOffset":100,"topic":"T"}],"brokerName":"b0"}"#;
        assert_eq!(json::from_slice::<BatchAckMessageRequestBody>(long.as_bytes()).unwrap(), body);
    }
}
