//! Epochs: which part of the log was written under which master (`docs/spec/05-ha.md` 9.1).

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use thiserror::Error;

/// A master's time in office, and where in the log it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// Its number; rises.
    pub number: i32,
    /// Its first offset.
    pub start: u64,
}

/// The epochs of a log, oldest first; numbers and offsets rise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Epochs(Vec<Epoch>);

/// An epoch file that can't be gone on from.
#[derive(Debug, Error)]
#[error(
    "{} and its .bak: {reason}. They tell which part of the log is of which master. If this replica is not the only one, start it with \
     an empty storePathRootDir",
    file.display()
)]
pub struct EpochFileError {
    file: PathBuf,
    reason: String,
}

impl Epochs {
    /// Those of `entries` that rise.
    pub fn new(entries: impl IntoIterator<Item = Epoch>) -> Self {
        let mut epochs = Self::default();
        for epoch in entries {
            if epochs.last().is_none_or(|last| epoch.number > last.number && epoch.start > last.start) {
                epochs.0.push(epoch);
            }
        }
        epochs
    }

    /// All of them.
    pub fn entries(&self) -> &[Epoch] {
        &self.0
    }

    /// The newest one.
    pub fn last(&self) -> Option<Epoch> {
        self.0.last().copied()
    }

    /// Begins a newer epoch. One in which nothing was written is replaced: if it kept its number, two replicas could take different
    /// bytes for the same epoch. Anything that is not newer changes nothing.
    pub fn begin(&mut self, epoch: Epoch) -> bool {
        let is_newer = self.last().is_none_or(|last| epoch.number > last.number && epoch.start >= last.start);
        if is_newer {
            self.truncate(epoch.start);
            self.0.push(epoch);
        }
        is_newer
    }

    /// Drops what begins at `offset` or behind.
    pub fn truncate(&mut self, offset: u64) {
        self.0.retain(|epoch| epoch.start < offset);
    }

    /// Drops what ends before `offset`, the beginning of the log.
    pub fn expire(&mut self, offset: u64) {
        let gone = self.0.windows(2).take_while(|pair| pair[1].start <= offset).count();
        self.0.drain(..gone);
    }

    /// The epoch of the byte at `offset`, and where it ends; `u64::MAX` for the newest one.
    pub fn find(&self, offset: u64) -> Option<(Epoch, u64)> {
        let after = self.0.partition_point(|epoch| epoch.start <= offset);
        Some((*self.0.get(after.checked_sub(1)?)?, self.end_of(after - 1, u64::MAX)))
    }

    fn end_of(&self, position: usize, log_end: u64) -> u64 {
        self.0.get(position + 1).map_or(log_end, |next| next.start)
    }

    /// Up to where this log, which ends at `end`, is the same as that of a master with `theirs`, which ends at `their_end`. `None` if
    /// they have no epoch in common.
    pub fn consistent_point(&self, end: u64, theirs: &Epochs, their_end: u64) -> Option<u64> {
        (0..self.0.len()).rev().find_map(|own| {
            let same = theirs.0.iter().position(|epoch| *epoch == self.0[own])?;
            Some(self.end_of(own, end).min(theirs.end_of(same, their_end)))
        })
    }

    /// The content of the file.
    pub fn to_text(&self) -> String {
        let lines: String =
            self.0.iter().map(|epoch| format!("{}-{}\n", epoch.number, epoch.start)).collect();
        format!("{}\n{}\n{lines}", self.0.len(), crc32fast::hash(lines.as_bytes()) & 0x7fff_ffff)
    }

    /// Reads the content of the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '\n');
        let mut number = |what: &str| {
            let line = parts.next().unwrap_or_default().trim();
            line.parse::<u32>()
                .map_err(|_| format!("`{}` is no {what}", line.chars().take(32).collect::<String>()))
        };
        let (count, crc) = (number("number of epochs")?, number("checksum")?);
        let lines = parts.next().unwrap_or_default();
        if crc != 0 && crc != crc32fast::hash(lines.as_bytes()) & 0x7fff_ffff {
            return Err("the checksum does not fit".to_owned());
        }
        let parse = |line: &str| {
            let (number, start) = line.trim_end().split_once('-')?;
            Some(Epoch { number: number.parse().ok()?, start: start.parse().ok()? })
        };
        let entries: Option<Vec<Epoch>> = lines.lines().filter(|line| !line.is_empty()).map(parse).collect();
        let entries = entries.ok_or("a line is no epoch")?;
        let epochs = Self::new(entries.iter().copied());
        if entries.len() != count as usize || epochs.0.len() != entries.len() {
            return Err(format!("{} epochs that rise, not {count}", epochs.0.len()));
        }
        Ok(epochs)
    }
}

/// The epochs of this replica's log, and the file that has them.
#[derive(Debug)]
pub struct EpochFile {
    path: PathBuf,
    epochs: Mutex<Epochs>,
}

impl EpochFile {
    /// Reads the file, or else the one that was saved beside it. Without either there are no epochs yet.
    pub fn open(path: PathBuf) -> Result<Self, EpochFileError> {
        let backup = with_suffix(&path, ".bak");
        let (mut reason, mut epochs) = (None, None);
        for file in [&path, &backup] {
            match std::fs::read_to_string(file) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => match Epochs::parse(&text) {
                    Ok(read) => {
                        epochs = Some(read);
                        break;
                    }
                    Err(error) => reason = reason.or(Some(error)),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => reason = reason.or(Some(error.to_string())),
            }
        }
        match (epochs, reason) {
            (Some(epochs), _) => Ok(Self { path, epochs: Mutex::new(epochs) }),
            (None, Some(reason)) => Err(EpochFileError { file: path, reason }),
            (None, None) => Ok(Self { path, epochs: Mutex::default() }),
        }
    }

    /// The epochs now.
    pub fn get(&self) -> Epochs {
        self.epochs.lock().clone()
    }

    /// The newest one.
    pub fn last(&self) -> Option<Epoch> {
        self.epochs.lock().last()
    }

    /// Changes the epochs. They are on the disk when this returns.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn change(&self, change: impl FnOnce(&mut Epochs)) -> io::Result<()> {
        let mut epochs = self.epochs.lock();
        let mut changed = epochs.clone();
        change(&mut changed);
        if changed != *epochs {
            ferromq_settings::replace(&self.path, changed.to_text().as_bytes())?;
            *epochs = changed;
        }
        Ok(())
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, u64)]) -> Epochs {
        Epochs::new(entries.iter().map(|&(number, start)| Epoch { number, start }))
    }

    fn entries(epochs: &Epochs) -> Vec<(i32, u64)> {
        epochs.entries().iter().map(|epoch| (epoch.number, epoch.start)).collect()
    }

    /// `docs/spec/05-ha.md` 15.4.
    #[test]
    fn the_file_of_the_reference() {
        let text = "3\n1667064412\n1-0\n2-1073741824\n5-3221225472\n";
        let read = Epochs::parse(text).unwrap();
        assert_eq!(read, epochs(&[(1, 0), (2, 1_073_741_824), (5, 3_221_225_472)]));
        assert_eq!(read.to_text(), text);
        for (list, crc) in [
            (&[(1, 0), (2, 1_073_741_824)][..], "1895893516"),
            (&[(2, 1_073_741_824)], "153853849"),
            (&[(1, 0)], "1725254278"),
        ] {
            assert_eq!(epochs(list).to_text().lines().nth(1), Some(crc));
        }
        let real = include_str!("../../tests/vectors/epochFileCheckpoint");
        assert_eq!(Epochs::parse(real).unwrap().to_text(), real);
        for damaged in ["", "x\n1\n", "1\n5\n1-0\n", "2\n0\n1-0\n", "2\n0\n1-0\n1-5\n", "1\n0\n1\n"] {
            assert!(Epochs::parse(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn an_epoch_without_bytes_makes_room_for_the_next() {
        let mut list = epochs(&[(1, 0), (2, 100)]);
        assert!(!list.begin(Epoch { number: 2, start: 200 }));
        assert!(!list.begin(Epoch { number: 3, start: 99 }));
        assert!(list.begin(Epoch { number: 3, start: 100 }));
        assert_eq!(entries(&list), [(1, 0), (3, 100)]);
        assert!(list.begin(Epoch { number: 7, start: 150 }));
        assert_eq!(list.find(99), Some((Epoch { number: 1, start: 0 }, 100)));
        assert_eq!(list.find(100), Some((Epoch { number: 3, start: 100 }, 150)));
        assert_eq!(list.find(900), Some((Epoch { number: 7, start: 150 }, u64::MAX)));
        list.truncate(150);
        assert_eq!(entries(&list), [(1, 0), (3, 100)]);
        list.expire(99);
        assert_eq!(list.entries().len(), 2);
        list.expire(100);
        assert_eq!(entries(&list), [(3, 100)]);
        assert_eq!(list.find(99), None);
    }

    /// `docs/spec/05-ha.md` 15.4.
    #[test]
    fn consistent_points() {
        let point = |master: &[(i32, u64)], master_end, slave: &[(i32, u64)], slave_end| {
            epochs(slave).consistent_point(slave_end, &epochs(master), master_end)
        };
        let two = &[(1, 0), (2, 1000)];
        assert_eq!(point(two, 5000, two, 4000), Some(4000));
        assert_eq!(point(two, 3000, two, 4000), Some(3000));
        assert_eq!(point(two, 5000, &[(1, 0)], 1500), Some(1000));
        assert_eq!(point(&[(1, 0), (2, 1000), (3, 2000)], 5000, &[(1, 0), (2, 1200)], 1800), Some(1000));
        assert_eq!(point(&[(2, 1000), (3, 2000)], 5000, two, 1700), Some(1700));
        assert_eq!(point(&[(4, 9000)], 9999, two, 1800), None);
    }

    #[test]
    fn a_damaged_file_is_read_from_its_backup() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epochFileCheckpoint");
        let file = EpochFile::open(path.clone()).unwrap();
        file.change(|epochs| assert!(epochs.begin(Epoch { number: 1, start: 0 }))).unwrap();
        file.change(|epochs| assert!(epochs.begin(Epoch { number: 2, start: 10 }))).unwrap();
        assert_eq!(EpochFile::open(path.clone()).unwrap().last(), Some(Epoch { number: 2, start: 10 }));
        std::fs::write(&path, "2\n77\n1-0\n2-10\n").unwrap();
        assert_eq!(EpochFile::open(path.clone()).unwrap().last(), Some(Epoch { number: 1, start: 0 }));
        std::fs::write(with_suffix(&path, ".bak"), "garbage").unwrap();
        assert!(EpochFile::open(path).is_err());
    }
}
