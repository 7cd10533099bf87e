//! Who becomes master (`docs/spec/05-ha.md` 7.4, 7.5).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Applied, Asking, BrokerSet, Elected, LiveReplicas, Refused};

/// What the last heartbeat of a replica said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveReplica {
    /// Last epoch of its log.
    pub(crate) epoch: i32,
    /// End of its log.
    pub(crate) max_offset: i64,
    /// `brokerElectionPriority`; lower is preferred.
    pub(crate) priority: i32,
}

/// 1002: elects a master of `set`, or finds that the old one does.
///
/// A master that has started anew may have lost the end of its log, also of what it had acknowledged. The others of the SyncStateSet have
/// that, so one of them becomes master. If it is the only one, it stays that, but in a new epoch.
pub(super) fn elect(
    broker_name: &str,
    set: &mut BrokerSet,
    asking: Asking,
    live: &LiveReplicas,
    allow_unclean: bool,
) -> Result<Applied, Refused> {
    let is_anew = matches!(asking, Asking::Restarted { id, epoch } if set.master == Some(id) && set.master_epoch == epoch);
    let candidate = match asking {
        Asking::Restarted { id, .. } if is_anew => {
            let others = set.sync_state_set.iter().copied().filter(|other| *other != id).collect();
            best(&others, None, None, live).or(Some(id))
        }
        // A set that never had a master takes the first replica that asks: there is nothing to lose yet.
        Asking::Replica(id) | Asking::Operator(id) if set.master_epoch == 0 => {
            set.replicas.contains_key(&id).then_some(id)
        }
        _ => candidate(set, asking, live, allow_unclean),
    };
    match candidate {
        Some(id) if set.master == Some(id) && !is_anew => {
            Ok(Applied::MasterStays(elected(broker_name, set, id)))
        }
        Some(id) => {
            set.elect(id);
            Ok(Applied::Elected(elected(broker_name, set, id)))
        }
        None if asking == Asking::Controller => {
            if set.master.is_some() {
                set.elect_nobody();
            }
            Err(Refused::NobodyLeft { broker_name: broker_name.to_owned() })
        }
        None => Err(Refused::NobodyElected),
    }
}

fn elected(broker_name: &str, set: &BrokerSet, master: i64) -> Elected {
    Elected {
        cluster_name: set.cluster_name.clone(),
        broker_name: broker_name.to_owned(),
        master,
        master_address: set.master_address().unwrap_or_default().to_owned(),
        master_epoch: set.master_epoch,
        sync_state_set: set.sync_state_set(),
        members: set.replicas.iter().map(|(id, replica)| (*id, replica.address.clone())).collect(),
    }
}

/// From the SyncStateSet if somebody there is alive; otherwise from all replicas if that is allowed, because the setting
/// says so, or because an operator names a replica and the SyncStateSet is empty.
fn candidate(set: &BrokerSet, asking: Asking, live: &LiveReplicas, allow_unclean: bool) -> Option<i64> {
    let wanted = match asking {
        Asking::Operator(id) => Some(id),
        Asking::Replica(_) | Asking::Controller | Asking::Restarted { .. } => None,
    };
    let by_hand = wanted.is_some() && set.sync_state_set.is_empty();
    best(&set.sync_state_set, set.master, wanted, live).or_else(|| {
        let all: BTreeSet<i64> = set.replicas.keys().copied().collect();
        (allow_unclean || by_hand).then(|| best(&all, set.master, wanted, live)).flatten()
    })
}

fn best(
    ids: &BTreeSet<i64>,
    old_master: Option<i64>,
    wanted: Option<i64>,
    live: &LiveReplicas,
) -> Option<i64> {
    let alive = || ids.iter().filter_map(|id| live.get_key_value(id));
    if let Some(wanted) = wanted {
        return alive().map(|(id, _)| *id).find(|id| *id == wanted);
    }
    if let Some(old) = old_master.filter(|old| alive().any(|(id, _)| id == old)) {
        return Some(old);
    }
    // The lowest id decides among equals, so that every controller comes to the same result.
    let order = |(id, live): &(&i64, &LiveReplica)| {
        (live.epoch, live.max_offset, Reverse(live.priority), Reverse(**id))
    };
    alive().max_by_key(order).map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(replicas: &[(i64, i32, i64, i32)]) -> LiveReplicas {
        let replica = |&(id, epoch, max_offset, priority)| (id, LiveReplica { epoch, max_offset, priority });
        replicas.iter().map(replica).collect()
    }

    fn of_123(replicas: &[(i64, i32, i64, i32)]) -> Option<i64> {
        best(&BTreeSet::from([1, 2, 3]), None, None, &live(replicas))
    }

    #[test]
    fn a_newer_epoch_counts_before_a_longer_log_before_the_priority() {
        assert_eq!(of_123(&[(1, 4, 900, 0), (2, 5, 100, 9), (3, 5, 200, 9)]), Some(3));
        assert_eq!(of_123(&[(1, 5, 200, 7), (2, 5, 200, 3), (3, 5, 100, 0)]), Some(2));
        assert_eq!(of_123(&[(1, 5, 200, 7), (2, 5, 200, 7), (3, 5, 200, 7)]), Some(1));
        assert_eq!(of_123(&[]), None);
    }

    /// `docs/spec/05-ha.md` T18: the reference compares the lower 32 bits of the difference.
    #[test]
    fn offsets_are_compared_as_64_bits() {
        assert_eq!(of_123(&[(1, 5, 3_221_225_472, 0), (2, 5, 0, 0)]), Some(1));
        assert_eq!(of_123(&[(1, 5, 0, 0), (2, 5, i64::MAX, 0)]), Some(2));
    }

    #[test]
    fn whoever_is_outside_is_not_looked_at() {
        assert_eq!(best(&BTreeSet::from([1]), None, None, &live(&[(2, 9, 9, 0)])), None);
    }
}
