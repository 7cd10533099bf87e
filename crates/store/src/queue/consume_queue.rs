//! One consume queue (`docs/spec/02-store.md` §6).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::Mutex;

use super::files::{QueueFiles, QueueName};
use super::unit::{UNIT, Unit};

/// Units that stay in memory after they were written to the file, for consumers at the tail.
const KEPT_UNITS: usize = 64;
/// Units in memory beyond which the dispatcher writes them itself: the flusher can't keep up.
const OVERDUE_UNITS: usize = 256 << 10;
/// Units that one write to the file takes.
const WRITE_UNITS: usize = 8192;

/// Handle of one queue of a topic. There is exactly one per queue for the life of the store, so it may be cached for
/// ever; deleting the topic resets it in place.
///
/// The newest units are in memory ("tail"); a background thread writes them to the file. Until then a crash loses them, and
/// the log gives them back. An idle queue has no tail and no open file.
#[derive(Debug)]
pub struct ConsumeQueue {
    topic: Arc<str>,
    queue_id: i32,
    number: u32,
    watchers: AtomicU32,
    files: Arc<QueueFiles>,
    /// What the next appended message gets. Changed under the log's append lock.
    next_offset: AtomicI64,
    /// Behind the last dispatched unit. Changed by the dispatcher, with the tail locked.
    max_offset: AtomicI64,
    min_offset: AtomicI64,
    /// The log's first offset for which `min_offset` was last worked out.
    min_worked_out_for: AtomicU64,
    tail: Mutex<Tail>,
}

#[derive(Debug, Default)]
struct Tail {
    /// Queue offset of the first unit in `units`.
    start: i64,
    /// Encoded units `start..max_offset`.
    units: Vec<u8>,
    /// Units below this queue offset are in the file.
    written: i64,
    /// Physical offset of the unit at `written`, if there is one.
    unwritten_physical: u64,
    /// On the list of queues that have something to write.
    listed: bool,
    /// Pushed to since the last sweep of idle queues.
    used: bool,
}

/// What became of a unit that was pushed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// The place was taken: the message was dispatched before. Nothing happened.
    pub(crate) known: bool,
    /// Messages that are missing in front of this one; their places were filled with holes.
    pub(crate) holes: i64,
    /// The queue has to be put on the list of those with something to write.
    pub(crate) list: bool,
    /// So many units are in memory that they should be written now.
    pub(crate) overdue: bool,
}

/// What was written by [`ConsumeQueue::write_out`].
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) files: Vec<Arc<std::fs::File>>,
}

impl ConsumeQueue {
    pub(super) fn new(topic: Arc<str>, queue_id: i32, number: u32, files: Arc<QueueFiles>) -> Self {
        ConsumeQueue {
            topic,
            queue_id,
            number,
            watchers: AtomicU32::new(0),
            files,
            next_offset: AtomicI64::new(0),
            max_offset: AtomicI64::new(0),
            min_offset: AtomicI64::new(0),
            min_worked_out_for: AtomicU64::new(u64::MAX),
            tail: Mutex::default(),
        }
    }

    /// Topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Queue id.
    pub fn queue_id(&self) -> i32 {
        self.queue_id
    }

    /// First readable offset. Equal to [`max_offset`](Self::max_offset) when nothing is readable.
    pub fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    /// Offset behind the last readable message.
    pub fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// The offset that the next appended message gets ("uncommitted" max offset).
    pub fn next_offset(&self) -> i64 {
        self.next_offset.load(Ordering::Acquire)
    }

    /// Asks the dispatcher to report messages of this queue to the
    /// [`ArrivalListener`](crate::ArrivalListener) as long as the guard lives.
    ///
    /// After this returns, check [`max_offset`](Self::max_offset) again: a message that came before is not reported, any
    /// later one is.
    pub fn watch(self: &Arc<Self>) -> QueueWatch {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        QueueWatch { queue: Arc::clone(self) }
    }

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::SeqCst) > 0
    }

    /// Number of the handle, unique in the store.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    fn name(&self) -> QueueName<'_> {
        QueueName { number: self.number, topic: &self.topic, queue_id: self.queue_id }
    }

    // ---- appending ----

    /// The next `count` queue offsets, taken; returns the first. Only under the log's append lock.
    #[inline]
    pub(crate) fn take_offsets(&self, count: u32) -> i64 {
        let offset = self.next_offset.load(Ordering::Relaxed);
        self.next_offset.store(offset + i64::from(count), Ordering::Release);
        offset
    }

    /// Makes sure that offsets below `offset` are not given (again).
    pub(crate) fn raise_next_offset(&self, offset: i64) {
        self.next_offset.fetch_max(offset, Ordering::AcqRel);
    }

    /// Adds the unit of the message with queue offset `offset`. Only by the dispatcher.
    pub(crate) fn push(&self, offset: i64, unit: Unit) -> Pushed {
        let mut tail = self.tail.lock();
        let max = self.max_offset.load(Ordering::Relaxed);
        if offset < max {
            return Pushed { known: true, ..Pushed::default() };
        }
        let mut holes = offset - max;
        if holes > 0 {
            if self.min_offset.load(Ordering::Relaxed) == max {
                // Nothing readable before: the queue begins here.
                self.min_offset.store(offset, Ordering::Release);
            }
            if max == 0 {
                // Never had anything: the file will begin with blank units.
                holes = 0;
                tail.start = offset;
                tail.written = offset;
            } else {
                self.put_holes(&mut tail, holes, unit.physical_offset);
            }
        }
        tail.put(unit);
        let list = !std::mem::replace(&mut tail.listed, true);
        let overdue = tail.units.len() > OVERDUE_UNITS * UNIT;
        self.max_offset.store(offset + 1, Ordering::Release);
        drop(tail);
        // Pairs with `watch`: either the dispatcher sees the watcher, or the watcher sees this message.
        fence(Ordering::SeqCst);
        Pushed { known: false, holes, list, overdue }
    }

    fn put_holes(&self, tail: &mut Tail, count: i64, next_physical_offset: u64) {
        (0..count).for_each(|_| tail.put(Unit::hole(next_physical_offset)));
    }

    /// Physical offset of the first unit that is not in the file.
    pub(crate) fn first_unwritten_physical(&self) -> Option<u64> {
        let tail = self.tail.lock();
        let end = tail.end();
        (tail.written < end).then_some(tail.unwritten_physical)
    }

    /// Writes every unit to the file. Only one thread at a time (the flusher's lock). When this returns `Ok`, everything that
    /// was pushed before the call is in the file, and the queue is off the list.
    pub(crate) fn write_out(&self) -> io::Result<Written> {
        let mut files: Vec<Arc<std::fs::File>> = Vec::new();
        let mut chunk = Vec::new();
        loop {
            let from = {
                let mut tail = self.tail.lock();
                let from = tail.written;
                let at = (from - tail.start) as usize * UNIT;
                if at >= tail.units.len() {
                    tail.listed = false;
                    return Ok(Written { files });
                }
                let rest_of_file =
                    self.files.units_per_file() as i64 - from % self.files.units_per_file() as i64;
                let units = (tail.units.len() - at) / UNIT;
                let units = units.min(rest_of_file as usize).min(WRITE_UNITS);
                chunk.clear();
                chunk.extend_from_slice(&tail.units[at..at + units * UNIT]);
                from
            };
            let file = self.files.write(self.name(), from, &chunk)?;
            if !files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                files.push(file);
            }
            let mut tail = self.tail.lock();
            tail.written = from + (chunk.len() / UNIT) as i64;
            let in_memory = tail.units.len() / UNIT;
            let unwritten = (tail.start + in_memory as i64 - tail.written) as usize;
            let dropped = in_memory.saturating_sub(unwritten.max(KEPT_UNITS));
            if dropped > KEPT_UNITS {
                tail.units.drain(..dropped * UNIT);
                tail.start += dropped as i64;
                if tail.units.capacity() > 64 << 10 {
                    tail.units.shrink_to(16 << 10);
                }
            }
            let at = (tail.written - tail.start) as usize * UNIT;
            if let Some(unit) = tail.units.get(at..at + UNIT).and_then(|unit| unit.first_chunk()) {
                tail.unwritten_physical = Unit::decode(unit).physical_offset;
            }
        }
    }

    /// Gives back the memory of a queue that was not used since the last call, and closes its files.
    pub(crate) fn release_if_idle(&self) {
        let mut tail = self.tail.lock();
        let end = tail.end();
        if std::mem::take(&mut tail.used) || tail.listed || tail.written < end || tail.units.capacity() == 0 {
            return;
        }
        tail.start = end;
        tail.units = Vec::new();
        drop(tail);
        self.files.close(self.number);
    }

    // ---- reading ----

    /// Reads up to `out.len()` units from `from` on, fewer at the end of a file or of the queue, none outside of
    /// `[0, max)`. With `no_wait` only what is in memory, else [`io::ErrorKind::WouldBlock`].
    pub(crate) fn read_units(&self, from: i64, out: &mut [[u8; UNIT]], no_wait: bool) -> io::Result<usize> {
        let in_file = {
            let tail = self.tail.lock();
            let end = tail.end();
            if from < 0 || from >= end {
                return Ok(0);
            }
            if from >= tail.start {
                let at = (from - tail.start) as usize;
                let count = out.len().min((end - from) as usize);
                out[..count].as_flattened_mut().copy_from_slice(&tail.units[at * UNIT..(at + count) * UNIT]);
                return Ok(count);
            }
            (tail.start - from) as usize
        };
        let count = out.len().min(in_file);
        self.files.read(self.name(), from, &mut out[..count], no_wait)
    }

    /// The unit at a queue offset, if it was ever written.
    pub(crate) fn unit_at(&self, offset: i64) -> io::Result<Option<Unit>> {
        let mut unit = [[0; UNIT]; 1];
        let count = self.read_units(offset, &mut unit, false)?;
        Ok((count == 1).then(|| Unit::decode(&unit[0])).filter(|unit| unit.is_written()))
    }

    /// The first unit at or behind `offset`, and below `end`, that stands for a message.
    pub(crate) fn message_from(&self, mut offset: i64, end: i64) -> io::Result<Option<(i64, Unit)>> {
        let mut units = [[0; UNIT]; 64];
        while offset < end {
            let count = units.len().min((end - offset) as usize);
            let count = self.read_units(offset, &mut units[..count], false)?;
            if count == 0 {
                offset = self.next_file_start(offset);
                continue;
            }
            for (index, unit) in units[..count].iter().enumerate() {
                let unit = Unit::decode(unit);
                if unit.is_message() {
                    return Ok(Some((offset + index as i64, unit)));
                }
            }
            offset += count as i64;
        }
        Ok(None)
    }

    /// First queue offset of the file behind the one that holds `offset`.
    pub(crate) fn next_file_start(&self, offset: i64) -> i64 {
        let units = self.files.units_per_file() as i64;
        (offset / units + 1) * units
    }

    /// The first queue offset in `[low, high)` whose unit `is_behind` says yes to, `high` if none; `is_behind` must be
    /// false for all units before some place and true from there on.
    /// A unit that was never written, or whose file is missing, is `None`.
    fn partition(
        &self,
        mut low: i64,
        mut high: i64,
        is_behind: impl Fn(Option<Unit>) -> bool,
    ) -> io::Result<i64> {
        while low < high {
            let middle = low + (high - low) / 2;
            if is_behind(self.unit_at(middle)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    // ---- the queue's begin ----

    /// Moves the queue's begin to the first message that the log still has, when the log begins at `log_min`.
    pub(crate) fn correct_min_offset(&self, log_min: u64) {
        if self.min_worked_out_for.load(Ordering::Acquire) == log_min {
            return;
        }
        let (min, max) = (self.min_offset(), self.max_offset());
        let there = |unit: Option<Unit>| {
            unit.is_some_and(|unit| !unit.is_pre_blank() && unit.physical_offset >= log_min)
        };
        match self.partition(min, max, there) {
            Ok(corrected) => {
                let _tail = self.tail.lock();
                // Unless the topic was deleted meanwhile.
                if corrected <= self.max_offset() {
                    self.min_offset.fetch_max(corrected, Ordering::AcqRel);
                    self.min_worked_out_for.store(log_min, Ordering::Release);
                }
            }
            Err(error) => {
                tracing::warn!(topic = self.topic(), queue = self.queue_id, %error, "can't find the queue's first message");
            }
        }
    }

    /// Deletes files that lie entirely before the queue's begin, except for the last file. Returns how many.
    pub(crate) fn delete_files_before_min(&self) -> io::Result<usize> {
        let numbers = self.files.list(self.name())?;
        let first_needed =
            self.min_offset().min(self.max_offset() - 1).max(0) as u64 / self.files.units_per_file();
        self.files.delete(self.name(), &numbers, |number| number < first_needed)
    }

    /// Deletes every file; offsets stay. For a queue without readable messages.
    pub(crate) fn delete_all_files(&self) -> io::Result<usize> {
        let mut tail = self.tail.lock();
        let end = tail.end();
        if tail.listed || tail.written < end {
            return Ok(0);
        }
        tail.start = end;
        tail.units = Vec::new();
        let numbers = self.files.list(self.name())?;
        self.files.delete(self.name(), &numbers, |_| true)
    }

    // ---- load, recovery, deletion ----

    /// Forgets everything: the topic was deleted. The files are the caller's.
    pub(crate) fn reset(&self) {
        let mut tail = self.tail.lock();
        let listed = tail.listed;
        *tail = Tail { listed, ..Tail::default() };
        self.next_offset.store(0, Ordering::Release);
        self.max_offset.store(0, Ordering::Release);
        self.min_offset.store(0, Ordering::Release);
        self.files.close(self.number);
    }

    /// Sets the offsets from a queue's files, with nothing in memory.
    pub(crate) fn set_loaded(&self, min: i64, max: i64) {
        let mut tail = self.tail.lock();
        *tail = Tail { start: max, written: max, listed: tail.listed, ..Tail::default() };
        self.min_offset.store(min, Ordering::Release);
        self.max_offset.store(max, Ordering::Release);
        self.min_worked_out_for.store(u64::MAX, Ordering::Release);
    }

    /// What the files hold: `[first, end)` of units written. Looks at the first and the last file only.
    pub(crate) fn load(&self) -> io::Result<(i64, i64)> {
        let numbers = self.files.list(self.name())?;
        let units = self.files.units_per_file() as i64;
        let Some((first, last)) = numbers.first().zip(numbers.last()) else {
            return Ok((self.max_offset(), self.max_offset()));
        };
        let (first, mut last) = (*first as i64 * units, *last as i64 * units);
        // For the search every unit of the files must be readable.
        self.set_loaded(first, last + units);
        let mut end = self.written_end(last, last + units)?;
        while end == last && last > first {
            last -= units;
            end = self.written_end(last, last + units)?;
        }
        self.set_loaded(first, end);
        Ok((first, end))
    }

    /// End of the written units in `[low, high)`, assuming that zeros are only behind them.
    fn written_end(&self, mut low: i64, mut high: i64) -> io::Result<i64> {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.unit_at(middle)?.is_some() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The first queue offset of the loaded files whose unit points to `physical_offset` or behind. Holes that point there stand
    /// for messages in front of it.
    pub(crate) fn first_at_or_behind(&self, physical_offset: u64) -> io::Result<i64> {
        let behind = |unit: Option<Unit>| unit.is_some_and(|unit| unit.is_behind(physical_offset));
        self.partition(self.min_offset(), self.max_offset(), behind)
    }

    /// End of the loaded units that point below `mark`, where every unit below the mark was written; behind it anything may be
    /// in the files, also nothing. Holes that point to the mark stand for messages in front of it.
    pub(crate) fn end_below_mark(&self, mark: u64) -> io::Result<i64> {
        let behind = |unit: Option<Unit>| unit.is_none_or(|unit| unit.is_behind(mark));
        self.partition(self.min_offset(), self.max_offset(), behind)
    }

    /// Cuts the queue: units from `end` on are erased, also in the file. The next offset stays.
    pub(crate) fn cut(&self, end: i64) -> io::Result<()> {
        let units = self.files.units_per_file();
        let numbers = self.files.list(self.name())?;
        let keep = end.max(0) as u64;
        self.files.delete(self.name(), &numbers, |number| number * units >= keep)?;
        if !keep.is_multiple_of(units) {
            self.files.zero_from(self.name(), end)?;
        }
        let min = self.min_offset().min(end);
        self.set_loaded(min, end);
        Ok(())
    }

    /// Fills the places up to `end` with units that stand for no message: their offsets were given, the messages are gone.
    pub(crate) fn fill_holes(&self, end: i64, physical_offset: u64) -> bool {
        let mut tail = self.tail.lock();
        let max = self.max_offset.load(Ordering::Relaxed);
        if max >= end {
            return false;
        }
        if self.min_offset.load(Ordering::Relaxed) == max {
            self.min_offset.store(end, Ordering::Release);
        }
        self.put_holes(&mut tail, end - max, physical_offset);
        self.max_offset.store(end, Ordering::Release);
        !std::mem::replace(&mut tail.listed, true)
    }

    /// Begins the queue anew at `offset`: its files are deleted. (The units before are stale, the log no longer has their
    /// messages; blank ones will take their places.)
    pub(crate) fn restart_at(&self, offset: i64) -> io::Result<()> {
        self.cut(0)?;
        self.set_loaded(offset, offset);
        Ok(())
    }
}

impl Tail {
    fn end(&self) -> i64 {
        self.start + (self.units.len() / UNIT) as i64
    }

    fn put(&mut self, unit: Unit) {
        if self.end() == self.written {
            self.unwritten_physical = unit.physical_offset;
        }
        self.units.extend_from_slice(&unit.encode());
        self.used = true;
    }
}

/// Keeps a queue watched, see [`ConsumeQueue::watch`].
#[derive(Debug)]
pub struct QueueWatch {
    queue: Arc<ConsumeQueue>,
}

impl QueueWatch {
    /// The watched queue.
    pub fn queue(&self) -> &Arc<ConsumeQueue> {
        &self.queue
    }
}

impl Drop for QueueWatch {
    fn drop(&mut self) {
        self.queue.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}
