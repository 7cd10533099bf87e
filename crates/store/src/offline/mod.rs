//! Looking into a store that no broker has open, without changing a byte of it.
//!
//! [`OfflineStore`] is the way in: it keeps brokers away as long as it lives, and maps one log file at a time, so that a log of
//! a terabyte costs no more memory than a small one. [`check`](OfflineStore::check) compares everything that is derived from the
//! log with it. [`Layout`] finds out with which file sizes a store was written. [`dledger`] takes over the stores of Java's DLedger
//! mode.
//!
//! What is known about formats is not repeated here: records are read by the walk that recovery uses, and what belongs into
//! queues and index is what the dispatcher would put there.

mod batch_audit;
mod check;
pub mod dledger;
mod finding;
mod held;
mod index_audit;
mod layout;
mod queue_audit;
mod queue_files;
mod ranges;
mod rebuild;
mod records;
mod stat;
mod state_files;

use std::fs::File;
use std::sync::Arc;

pub use check::{CheckProgress, CheckReport, Checked};
pub use finding::{Finding, Problem, QueueRange, Severity};
pub use layout::Layout;
pub use rebuild::{Rebuilt, rebuild};
pub use records::{Selected, Selection};
pub use stat::{Amount, Files, Statistics, TopicStatistics};

use crate::error::{FileError, OpenError};
use crate::lock_file::StoreLock;
use crate::log::{LoadedFile, Segment, load_files};
use crate::mapped::MappedFile;
use crate::options::StoreOptions;

/// A store that is looked into. Brokers are refused, and nothing is changed, as long as it lives.
#[derive(Debug)]
pub struct OfflineStore {
    options: StoreOptions,
    /// Files of the log that hold something, by ascending offset.
    files: Vec<LoadedFile>,
    _lock: Option<StoreLock>,
}

impl OfflineStore {
    /// Takes the lock and lists the log files. Of the options only paths, file sizes and what decides about the content of
    /// queues and index count.
    ///
    /// # Errors
    /// [`OpenError::Locked`] when a broker has the store open; [`OpenError::Io`] when there is no log directory.
    pub fn open(options: StoreOptions) -> Result<OfflineStore, OpenError> {
        options.check().map_err(OpenError::BadOption)?;
        let lock = StoreLock::take_to_look(&options.root)?;
        let mut files = load_files(&options.commit_log_directory())?;
        files.retain(|file| file.len > 0);
        Ok(OfflineStore { options, files, _lock: lock })
    }

    /// Settings as given.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// First offset of the log.
    pub fn min_offset(&self) -> u64 {
        self.files.first().map_or(0, |file| file.base)
    }

    /// Bytes of the log files.
    pub fn log_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// The log files, each mapped when it is asked for. One of a wrong length is as long as it is, as far as the next one
    /// allows.
    fn segments(&self) -> impl Iterator<Item = Result<Arc<Segment>, OpenError>> {
        (0..self.files.len()).map(|number| self.segment(number))
    }

    fn segment(&self, number: usize) -> Result<Arc<Segment>, OpenError> {
        let file = &self.files[number];
        let next = self.files.get(number + 1).map_or(u64::MAX, |next| next.base - file.base);
        let len = file.len.min(next).min(u64::from(self.options.commit_log_file_size));
        let opened = File::open(&file.path).map_err(FileError::at("open", &file.path))?;
        // At most the size of a log file, which is one.
        let mapped = MappedFile::map_read_only(&file.path, opened, len as u32)
            .map_err(FileError::at("map", &file.path))?;
        Ok(Arc::new(Segment::new(file.base, mapped)))
    }
}
