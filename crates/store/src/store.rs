//! The façade that the broker uses.

use std::path::Path;
use std::sync::Arc;

use crate::append::AppendBatch;
use crate::dispatch::ArrivalListener;
use crate::error::{AppendError, DiskFull, FileError, OpenError, ReadError};
use crate::log::RecordSlice;
use crate::options::StoreOptions;
use crate::queue::ConsumeQueue;
use crate::read::{Boundary, MessageFilter, QueueUnit, ReadOutcome, ReadRequest, RecordSink};
use crate::stats::StoreStats;
use crate::waterline::Waterline;

/// An open store. Shared as `Arc<Store>`; every method may be called from any thread.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
}

#[allow(unused_variables)]
impl Store {
    /// Takes the lock, loads, recovers, and starts the background threads.
    pub fn open(options: StoreOptions) -> Result<Arc<Store>, OpenError> {
        unimplemented!()
    }

    /// Clean stop: flushes everything, writes the checkpoint, removes the abort file, joins the threads. Later appends
    /// are refused. Idempotent. (Dropping the store without this is like a crash, minus the threads.)
    pub fn shutdown(&self) {
        unimplemented!()
    }

    /// Settings as given.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Root directory (`storePathRootDir`).
    pub fn root(&self) -> &Path {
        &self.options.root
    }

    // ---- queues ----

    /// Handle of a queue, made on first use (that creates no file). Cache it: there is one handle per queue for ever.
    pub fn queue(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        unimplemented!()
    }

    /// Handle of a queue if it is known.
    pub fn find_queue(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        unimplemented!()
    }

    /// Every known queue of a topic, by queue id.
    pub fn queues_of(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        unimplemented!()
    }

    /// Topics that have at least one queue with messages, or had.
    pub fn topics(&self) -> Vec<Arc<str>> {
        unimplemented!()
    }

    // ---- append ----

    /// A batch for this store's settings.
    pub fn new_batch(&self) -> AppendBatch {
        unimplemented!()
    }

    /// Appends every record of the batch, in order, under one acquisition of the log's lock. Returns the log's end
    /// behind the last one (the offset to await on a waterline). On an error the first `batch.outcomes().len()` records
    /// are in the log, the others are not.
    pub fn append(&self, batch: &mut AppendBatch) -> Result<u64, AppendError> {
        unimplemented!()
    }

    /// Appends raw bytes of whole records at `offset`, which must be the log's end: replication on a slave.
    /// (Not part of the first milestone.)
    #[doc(hidden)]
    pub fn append_replica(&self, offset: u64, bytes: &[u8]) -> Result<u64, AppendError> {
        unimplemented!()
    }

    // ---- waterlines ----

    /// Everything below is in the log's memory, and survives the death of the process.
    pub fn appended(&self) -> &Waterline {
        unimplemented!()
    }

    /// Everything below is on the disk.
    pub fn flushed(&self) -> &Waterline {
        unimplemented!()
    }

    /// Everything below may be shown to consumers: `flushed` under SYNC_FLUSH, else `appended`.
    pub fn confirmed(&self) -> &Waterline {
        unimplemented!()
    }

    /// Everything below is in the queues and the index.
    pub fn dispatched(&self) -> &Waterline {
        unimplemented!()
    }

    /// First offset of the log.
    pub fn min_offset(&self) -> u64 {
        unimplemented!()
    }

    // ---- dispatch ----

    /// Runs the dispatcher, on this thread if need be, up to the confirmed offset as of the call. A pull that finds the
    /// queue's end calls this first, so that it sees every message whose send was answered before.
    pub fn dispatch_to_confirmed(&self) {
        unimplemented!()
    }

    /// Sets the one listener for arrivals in watched queues ([`ConsumeQueue::watch`]).
    pub fn set_arrival_listener(&self, listener: Arc<dyn ArrivalListener>) {
        unimplemented!()
    }

    // ---- reads ----

    /// Reads messages of a queue in order (`docs/spec/02-store.md` §13.1, §13.2).
    pub fn read<F: MessageFilter + ?Sized, S: RecordSink + ?Sized>(
        &self,
        queue: &ConsumeQueue,
        request: ReadRequest,
        filter: &F,
        out: &mut S,
    ) -> ReadOutcome {
        unimplemented!()
    }

    /// The record that begins at a physical offset; `None` if the log does not (or no longer) reach there.
    pub fn record_at(&self, physical_offset: u64) -> Result<Option<RecordSlice>, ReadError> {
        unimplemented!()
    }

    /// Queue offset by store time (`docs/spec/02-store.md` §13.5), within `[min, max]`.
    pub fn offset_by_time(&self, queue: &ConsumeQueue, timestamp_ms: i64, boundary: Boundary) -> i64 {
        unimplemented!()
    }

    /// Messages of `topic` whose `KEYS` contain `key` or (`unique`) whose `UNIQ_KEY` is `key`, stored within
    /// `[begin_ms, end_ms]`: the newest `max` of them, each once, by ascending physical offset. Topic and key are compared
    /// exactly.
    pub fn query(&self, topic: &str, key: &str, max: usize, begin_ms: i64, end_ms: i64, unique: bool) -> QueryResult {
        unimplemented!()
    }

    /// Store time of the message at a queue offset, ms.
    pub fn store_time_at(&self, queue: &ConsumeQueue, queue_offset: i64) -> Option<i64> {
        unimplemented!()
    }

    /// Store time of the oldest message of a queue, ms.
    pub fn earliest_time(&self, queue: &ConsumeQueue) -> Option<i64> {
        unimplemented!()
    }

    /// Store time of the oldest message of the log, ms.
    pub fn earliest_time_of_log(&self) -> Option<i64> {
        unimplemented!()
    }

    /// Physical offset of the message at a queue offset.
    pub fn physical_offset_at(&self, queue: &ConsumeQueue, queue_offset: i64) -> Option<u64> {
        unimplemented!()
    }

    /// Units of a queue from `from` on, at most `count` (admin dump). Places without a message are left out.
    pub fn consume_queue_units(&self, queue: &ConsumeQueue, from: i64, count: usize) -> Vec<QueueUnit> {
        unimplemented!()
    }

    // ---- deletion ----

    /// Deletes every queue of a topic. A topic of the same name starts at offset 0, with nothing old in sight, also after
    /// a crash. The log keeps the bytes until they expire.
    pub fn delete_topic(&self, topic: &str) -> Result<(), FileError> {
        unimplemented!()
    }

    /// `cleanUnusedTopic`: deletes the queues of every topic that `in_use` says no to. Returns how many topics.
    pub fn clean_unused_topics(&self, in_use: &dyn Fn(&str) -> bool) -> Result<usize, FileError> {
        unimplemented!()
    }

    /// `cleanExpiredCQ`: removes the files of queues all of whose messages are gone from the log. Their offsets go on where
    /// they were. Returns how many queues.
    pub fn clean_expired_queues(&self) -> usize {
        unimplemented!()
    }

    /// Deletes expired log files now, whatever the hour (`deleteExpiredCommitLog`). Returns how many.
    pub fn delete_expired_files(&self) -> usize {
        unimplemented!()
    }

    // ---- state ----

    /// Why writes are refused for want of disk space, if they are.
    pub fn disk_full(&self) -> Option<DiskFull> {
        unimplemented!()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> StoreStats {
        unimplemented!()
    }
}

/// Result of [`Store::query`].
#[derive(Debug, Default)]
pub struct QueryResult {
    /// The messages, by ascending physical offset.
    pub records: Vec<RecordSlice>,
    /// Store time of the newest indexed message, ms (`indexLastUpdateTimestamp`).
    pub index_last_timestamp: i64,
    /// Physical offset of the newest indexed message (`indexLastUpdatePhyoffset`).
    pub index_last_offset: u64,
}
