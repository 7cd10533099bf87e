//! Findings of queues, held back until the log ends.
//!
//! A topic that was deleted and made anew begins again at 0. Until that is seen its old messages look as if their units were
//! missing.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use crate::queue::{ConsumeQueue, Unit};

use super::finding::{Finding, Problem, QueueRange};
use super::ranges::Ranges;

/// Findings of one queue that are held back; beyond that they are reported at once.
const HELD_MAX: usize = 8;

/// What can be wrong with places of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Missing,
    Wrong,
    WithoutMessage,
    BehindEnd,
    Lost,
    Empty,
    Repeated,
}

impl What {
    /// What is wrong with a unit for which there is no message, in a log that reaches from `log_min` to `log_end` and is damaged here
    /// and there.
    pub(super) fn of_leftover(unit: Unit, log_min: u64, log_end: u64, damaged: &Ranges) -> Option<What> {
        if !unit.is_message() || unit.physical_offset < log_min {
            return None;
        }
        Some(match unit.physical_offset {
            offset if damaged.contains(offset) => What::Lost,
            offset if offset >= log_end => What::BehindEnd,
            _ => What::WithoutMessage,
        })
    }

    fn problem(self, range: QueueRange) -> Problem {
        match self {
            What::Missing => Problem::UnitsMissing(range),
            What::Wrong => Problem::UnitsWrong(range),
            What::WithoutMessage => Problem::UnitsWithoutMessage(range),
            What::BehindEnd => Problem::UnitsBehindEnd(range),
            What::Lost => Problem::MessagesLost(range),
            What::Empty => Problem::OffsetsEmpty(range),
            What::Repeated => Problem::OffsetsRepeated(range),
        }
    }
}

/// Neighbouring places of a queue with the same problem.
#[derive(Debug)]
struct Run {
    what: What,
    offsets: Range<i64>,
    physical_offset: u64,
    /// Where the first of them is, or should be.
    file: PathBuf,
    position: u64,
}

/// What is held back, by the number of the queue's handle.
#[derive(Debug, Default)]
pub(super) struct Held {
    runs: HashMap<u32, Vec<Run>>,
}

impl Held {
    /// Takes note of a problem. `place`: the file, and the byte in it.
    pub(super) fn hold(
        &mut self,
        queue: &ConsumeQueue,
        what: What,
        offsets: Range<i64>,
        physical_offset: u64,
        place: impl FnOnce() -> (PathBuf, u64),
        found: &mut dyn FnMut(Finding),
    ) {
        let runs = self.runs.entry(queue.number()).or_default();
        if let Some(last) =
            runs.last_mut().filter(|last| last.what == what && last.offsets.end == offsets.start)
        {
            last.offsets.end = offsets.end;
            return;
        }
        let (file, position) = place();
        runs.push(Run { what, offsets, physical_offset, file, position });
        if runs.len() > HELD_MAX {
            found(finding(queue, runs.remove(0)));
        }
    }

    /// The queue's last problem goes on to `to`.
    pub(super) fn extend(&mut self, queue: &ConsumeQueue, to: i64) {
        if let Some(last) = self.runs.get_mut(&queue.number()).and_then(|runs| runs.last_mut()) {
            last.offsets.end = last.offsets.end.max(to);
        }
    }

    /// Drops what is held of a queue. Returns how many queue offsets that was about.
    pub(super) fn forget(&mut self, queue: &ConsumeQueue) -> u64 {
        let runs = self.runs.remove(&queue.number()).unwrap_or_default();
        runs.iter().map(|run| run.offsets.end.saturating_sub(run.offsets.start).max(0) as u64).sum()
    }

    /// Reports what is held of a queue.
    pub(super) fn report(&mut self, queue: &ConsumeQueue, found: &mut dyn FnMut(Finding)) {
        let runs = self.runs.remove(&queue.number()).unwrap_or_default();
        runs.into_iter().for_each(|run| found(finding(queue, run)));
    }
}

fn finding(queue: &ConsumeQueue, run: Run) -> Finding {
    let Run { what, offsets, physical_offset, file, position } = run;
    let (topic, queue_id) = (queue.topic().to_owned(), queue.queue_id());
    let range = QueueRange { topic, queue_id, from: offsets.start, to: offsets.end, physical_offset };
    Finding { file, position: Some(position), problem: what.problem(range) }
}
