//! The log on the disk: a file of sealed lines, each a change of the log or of the vote.
//!
//! A line is written and forced to the device before anybody relies on it, so only the last one can be torn; it was
//! never relied on and is cut off. Any other damage stops the start. When entries are purged because a snapshot has
//! them, the file is laid anew.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

use openraft::{Entry, RaftLogId as _};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::sealed::{self, DamagedFile};
use super::{LogId, Types, Vote};

/// Longest file that is read: snapshots keep it far below.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// First line: the entries up to this one are only in the snapshot.
    Purged(Option<LogId>),
    Vote(Vote),
    Append(Vec<Entry<Types>>),
    /// The entries from this index on never happened.
    Truncate(u64),
}

/// Why the log can't be opened.
#[derive(Debug, Error)]
pub(crate) enum JournalError {
    #[error("{}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
    #[error(transparent)]
    Damaged(#[from] DamagedFile),
}

/// The log, in memory and on the disk.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// An error of the disk: what is in the file is not known any more.
    broken: Option<String>,
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry<Types>>,
}

impl Journal {
    /// Opens the log in `folder`, or begins one.
    pub(super) fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join("log");
        let failed = |source| JournalError::Io { file: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        if !path.exists() {
            let mut first = Vec::new();
            sealed::seal(&Line::Purged(None), &mut first).map_err(|error| failed(error.into()))?;
            ferromq_settings::replace(&path, &first).map_err(failed)?;
        }
        let file = OpenOptions::new().read(true).append(true).open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > FILE_BYTES_MAX {
            return Err(DamagedFile::new(&path, 1, format!("the file has {length} bytes")).into());
        }
        let bytes = std::fs::read(&path).map_err(failed)?;
        let mut journal = Self {
            path: path.clone(),
            file,
            broken: None,
            vote: None,
            purged: None,
            entries: BTreeMap::new(),
        };
        let whole = journal.replay(&bytes)?;
        if whole < bytes.len() {
            tracing::warn!(file = %path.display(), offset = whole, "cut off a line that was being written when the process ended");
            journal.file.set_len(whole as u64).and_then(|()| journal.file.sync_all()).map_err(failed)?;
        }
        Ok(journal)
    }

    /// Carries out the lines; returns where the whole ones end.
    fn replay(&mut self, bytes: &[u8]) -> Result<usize, DamagedFile> {
        let mut offset = 0;
        for number in 1.. {
            let rest = &bytes[offset..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            match sealed::open::<Line>(&rest[..end]) {
                Ok(line) => {
                    self.carry_out(line).map_err(|reason| DamagedFile::new(&self.path, number, reason))?;
                }
                Err(_) if offset + end + 1 == bytes.len() && number > 1 => break,
                Err(reason) => return Err(DamagedFile::new(&self.path, number, reason)),
            }
            offset += end + 1;
        }
        Ok(offset)
    }

    fn carry_out(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Purged(purged) => self.purged = purged,
            Line::Vote(vote) => self.vote = Some(vote),
            Line::Truncate(index) => {
                self.entries.split_off(&index);
            }
            Line::Append(entries) => {
                for entry in entries {
                    let (index, next) = (entry.get_log_id().index, self.next_index());
                    if index != next {
                        return Err(format!("entry {index} follows where {next} should"));
                    }
                    self.entries.insert(index, entry);
                }
            }
        }
        Ok(())
    }

    fn next_index(&self) -> u64 {
        self.last().map_or(0, |last| last.index + 1)
    }

    /// Last entry, or the last one that was purged.
    pub(super) fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(_, entry)| *entry.get_log_id()).or(self.purged)
    }

    /// Last entry that only the snapshot has.
    pub(super) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    pub(super) fn vote(&self) -> Option<Vote> {
        self.vote
    }

    /// The entries in `range` that are there.
    pub(super) fn entries(&self, range: impl RangeBounds<u64>) -> Vec<Entry<Types>> {
        self.entries.range(range).map(|(_, entry)| entry.clone()).collect()
    }

    pub(super) fn save_vote(&mut self, vote: Vote) -> io::Result<()> {
        self.write(Line::Vote(vote))
    }

    pub(super) fn append(&mut self, entries: Vec<Entry<Types>>) -> io::Result<()> {
        self.write(Line::Append(entries))
    }

    /// Takes back the entries from `index` on.
    pub(super) fn truncate(&mut self, index: u64) -> io::Result<()> {
        self.write(Line::Truncate(index))
    }

    /// Forgets the entries up to `last`, which a snapshot has.
    pub(super) fn purge(&mut self, last: LogId) -> io::Result<()> {
        self.check()?;
        let mut kept = self.entries.split_off(&(last.index + 1));
        std::mem::swap(&mut self.entries, &mut kept);
        self.purged = Some(last);
        let written = self.lay_anew();
        self.note(written)
    }

    fn lay_anew(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        sealed::seal(&Line::Purged(self.purged), &mut bytes)?;
        if let Some(vote) = self.vote {
            sealed::seal(&Line::Vote(vote), &mut bytes)?;
        }
        if !self.entries.is_empty() {
            sealed::seal(&Line::Append(self.entries(..)), &mut bytes)?;
        }
        ferromq_settings::replace(&self.path, &bytes)?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        Ok(())
    }

    fn write(&mut self, line: Line) -> io::Result<()> {
        self.check()?;
        let mut bytes = Vec::new();
        sealed::seal(&line, &mut bytes)?;
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        self.note(written)?;
        self.carry_out(line).map_err(io::Error::other)
    }

    /// After one error nothing more is written: a line behind a torn one would be lost at the next start.
    fn check(&self) -> io::Result<()> {
        match &self.broken {
            Some(reason) => Err(io::Error::other(format!("an earlier write failed: {reason}"))),
            None => Ok(()),
        }
    }

    fn note(&mut self, written: io::Result<()>) -> io::Result<()> {
        written.map_err(|error| {
            self.broken = Some(error.to_string());
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use openraft::{CommittedLeaderId, EntryPayload};

    use super::*;

    fn id(index: u64) -> LogId {
        LogId::new(CommittedLeaderId::new(1, 0), index)
    }

    fn entry(index: u64) -> Entry<Types> {
        Entry { log_id: id(index), payload: EntryPayload::Blank }
    }

    fn indexes(journal: &Journal) -> Vec<u64> {
        journal.entries(..).iter().map(|entry| entry.log_id.index).collect()
    }

    #[test]
    fn everything_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.append((0..5).map(entry).collect()).unwrap();
        journal.save_vote(Vote::new(3, 1)).unwrap();
        journal.truncate(4).unwrap();
        journal.append(vec![entry(4), entry(5)]).unwrap();
        let again = Journal::open(folder.path()).unwrap();
        assert_eq!((indexes(&again), again.vote()), (vec![0, 1, 2, 3, 4, 5], Some(Vote::new(3, 1))));

        journal.purge(id(3)).unwrap();
        journal.append(vec![entry(6)]).unwrap();
        let again = Journal::open(folder.path()).unwrap();
        assert_eq!(indexes(&again), [4, 5, 6]);
        assert_eq!(
            (again.purged(), again.last(), again.vote()),
            (Some(id(3)), Some(id(6)), Some(Vote::new(3, 1)))
        );
    }

    /// Whatever part of the last line reached the disk.
    #[test]
    fn a_torn_last_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.append(vec![entry(0)]).unwrap();
        let file = folder.path().join("log");
        let before = std::fs::read(&file).unwrap();
        journal.append(vec![entry(1)]).unwrap();
        let after = std::fs::read(&file).unwrap();
        for length in before.len()..after.len() {
            std::fs::write(&file, &after[..length]).unwrap();
            let mut again = Journal::open(folder.path()).unwrap();
            assert_eq!(indexes(&again), [0], "{length}");
            again.append(vec![entry(1)]).unwrap();
            assert_eq!(indexes(&Journal::open(folder.path()).unwrap()), [0, 1], "{length}");
        }
    }

    #[test]
    fn damage_before_the_last_line_stops_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.append(vec![entry(0)]).unwrap();
        journal.append(vec![entry(1)]).unwrap();
        let file = folder.path().join("log");
        let mut bytes = std::fs::read(&file).unwrap();
        let second_line = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        bytes[second_line + 12] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        let error = Journal::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("log, line 2: the checksum does not fit"), "{error}");
    }
}
