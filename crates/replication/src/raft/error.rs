//! Why a node of a Raft group could not do something.

use std::io;
use std::path::{Path, PathBuf};

use ferromq_store::ReplicaError;
use thiserror::Error;

use super::types::NodeId;

/// Errors of a node of a Raft group.
#[derive(Debug, Error)]
pub enum RaftError {
    /// One of the node's own files failed.
    #[error("can't {what} {path}: {source}")]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The commit log failed.
    #[error("commit log of the Raft group: {0}")]
    Log(#[from] ReplicaError),
    /// The node can't listen for its peers.
    #[error("can't listen at {address} for the peers of the Raft group: {source}")]
    Listen {
        /// The address of this node in `dLegerPeers`.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// A value of the group's settings makes no sense.
    #[error("{0}")]
    Settings(String),
    /// This node does not lead, so it can't change the group.
    #[error("node n{me} does not lead group {group}; {}", match leader { Some(leader) => format!("n{leader} does"), None => "nobody does at present".into() })]
    NotLeader {
        /// The node that was asked.
        me: NodeId,
        /// Its group.
        group: String,
        /// Who leads, if known.
        leader: Option<NodeId>,
    },
    /// The group refused a change, or it did not come to pass.
    #[error("group {group}: {reason}")]
    Refused {
        /// The group.
        group: String,
        /// Why.
        reason: String,
    },
    /// openraft stopped.
    #[error("consensus of group {group} stopped: {reason}")]
    Stopped {
        /// The group.
        group: String,
        /// Why.
        reason: String,
    },
}

impl RaftError {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RaftError {
        move |source| RaftError::File { what, path: path.to_owned(), source }
    }
}
