//! A master's time in office.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::epochs::Epoch;
use super::in_sync::InSync;
use super::role::Shared;
use crate::classic::{AtEnd, Pace};

/// From taking office to ceding it.
#[derive(Debug)]
pub(super) struct Mastership {
    pub(super) epoch: Epoch,
    state: Mutex<State>,
    /// The SyncStateSet may have to change.
    pub(super) change_due: Notify,
    /// Ends connections and tasks.
    pub(super) over: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    in_sync: InSync,
    is_over: bool,
    slaves: BTreeMap<i64, Arc<Slave>>,
}

/// A connected slave.
#[derive(Debug)]
pub(super) struct Slave {
    pub(super) id: i64,
    pub(super) peer: SocketAddr,
    pub(super) acked: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) pace: Pace,
    /// Ends the connection.
    pub(super) replaced: watch::Sender<bool>,
}

/// A connected slave, as administrators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedSlave {
    /// Its id in the set.
    pub id: i64,
    /// Where it connects from.
    pub peer: SocketAddr,
    /// Up to where it has the log.
    pub acked: u64,
    /// Up to where it was sent the log.
    pub sent: u64,
    /// It belongs to the SyncStateSet.
    pub in_sync: bool,
    /// Bytes that it was sent in the last second.
    pub bytes_per_second: u64,
}

impl Mastership {
    pub(super) fn new(own: i64, epoch: Epoch, set: BTreeSet<i64>, set_epoch: i32) -> Self {
        let in_sync = InSync::new(own, set, set_epoch, Instant::now());
        Self {
            epoch,
            state: Mutex::new(State { in_sync, is_over: false, slaves: BTreeMap::new() }),
            change_due: Notify::new(),
            over: watch::Sender::new(false),
        }
    }

    /// Ends it. Nothing is confirmed by it when this returns.
    pub(super) fn cede(&self) {
        self.state.lock().is_over = true;
        self.over.send_replace(true);
    }

    /// Confirms what all have who have to have it. Done under the lock: what is proposed afterwards finds it confirmed.
    fn confirm(state: &State, shared: &Shared) {
        if !state.is_over {
            shared.log.confirm(state.in_sync.confirmed(shared.log.bounds().end));
        }
    }

    /// The controller has this set now.
    pub(super) fn accept(&self, shared: &Shared, set: BTreeSet<i64>, epoch: i32) {
        let mut state = self.state.lock();
        if state.in_sync.accept(set, epoch, Instant::now()) {
            let (set, epoch) = state.in_sync.accepted();
            tracing::info!(?set, epoch, "the SyncStateSet changed");
            Self::confirm(&state, shared);
        }
    }

    /// The controller has not made the proposed change.
    pub(super) fn refuse(&self, shared: &Shared) {
        let mut state = self.state.lock();
        state.in_sync.refuse();
        Self::confirm(&state, shared);
    }

    /// The controller did not say whether it made the proposed change.
    pub(super) fn doubt(&self) {
        self.state.lock().in_sync.doubt();
    }

    /// The change to propose now, if any, with the epoch of the set that it replaces.
    pub(super) fn propose(&self, shared: &Shared) -> Option<(BTreeSet<i64>, i32)> {
        let mut state = self.state.lock();
        let lag_max = shared.settings.load().lag_max;
        let confirmed = shared.log.bounds().confirmed;
        let wanted = state.in_sync.propose(confirmed, self.epoch.start, lag_max, Instant::now())?;
        Some((wanted, state.in_sync.accepted().1))
    }

    /// The SyncStateSet as the controller had it last.
    pub(super) fn accepted(&self) -> (BTreeSet<i64>, i32) {
        self.state.lock().in_sync.accepted()
    }

    /// So many replicas have to have a message.
    pub(super) fn size(&self) -> usize {
        self.state.lock().in_sync.size()
    }

    /// How many replicas have the log up to `offset`, this one included.
    pub(super) fn replicas_at(&self, offset: u64) -> usize {
        let state = self.state.lock();
        1 + state.slaves.values().filter(|slave| slave.acked.load(Ordering::Acquire) >= offset).count()
    }

    pub(super) fn connected(&self, slave: &Arc<Slave>, is_learner: bool) {
        let mut state = self.state.lock();
        state.in_sync.connected(slave.id, is_learner);
        if let Some(old) = state.slaves.insert(slave.id, slave.clone()) {
            old.replaced.send_replace(true);
        }
    }

    pub(super) fn disconnected(&self, slave: &Arc<Slave>) {
        let mut state = self.state.lock();
        if state.slaves.get(&slave.id).is_some_and(|known| Arc::ptr_eq(known, slave)) {
            state.slaves.remove(&slave.id);
            if state.in_sync.disconnected(slave.id) {
                self.change_due.notify_one();
            }
        }
    }

    /// A slave has reported.
    pub(super) fn acked(&self, shared: &Shared, slave: &Slave, offset: u64, caught_up: Option<Instant>) {
        let mut state = self.state.lock();
        slave.acked.store(offset, Ordering::Release);
        state.in_sync.acked(slave.id, offset, caught_up);
        Self::confirm(&state, shared);
        let (set, _) = state.in_sync.accepted();
        if !set.contains(&slave.id) && offset >= shared.log.bounds().confirmed {
            self.change_due.notify_one();
        }
        shared.acked.notify_waiters();
    }

    pub(super) fn slaves(&self) -> Vec<ConnectedSlave> {
        let state = self.state.lock();
        let (set, _) = state.in_sync.accepted();
        let status = |slave: &Arc<Slave>| ConnectedSlave {
            id: slave.id,
            peer: slave.peer,
            acked: slave.acked.load(Ordering::Acquire),
            sent: slave.sent.load(Ordering::Acquire),
            in_sync: set.contains(&slave.id),
            bytes_per_second: slave.pace.per_second(Instant::now()),
        };
        state.slaves.values().map(status).collect()
    }
}

/// Confirms what the broker appends while nobody else has to have it.
pub(super) async fn confirm_appended(shared: Arc<Shared>, mastership: Arc<Mastership>) {
    let mut over = mastership.over.subscribe();
    loop {
        let end = shared.log.bounds().end;
        Mastership::confirm(&mastership.state.lock(), &shared);
        tokio::select! {
            () = AtEnd::new(&*shared.log, end + 1) => {}
            _ = over.wait_for(|over| *over) => return,
        }
    }
}
