//! [`NodeStore`] as openraft's log storage.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{AnyError, ErrorSubject, ErrorVerb, RaftLogReader, StorageError, StorageIOError};

use super::error::RaftError;
use super::storage::{NodeStore, blocking};
use super::types::{Entry, GroupConfig, LogId, NodeId, Vote};

/// About how many bytes go to a follower in one message.
const MESSAGE_LEN_MAX: u64 = 4 << 20;

pub(crate) fn storage_error(
    subject: ErrorSubject<NodeId>,
    verb: ErrorVerb,
) -> impl FnOnce(RaftError) -> StorageError<NodeId> {
    move |error| StorageIOError::new(subject, verb, AnyError::new(&error)).into()
}

fn from_to(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before + 1,
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(to) => *to,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

/// Reads entries for one follower, with their bytes.
pub(crate) struct FollowerReader(NodeStore);

impl RaftLogReader<GroupConfig> for FollowerReader {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError<NodeId>> {
        let (from, to) = from_to(&range);
        Ok(self.0.entries(from, to))
    }

    async fn limited_get_log_entries(
        &mut self,
        from: u64,
        to: u64,
    ) -> Result<Vec<Entry>, StorageError<NodeId>> {
        // What this reader was made for may be over: the leader is deposed and its entries are cut off. Or retention has deleted what
        // the follower lacks, and it will be offered the log. Until then there is nothing to send; it must not look as if the
        // storage were broken.
        let read = || self.0.entries_with_bytes(from, to, MESSAGE_LEN_MAX);
        let entries = if self.0.is_recent(from) { read() } else { blocking(read) };
        Ok(entries.unwrap_or_else(|error| {
            tracing::debug!(%error, from, to, "can't read entries for a follower");
            Vec::new()
        }))
    }
}

impl RaftLogReader<GroupConfig> for NodeStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError<NodeId>> {
        let (from, to) = from_to(&range);
        Ok(self.entries(from, to))
    }
}

impl RaftLogStorage<GroupConfig> for NodeStore {
    type LogReader = FollowerReader;

    async fn get_log_state(&mut self) -> Result<LogState<GroupConfig>, StorageError<NodeId>> {
        let last_purged_log_id = self.base().map(|base| base.id);
        Ok(LogState { last_purged_log_id, last_log_id: self.last_id() })
    }

    async fn get_log_reader(&mut self) -> FollowerReader {
        FollowerReader(self.clone())
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError<NodeId>> {
        blocking(|| NodeStore::save_vote(self, *vote))
            .map_err(storage_error(ErrorSubject::Vote, ErrorVerb::Write))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError<NodeId>> {
        Ok(self.vote())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError<NodeId>> {
        NodeStore::save_committed(self, committed)
            .map_err(storage_error(ErrorSubject::Store, ErrorVerb::Write))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError<NodeId>> {
        Ok(self.committed())
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<GroupConfig>,
    ) -> Result<(), StorageError<NodeId>>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let append = || match NodeStore::append(self, entries)? {
            Some(unflushed) => self.flush(&unflushed),
            None => Ok(()),
        };
        let result = if self.is_synchronous() { blocking(append) } else { append() };
        match result {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                callback.log_io_completed(Err(io::Error::other(error.to_string())));
                Err(storage_error(ErrorSubject::Logs, ErrorVerb::Write)(error))
            }
        }
    }

    async fn truncate(&mut self, since: LogId) -> Result<(), StorageError<NodeId>> {
        blocking(|| NodeStore::truncate(self, since.index))
            .map_err(storage_error(ErrorSubject::Log(since), ErrorVerb::Delete))
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), StorageError<NodeId>> {
        blocking(|| NodeStore::purge(self, upto))
            .map_err(storage_error(ErrorSubject::Log(upto), ErrorVerb::Delete))
    }
}
