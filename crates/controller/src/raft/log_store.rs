//! The log as `openraft` wants it.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{Entry, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader, StorageIOError};
use parking_lot::Mutex;

use super::journal::Journal;
use super::{LogId, StorageError, Types, Vote, on_disk};

/// The journal, shared with those who read it for other controllers.
#[derive(Clone, Debug)]
pub(super) struct LogStore {
    journal: Arc<Mutex<Journal>>,
}

impl LogStore {
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal: Arc::new(Mutex::new(journal)) }
    }

    #[expect(clippy::result_large_err, reason = "the type is openraft's")]
    fn write(
        &self,
        subject: ErrorSubject<crate::group::NodeId>,
        write: impl FnOnce(&mut Journal) -> io::Result<()>,
    ) -> Result<(), StorageError> {
        let written = on_disk(|| write(&mut self.journal.lock()));
        written.map_err(|error| StorageIOError::new(subject, ErrorVerb::Write, &error).into())
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<Types>>, StorageError> {
        Ok(self.journal.lock().entries(range))
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let journal = self.journal.lock();
        Ok(LogState { last_purged_log_id: journal.purged(), last_log_id: journal.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.write(ErrorSubject::Vote, |journal| journal.save_vote(*vote))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.journal.lock().vote())
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().collect();
        self.write(ErrorSubject::Logs, |journal| journal.append(entries))?;
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.write(ErrorSubject::Logs, |journal| journal.truncate(log_id.index))
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.write(ErrorSubject::Logs, |journal| journal.purge(log_id))
    }
}
