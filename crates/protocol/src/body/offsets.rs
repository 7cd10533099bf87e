//! Offsets of consumer groups and of delay levels: dumps that slaves copy, the same as files, and resets.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};

use super::{DataVersion, MessageQueue};
use crate::json;

/// All offsets of a broker's groups: answer to code 43, `consumerOffset.json` and `lmqConsumerOffset.json`
/// (`docs/spec/02-store.md` 3.5).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerOffsetSerializeWrapper {
    /// Absent in 4.x.
    pub data_version: DataVersion,
    /// Group to its topics, which the keys of `offsetTable` say as well. Readers ignore it. Absent in 4.x.
    #[serde(serialize_with = "in_line_values")]
    pub group_topic_map: BTreeMap<String, BTreeSet<String>>,
    /// Offsets of light queues, `topic@group` to offset; only in `lmqConsumerOffset.json`.
    pub lmq_offset_table: Option<BTreeMap<String, i64>>,
    /// `topic@group` to queue to offset of the next message.
    pub offset_table: BTreeMap<String, BTreeMap<i32, i64>>,
}

impl ConsumerOffsetSerializeWrapper {
    /// A dump of these offsets, `groupTopicMap` filled from them.
    pub fn new(data_version: DataVersion, offset_table: BTreeMap<String, BTreeMap<i32, i64>>) -> Self {
        let mut group_topic_map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (topic, group) in offset_table.keys().filter_map(|key| key.split_once('@')) {
            group_topic_map.entry(group.to_owned()).or_default().insert(topic.to_owned());
        }
        ConsumerOffsetSerializeWrapper { data_version, group_topic_map, lmq_offset_table: None, offset_table }
    }
}

fn in_line_values<S: Serializer>(
    map: &BTreeMap<String, BTreeSet<String>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter().map(|(key, set)| (key, json::InLine(set))))
}

/// How far the queues of delayed messages have been delivered: answer to code 45, and `delayOffset.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DelayOffsetSerializeWrapper {
    /// Absent in 4.x.
    pub data_version: DataVersion,
    /// Delay level, from 1, to offset of the next message.
    pub offset_table: BTreeMap<i32, i64>,
}

/// Body of code 220, and answer to code 222: offsets that a group shall have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetBody {
    /// Queue to offset of the next message.
    pub offset_table: BTreeMap<MessageQueue, i64>,
}

/// Body of code 220 when the administrator's tool was written in C++: as [`ResetOffsetBody`] in strict JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResetOffsetBodyForC {
    /// The queues with their offsets.
    pub offset_table: Vec<MessageQueueForC>,
}

/// A queue and an offset in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueueForC {
    /// As in [`MessageQueue`].
    pub broker_name: String,
    /// Offset of the next message.
    pub offset: i64,
    /// As in [`MessageQueue`].
    pub queue_id: i32,
    /// As in [`MessageQueue`].
    pub topic: String,
}

impl From<&ResetOffsetBody> for ResetOffsetBodyForC {
    fn from(body: &ResetOffsetBody) -> Self {
        let queue = |(queue, offset): (&MessageQueue, &i64)| MessageQueueForC {
            broker_name: queue.broker_name.clone(),
            offset: *offset,
            queue_id: queue.queue_id,
            topic: queue.topic.clone(),
        };
        ResetOffsetBodyForC { offset_table: body.offset_table.iter().map(queue).collect() }
    }
}

/// Answer to code 308: the smallest offsets of a topic's groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryCorrectionOffsetBody {
    /// Queue to offset.
    pub correction_offsets: BTreeMap<i32, i64>,
}

/// A message in topic `OFFSET_MOVED_EVENT`: a consumer asked for an offset that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OffsetMovedEvent {
    /// The group.
    pub consumer_group: String,
    /// The queue.
    pub message_queue: MessageQueue,
    /// The offset that it was sent to.
    pub offset_new: i64,
    /// The offset that it asked for.
    pub offset_request: i64,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn consumer_offsets() {
        let offsets = BTreeMap::from([("T@G".to_owned(), BTreeMap::from([(0, 5), (1, 6)]))]);
        let mut dump = ConsumerOffsetSerializeWrapper::new(dv(), offsets);
        assert_sample(
            &dump,
            &format!(
                r#"{{"dataVersion":{DV},"groupTopicMap":{{"G":["T"]}},"offsetTable":{{"T@G":{{0:5,1:6}}}}}}"#
            ),
        );
        dump.lmq_offset_table = Some(BTreeMap::from([("%LMQ%a@%LMQ%g1".to_owned(), 4)]));
        assert_pretty_sample(
            &dump,
            concat!(
                "{\n\t\"dataVersion\":{\n\t\t\"counter\":7,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":1700000000000\n\t},\n",
                "\t\"groupTopicMap\":{\n\t\t\"G\":[\"T\"]\n\t},\n",
                "\t\"lmqOffsetTable\":{\n\t\t\"%LMQ%a@%LMQ%g1\":4\n\t},\n",
                "\t\"offsetTable\":{\n\t\t\"T@G\":{0:5,1:6\n\t\t}\n\t}\n}"
            ),
        );
    }

    #[test]
    fn consumer_offset_json_of_4_9() {
        let text = b"{\n\t\"offsetTable\":{\n\t\t\"TopicA@CG1\":{0:5,1:3\n\t\t}\n\t}\n}";
        let offsets: ConsumerOffsetSerializeWrapper = json::from_slice(text).unwrap();
        assert_eq!(offsets.data_version, DataVersion::default());
        assert_eq!(offsets.offset_table["TopicA@CG1"], BTreeMap::from([(0, 5), (1, 3)]));
    }

    #[test]
    fn delay_offsets() {
        let dump = DelayOffsetSerializeWrapper {
            data_version: dv(),
            offset_table: BTreeMap::from([(1, 0), (2, 15)]),
        };
        assert_sample(&dump, &format!(r#"{{"dataVersion":{DV},"offsetTable":{{1:0,2:15}}}}"#));
        assert!(json::to_string_pretty(&dump).ends_with("\n\t\"offsetTable\":{1:0,2:15\n\t}\n}"));
    }

    #[test]
    fn resets_and_corrections() {
        let reset = ResetOffsetBody { offset_table: BTreeMap::from([(mq(), 5)]) };
        assert_sample(&reset, &format!(r#"{{"offsetTable":{{{MQ}:5}}}}"#));
        assert_sample(
            &ResetOffsetBodyForC::from(&reset),
            r#"{"offsetTable":[{"brokerName":"b0","offset":5,"queueId":0,"topic":"T"}]}"#,
        );
        let corrections = QueryCorrectionOffsetBody { correction_offsets: BTreeMap::from([(0, 5)]) };
        assert_sample(&corrections, r#"{"correctionOffsets":{0:5}}"#);
        let event = OffsetMovedEvent {
            consumer_group: "G".to_owned(),
            message_queue: mq(),
            ..OffsetMovedEvent::default()
        };
        assert_sample(
            &event,
            &format!(r#"{{"consumerGroup":"G","messageQueue":{MQ},"offsetNew":0,"offsetRequest":0}}"#),
        );
    }
}
