//! Subscriptions that came with pulls (`docs/spec/03-broker.md` 4.5).

use std::collections::HashMap;
use std::sync::Arc;

use ferromq_protocol::body::SubscriptionData;
use parking_lot::RwLock;

/// How much older than a pull's subscription the known one may be before it is replaced, ms. Pulls come all the time, and
/// the age matters only to the expiry after minutes.
const REFRESH_AFTER_MS: i64 = 30_000;

/// What groups subscribe to that say so in each pull instead of in heartbeats. Only administrators look here.
#[derive(Debug, Default)]
pub(crate) struct Compensation {
    groups: RwLock<HashMap<String, HashMap<String, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    subscription: Arc<SubscriptionData>,
    /// When a pull said so last, ms since the epoch.
    told_ms: i64,
}

impl Compensation {
    /// A pull at `now_ms` came with this expression. `build` makes the subscription of it; nearly always it is not needed.
    pub(crate) fn told(
        &self,
        group: &str,
        topic: &str,
        (expression_type, expression): (&str, &str),
        now_ms: i64,
        build: impl FnOnce() -> SubscriptionData,
    ) {
        let is_known = |entry: &Entry| {
            entry.subscription.sub_string == expression
                && entry.subscription.expression_type == expression_type
                && now_ms - entry.told_ms < REFRESH_AFTER_MS
        };
        if self.groups.read().get(group).and_then(|topics| topics.get(topic)).is_some_and(is_known) {
            return;
        }
        let entry = Entry { subscription: Arc::new(build()), told_ms: now_ms };
        self.groups.write().entry(group.to_owned()).or_default().insert(topic.to_owned(), entry);
    }

    /// What the group's pulls said last.
    pub(super) fn get(&self, group: &str, topic: &str) -> Option<Arc<SubscriptionData>> {
        self.groups.read().get(group)?.get(topic).map(|entry| entry.subscription.clone())
    }

    /// Forgets what was told before `deadline_ms`.
    pub(super) fn remove_expired(&self, deadline_ms: i64) {
        self.groups.write().retain(|_, topics| {
            topics.retain(|_, entry| entry.told_ms >= deadline_ms);
            !topics.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(expression: &str) -> SubscriptionData {
        SubscriptionData { sub_string: expression.into(), ..SubscriptionData::default() }
    }

    #[test]
    fn the_last_one_counts_until_it_expires() {
        let table = Compensation::default();
        let expression = || table.get("G", "T").map(|known| known.sub_string.clone());
        let told = |text: &'static str, now_ms| {
            let mut built = false;
            table.told("G", "T", ("TAG", text), now_ms, || {
                built = true;
                subscription(text)
            });
            built
        };
        assert_eq!(expression(), None);
        assert!(told("a", 0));
        assert!(!told("a", 29_999), "what is known is not built again");
        assert!(told("b", 29_999));
        assert!(told("b", 60_000), "but its age is kept up to date");
        assert_eq!(expression(), Some("b".into()));
        table.remove_expired(60_000);
        assert_eq!(expression(), Some("b".into()));
        table.remove_expired(60_001);
        assert_eq!(expression(), None);
    }
}
