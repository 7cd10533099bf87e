//! All counters of one name.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::item::{StatsItem, Window};

/// The items of one name, by key.
///
/// An item that somebody holds is never taken out of the set: what they count would be lost. It is emptied instead,
/// and an item without counts is invisible.
#[derive(Debug, Default)]
pub(crate) struct StatsItemSet {
    items: RwLock<HashMap<Box<str>, Arc<StatsItem>>>,
}

impl StatsItemSet {
    /// The item of a key, made if need be. Keep it when counting often.
    pub(crate) fn item(&self, key: &str) -> Arc<StatsItem> {
        if let Some(item) = self.items.read().get(key) {
            return Arc::clone(item);
        }
        Arc::clone(self.items.write().entry(key.into()).or_default())
    }

    /// The item of a key, if anything was counted.
    pub(crate) fn find(&self, key: &str) -> Option<Arc<StatsItem>> {
        self.items.read().get(key).filter(|item| item.is_used()).map(Arc::clone)
    }

    /// Samples every item that was ever counted.
    pub(crate) fn sample(&self, window: Window, at_ms: i64) {
        for item in self.items.read().values().filter(|item| item.is_used()) {
            item.sample(window, at_ms);
        }
    }

    /// Drops the items whose key `is_gone` picks.
    pub(crate) fn remove(&self, is_gone: impl Fn(&str) -> bool) {
        self.remove_items(|key, _| is_gone(key));
    }

    /// Drops the items that have counted nothing since `before_ms`.
    pub(crate) fn remove_idle(&self, before_ms: i64) {
        self.remove_items(|_, item| item.idle_since_ms().is_some_and(|since_ms| since_ms <= before_ms));
    }

    fn remove_items(&self, is_gone: impl Fn(&str, &StatsItem) -> bool) {
        self.items.write().retain(|key, item| {
            if !is_gone(key, item) {
                return true;
            }
            // Handles come from this map only, whose lock is held: nobody can begin to hold a lone item now.
            let is_held = Arc::strong_count(item) > 1;
            if is_held {
                item.reset();
            }
            is_held
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_visible_once_it_counted() {
        let set = StatsItemSet::default();
        let item = set.item("orders");
        assert!(set.find("orders").is_none());
        item.add(1, 1);
        assert!(Arc::ptr_eq(&item, &set.find("orders").unwrap()));
    }

    #[test]
    fn a_removed_item_that_is_held_counts_from_zero() {
        let set = StatsItemSet::default();
        let held = set.item("orders");
        held.add(5, 5);
        set.item("other").add(1, 1);
        set.remove(|_| true);
        assert!(set.find("orders").is_none());
        assert!(set.items.read().get("other").is_none());
        held.add(2, 2);
        assert_eq!(set.find("orders").unwrap().value(), 2);
    }

    #[test]
    fn idle_items_go() {
        let set = StatsItemSet::default();
        set.item("a").add(1, 1);
        set.item("b").add(1, 1);
        set.sample(Window::Hour, 1000);
        set.item("b").add(1, 1);
        set.sample(Window::Hour, 2000);
        set.remove_idle(1000);
        assert!(set.find("a").is_none());
        assert!(set.find("b").is_some());
    }
}
