//! The journal of the file system that the log lies on.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW};

use crate::disk;
use crate::error::FileError;

/// Makes what the file system noted about files durable, without writing any of their pages.
///
/// The blocks of a log file exist before they are written, and become readable after a power cut only when the file
/// system has noted that they were. `fdatasync` sees to that, but it also writes the pages ahead of the log's end; the
/// appends that come to these pages then wait in page faults for the very journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: File,
    path: PathBuf,
}

/// File systems with one journal, in order: once a later change is durable, all earlier ones are.
const ORDERED: [u64; 2] = [
    0xEF53,      // ext4
    0x5846_5342, // XFS
];

impl Journal {
    /// The journal below `directory`; `None` if its file system may make changes durable out of order.
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let file = File::open(directory).ok()?;
        let file_system = rustix::fs::fstatfs(&file).ok()?.f_type as u64;
        let is_ordered = ORDERED.contains(&file_system) || !disk::is_real();
        is_ordered.then(|| Self { directory: file, path: directory.to_owned() })
    }

    /// Makes everything durable that was noted before this call.
    pub(crate) fn commit(&self) -> Result<(), FileError> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // A change of the directory's own comes behind all others; forcing it forces them.
        let committed =
            rustix::fs::futimens(&self.directory, &Timestamps { last_access: now, last_modification: now })
                .map_err(io::Error::from)
                .and_then(|()| disk::commit_journal(&self.directory));
        committed.map_err(FileError::at("flush", &self.path))
    }
}
