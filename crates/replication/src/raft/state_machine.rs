//! What a committed entry does: it confirms its range of the commit log. There is no other state, so a snapshot is nothing but the
//! name of a point in the log.

use std::sync::Arc;

use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder, SnapshotMeta, StorageError,
    StoredMembership,
};
use parking_lot::Mutex;

use super::index::Base;
use super::log_store::storage_error;
use super::storage::{NodeStore, blocking};
use super::types::{Entry, GroupConfig, LogId, LogPrefix, Members, NodeId};

/// openraft's state machine.
pub(crate) struct Confirmed {
    store: NodeStore,
    state: Arc<Mutex<Applied>>,
}

#[derive(Debug, Clone, Default)]
struct Applied {
    last: Option<LogId>,
    members: Members,
    /// Where the last applied entry ends in the commit log.
    end: u64,
    snapshot: Option<Snapshot<GroupConfig>>,
}

impl Confirmed {
    /// Begins at the base of the index. What is committed behind it is applied again by openraft.
    pub(crate) fn new(store: NodeStore) -> Confirmed {
        let mut applied = Applied::default();
        if let Some(base) = store.base() {
            store.log().confirm(base.end);
            applied = Applied { last: Some(base.id), members: base.members, end: base.end, snapshot: None };
        }
        Confirmed { store, state: Arc::new(Mutex::new(applied)) }
    }
}

impl RaftStateMachine<GroupConfig> for Confirmed {
    type SnapshotBuilder = NamePoint;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Members), StorageError<NodeId>> {
        let state = self.state.lock();
        Ok((state.last, state.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError<NodeId>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state.lock();
        let mut answers = Vec::new();
        for entry in entries {
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(range) => state.end = range.end(),
                EntryPayload::Membership(members) => {
                    state.members = StoredMembership::new(Some(entry.log_id), members);
                }
            }
            state.last = Some(entry.log_id);
            answers.push(());
        }
        self.store.log().confirm(state.end);
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> NamePoint {
        NamePoint(Arc::clone(&self.state))
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<LogPrefix>, StorageError<NodeId>> {
        Ok(Box::default())
    }

    /// The log holds the snapshot's bytes already: see [`catch_up`](super::catch_up).
    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<NodeId, openraft::BasicNode>,
        snapshot: Box<LogPrefix>,
    ) -> Result<(), StorageError<NodeId>> {
        let mut state = self.state.lock();
        if let Some(id) = meta.last_log_id {
            let base = Base { id, end: snapshot.end, members: meta.last_membership.clone() };
            blocking(|| self.store.rebegin(Some(base)))
                .map_err(storage_error(ErrorSubject::Snapshot(None), ErrorVerb::Write))?;
        }
        self.store.log().confirm(snapshot.end);
        *state = Applied {
            last: meta.last_log_id,
            members: meta.last_membership.clone(),
            end: snapshot.end,
            snapshot: Some(Snapshot { meta: meta.clone(), snapshot }),
        };
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<GroupConfig>>, StorageError<NodeId>> {
        Ok(self.state.lock().snapshot.clone())
    }
}

/// Builds snapshots.
pub(crate) struct NamePoint(Arc<Mutex<Applied>>);

impl RaftSnapshotBuilder<GroupConfig> for NamePoint {
    async fn build_snapshot(&mut self) -> Result<Snapshot<GroupConfig>, StorageError<NodeId>> {
        let mut state = self.0.lock();
        let name = state.last.map_or_else(|| "empty".to_owned(), |last| format!("{last}@{}", state.end));
        let meta = SnapshotMeta {
            last_log_id: state.last,
            last_membership: state.members.clone(),
            snapshot_id: name,
        };
        let snapshot = Snapshot { meta, snapshot: Box::new(LogPrefix { end: state.end }) };
        state.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }
}
