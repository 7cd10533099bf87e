//! One consume queue (`docs/spec/02-store.md` §6).

use std::io;
use std::mem::offset_of;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::Mutex;

use super::files::{QueueFiles, QueueName};
use super::list::ListedOffsets;
use super::unit::{HOLES_MAX, UNIT, Unit};
use crate::mapped::prefetch;

/// Units in memory beyond which the dispatcher writes them itself: the flusher can't keep up.
const OVERDUE_UNITS: usize = 256 << 10;
/// Most memory that a queue gets before it needs it.
const ROOM_BYTES_MAX: usize = 4096 - 4096 % UNIT;
/// Units that one write to the file takes.
const WRITE_UNITS: usize = 8192;

/// Handle of one queue of a topic. There is exactly one per queue for the life of the store, so it may be cached for
/// ever; deleting the topic resets it in place.
///
/// The newest units are in memory ("tail"); a background thread writes them to the file. Until then a crash loses them, and
/// the log gives them back. An idle queue has no tail and no open file: it is the 200 bytes of this handle.
///
/// After a start the offsets come from the list of queues (`queue::list`), and nobody has looked at the queue's files yet.
/// Whoever wants to read or write them makes sure first that they were checked.
///
/// Appenders and the dispatcher change it for every message, on different processors. So each side has a cache line that the other
/// leaves alone: hence the order of the fields.
#[derive(Debug)]
#[repr(C)]
pub struct ConsumeQueue {
    // For the appenders.
    topic: Arc<str>,
    files: Arc<QueueFiles>,
    queue_id: i32,
    number: u32,
    /// How many watch it; the dispatcher has this number too.
    watchers: AtomicU32,
    /// The files are known to hold what they should.
    checked: AtomicBool,
    /// What the next appended message gets. Changed under the log's append lock.
    next_offset: AtomicI64,
    _for_the_dispatcher: CacheLine,
    /// Behind the last dispatched unit. Changed by the dispatcher, with the tail locked.
    max_offset: AtomicI64,
    min_offset: AtomicI64,
    dispatch_watchers: AtomicU32,
    tail: Mutex<Tail>,
    /// Where in memory the next unit goes, or went before the tail was given back: only to be fetched, without the lock.
    next_unit: AtomicPtr<u8>,
    /// The message at `min_offset` lies at or behind this place of the log.
    min_physical: AtomicU64,
}

/// The next field begins a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheLine;

const _: () = {
    const LINE: usize = align_of::<CacheLine>();
    assert!(offset_of!(ConsumeQueue, max_offset) == LINE && size_of::<ConsumeQueue>() == 3 * LINE);
};

/// What each push touches comes first, next to the offsets that it changes too.
#[derive(Debug, Default)]
#[repr(C)]
struct Tail {
    /// Encoded units `start..max_offset`.
    units: Vec<u8>,
    /// Queue offset of the first unit in `units`.
    start: i64,
    /// On the list of queues that have something to write.
    listed: bool,
    /// Among the queues that keep units in memory for consumers at the tail.
    kept: bool,
    /// Pushed to since the last sweep of those.
    used: bool,
    /// Bytes of memory that the next units get at once, when none is left: as much as there was when it was given back.
    room: u32,
    /// Units below this queue offset are in the file.
    written: i64,
    /// Physical offset in the unit before `written`, if that is known.
    written_physical: Option<u64>,
}

/// What became of a unit that was pushed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// The place was taken: the message was dispatched before. Nothing happened.
    pub(crate) known: bool,
    /// So many messages can't be missing in front of this one: its queue offset is damaged. Nothing happened.
    pub(crate) implausible: bool,
    /// Messages that are missing in front of this one; their places were filled with holes.
    pub(crate) holes: i64,
    /// The queue has to be put on the list of those with something to write.
    pub(crate) list: bool,
    /// So many units are in memory that they should be written now.
    pub(crate) overdue: bool,
}

/// What was written by [`ConsumeQueue::write_out`].
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) files: Vec<Arc<std::fs::File>>,
    pub(super) units: usize,
    /// The queue has just become one of those that keep units in memory.
    pub(super) keep: bool,
}

impl ConsumeQueue {
    pub(super) fn new(topic: Arc<str>, queue_id: i32, number: u32, files: Arc<QueueFiles>) -> Self {
        ConsumeQueue {
            topic,
            files,
            queue_id,
            number,
            watchers: AtomicU32::new(0),
            checked: AtomicBool::new(false),
            next_offset: AtomicI64::new(0),
            _for_the_dispatcher: CacheLine,
            max_offset: AtomicI64::new(0),
            min_offset: AtomicI64::new(0),
            dispatch_watchers: AtomicU32::new(0),
            tail: Mutex::default(),
            next_unit: AtomicPtr::default(),
            min_physical: AtomicU64::new(0),
        }
    }

    /// Topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The topic's name, shared by all of its queues.
    pub(super) fn topic_name(&self) -> Arc<str> {
        Arc::clone(&self.topic)
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
        self.dispatch_watchers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        QueueWatch { queue: Arc::clone(self) }
    }

    /// Whether somebody waits for messages of this queue: for an appender.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::SeqCst) > 0
    }

    /// The same for the dispatcher, who has a fence between its pushes and this.
    #[inline]
    pub(crate) fn is_arrival_watched(&self) -> bool {
        self.dispatch_watchers.load(Ordering::SeqCst) > 0
    }

    /// Number of the handle, unique in the store.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn name(&self) -> QueueName<'_> {
        QueueName { number: self.number, topic: &self.topic, queue_id: self.queue_id }
    }

    pub(super) fn files(&self) -> &QueueFiles {
        &self.files
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> PathBuf {
        self.files.queue_directory(self.name())
    }

    /// Where other brokers find its files, if batches of its topic are one record each.
    pub(crate) fn batch_directory(&self) -> PathBuf {
        self.files.batch().queue_directory(&self.topic, self.queue_id)
    }

    /// Whether the files are known to hold what they should: see [`check`](Self::check).
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        self.checked.load(Ordering::Acquire)
    }

    pub(crate) fn set_checked(&self) {
        self.checked.store(true, Ordering::Release);
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

    /// The message with queue offset `offset` is erased, and all behind it: their offsets can be given again.
    pub(crate) fn lower_next_offset(&self, offset: i64) {
        self.next_offset.fetch_min(offset.max(self.max_offset()), Ordering::AcqRel);
    }

    /// Adds the unit of the message with queue offset `offset`. Only by the dispatcher.
    pub(crate) fn push(&self, offset: i64, unit: Unit) -> Pushed {
        let mut tail = self.tail.lock();
        let max = self.max_offset.load(Ordering::Relaxed);
        if offset < max {
            return Pushed { known: true, ..Pushed::default() };
        }
        let mut holes = offset - max;
        if max > 0 && holes > self.holes_max() {
            return Pushed { implausible: true, ..Pushed::default() };
        }
        if self.min_offset.load(Ordering::Relaxed) == max {
            // Nothing readable before: the queue begins here.
            self.min_offset.store(offset, Ordering::Release);
            self.min_physical.store(unit.physical_offset, Ordering::Release);
        }
        if holes > 0 {
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
        self.next_unit.store(tail.units.as_mut_ptr_range().end, Ordering::Relaxed);
        let list = !std::mem::replace(&mut tail.listed, true);
        let overdue = tail.units.len() > OVERDUE_UNITS * UNIT;
        self.max_offset.store(offset + 1, Ordering::Release);
        Pushed { known: false, implausible: false, holes, list, overdue }
    }

    /// Lets the processor fetch what a [`push`](Self::push) changes here.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&raw const self.max_offset);
        prefetch(&raw const self.min_physical);
    }

    /// Lets the processor fetch the place of the next unit.
    #[inline]
    pub(crate) fn prefetch_next_unit(&self) {
        prefetch(self.next_unit.load(Ordering::Relaxed));
    }

    fn put_holes(&self, tail: &mut Tail, count: i64, next_physical_offset: u64) {
        (0..count).for_each(|_| tail.put(Unit::hole(next_physical_offset)));
    }

    /// Takes note of a message whose unit is in the file already, as [`push`](Self::push) would. Only in recovery, before
    /// anything is pushed.
    pub(crate) fn note(&self, offset: i64, unit: Unit) -> Pushed {
        let mut tail = self.tail.lock();
        let max = self.max_offset.load(Ordering::Relaxed);
        if offset < max {
            return Pushed { known: true, ..Pushed::default() };
        }
        if self.min_offset.load(Ordering::Relaxed) == max {
            self.min_offset.store(offset, Ordering::Release);
            self.min_physical.store(unit.physical_offset, Ordering::Release);
        }
        tail.start = offset + 1;
        tail.written = offset + 1;
        tail.written_physical = Some(unit.physical_offset);
        self.max_offset.store(offset + 1, Ordering::Release);
        Pushed { holes: offset - max, ..Pushed::default() }
    }

    /// Writes every unit to the file, and keeps the newest `kept_max` in memory. Only one thread at a time (the flusher's lock),
    /// and only a checked queue. When this returns `Ok`, everything that was pushed before the call is in the file, and the
    /// queue is off the list.
    pub(super) fn write_out(&self, kept_max: usize) -> io::Result<Written> {
        let mut written = Written::default();
        let mut chunk = Vec::new();
        loop {
            let from = {
                let mut tail = self.tail.lock();
                let from = tail.written;
                let at = (from - tail.start) as usize * UNIT;
                if at >= tail.units.len() {
                    tail.listed = false;
                    written.keep = !tail.units.is_empty() && !std::mem::replace(&mut tail.kept, true);
                    return Ok(written);
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
            if !written.files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                written.files.push(file);
            }
            written.units += chunk.len() / UNIT;
            self.wrote(from, &chunk, kept_max);
        }
    }

    fn wrote(&self, from: i64, chunk: &[u8], kept_max: usize) {
        let mut tail = self.tail.lock();
        tail.written = from + (chunk.len() / UNIT) as i64;
        tail.written_physical = chunk.last_chunk().map(|unit| Unit::decode(unit).physical_offset);
        let in_memory = tail.units.len() / UNIT;
        let unwritten = (tail.end() - tail.written) as usize;
        let dropped = in_memory.saturating_sub(unwritten.max(kept_max));
        if dropped == in_memory {
            tail.room = tail.units.len().min(ROOM_BYTES_MAX) as u32;
            tail.units = Vec::new();
        } else if dropped > kept_max {
            tail.units.drain(..dropped * UNIT);
            if tail.units.capacity() > 64 << 10 {
                tail.units.shrink_to(16 << 10);
            }
        } else {
            return;
        }
        tail.start += dropped as i64;
    }

    /// Gives back the memory of a queue that was not used since the last call, and closes its files. Says whether the queue
    /// no longer keeps anything.
    pub(super) fn release_if_idle(&self) -> bool {
        let mut tail = self.tail.lock();
        let end = tail.end();
        if std::mem::take(&mut tail.used) || tail.listed || tail.written < end {
            return false;
        }
        tail.kept = false;
        tail.start = end;
        tail.units = Vec::new();
        drop(tail);
        self.files.close(self.number);
        true
    }

    pub(super) fn has_readable_units_in_files(&self) -> bool {
        self.min_offset() < self.written_end()
    }

    /// Behind the last unit that is in the files.
    pub(super) fn written_end(&self) -> i64 {
        self.tail.lock().written
    }

    /// What is in the files, for the list of queues; `None` if there never was anything.
    pub(super) fn written_offsets(&self) -> io::Result<Option<ListedOffsets>> {
        let (mut listed, known) = {
            let tail = self.tail.lock();
            let min = self.min_offset().min(tail.written);
            let offsets = ListedOffsets {
                min,
                max: tail.written,
                min_physical: self.min_physical.load(Ordering::Acquire),
                last_physical: tail.written_physical.filter(|_| min < tail.written),
            };
            (offsets, tail.written_physical.is_some())
        };
        if !known && listed.min < listed.max {
            listed.last_physical = self.unit_at(listed.max - 1)?.map(|unit| unit.physical_offset);
        }
        Ok((listed.max > 0).then_some(listed))
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

    /// Whether the queue's first message is one that the log still has, when the log begins at `log_min`. When that can be told
    /// without reading the files, [`min_offset`](Self::min_offset) is right afterwards.
    pub(crate) fn begins_in_log(&self, log_min: u64) -> bool {
        if self.min_physical.load(Ordering::Acquire) >= log_min {
            return true;
        }
        let tail = self.tail.lock();
        let (min, max) = (self.min_offset(), self.max_offset());
        if min < max && tail.last_physical().is_some_and(|last| last < log_min) {
            // All its messages are gone.
            self.min_offset.store(max, Ordering::Release);
            return true;
        }
        min == max
    }

    /// Moves the queue's begin to the first message that the log still has, when the log begins at `log_min`.
    pub(crate) fn correct_min_offset(&self, log_min: u64) {
        if self.begins_in_log(log_min) {
            return;
        }
        let (min, max) = (self.min_offset(), self.max_offset());
        let there = |unit: Option<Unit>| {
            unit.is_some_and(|unit| !unit.is_pre_blank() && unit.physical_offset >= log_min)
        };
        let first = self.partition(min, max, there).and_then(|first| Ok((first, self.unit_at(first)?)));
        match first {
            Ok((first, unit)) => {
                let _tail = self.tail.lock();
                // Unless the topic was deleted meanwhile.
                if first <= self.max_offset() {
                    self.min_offset.fetch_max(first, Ordering::AcqRel);
                    let physical = unit.map_or(log_min, |unit| unit.physical_offset);
                    self.min_physical.store(physical, Ordering::Release);
                }
            }
            Err(error) => {
                tracing::warn!(topic = self.topic(), queue = self.queue_id, %error, "can't find the queue's first message");
            }
        }
    }

    /// Whether the queue may have files that lie entirely before its begin.
    pub(crate) fn may_have_old_files(&self) -> bool {
        self.min_offset() as u64 >= self.files.units_per_file()
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
        tail.written_physical = None;
        let numbers = self.files.list(self.name())?;
        self.files.delete(self.name(), &numbers, |_| true)
    }

    // ---- load, recovery, deletion ----

    /// Forgets everything: the topic was deleted. The files are the caller's.
    pub(crate) fn reset(&self) {
        let mut tail = self.tail.lock();
        *tail = Tail { listed: tail.listed, kept: tail.kept, ..Tail::default() };
        self.set_checked();
        self.next_offset.store(0, Ordering::Release);
        self.max_offset.store(0, Ordering::Release);
        self.min_offset.store(0, Ordering::Release);
        self.files.close(self.number);
    }

    /// Sets the offsets from a queue's files, with nothing in memory.
    pub(crate) fn set_loaded(&self, min: i64, max: i64) {
        let listed = ListedOffsets { min, max, min_physical: 0, last_physical: None };
        self.set_offsets(&listed);
        self.set_checked();
    }

    /// The offsets as they were set from the list, if nothing was pushed since.
    pub(crate) fn listed_offsets(&self) -> ListedOffsets {
        let tail = self.tail.lock();
        ListedOffsets {
            min: self.min_offset(),
            max: tail.written,
            min_physical: self.min_physical.load(Ordering::Acquire),
            last_physical: tail.written_physical,
        }
    }

    /// Sets the offsets as the list of queues has them. Whether the files agree is yet to be checked.
    pub(crate) fn set_listed(&self, listed: &ListedOffsets) {
        self.set_offsets(listed);
        self.checked.store(false, Ordering::Release);
        self.raise_next_offset(listed.max);
    }

    fn set_offsets(&self, listed: &ListedOffsets) {
        let ListedOffsets { min, max, min_physical, last_physical } = *listed;
        let mut tail = self.tail.lock();
        *tail = Tail {
            start: max,
            written: max,
            written_physical: last_physical,
            listed: tail.listed,
            kept: tail.kept,
            ..Tail::default()
        };
        self.min_offset.store(min, Ordering::Release);
        self.max_offset.store(max, Ordering::Release);
        self.min_physical.store(min_physical, Ordering::Release);
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
        let mut end = self.written_units_end(last, last + units)?;
        while end == last && last > first {
            last -= units;
            end = self.written_units_end(last, last + units)?;
        }
        self.set_loaded(first, end);
        Ok((first, end))
    }

    /// End of the written units in `[low, high)`, assuming that zeros are only behind them.
    fn written_units_end(&self, mut low: i64, mut high: i64) -> io::Result<i64> {
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

    /// Most offsets without a message that can follow each other: a damaged number must cost neither memory nor a great many files.
    pub(crate) fn holes_max(&self) -> i64 {
        const FILES_MAX: u64 = 64;
        HOLES_MAX.min((FILES_MAX * self.files.units_per_file()) as i64)
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

    /// Physical offset in the last unit, if that is known.
    fn last_physical(&self) -> Option<u64> {
        match self.units.last_chunk() {
            Some(unit) => Some(Unit::decode(unit).physical_offset),
            None => self.written_physical,
        }
    }

    fn put(&mut self, unit: Unit) {
        if self.units.capacity() == 0 {
            self.units.reserve_exact(self.room as usize);
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
        self.queue.dispatch_watchers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch_queue::BatchQueues;
    use super::*;

    /// A busy queue gets at once what it needed before, also in the middle of many; one that hardly has messages keeps nothing.
    #[test]
    fn memory_for_units_is_given_back_and_taken_again_in_one_piece() {
        let root = tempfile::tempdir().unwrap();
        let batch = Arc::new(BatchQueues::new(root.path(), 1000, []));
        let files = Arc::new(QueueFiles::new(root.path(), 1000, batch));
        let queue = ConsumeQueue::new("T".into(), 0, 0, files);
        let push = |count: i64| {
            for _ in 0..count {
                let offset = queue.max_offset();
                queue.push(offset, Unit { physical_offset: offset as u64 * 100, size: 100, tags_code: 0 });
            }
        };
        let room = || queue.tail.lock().units.capacity();
        let write_out = || {
            queue.write_out(0).unwrap();
            assert_eq!(room(), 0);
        };
        push(150);
        write_out();
        push(1);
        assert_eq!(room(), 150 * UNIT);
        push(149);
        assert_eq!(room(), 150 * UNIT, "it did not grow");
        push(350);
        write_out();
        push(1);
        assert_eq!(room(), ROOM_BYTES_MAX);
        write_out();
        push(1);
        assert!(room() < 8 * UNIT, "{} bytes for one unit", room());
        write_out();

        let mut units = [[0; UNIT]; 652];
        assert_eq!(queue.read_units(0, &mut units, false).unwrap(), 652);
        let places = units.iter().map(|unit| Unit::decode(unit).physical_offset);
        assert!(places.eq((0..652).map(|offset| offset * 100)));
    }
}
