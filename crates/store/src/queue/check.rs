//! The check of a queue's files, which nobody looked at when the store was opened.

use std::io;
use std::ops::Range;

use super::consume_queue::ConsumeQueue;
use super::files::QueueFiles;
use super::unit::{UNIT, Unit};

/// What is wrong with the files of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    /// A file is not there.
    #[error("its file {first_offset:020} is missing", first_offset = .0)]
    FileMissing(u64),
    /// A unit was never written, or is another than it was.
    #[error("unit {0} is not what it was")]
    Unit(i64),
}

impl ConsumeQueue {
    /// Whether there is something in the files that should be checked before it is read.
    pub(crate) fn is_to_be_checked(&self) -> bool {
        !self.is_checked() && self.written_end() > 0
    }

    /// Compares the files with what the queue is known to have had in them: every file is there, its last unit is written,
    /// and the very last one points where it did. If so, the queue is [checked](Self::is_checked).
    pub(crate) fn check(&self) -> io::Result<Option<Doubt>> {
        let log_min = self.files().log_min();
        // A queue without any message that the log still has needs no files.
        self.begins_in_log(log_min);
        let Some(expected) = self.written_offsets()? else { return Ok(None) };
        if let Some(last_physical) = expected.last_physical {
            let first = match self.first_file(expected.min, expected.min_physical < log_min)? {
                Ok(first) => first,
                Err(doubt) => return Ok(Some(doubt)),
            };
            let units = self.files().units_per_file() as i64;
            for number in first..(expected.max - 1) / units {
                let last = (number + 1) * units - 1;
                if self.unit_at(last)?.is_none() {
                    return Ok(Some(Doubt::Unit(last)));
                }
            }
            let last = self.unit_at(expected.max - 1)?;
            if last.map(|unit| unit.physical_offset) != Some(last_physical) {
                return Ok(Some(Doubt::Unit(expected.max - 1)));
            }
        }
        self.set_checked();
        Ok(None)
    }

    /// Number of the first file, which has the unit at `min` unless some were deleted since because the log was.
    fn first_file(&self, min: i64, trimmed: bool) -> io::Result<Result<i64, Doubt>> {
        let units = self.files().units_per_file() as i64;
        let wanted = min / units;
        // Also corrects the files' lengths.
        let first = self
            .files()
            .list(self.name())?
            .into_iter()
            .map(|number| number as i64)
            .find(|number| *number >= wanted);
        let missing = Doubt::FileMissing(self.files().first_byte(wanted as u64));
        let Some(first) = first else { return Ok(Err(missing)) };
        if first == wanted {
            return Ok(if self.unit_at(min)?.is_some() { Ok(first) } else { Err(Doubt::Unit(min)) });
        }
        // The first of the files that are left must reach back to before the log's begin.
        let is_old = |unit: Unit| unit.physical_offset < self.files().log_min();
        Ok(if trimmed && self.unit_at(first * units)?.is_some_and(is_old) { Ok(first) } else { Err(missing) })
    }

    /// The check before the first write. With nothing written yet, files that are there belong to a topic that was deleted, or
    /// to somebody else. The caller holds the lock that writers hold.
    pub(super) fn check_before_writing(&self) -> io::Result<Option<Doubt>> {
        if self.is_checked() {
            return Ok(None);
        }
        if self.written_end() > 0 {
            return self.check();
        }
        let removed = self.remove_files()?;
        if removed > 0 {
            tracing::warn!(
                topic = self.topic(),
                queue = self.queue_id(),
                removed,
                "old files of a queue that begins anew were removed"
            );
        }
        self.set_checked();
        Ok(None)
    }

    // ---- laying the files anew ----

    /// What the files should hold, if that is worth laying anew: the queue offsets and the last unit's physical offset.
    pub(crate) fn extent_in_files(&self) -> io::Result<Option<(Range<i64>, u64)>> {
        let offsets = self.written_offsets()?;
        Ok(offsets.and_then(|offsets| Some((offsets.min..offsets.max, offsets.last_physical?))))
    }

    /// Removes the files. The caller holds the lock that writers hold, as in [`lay`](Self::lay).
    pub(crate) fn remove_files(&self) -> io::Result<usize> {
        let numbers = self.files().list(self.name())?;
        self.files().delete(self.name(), &numbers, |_| true)
    }

    /// Puts encoded units into the files, from queue offset `from` on.
    pub(crate) fn lay(&self, mut from: i64, mut units: &[u8]) -> io::Result<()> {
        let per_file = self.files().units_per_file() as i64;
        while !units.is_empty() {
            let rest_of_file = (per_file - from % per_file) as usize * UNIT;
            let (now, later) = units.split_at(units.len().min(rest_of_file));
            self.files().write(self.name(), from, now)?;
            from += (now.len() / UNIT) as i64;
            units = later;
        }
        Ok(())
    }
}

impl QueueFiles {
    /// Byte offset that a file's name says.
    fn first_byte(&self, number: u64) -> u64 {
        number * self.units_per_file() * UNIT as u64
    }
}
