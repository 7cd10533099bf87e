//! The heartbeat, by which clients announce their groups and subscriptions (`docs/spec/01-remoting.md` 7).

use serde::{Deserialize, Serialize};

use super::SubscriptionData;
use crate::json;
use crate::message::java_string_hash;

/// How a consumer group gets its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConsumeType {
    /// The application pulls.
    ConsumeActively,
    /// The client pulls and calls the application ("push").
    ConsumePassively,
    /// The broker shares out single messages.
    ConsumePop,
}

/// Who of a group gets a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MessageModel {
    /// Every consumer.
    Broadcasting,
    /// One of them.
    Clustering,
}

/// Where a group without offsets begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConsumeFromWhere {
    /// At the newest message.
    ConsumeFromLastOffset,
    /// Obsolete: as [`ConsumeFromWhere::ConsumeFromLastOffset`].
    ConsumeFromLastOffsetAndFromMinWhenBootFirst,
    /// Obsolete: as [`ConsumeFromWhere::ConsumeFromLastOffset`].
    ConsumeFromMinOffset,
    /// Obsolete: as [`ConsumeFromWhere::ConsumeFromLastOffset`].
    ConsumeFromMaxOffset,
    /// At the oldest message.
    ConsumeFromFirstOffset,
    /// At a time that the client knows.
    ConsumeFromTimestamp,
}

/// Body of code 34: everything that a client takes part in.
///
/// Clients differ: C++ sends the enums as numbers and leaves out empty sets, Go sends hashes of tags as text (7.1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatData {
    /// The client, usually `address@process`.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// Its consumer groups.
    pub consumer_data_set: Vec<ConsumerData>,
    /// See [`HeartbeatData::compute_fingerprint`]; 0 from clients that don't use it.
    pub heartbeat_fingerprint: i32,
    /// Its producer groups.
    pub producer_data_set: Vec<ProducerData>,
    /// Whether the subscriptions were left out because the broker has accepted the same fingerprint before.
    pub without_sub: bool,
}

/// One consumer group of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerData {
    /// Where it begins without offsets; `None` if the client named something unknown.
    #[serde(deserialize_with = "json::enum_or_none")]
    pub consume_from_where: Option<ConsumeFromWhere>,
    /// How it gets messages; `None` if the client named something unknown.
    #[serde(deserialize_with = "json::enum_or_none")]
    pub consume_type: Option<ConsumeType>,
    /// The group.
    pub group_name: String,
    /// Who of the group gets a message; `None` if the client named something unknown.
    #[serde(deserialize_with = "json::enum_or_none")]
    pub message_model: Option<MessageModel>,
    /// What it subscribes to.
    pub subscription_data_set: Vec<SubscriptionData>,
    /// Whether it belongs to a unit.
    pub unit_mode: bool,
}

/// One producer group of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerData {
    /// The group.
    pub group_name: String,
}

impl HeartbeatData {
    /// What the client's `heartbeatFingerprint` is: Java's string hash of the heartbeat's JSON without what differs
    /// from beat to beat (7.2). Brokers only compare it.
    pub fn compute_fingerprint(&self) -> i32 {
        let mut steady = self.clone();
        steady.client_id.clear();
        steady.heartbeat_fingerprint = 0;
        steady.without_sub = false;
        for consumer in &mut steady.consumer_data_set {
            for subscription in &mut consumer.subscription_data_set {
                subscription.sub_version = 0;
            }
        }
        java_string_hash(&json::to_string(&steady))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    fn heartbeat() -> HeartbeatData {
        HeartbeatData {
            client_id: "c@1".to_owned(),
            consumer_data_set: vec![ConsumerData {
                consume_from_where: Some(ConsumeFromWhere::ConsumeFromLastOffset),
                consume_type: Some(ConsumeType::ConsumePassively),
                group_name: "G".to_owned(),
                message_model: Some(MessageModel::Clustering),
                subscription_data_set: vec![subscription_data()],
                unit_mode: false,
            }],
            producer_data_set: vec![ProducerData { group_name: "PG".to_owned() }],
            ..HeartbeatData::default()
        }
    }

    #[test]
    fn sample() {
        assert_sample(
            &heartbeat(),
            &format!(
                r#"{{"clientID":"c@1","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING","subscriptionDataSet":[{SUBDATA}],"unitMode":false}}],"heartbeatFingerprint":0,"producerDataSet":[{{"groupName":"PG"}}],"withoutSub":false}}"#
            ),
        );
    }

    #[test]
    fn of_the_cpp_client() {
        let text =
            br#"{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"G",
            "messageModel":1,"subscriptionDataSet":[{"codeSet":[2598919,2598920],"subString":"TagA || TagB",
            "subVersion":1700000000000,"tagsSet":["TagA","TagB"],"topic":"T"}]}]}"#;
        let expected = HeartbeatData { producer_data_set: Vec::new(), ..heartbeat() };
        assert_eq!(json::from_slice(text), Ok(expected));
    }

    #[test]
    fn unknown_enums_are_none() {
        let text = br#"{"consumerDataSet":[{"consumeType":"PUSH","messageModel":"clustering"}],"isWithoutSub":true}"#;
        let beat: HeartbeatData = json::from_slice(text).unwrap();
        assert_eq!(beat.consumer_data_set[0].consume_type, None);
        assert_eq!(beat.consumer_data_set[0].message_model, Some(MessageModel::Clustering));
        assert!(beat.without_sub);
    }

    #[test]
    fn fingerprints_of_the_spec_9_20() {
        assert_eq!(heartbeat().compute_fingerprint(), -1_132_477_712);
        let producer = HeartbeatData { consumer_data_set: Vec::new(), ..heartbeat() };
        assert_eq!(producer.compute_fingerprint(), 837_276_344);
    }
}
