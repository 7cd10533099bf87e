//! Which messages a consumer wants (`docs/spec/03-broker.md` 8.1, 8.2).

use std::sync::Arc;

use ferromq_protocol::body::{EXPRESSION_TYPE_TAG, SUB_ALL, SubscriptionData};
use ferromq_protocol::message::{RecordView, java_string_hash};
use ferromq_store::MessageFilter;

/// A subscription by tags, ready to be matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagFilter {
    /// Every message.
    All,
    /// Messages with one of these tags.
    Tags(Arc<[Tag]>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    code: i32,
    /// `None` if the consumer told only the hash.
    name: Option<Box<str>>,
}

/// The tags of an expression such as `TagA || TagB`; `None` for one that selects everything.
fn tags_of(expression: &str) -> Option<impl Iterator<Item = &str>> {
    let expression = expression.trim();
    if expression.is_empty() || expression == SUB_ALL {
        return None;
    }
    Some(expression.split("||").map(str::trim).filter(|tag| !tag.is_empty()))
}

/// Whether an expression is by tags: that is the type when none is named.
pub(crate) fn is_tag_type(expression_type: Option<&str>) -> bool {
    expression_type.is_none_or(|name| name.is_empty() || name == EXPRESSION_TYPE_TAG)
}

impl TagFilter {
    /// From the expression that a pull carries. `None` if it holds no tag at all (`||`): that is no subscription.
    pub(crate) fn from_expression(expression: &str) -> Option<Self> {
        let Some(tags) = tags_of(expression) else { return Some(Self::All) };
        let tags: Arc<[Tag]> =
            tags.map(|name| Tag { code: java_string_hash(name), name: Some(name.into()) }).collect();
        (!tags.is_empty()).then_some(Self::Tags(tags))
    }

    /// What administrators are shown of a subscription that came with a pull.
    pub(crate) fn to_subscription(
        &self,
        topic: &str,
        expression: &str,
        sub_version: i64,
    ) -> SubscriptionData {
        let tags = match self {
            Self::All => &[][..],
            Self::Tags(tags) => tags,
        };
        SubscriptionData {
            topic: topic.to_owned(),
            sub_string: if tags.is_empty() { SUB_ALL.to_owned() } else { expression.to_owned() },
            code_set: tags.iter().map(|tag| tag.code).collect(),
            tags_set: tags.iter().filter_map(|tag| tag.name.as_deref().map(str::to_owned)).collect(),
            sub_version,
            ..SubscriptionData::default()
        }
    }

    /// From the subscription that a heartbeat registered.
    pub(crate) fn from_subscription(subscription: &SubscriptionData) -> Self {
        if subscription.class_filter_mode || subscription.sub_string == SUB_ALL {
            return Self::All;
        }
        let named = subscription
            .tags_set
            .iter()
            .map(|name| Tag { code: java_string_hash(name), name: Some((**name).into()) });
        let mut tags: Vec<Tag> = named.collect();
        let unnamed = subscription.code_set.iter().filter(|code| !tags.iter().any(|tag| tag.code == **code));
        let unnamed: Vec<Tag> = unnamed.map(|code| Tag { code: *code, name: None }).collect();
        tags.extend(unnamed);
        Self::Tags(tags.into())
    }
}

impl MessageFilter for TagFilter {
    fn matches_unit(&self, tags_code: i64) -> bool {
        match self {
            Self::All => true,
            // The code set holds 32-bit hashes; the unit's is one, sign-extended.
            Self::Tags(tags) => tags.iter().any(|tag| tag.code == tags_code as i32),
        }
    }

    /// Tags with equal hashes are told apart here: clients other than the official ones don't.
    fn matches_record(&self, record: &[u8]) -> bool {
        let Self::Tags(tags) = self else { return true };
        let Ok(view) = RecordView::parse(record) else { return true };
        let own = view.property("TAGS").unwrap_or_default();
        let code = java_string_hash(own);
        tags.iter().any(|tag| match &tag.name {
            Some(name) => **name == *own,
            None => tag.code == code,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_split_at_bars() {
        assert_eq!(TagFilter::from_expression("*"), Some(TagFilter::All));
        assert_eq!(TagFilter::from_expression(""), Some(TagFilter::All));
        assert_eq!(TagFilter::from_expression(" || "), None);
        let filter = TagFilter::from_expression("TagA ||  a b").unwrap();
        assert!(filter.matches_unit(i64::from(java_string_hash("a b"))));
        assert!(filter.matches_unit(2_598_919));
        assert!(!filter.matches_unit(2_598_920));
    }

    #[test]
    fn a_subscription_may_know_only_hashes() {
        let subscription = SubscriptionData {
            sub_string: "TagA".into(),
            code_set: [2_598_919].into(),
            ..SubscriptionData::default()
        };
        let filter = TagFilter::from_subscription(&subscription);
        assert!(filter.matches_unit(2_598_919));
        assert!(!filter.matches_unit(0));
    }
}
