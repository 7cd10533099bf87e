//! The samples of `docs/spec/01-remoting.md` 5.3 that other samples are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::json;

pub(super) const DV: &str = r#"{"counter":7,"stateVersion":0,"timestamp":1700000000000}"#;
pub(super) const MQ: &str = r#"{"brokerName":"b0","queueId":0,"topic":"T"}"#;
pub(super) const TOPICCONFIG: &str = r#"{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}"#;
pub(super) const GROUPCONFIG: &str = r#"{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}"#;
pub(super) const SUBDATA: &str = r#"{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB","subVersion":1700000000000,"tagsSet":["TagA","TagB"],"topic":"T"}"#;
pub(super) const MAPPINGINFO: &str = r#"{"bname":"b0","currIdMap":{0:0,1:1},"dirty":false,"epoch":123,"scope":"__global__","topic":"T","totalQueues":4}"#;
pub(super) const MAPPINGDETAIL: &str = r#"{"bname":"b0","currIdMap":{},"dirty":false,"epoch":123,"hostedQueues":{0:[{"bname":"b0","endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}]},"scope":"__global__","topic":"T","totalQueues":4}"#;

/// Asserts that `value` is written as `text` and read from it.
#[track_caller]
pub(super) fn assert_sample<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, text: &str) {
    assert_eq!(json::to_string(value), text);
    assert_eq!(&json::from_slice::<T>(text.as_bytes()).unwrap(), value);
}

/// Asserts that `value` is written as `text` in the form of files, and read from it.
#[track_caller]
pub(super) fn assert_pretty_sample<T: Serialize + DeserializeOwned + PartialEq + Debug>(
    value: &T,
    text: &str,
) {
    assert_eq!(json::to_string_pretty(value), text);
    assert_eq!(&json::from_slice::<T>(text.as_bytes()).unwrap(), value);
}

pub(super) fn dv() -> DataVersion {
    DataVersion { counter: 7, state_version: 0, timestamp: 1_700_000_000_000 }
}

pub(super) fn mq() -> MessageQueue {
    MessageQueue::new("T", "b0", 0)
}

pub(super) fn topic_config_of_the_spec() -> TopicConfig {
    let attributes = BTreeMap::from([("message.type".to_owned(), "FIFO".to_owned())]);
    TopicConfig { attributes, ..TopicConfig::new("T", 8) }
}

pub(super) fn subscription_data() -> SubscriptionData {
    SubscriptionData {
        code_set: BTreeSet::from([2_598_919, 2_598_920]),
        sub_string: "TagA || TagB".to_owned(),
        sub_version: 1_700_000_000_000,
        tags_set: BTreeSet::from(["TagA".to_owned(), "TagB".to_owned()]),
        topic: "T".to_owned(),
        ..SubscriptionData::default()
    }
}

pub(super) fn mapping_info() -> TopicQueueMappingInfo {
    TopicQueueMappingInfo {
        bname: "b0".to_owned(),
        curr_id_map: BTreeMap::from([(0, 0), (1, 1)]),
        epoch: 123,
        topic: "T".to_owned(),
        total_queues: 4,
        ..TopicQueueMappingInfo::default()
    }
}

pub(super) fn mapping_detail() -> TopicQueueMappingDetail {
    let item = LogicQueueMappingItem { bname: "b0".to_owned(), ..LogicQueueMappingItem::default() };
    TopicQueueMappingDetail {
        bname: "b0".to_owned(),
        epoch: 123,
        hosted_queues: BTreeMap::from([(0, vec![item])]),
        topic: "T".to_owned(),
        total_queues: 4,
        ..TopicQueueMappingDetail::default()
    }
}
