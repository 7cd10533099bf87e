//! Clients that are connected to a broker.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::json;
use crate::version::Language;

/// One client of a group: in codes 203 and 204.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Connection {
    /// Its `address:port`.
    pub client_addr: String,
    /// Its name, usually `address@process`.
    pub client_id: String,
    /// Its language; `None` if it named an unknown one.
    #[serde(serialize_with = "write_language", deserialize_with = "read_language")]
    pub language: Option<Language>,
    /// Its version (1.9).
    pub version: i32,
}

/// Answer to code 203: the consumers of a group and what they do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerConnection {
    /// The consumers.
    pub connection_set: Vec<Connection>,
    /// Where the group begins without offsets.
    #[serde(deserialize_with = "json::enum_or_none")]
    pub consume_from_where: Option<ConsumeFromWhere>,
    /// How it gets messages.
    #[serde(deserialize_with = "json::enum_or_none")]
    pub consume_type: Option<ConsumeType>,
    /// Who of it gets a message.
    #[serde(deserialize_with = "json::enum_or_none")]
    pub message_model: Option<MessageModel>,
    /// What it subscribes to, by topic.
    pub subscription_table: BTreeMap<String, SubscriptionData>,
}

/// Answer to code 204: the producers of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerConnection {
    /// The producers.
    pub connection_set: Vec<Connection>,
}

/// Answer to code 328: all producers of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProducerTableInfo {
    /// By group.
    pub data: BTreeMap<String, Vec<ProducerInfo>>,
}

/// One producer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProducerInfo {
    /// Its name, usually `address@process`.
    pub client_id: String,
    /// Its language; `None` if it named an unknown one.
    #[serde(serialize_with = "write_language", deserialize_with = "read_language")]
    pub language: Option<Language>,
    /// When its last heartbeat came, ms since the epoch.
    pub last_update_timestamp: i64,
    /// Its address as Java prints a socket's: `/1.2.3.4:5`.
    #[serde(rename = "remoteIP")]
    pub remote_ip: String,
    /// Its version (1.9).
    pub version: i32,
}

/// Answer to code 38: the consumers of a group, for those who share out queues among them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetConsumerListByGroupResponseBody {
    /// Their names.
    pub consumer_id_list: Vec<String>,
}

fn write_language<S: Serializer>(language: &Option<Language>, serializer: S) -> Result<S::Ok, S::Error> {
    language.map(Language::name).serialize(serializer)
}

fn read_language<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Language>, D::Error> {
    let name: Option<String> = Option::deserialize(deserializer)?;
    Ok(name.and_then(|name| {
        Language::from_name(name.as_bytes()).or_else(|| Language::from_code(name.parse().ok()?))
    }))
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    const CONNECTION: &str = r#"{"clientAddr":"1.2.3.4:5","clientId":"c@1","language":"JAVA","version":479}"#;

    fn connection() -> Connection {
        Connection {
            client_addr: "1.2.3.4:5".to_owned(),
            client_id: "c@1".to_owned(),
            language: Some(Language::JAVA),
            version: 479,
        }
    }

    #[test]
    fn connections() {
        let consumers = ConsumerConnection {
            connection_set: vec![connection()],
            consume_from_where: Some(ConsumeFromWhere::ConsumeFromLastOffset),
            consume_type: Some(ConsumeType::ConsumePassively),
            message_model: Some(MessageModel::Clustering),
            subscription_table: BTreeMap::from([("T".to_owned(), subscription_data())]),
        };
        assert_sample(
            &consumers,
            &format!(
                r#"{{"connectionSet":[{CONNECTION}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{{"T":{SUBDATA}}}}}"#
            ),
        );
        let producers = ProducerConnection { connection_set: vec![connection()] };
        assert_sample(&producers, &format!(r#"{{"connectionSet":[{CONNECTION}]}}"#));
    }

    #[test]
    fn an_unknown_language_is_absent() {
        let unknown = Connection { language: None, ..connection() };
        assert_sample(&unknown, r#"{"clientAddr":"1.2.3.4:5","clientId":"c@1","version":479}"#);
        assert_eq!(json::from_slice(CONNECTION.replace("JAVA", "GOLANG").as_bytes()), Ok(unknown));
        let numbered: Connection = json::from_slice(b"{language:9}").unwrap();
        assert_eq!(numbered.language.map(Language::name), Some("GO"));
    }

    #[test]
    fn producer_table_and_consumer_list() {
        let producer = ProducerInfo {
            client_id: "c".to_owned(),
            language: Some(Language::JAVA),
            last_update_timestamp: 2,
            remote_ip: "/1.2.3.4:5".to_owned(),
            version: 1,
        };
        assert_sample(
            &ProducerTableInfo { data: BTreeMap::from([("PG".to_owned(), vec![producer])]) },
            r#"{"data":{"PG":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":2,"remoteIP":"/1.2.3.4:5","version":1}]}}"#,
        );
        let list = GetConsumerListByGroupResponseBody { consumer_id_list: vec!["c".to_owned()] };
        assert_sample(&list, r#"{"consumerIdList":["c"]}"#);
    }
}
