//! The commit log: message records on top of the row of mapped files (`docs/spec/02-store.md` §4, §5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use ferromq_protocol::message::{
    BLANK_LEN_MIN, BLANK_MAGIC, RecordError, RecordView, encode_blank, seal_crc_property, set_log_fields,
};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::append::{AppendBatch, Outcome};
use crate::clock::now_ms;
use crate::disk;
use crate::error::{AppendError, FileError, ReplicaError};
use crate::log::{Ahead, MappedLog, Segment};
use crate::recovery::erase_behind;
use crate::waterline::Waterline;

/// Largest step back of the clock that store times do not follow, so that they ascend along the log.
const CLOCK_STEP_IGNORED_MS: i64 = 5_000;

/// The log and its two basic waterlines.
#[derive(Debug)]
pub(crate) struct CommitLog {
    pub(crate) files: MappedLog,
    pub(crate) ahead: Ahead,
    /// Everything below is readable in the mapped files.
    pub(crate) appended: Waterline,
    /// Everything below is on the device.
    pub(crate) flushed: Waterline,
    appender: Mutex<Appender>,
    /// Store time of the newest record.
    last_timestamp: AtomicI64,
    /// When the present holder of the append lock got it, ms; 0 when nobody holds it.
    locked_since_ms: AtomicI64,
    closed: AtomicBool,
    /// Another broker appends, and this one copies. Changed under the append lock.
    following: AtomicBool,
    /// Held by those who read what may be erased, and (exclusively) while something is.
    erasing: RwLock<()>,
}

/// Where the next record goes. Guarded by the append lock.
#[derive(Debug)]
struct Appender {
    segment: Arc<Segment>,
    position: u32,
}

/// What lies at some offset of the log.
#[derive(Debug)]
pub(crate) enum Entry<'a> {
    /// A record whose lengths add up.
    Record(RecordView<'a>),
    /// The end of the file.
    Blank,
    /// Something else.
    Bad(RecordError),
}

/// Result of an append, beside the outcomes in the batch.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) end: u64,
    /// One of the records went to a queue that somebody watches.
    pub(crate) watched: bool,
    pub(crate) result: Result<(), AppendError>,
}

impl CommitLog {
    /// A log whose next record goes to `end`, which is inside of `segment` or at its end.
    pub(crate) fn new(
        files: MappedLog,
        ahead: Ahead,
        segment: Arc<Segment>,
        end: u64,
        last_timestamp: i64,
        following: bool,
    ) -> Self {
        ahead.follow(&segment);
        CommitLog {
            files,
            ahead,
            appended: Waterline::new(end),
            flushed: Waterline::new(end),
            appender: Mutex::new(Appender { position: (end - segment.base()) as u32, segment }),
            last_timestamp: AtomicI64::new(last_timestamp),
            locked_since_ms: AtomicI64::new(0),
            closed: AtomicBool::new(false),
            following: AtomicBool::new(following),
            erasing: RwLock::default(),
        }
    }

    /// Appends the batch's records as far as possible, under one acquisition of the lock.
    pub(crate) fn append(&self, batch: &mut AppendBatch) -> Appended {
        batch.outcomes.clear();
        let mut appender = self.appender.lock();
        let now = self.store_time();
        self.locked_since_ms.store(now, Ordering::Relaxed);
        let mut watched = false;
        let mut result = Ok(());
        if self.is_following() {
            let end = appender.end();
            self.locked_since_ms.store(0, Ordering::Relaxed);
            return Appended { end, watched, result: Err(AppendError::Follower) };
        }
        let queues = batch.queues.handles();
        // Records are completed one by one and copied many at a time. In the batch's bytes, how far both are:
        let (mut from, mut copied) = (0, 0);
        for entry in &batch.entries {
            let waiting = from - copied;
            let crosses = entry.group_size as usize + BLANK_LEN_MIN > appender.rest() as usize - waiting;
            if crosses || entry.late.is_some() {
                appender.put(&mut batch.scratch[copied..from], &batch.outcomes);
                copied = from;
            }
            if crosses && let Err(error) = self.roll(&mut appender) {
                result = Err(error);
                break;
            }
            if self.closed.load(Ordering::Relaxed) {
                result = Err(AppendError::Shutdown);
                break;
            }
            let queue = &queues[entry.queue as usize];
            let physical_offset = appender.end() + (from - copied) as u64;
            let queue_offset = match entry.takes_queue_offset {
                true => queue.take_offsets(entry.messages),
                false => 0,
            };
            let mut record = &mut batch.scratch[from..from + entry.size as usize];
            if let Some(late) = &entry.late {
                late.complete(record, queue_offset, &mut batch.completed);
                record = &mut batch.completed;
                watched |= late.is_watched();
            }
            set_log_fields(record, queue_offset, physical_offset, now);
            if batch.crc_property {
                seal_crc_property(record);
            }
            batch.outcomes.push(Outcome {
                queue_offset,
                physical_offset,
                size: record.len() as u32,
                store_timestamp: now,
            });
            watched |= queue.is_watched();
            from += entry.size as usize;
            if entry.late.is_some() {
                appender.put(&mut batch.completed, &batch.outcomes);
                copied = from;
            }
        }
        drop(queues);
        appender.put(&mut batch.scratch[copied..from], &batch.outcomes);
        let end = appender.end();
        if !batch.outcomes.is_empty() {
            self.last_timestamp.store(now, Ordering::Relaxed);
        }
        // Inside of the lock, so that it rises in the order of the records.
        self.appended.raise(end);
        self.locked_since_ms.store(0, Ordering::Relaxed);
        drop(appender);
        self.appended.notify(end);
        self.ahead.appended(end);
        Appended { end, watched, result }
    }

    fn store_time(&self) -> i64 {
        let (now, last) = (now_ms(), self.last_timestamp.load(Ordering::Relaxed));
        if now < last && last - now <= CLOCK_STEP_IGNORED_MS { last } else { now }
    }

    /// Closes the present file and goes on in the next one.
    fn roll(&self, appender: &mut Appender) -> Result<(), AppendError> {
        let next = self.ahead.take(appender.segment.end())?;
        let rest = appender.rest();
        if rest as usize >= BLANK_LEN_MIN {
            appender.segment.mapped().write(appender.position, &encode_blank(rest));
        }
        self.files.push(Arc::clone(&next));
        self.ahead.follow(&next);
        *appender = Appender { segment: next, position: 0 };
        Ok(())
    }

    /// Stops appends while the guard lives. For changes that must not race with the assignment of queue offsets.
    pub(crate) fn pause_appends(&self) -> impl Drop + use<'_> {
        struct Paused<'a>(#[allow(dead_code, reason = "held for its drop")] MutexGuard<'a, Appender>);
        impl Drop for Paused<'_> {
            fn drop(&mut self) {}
        }
        Paused(self.appender.lock())
    }

    /// Refuses appends from now on.
    pub(crate) fn close(&self) {
        let _appender = self.appender.lock();
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether another broker appends.
    #[inline]
    pub(crate) fn is_following(&self) -> bool {
        self.following.load(Ordering::Relaxed)
    }

    /// Sets who appends. Waits for an append that is under way.
    pub(crate) fn set_following(&self, following: bool) {
        let _appender = self.appender.lock();
        self.following.store(following, Ordering::Relaxed);
    }

    /// Appends another broker's bytes.
    pub(crate) fn append_copy(&self, offset: u64, bytes: &[u8]) -> Result<u64, ReplicaError> {
        let mut appender = self.appender.lock();
        if !self.is_following() {
            return Err(ReplicaError::Leading);
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(AppendError::Shutdown.into());
        }
        let file_size = u64::from(appender.segment.size());
        if bytes.len() as u64 > file_size - offset % file_size {
            return Err(ReplicaError::OverFileEnd { offset, len: bytes.len(), file_size });
        }
        let end = appender.end();
        if offset != end {
            if end != self.files.min_offset() || !offset.is_multiple_of(file_size) {
                return Err(ReplicaError::NotAtEnd { offset, end });
            }
            self.begin_at(&mut appender, offset)?;
        }
        if appender.position == appender.segment.size() {
            self.roll(&mut appender)?;
        }
        appender.segment.mapped().write(appender.position, bytes);
        appender.position += bytes.len() as u32;
        let end = appender.end();
        self.appended.raise(end);
        drop(appender);
        self.appended.notify(end);
        self.ahead.appended(end);
        Ok(end)
    }

    /// Lets a log without any byte begin at `offset`.
    fn begin_at(&self, appender: &mut Appender, offset: u64) -> Result<(), ReplicaError> {
        self.ahead.want(offset, None);
        let segment = self.ahead.take(offset)?;
        // Until now nothing but zeros. If the process ends here, the next start finds two files and no record.
        let old = appender.segment.path();
        disk::remove_file(old).map_err(FileError::at("delete", old))?;
        self.files.replace(vec![Arc::clone(&segment)]);
        self.ahead.follow(&segment);
        *appender = Appender { segment, position: 0 };
        self.flushed.advance(offset);
        self.appended.raise(offset);
        Ok(())
    }

    /// Erases everything from `offset` on, which lies in the log, so that it can't come back. `before` is called first, when nobody
    /// appends any more. The caller sees to it that nobody flushes the log meanwhile. Waits for the disk.
    pub(crate) fn cut(&self, offset: u64, before: impl FnOnce()) -> Result<(), FileError> {
        let mut appender = self.appender.lock();
        before();
        let _erasing = self.erasing.write();
        let result = self.erase_from(&mut appender, offset);
        if result.is_err() {
            // Nothing may be written behind what should be gone.
            self.closed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn erase_from(&self, appender: &mut Appender, offset: u64) -> Result<(), FileError> {
        let (kept, removed) = self.files.split(offset);
        let Some(last) = kept.last().cloned() else { return Ok(()) };
        self.appended.lower(offset);
        self.flushed.lower(offset);
        self.files.replace(kept);
        // From the end, so that a crash in between leaves no gap.
        for segment in removed.iter().rev() {
            disk::remove_file(segment.path()).map_err(FileError::at("delete", segment.path()))?;
        }
        if let Some(directory) = last.path().parent().filter(|_| !removed.is_empty()) {
            disk::sync_directory(directory).map_err(FileError::at("flush", directory))?;
        }
        erase_behind(&last, offset)?;
        self.ahead.follow(&last);
        *appender = Appender { position: (offset - last.base()) as u32, segment: last };
        Ok(())
    }

    /// The bytes from `offset` on up to `end`, as many as lie in one file, copied: they may be erased later.
    pub(crate) fn copy(&self, offset: u64, end: u64) -> Option<Vec<u8>> {
        let _reading = self.erasing.read();
        let end = end.min(self.appended.get());
        let segment = self.files.segment_at(offset).filter(|_| offset < end)?;
        Some(segment.range(offset, end.min(segment.end())).to_vec())
    }

    /// Store time of the newest record, ms.
    pub(crate) fn last_timestamp(&self) -> i64 {
        self.last_timestamp.load(Ordering::Relaxed)
    }

    /// Takes note of the store time of a record that another broker appended.
    pub(crate) fn set_last_timestamp(&self, timestamp: i64) {
        self.last_timestamp.store(timestamp, Ordering::Relaxed);
    }

    /// How long the present holder of the append lock has had it, ms.
    pub(crate) fn locked_for_ms(&self) -> u64 {
        match self.locked_since_ms.load(Ordering::Relaxed) {
            0 => 0,
            since => u64::try_from(now_ms() - since).unwrap_or(0),
        }
    }

    /// The file of the record of `size` bytes at `offset`, if the log has all of it.
    pub(crate) fn locate(&self, offset: u64, size: u32) -> Option<Arc<Segment>> {
        let end = offset.checked_add(u64::from(size))?;
        if end > self.appended.get() {
            return None;
        }
        self.files.segment_at(offset).filter(|segment| end <= segment.end())
    }
}

impl Appender {
    fn end(&self) -> u64 {
        self.segment.base() + u64::from(self.position)
    }

    /// Bytes that the file has left.
    fn rest(&self) -> u32 {
        self.segment.size() - self.position
    }

    /// Copies complete records to the end of the log. They are the last of those with an outcome.
    fn put(&mut self, records: &mut [u8], outcomes: &[Outcome]) {
        let end = self.end();
        let first = outcomes.partition_point(|outcome| outcome.physical_offset < end);
        let sizes = outcomes[first..].iter().map(|outcome| outcome.size);
        self.segment.mapped().write_sizes_last(self.position, records, sizes);
        self.position += records.len() as u32;
    }
}

/// What lies at `offset` of a segment, given that bytes up to `end` may be read.
pub(crate) fn entry_at(segment: &Segment, offset: u64, end: u64) -> Entry<'_> {
    let bytes = segment.range(offset, end.min(segment.end()));
    let rest = segment.end() - offset;
    if let Some([a, b, c, d, magic @ ..]) = bytes.first_chunk::<8>() {
        if u32::from_be_bytes(*magic) == BLANK_MAGIC
            && u64::from(u32::from_be_bytes([*a, *b, *c, *d])) == rest
        {
            return Entry::Blank;
        }
    } else if rest < BLANK_LEN_MIN as u64 {
        return Entry::Blank;
    }
    match RecordView::parse(bytes) {
        Ok(record) => Entry::Record(record),
        Err(error) => Entry::Bad(error),
    }
}
