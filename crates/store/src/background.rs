//! The threads of a running store. Each does one thing, and none of them is waited for by an append.
//!
//! | thread | what |
//! |---|---|
//! | `store-create` | creates the next log file ([`Ahead`](crate::log::Ahead)) |
//! | `store-ahead` | faults in the pages behind the log's end |
//! | `store-flush` | forces the log to the disk: group commit, or every 500 ms |
//! | `store-dispatch` | feeds queues and index |
//! | `store-queues` | writes the queues' units to their files, keeps the marks |
//! | `store-lists` | forces queues and index to the disk, keeps the list of queues and the checkpoint |
//! | `store-clean` | watches the disk, deletes what has expired |

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use ferromq_protocol::message::RecordView;
use parking_lot::{Condvar, Mutex};

use crate::checkpoint::CheckpointTimes;
use crate::commit_log::CommitLog;
use crate::disk;
use crate::error::FileError;
use crate::log::{Journal, Segment};
use crate::options::{FlushDiskType, StoreOptions};
use crate::queue::{ConsumeQueue, Extent, Listing, QueueListWriter, WriteOutError};
use crate::retention::{is_expired, judge, local_hour};
use crate::shared::Shared;

/// Bytes appended after which the disk is asked to begin writing, so that a flush finds little to do.
const WRITE_BACK_BYTES: u64 = 8 << 20;
/// Between two flushes of queues and index.
const FULL_FLUSH: Duration = Duration::from_secs(60);
/// Of so much of the log, units were written to their files since the last list of queues: time for a list of what is written.
const RECENT_LIST_BYTES: u64 = 2 << 30;
/// At most one part in this many of the time is spent with such flushes, and one with such lists.
const LISTS_PART: u32 = 10;
/// Under ASYNC_FLUSH, how long messages may come in before their last, unfinished pages are flushed too.
const TAIL_FLUSH: Duration = Duration::from_secs(2);
/// How long the flusher of SYNC_FLUSH sleeps at a time.
const SYNC_FLUSH_SLEEP: Duration = Duration::from_secs(1);

/// Tells the threads to end, and lets them sleep until then.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopping: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(crate) fn stop(&self) {
        *self.stopping.lock() = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.lock()
    }

    /// Sleeps; says whether the store is stopping.
    pub(crate) fn sleep(&self, duration: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.changed.wait_for(&mut stopping, duration);
        }
        *stopping
    }
}

/// Starts the threads.
pub(crate) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, FileError> {
    let spawn = |name: &'static str, run: fn(&Shared)| {
        let shared = Arc::clone(shared);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&shared))
            .map_err(FileError::at("start a thread for", &std::path::PathBuf::from(name)))
    };
    Ok(vec![
        spawn("store-create", |shared| shared.log.ahead.create_files())?,
        spawn("store-ahead", |shared| shared.log.ahead.warm_pages(|| shared.log.appended.get()))?,
        spawn(
            "store-flush",
            match shared.options.flush_disk_type {
                FlushDiskType::AsyncFlush => flush_now_and_then,
                FlushDiskType::SyncFlush => flush_at_once,
            },
        )?,
        spawn("store-dispatch", dispatch)?,
        spawn("store-queues", write_queues)?,
        spawn("store-lists", flush_everything)?,
        spawn("store-clean", clean)?,
    ])
}

// ---- the log ----

/// ASYNC_FLUSH. As long as messages keep coming, only pages that are finished are flushed, so that appends never wait for a
/// flush.
fn flush_now_and_then(shared: &Shared) {
    let log = &shared.log;
    let mut write_back = log.appended.get();
    let mut seen = Seen { appended: write_back, timestamp: log.last_timestamp() };
    let mut flushed_at = Instant::now();
    while !shared.stop.is_stopping() {
        let flush_at = Instant::now() + shared.options.flush_interval_commit_log;
        loop {
            let rest = flush_at.saturating_duration_since(Instant::now());
            if rest.is_zero() || shared.stop.is_stopping() {
                break;
            }
            if log.appended.wait_unless(write_back + WRITE_BACK_BYTES, rest, || shared.stop.is_stopping()) {
                let appended = log.appended.get();
                log.files.start_write_back(write_back, appended);
                write_back = appended;
            }
        }
        let now = Seen { appended: log.appended.get(), timestamp: log.last_timestamp() };
        let is_busy = now.appended > seen.appended && flushed_at.elapsed() < TAIL_FLUSH;
        let flushed_before = log.flushed.get();
        let result = match &shared.journal {
            Some(journal) if is_busy => shared.flush_finished_pages(journal, &seen),
            _ => shared.flush_log(),
        };
        if let Err(error) = result {
            tracing::error!(%error, "can't flush the log: trying again");
        }
        if log.flushed.get() > flushed_before {
            flushed_at = Instant::now();
        }
        seen = now;
        write_back = write_back.max(log.flushed.get());
    }
}

/// The log's end at some moment, and the store time of its last record.
struct Seen {
    appended: u64,
    timestamp: i64,
}

/// SYNC_FLUSH: while one batch is forced to the disk, the next one gathers.
fn flush_at_once(shared: &Shared) {
    let log = &shared.log;
    while !shared.stop.is_stopping() {
        let stopping = || shared.stop.is_stopping();
        if !log.appended.wait_unless(log.flushed.get() + 1, SYNC_FLUSH_SLEEP, stopping) {
            continue;
        }
        match shared.flush_log() {
            Ok(()) => shared.bell.ring(shared.urgent.swap(false, Ordering::AcqRel)),
            Err(error) => {
                // What the system did with the pages after a failed write is not known, so a later success proves
                // nothing: acknowledging anything from here on could be a lie.
                tracing::error!(%error, "can't force the log to the disk: no more messages are accepted");
                log.close();
                return;
            }
        }
    }
}

// ---- dispatch ----

fn dispatch(shared: &Shared) {
    let mut idle_rounds = 0;
    while !shared.stop.is_stopping() {
        if shared.dispatch_round() {
            idle_rounds = 0;
        } else {
            idle_rounds += 1;
            let idle = || !shared.is_to_dispatch(shared.confirmed().get()) && !shared.stop.is_stopping();
            shared.bell.rest(idle_rounds, idle);
        }
    }
}

// ---- queues, marks, checkpoint ----

fn write_queues(shared: &Shared) {
    let mut recent = RecentList { position: 0, next: Instant::now() };
    while !shared.stop.sleep(shared.options.flush_interval_consume_queue) {
        let result = shared.write_projections(Extent::Due).and_then(|()| recent.renew_if_due(shared));
        if let Err(error) = result {
            tracing::error!(%error, "can't write the consume queues: trying again");
        }
    }
}

/// The list of queues as of what is written to their files, forced to the disk or not: from it a start goes on after the process
/// was killed. The disk may need minutes for the files of many queues, and meanwhile the log goes on.
struct RecentList {
    position: u64,
    /// Not before.
    next: Instant,
}

impl RecentList {
    fn renew_if_due(&mut self, shared: &Shared) -> Result<(), FileError> {
        let begun = Instant::now();
        let (written, synced) = shared.written_and_synced();
        if written < self.position.max(synced) + RECENT_LIST_BYTES || begun < self.next {
            return Ok(());
        }
        self.position = shared.list_recent()?;
        self.next = begun + begun.elapsed() * LISTS_PART;
        Ok(())
    }
}

fn flush_everything(shared: &Shared) {
    // Soon after a start that read a part of the log, so that the next one need not read it again.
    let mut pause = shared.options.flush_interval_consume_queue;
    while !shared.stop.sleep(pause) {
        let begun = Instant::now();
        shared.queues.release_idle();
        let result = shared.write_projections(Extent::Due).and_then(|()| shared.sync_projections());
        if let Err(error) = result {
            tracing::error!(%error, "can't force the consume queues to the disk: trying again");
        }
        let took = begun.elapsed();
        pause = FULL_FLUSH.max(took * LISTS_PART) - took;
    }
}

impl Shared {
    /// Forces what has been appended to the disk.
    pub(crate) fn flush_log(&self) -> Result<(), FileError> {
        self.flush_log_to(u64::MAX)
    }

    /// As [`flush_log`](Self::flush_log), unless everything below `offset` is on the disk.
    pub(crate) fn flush_log_to(&self, offset: u64) -> Result<(), FileError> {
        let _flushing = self.flushing.lock();
        let (flushed, appended) = (self.log.flushed.get(), self.log.appended.get());
        if flushed < appended.min(offset) {
            let timestamp = self.log.last_timestamp();
            match &self.journal {
                Some(journal) => {
                    self.log.files.write_pages(flushed, appended)?;
                    journal.commit()?;
                }
                None => self.log.files.flush(flushed, appended)?,
            }
            self.flushed_timestamp.store(timestamp, Ordering::Relaxed);
            self.log.ahead.pages_were_cleaned();
            self.log.flushed.advance(appended);
        }
        Ok(())
    }

    /// Forces those pages of the log to the disk that no append will touch again. `before` is an earlier state of the log.
    fn flush_finished_pages(&self, journal: &Journal, before: &Seen) -> Result<(), FileError> {
        let _flushing = self.flushing.lock();
        let (flushed, appended) = (self.log.flushed.get(), self.log.appended.get());
        let end = self.log.files.write_finished_pages(flushed, appended)?;
        if end > flushed {
            journal.commit()?;
            if end >= before.appended {
                self.flushed_timestamp.store(before.timestamp, Ordering::Relaxed);
            }
            self.log.flushed.advance(end);
        }
        Ok(())
    }

    /// As ASYNC_FLUSH does it while messages keep coming.
    #[cfg(feature = "simulation")]
    pub(crate) fn flush_finished_pages_now(&self) -> Result<(), FileError> {
        let now = Seen { appended: self.log.appended.get(), timestamp: self.log.last_timestamp() };
        self.journal.as_ref().map_or(Ok(()), |journal| self.flush_finished_pages(journal, &now))
    }

    /// Writes queue units to their files, and then the marks that say so.
    pub(crate) fn write_projections(&self, extent: Extent) -> Result<(), FileError> {
        let (dispatched, indexed, timestamp) = {
            let dispatcher = self.dispatcher.lock();
            (dispatcher.position(), dispatcher.indexed(), dispatcher.last_timestamp())
        };
        let written = self.write_queues(dispatched, extent)?;
        let written_timestamp = match written == dispatched {
            true => timestamp,
            false => store_time_at(&self.log, written),
        };
        let mut keeper = self.keeper.lock();
        keeper.written_timestamp = keeper.written_timestamp.max(written_timestamp);
        let written = written.min(indexed);
        if written <= keeper.marks.written && extent != Extent::All {
            return Ok(());
        }
        keeper.marks.written = keeper.marks.written.max(written);
        keeper.marks.index_end = self.index.as_ref().map_or(0, |index| index.reaches_to());
        keeper.marks.last_timestamp = timestamp;
        keeper.write(false)
    }

    /// Writes queue units to their files; those of a queue that turns out to be damaged are laid anew first.
    fn write_queues(&self, dispatched: u64, extent: Extent) -> Result<u64, FileError> {
        loop {
            match self.queues.write_out(dispatched, extent) {
                Ok(written) => return Ok(written),
                Err(WriteOutError::Io(error)) => {
                    return Err(FileError::at("write to", self.queues.directory())(error));
                }
                Err(WriteOutError::Doubtful { queue, .. }) => self.ensure_checked(&queue)?,
            }
        }
    }

    /// Up to where in the log units are in their files, and forced to the disk.
    fn written_and_synced(&self) -> (u64, u64) {
        let keeper = self.keeper.lock();
        (keeper.marks.written, keeper.marks.synced)
    }

    /// Lists the queues as of what is written to their files. Returns the list's position.
    pub(crate) fn list_recent(&self) -> Result<u64, FileError> {
        let root = &self.options.root;
        let (written, _) = self.written_and_synced();
        let list = self.queues.begin_list(root, Listing::Recent, written);
        list.and_then(QueueListWriter::finish).map_err(FileError::at("write the list of queues in", root))?;
        Ok(written)
    }

    /// Forces queues, index, the list of queues, marks and checkpoint to the disk, if something was written since.
    pub(crate) fn sync_projections(&self) -> Result<(), FileError> {
        let (written, synced) = self.written_and_synced();
        if written > synced { self.sync_and_list() } else { Ok(()) }
    }

    /// Writes everything that is dispatched, and forces it all to the disk.
    pub(crate) fn flush_projections(&self) -> Result<(), FileError> {
        self.write_projections(Extent::All)?;
        self.sync_and_list()
    }

    fn sync_and_list(&self) -> Result<(), FileError> {
        let _listing = self.listing.lock();
        let root = &self.options.root;
        let (written, timestamp) = {
            let keeper = self.keeper.lock();
            (keeper.marks.written, keeper.written_timestamp)
        };
        // The list goes first: what it says of the files must be on the disk when it is there under its name.
        let list = self
            .queues
            .begin_list(root, Listing::Synced, written)
            .map_err(FileError::at("write the list of queues in", root))?;
        // So must be the messages: behind what is flushed of the log, units and keys may point to what a power cut takes.
        self.flush_log()?;
        self.queues.sync().map_err(FileError::at("flush", self.queues.directory()))?;
        let mut index_ms = 0;
        if let Some(index) = &self.index {
            index_ms = index.full_until();
            index.flush()?;
        }
        list.finish().map_err(FileError::at("write the list of queues in", root))?;
        let mut keeper = self.keeper.lock();
        keeper.marks.synced = written;
        keeper.marks.index_synced = written;
        keeper.write(true)?;
        let physic_ms = self.flushed_timestamp.load(Ordering::Relaxed);
        let master_flushed_offset = keeper.master_flushed_offset;
        let times = CheckpointTimes { physic_ms, logics_ms: timestamp, index_ms, master_flushed_offset };
        keeper.checkpoint.write(times, true)
    }

    /// The orderly end of everything: what is appended is flushed, dispatched, written, and said to be so.
    pub(crate) fn finish(&self) -> Result<(), FileError> {
        self.flush_log()?;
        while self.dispatch_round() {}
        self.flush_projections()?;
        if self.dispatched.get() < self.log.appended.get() {
            if self.dispatched.get() < self.confirmed().get() {
                tracing::warn!("not everything is dispatched: the next start recovers");
            }
            return Ok(());
        }
        if let Some(unused) = self.log.ahead.take_unused() {
            disk::remove_file(unused.path()).map_err(FileError::at("delete", unused.path()))?;
        }
        let mut keeper = self.keeper.lock();
        keeper.marks.clean = true;
        keeper.marks.log_end = self.log.appended.get();
        keeper.marks.checkpoint_modified_s = keeper.checkpoint.modified_s()?;
        keeper.write(true)?;
        crate::checkpoint::remove_abort(&self.options.root)
    }
}

// ---- retention ----

fn clean(shared: &Shared) {
    // The first look is at the start: a store that is opened on a full disk must not take messages for ten seconds.
    loop {
        let rounds = &shared.manual_rounds;
        let manual =
            rounds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rounds| rounds.checked_sub(1));
        shared.clean_pass(manual.is_ok());
        if shared.stop.sleep(shared.options.clean_resource_interval) {
            return;
        }
    }
}

impl Shared {
    /// Looks at the disk and deletes what has to go (`docs/spec/02-store.md` §12). Returns how many log files went.
    pub(crate) fn clean_pass(&self, manual: bool) -> usize {
        let _cleaning = self.cleaning.lock();
        let options = Arc::clone(&*self.retention.read());
        let look = || judge(&options, self.queues.directory(), &self.disk, local_hour());
        let mut verdict = look();
        self.free_deleted_files();
        let mut deleted = 0;
        while deleted < options.delete_file_batch_max {
            let Some(first) = self.log.files.first_of_more() else { break };
            let due = verdict.delete_any
                || ((verdict.delete_expired || manual)
                    && is_expired(&first, options.file_reserved, SystemTime::now()));
            if !due || first.end() > self.dispatched.get().min(self.log.flushed.get()) {
                break;
            }
            // How far the queues have got must be known without this file.
            if let Err(error) = self.sync_queues_to(first.end()) {
                tracing::error!(%error, "can't write the consume queues: no log file is deleted");
                break;
            }
            if let Err(error) = self.delete_log_file(first, &options) {
                tracing::error!(%error, "no more log files are deleted");
                break;
            }
            deleted += 1;
            // As long as somebody reads the file, the disk is as full as before: that is no reason to delete the next one.
            if self.free_deleted_files() > 0 && verdict.delete_any {
                break;
            }
            if self.stop.sleep(options.delete_commit_log_files_interval) {
                break;
            }
            verdict = look();
        }
        if deleted > 0 {
            self.trim_projections(|| {
                look();
            });
        }
        deleted
    }

    /// Removes the first log file, for good: it must not come back after a power cut, when nothing tells any more which of its topics
    /// were deleted. Its space is given back later.
    fn delete_log_file(&self, first: Arc<Segment>, options: &StoreOptions) -> Result<(), FileError> {
        disk::remove_file(first.path()).map_err(FileError::at("delete", first.path()))?;
        if self.log.files.remove_first(first.base()).is_some() {
            tracing::info!(file = %first.path().display(), "log file deleted");
        }
        let directory = options.commit_log_directory();
        disk::sync_directory(&directory).map_err(FileError::at("flush", &directory))?;
        self.leaving.take(first);
        Ok(())
    }

    /// Gives back the space of deleted log files that nobody reads any more. Returns how many there are yet.
    fn free_deleted_files(&self) -> usize {
        self.leaving.free(|time| {
            self.stop.sleep(time);
        })
    }

    /// Forces units of everything below `offset` to the disk, unless they are there.
    fn sync_queues_to(&self, offset: u64) -> Result<(), FileError> {
        let synced = self.keeper.lock().marks.synced;
        if synced >= offset { Ok(()) } else { self.flush_projections() }
    }

    /// Takes out of queues and index what points before the log's begin. Most queues need no look at their files for that; if it
    /// takes long all the same, `look_at_disk` is called now and then.
    fn trim_projections(&self, look_at_disk: impl Fn()) {
        let log_min = self.log.files.min_offset();
        self.queues.set_log_min(log_min);
        let mut looked = Instant::now();
        for queue in self.queues.iter() {
            if looked.elapsed() > self.options.clean_resource_interval {
                look_at_disk();
                looked = Instant::now();
            }
            if let Err(error) = self.trim_queue(&queue, log_min) {
                tracing::error!(topic = queue.topic(), queue = queue.queue_id(), %error, "can't trim the consume queue");
            }
        }
        if let Err(error) = self.queues.batch().trim(log_min) {
            tracing::error!(%error, "can't trim the batch consume queues");
        }
        let index = self.index.as_ref().map_or(Ok(0), |index| index.delete_expired(log_min));
        if let Err(error) = index.and(self.deleted.trim(log_min)) {
            tracing::error!(%error, "can't clean up");
        }
    }

    fn trim_queue(&self, queue: &Arc<ConsumeQueue>, log_min: u64) -> Result<(), FileError> {
        if !queue.begins_in_log(log_min) {
            self.ensure_checked(queue)?;
            queue.correct_min_offset(log_min);
        }
        if queue.may_have_old_files() {
            self.ensure_checked(queue)?;
            let deletion = self.queues.without_writing(|| queue.delete_files_before_min());
            deletion.map_err(FileError::at("delete files in", self.queues.directory()))?;
        }
        Ok(())
    }
}

/// Store time of the record at an offset of the log; 0 if there is none.
fn store_time_at(log: &CommitLog, offset: u64) -> i64 {
    let record = crate::lookup::record_at(log, offset, None);
    record
        .and_then(|record| RecordView::parse(&record).ok().map(|record| record.store_timestamp()))
        .unwrap_or(0)
}
