//! Static topics: logical queues that move between brokers, and the wrapper that carries them beside plain topics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DataVersion, TopicConfig};

/// Scope of a static topic that belongs to no other.
pub const SCOPE_GLOBAL: &str = "__global__";

/// Which logical queues of a static topic a broker hosts now: in routes (code 105) and registrations (code 103).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicQueueMappingInfo {
    /// Name of the broker.
    pub bname: String,
    /// Number of the logical queue to number of the queue on this broker.
    pub curr_id_map: BTreeMap<i32, i32>,
    /// Whether the mapping is being changed.
    pub dirty: bool,
    /// Rises with every change of the mapping.
    pub epoch: i64,
    /// [`SCOPE_GLOBAL`] or the name of a narrower scope.
    pub scope: String,
    /// The topic.
    pub topic: String,
    /// How many logical queues the topic has on all brokers together.
    pub total_queues: i32,
}

impl Default for TopicQueueMappingInfo {
    fn default() -> Self {
        TopicQueueMappingInfo {
            bname: String::new(),
            curr_id_map: BTreeMap::new(),
            dirty: false,
            epoch: 0,
            scope: SCOPE_GLOBAL.to_owned(),
            topic: String::new(),
            total_queues: 0,
        }
    }
}

/// [`TopicQueueMappingInfo`] with the history of every hosted queue: body of code 513, in codes 21 and 351, and in
/// `topicQueueMapping.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicQueueMappingDetail {
    /// Name of the broker.
    pub bname: String,
    /// See [`TopicQueueMappingInfo`]. Empty in files and bodies unless it was computed.
    pub curr_id_map: BTreeMap<i32, i32>,
    /// Whether the mapping is being changed.
    pub dirty: bool,
    /// Rises with every change of the mapping.
    pub epoch: i64,
    /// Number of the logical queue to the queues that it has been so far, oldest first.
    pub hosted_queues: BTreeMap<i32, Vec<LogicQueueMappingItem>>,
    /// [`SCOPE_GLOBAL`] or the name of a narrower scope.
    pub scope: String,
    /// The topic.
    pub topic: String,
    /// How many logical queues the topic has on all brokers together.
    pub total_queues: i32,
}

impl Default for TopicQueueMappingDetail {
    fn default() -> Self {
        let info = TopicQueueMappingInfo::default();
        TopicQueueMappingDetail {
            bname: info.bname,
            curr_id_map: info.curr_id_map,
            dirty: info.dirty,
            epoch: info.epoch,
            hosted_queues: BTreeMap::new(),
            scope: info.scope,
            topic: info.topic,
            total_queues: info.total_queues,
        }
    }
}

/// One stage of a logical queue: the queue on a broker that it was for a range of offsets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogicQueueMappingItem {
    /// Name of the broker.
    pub bname: String,
    /// First queue offset on the broker that no longer belongs to this stage; -1 while it is open.
    pub end_offset: i64,
    /// Which stage this is, from 0. `gen` in JSON.
    #[serde(rename = "gen")]
    pub generation: i32,
    /// Logical offset of the stage's first message; -1 until it is known.
    pub logic_offset: i64,
    /// Number of the queue on the broker.
    pub queue_id: i32,
    /// First queue offset on the broker.
    pub start_offset: i64,
    /// When the stage ended, ms since the epoch; -1 if unknown.
    pub time_of_end: i64,
    /// When the stage began, ms since the epoch; -1 if unknown.
    pub time_of_start: i64,
}

impl Default for LogicQueueMappingItem {
    fn default() -> Self {
        LogicQueueMappingItem {
            bname: String::new(),
            end_offset: -1,
            generation: 0,
            logic_offset: 0,
            queue_id: 0,
            start_offset: 0,
            time_of_end: -1,
            time_of_start: -1,
        }
    }
}

/// All topics of a broker: answer to code 21, and the greater part of code 103.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicConfigAndMappingSerializeWrapper {
    /// Changes with every change of a topic.
    pub data_version: DataVersion,
    /// Changes with every change of a static topic's mapping.
    pub mapping_data_version: DataVersion,
    /// The topics by name.
    pub topic_config_table: BTreeMap<String, TopicConfig>,
    /// Mappings by topic, with their history (code 21).
    pub topic_queue_mapping_detail_map: BTreeMap<String, TopicQueueMappingDetail>,
    /// Mappings by topic, without it (code 103).
    pub topic_queue_mapping_info_map: BTreeMap<String, TopicQueueMappingInfo>,
    /// Topics that were deleted, and the offset of the commit log below which their messages lie. Only in the answers of FerroMQ to
    /// code 21; readers of RocketMQ pass over it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub deleted_topics: BTreeMap<String, u64>,
}

/// The file `topicQueueMapping.json` (`docs/spec/02-store.md` 3.10).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicQueueMappingSerializeWrapper {
    /// Changes with every change of a mapping.
    pub data_version: DataVersion,
    /// Mappings by topic, with their history in spite of the name.
    pub topic_queue_mapping_info_map: BTreeMap<String, TopicQueueMappingDetail>,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn mappings() {
        assert_sample(&mapping_info(), MAPPINGINFO);
        assert_sample(&mapping_detail(), MAPPINGDETAIL);
    }

    #[test]
    fn topic_config_and_mapping_serialize_wrapper() {
        let topics = TopicConfigAndMappingSerializeWrapper {
            data_version: dv(),
            mapping_data_version: dv(),
            topic_config_table: BTreeMap::from([("T".to_owned(), topic_config_of_the_spec())]),
            topic_queue_mapping_detail_map: BTreeMap::from([("T".to_owned(), mapping_detail())]),
            ..TopicConfigAndMappingSerializeWrapper::default()
        };
        assert_sample(
            &topics,
            &format!(
                r#"{{"dataVersion":{DV},"mappingDataVersion":{DV},"topicConfigTable":{{"T":{TOPICCONFIG}}},"topicQueueMappingDetailMap":{{"T":{MAPPINGDETAIL}}},"topicQueueMappingInfoMap":{{}}}}"#
            ),
        );
    }

    #[test]
    fn topic_queue_mapping_json() {
        let mappings = TopicQueueMappingSerializeWrapper {
            data_version: dv(),
            topic_queue_mapping_info_map: BTreeMap::from([("T".to_owned(), mapping_detail())]),
        };
        assert_sample(
            &mappings,
            &format!(r#"{{"dataVersion":{DV},"topicQueueMappingInfoMap":{{"T":{MAPPINGDETAIL}}}}}"#),
        );
    }
}
