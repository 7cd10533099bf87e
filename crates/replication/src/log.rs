//! What replication needs of a commit log. The store implements it; tests have one in memory.

use std::task::Waker;

use bytes::Bytes;
use ferromq_store::ReplicaError;

/// Where a log begins and ends, and what of it is safe. `begin <= confirmed <= end` and `flushed <= end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogBounds {
    /// First offset of its first file.
    pub begin: u64,
    /// Everything below is confirmed: acknowledged, shown to consumers, never truncated.
    pub confirmed: u64,
    /// Everything below is on the device.
    pub flushed: u64,
    /// Where the next byte goes.
    pub end: u64,
}

/// A commit log as replication sees it: a row of bytes in files of one size. Every method may be called from any thread.
///
/// Two parties append to the log, never at the same time: while this replica leads, the broker appends records of producers (not
/// through this trait); while it follows, replication copies the leader's bytes with [`append`](Self::append). The switch is
/// [`lead`](Self::lead) and [`follow`](Self::follow).
pub trait ReplicaLog: Send + Sync + 'static {
    /// Where the log begins and ends now.
    fn bounds(&self) -> LogBounds;

    /// Size of one file. Offsets that are multiples of it begin a file.
    fn file_size(&self) -> u64;

    /// Wakes `waker` once the log's end is at or above `target`; at once if it is.
    fn wake_at_end(&self, target: u64, waker: Waker);

    /// Up to `len_max` bytes from `offset` on, as many as lie in one file; empty at the log's end. May wait for the disk.
    fn read(&self, offset: u64, len_max: usize) -> Result<Bytes, ReplicaError>;

    /// Appends the leader's bytes at the log's end, which must be `offset`. They may be part of a record; they never reach over the
    /// end of a file. An empty log may begin at any file's start. May wait for the disk.
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<(), ReplicaError>;

    /// Waits until everything below `offset` is on the device.
    fn flush_to(&self, offset: u64) -> Result<(), ReplicaError>;

    /// Erases everything from `offset` on, which must not be confirmed, so that it never comes back. Waits for the disk.
    fn truncate(&self, offset: u64) -> Result<(), ReplicaError>;

    /// Says that everything below `offset` is confirmed. A lower offset changes nothing; one behind the log's end takes effect as
    /// the log grows.
    fn confirm(&self, offset: u64);

    /// From now on the broker appends. The queues go on behind what the log holds, confirmed or not. Waits for the dispatcher.
    fn lead(&self) -> Result<(), ReplicaError>;

    /// From now on appends of the broker are refused, and those that wait for a confirmation fail. Returns once none is under way.
    fn follow(&self);
}
