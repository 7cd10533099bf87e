//! Comparing the consume queues with the log.
//!
//! The log's messages come in order, and those of one queue by ascending queue offset. So each queue is read once, in step with
//! the log: the message's unit must be at its place, and what lies between two messages must be known to be empty. Per queue
//! only a position is kept.
//!
//! A topic that was deleted and made anew begins again at 0: see [`Held`].

use std::io;

use crate::dispatch::Placement;
use crate::options::StoreOptions;
use crate::queue::{ConsumeQueue, UNIT, Unit};

use super::finding::Finding;
use super::held::{Held, What};
use super::queue_files::QueueFiles;
use super::ranges::Ranges;

/// Tags codes up to here are addresses in `consumequeue_ext` (`docs/spec/02-store.md` §6.5).
const EXTENSION_ADDRESS_MAX: i64 = -2_147_483_649;

/// The audit, in step with the walk over the log.
pub(super) struct QueueAudit {
    files: QueueFiles<UNIT>,
    /// By the number of the queue's handle.
    states: Vec<State>,
    held: Held,
    log_min: u64,
    /// Units that are what they should be.
    pub(super) units: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The queue offset behind the last message; `None` before the first.
    next: Option<i64>,
}

impl QueueAudit {
    pub(super) fn new(options: &StoreOptions, log_min: u64) -> Self {
        let files = QueueFiles::of_queues(options);
        QueueAudit { files, states: Vec::new(), held: Held::default(), log_min, units: 0 }
    }

    /// The next message of the log that belongs into a queue. `damaged`: parts of the log in front of it without messages.
    pub(super) fn record(
        &mut self,
        queue: &ConsumeQueue,
        placement: &Placement,
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) -> io::Result<()> {
        let Placement { queue_offset, unit, .. } = placement;
        let (number, offset) = (queue.number() as usize, *queue_offset);
        if self.states.len() <= number {
            self.states.resize(number + 1, State::default());
        }
        let there = self.files.unit(queue, offset)?;
        let fits = fits(there, *unit);
        match self.states[number].next {
            Some(next) if offset < next => {
                if !fits {
                    self.hold(queue, What::Repeated, offset, unit.physical_offset, found);
                    return Ok(());
                }
                // The topic was deleted and made anew: its old messages need no units.
                self.held.forget(queue);
            }
            Some(next) => self.gap(queue, next, offset, *unit, damaged, found)?,
            None => {
                let first = self.files.first(queue)?.unwrap_or(offset);
                self.gap(queue, first, offset, *unit, damaged, found)?;
            }
        }
        self.states[number].next = Some(offset.saturating_add(1));
        if fits {
            self.units += 1;
        } else {
            let what = if there.is_written() { What::Wrong } else { What::Missing };
            self.hold(queue, what, offset, unit.physical_offset, found);
        }
        Ok(())
    }

    /// Looks at the units in front of a message that belong to no message in the log.
    fn gap(
        &mut self,
        queue: &ConsumeQueue,
        from: i64,
        to: i64,
        next: Unit,
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) -> io::Result<()> {
        let is_first = self.states[queue.number() as usize].next.is_none();
        let mut offset = from;
        while offset < to {
            let unit = self.files.unit(queue, offset)?;
            if !unit.is_written() {
                // In front of the first message nothing need be.
                if !is_first {
                    self.hold(queue, What::Empty, offset, next.physical_offset, found);
                }
                offset = self.files.skip_unwritten(queue, offset, to)?;
                if !is_first {
                    self.held.extend(queue, offset);
                }
                continue;
            }
            if let Some(what) = What::of_leftover(unit, self.log_min, u64::MAX, damaged) {
                self.hold(queue, what, offset, unit.physical_offset, found);
            }
            offset += 1;
        }
        Ok(())
    }

    /// Looks at what a queue has behind its last message, and at its files, and reports what was held back.
    pub(super) fn finish(
        &mut self,
        queue: &ConsumeQueue,
        log_end: u64,
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) -> io::Result<()> {
        let next = self.states.get(queue.number() as usize).and_then(|state| state.next).unwrap_or(0);
        self.files.check(queue, found)?;
        for range in self.files.ranges(queue)? {
            let mut offset = next.max(range.start);
            while offset < range.end {
                let unit = self.files.unit(queue, offset)?;
                if !unit.is_written() {
                    offset = self.files.skip_unwritten(queue, offset, range.end)?;
                    continue;
                }
                if let Some(what) = What::of_leftover(unit, self.log_min, log_end, damaged) {
                    self.hold(queue, what, offset, unit.physical_offset, found);
                }
                offset += 1;
            }
        }
        self.held.report(queue, found);
        Ok(())
    }

    /// Whether the queue has messages in the log, and not a single unit.
    pub(super) fn is_without_units(&self, queue: &ConsumeQueue) -> bool {
        self.has_no_file(queue)
            && self.states.get(queue.number() as usize).is_some_and(|state| state.next.is_some())
    }

    /// Whether the queue has not a single file.
    pub(super) fn has_no_file(&self, queue: &ConsumeQueue) -> bool {
        self.files.first(queue).is_ok_and(|first| first.is_none())
    }

    /// Messages that lack their units in a queue; forgets them.
    pub(super) fn take_missing(&mut self, queue: &ConsumeQueue) -> u64 {
        self.held.forget(queue)
    }

    fn hold(
        &mut self,
        queue: &ConsumeQueue,
        what: What,
        offset: i64,
        physical_offset: u64,
        found: &mut dyn FnMut(Finding),
    ) {
        let offsets = offset..offset.saturating_add(1);
        let place = || self.files.place(queue, offset);
        self.held.hold(queue, what, offsets, physical_offset, place, found);
    }
}

/// Whether a unit is what the message asks for. With an extension the tags code is in another file.
fn fits(there: Unit, wanted: Unit) -> bool {
    there == wanted
        || there.tags_code <= EXTENSION_ADDRESS_MAX && Unit { tags_code: wanted.tags_code, ..there } == wanted
}
