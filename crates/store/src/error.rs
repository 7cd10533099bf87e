//! What can go wrong, in words that an operator can act on.

use std::io;
use std::path::{Path, PathBuf};

use ferromq_protocol::message::EncodeError;

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting has a value that the store can't work with.
    #[error("bad setting: {0}")]
    BadOption(String),
    /// Another process has this store open.
    #[error("the store {} is in use by {} (its lock file is held); stop that one or choose another storePathRootDir", root.display(), holder(*process))]
    Locked {
        /// Root of the store.
        root: PathBuf,
        /// The process that holds the lock, if it can be found out.
        process: Option<u32>,
    },
    /// A file of the log has a length that does not fit `mappedFileSizeCommitLog`, or a name that is not an offset.
    #[error("{}: {reason}; nothing was changed", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// What was laid anew could not all be written.
    #[error("the queues and the index of {} could not all be written; is the disk full? The next start, or rebuild, begins anew", root.display())]
    NotWritten {
        /// Root of the store.
        root: PathBuf,
    },
    /// The file system said no.
    #[error(transparent)]
    Io(#[from] FileError),
}

fn holder(process: Option<u32>) -> String {
    process
        .map_or_else(|| "another broker".to_owned(), |process| format!("another broker, process {process}"))
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; the store must belong to the user that runs the broker (see `ls -ln`, and `chown -R` if it was copied)"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "; a file is where a directory should be"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; the file system is mounted read-only",
        _ => "",
    }
}

/// An I/O error with what was attempted and on which file.
#[derive(Debug, thiserror::Error)]
#[error("can't {action} {}: {source}{}", path.display(), advice(source))]
pub struct FileError {
    /// What was attempted: "create", "map", "read", ...
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// An I/O error's context, for `map_err`.
    pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_path_buf();
        move |source| FileError { action, path, source }
    }
}

/// Why records were not appended. Those that come first in the batch may have been: see
/// [`AppendBatch::outcomes`](crate::AppendBatch::outcomes).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The disk is fuller than `diskSpaceWarningLevelRatio` allows, or the file system has no room for the next file.
    #[error(transparent)]
    DiskFull(#[from] DiskFull),
    /// The next log file could not be created for another reason than a full disk.
    #[error("create mapped file failed: {0}")]
    CreateFile(String),
    /// The store is shutting down.
    #[error("the store is shutting down")]
    Shutdown,
    /// The log is a copy of another broker's: only that one appends.
    #[error("this broker is a replica: messages are stored by its master or leader only")]
    Follower,
}

/// Why replication could not read or change the log.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The bytes don't continue the log.
    #[error("bytes for offset {offset} can't be appended: the log ends at {end}")]
    NotAtEnd {
        /// Where they belong.
        offset: u64,
        /// Where the log ends.
        end: u64,
    },
    /// The bytes reach over the end of a file.
    #[error("{len} bytes at offset {offset} reach over the end of a file of {file_size} bytes")]
    OverFileEnd {
        /// Where they belong.
        offset: u64,
        /// How many.
        len: usize,
        /// Size of a file.
        file_size: u64,
    },
    /// The log does not have that offset.
    #[error("offset {offset} is outside of the log ({begin} to {end})")]
    Outside {
        /// The offset asked for.
        offset: u64,
        /// Where the log begins.
        begin: u64,
        /// Where it ends.
        end: u64,
    },
    /// A confirmed part of the log was to be erased.
    #[error("the log can't be truncated to {offset}: it is confirmed up to {confirmed}")]
    Confirmed {
        /// The offset asked for.
        offset: u64,
        /// What was promised.
        confirmed: u64,
    },
    /// The store is not a follower.
    #[error("this replica leads: it takes no bytes of another one")]
    Leading,
    /// The next log file is not to be had, or the store is shut down.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The file system said no.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Writes are refused for want of disk space. Reads go on; writes come back by themselves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "disk full: {} uses {used_percent} percent of its partition, the limit is {limit_percent} (setting {setting})",
    directory.display()
)]
pub struct DiskFull {
    /// The directory whose partition is full.
    pub directory: PathBuf,
    /// Used part of the partition, percent rounded up.
    pub used_percent: u8,
    /// The limit in percent; 100 when the file system itself had no room.
    pub limit_percent: u8,
    /// The setting that holds the limit, as in `broker.conf`.
    pub setting: &'static str,
}

/// A record can't be put into a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// It can't be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// It would not fit into any log file.
    #[error(
        "the record (or group of records) is {len} bytes long, a log file holds {max} (mappedFileSizeCommitLog - 8)"
    )]
    LargerThanFile {
        /// Its length in bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A batch in one record does not say how many messages it holds.
    #[error(
        "a batch in one record must say in the property INNER_NUM that it holds 1 to 32767 messages, and have room for them"
    )]
    InnerBatch,
}

/// A record could not be read at a physical offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No record begins there, although the offset is inside the log.
    #[error("no record begins at physical offset {offset}")]
    NoRecord {
        /// What was asked for.
        offset: u64,
    },
}
