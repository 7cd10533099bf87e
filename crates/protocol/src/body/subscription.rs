//! What a consumer wants of a topic.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A filter by tags, the default one.
pub const EXPRESSION_TYPE_TAG: &str = "TAG";
/// A filter by a condition on properties.
pub const EXPRESSION_TYPE_SQL92: &str = "SQL92";
/// The expression that lets every message pass.
pub const SUB_ALL: &str = "*";

/// A consumer group's subscription to one topic: element of heartbeats (code 34), connections (code 203), running
/// info (code 307) and codes 46, 321, 345.
///
/// A client that leaves `subVersion` out means the time of arrival; it reads as 0 here, because this crate has no clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionData {
    /// Whether a Java class filters; obsolete.
    pub class_filter_mode: bool,
    /// Java's string hash of each tag.
    pub code_set: BTreeSet<i32>,
    /// [`EXPRESSION_TYPE_TAG`], [`EXPRESSION_TYPE_SQL92`] or the name of another filter.
    pub expression_type: String,
    /// The expression: `*`, `TagA || TagB`, or a condition.
    pub sub_string: String,
    /// The larger one of two versions of a subscription is the newer one; ms since the epoch.
    pub sub_version: i64,
    /// The tags; empty for `*` and for conditions.
    pub tags_set: BTreeSet<String>,
    /// The topic.
    pub topic: String,
}

impl Default for SubscriptionData {
    fn default() -> Self {
        SubscriptionData {
            class_filter_mode: false,
            code_set: BTreeSet::new(),
            expression_type: EXPRESSION_TYPE_TAG.to_owned(),
            sub_string: String::new(),
            sub_version: 0,
            tags_set: BTreeSet::new(),
            topic: String::new(),
        }
    }
}

/// A subscription that is part of a group's configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SimpleSubscriptionData {
    /// The expression.
    pub expression: String,
    /// As in [`SubscriptionData`].
    pub expression_type: String,
    /// The topic.
    pub topic: String,
    /// As `subVersion` in [`SubscriptionData`].
    pub version: i64,
}

/// Body of code 46: a subscription to be checked before it is used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckClientRequestBody {
    /// The client that asks.
    pub client_id: String,
    /// Its group.
    pub group: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The subscription.
    pub subscription_data: Option<SubscriptionData>,
}

/// Answer to code 345: the subscription of a group that is online.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuerySubscriptionResponseBody {
    /// The group.
    pub group: String,
    /// Its subscription, if known.
    pub subscription_data: Option<SubscriptionData>,
    /// The topic.
    pub topic: String,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;
    use crate::json;

    #[test]
    fn subscriptions() {
        assert_sample(&subscription_data(), SUBDATA);
        let simple = SimpleSubscriptionData {
            expression: "*".to_owned(),
            expression_type: "TAG".to_owned(),
            topic: "T".to_owned(),
            version: 1,
        };
        assert_sample(&simple, r#"{"expression":"*","expressionType":"TAG","topic":"T","version":1}"#);
    }

    #[test]
    fn go_sends_codes_as_text() {
        let text = br#"{"codeSet":["97","98"],"topic":"T"}"#;
        assert_eq!(json::from_slice::<SubscriptionData>(text).unwrap().code_set, BTreeSet::from([97, 98]));
    }

    #[test]
    fn checks_and_queries() {
        let check = CheckClientRequestBody {
            client_id: "c".to_owned(),
            group: "G".to_owned(),
            namespace: Some("ns".to_owned()),
            subscription_data: Some(subscription_data()),
        };
        assert_sample(
            &check,
            &format!(r#"{{"clientId":"c","group":"G","namespace":"ns","subscriptionData":{SUBDATA}}}"#),
        );
        let answer = QuerySubscriptionResponseBody {
            group: "G".to_owned(),
            subscription_data: Some(subscription_data()),
            topic: "T".to_owned(),
        };
        assert_sample(&answer, &format!(r#"{{"group":"G","subscriptionData":{SUBDATA},"topic":"T"}}"#));
    }
}
