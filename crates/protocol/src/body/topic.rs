//! Topics: their configuration, and lists of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DataVersion, TopicQueueMappingDetail};
use crate::json;

/// Whether a message's `TAGS` hold one tag or several. No broker uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TopicFilterType {
    /// One tag.
    #[default]
    SingleTag,
    /// Several tags.
    MultiTag,
}

/// The configuration of a topic on one broker: element of codes 18, 21, 103, 351 and of `topics.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfig {
    /// `message.type`, `queue.type`, …. In create requests the keys carry a `+` or `-` (code 17), here they don't.
    /// Absent in 4.x.
    pub attributes: BTreeMap<String, String>,
    /// Whether producers and consumers shall keep to the order of `orderTopicConf`.
    pub order: bool,
    /// Bits: 4 read, 2 write, 1 inherit, 8 priority.
    pub perm: i32,
    /// How many queues may be consumed.
    pub read_queue_nums: i32,
    /// See [`TopicFilterType`].
    #[serde(deserialize_with = "json::enum_or_default")]
    pub topic_filter_type: TopicFilterType,
    /// The topic.
    pub topic_name: String,
    /// Bits: 1 unit topic, 2 has unit subscriptions (6.6).
    pub topic_sys_flag: i32,
    /// How many queues may be sent to.
    pub write_queue_nums: i32,
}

impl Default for TopicConfig {
    fn default() -> Self {
        TopicConfig {
            attributes: BTreeMap::new(),
            order: false,
            perm: 6,
            read_queue_nums: 16,
            topic_filter_type: TopicFilterType::SingleTag,
            topic_name: String::new(),
            topic_sys_flag: 0,
            write_queue_nums: 16,
        }
    }
}

impl TopicConfig {
    /// A topic that can be read and written, with as many queues for the one as for the other.
    pub fn new(topic_name: impl Into<String>, queue_nums: i32) -> Self {
        TopicConfig {
            topic_name: topic_name.into(),
            read_queue_nums: queue_nums,
            write_queue_nums: queue_nums,
            ..TopicConfig::default()
        }
    }
}

/// All topics of a broker without static ones: `topics.json`, code 21 of 4.x, and the body of code 103 before
/// `V3_0_11`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfigSerializeWrapper {
    /// Changes with every change of a topic.
    pub data_version: DataVersion,
    /// The topics by name.
    pub topic_config_table: BTreeMap<String, TopicConfig>,
}

/// Body of code 18: topics to create or update.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreateTopicListRequestBody {
    /// The topics, with signs before the keys of attributes.
    pub topic_config_list: Vec<TopicConfig>,
}

/// Answer to code 351: one topic, with its mapping if it is static and the request's `lo` says so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "TopicConfigAndQueueMappingMembers", into = "TopicConfigAndQueueMappingMembers")]
pub struct TopicConfigAndQueueMapping {
    /// The topic.
    pub topic_config: TopicConfig,
    /// Where its logical queues lie.
    pub mapping_detail: Option<TopicQueueMappingDetail>,
}

/// [`TopicConfigAndQueueMapping`] as one object, since in Java it extends [`TopicConfig`].
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TopicConfigAndQueueMappingMembers {
    attributes: BTreeMap<String, String>,
    mapping_detail: Option<TopicQueueMappingDetail>,
    order: bool,
    perm: Option<i32>,
    read_queue_nums: Option<i32>,
    #[serde(deserialize_with = "json::enum_or_default")]
    topic_filter_type: TopicFilterType,
    topic_name: String,
    topic_sys_flag: i32,
    write_queue_nums: Option<i32>,
}

impl From<TopicConfigAndQueueMappingMembers> for TopicConfigAndQueueMapping {
    fn from(members: TopicConfigAndQueueMappingMembers) -> Self {
        let default = TopicConfig::default();
        TopicConfigAndQueueMapping {
            topic_config: TopicConfig {
                attributes: members.attributes,
                order: members.order,
                perm: members.perm.unwrap_or(default.perm),
                read_queue_nums: members.read_queue_nums.unwrap_or(default.read_queue_nums),
                topic_filter_type: members.topic_filter_type,
                topic_name: members.topic_name,
                topic_sys_flag: members.topic_sys_flag,
                write_queue_nums: members.write_queue_nums.unwrap_or(default.write_queue_nums),
            },
            mapping_detail: members.mapping_detail,
        }
    }
}

impl From<TopicConfigAndQueueMapping> for TopicConfigAndQueueMappingMembers {
    fn from(TopicConfigAndQueueMapping { topic_config, mapping_detail }: TopicConfigAndQueueMapping) -> Self {
        TopicConfigAndQueueMappingMembers {
            attributes: topic_config.attributes,
            mapping_detail,
            order: topic_config.order,
            perm: Some(topic_config.perm),
            read_queue_nums: Some(topic_config.read_queue_nums),
            topic_filter_type: topic_config.topic_filter_type,
            topic_name: topic_config.topic_name,
            topic_sys_flag: topic_config.topic_sys_flag,
            write_queue_nums: Some(topic_config.write_queue_nums),
        }
    }
}

/// Names of topics: answer to codes 206, 224, 304, 305, 311 to 313 and 343.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicList {
    /// Address of a broker that has them; only in some answers.
    pub broker_addr: Option<String>,
    /// The names, in no order.
    pub topic_list: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn topic_config() {
        assert_sample(&topic_config_of_the_spec(), TOPICCONFIG);
    }

    #[test]
    fn what_is_absent_has_the_default_of_java() {
        let config: TopicConfig =
            json::from_slice(br#"{"topicName":"T","topicFilterType":"NONE","perm":null}"#).unwrap();
        assert_eq!(config, TopicConfig::new("T", 16));
    }

    #[test]
    fn topics_json() {
        let topics = TopicConfigSerializeWrapper {
            data_version: dv(),
            topic_config_table: BTreeMap::from([("T".to_owned(), topic_config_of_the_spec())]),
        };
        let pretty = concat!(
            "{\n\t\"dataVersion\":{\n\t\t\"counter\":7,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":1700000000000\n\t},\n",
            "\t\"topicConfigTable\":{\n\t\t\"T\":{\n\t\t\t\"attributes\":{\n\t\t\t\t\"message.type\":\"FIFO\"\n\t\t\t},\n",
            "\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n\t\t\t\"readQueueNums\":8,\n",
            "\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n\t\t\t\"topicName\":\"T\",\n\t\t\t\"topicSysFlag\":0,\n",
            "\t\t\t\"writeQueueNums\":8\n\t\t}\n\t}\n}"
        );
        assert_pretty_sample(&topics, pretty);
    }

    #[test]
    fn topics_json_of_4_9() {
        let text = br#"{"dataVersion":{"counter":7,"timestamp":1700000000000},"topicConfigTable":{"T":{"order":false,
            "perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}}}"#;
        let topics: TopicConfigSerializeWrapper = json::from_slice(text).unwrap();
        assert_eq!(topics.data_version, dv());
        assert_eq!(topics.topic_config_table["T"], TopicConfig::new("T", 8));
    }

    #[test]
    fn topic_config_and_queue_mapping() {
        let mut topic = TopicConfigAndQueueMapping {
            topic_config: TopicConfig::new("T", 8),
            mapping_detail: Some(mapping_detail()),
        };
        assert_sample(
            &topic,
            &format!(
                r#"{{"attributes":{{}},"mappingDetail":{MAPPINGDETAIL},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}}"#
            ),
        );
        topic.mapping_detail = None;
        assert_eq!(json::to_vec(&topic), json::to_vec(&topic.topic_config));
    }

    #[test]
    fn lists() {
        let configs = CreateTopicListRequestBody { topic_config_list: vec![topic_config_of_the_spec()] };
        assert_sample(&configs, &format!(r#"{{"topicConfigList":[{TOPICCONFIG}]}}"#));
        let names =
            TopicList { broker_addr: Some("1.1.1.1:10911".to_owned()), topic_list: vec!["T".to_owned()] };
        assert_sample(&names, r#"{"brokerAddr":"1.1.1.1:10911","topicList":["T"]}"#);
        assert_sample(&TopicList::default(), r#"{"topicList":[]}"#);
    }
}
