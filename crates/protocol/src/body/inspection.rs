//! The inside of a store, for administrators who look for a fault.

use serde::{Deserialize, Serialize};

use super::SubscriptionData;

/// Answer to code 321: units of a consume queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueryConsumeQueueResponseBody {
    /// The group's filter as text that holds pretty JSON, or why there is none.
    pub filter_data: Option<String>,
    /// Offset behind the last unit of the queue.
    pub max_queue_index: i64,
    /// Offset of the first unit of the queue.
    pub min_queue_index: i64,
    /// The units asked for.
    pub queue_data: Vec<ConsumeQueueData>,
    /// The group's subscription, if a group was named and is online.
    pub subscription_data: Option<SubscriptionData>,
}

/// One unit of a consume queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumeQueueData {
    /// Bits of the filters that the message passes, if the queue has an extension.
    pub bit_map: Option<String>,
    /// Whether the message passes the group's filter.
    pub eval: bool,
    /// The unit of the extension.
    pub extend_data_json: Option<String>,
    /// What could not be read.
    pub msg: Option<String>,
    /// Where the message lies in the log.
    pub physic_offset: i64,
    /// How long it is.
    pub physic_size: i32,
    /// Hash of its tags.
    pub tags_code: i64,
}

/// Answer to code 354: whether the consume queues in RocksDB are as those in files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckRocksdbCqWriteResult {
    /// What was found.
    pub check_result: Option<String>,
    /// 0 they are, 1 they are not, 2 the check goes on, 3 it failed.
    pub check_status: i32,
}

#[cfg(test)]
mod tests {
    use super::super::sample::assert_sample;
    use super::*;

    #[test]
    fn samples() {
        let mut queue = QueryConsumeQueueResponseBody {
            queue_data: vec![ConsumeQueueData::default()],
            ..QueryConsumeQueueResponseBody::default()
        };
        assert_sample(
            &queue,
            r#"{"maxQueueIndex":0,"minQueueIndex":0,"queueData":[{"eval":false,"physicOffset":0,"physicSize":0,"tagsCode":0}]}"#,
        );
        queue.filter_data = Some("@TopicA is not online!".to_owned());
        queue.queue_data.clear();
        assert_sample(
            &queue,
            r#"{"filterData":"@TopicA is not online!","maxQueueIndex":0,"minQueueIndex":0,"queueData":[]}"#,
        );
        let result = CheckRocksdbCqWriteResult { check_result: Some("…".to_owned()), check_status: 2 };
        assert_sample(&result, r#"{"checkResult":"…","checkStatus":2}"#);
    }
}
