//! Comparing the consume queues with the log.
//!
//! The log's messages come in order, and those of one queue by ascending queue offset. So each queue is read once, in step with
//! the log: the message's unit must be at its place, and what lies between two messages must be known to be empty. Per queue
//! only a position is kept.
//!
//! A topic that was deleted and made anew begins again at 0. Until that is seen its old messages look as if their units were
//! missing; so the findings of a queue are held back until the log ends.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::dispatch::Placement;
use crate::log::file_name;
use crate::queue::{ConsumeQueue, UNIT, Unit};

use super::finding::{Finding, Problem};
use super::queue_files::QueueFiles;
use super::ranges::Ranges;

/// Findings of one queue that are held back; beyond that they are reported at once.
const HELD_MAX: usize = 8;
/// Tags codes up to here are addresses in `consumequeue_ext` (`docs/spec/02-store.md` §6.5).
const EXTENSION_ADDRESS_MAX: i64 = -2_147_483_649;

/// The audit, in step with the walk over the log.
pub(super) struct QueueAudit {
    files: QueueFiles,
    /// By the number of the queue's handle.
    states: Vec<State>,
    held: HashMap<u32, Vec<Run>>,
    log_min: u64,
    /// Units that are what they should be.
    pub(super) units: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The queue offset behind the last message; `None` before the first.
    next: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Missing,
    Wrong,
    WithoutMessage,
    BehindEnd,
    Lost,
    Empty,
    Repeated,
}

/// Neighbouring places of a queue with the same problem.
#[derive(Debug, Clone, Copy)]
struct Run {
    what: What,
    from: i64,
    to: i64,
    physical_offset: u64,
}

impl QueueAudit {
    pub(super) fn new(directory: PathBuf, units_per_file: u64, log_min: u64) -> Self {
        QueueAudit {
            files: QueueFiles::new(directory, units_per_file),
            states: Vec::new(),
            held: HashMap::new(),
            log_min,
            units: 0,
        }
    }

    /// The next message of the log that belongs into a queue. `damaged`: parts of the log in front of it without messages.
    pub(super) fn record(
        &mut self,
        placement: &Placement,
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) -> io::Result<()> {
        let Placement { queue, queue_offset, unit } = placement;
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
                self.held.remove(&queue.number());
            }
            Some(next) => self.gap(queue, next, offset, *unit, damaged, found)?,
            None => {
                let first = self.files.first_offset(queue)?.unwrap_or(offset);
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
        queue: &Arc<ConsumeQueue>,
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
                    self.extend_held(queue, offset);
                }
                continue;
            }
            if let Some(what) = self.judge(unit, u64::MAX, damaged) {
                self.hold(queue, what, offset, unit.physical_offset, found);
            }
            offset += 1;
        }
        Ok(())
    }

    /// What is wrong with a unit for which there is no message.
    fn judge(&self, unit: Unit, log_end: u64, damaged: &Ranges) -> Option<What> {
        if !unit.is_message() || unit.physical_offset < self.log_min {
            return None;
        }
        Some(match unit.physical_offset {
            offset if damaged.contains(offset) => What::Lost,
            offset if offset >= log_end => What::BehindEnd,
            _ => What::WithoutMessage,
        })
    }

    /// Looks at what a queue has behind its last message, and at its files, and reports what was held back.
    pub(super) fn finish(
        &mut self,
        queue: &Arc<ConsumeQueue>,
        log_end: u64,
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) -> io::Result<()> {
        let next = self.states.get(queue.number() as usize).and_then(|state| state.next).unwrap_or(0);
        for (file, len) in self.files.list(queue)? {
            let expected = self.files.file_bytes();
            let place = |problem| Finding {
                file: self.files.directory(queue).join(file_name(file)),
                position: None,
                problem,
            };
            if !file.is_multiple_of(expected) {
                found(place(Problem::QueueFileName { expected }));
                continue;
            }
            if len != expected {
                found(place(Problem::QueueFileLength { len, expected }));
            }
            let first = (file / UNIT as u64) as i64;
            let end = first + self.files.units_per_file();
            let mut offset = next.max(first);
            while offset < end {
                let unit = self.files.unit(queue, offset)?;
                if !unit.is_written() {
                    offset = self.files.skip_unwritten(queue, offset, end)?;
                    continue;
                }
                if let Some(what) = self.judge(unit, log_end, damaged) {
                    self.hold(queue, what, offset, unit.physical_offset, found);
                }
                offset += 1;
            }
        }
        for run in self.held.remove(&queue.number()).unwrap_or_default() {
            found(self.finding(queue, run));
        }
        Ok(())
    }

    /// Whether the queue has messages in the log, and not a single unit.
    pub(super) fn is_without_units(&self, queue: &ConsumeQueue) -> bool {
        self.files.first_offset(queue).is_ok_and(|first| first.is_none())
            && self.states.get(queue.number() as usize).is_some_and(|state| state.next.is_some())
    }

    /// Messages that lack their units in a queue; forgets them.
    pub(super) fn take_missing(&mut self, queue: &ConsumeQueue) -> u64 {
        let runs = self.held.remove(&queue.number()).unwrap_or_default();
        runs.iter().map(|run| run.to.saturating_sub(run.from).max(0) as u64).sum()
    }

    fn hold(
        &mut self,
        queue: &Arc<ConsumeQueue>,
        what: What,
        offset: i64,
        physical_offset: u64,
        found: &mut dyn FnMut(Finding),
    ) {
        let runs = self.held.entry(queue.number()).or_default();
        if let Some(last) = runs.last_mut().filter(|last| last.what == what && last.to == offset) {
            last.to = last.to.saturating_add(1);
            return;
        }
        runs.push(Run { what, from: offset, to: offset.saturating_add(1), physical_offset });
        if runs.len() > HELD_MAX {
            let run = runs.remove(0);
            found(self.finding(queue, run));
        }
    }

    fn finding(&self, queue: &ConsumeQueue, run: Run) -> Finding {
        let Run { what, from, to, physical_offset } = run;
        let (topic, queue_id) = (queue.topic().to_owned(), queue.queue_id());
        let problem = match what {
            What::Missing => Problem::UnitsMissing { topic, queue_id, from, to, physical_offset },
            What::Wrong => Problem::UnitsWrong { topic, queue_id, from, to, physical_offset },
            What::WithoutMessage => {
                Problem::UnitsWithoutMessage { topic, queue_id, from, to, physical_offset }
            }
            What::BehindEnd => Problem::UnitsBehindEnd { topic, queue_id, from, to, physical_offset },
            What::Lost => Problem::MessagesLost { topic, queue_id, from, to, physical_offset },
            What::Empty => Problem::OffsetsEmpty { topic, queue_id, from, to, physical_offset },
            What::Repeated => {
                Problem::OffsetRepeated { topic, queue_id, queue_offset: from, physical_offset }
            }
        };
        let from = from.max(0);
        let position = (from % self.files.units_per_file()) as u64 * UNIT as u64;
        Finding { file: self.files.path(queue, from), position: Some(position), problem }
    }

    /// The last run goes on to `to`.
    fn extend_held(&mut self, queue: &ConsumeQueue, to: i64) {
        if let Some(last) = self.held.get_mut(&queue.number()).and_then(|runs| runs.last_mut()) {
            last.to = last.to.max(to);
        }
    }
}

/// Whether a unit is what the message asks for. With an extension the tags code is in another file.
fn fits(there: Unit, wanted: Unit) -> bool {
    there == wanted
        || there.tags_code <= EXTENSION_ADDRESS_MAX && Unit { tags_code: wanted.tags_code, ..there } == wanted
}
