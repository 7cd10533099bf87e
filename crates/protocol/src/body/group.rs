//! Consumer groups: their configuration, and lists of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};

use super::{DataVersion, SimpleSubscriptionData};
use crate::json;

/// The configuration of a consumer group on one broker: body of codes 200 and 352, element of codes 201, 225 and of
/// `subscriptionGroup.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupConfig {
    /// None are defined so far. Absent in 4.x.
    pub attributes: BTreeMap<String, String>,
    /// Broker id that consumers are told to read from.
    pub broker_id: i64,
    /// Whether broadcasting consumers may pull.
    pub consume_broadcast_enable: bool,
    /// Whether the group may consume at all.
    pub consume_enable: bool,
    /// Whether a new group begins at the smallest offset.
    pub consume_from_min_enable: bool,
    /// Whether POP keeps the order of each queue.
    pub consume_message_orderly: bool,
    /// After how many minutes a message being consumed counts as failed.
    pub consume_timeout_minute: i32,
    /// The group.
    pub group_name: String,
    /// When POP delivers a failed message again.
    pub group_retry_policy: GroupRetryPolicy,
    /// Bits: 1 unit (6.6).
    pub group_sys_flag: i32,
    /// Whether the broker tells the consumers (code 40) when one comes or goes.
    pub notify_consumer_ids_changed_enable: bool,
    /// After how many retries a message becomes a dead letter.
    pub retry_max_times: i32,
    /// Queues of the retry topic.
    pub retry_queue_nums: i32,
    /// Subscriptions that are fixed, if any.
    #[serde(serialize_with = "in_line_if_any")]
    pub subscription_data_set: Option<BTreeSet<SimpleSubscriptionData>>,
    /// Broker id that a consumer is sent to when it lags far behind.
    pub which_broker_when_consume_slowly: i64,
}

impl Default for SubscriptionGroupConfig {
    fn default() -> Self {
        SubscriptionGroupConfig {
            attributes: BTreeMap::new(),
            broker_id: 0,
            consume_broadcast_enable: true,
            consume_enable: true,
            consume_from_min_enable: true,
            consume_message_orderly: false,
            consume_timeout_minute: 15,
            group_name: String::new(),
            group_retry_policy: GroupRetryPolicy::default(),
            group_sys_flag: 0,
            notify_consumer_ids_changed_enable: true,
            retry_max_times: 16,
            retry_queue_nums: 1,
            subscription_data_set: None,
            which_broker_when_consume_slowly: 1,
        }
    }
}

impl SubscriptionGroupConfig {
    /// A group with everything at its default.
    pub fn new(group_name: impl Into<String>) -> Self {
        SubscriptionGroupConfig { group_name: group_name.into(), ..SubscriptionGroupConfig::default() }
    }
}

fn in_line_if_any<S: Serializer>(
    set: &Option<BTreeSet<SimpleSubscriptionData>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match set {
        Some(set) => json::in_line(set, serializer),
        None => serializer.serialize_none(),
    }
}

/// When POP delivers a message again that was not acknowledged (`docs/spec/03-broker.md` 7).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupRetryPolicy {
    /// The delays if the type is `CUSTOMIZED`; absent means the default ones.
    pub customized_retry_policy: Option<CustomizedRetryPolicy>,
    /// The rule if the type is `EXPONENTIAL`; absent means the default one.
    pub exponential_retry_policy: Option<ExponentialRetryPolicy>,
    /// Which of the two counts. `type` in JSON.
    #[serde(rename = "type", deserialize_with = "json::enum_or_default")]
    pub policy_type: GroupRetryPolicyType,
}

/// See [`GroupRetryPolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GroupRetryPolicyType {
    /// Delays that grow by a factor.
    Exponential,
    /// A list of delays.
    #[default]
    Customized,
}

/// A delay for each retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CustomizedRetryPolicy {
    /// The delays, ms.
    #[serde(serialize_with = "json::in_line")]
    pub next: Vec<i64>,
}

impl Default for CustomizedRetryPolicy {
    fn default() -> Self {
        const SECONDS: [i64; 18] =
            [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200];
        CustomizedRetryPolicy { next: SECONDS.map(|seconds| seconds * 1000).to_vec() }
    }
}

/// A delay that grows by a factor with each retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExponentialRetryPolicy {
    /// The first delay, ms.
    pub initial: i64,
    /// The longest delay, ms.
    pub max: i64,
    /// The factor.
    pub multiplier: i64,
}

impl Default for ExponentialRetryPolicy {
    fn default() -> Self {
        ExponentialRetryPolicy { initial: 5_000, max: 7_200_000, multiplier: 2 }
    }
}

/// All consumer groups of a broker: answer to code 201, and `subscriptionGroup.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupWrapper {
    /// Changes with every change of a group.
    pub data_version: DataVersion,
    /// Group to topic to bits; bit 2 (value 4) set = the group must not read the topic. Absent in 4.x.
    pub forbidden_table: BTreeMap<String, BTreeMap<String, i32>>,
    /// The groups by name.
    pub subscription_group_table: BTreeMap<String, SubscriptionGroupConfig>,
}

/// Body of code 225: groups to create or update.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionGroupList {
    /// The groups.
    pub group_config_list: Vec<SubscriptionGroupConfig>,
}

/// Answer to code 353: whether a group may read a topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupForbidden {
    /// The group.
    pub group: String,
    /// Whether it may read.
    pub readable: bool,
    /// The topic.
    pub topic: String,
}

/// Answer to code 300: groups that consume a topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupList {
    /// Their names.
    pub group_list: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn group_config() {
        assert_sample(&SubscriptionGroupConfig::new("G"), GROUPCONFIG);
        assert_eq!(json::from_slice(br#"{"groupName":"G"}"#), Ok(SubscriptionGroupConfig::new("G")));
    }

    #[test]
    fn group_config_with_all_members() {
        let simple = SimpleSubscriptionData {
            expression: "*".to_owned(),
            expression_type: "TAG".to_owned(),
            topic: "T".to_owned(),
            version: 1,
        };
        let group = SubscriptionGroupConfig {
            attributes: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            group_retry_policy: GroupRetryPolicy {
                customized_retry_policy: Some(CustomizedRetryPolicy::default()),
                exponential_retry_policy: Some(ExponentialRetryPolicy::default()),
                policy_type: GroupRetryPolicyType::Exponential,
            },
            subscription_data_set: Some(BTreeSet::from([simple])),
            ..SubscriptionGroupConfig::new("G")
        };
        assert_sample(
            &group,
            concat!(
                r#"{"attributes":{"k":"v"},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"#,
                r#""consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G","#,
                r#""groupRetryPolicy":{"customizedRetryPolicy":{"next":[1000,5000,10000,30000,60000,120000,180000,"#,
                r#"240000,300000,360000,420000,480000,540000,600000,1200000,1800000,3600000,7200000]},"#,
                r#""exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2},"type":"EXPONENTIAL"},"#,
                r#""groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"#,
                r#""subscriptionDataSet":[{"expression":"*","expressionType":"TAG","topic":"T","version":1}],"#,
                r#""whichBrokerWhenConsumeSlowly":1}"#
            ),
        );
        assert!(json::to_string_pretty(&group.group_retry_policy).contains("\"next\":[1000,5000,"));
    }

    #[test]
    fn subscription_group_wrapper() {
        let groups = SubscriptionGroupWrapper {
            data_version: dv(),
            forbidden_table: BTreeMap::from([("G".to_owned(), BTreeMap::from([("T".to_owned(), 4)]))]),
            subscription_group_table: BTreeMap::from([("G".to_owned(), SubscriptionGroupConfig::new("G"))]),
        };
        assert_sample(
            &groups,
            &format!(
                r#"{{"dataVersion":{DV},"forbiddenTable":{{"G":{{"T":4}}}},"subscriptionGroupTable":{{"G":{GROUPCONFIG}}}}}"#
            ),
        );
    }

    #[test]
    fn lists() {
        let groups = SubscriptionGroupList { group_config_list: vec![SubscriptionGroupConfig::new("G")] };
        assert_sample(&groups, &format!(r#"{{"groupConfigList":[{GROUPCONFIG}]}}"#));
        let forbidden = GroupForbidden { group: "G".to_owned(), readable: true, topic: "T".to_owned() };
        assert_sample(&forbidden, r#"{"group":"G","readable":true,"topic":"T"}"#);
        assert_sample(&GroupList { group_list: BTreeSet::from(["G".to_owned()]) }, r#"{"groupList":["G"]}"#);
    }
}
