//! The façade that the broker uses.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use crate::append::AppendBatch;
use crate::background::{self, Stop};
use crate::checkpoint::write_abort;
use crate::clock::now_ms;
use crate::cold_pages::ColdPages;
use crate::commit_log::CommitLog;
use crate::dispatch::{ArrivalListener, DispatchBell, Dispatcher, Projector};
use crate::error::{AppendError, DiskFull, FileError, OpenError, ReadError};
use crate::log::{Ahead, Demand, Journal, Leaving, RecordSlice, Warmth};
use crate::lookup::{self, KeyQuery};
use crate::open::{Opened, open};
use crate::options::{ConfirmedBy, FlushDiskType, StoreOptions};
use crate::queue::{ConsumeQueue, Unit};
use crate::read::{Boundary, MessageFilter, QueueUnit, ReadOutcome, ReadRequest, RecordSink, Residency};
use crate::read_ahead::Memory;
use crate::residency::ResidentBlocks;
use crate::retention::{DiskGuard, space, used_percent};
use crate::scan::{ReadLimits, read};
use crate::shared::{Keeper, Shared};
use crate::stats::{Counters, StoreStats};
use crate::waterline::Waterline;

/// Rounds of deletion that one request of an administrator stands for.
const MANUAL_ROUNDS: u32 = 20;

/// An open store. Shared as `Arc<Store>`; every method may be called from any thread. No method waits for the disk unless
/// its comment says so.
///
/// Dropping it without [`shutdown`](Self::shutdown) ends its threads and leaves the files as a crash of the process would.
#[derive(Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_shut_down: AtomicBool,
}

impl Store {
    /// Takes the lock, loads, recovers, and starts the background threads.
    pub fn open(options: StoreOptions) -> Result<Arc<Store>, OpenError> {
        Store::open_with(options, background::start)
    }

    /// As [`open`](Self::open), with `start` to start the threads.
    pub(crate) fn open_with(
        options: StoreOptions,
        start: impl FnOnce(&Arc<Shared>) -> Result<Vec<JoinHandle<()>>, FileError>,
    ) -> Result<Arc<Store>, OpenError> {
        let opened = open(&options)?;
        Self::run(options, opened, start)
    }

    /// Makes an opened store run; `start` starts its background threads.
    pub(crate) fn run(
        options: StoreOptions,
        opened: Opened,
        start: impl FnOnce(&Arc<Shared>) -> Result<Vec<JoinHandle<()>>, FileError>,
    ) -> Result<Arc<Store>, OpenError> {
        let (demand, journal) = match options.flush_disk_type {
            FlushDiskType::AsyncFlush => (Demand::Write, Journal::of(&options.commit_log_directory())),
            FlushDiskType::SyncFlush => (Demand::Read, None),
        };
        let warmth = match options.warm_whole_files {
            true => Warmth::WholeFiles,
            false => Warmth::Window(options.warm_window),
        };
        let ahead = Ahead::new(options.commit_log_directory(), options.commit_log_file_size, warmth, demand);
        let log = CommitLog::new(
            opened.log,
            ahead,
            opened.active,
            opened.log_end,
            opened.last_timestamp,
            options.follower,
        );
        let projector = Projector::new(
            Arc::clone(&opened.queues),
            opened.index.clone(),
            Arc::clone(&opened.deleted),
            &options,
        );

        // From here on an exit is unclean, until a shutdown says otherwise.
        let token = format!("{} {:x}", std::process::id(), now_ms());
        let mut keeper = Keeper {
            master_flushed_offset: opened.checkpoint.read()?.master_flushed_offset,
            checkpoint: opened.checkpoint,
            marks_file: opened.marks_file,
            marks: opened.marks,
            written_timestamp: opened.last_timestamp,
        };
        keeper.marks.abort.clone_from(&token);
        keeper.marks.last_timestamp = opened.last_timestamp;
        keeper.marks.index_end = opened.index.as_ref().map_or(0, |index| index.reaches_to());
        write_abort(&options.root, &token)?;
        keeper.write(true)?;

        let counters = Counters::default();
        counters.boot_timestamp_ms.store(now_ms(), Ordering::Relaxed);
        let shared = Arc::new(Shared {
            retention: RwLock::new(Arc::new(options.clone())),
            cleaning: Mutex::new(()),
            manual_rounds: AtomicU32::new(0),
            leaving: Leaving::default(),
            read_limits: ReadLimits::new(&options, physical_memory()),
            resident_blocks: ResidentBlocks::new(),
            cold_pages: ColdPages::new(physical_memory()),
            dispatcher: Mutex::new(Dispatcher::new(projector, opened.projected, opened.last_timestamp)),
            dispatched: Waterline::new(opened.projected),
            replicated: Waterline::new(opened.projected),
            promised: AtomicU64::new(opened.projected),
            looked_at: AtomicU64::new(0),
            term: AtomicU64::new(0),
            log,
            queues: opened.queues,
            index: opened.index,
            deleted: opened.deleted,
            bell: DispatchBell::new(),
            urgent: AtomicBool::new(false),
            disk: DiskGuard::default(),
            counters,
            journal,
            flushing: Mutex::new(()),
            listing: Mutex::new(()),
            repairing: Mutex::new(()),
            flushed_timestamp: AtomicI64::new(opened.last_timestamp),
            keeper: Mutex::new(keeper),
            stop: Stop::default(),
            options,
            lock: Mutex::new(Some(opened.lock)),
        });
        let threads = Mutex::new(start(&shared)?);
        Ok(Arc::new(Store { shared, threads, is_shut_down: AtomicBool::new(false) }))
    }

    /// Clean stop: refuses appends, flushes and dispatches everything, writes the checkpoint, removes the abort file, joins the
    /// threads. Waits for the disk. A second call does nothing.
    pub fn shutdown(&self) {
        if self.is_shut_down.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.log.close();
        self.end_threads();
        if let Err(error) = self.shared.finish() {
            tracing::error!(%error, "the stop is not clean: the next start recovers");
        }
        *self.shared.lock.lock() = None;
    }

    fn end_threads(&self) {
        self.shared.stop.stop();
        self.shared.log.ahead.stop();
        self.shared.log.appended.wake_all();
        self.shared.bell.wake();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }

    /// Settings as given.
    pub fn options(&self) -> &StoreOptions {
        &self.shared.options
    }

    /// Puts other settings of retention in force: hours, times, ratios and the pace of deletion. The other options stay
    /// what they were when the store was opened.
    pub fn set_retention(&self, options: &StoreOptions) {
        let open = &self.shared.options;
        let retention = StoreOptions {
            delete_when_hours: options.delete_when_hours.clone(),
            file_reserved: options.file_reserved,
            clean_file_forcibly: options.clean_file_forcibly,
            disk_max_used_ratio: options.disk_max_used_ratio,
            disk_clean_forcibly_ratio: options.disk_clean_forcibly_ratio,
            disk_warning_ratio: options.disk_warning_ratio,
            replicas_per_disk_partition: options.replicas_per_disk_partition,
            logical_disk_clean_forcibly_ratio: options.logical_disk_clean_forcibly_ratio,
            delete_file_batch_max: options.delete_file_batch_max,
            delete_commit_log_files_interval: options.delete_commit_log_files_interval,
            ..open.clone()
        };
        *self.shared.retention.write() = Arc::new(retention);
    }

    /// Root directory (`storePathRootDir`).
    pub fn root(&self) -> &Path {
        &self.shared.options.root
    }

    // ---- queues ----

    /// Handle of a queue, made on first use (that creates no file). Cache it: there is one handle per queue for ever.
    pub fn queue(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        self.shared.queues.get_or_create(topic, queue_id)
    }

    /// Handle of a queue if it is known.
    pub fn find_queue(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        self.shared.queues.find(topic, queue_id)
    }

    /// Every known queue of a topic, by queue id.
    pub fn queues_of(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        self.shared.queues.of_topic(topic)
    }

    /// Topics that have at least one queue with messages, or had.
    pub fn topics(&self) -> Vec<Arc<str>> {
        self.shared.queues.topics()
    }

    /// Says that a topic was made whose batches are one record each (attribute `queue.type=BatchCQ`).
    pub fn declare_batch_topic(&self, topic: &str) {
        self.shared.queues.batch().declare(topic);
    }

    // ---- append ----

    /// A batch for this store's settings.
    pub fn new_batch(&self) -> AppendBatch {
        let options = &self.shared.options;
        AppendBatch::new(
            options.commit_log_file_size as usize - ferromq_protocol::message::BLANK_LEN_MIN,
            options.append_crc_property,
            Arc::clone(&self.shared.queues),
            options.light_queues_enabled,
        )
    }

    /// Appends every record of the batch, in order, under one acquisition of the log's lock. Returns the log's end
    /// behind the last one (the offset to await on a waterline). On an error the first `batch.outcomes().len()` records
    /// are in the log, the others are not.
    ///
    /// Touches only memory that was prepared before, unless the disk can't keep up with creating log files.
    pub fn append(&self, batch: &mut AppendBatch) -> Result<u64, AppendError> {
        let shared = &*self.shared;
        if let Err(error) = shared.disk.check() {
            batch.outcomes.clear();
            shared.counters.appended(0, 0, batch.len() as u64, std::time::Duration::ZERO);
            return Err(error);
        }
        let begun = Instant::now();
        let appended = shared.log.append(batch);
        let (records, refused) = (batch.outcomes.len(), batch.len() - batch.outcomes.len());
        let bytes = batch.outcomes.iter().map(|outcome| u64::from(outcome.size)).sum();
        match (shared.options.confirmed_by, shared.options.flush_disk_type) {
            (ConfirmedBy::Store, FlushDiskType::AsyncFlush) => shared.bell.ring(appended.watched),
            _ if appended.watched => shared.urgent.store(true, Ordering::Release),
            _ => {}
        }
        shared.counters.appended(records as u64, bytes, refused as u64, begun.elapsed());
        appended.result.map(|()| appended.end)
    }

    /// Lets every flush of the log wait as long as the guard lives, like a disk that has come to a stand.
    #[cfg(feature = "simulation")]
    pub fn hold_flushes(&self) -> impl Drop + '_ {
        self.shared.flushing.lock()
    }

    // ---- waterlines ----

    /// Everything below is in the log's memory, and survives the death of the process.
    pub fn appended(&self) -> &Waterline {
        &self.shared.log.appended
    }

    /// Everything below is on the disk.
    pub fn flushed(&self) -> &Waterline {
        &self.shared.log.flushed
    }

    /// Everything below may be shown to consumers: what replication [confirms](Self::confirm), or (without it) `flushed` under
    /// SYNC_FLUSH and `appended` else.
    pub fn confirmed(&self) -> &Waterline {
        self.shared.confirmed()
    }

    /// Everything below is in the queues and the index.
    pub fn dispatched(&self) -> &Waterline {
        &self.shared.dispatched
    }

    /// First offset of the log.
    pub fn min_offset(&self) -> u64 {
        self.shared.log.files.min_offset()
    }

    // ---- dispatch ----

    /// Runs the dispatcher, on this thread if need be, up to the confirmed offset as of the call. [`read`](Self::read) does
    /// this by itself when it may come to a queue's end, so that a pull sees every message whose send was answered before.
    pub fn dispatch_to_confirmed(&self) {
        self.shared.dispatch_to(self.shared.confirmed().get());
    }

    /// Sets the one listener for arrivals in watched queues ([`ConsumeQueue::watch`]).
    pub fn set_arrival_listener(&self, listener: Arc<dyn ArrivalListener>) {
        self.shared.dispatcher.lock().set_listener(listener);
    }

    // ---- reads ----

    /// Reads messages of a queue in order (`docs/spec/02-store.md` §13.1, §13.2). May wait for the disk with
    /// [`Residency::Any`](crate::Residency::Any).
    pub fn read<F: MessageFilter + ?Sized, S: RecordSink + ?Sized>(
        &self,
        queue: &ConsumeQueue,
        request: ReadRequest,
        filter: &F,
        out: &mut S,
    ) -> ReadOutcome {
        let shared = &*self.shared;
        if shared.read_limits.scan_end(request) > queue.max_offset() {
            self.dispatch_to_confirmed();
        }
        if !queue.is_checked() {
            if request.residency == Residency::HotOnly && queue.is_to_be_checked() {
                return ReadOutcome::cold(queue, request.offset);
            }
            shared.check_or_report(queue);
        }
        let log_min = shared.log.files.min_offset();
        if !queue.begins_in_log(log_min) {
            if request.residency == Residency::HotOnly {
                return ReadOutcome::cold(queue, request.offset);
            }
            queue.correct_min_offset(log_min);
        }
        let memory = Memory { blocks: &shared.resident_blocks, pages: &shared.cold_pages };
        let outcome = read(&shared.log, &shared.read_limits, memory, queue, request, filter, out);
        shared.counters.read(outcome.messages, outcome.bytes);
        outcome
    }

    /// The record that begins at a physical offset; `None` if the log does not (or no longer) reach there. May wait for the
    /// disk, as all look-ups below.
    pub fn record_at(&self, physical_offset: u64) -> Result<Option<RecordSlice>, ReadError> {
        let log = &self.shared.log;
        let end = match self.shared.options.confirmed_by {
            ConfirmedBy::Store => log.appended.get(),
            ConfirmedBy::Replication { .. } => self.shared.confirmed().get(),
        };
        if physical_offset >= end || log.files.segment_at(physical_offset).is_none() {
            return Ok(None);
        }
        match lookup::whole_record_at(log, physical_offset) {
            Some(record) => Ok(Some(record)),
            None => Err(ReadError::NoRecord { offset: physical_offset }),
        }
    }

    /// Queue offset by store time (`docs/spec/02-store.md` §13.5), within `[min, max]`.
    pub fn offset_by_time(&self, queue: &ConsumeQueue, timestamp_ms: i64, boundary: Boundary) -> i64 {
        self.bring_up_to_date(queue);
        lookup::offset_by_time(&self.shared.log, queue, timestamp_ms, boundary).unwrap_or_else(|error| {
            tracing::error!(topic = queue.topic(), queue = queue.queue_id(), %error, "can't read the consume queue");
            queue.min_offset()
        })
    }

    /// Messages of `topic` whose `UNIQ_KEY` is `key` or (unless `unique`) whose `KEYS` contain it, stored within
    /// `[begin_ms, end_ms]`: the newest `max` of them, each once, by ascending physical offset. Topic and key are compared
    /// exactly.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        max: usize,
        begin_ms: i64,
        end_ms: i64,
        unique: bool,
    ) -> QueryResult {
        let shared = &*self.shared;
        self.dispatch_to_confirmed();
        let Some(index) = &shared.index else { return QueryResult::default() };
        let max = max.min(shared.options.query_max);
        let query = KeyQuery { topic, key, max, begin_ms, end_ms, unique };
        let (index_last_timestamp, index_last_offset) = index.end();
        let records = lookup::query(&shared.log, index, &shared.deleted, query);
        QueryResult { records, index_last_timestamp, index_last_offset }
    }

    /// Store time of the message at a queue offset, ms.
    pub fn store_time_at(&self, queue: &ConsumeQueue, queue_offset: i64) -> Option<i64> {
        lookup::store_time(&self.shared.log, self.unit(queue, queue_offset)?)
    }

    /// Store time of the oldest message of a queue, ms.
    pub fn earliest_time(&self, queue: &ConsumeQueue) -> Option<i64> {
        self.bring_up_to_date(queue);
        let (_, unit) = queue.message_from(queue.min_offset(), queue.max_offset()).ok()??;
        lookup::store_time(&self.shared.log, unit)
    }

    /// Store time of the oldest message of the log, ms.
    pub fn earliest_time_of_log(&self) -> Option<i64> {
        let record = lookup::record_at(&self.shared.log, self.min_offset(), None)?;
        ferromq_protocol::message::RecordView::parse(&record).ok().map(|record| record.store_timestamp())
    }

    /// Physical offset of the message at a queue offset.
    pub fn physical_offset_at(&self, queue: &ConsumeQueue, queue_offset: i64) -> Option<u64> {
        self.unit(queue, queue_offset).map(|unit| unit.physical_offset)
    }

    fn unit(&self, queue: &ConsumeQueue, queue_offset: i64) -> Option<Unit> {
        self.bring_up_to_date(queue);
        if queue_offset < queue.min_offset() {
            return None;
        }
        queue.unit_at(queue_offset).ok().flatten().filter(|unit| unit.is_message())
    }

    fn bring_up_to_date(&self, queue: &ConsumeQueue) {
        self.dispatch_to_confirmed();
        self.shared.check_or_report(queue);
        queue.correct_min_offset(self.shared.log.files.min_offset());
    }

    /// Units of a queue from `from` on, at most `count` (admin dump). Places without a message are left out.
    pub fn consume_queue_units(&self, queue: &ConsumeQueue, from: i64, count: usize) -> Vec<QueueUnit> {
        self.bring_up_to_date(queue);
        let mut units = Vec::new();
        let mut offset = from.max(queue.min_offset());
        while units.len() < count
            && let Ok(Some((queue_offset, unit))) = queue.message_from(offset, queue.max_offset())
        {
            let Unit { physical_offset, size, tags_code } = unit;
            units.push(QueueUnit { queue_offset, physical_offset, size, tags_code });
            offset = queue_offset + 1;
        }
        units
    }

    // ---- deletion ----

    /// `cleanExpiredCQ`: removes the files of queues all of whose messages are gone from the log. Their offsets go on where
    /// they were. Returns how many queues. Waits for the disk.
    pub fn clean_expired_queues(&self) -> usize {
        let shared = &*self.shared;
        let is_empty =
            |queue: &ConsumeQueue| queue.min_offset() >= queue.max_offset() && queue.max_offset() > 0;
        let mut empty = Vec::new();
        for queue in shared.queues.iter() {
            self.bring_up_to_date(&queue);
            if is_empty(&queue) {
                empty.push(queue);
            }
        }
        if empty.is_empty() {
            return 0;
        }
        // Without files only the list knows how far the queues had got.
        if let Err(error) = shared.flush_projections() {
            tracing::error!(%error, "can't write the list of queues");
            return 0;
        }
        let mut cleaned = 0;
        for queue in empty {
            let delete = || if is_empty(&queue) { queue.delete_all_files() } else { Ok(0) };
            match shared.queues.without_writing(delete) {
                Ok(files) => cleaned += usize::from(files > 0),
                Err(error) => {
                    tracing::error!(topic = queue.topic(), %error, "can't delete the consume queue's files");
                }
            }
        }
        cleaned
    }

    /// Deletes expired log files now, whatever the hour: one round of them at once, more in the background if there are more
    /// (`docs/spec/02-store.md` §12.1). Returns how many went at once. Waits for the disk.
    pub fn delete_expired_files(&self) -> usize {
        self.shared.manual_rounds.store(MANUAL_ROUNDS - 1, Ordering::Relaxed);
        self.shared.clean_pass(true)
    }

    // ---- state ----

    /// Why writes are refused for want of disk space, if they are.
    pub fn disk_full(&self) -> Option<DiskFull> {
        self.shared.disk.full().or_else(|| match self.shared.log.ahead.failure() {
            Some(AppendError::DiskFull(full)) => Some(full),
            _ => None,
        })
    }

    /// Counters and gauges.
    pub fn stats(&self) -> StoreStats {
        let shared = &*self.shared;
        let directory = shared.options.commit_log_directory();
        let ratio = |directory: &Path| {
            used_percent(shared.options.disk_usage, directory).map(|percent| f64::from(percent) / 100.0)
        };
        let appended = shared.log.appended.get();
        StoreStats {
            log_min_offset: self.min_offset(),
            log_max_offset: appended,
            log_warmed_offset: shared.log.ahead.warmed(),
            flush_behind_bytes: appended.saturating_sub(shared.log.flushed.get()),
            dispatch_behind_bytes: shared.confirmed().get().saturating_sub(shared.dispatched.get()),
            append_lock_held_ms: shared.log.locked_for_ms(),
            commit_log_disk_ratio: ratio(&directory),
            consume_queue_disk_ratio: ratio(shared.queues.directory()),
            commit_log_disk_capacity: space(&directory)
                .map(|(used, available)| (used + available, available)),
            ..shared.counters.snapshot()
        }
    }
}

#[cfg(test)]
impl Store {
    /// What the queues' thread does, a list of them included.
    pub(crate) fn write_queues_for_test(&self) {
        self.shared.write_projections(crate::queue::Extent::Due).expect("queues can be written");
        self.shared.list_recent().expect("a list can be written");
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.log.close();
        self.end_threads();
    }
}

/// Bytes of memory of the machine.
fn physical_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
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
