//! What an entry of the Raft log is here, and the names openraft's types get in this crate.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use openraft::{BasicNode, CommittedLeaderId, EntryPayload, StoredMembership};
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// openraft's parameters: entries are ranges of the commit log, a snapshot is the log up to a point.
    pub(crate) GroupConfig:
        D = LogRange,
        R = (),
        NodeId = u64,
        Node = BasicNode,
        Entry = openraft::Entry<GroupConfig>,
        SnapshotData = LogPrefix,
);

/// Number of a node in its group: what follows the letter in `dLegerSelfId` (`n0` is 0).
pub type NodeId = u64;
/// Term, leader and index of an entry.
pub(crate) type LogId = openraft::LogId<NodeId>;
/// Which leader a node follows or votes for.
pub(crate) type Vote = openraft::Vote<NodeId>;
/// Who belongs to the group.
pub(crate) type Membership = openraft::Membership<NodeId, BasicNode>;
/// An entry as openraft hands it around.
pub(crate) type Entry = openraft::Entry<GroupConfig>;
pub(crate) type Members = StoredMembership<NodeId, BasicNode>;

/// A row of whole records of the commit log: what one Raft entry stands for. The bytes are in the log and nowhere else; they are
/// carried along only from a leader's log to a follower's.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogRange {
    /// Where the range begins in the commit log.
    pub(crate) offset: u64,
    /// How long it is. An entry of length 0 stands for a proposal that a change of leaders overtook.
    pub(crate) len: u32,
    /// In a proposal, the term in which these bytes were appended; else 0.
    #[serde(skip)]
    pub(crate) term: u64,
    /// The range itself on its way to a follower; else empty.
    #[serde(skip)]
    pub(crate) bytes: Bytes,
}

impl LogRange {
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

impl fmt::Debug for LogRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

/// What openraft calls the data of a snapshot: everything in the commit log below an offset. Nothing is copied to make one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogPrefix {
    /// Where the last entry in the snapshot ends.
    pub(crate) end: u64,
}

/// What the side index knows of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) id: LogId,
    pub(crate) kind: EntryKind,
    /// Where its bytes begin in the commit log, or would begin if it had any.
    pub(crate) offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// The entry by which a leader begins its term.
    Blank,
    /// So many bytes of the commit log.
    Range(u32),
    /// A change of the group.
    Members(Arc<Membership>),
}

impl IndexEntry {
    /// Where the next entry's bytes begin.
    pub(crate) fn end(&self) -> u64 {
        match self.kind {
            EntryKind::Range(len) => self.offset + u64::from(len),
            EntryKind::Blank | EntryKind::Members(_) => self.offset,
        }
    }

    /// The entry for openraft, with `bytes` as content of a range.
    pub(crate) fn to_entry(&self, bytes: Bytes) -> Entry {
        let payload = match &self.kind {
            EntryKind::Blank => EntryPayload::Blank,
            EntryKind::Range(len) => {
                EntryPayload::Normal(LogRange { offset: self.offset, len: *len, term: 0, bytes })
            }
            EntryKind::Members(members) => EntryPayload::Membership(members.as_ref().clone()),
        };
        Entry { log_id: self.id, payload }
    }
}

pub(crate) fn log_id(term: u64, node: NodeId, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, node), index)
}
