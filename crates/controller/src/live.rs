//! Which replicas are alive: what this controller heard of them (`docs/spec/05-ha.md` 7.6).
//!
//! Brokers send heartbeats to all controllers, so each has a table of its own and nothing of it is replicated. Only
//! replicas that got their id from the group are in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::state::{LiveReplica, LiveReplicas};

/// Timeout of a replica that announces none, and how long a controller listens before it takes silence for death.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// One replica of one set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplicaId {
    pub(crate) broker_name: String,
    pub(crate) broker_id: i64,
}

/// What a heartbeat says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub(crate) address: String,
    /// Silence after which the replica counts as dead.
    pub(crate) timeout: Duration,
    pub(crate) replica: LiveReplica,
}

#[derive(Debug)]
enum Sign {
    Alive { heartbeat: Heartbeat, at: Instant, connection: u64 },
    Dead,
}

/// A replica whose connection ended while it was alive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Disconnected {
    pub(crate) id: ReplicaId,
    pub(crate) address: String,
    connection: u64,
}

/// The last sign of every replica.
#[derive(Debug)]
pub(crate) struct LiveTable {
    since: Instant,
    /// By set, then by id.
    signs: Mutex<HashMap<String, BTreeMap<i64, Sign>>>,
}

impl LiveTable {
    /// A table that begins to listen now.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), signs: Mutex::default() }
    }

    /// Notes a heartbeat that came over `connection`.
    pub(crate) fn heard(&self, id: ReplicaId, heartbeat: Heartbeat, connection: u64) {
        let sign = Sign::Alive { heartbeat, at: Instant::now(), connection };
        let before = self.signs.lock().entry(id.broker_name.clone()).or_default().insert(id.broker_id, sign);
        if !matches!(before, Some(Sign::Alive { .. })) {
            tracing::info!(broker = id.broker_name, id = id.broker_id, "replica is alive");
        }
    }

    /// The replicas of a set that are alive.
    pub(crate) fn alive(&self, broker_name: &str) -> BTreeMap<i64, Heartbeat> {
        let signs = self.signs.lock();
        let alive = signs.get(broker_name).into_iter().flatten().filter_map(|(id, sign)| match sign {
            Sign::Alive { heartbeat, at, .. } if at.elapsed() <= heartbeat.timeout => {
                Some((*id, heartbeat.clone()))
            }
            _ => None,
        });
        alive.collect()
    }

    /// Ids of those that are alive.
    pub(crate) fn alive_ids(&self, broker_name: &str) -> BTreeSet<i64> {
        self.alive(broker_name).into_keys().collect()
    }

    /// What those that are alive say of their logs.
    pub(crate) fn live_replicas(&self, broker_name: &str) -> LiveReplicas {
        self.alive(broker_name).into_iter().map(|(id, heartbeat)| (id, heartbeat.replica)).collect()
    }

    /// Whether a replica is dead. One that was never heard of is not before it had time to be.
    pub(crate) fn is_dead(&self, broker_name: &str, broker_id: i64) -> bool {
        let signs = self.signs.lock();
        match signs.get(broker_name).and_then(|set| set.get(&broker_id)) {
            Some(Sign::Alive { heartbeat, at, .. }) => at.elapsed() > heartbeat.timeout,
            Some(Sign::Dead) => true,
            None => self.since.elapsed() > DEFAULT_TIMEOUT,
        }
    }

    /// Replicas that were silent for too long. They are dead from now on.
    pub(crate) fn expire(&self) -> Vec<ReplicaId> {
        let mut expired = Vec::new();
        for (name, set) in self.signs.lock().iter_mut() {
            for (id, sign) in set {
                let is_silent =
                    matches!(sign, Sign::Alive { heartbeat, at, .. } if at.elapsed() > heartbeat.timeout);
                if is_silent {
                    *sign = Sign::Dead;
                    expired.push(ReplicaId { broker_name: name.clone(), broker_id: *id });
                }
            }
        }
        expired
    }

    /// Replicas whose last heartbeat came over `connection`, which ended.
    pub(crate) fn disconnected(&self, connection: u64) -> Vec<Disconnected> {
        let signs = self.signs.lock();
        let all = signs.iter().flat_map(|(name, set)| set.iter().map(move |(id, sign)| (name, id, sign)));
        all.filter_map(|(name, id, sign)| match sign {
            Sign::Alive { heartbeat, connection: last, .. } if *last == connection => Some(Disconnected {
                id: ReplicaId { broker_name: name.clone(), broker_id: *id },
                address: heartbeat.address.clone(),
                connection,
            }),
            _ => None,
        })
        .collect()
    }

    /// Takes a replica for dead unless it was heard over another connection meanwhile.
    pub(crate) fn bury(&self, lost: &Disconnected) -> bool {
        let mut signs = self.signs.lock();
        let sign = signs.get_mut(&lost.id.broker_name).and_then(|set| set.get_mut(&lost.id.broker_id));
        match sign {
            Some(sign @ Sign::Alive { .. }) => {
                let is_same =
                    matches!(sign, Sign::Alive { connection, .. } if *connection == lost.connection);
                if is_same {
                    *sign = Sign::Dead;
                }
                is_same
            }
            _ => false,
        }
    }

    /// Forgets replicas that the group does not know any more.
    pub(crate) fn retain(&self, is_known: impl Fn(&str, i64) -> bool) {
        self.signs.lock().retain(|name, set| {
            set.retain(|id, _| is_known(name, *id));
            !set.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(broker_id: i64) -> ReplicaId {
        ReplicaId { broker_name: "broker-a".to_owned(), broker_id }
    }

    fn heartbeat(timeout: Duration) -> Heartbeat {
        let replica = LiveReplica { epoch: 1, max_offset: 10, priority: 0 };
        Heartbeat { address: "10.0.0.1:10911".to_owned(), timeout, replica }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_death_after_the_timeout_that_the_replica_announced() {
        let table = LiveTable::new();
        table.heard(id(1), heartbeat(Duration::from_secs(3)), 7);
        table.heard(id(2), heartbeat(Duration::from_secs(9)), 8);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(table.alive_ids("broker-a"), BTreeSet::from([2]));
        assert_eq!(table.expire(), [id(1)]);
        assert_eq!(table.expire(), []);
        table.heard(id(1), heartbeat(Duration::from_secs(3)), 7);
        assert!(!table.is_dead("broker-a", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_never_heard_of_is_not_dead_at_once() {
        let table = LiveTable::new();
        assert!(!table.is_dead("broker-a", 1));
        tokio::time::advance(DEFAULT_TIMEOUT + Duration::from_secs(1)).await;
        assert!(table.is_dead("broker-a", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_connection_counts_only_if_nothing_came_over_another_one() {
        let table = LiveTable::new();
        table.heard(id(1), heartbeat(DEFAULT_TIMEOUT), 7);
        let lost = table.disconnected(7);
        assert_eq!(lost.len(), 1);
        table.heard(id(1), heartbeat(DEFAULT_TIMEOUT), 9);
        assert!(!table.bury(&lost[0]));
        assert!(!table.is_dead("broker-a", 1));
        assert!(table.bury(&table.disconnected(9)[0]));
        assert!(table.is_dead("broker-a", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_no_longer_known_is_forgotten() {
        let table = LiveTable::new();
        table.heard(id(1), heartbeat(DEFAULT_TIMEOUT), 7);
        table.heard(id(2), heartbeat(DEFAULT_TIMEOUT), 7);
        table.retain(|_, id| id == 2);
        assert_eq!(table.alive_ids("broker-a"), BTreeSet::from([2]));
    }
}
