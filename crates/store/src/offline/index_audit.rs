//! Comparing the index with the log.
//!
//! Units are added in the order of the log. So they are read in step with it, each once; a second pass over a file follows the
//! links, by which look-ups find units. Nothing is looked up, which would be a walk through memory for every key.

use std::io;
use std::path::PathBuf;

use crate::error::{FileError, OpenError};
use crate::index::{IndexFile, index_files};

use super::finding::{Finding, Problem};
use super::ranges::Ranges;

/// The audit, in step with the walk over the log.
pub(super) struct IndexAudit {
    directory: PathBuf,
    slots: u32,
    units: u32,
    /// Files that are yet to be read, newest first.
    later: Vec<PathBuf>,
    current: Option<Cursor>,
    log_min: u64,
    /// Messages in a row whose keys are missing.
    missing: Option<Missing>,
    /// Keys found.
    pub(super) keys: u64,
}

struct Cursor {
    path: PathBuf,
    file: IndexFile,
    next: u32,
    stray: Option<Stray>,
}

struct Missing {
    messages: u64,
    from: u64,
    to: u64,
}

/// Units of one file that belong to no message.
struct Stray {
    units: u64,
    first: u32,
    physical_offset: u64,
}

impl IndexAudit {
    pub(super) fn new(directory: PathBuf, slots: u32, units: u32, log_min: u64) -> Result<Self, OpenError> {
        IndexFile::size(slots, units).map_err(FileError::at("size", &directory))?;
        let mut later = if directory.is_dir() { index_files(&directory)? } else { Vec::new() };
        later.reverse();
        Ok(IndexAudit { directory, slots, units, later, current: None, log_min, missing: None, keys: 0 })
    }

    /// Looks for the keys of the next message. `damaged`: parts of the log in front of it without messages.
    pub(super) fn record(
        &mut self,
        physical_offset: u64,
        hashes: &[u32],
        damaged: &Ranges,
        found: &mut dyn FnMut(Finding),
    ) {
        if hashes.is_empty() {
            return;
        }
        let mut seen = 0u64;
        while let Some((offset, hash)) = self.peek(found) {
            if offset > physical_offset {
                break;
            }
            if offset < physical_offset {
                self.step_over(offset, damaged);
                continue;
            }
            match hashes.iter().position(|wanted| *wanted == hash) {
                // Keys beyond the 64th, which nobody has, count as seen with the 64th.
                Some(_) => hashes
                    .iter()
                    .enumerate()
                    .filter(|(_, wanted)| **wanted == hash)
                    .for_each(|(at, _)| seen |= 1 << at.min(63)),
                None => self.stray(physical_offset),
            }
            self.advance();
            self.keys += 1;
        }
        let wanted = (0..hashes.len()).fold(0u64, |bits, at| bits | 1 << at.min(63));
        if seen & wanted == wanted {
            self.report_missing(found);
            return;
        }
        let missing = self.missing.get_or_insert(Missing { messages: 0, from: physical_offset, to: 0 });
        missing.messages += 1;
        missing.to = physical_offset;
    }

    /// The log ends: what is left belongs to nothing.
    pub(super) fn finish(&mut self, damaged: &Ranges, found: &mut dyn FnMut(Finding)) {
        while let Some((offset, _)) = self.peek(found) {
            self.step_over(offset, damaged);
        }
        self.report_missing(found);
    }

    /// Physical offset and hash of the next unit.
    fn peek(&mut self, found: &mut dyn FnMut(Finding)) -> Option<(u64, u32)> {
        loop {
            if let Some(cursor) = &self.current {
                if cursor.next < cursor.file.index_count() {
                    let unit = cursor.file.unit(cursor.next);
                    return Some((unit.physical_offset, unit.hash));
                }
                self.close(found);
            }
            let path = self.later.pop()?;
            self.open(path, found);
        }
    }

    fn open(&mut self, path: PathBuf, found: &mut dyn FnMut(Finding)) {
        let problem = match IndexFile::open_read_only(&path, self.slots, self.units) {
            Ok(file) if file.is_plausible() => {
                let problem = wrong_links(&file);
                self.current = Some(Cursor { path: path.clone(), file, next: 1, stray: None });
                problem
            }
            Ok(_) => Some(Problem::IndexFile { reason: "its header can't be right".to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let (slots, units) = (self.slots, self.units);
                let reason =
                    format!("it is shorter than maxHashSlotNum={slots} and maxIndexNum={units} make it");
                Some(Problem::IndexFile { reason })
            }
            Err(error) => Some(Problem::IndexFile { reason: error.to_string() }),
        };
        if let Some(problem) = problem {
            found(Finding { file: path, position: None, problem });
        }
    }

    fn close(&mut self, found: &mut dyn FnMut(Finding)) {
        let Some(cursor) = self.current.take() else { return };
        if let Some(Stray { units, first, physical_offset }) = cursor.stray {
            let problem = Problem::IndexUnitsWithoutMessage { units, unit: first, physical_offset };
            let position = Some(cursor.file.unit_position(first));
            found(Finding { file: cursor.path, position, problem });
        }
    }

    fn advance(&mut self) {
        if let Some(cursor) = &mut self.current {
            cursor.next += 1;
        }
    }

    /// Leaves a unit behind that no message has claimed: that of an expired or damaged one, or of none.
    fn step_over(&mut self, offset: u64, damaged: &Ranges) {
        if offset >= self.log_min && !damaged.contains(offset) {
            self.stray(offset);
        }
        self.advance();
    }

    fn stray(&mut self, physical_offset: u64) {
        if let Some(cursor) = &mut self.current {
            let first = cursor.next;
            cursor.stray.get_or_insert(Stray { units: 0, first, physical_offset }).units += 1;
        }
    }

    fn report_missing(&mut self, found: &mut dyn FnMut(Finding)) {
        if let Some(Missing { messages, from, to }) = self.missing.take() {
            let file = self.current.as_ref().map_or(&self.directory, |cursor| &cursor.path).clone();
            found(Finding { file, position: None, problem: Problem::KeysMissing { messages, from, to } });
        }
    }
}

/// Follows the links as they were made, unit by unit.
fn wrong_links(file: &IndexFile) -> Option<Problem> {
    let mut heads = vec![0u32; file.slots() as usize];
    let mut wrong: Option<(u64, u32)> = None;
    let mut count_wrong = |unit: u32| wrong.get_or_insert((0, unit)).0 += 1;
    for number in 1..file.index_count() {
        let unit = file.unit(number);
        let head = &mut heads[(unit.hash % file.slots()) as usize];
        if unit.previous != *head {
            count_wrong(*head);
        }
        *head = number;
    }
    for (slot, head) in heads.iter().enumerate() {
        if file.chain(slot as u32) != *head {
            count_wrong(*head);
        }
    }
    wrong.map(|(links, unit)| Problem::IndexLinks { links, unit })
}
