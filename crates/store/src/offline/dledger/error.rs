//! What can stand in the way of an import.

use std::fmt;
use std::path::PathBuf;

use crate::error::{FileError, OpenError};

/// A place of the source where nothing whole lies, although something should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Byte in the file; 0 if it is about the whole of it.
    pub position: u64,
    /// The next whole message begins at this physical offset; `None` if there is none.
    pub whole_again_at: Option<u64>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.position, self.reason)?;
        match self.whole_again_at {
            Some(offset) => write!(f, "; whole again at offset {offset}"),
            None => Ok(()),
        }
    }
}

/// An import was not made. Nothing is left of it, and the source is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is nothing of DLedger.
    #[error(
        "{} holds no store of DLedger mode: there is no directory dledger-<dLegerSelfId> with data in it (set --data if storePathDLedgerCommitLog \
         was set)",
        root.display()
    )]
    NoDledger {
        /// Where it was looked for.
        root: PathBuf,
    },
    /// Several members kept their data there.
    #[error("{} holds the data of several members ({}); say with --member which one is meant", root.display(), members.join(", "))]
    SeveralMembers {
        /// Where it was looked for.
        root: PathBuf,
        /// Their ids.
        members: Vec<String>,
    },
    /// There is no message.
    #[error("{} holds no message", root.display())]
    NoMessage {
        /// The source.
        root: PathBuf,
    },
    /// Parts of the source are not whole.
    #[error(
        "{count} places of the source are damaged, the first is {first}. Import another member of the group, which has the same messages; or \
         import what is whole of this one with --skip-damaged"
    )]
    Damaged {
        /// How many.
        count: u64,
        /// The first.
        first: Damage,
    },
    /// Nothing says whether the last entries are committed.
    #[error(
        "nothing says whether the last {messages} messages are committed ({}): a member learns that late, and writes it down later still. \
         Import the member that was the leader, after a clean stop; or say with --uncommitted what is to be done: keep them (nothing that \
         was acknowledged can be lost; messages whose send failed may appear), or drop them",
        committed_until(*committed)
    )]
    Uncommitted {
        /// How many.
        messages: u64,
        /// The last entry that is known to be committed.
        committed: Option<i64>,
    },
    /// The store that should be written is there.
    #[error("{} is there already and not empty: an import writes a new store only", target.display())]
    TargetExists {
        /// Root of the new store.
        target: PathBuf,
    },
    /// The new store would lie in the source.
    #[error("{} lies in the source, which is not changed", target.display())]
    TargetInSource {
        /// Root of the new store.
        target: PathBuf,
    },
    /// Another import is under way, or was killed.
    #[error("{} is there: another import is under way, or one was killed; remove the directory in the latter case", work.display())]
    Unfinished {
        /// Where the store is written before it gets its name.
        work: PathBuf,
    },
    /// A message does not fit into a log file.
    #[error(
        "the message at offset {offset} has {size} bytes, a log file only {file_size}: choose a larger mappedFileSizeCommitLog"
    )]
    FileSize {
        /// Where it lies in the source.
        offset: u64,
        /// Its size.
        size: usize,
        /// `mappedFileSizeCommitLog`.
        file_size: u32,
    },
    /// What was written is not what was read.
    #[error(
        "the new store is not what the source is: {reason}. Is the source being changed, or a disk failing?"
    )]
    Differs {
        /// What differs, and where.
        reason: String,
    },
    /// A store can't be opened: the source is in use, or has files that can't be.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file system said no.
    #[error(transparent)]
    File(#[from] FileError),
}

fn committed_until(committed: Option<i64>) -> String {
    match committed {
        Some(index) => format!("the checkpoint says so up to entry {index}"),
        None => "there is no checkpoint that can be read".to_owned(),
    }
}
