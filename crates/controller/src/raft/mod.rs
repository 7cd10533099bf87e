//! How the controllers of a group agree: Raft, by `openraft`.
//!
//! - [`Consensus`] is what the rest of the crate sees: commands go in, and come back when the majority has them and they
//!   were applied; and reads that are never out of date.
//! - `journal` is the log on the disk, with the vote; `snapshot` the state on the disk, which makes old entries of the log
//!   superfluous; `log_store` and `machine` are what `openraft` wants of them.
//! - `peer` is what the controllers say to each other.

mod consensus;
mod journal;
mod log_store;
mod machine;
mod peer;
mod sealed;
#[cfg(test)]
mod simulation;
mod snapshot;

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::group::NodeId;
use crate::state::{Applied, BrokerSets, Command, Refused};

pub(crate) use consensus::{Consensus, JoinError, NotDone, Timing};
pub(crate) use peer::{PeerLink, PeerRefusal};

openraft::declare_raft_types!(
    /// The types of this Raft.
    pub(crate) Types:
        D = Command,
        R = Reply,
        NodeId = NodeId,
        Node = openraft::EmptyNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = BrokerSets,
        AsyncRuntime = openraft::TokioRuntime,
);

/// What comes of an entry of the log; nothing of those of Raft itself.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reply(Option<Result<Applied, Refused>>);

type LogId = openraft::LogId<NodeId>;
type Vote = openraft::Vote<NodeId>;
type StorageError = openraft::StorageError<NodeId>;
type StoredMembership = openraft::StoredMembership<NodeId, openraft::EmptyNode>;

/// Does what waits for the disk. Other tasks of this thread go on elsewhere, if there is an elsewhere.
fn on_disk<R>(work: impl FnOnce() -> R) -> R {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
