//! Who consumes which queue: locks, assignments by the broker, and whether by pull or by POP.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{MessageModel, MessageQueue};
use crate::json;

/// Body of codes 41 and 42: queues to be locked for, or unlocked by, a consumer that consumes in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LockBatchRequestBody {
    /// The consumer.
    pub client_id: String,
    /// Its group.
    pub consumer_group: String,
    /// The queues.
    pub mq_set: BTreeSet<MessageQueue>,
    /// Whether the broker shall not ask its replicas, because one of them sent this.
    pub only_this_broker: bool,
}

/// Body of code 42.
pub type UnlockBatchRequestBody = LockBatchRequestBody;

/// Answer to code 41: the queues that were locked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LockBatchResponseBody {
    /// The queues.
    #[serde(rename = "lockOKMQSet")]
    pub lock_ok_mq_set: BTreeSet<MessageQueue>,
}

/// Body of code 400: which queues shall this consumer have?
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryAssignmentRequestBody {
    /// The consumer.
    pub client_id: String,
    /// Its group.
    pub consumer_group: String,
    /// Who of the group gets a message.
    #[serde(deserialize_with = "json::enum_or_none")]
    pub message_model: Option<MessageModel>,
    /// `AVG` or `AVG_BY_CIRCLE`.
    pub strategy_name: String,
    /// The topic.
    pub topic: String,
}

/// Answer to code 400.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryAssignmentResponseBody {
    /// `None` means "keep what you have", an empty list "drop all".
    pub message_queue_assignments: Option<Vec<MessageQueueAssignment>>,
}

/// A queue that a consumer shall consume, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueueAssignment {
    /// What else there is to say; nothing so far.
    pub attachments: Option<BTreeMap<String, String>>,
    /// The queue; its number is -1 if the consumer shall pop from all queues.
    pub message_queue: MessageQueue,
    /// How.
    #[serde(deserialize_with = "json::enum_or_default")]
    pub mode: MessageRequestMode,
}

/// How a consumer gets messages that the broker assigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MessageRequestMode {
    /// It pulls from queues of its own.
    #[default]
    Pull,
    /// It pops from queues that it shares.
    Pop,
}

/// Body of code 401: how a group shall get the messages of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetMessageRequestModeRequestBody {
    /// The group.
    pub consumer_group: String,
    /// How.
    #[serde(deserialize_with = "json::enum_or_default")]
    pub mode: MessageRequestMode,
    /// With how many others a consumer shares its queues; 0 or less means with all.
    pub pop_share_queue_num: i32,
    /// The topic.
    pub topic: String,
}

/// All of them on a broker: answer to code 402, and `messageRequestMode.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageRequestModeSerializeWrapper {
    /// Topic to group to mode.
    pub message_request_mode_map: BTreeMap<String, BTreeMap<String, SetMessageRequestModeRequestBody>>,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn locks() {
        let request = LockBatchRequestBody {
            client_id: "c".to_owned(),
            consumer_group: "G".to_owned(),
            mq_set: BTreeSet::from([mq()]),
            only_this_broker: false,
        };
        assert_sample(
            &request,
            &format!(r#"{{"clientId":"c","consumerGroup":"G","mqSet":[{MQ}],"onlyThisBroker":false}}"#),
        );
        let answer = LockBatchResponseBody { lock_ok_mq_set: BTreeSet::from([mq()]) };
        assert_sample(&answer, &format!(r#"{{"lockOKMQSet":[{MQ}]}}"#));
    }

    #[test]
    fn assignments() {
        let request = QueryAssignmentRequestBody {
            client_id: "c".to_owned(),
            consumer_group: "G".to_owned(),
            message_model: Some(MessageModel::Clustering),
            strategy_name: "AVG".to_owned(),
            topic: "T".to_owned(),
        };
        assert_sample(
            &request,
            r#"{"clientId":"c","consumerGroup":"G","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}"#,
        );
        let assignment = MessageQueueAssignment { message_queue: mq(), ..MessageQueueAssignment::default() };
        let answer = QueryAssignmentResponseBody { message_queue_assignments: Some(vec![assignment]) };
        assert_sample(
            &answer,
            &format!(r#"{{"messageQueueAssignments":[{{"messageQueue":{MQ},"mode":"PULL"}}]}}"#),
        );
        assert_sample(&QueryAssignmentResponseBody::default(), "{}");
        let drop_all = QueryAssignmentResponseBody { message_queue_assignments: Some(Vec::new()) };
        assert_sample(&drop_all, r#"{"messageQueueAssignments":[]}"#);
    }

    #[test]
    fn request_modes() {
        const MODE: &str = r#"{"consumerGroup":"G","mode":"POP","popShareQueueNum":0,"topic":"T"}"#;
        let mode = SetMessageRequestModeRequestBody {
            consumer_group: "G".to_owned(),
            mode: MessageRequestMode::Pop,
            pop_share_queue_num: 0,
            topic: "T".to_owned(),
        };
        assert_sample(&mode, MODE);
        let all = MessageRequestModeSerializeWrapper {
            message_request_mode_map: BTreeMap::from([(
                "T".to_owned(),
                BTreeMap::from([("G".to_owned(), mode)]),
            )]),
        };
        assert_sample(&all, &format!(r#"{{"messageRequestModeMap":{{"T":{{"G":{MODE}}}}}}}"#));
    }
}
