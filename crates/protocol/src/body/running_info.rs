//! What a consumer tells of itself when a broker asks it for an administrator.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{MessageQueue, SubscriptionData};
use crate::json;

/// Answer to code 307: the inside of a running consumer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerRunningInfo {
    /// Stacks of its threads, if asked for.
    pub jstack: Option<String>,
    /// Its queues when it consumes by POP.
    pub mq_pop_table: BTreeMap<MessageQueue, PopProcessQueueInfo>,
    /// Its queues when it pulls.
    pub mq_table: BTreeMap<MessageQueue, ProcessQueueInfo>,
    /// `PROP_CLIENT_VERSION` and many others.
    pub properties: BTreeMap<String, String>,
    /// How fast it consumes, by topic.
    pub status_table: BTreeMap<String, ConsumeStatus>,
    /// What it subscribes to.
    pub subscription_set: Vec<SubscriptionData>,
    /// What the application adds.
    pub user_consumer_info: BTreeMap<String, String>,
}

/// A queue that is consumed by POP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PopProcessQueueInfo {
    /// Whether it was given to another consumer. Spelled so; Go spells it `dropped`.
    #[serde(alias = "dropped")]
    pub droped: bool,
    /// When it was popped from, ms since the epoch.
    pub last_pop_timestamp: i64,
    /// How many messages wait for their acknowledgement.
    pub wait_ack_count: i32,
}

/// A queue that is pulled from. Times are ms since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessQueueInfo {
    /// How many messages are in memory.
    pub cached_msg_count: i32,
    /// Largest offset in memory.
    pub cached_msg_max_offset: i64,
    /// Smallest offset in memory.
    pub cached_msg_min_offset: i64,
    /// How much memory they take.
    #[serde(rename = "cachedMsgSizeInMiB")]
    pub cached_msg_size_in_mib: i32,
    /// The offset committed last.
    pub commit_offset: i64,
    /// Whether it was given to another consumer. Spelled so; Go spells it `dropped`.
    #[serde(alias = "dropped")]
    pub droped: bool,
    /// When a message was consumed last.
    pub last_consume_timestamp: i64,
    /// When it was locked last, if the group consumes in order.
    pub last_lock_timestamp: i64,
    /// When it was pulled from last.
    pub last_pull_timestamp: i64,
    /// Whether this consumer holds its lock.
    pub locked: bool,
    /// How many messages are being consumed in order.
    pub transaction_msg_count: i32,
    /// Largest offset of these.
    pub transaction_msg_max_offset: i64,
    /// Smallest offset of these.
    pub transaction_msg_min_offset: i64,
    /// How often unlocking was tried.
    pub try_unlock_times: i64,
}

/// How fast a consumer consumes one topic: times in ms, rates per second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeStatus {
    /// How many messages failed in the last hour.
    pub consume_failed_msgs: i64,
    /// How many fail.
    #[serde(rename = "consumeFailedTPS")]
    pub consume_failed_tps: f64,
    /// How many succeed.
    #[serde(rename = "consumeOKTPS")]
    pub consume_ok_tps: f64,
    /// How long one takes.
    #[serde(rename = "consumeRT")]
    pub consume_rt: f64,
    /// How long a pull takes.
    #[serde(rename = "pullRT")]
    pub pull_rt: f64,
    /// How many messages are pulled.
    #[serde(rename = "pullTPS")]
    pub pull_tps: f64,
}

/// Answer to code 221, which fills `messageQueueTable`, and to code 223, which fills `consumerTable`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetConsumerStatusBody {
    /// Client to queue to offset.
    pub consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>>,
    /// Queue to offset.
    pub message_queue_table: BTreeMap<MessageQueue, i64>,
}

/// Answer to code 309: what came of one message that a consumer was told to consume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeMessageDirectlyResult {
    /// Whether the consumer commits by itself.
    pub auto_commit: bool,
    /// The outcome.
    #[serde(deserialize_with = "json::enum_or_none")]
    pub consume_result: Option<CMResult>,
    /// Whether the consumer consumes in order.
    pub order: bool,
    /// The exception, if there was one.
    pub remark: Option<String>,
    /// How long it took, ms.
    pub spent_time_mills: i64,
}

impl Default for ConsumeMessageDirectlyResult {
    fn default() -> Self {
        ConsumeMessageDirectlyResult {
            auto_commit: true,
            consume_result: None,
            order: false,
            remark: None,
            spent_time_mills: 0,
        }
    }
}

/// The outcome of consuming a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CMResult {
    /// Consumed.
    #[serde(rename = "CR_SUCCESS")]
    Success,
    /// To be delivered again.
    #[serde(rename = "CR_LATER")]
    Later,
    /// Rolled back (in order, not committing by itself).
    #[serde(rename = "CR_ROLLBACK")]
    Rollback,
    /// Committed (in order, not committing by itself).
    #[serde(rename = "CR_COMMIT")]
    Commit,
    /// The application threw an exception.
    #[serde(rename = "CR_THROW_EXCEPTION")]
    ThrowException,
    /// The application returned null.
    #[serde(rename = "CR_RETURN_NULL")]
    ReturnNull,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn consumer_running_info() {
        let info = ConsumerRunningInfo {
            jstack: Some("…".to_owned()),
            mq_pop_table: BTreeMap::from([(mq(), PopProcessQueueInfo::default())]),
            mq_table: BTreeMap::from([(mq(), ProcessQueueInfo::default())]),
            properties: BTreeMap::from([("PROP_CLIENT_VERSION".to_owned(), "V5_3_3".to_owned())]),
            status_table: BTreeMap::from([("T".to_owned(), ConsumeStatus::default())]),
            subscription_set: vec![subscription_data()],
            user_consumer_info: BTreeMap::new(),
        };
        let text = format!(
            r#"{{"jstack":"…","mqPopTable":{{{MQ}:{{"droped":false,"lastPopTimestamp":0,"waitAckCount":0}}}},"mqTable":{{{MQ}:{{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,"cachedMsgSizeInMiB":0,"commitOffset":0,"droped":false,"lastConsumeTimestamp":0,"lastLockTimestamp":0,"lastPullTimestamp":0,"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,"transactionMsgMinOffset":0,"tryUnlockTimes":0}}}},"properties":{{"PROP_CLIENT_VERSION":"V5_3_3"}},"statusTable":{{"T":{{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":0.0,"consumeRT":0.0,"pullRT":0.0,"pullTPS":0.0}}}},"subscriptionSet":[{SUBDATA}],"userConsumerInfo":{{}}}}"#
        );
        assert_sample(&info, &text);
        // Java's writer refers to a key that it has written before (5.2 item 7).
        let referring =
            text.replace(&format!(r#""mqTable":{{{MQ}"#), r#""mqTable":{{"$ref":"$.mqPopTable.null"}"#);
        assert_eq!(json::from_slice(referring.as_bytes()), Ok(info));
    }

    #[test]
    fn go_spells_dropped_right() {
        let text = br#"{"mqTable":{"{\"topic\":\"T\"}":{"dropped":true}}}"#;
        let info: ConsumerRunningInfo = json::from_slice(text).unwrap();
        assert!(info.mq_table[&MessageQueue::new("T", "", 0)].droped);
    }

    #[test]
    fn get_consumer_status_body() {
        let status = GetConsumerStatusBody {
            consumer_table: BTreeMap::from([(
                "c".to_owned(),
                BTreeMap::from([(MessageQueue::new("T", "b0", 1), 6)]),
            )]),
            message_queue_table: BTreeMap::from([(mq(), 5)]),
        };
        assert_sample(
            &status,
            &format!(
                r#"{{"consumerTable":{{"c":{{{{"brokerName":"b0","queueId":1,"topic":"T"}}:6}}}},"messageQueueTable":{{{MQ}:5}}}}"#
            ),
        );
    }

    #[test]
    fn consume_message_directly_result() {
        let result = ConsumeMessageDirectlyResult {
            consume_result: Some(CMResult::Success),
            remark: Some("r".to_owned()),
            ..ConsumeMessageDirectlyResult::default()
        };
        assert_sample(
            &result,
            r#"{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"remark":"r","spentTimeMills":0}"#,
        );
    }
}
