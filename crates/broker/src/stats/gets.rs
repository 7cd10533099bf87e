//! What groups get from topics, counted by every pull.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::item::StatsItem;
use super::{BrokerStats, StatsName, Totals};

/// A pull that delivered something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Got {
    pub(crate) queue_id: i32,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// How long it took.
    pub(crate) millis: u64,
}

type ByGroup = HashMap<Box<str>, Arc<GroupGetStats>>;

/// The items of every group and topic that pulls came for, so that a pull builds no keys.
#[derive(Debug, Default)]
pub(super) struct GroupGets {
    by_topic: RwLock<HashMap<Box<str>, ByGroup>>,
}

/// What pulls of one group from one topic count.
#[derive(Debug)]
pub(super) struct GroupGetStats {
    nums: Arc<StatsItem>,
    size: Arc<StatsItem>,
    totals: Totals,
    /// By queue.
    latencies: RwLock<HashMap<i32, Arc<StatsItem>>>,
}

impl GroupGets {
    /// The items of a group and topic.
    fn of(&self, stats: &BrokerStats, topic: &str, group: &str) -> Arc<GroupGetStats> {
        if let Some(known) = self.by_topic.read().get(topic).and_then(|groups| groups.get(group)) {
            return Arc::clone(known);
        }
        let made = || Arc::new(GroupGetStats::new(stats, topic, group));
        let mut by_topic = self.by_topic.write();
        let groups = by_topic.entry(topic.into()).or_default();
        Arc::clone(groups.entry(group.into()).or_insert_with(made))
    }

    /// Lets go of a topic's items.
    pub(super) fn forget_topic(&self, topic: &str) {
        self.by_topic.write().remove(topic);
    }

    /// Lets go of a group's items.
    pub(super) fn forget_group(&self, group: &str) {
        self.by_topic.write().retain(|_, groups| {
            groups.remove(group);
            !groups.is_empty()
        });
    }

    /// Lets go of all items; those that are still counted on come back.
    pub(super) fn forget_all(&self) {
        self.by_topic.write().clear();
    }
}

impl GroupGetStats {
    fn new(stats: &BrokerStats, topic: &str, group: &str) -> Self {
        let key = format!("{topic}@{group}");
        Self {
            nums: stats.item(StatsName::GROUP_GET_NUMS, &key),
            size: stats.item(StatsName::GROUP_GET_SIZE, &key),
            totals: stats.get_totals_of(topic),
            latencies: RwLock::default(),
        }
    }

    fn latency(&self, stats: &BrokerStats, topic: &str, group: &str, queue_id: i32) -> Arc<StatsItem> {
        if let Some(known) = self.latencies.read().get(&queue_id) {
            return Arc::clone(known);
        }
        let made = || stats.item(StatsName::GROUP_GET_LATENCY, &format!("{queue_id}@{topic}@{group}"));
        Arc::clone(self.latencies.write().entry(queue_id).or_insert_with(made))
    }
}

impl BrokerStats {
    /// Counts a pull of a group from a topic.
    pub(crate) fn group_got(&self, topic: &str, group: &str, got: Got) {
        let items = self.group_gets.of(self, topic, group);
        items.nums.add(got.messages, 1);
        items.size.add(got.bytes, 1);
        items.totals.add(got.messages);
        items.latency(self, topic, group, got.queue_id).add(got.millis, 1);
        self.note_get_ms(got.millis);
    }
}
