//! Counters that the statistics requests show (`docs/spec/03-broker.md` 10.1).
//!
//! Who counts on the hot path makes a handle once ([`BrokerStats::topic_put`], [`BrokerStats::item`]), keeps it, and
//! adds to it; that is a few uncontended additions. Pulls, which keep nothing, call [`BrokerStats::group_got`]. Once a
//! second somebody calls [`BrokerStats::tick`], which samples what is due.

mod gets;
mod item;
mod name;
mod recent;
mod set;
mod totals;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferromq_protocol::names;
use ferromq_store::StoreStats;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use parking_lot::Mutex;

pub(crate) use gets::Got;
use gets::GroupGets;
pub(crate) use item::{StatsItem, Window};
pub(crate) use name::StatsName;
pub(crate) use recent::{Rate, RecentRates};
use set::StatsItemSet;
pub(crate) use totals::MorningTotals;
pub(crate) use view::route;

/// Idle times up to this many minutes are too short to be meant; [`IDLE_MINUTES_DEFAULT`] is taken instead.
const IDLE_MINUTES_TOO_SHORT: i64 = 10;
const IDLE_MINUTES_DEFAULT: i64 = 30;

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct BrokerStats {
    /// By [`StatsName`].
    sets: Vec<StatsItemSet>,
    cluster: String,
    /// Names of topics that belong to the system on this broker only.
    own_system_topics: Vec<String>,
    put: MorningTotals,
    get: MorningTotals,
    put_without_system: Arc<StatsItem>,
    get_without_system: Arc<StatsItem>,
    group_gets: GroupGets,
    get_ms_max: AtomicU64,
    recent: Mutex<RecentRates>,
    clock: Mutex<Clock>,
}

/// When what is due next.
#[derive(Debug)]
struct Clock {
    time_zone: TimeZone,
    /// The last tick's day.
    today: Option<Date>,
    /// By [`Window`]: when it is sampled next.
    next_sample_ms: [i64; 3],
    /// `maxStatsIdleTimeInMinutes`.
    idle_minutes_max: i64,
}

/// What an accepted send of one topic counts.
#[derive(Clone, Debug)]
pub(crate) struct TopicPutStats {
    nums: Arc<StatsItem>,
    size: Arc<StatsItem>,
    totals: Totals,
}

impl TopicPutStats {
    /// A put of so many messages (those of one batch) with so many bytes of the log.
    pub(crate) fn add(&self, messages: u64, bytes: u64) {
        self.add_many(1, messages, bytes);
    }

    /// Several puts at once.
    pub(crate) fn add_many(&self, puts: u64, messages: u64, bytes: u64) {
        self.nums.add(messages, puts);
        self.size.add(bytes, puts);
        self.totals.add(messages);
    }
}

/// Totals of the broker in one direction.
#[derive(Clone, Debug)]
struct Totals {
    all: Arc<StatsItem>,
    without_system: Option<Arc<StatsItem>>,
}

impl Totals {
    fn add(&self, messages: u64) {
        self.all.add_value(messages);
        if let Some(item) = &self.without_system {
            item.add_value(messages);
        }
    }
}

impl BrokerStats {
    /// Counters of a broker. `own_system_topics` are the topics that belong to the system here besides those that do
    /// everywhere (`docs/spec/03-broker.md` 12.1); `idle_minutes_max` is `maxStatsIdleTimeInMinutes`.
    pub(crate) fn new(
        cluster: &str,
        own_system_topics: impl IntoIterator<Item = String>,
        idle_minutes_max: i32,
    ) -> Self {
        Self::in_time_zone(cluster, own_system_topics, idle_minutes_max, TimeZone::system())
    }

    fn in_time_zone(
        cluster: &str,
        own_system_topics: impl IntoIterator<Item = String>,
        idle_minutes_max: i32,
        time_zone: TimeZone,
    ) -> Self {
        let sets: Vec<StatsItemSet> = StatsName::ALL.iter().map(|_| StatsItemSet::default()).collect();
        let total = |name: StatsName| sets[name as usize].item(cluster);
        Self {
            put_without_system: total(StatsName::BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC),
            get_without_system: total(StatsName::BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC),
            sets,
            cluster: cluster.to_owned(),
            own_system_topics: own_system_topics.into_iter().collect(),
            put: MorningTotals::default(),
            get: MorningTotals::default(),
            group_gets: GroupGets::default(),
            get_ms_max: AtomicU64::new(0),
            recent: Mutex::default(),
            clock: Mutex::new(Clock {
                time_zone,
                today: None,
                next_sample_ms: [i64::MIN; 3],
                idle_minutes_max: match i64::from(idle_minutes_max) {
                    0..=IDLE_MINUTES_TOO_SHORT => IDLE_MINUTES_DEFAULT,
                    minutes => minutes,
                },
            }),
        }
    }

    /// The item of a name and key, to be kept and counted on.
    pub(crate) fn item(&self, name: StatsName, key: &str) -> Arc<StatsItem> {
        self.sets[name as usize].item(key)
    }

    /// The item of a name and key, if anything was counted.
    pub(crate) fn find(&self, name: StatsName, key: &str) -> Option<Arc<StatsItem>> {
        self.sets[name as usize].find(key)
    }

    /// What sends to a topic count. Make it once per topic.
    pub(crate) fn topic_put(&self, topic: &str) -> TopicPutStats {
        TopicPutStats {
            nums: self.item(StatsName::TOPIC_PUT_NUMS, topic),
            size: self.item(StatsName::TOPIC_PUT_SIZE, topic),
            totals: Totals {
                all: self.item(StatsName::BROKER_PUT_NUMS, &self.cluster),
                without_system: (!self.is_system(topic)).then(|| Arc::clone(&self.put_without_system)),
            },
        }
    }

    /// The totals that pulls from a topic count for.
    fn get_totals_of(&self, topic: &str) -> Totals {
        Totals {
            all: self.item(StatsName::BROKER_GET_NUMS, &self.cluster),
            without_system: (!self.is_system(topic)).then(|| Arc::clone(&self.get_without_system)),
        }
    }

    /// The item for the durations of sends to a queue: add `(milliseconds, puts)`.
    pub(crate) fn topic_put_latency(&self, topic: &str, queue_id: i32) -> Arc<StatsItem> {
        self.item(StatsName::TOPIC_PUT_LATENCY, &format!("{queue_id}@{topic}"))
    }

    fn note_get_ms(&self, millis: u64) {
        if millis > self.get_ms_max.load(Ordering::Relaxed) {
            self.get_ms_max.fetch_max(millis, Ordering::Relaxed);
        }
    }

    /// How long the slowest pull since the start took, ms.
    pub(crate) fn get_ms_max(&self) -> u64 {
        self.get_ms_max.load(Ordering::Relaxed)
    }

    /// Messages that a group got from a topic per second, over the last minute.
    pub(crate) fn group_get_tps(&self, topic: &str, group: &str) -> f64 {
        let item = self.find(StatsName::GROUP_GET_NUMS, &format!("{topic}@{group}"));
        item.map_or(0.0, |item| item.snapshot(Window::Minute).tps)
    }

    /// Messages put into a topic per second, over the last minute.
    pub(crate) fn topic_put_tps(&self, topic: &str) -> f64 {
        self.find(StatsName::TOPIC_PUT_NUMS, topic).map_or(0.0, |item| item.snapshot(Window::Minute).tps)
    }

    /// Messages stored since the start, without those of system topics, now and at the last midnights.
    pub(crate) fn put_totals(&self) -> (u64, &MorningTotals) {
        (self.put_without_system.value(), &self.put)
    }

    /// Messages delivered since the start, without those of system topics, now and at the last midnights.
    pub(crate) fn get_totals(&self) -> (u64, &MorningTotals) {
        (self.get_without_system.value(), &self.get)
    }

    /// Reads the recent rates of the store.
    pub(crate) fn with_recent<R>(&self, read: impl FnOnce(&RecentRates) -> R) -> R {
        read(&self.recent.lock())
    }

    /// Forgets what was counted for a topic.
    pub(crate) fn remove_topic(&self, topic: &str) {
        self.group_gets.forget_topic(topic);
        self.remove(|name, key| name.is_of_topic(key, topic));
    }

    /// Forgets what was counted for a group.
    pub(crate) fn remove_group(&self, group: &str) {
        self.group_gets.forget_group(group);
        self.remove(|name, key| name.is_of_group(key, group));
    }

    fn remove(&self, is_gone: impl Fn(StatsName, &str) -> bool) {
        for (name, set) in StatsName::ALL.iter().zip(&self.sets) {
            set.remove(|key| is_gone(*name, key));
        }
    }

    /// Takes the samples that are due. To be called every second.
    pub(crate) fn tick(&self, now_ms: i64, store: &StoreStats) {
        self.recent.lock().sample(now_ms, store);
        let mut clock = self.clock.lock();
        for window in Window::ALL {
            let next_ms = &mut clock.next_sample_ms[window as usize];
            if now_ms < *next_ms {
                continue;
            }
            // After a pause (a suspended machine) one sample stands for all that were missed.
            let regular_ms = next_ms.saturating_add(window.interval_ms());
            *next_ms = if regular_ms > now_ms { regular_ms } else { now_ms + window.interval_ms() };
            for set in &self.sets {
                set.sample(window, now_ms);
            }
            if window == Window::Hour && clock.idle_minutes_max > 0 {
                let before_ms = now_ms - clock.idle_minutes_max * 60_000;
                self.group_gets.forget_all();
                let of_topics_and_groups = |name: &&StatsName| name.is_of_topics_or_groups();
                for name in StatsName::ALL.iter().filter(of_topics_and_groups) {
                    self.sets[*name as usize].remove_idle(before_ms);
                }
            }
        }
        if clock.midnight_passed(now_ms) {
            self.put.roll(self.put_without_system.value());
            self.get.roll(self.get_without_system.value());
        }
    }

    fn is_system(&self, topic: &str) -> bool {
        names::is_system_topic(topic) || self.own_system_topics.iter().any(|own| own == topic)
    }
}

impl Clock {
    /// Whether the local day is another one than at the last call.
    fn midnight_passed(&mut self, now_ms: i64) -> bool {
        let Ok(now) = Timestamp::from_millisecond(now_ms) else { return false };
        let today = self.time_zone.to_datetime(now).date();
        self.today.replace(today).is_some_and(|before| before != today)
    }
}

#[cfg(test)]
mod tests {
    use super::item::Snapshot;
    use super::*;

    const NOON_MS: i64 = 1_758_340_800_000; // 2025-09-20 12:00 in Shanghai

    fn stats() -> BrokerStats {
        let shanghai = TimeZone::fixed(jiff::tz::offset(8));
        BrokerStats::in_time_zone("DefaultCluster", ["broker-a".to_owned()], -1, shanghai)
    }

    fn sum(stats: &BrokerStats, name: StatsName, key: &str) -> Option<u64> {
        stats.find(name, key).map(|item| item.value())
    }

    #[test]
    fn a_put_counts_for_its_topic_and_the_broker() {
        let stats = stats();
        stats.topic_put("orders").add(5, 1000);
        stats.topic_put("broker-a").add(1, 200);
        stats.topic_put("rmq_sys_x").add(1, 200);
        assert_eq!(sum(&stats, StatsName::TOPIC_PUT_NUMS, "orders"), Some(5));
        assert_eq!(sum(&stats, StatsName::TOPIC_PUT_SIZE, "orders"), Some(1000));
        assert_eq!(sum(&stats, StatsName::BROKER_PUT_NUMS, "DefaultCluster"), Some(7));
        assert_eq!(stats.put_totals().0, 5);
    }

    #[test]
    fn a_pull_counts_for_its_group_and_the_broker() {
        let stats = stats();
        stats.group_got("orders", "pay", Got { queue_id: 0, messages: 3, bytes: 600, millis: 7 });
        assert_eq!(sum(&stats, StatsName::GROUP_GET_NUMS, "orders@pay"), Some(3));
        assert_eq!(sum(&stats, StatsName::BROKER_GET_NUMS, "DefaultCluster"), Some(3));
        assert_eq!(sum(&stats, StatsName::GROUP_GET_LATENCY, "0@orders@pay"), Some(7));
        assert_eq!((stats.get_totals().0, stats.get_ms_max()), (3, 7));
        stats.tick(NOON_MS, &StoreStats::default());
        assert_eq!(stats.group_get_tps("orders", "pay"), 0.3);
        assert_eq!(stats.group_get_tps("orders", "unknown"), 0.0);
    }

    #[test]
    fn deleting_a_topic_or_group_removes_its_items_only() {
        let stats = stats();
        for (topic, group) in [("orders", "pay"), ("orders", "bill"), ("users", "pay")] {
            stats.group_got(topic, group, Got { queue_id: 0, messages: 1, bytes: 1, millis: 1 });
        }
        stats.topic_put("orders").add(1, 1);
        stats.remove_topic("orders");
        assert_eq!(sum(&stats, StatsName::TOPIC_PUT_NUMS, "orders"), None);
        assert_eq!(sum(&stats, StatsName::GROUP_GET_NUMS, "orders@pay"), None);
        assert_eq!(sum(&stats, StatsName::GROUP_GET_LATENCY, "0@orders@bill"), None);
        assert_eq!(sum(&stats, StatsName::GROUP_GET_NUMS, "users@pay"), Some(1));
        stats.remove_group("pay");
        assert_eq!(sum(&stats, StatsName::GROUP_GET_LATENCY, "0@users@pay"), None);
    }

    #[test]
    fn minutes_are_sampled_every_ten_seconds() {
        let stats = stats();
        let put = stats.topic_put("orders");
        for second in 0..=60 {
            if second > 0 {
                put.add(10, 1);
            }
            stats.tick(NOON_MS + second * 1000, &StoreStats::default());
        }
        // The item exists since second 1, so its first sample is that of second 10, counted from second 0.
        let minute = stats.find(StatsName::TOPIC_PUT_NUMS, "orders").unwrap().snapshot(Window::Minute);
        assert_eq!(minute, Snapshot { sum: 600, tps: 10.0, avgpt: 10.0 });
    }

    #[test]
    fn a_pause_costs_one_sample() {
        let stats = stats();
        stats.topic_put("orders").add(100, 1);
        stats.tick(NOON_MS, &StoreStats::default());
        stats.topic_put("orders").add(100, 1);
        stats.tick(NOON_MS + 90_000, &StoreStats::default());
        stats.tick(NOON_MS + 91_000, &StoreStats::default());
        let minute = stats.find(StatsName::TOPIC_PUT_NUMS, "orders").unwrap().snapshot(Window::Minute);
        assert_eq!(minute.tps, 2.0);
    }

    #[test]
    fn totals_roll_at_local_midnight() {
        let stats = stats();
        let put = stats.topic_put("orders");
        put.add(10, 10);
        stats.tick(NOON_MS, &StoreStats::default());
        stats.tick(NOON_MS + 12 * 3_600_000 - 1, &StoreStats::default());
        assert_eq!(stats.put_totals().1.today_morning(), 0);
        stats.tick(NOON_MS + 12 * 3_600_000, &StoreStats::default());
        put.add(5, 5);
        let (now, mornings) = stats.put_totals();
        assert_eq!((now, mornings.today_morning(), mornings.yesterday_morning()), (15, 10, 0));
        stats.tick(NOON_MS + 36 * 3_600_000, &StoreStats::default());
        assert_eq!((mornings.today_morning(), mornings.yesterday_morning()), (15, 10));
    }

    #[test]
    fn idle_items_go_after_the_configured_minutes() {
        let stats = BrokerStats::in_time_zone("c", [], 5, TimeZone::UTC);
        stats.topic_put("orders").add(1, 1);
        for minutes in [0, 10, 20] {
            stats.tick(NOON_MS + minutes * 60_000, &StoreStats::default());
        }
        assert_eq!(sum(&stats, StatsName::TOPIC_PUT_NUMS, "orders"), Some(1));
        stats.tick(NOON_MS + 30 * 60_000, &StoreStats::default());
        assert_eq!(sum(&stats, StatsName::TOPIC_PUT_NUMS, "orders"), None);
        assert_eq!(stats.put_totals().0, 1, "totals of the broker stay");
    }
}
