//! The group of controllers as one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, ClientWriteError, InitializeError, RaftError};
use openraft::{Config, EmptyNode, Raft, ServerState, SnapshotPolicy};
use thiserror::Error;
use tokio::time::timeout;

use super::journal::{Journal, JournalError};
use super::log_store::LogStore;
use super::machine::Machine;
use super::peer::{self, PeerLink, PeerRefusal, Peers};
use super::sealed::DamagedFile;
use super::snapshot::SnapshotFile;
use super::{Reply, Types, on_disk};
use crate::group::{Group, NodeId};
use crate::state::{Applied, BrokerSets, Command, Refused};

/// How long the group may take for one command or read (`docs/spec/05-ha.md` 7.3).
const DONE_TIMEOUT: Duration = Duration::from_secs(5);

/// Entries after which the state is saved and older ones are forgotten.
const SNAPSHOT_ENTRIES: u64 = 1000;
/// Entries that are kept for controllers that were away for a moment.
const KEPT_ENTRIES: u64 = 200;

/// Why something was not done.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// Another controller leads, or none does.
    #[error("The controller is not in leader state")]
    NotLeader,
    /// The majority did not answer. The command may still be carried out later.
    #[error("the controllers did not agree within {DONE_TIMEOUT:?}")]
    NoMajority,
    /// This controller has stopped, or its disk has failed.
    #[error("this controller can't go on: {0}")]
    Stopped(String),
}

/// Why a controller can't take part in its group.
#[derive(Debug, Error)]
pub(crate) enum JoinError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Snapshot(#[from] DamagedFile),
    #[error(
        "the state in {folder} is of the group of controllers {theirs}, the settings name {ours}; the controllers of a \
         group can't be changed, only their addresses"
    )]
    OtherGroup { folder: String, theirs: String, ours: String },
    #[error("{0}")]
    Raft(String),
}

/// When the group looks for another leader.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// Shortest and longest silence of the leader, ms. Each controller draws its own in between.
    pub(crate) election_timeout_ms: std::ops::Range<u64>,
}

/// This controller's part in the group.
#[derive(Clone)]
pub(crate) struct Consensus {
    raft: Raft<Types>,
    machine: Machine,
    group: Arc<Group>,
    /// Silence of the others, ms, after which a leader no longer says that it leads.
    believed_ms: u64,
}

impl Consensus {
    /// Takes part in `group` with what `folder` has, on the current Tokio runtime. A new group forms by itself.
    pub(crate) async fn join<L: PeerLink>(
        group: Arc<Group>,
        folder: &Path,
        timing: Timing,
        link: L,
    ) -> Result<Self, JoinError> {
        let file = SnapshotFile::new(folder);
        let (journal, state) = on_disk(|| -> Result<_, JoinError> {
            let journal = Journal::open(folder)?;
            Ok((journal, file.read()?.unwrap_or_default()))
        })?;
        let machine = Machine::new(state, file);
        let config = config(&group, &timing)?;
        let peers = Peers::new(Group::clone(&group), link);
        let raft = Raft::new(group.own_id, Arc::new(config), peers, LogStore::new(journal), machine.clone());
        let raft = raft.await.map_err(|error| JoinError::Raft(error.to_string()))?;

        let members: BTreeMap<NodeId, EmptyNode> =
            group.peers.keys().map(|id| (*id, EmptyNode::new())).collect();
        match raft.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => return Err(JoinError::Raft(error.to_string())),
        }
        let known = raft.with_raft_state(|state| {
            state.membership_state.effective().membership().voter_ids().collect::<BTreeSet<NodeId>>()
        });
        let known = known.await.map_err(|error| JoinError::Raft(error.to_string()))?;
        let ours: BTreeSet<NodeId> = group.peers.keys().copied().collect();
        // Empty on a controller that has not heard of anything yet.
        if !known.is_empty() && known != ours {
            return Err(JoinError::OtherGroup {
                folder: folder.display().to_string(),
                theirs: format!("{known:?}"),
                ours: format!("{ours:?}"),
            });
        }
        Ok(Self { raft, machine, group, believed_ms: 2 * timing.election_timeout_ms.end })
    }

    /// Has a command carried out by the group. One that changes nothing leaves no trace.
    pub(crate) async fn write(&self, command: Command) -> Result<Result<Applied, Refused>, NotDone> {
        if let Some(outcome) = self.read(|sets| sets.unchanged_by(&command)).await? {
            return Ok(outcome);
        }
        let written = timeout(DONE_TIMEOUT, self.raft.client_write(command));
        match written.await.map_err(|_| NotDone::NoMajority)? {
            Ok(written) => match written.data {
                Reply(Some(outcome)) => Ok(outcome),
                Reply(None) => Err(NotDone::Stopped("a command came back without outcome".to_owned())),
            },
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => Err(NotDone::NotLeader),
            Err(error) => Err(NotDone::Stopped(error.to_string())),
        }
    }

    /// Looks at the state after everything that was answered before, wherever it was answered.
    pub(crate) async fn read<R>(&self, look: impl FnOnce(&BrokerSets) -> R) -> Result<R, NotDone> {
        let is_current = timeout(DONE_TIMEOUT, self.raft.ensure_linearizable());
        match is_current.await.map_err(|_| NotDone::NoMajority)? {
            Ok(_) => Ok(self.machine.read(look)),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_))) => Err(NotDone::NotLeader),
            Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_))) => Err(NotDone::NoMajority),
            Err(error) => Err(NotDone::Stopped(error.to_string())),
        }
    }

    /// Looks at the state as it is here, which may be out of date.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&BrokerSets) -> R) -> R {
        self.machine.read(look)
    }

    /// The leading controller, as far as this one knows. One that leads but is cut off from the others knows of none.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let is_cut_off = metrics.state == ServerState::Leader
            && metrics.millis_since_quorum_ack.is_none_or(|silence_ms| silence_ms > self.believed_ms);
        metrics.current_leader.filter(|_| !is_cut_off)
    }

    /// Whether this controller leads, as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.leader() == Some(self.group.own_id)
    }

    /// Waits until this controller leads; false if it has stopped.
    pub(crate) async fn until_it_leads(&self) -> bool {
        self.until(|state| state == ServerState::Leader).await
    }

    /// Waits until this controller does not lead; false if it has stopped.
    pub(crate) async fn until_it_follows(&self) -> bool {
        self.until(|state| state != ServerState::Leader).await
    }

    async fn until(&self, is_reached: impl Fn(ServerState) -> bool) -> bool {
        let mut metrics = self.raft.metrics();
        metrics.wait_for(|metrics| is_reached(metrics.state)).await.is_ok()
    }

    /// Why this controller can't take part any more, if so.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.raft.metrics().borrow().running_state.as_ref().err().map(ToString::to_string)
    }

    /// Handles a message of another controller.
    pub(crate) async fn peer_message(&self, message: &[u8]) -> Result<Vec<u8>, PeerRefusal> {
        peer::handle(&self.raft, &self.group, message).await
    }

    /// Leaves the group until the next start.
    pub(crate) async fn leave(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the controller did not leave its group in an orderly way");
        }
    }
}

fn config(group: &Group, timing: &Timing) -> Result<Config, JoinError> {
    let election = &timing.election_timeout_ms;
    Config {
        cluster_name: group.greeting_name().to_owned(),
        election_timeout_min: election.start,
        election_timeout_max: election.end,
        heartbeat_interval: election.start / 5,
        install_snapshot_timeout: 10_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        ..Config::default()
    }
    .validate()
    .map_err(|error| JoinError::Raft(error.to_string()))
}
