//! The commit log: message records on top of the row of mapped files (`docs/spec/02-store.md` §4, §5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use ferromq_protocol::message::{
    BLANK_LEN_MIN, BLANK_MAGIC, RecordError, RecordView, encode_blank, seal_crc_property, set_log_fields,
};
use parking_lot::{Mutex, MutexGuard};

use crate::append::{AppendBatch, Outcome};
use crate::clock::now_ms;
use crate::error::AppendError;
use crate::log::{Ahead, MappedLog, Segment};
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
        let mut from = 0;
        for entry in &batch.entries {
            let rest = appender.segment.size() - appender.position;
            if entry.group_size as usize + BLANK_LEN_MIN > rest as usize
                && let Err(error) = self.roll(&mut appender)
            {
                result = Err(error);
                break;
            }
            if self.closed.load(Ordering::Relaxed) {
                result = Err(AppendError::Shutdown);
                break;
            }
            let physical_offset = appender.end();
            let queue_offset = match entry.takes_queue_offset {
                true => entry.queue.take_offsets(entry.messages),
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
            appender.put(record);
            batch.outcomes.push(Outcome {
                queue_offset,
                physical_offset,
                size: record.len() as u32,
                store_timestamp: now,
            });
            watched |= entry.queue.is_watched();
            from += entry.size as usize;
        }
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
        let rest = appender.segment.size() - appender.position;
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

    /// Store time of the newest record, ms.
    pub(crate) fn last_timestamp(&self) -> i64 {
        self.last_timestamp.load(Ordering::Relaxed)
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

    fn put(&mut self, record: &[u8]) {
        self.segment.mapped().write_size_last(self.position, record);
        self.position += record.len() as u32;
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
