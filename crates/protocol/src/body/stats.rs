//! How far queues and consumers are, and how busy a broker is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MessageQueue;

/// Answer to code 202: the offsets of every queue of a topic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStatsTable {
    /// By queue.
    pub offset_table: BTreeMap<MessageQueue, TopicOffset>,
    /// Messages sent per second. Absent in 4.x.
    pub topic_put_tps: f64,
}

/// The offsets of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicOffset {
    /// When the newest message was stored, ms since the epoch; 0 without messages.
    pub last_update_timestamp: i64,
    /// Offset of the next message.
    pub max_offset: i64,
    /// Offset of the oldest message.
    pub min_offset: i64,
}

/// Answer to code 208: how far a group is in its queues.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStats {
    /// Messages consumed per second.
    pub consume_tps: f64,
    /// By queue.
    pub offset_table: BTreeMap<MessageQueue, OffsetWrapper>,
}

/// How far a group is in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OffsetWrapper {
    /// Offset of the next message to be stored.
    pub broker_offset: i64,
    /// Offset of the next message to be consumed, as committed.
    pub consumer_offset: i64,
    /// When the last consumed message was stored, ms since the epoch.
    pub last_timestamp: i64,
    /// Offset of the next message to be pulled, not less than `consumerOffset`. Absent in 4.x.
    pub pull_offset: i64,
}

/// Answer to code 317: the stats of all groups of a broker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStatsList {
    /// Address of the broker.
    pub broker_addr: Option<String>,
    /// Maps with one entry each: group to the stats of each of its topics.
    pub consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>>,
    /// How many messages wait to be consumed.
    pub total_diff: i64,
    /// How many messages were pulled and not yet acknowledged.
    pub total_inflight_diff: i64,
}

/// Answer to code 303: which times a group's queues span.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryConsumeTimeSpanBody {
    /// One for each queue.
    pub consume_time_span_set: Vec<QueueTimeSpan>,
}

/// The times of one queue, ms since the epoch, each also as `yyyy-MM-dd#HH:mm:ss:SSS` in the broker's time zone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueTimeSpan {
    /// When the last consumed message was stored.
    pub consume_time_stamp: i64,
    /// The same as text.
    pub consume_time_stamp_str: Option<String>,
    /// For how long the oldest message has waited to be consumed, ms; 0 if none waits.
    pub delay_time: i64,
    /// When the newest message was stored.
    pub max_time_stamp: i64,
    /// The same as text.
    pub max_time_stamp_str: Option<String>,
    /// The queue.
    pub message_queue: MessageQueue,
    /// When the oldest message was stored.
    pub min_time_stamp: i64,
    /// The same as text.
    pub min_time_stamp_str: Option<String>,
}

/// Answer to code 315: one counter of a broker over three spans of time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerStatsData {
    /// Over the last day.
    pub stats_day: BrokerStatsItem,
    /// Over the last hour.
    pub stats_hour: BrokerStatsItem,
    /// Over the last minute.
    pub stats_minute: BrokerStatsItem,
}

/// A counter over one span of time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BrokerStatsItem {
    /// Mean value of one count.
    pub avgpt: f64,
    /// Sum of the values.
    pub sum: i64,
    /// Values per second.
    pub tps: f64,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;
    use crate::json;

    const CONSUMESTATS: &str = r#"{"consumeTps":1.5,"offsetTable":{{"brokerName":"b0","queueId":0,"topic":"T"}:{"brokerOffset":10,"consumerOffset":8,"lastTimestamp":1700000000000,"pullOffset":9}}}"#;

    fn consume_stats() -> ConsumeStats {
        let offsets = OffsetWrapper {
            broker_offset: 10,
            consumer_offset: 8,
            last_timestamp: 1_700_000_000_000,
            pull_offset: 9,
        };
        ConsumeStats { consume_tps: 1.5, offset_table: BTreeMap::from([(mq(), offsets)]) }
    }

    #[test]
    fn topic_stats_table() {
        let offset = TopicOffset { last_update_timestamp: 1_700_000_000_000, max_offset: 10, min_offset: 0 };
        let table = TopicStatsTable { offset_table: BTreeMap::from([(mq(), offset)]), topic_put_tps: 0.0 };
        assert_sample(
            &table,
            &format!(
                r#"{{"offsetTable":{{{MQ}:{{"lastUpdateTimestamp":1700000000000,"maxOffset":10,"minOffset":0}}}},"topicPutTps":0.0}}"#
            ),
        );
    }

    #[test]
    fn keys_that_are_texts_of_objects_9_24() {
        let text =
            br#"{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"T\"}":{"maxOffset":5}}}"#;
        let table: TopicStatsTable = json::from_slice(text).unwrap();
        assert_eq!(table.offset_table[&MessageQueue::new("T", "b", 0)].max_offset, 5);
        let array = br#"{"offsetTable":[[{"topic":"T"},5]]}"#;
        assert!(json::from_slice::<TopicStatsTable>(array).is_err());
    }

    #[test]
    fn consume_stats_alone_and_listed() {
        assert_sample(&consume_stats(), CONSUMESTATS);
        let list = ConsumeStatsList {
            broker_addr: Some("x".to_owned()),
            consume_stats_list: vec![BTreeMap::from([("G".to_owned(), vec![consume_stats()])])],
            ..ConsumeStatsList::default()
        };
        assert_sample(
            &list,
            &format!(
                r#"{{"brokerAddr":"x","consumeStatsList":[{{"G":[{CONSUMESTATS}]}}],"totalDiff":0,"totalInflightDiff":0}}"#
            ),
        );
    }

    #[test]
    fn time_spans() {
        let text = |time: &str| Some(format!("1970-01-01#00:00:00:{time}"));
        let span = QueueTimeSpan {
            consume_time_stamp_str: text("000"),
            max_time_stamp_str: text("000"),
            message_queue: mq(),
            min_time_stamp: 1,
            min_time_stamp_str: text("001"),
            ..QueueTimeSpan::default()
        };
        assert_sample(
            &QueryConsumeTimeSpanBody { consume_time_span_set: vec![span] },
            &format!(
                r#"{{"consumeTimeSpanSet":[{{"consumeTimeStamp":0,"consumeTimeStampStr":"1970-01-01#00:00:00:000","delayTime":0,"maxTimeStamp":0,"maxTimeStampStr":"1970-01-01#00:00:00:000","messageQueue":{MQ},"minTimeStamp":1,"minTimeStampStr":"1970-01-01#00:00:00:001"}}]}}"#
            ),
        );
    }

    #[test]
    fn broker_stats_data() {
        const ITEM: &str = r#"{"avgpt":0.0,"sum":0,"tps":0.0}"#;
        assert_sample(
            &BrokerStatsData::default(),
            &format!(r#"{{"statsDay":{ITEM},"statsHour":{ITEM},"statsMinute":{ITEM}}}"#),
        );
    }
}
