//! Keeping away from brokers that are slow or failing (`docs/spec/07-client.md` 5).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Latency from which on a broker is left alone, and for how long.
const NOT_AVAILABLE: [(Duration, Duration); 5] = [
    (Duration::from_millis(15_000), Duration::from_millis(30_000)),
    (Duration::from_millis(5_000), Duration::from_millis(10_000)),
    (Duration::from_millis(3_000), Duration::from_millis(6_000)),
    (Duration::from_millis(1_800), Duration::from_millis(5_000)),
    (Duration::from_millis(550), Duration::from_millis(2_000)),
];

/// The latency that a failure counts as.
const ISOLATION_LATENCY: Duration = Duration::from_millis(10_000);

/// How long a broker is left alone after an answer that took `latency`.
fn not_available_duration(latency: Duration) -> Duration {
    let row = NOT_AVAILABLE.iter().find(|(at_least, _)| latency >= *at_least);
    row.map_or(Duration::ZERO, |(_, duration)| *duration)
}

/// What an attempt to send said about a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It took the message, or nothing is known against it.
    Fine,
    /// It failed; it may be back soon.
    Failed,
    /// It failed, and nothing is to be sent there before a probe has succeeded or there is no other choice.
    Unreachable,
}

/// What is known against brokers, by name. Brokers without an entry are fine.
#[derive(Debug, Default)]
pub(crate) struct FaultTable {
    items: Mutex<HashMap<String, FaultItem>>,
}

#[derive(Clone, Copy, Debug)]
struct FaultItem {
    available_from: Instant,
    reachable: bool,
    probe_after: Instant,
}

impl FaultTable {
    pub(crate) fn update(&self, broker: &str, latency: Duration, outcome: Outcome) {
        let latency = if outcome == Outcome::Fine { latency } else { ISOLATION_LATENCY };
        let reachable = outcome != Outcome::Unreachable;
        let now = Instant::now();
        let available_from = now + not_available_duration(latency);
        let mut items = self.items.lock();
        match items.get_mut(broker) {
            Some(item) => {
                item.reachable = reachable;
                // A quick answer does not shorten an isolation: one lucky message is no proof.
                item.available_from = item.available_from.max(available_from);
            }
            None => {
                let item = FaultItem { available_from, reachable, probe_after: now };
                items.insert(broker.to_owned(), item);
            }
        }
    }

    pub(crate) fn is_available(&self, broker: &str) -> bool {
        self.items.lock().get(broker).is_none_or(|item| Instant::now() >= item.available_from)
    }

    pub(crate) fn is_reachable(&self, broker: &str) -> bool {
        self.items.lock().get(broker).is_none_or(|item| item.reachable)
    }

    /// The brokers that are due for a probe; each is due again after `interval`.
    pub(crate) fn due_for_probe(&self, interval: Duration) -> Vec<String> {
        let now = Instant::now();
        let mut items = self.items.lock();
        let due = items.iter_mut().filter(|(_, item)| item.probe_after <= now);
        due.map(|(broker, item)| {
            item.probe_after = now + interval;
            broker.clone()
        })
        .collect()
    }

    pub(crate) fn set_reachable(&self, broker: &str) {
        if let Some(item) = self.items.lock().get_mut(broker) {
            item.reachable = true;
        }
    }

    pub(crate) fn remove(&self, broker: &str) {
        self.items.lock().remove(broker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_spec_25_8() {
        for (latency, duration) in [
            (0, 0),
            (99, 0),
            (100, 0),
            (549, 0),
            (550, 2000),
            (1799, 2000),
            (1800, 5000),
            (2999, 5000),
            (3000, 6000),
            (4999, 6000),
            (5000, 10000),
            (10000, 10000),
            (14999, 10000),
            (15000, 30000),
            (99999, 30000),
        ] {
            let found = not_available_duration(Duration::from_millis(latency));
            assert_eq!(found, Duration::from_millis(duration), "latency {latency}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_broker_is_left_alone_for_ten_seconds() {
        let table = FaultTable::default();
        assert!(table.is_available("a") && table.is_reachable("a"));
        table.update("a", Duration::from_millis(1), Outcome::Unreachable);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert!(!table.is_available("a") && !table.is_reachable("a"));
        table.update("a", Duration::from_millis(1), Outcome::Fine);
        assert!(!table.is_available("a"), "a quick answer does not end it");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(table.is_available("a") && table.is_reachable("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn probes_have_an_interval_and_make_reachable() {
        let table = FaultTable::default();
        let interval = Duration::from_secs(2);
        table.update("a", Duration::ZERO, Outcome::Unreachable);
        assert_eq!(table.due_for_probe(interval), ["a"]);
        assert!(table.due_for_probe(interval).is_empty());
        table.set_reachable("a");
        assert!(table.is_reachable("a") && !table.is_available("a"));
        tokio::time::advance(interval).await;
        assert_eq!(table.due_for_probe(interval), ["a"]);
        table.remove("a");
        assert!(table.is_available("a"));
    }
}
