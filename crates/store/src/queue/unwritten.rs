//! When the queues' units are written to their files.
//!
//! Nothing is lost by waiting: the log gives back what a crash takes. But a write to a file costs about the same for one unit as for
//! a thousand, and dirties a page. So with few queues everything is written at each pass of the flusher (a second); with many,
//! only those that have waited for [`AGE_MAX`] or lie [`BEHIND_MAX`] back, and when memory gets short ([`units_max`]) the oldest.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::{ConsumeQueue, ConsumeQueues, Doubt};
use crate::disk;

/// Queues that every pass writes, however young.
const QUEUES_PER_PASS: usize = 1024;
/// How long a unit waits when there are more queues. What is behind the list of queues, of about every minute, is read from the
/// log after a crash anyway.
const AGE_MAX: Duration = Duration::from_secs(30);
/// And how far the log may go on meanwhile, bytes, so that not too much has to be read again.
const BEHIND_MAX: u64 = 16 << 30;
/// Queues written under one acquisition of the writers' lock.
const QUEUES_AT_A_TIME: usize = 64;
/// Most memory for units that wait, bytes, and the part of the machine's that it may be.
const UNWRITTEN_BYTES_MAX: u64 = 512 << 20;
const UNWRITTEN_PART_OF_MEMORY: u64 = 32;
/// Queues that keep units in memory after they were written to the file, for consumers at the tail, and how many.
const KEPT_QUEUES: usize = 16 << 10;
const KEPT_UNITS: usize = 64;
/// Open files beyond which one `syncfs` is cheaper than syncing each.
const SYNC_EACH_MAX: usize = 256;

/// A queue on the list of those with something to write.
#[derive(Debug)]
pub(super) struct Pending {
    queue: Arc<ConsumeQueue>,
    /// Its first unwritten unit points here or behind. Ascends along the list.
    physical_offset: u64,
    since: Instant,
}

/// How much [`ConsumeQueues::write_out`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What should not wait longer.
    Due,
    /// So many queues, those first that wait the longest.
    Oldest(usize),
    /// Everything that was pushed before the call.
    All,
}

/// Why units were not written. They stay in memory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteOutError {
    /// The file system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The queue's files are not what they were: they have to be laid anew first.
    #[error("queue {}-{}: {doubt}", queue.topic(), queue.queue_id())]
    Doubtful {
        /// The queue.
        queue: Arc<ConsumeQueue>,
        /// What is wrong.
        doubt: Doubt,
    },
}

/// Files that were written and not yet forced to the disk.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    files: Vec<Arc<File>>,
    too_many: bool,
}

/// Most units that should wait in memory.
pub(super) fn units_max() -> i64 {
    let memory = rustix::system::sysinfo();
    let bytes = (memory.totalram as u64).saturating_mul(u64::from(memory.mem_unit));
    ((bytes / UNWRITTEN_PART_OF_MEMORY).min(UNWRITTEN_BYTES_MAX) / super::UNIT as u64) as i64
}

impl ConsumeQueues {
    /// Puts a queue on the list of those with something to write; its first unwritten unit points to `physical_offset`.
    pub(crate) fn list(&self, queue: &Arc<ConsumeQueue>, physical_offset: u64) {
        let pending = Pending { queue: Arc::clone(queue), physical_offset, since: Instant::now() };
        self.unwritten.lock().push_back(pending);
    }

    /// Counts units that were pushed. The count need not be exact.
    pub(crate) fn pushed(&self, units: usize) {
        self.unwritten_units.fetch_add(units as i64, Ordering::Relaxed);
    }

    /// Whether so many units wait that whoever pushes more should write some.
    pub(crate) fn is_overfull(&self) -> bool {
        self.unwritten_units.load(Ordering::Relaxed) > 2 * self.unwritten_units_max
    }

    /// Writes units of the listed queues to their files. Returns the place of the log below which every unit is in its file,
    /// given that everything below `dispatched` had been pushed before the call.
    pub(crate) fn write_out(&self, dispatched: u64, extent: Extent) -> Result<u64, WriteOutError> {
        self.batch.write_out()?;
        let mut left = match extent {
            Extent::Due => QUEUES_PER_PASS,
            Extent::Oldest(count) => count,
            Extent::All => self.unwritten.lock().len(),
        };
        loop {
            let mut writing = self.writing.lock();
            let mut some = self.take_due(&mut left, extent, dispatched);
            if some.is_empty() {
                // With the writers' lock held, so that no queue is on its way between list and file.
                return Ok(self.first_unwritten().map_or(dispatched, |oldest| oldest.min(dispatched)));
            }
            while let Some(pending) = some.pop_front() {
                if let Err(error) = self.write(&mut writing, &pending.queue) {
                    some.push_front(pending);
                    let mut unwritten = self.unwritten.lock();
                    some.append(&mut unwritten);
                    *unwritten = some;
                    return Err(error);
                }
            }
        }
    }

    fn take_due(&self, left: &mut usize, extent: Extent, dispatched: u64) -> VecDeque<Pending> {
        let mut unwritten = self.unwritten.lock();
        let mut some = VecDeque::new();
        while some.len() < QUEUES_AT_A_TIME
            && let Some(oldest) = unwritten.front()
        {
            let is_due = *left > 0
                || extent == Extent::Due
                    && (oldest.since.elapsed() >= AGE_MAX
                        || oldest.physical_offset.saturating_add(BEHIND_MAX) < dispatched
                        || self.unwritten_units.load(Ordering::Relaxed) > self.unwritten_units_max);
            if !is_due {
                break;
            }
            *left = left.saturating_sub(1);
            some.extend(unwritten.pop_front());
        }
        if unwritten.is_empty() && some.is_empty() {
            // Units of deleted topics were counted and never written.
            self.unwritten_units.store(0, Ordering::Relaxed);
        }
        some
    }

    /// Writes one queue's units, out of turn.
    pub(crate) fn write_queue(&self, queue: &Arc<ConsumeQueue>) -> Result<(), WriteOutError> {
        self.write(&mut self.writing.lock(), queue)
    }

    fn write(
        &self,
        writing: &mut MutexGuard<'_, Unsynced>,
        queue: &Arc<ConsumeQueue>,
    ) -> Result<(), WriteOutError> {
        if let Some(doubt) = queue.check_before_writing()? {
            return Err(WriteOutError::Doubtful { queue: Arc::clone(queue), doubt });
        }
        let kept_max = if self.kept.lock().len() < KEPT_QUEUES { KEPT_UNITS } else { 0 };
        let written = queue.write_out(kept_max)?;
        self.unwritten_units.fetch_sub(written.units as i64, Ordering::Relaxed);
        if written.keep {
            self.kept.lock().push(Arc::clone(queue));
        }
        writing.add(written.files);
        Ok(())
    }

    fn first_unwritten(&self) -> Option<u64> {
        self.unwritten.lock().front().map(|oldest| oldest.physical_offset)
    }

    /// Below this place of the log every unit is in its file; `None`: everything is.
    pub(crate) fn written_below(&self) -> Option<u64> {
        let _writing = self.writing.lock();
        self.first_unwritten()
    }

    /// Any file may hold what is not on the device: it was written by an earlier run. The next [`sync`](Self::sync) does them all.
    pub(crate) fn suspect_everything(&self) {
        *self.writing.lock() = Unsynced { files: Vec::new(), too_many: true };
    }

    /// Forces what was written to the device.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.batch.sync()?;
        let Unsynced { files, too_many } = std::mem::take(&mut *self.writing.lock());
        if too_many {
            return disk::sync_file_system(self.directory());
        }
        for file in files {
            // Also the length and the directory entry of a new file.
            disk::sync_all(&file)?;
        }
        Ok(())
    }

    /// Gives back what queues keep in memory that were not used since the last call.
    pub(crate) fn release_idle(&self) {
        let mut kept = std::mem::take(&mut *self.kept.lock());
        kept.retain(|queue| !queue.release_if_idle());
        self.kept.lock().append(&mut kept);
    }
}

impl Unsynced {
    fn add(&mut self, files: Vec<Arc<File>>) {
        for file in files {
            if self.too_many || self.files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                continue;
            }
            self.files.push(file);
            if self.files.len() > SYNC_EACH_MAX {
                self.files.clear();
                self.too_many = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;
    use crate::queue::Unit;

    #[test]
    fn of_many_queues_those_are_written_that_lie_far_back_in_the_log() {
        const QUEUES: usize = 3 * QUEUES_PER_PASS;
        let root = tempfile::tempdir().unwrap();
        let queues = ConsumeQueues::new(&StoreOptions::new(root.path()));
        let place = |number: usize| 100 * number as u64;
        for number in 0..QUEUES {
            let queue = queues.get_or_create("T", number as i32);
            queue.push(0, Unit { physical_offset: place(number), size: 100, tags_code: 0 });
            queues.list(&queue, place(number));
            queues.pushed(1);
        }
        let end = place(QUEUES);
        assert_eq!(
            queues.write_out(end, Extent::Due).unwrap(),
            place(QUEUES_PER_PASS),
            "as many as in any pass"
        );
        let far = 2 * QUEUES_PER_PASS + 7;
        let dispatched = place(far) + BEHIND_MAX;
        assert_eq!(
            queues.write_out(dispatched, Extent::Due).unwrap(),
            place(far),
            "and those that lie far back"
        );
        let written = queues.write_out(u64::MAX, Extent::Oldest(5)).unwrap();
        assert_eq!(written, place(far + 5), "only so many as were asked for");
    }
}
