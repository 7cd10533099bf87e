//! The state machine as `openraft` wants it.

use std::io;
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{
    Entry, EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta,
    StorageIOError,
};
use parking_lot::RwLock;

use super::snapshot::{SnapshotFile, StateAt};
use super::{LogId, Reply, StorageError, StoredMembership, Types, on_disk};
use crate::state::BrokerSets;

/// The state, shared with those who read it.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    state: Arc<RwLock<StateAt>>,
    file: SnapshotFile,
}

impl Machine {
    /// Goes on from `state`, which is what `file` has.
    pub(super) fn new(state: StateAt, file: SnapshotFile) -> Self {
        Self { state: Arc::new(RwLock::new(state)), file }
    }

    /// Looks at the state.
    pub(super) fn read<R>(&self, look: impl FnOnce(&BrokerSets) -> R) -> R {
        look(&self.state.read().sets)
    }

    #[expect(clippy::result_large_err, reason = "the type is openraft's")]
    fn save(&self, state: &StateAt) -> Result<(), StorageError> {
        let saved = on_disk(|| self.file.save(state));
        saved.map_err(|error| snapshot_error(ErrorVerb::Write, &error))
    }
}

fn snapshot_error(verb: ErrorVerb, error: &io::Error) -> StorageError {
    StorageIOError::new(ErrorSubject::Snapshot(None), verb, error).into()
}

fn snapshot_of(state: StateAt) -> Snapshot<Types> {
    let snapshot_id = state.applied.map_or_else(|| "none".to_owned(), |id| id.to_string());
    let meta = SnapshotMeta { last_log_id: state.applied, last_membership: state.membership, snapshot_id };
    Snapshot { meta, snapshot: Box::new(state.sets) }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let state = self.state.read().clone();
        self.save(&state)?;
        Ok(snapshot_of(state))
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let state = self.state.read();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Reply>, StorageError>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state.write();
        let apply = |entry: Entry<Types>| {
            state.applied = Some(entry.log_id);
            Reply(match entry.payload {
                EntryPayload::Blank => None,
                EntryPayload::Normal(command) => Some(state.sets.apply(&command)),
                EntryPayload::Membership(membership) => {
                    state.membership = StoredMembership::new(Some(entry.log_id), membership);
                    None
                }
            })
        };
        Ok(entries.into_iter().map(apply).collect())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<BrokerSets>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<crate::group::NodeId, openraft::EmptyNode>,
        snapshot: Box<BrokerSets>,
    ) -> Result<(), StorageError> {
        let state =
            StateAt { applied: meta.last_log_id, membership: meta.last_membership.clone(), sets: *snapshot };
        self.save(&state)?;
        *self.state.write() = state;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let read = on_disk(|| self.file.read());
        let state = read.map_err(|error| snapshot_error(ErrorVerb::Read, &io::Error::other(error)))?;
        Ok(state.map(snapshot_of))
    }
}
