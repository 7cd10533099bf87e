//! What a consumer wants of a topic (`docs/spec/07-client.md` 3.5).

use std::time::{SystemTime, UNIX_EPOCH};

use ferromq_protocol::body::{EXPRESSION_TYPE_SQL92, EXPRESSION_TYPE_TAG, SUB_ALL, SubscriptionData};
use ferromq_protocol::message::java_string_hash;

use crate::error::Error;
use crate::message::MessageExt;

/// Which messages of a topic a consumer wants. A text is an expression of tags: `*` or `TagA || TagB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    expression_type: &'static str,
    expression: String,
}

impl Filter {
    /// All messages.
    pub fn all() -> Self {
        Self::tags(SUB_ALL)
    }

    /// Messages with one of these tags: `TagA || TagB`.
    pub fn tags(expression: impl Into<String>) -> Self {
        Self { expression_type: EXPRESSION_TYPE_TAG, expression: expression.into() }
    }

    /// Messages whose properties meet a condition: `a > 1 AND b IS NOT NULL`. The broker must allow it
    /// (`enablePropertyFilter`).
    pub fn sql(condition: impl Into<String>) -> Self {
        Self { expression_type: EXPRESSION_TYPE_SQL92, expression: condition.into() }
    }

    /// What brokers are told.
    pub(crate) fn subscription(&self, topic: &str) -> Result<SubscriptionData, Error> {
        let mut data = SubscriptionData {
            topic: topic.to_owned(),
            expression_type: self.expression_type.to_owned(),
            sub_string: self.expression.clone(),
            sub_version: now_ms(),
            ..SubscriptionData::default()
        };
        if self.expression_type == EXPRESSION_TYPE_SQL92 {
            if self.expression.trim().is_empty() {
                return Err(Error::invalid(format!("filter of topic {topic}"), "the condition is empty"));
            }
            return Ok(data);
        }
        if self.expression.trim().is_empty() || self.expression == SUB_ALL {
            SUB_ALL.clone_into(&mut data.sub_string);
            return Ok(data);
        }
        let tags = self.expression.split("||").map(str::trim).filter(|tag| !tag.is_empty());
        for tag in tags {
            data.code_set.insert(java_string_hash(tag));
            data.tags_set.insert(tag.to_owned());
        }
        if data.tags_set.is_empty() {
            return Err(Error::invalid(format!("filter of topic {topic}"), "it names no tag"));
        }
        Ok(data)
    }
}

impl From<&str> for Filter {
    fn from(tags: &str) -> Self {
        Self::tags(tags)
    }
}

/// Whether a message is wanted. Brokers compare hashes of tags only.
pub(crate) fn accepts(subscription: &SubscriptionData, message: &MessageExt) -> bool {
    subscription.tags_set.is_empty()
        || subscription.class_filter_mode
        || message.tags().is_some_and(|tag| subscription.tags_set.contains(tag))
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tags_of_the_spec_25_6() {
        let data = Filter::tags("TagA || TagB||  || 标签").subscription("T").unwrap();
        assert_eq!(data.tags_set, BTreeSet::from(["TagA", "TagB", "标签"].map(str::to_owned)));
        assert_eq!(data.code_set, BTreeSet::from([857_175, 2_598_919, 2_598_920]));
    }

    #[test]
    fn everything_and_conditions() {
        for all in ["", "*"] {
            let data = Filter::from(all).subscription("T").unwrap();
            assert_eq!((&*data.sub_string, data.tags_set.len()), ("*", 0));
        }
        let data = Filter::sql("a > 1").subscription("T").unwrap();
        assert_eq!((&*data.expression_type, &*data.sub_string), ("SQL92", "a > 1"));
        assert!(Filter::sql(" ").subscription("T").is_err());
        assert!(Filter::tags(" || ").subscription("T").is_err());
    }
}
