//! Comparing the batch consume queues, as every broker reads them, with the log (`docs/spec/02-store.md` §6.6).
//!
//! Their units follow each other in the order of the log, one for each record, whatever queue offsets the records have. So each
//! queue is read once, in step with the log: a unit and a record belong together if either of them says so, by the place in the
//! log or by the queue offset.

use std::io;

use crate::options::StoreOptions;
use crate::queue::{BATCH_UNIT, BatchUnit, ConsumeQueue};

use super::finding::Finding;
use super::held::{Held, What};
use super::queue_files::QueueFiles;
use super::ranges::Ranges;

/// The audit, in step with the walk over the log.
pub(super) struct BatchAudit {
    files: QueueFiles<BATCH_UNIT>,
    /// By the number of the queue's handle; `None` before the first record.
    states: Vec<Option<State>>,
    held: Held,
    log_min: u64,
    /// Units that are what they should be.
    pub(super) units: u64,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// Index of the first unit of which there is a file.
    first: i64,
    /// Index of the unit that was not looked at yet.
    at: i64,
    /// The queue offset behind the last message.
    next: i64,
}

impl BatchAudit {
    pub(super) fn new(options: &StoreOptions, log_min: u64) -> Self {
        let files = QueueFiles::of_batch_queues(options);
        BatchAudit { files, states: Vec::new(), held: Held::default(), log_min, units: 0 }
    }

    /// The next record of the log that belongs into a queue. `damaged`: parts of the log in front of it without messages.
    pub(super) fn record(
        &mut self,
        queue: &ConsumeQueue,
        wanted: BatchUnit,
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) -> io::Result<()> {
        let mut state = match self.state(queue) {
            Some(state) => state,
            None => {
                let first = self.files.first(queue)?.unwrap_or(0);
                State { first, at: first, next: 0 }
            }
        };
        let physical_offset = wanted.unit.physical_offset;
        if wanted.base < state.next && self.files.bytes(queue, state.first)? == wanted.encode() {
            // The topic was deleted and made anew: its old records need no units.
            self.held.forget(queue);
            state.at = state.first;
        }
        loop {
            let bytes = self.files.bytes(queue, state.at)?;
            let other = BatchUnit::decode(&bytes).filter(|there| !belong_together(*there, wanted));
            if let Some(there) = other.filter(|there| there.unit.physical_offset < physical_offset) {
                self.leftover(queue, state.at, there, u64::MAX, damaged, found);
                state.at += 1;
                continue;
            }
            if other.is_some() {
                // That of a later record, which it is left for.
                self.hold(queue, What::Missing, state.at, wanted, found);
                break;
            }
            if bytes == wanted.encode() {
                self.units += 1;
            } else {
                let what = if bytes == [0; BATCH_UNIT] { What::Missing } else { What::Wrong };
                self.hold(queue, what, state.at, wanted, found);
            }
            state.at += 1;
            break;
        }
        state.next = wanted.end();
        let number = queue.number() as usize;
        if self.states.len() <= number {
            self.states.resize(number + 1, None);
        }
        self.states[number] = Some(state);
        Ok(())
    }

    /// Looks at what a queue has behind its last record, and at its files, and reports what was held back.
    pub(super) fn finish(
        &mut self,
        queue: &ConsumeQueue,
        log_end: u64,
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) -> io::Result<()> {
        let at = self.state(queue).map_or(0, |state| state.at);
        self.files.check(queue, found)?;
        for range in self.files.ranges(queue)? {
            let mut index = at.max(range.start);
            while index < range.end {
                let bytes = self.files.bytes(queue, index)?;
                if bytes == [0; BATCH_UNIT] {
                    index = self.files.skip_unwritten(queue, index, range.end)?;
                    continue;
                }
                if let Some(there) = BatchUnit::decode(&bytes) {
                    self.leftover(queue, index, there, log_end, damaged, found);
                }
                index += 1;
            }
        }
        self.held.report(queue, found);
        Ok(())
    }

    /// Whether the queue has records in the log, and not a single unit.
    pub(super) fn is_without_units(&self, queue: &ConsumeQueue) -> bool {
        self.files.first(queue).is_ok_and(|first| first.is_none()) && self.state(queue).is_some()
    }

    /// Messages whose records lack their units in a queue; forgets them.
    pub(super) fn take_missing(&mut self, queue: &ConsumeQueue) -> u64 {
        self.held.forget(queue)
    }

    fn state(&self, queue: &ConsumeQueue) -> Option<State> {
        self.states.get(queue.number() as usize).copied().flatten()
    }

    /// A unit for which there is no record.
    fn leftover(
        &mut self,
        queue: &ConsumeQueue,
        index: i64,
        there: BatchUnit,
        log_end: u64,
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) {
        if let Some(what) = What::of_leftover(there.unit, self.log_min, log_end, damaged) {
            self.hold(queue, what, index, there, found);
        }
    }

    fn hold(
        &mut self,
        queue: &ConsumeQueue,
        what: What,
        index: i64,
        unit: BatchUnit,
        found: &mut dyn FnMut(Finding),
    ) {
        let place = || self.files.place(queue, index);
        self.held.hold(queue, what, unit.base..unit.end(), unit.unit.physical_offset, place, found);
    }
}

fn belong_together(there: BatchUnit, wanted: BatchUnit) -> bool {
    there.unit.physical_offset == wanted.unit.physical_offset || there.base == wanted.base
}
