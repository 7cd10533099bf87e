//! The SyncStateSet as its master keeps it: who belongs to it, and up to where the log is confirmed (`docs/spec/05-ha.md` 9.7, 9.8).
//!
//! The controller has the set; the master proposes changes. While it is not certain whether a change was made, the controller may
//! elect a new master from the old set or from the new one, so what is confirmed has to be in both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What a master knows of its replicas.
#[derive(Debug)]
pub(super) struct InSync {
    own: i64,
    /// As the controller had it last.
    accepted: BTreeSet<i64>,
    accepted_epoch: i32,
    /// Members of changes of this set that the controller may have made.
    proposed: BTreeSet<i64>,
    /// A proposal was not answered: it may still be carried out, whatever is answered to others.
    is_uncertain: bool,
    slaves: BTreeMap<i64, Progress>,
}

/// How far a slave is.
#[derive(Debug, Clone, Copy)]
struct Progress {
    acked: u64,
    /// When it had everything, as far as is known.
    caught_up: Option<Instant>,
    is_learner: bool,
    /// Or was not there yet since the master took office.
    is_connected: bool,
}

impl InSync {
    /// A master takes office. The others of the set have as much time to come as one that lags.
    pub(super) fn new(own: i64, accepted: BTreeSet<i64>, accepted_epoch: i32, now: Instant) -> Self {
        let expected = Progress { acked: 0, caught_up: Some(now), is_learner: false, is_connected: true };
        let slaves = accepted.iter().filter(|id| **id != own).map(|id| (*id, expected)).collect();
        Self { own, accepted, accepted_epoch, proposed: BTreeSet::new(), is_uncertain: false, slaves }
    }

    /// The set as the controller had it last, and its epoch.
    pub(super) fn accepted(&self) -> (BTreeSet<i64>, i32) {
        (self.accepted.clone(), self.accepted_epoch)
    }

    /// The controller has this set now. False if that is nothing new.
    pub(super) fn accept(&mut self, set: BTreeSet<i64>, epoch: i32, now: Instant) -> bool {
        if epoch <= self.accepted_epoch {
            return false;
        }
        for id in set.difference(&self.accepted) {
            // Whoever was just taken in had everything.
            if let Some(slave) = self.slaves.get_mut(id) {
                slave.caught_up = slave.caught_up.max(Some(now));
            }
        }
        (self.accepted, self.accepted_epoch) = (set, epoch);
        self.proposed.clear();
        self.is_uncertain = false;
        true
    }

    /// The controller has not made the change that was proposed last.
    pub(super) fn refuse(&mut self) {
        if !self.is_uncertain {
            self.proposed.clear();
        }
    }

    /// The controller did not say whether it made the change that was proposed last.
    pub(super) fn doubt(&mut self) {
        self.is_uncertain = true;
    }

    pub(super) fn connected(&mut self, id: i64, is_learner: bool) {
        let before = self.slaves.get(&id);
        let (acked, caught_up) = before.map_or((0, None), |slave| (slave.acked, slave.caught_up));
        self.slaves.insert(id, Progress { acked, caught_up, is_learner, is_connected: true });
    }

    /// True if the slave belongs to the set, which should change now.
    pub(super) fn disconnected(&mut self, id: i64) -> bool {
        if let Some(slave) = self.slaves.get_mut(&id) {
            slave.is_connected = false;
        }
        self.accepted.contains(&id)
    }

    /// A slave's log, which is a part of ours, ends at `offset`.
    pub(super) fn acked(&mut self, id: i64, offset: u64, caught_up: Option<Instant>) {
        if let Some(slave) = self.slaves.get_mut(&id) {
            slave.acked = offset;
            slave.caught_up = slave.caught_up.max(caught_up);
        }
    }

    /// Up to where everybody has the log who may become master: all of the set and of the proposed ones. Own log: `end`.
    pub(super) fn confirmed(&self, end: u64) -> u64 {
        let members = self.accepted.union(&self.proposed).filter(|id| **id != self.own);
        // One that is not connected has what it said last.
        members.map(|id| self.slaves.get(id).map_or(0, |slave| slave.acked)).fold(end, u64::min)
    }

    /// So many replicas have to have a message: the larger one of the set and the proposed one.
    pub(super) fn size(&self) -> usize {
        self.accepted.len().max(self.proposed.len())
    }

    /// The change that has to be proposed now, if any.
    ///
    /// A slave is taken in when it has all that is `confirmed` and the master's whole log before the present epoch (`epoch_start`); it
    /// leaves when it is gone, or has not had everything for `lag_max`.
    pub(super) fn propose(
        &mut self,
        confirmed: u64,
        epoch_start: u64,
        lag_max: Duration,
        now: Instant,
    ) -> Option<BTreeSet<i64>> {
        let keeps_up =
            |slave: &Progress| slave.caught_up.is_some_and(|at| now.saturating_duration_since(at) <= lag_max);
        let belongs = |(id, slave): (&i64, &Progress)| {
            let has_enough = self.accepted.contains(id)
                || slave.acked >= confirmed && slave.acked >= epoch_start && !slave.is_learner;
            (slave.is_connected && has_enough && keeps_up(slave)).then_some(*id)
        };
        let mut wanted: BTreeSet<i64> = self.slaves.iter().filter_map(belongs).collect();
        wanted.insert(self.own);
        if wanted == self.accepted {
            return None;
        }
        self.proposed.extend(&wanted);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_secs(15);

    fn set<const N: usize>(ids: [i64; N]) -> BTreeSet<i64> {
        BTreeSet::from(ids)
    }

    /// Master 1 with slave 2 in the set.
    fn pair(now: Instant) -> InSync {
        let mut in_sync = InSync::new(1, set([1]), 1, Instant::now());
        in_sync.connected(2, false);
        in_sync.acked(2, 100, Some(now));
        assert_eq!(in_sync.propose(100, 0, LAG, now), Some(set([1, 2])));
        assert!(in_sync.accept(set([1, 2]), 2, now));
        in_sync
    }

    #[test]
    fn alone_the_masters_log_is_enough() {
        assert_eq!(InSync::new(1, set([1]), 1, Instant::now()).confirmed(500), 500);
    }

    #[test]
    fn while_a_change_is_under_way_the_old_and_the_new_set_have_to_have_a_message() {
        let now = Instant::now();
        let mut in_sync = pair(now);
        in_sync.connected(3, false);
        in_sync.acked(3, 100, Some(now));
        in_sync.acked(2, 200, Some(now));
        assert_eq!(in_sync.confirmed(200), 200);
        // 3 is proposed: from now on it counts.
        assert_eq!(in_sync.propose(100, 0, LAG, now), Some(set([1, 2, 3])));
        assert_eq!(in_sync.confirmed(200), 100);
        // 2 is gone: it counts until the controller has taken it out.
        assert!(in_sync.disconnected(2));
        assert_eq!(in_sync.propose(100, 0, LAG, now), Some(set([1, 3])));
        in_sync.acked(3, 300, Some(now));
        assert_eq!(in_sync.confirmed(300), 200);
        assert!(in_sync.accept(set([1, 3]), 3, now));
        assert_eq!(in_sync.confirmed(300), 300);
    }

    #[test]
    fn a_refused_change_is_forgotten_but_not_one_that_may_still_be_made() {
        let now = Instant::now();
        let mut in_sync = pair(now);
        in_sync.connected(3, false);
        in_sync.acked(3, 150, Some(now));
        in_sync.acked(2, 200, Some(now));
        in_sync.propose(150, 0, LAG, now).unwrap();
        assert_eq!(in_sync.confirmed(200), 150);
        in_sync.refuse();
        assert_eq!(in_sync.confirmed(200), 200);

        in_sync.propose(150, 0, LAG, now).unwrap();
        in_sync.doubt();
        in_sync.propose(150, 0, LAG, now).unwrap();
        in_sync.refuse();
        assert_eq!(in_sync.confirmed(200), 150);
        // A newer set of the controller ends the doubt.
        assert!(in_sync.accept(set([1, 2]), 3, now));
        assert_eq!(in_sync.confirmed(200), 200);
    }

    #[test]
    fn who_lags_leaves_and_who_is_a_learner_never_comes_in() {
        let now = Instant::now();
        let mut in_sync = pair(now);
        assert_eq!(in_sync.propose(100, 0, LAG, now + LAG), None);
        assert_eq!(in_sync.propose(100, 0, LAG, now + LAG + LAG), Some(set([1])));
        in_sync.connected(3, true);
        in_sync.acked(3, 900, Some(now));
        assert_eq!(in_sync.propose(100, 0, LAG, now), None);
    }

    #[test]
    fn who_has_not_all_that_is_confirmed_waits() {
        let now = Instant::now();
        let mut in_sync = InSync::new(1, set([1]), 1, Instant::now());
        in_sync.connected(2, false);
        in_sync.acked(2, 99, Some(now));
        assert_eq!(in_sync.propose(100, 0, LAG, now), None);
        in_sync.acked(2, 100, Some(now));
        assert_eq!(in_sync.propose(100, 101, LAG, now), None);
        assert_eq!(in_sync.propose(100, 100, LAG, now), Some(set([1, 2])));
    }

    #[test]
    fn older_news_change_nothing() {
        let now = Instant::now();
        let mut in_sync = pair(now);
        assert!(!in_sync.accept(set([1]), 2, now));
        assert_eq!((in_sync.accepted(), in_sync.size()), ((set([1, 2]), 2), 2));
    }
}
