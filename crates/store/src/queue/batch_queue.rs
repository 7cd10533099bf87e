//! Topics whose batches are stored in one record each (attribute `queue.type=BatchCQ`, `docs/spec/02-store.md` §4.8, §6.6).
//!
//! Here such a topic has consume queues as any other: every message of a batch has a unit of its own, all with the place of the same
//! record, in a directory that other brokers do not know ([`UNITS_DIRECTORY`]). For them this module keeps what they have instead:
//! `batchconsumequeue/<topic>/<queueId>/`, with one unit of 46 bytes per record. Nothing is ever read from there but to write on.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use super::Unit;
use crate::disk;
use crate::log::{file_name, parse_file_name};

/// Where the consume queues of these topics are.
pub(crate) const UNITS_DIRECTORY: &str = "batchconsumequeue.units";
/// Where other brokers look for them.
pub(crate) const BATCH_DIRECTORY: &str = "batchconsumequeue";

/// Length of a unit.
pub(crate) const BATCH_UNIT: usize = 46;

/// A record in a batch queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchUnit {
    pub(crate) unit: Unit,
    pub(crate) store_timestamp: i64,
    /// Queue offset of its first message.
    pub(crate) base: i64,
    /// Its messages.
    pub(crate) messages: u16,
}

impl BatchUnit {
    pub(crate) fn encode(self) -> [u8; BATCH_UNIT] {
        let mut bytes = [0; BATCH_UNIT];
        bytes[..20].copy_from_slice(&self.unit.encode());
        bytes[20..28].copy_from_slice(&self.store_timestamp.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.base.to_be_bytes());
        bytes[36..38].copy_from_slice(&self.messages.to_be_bytes());
        // The offset in a compacted log: none.
        bytes[38..42].fill(0xFF);
        bytes
    }

    /// `None` for zeros, which is what the rest of a file holds, and for nonsense.
    pub(crate) fn decode(bytes: &[u8; BATCH_UNIT]) -> Option<BatchUnit> {
        let unit = Unit::decode(bytes.first_chunk()?);
        let long = |at: usize| bytes[at..].first_chunk().map(|bytes| i64::from_be_bytes(*bytes));
        let messages = u16::from_be_bytes([bytes[36], bytes[37]]);
        let decoded = BatchUnit { unit, store_timestamp: long(20)?, base: long(28)?, messages };
        (unit.is_message() && decoded.base >= 0 && messages > 0).then_some(decoded)
    }

    /// Queue offset behind its last message.
    pub(crate) fn end(self) -> i64 {
        self.base.saturating_add(i64::from(self.messages))
    }
}

/// The topics of this kind, and the files that other brokers read.
#[derive(Debug)]
pub(crate) struct BatchQueues {
    directory: PathBuf,
    file_len: u64,
    topics: RwLock<HashSet<String>>,
    /// There are such topics. Mostly there are none, and then nobody has to look.
    any: AtomicBool,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    /// In order, so that the same work is done in the same order every time.
    by_directory: BTreeMap<PathBuf, BatchQueue>,
    unsynced: Vec<File>,
}

#[derive(Debug)]
struct BatchQueue {
    /// Units in the files.
    end: u64,
    /// Units behind them, encoded.
    unwritten: Vec<u8>,
}

impl BatchQueues {
    /// `topics` are those that are known to be of this kind; others are found by their directories.
    pub(super) fn new(root: &Path, file_len: u64, topics: impl IntoIterator<Item = String>) -> Self {
        let mut topics: HashSet<String> = topics.into_iter().collect();
        for directory in [BATCH_DIRECTORY, UNITS_DIRECTORY] {
            let entries = fs::read_dir(root.join(directory)).into_iter().flatten();
            topics.extend(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()));
        }
        BatchQueues {
            directory: root.join(BATCH_DIRECTORY),
            file_len,
            any: AtomicBool::new(!topics.is_empty()),
            topics: RwLock::new(topics),
            queues: Mutex::default(),
        }
    }

    /// Whether the topic is of this kind.
    #[inline]
    pub(crate) fn contains(&self, topic: &str) -> bool {
        self.any.load(Ordering::Acquire) && self.topics.read().contains(topic)
    }

    /// A topic of this kind was made.
    pub(crate) fn declare(&self, topic: &str) {
        self.topics.write().insert(topic.to_owned());
        self.any.store(true, Ordering::Release);
    }

    /// Adds the unit of a record. Only by the dispatcher.
    pub(crate) fn push(&self, topic: &str, queue_id: i32, unit: BatchUnit) -> io::Result<()> {
        let directory = self.queue_directory(topic, queue_id);
        let mut queues = self.queues.lock();
        let queue = match queues.by_directory.get_mut(&directory) {
            Some(queue) => queue,
            None => {
                let end = self.files(&directory)?.end()?;
                queues.by_directory.entry(directory).or_insert(BatchQueue { end, unwritten: Vec::new() })
            }
        };
        queue.unwritten.extend_from_slice(&unit.encode());
        Ok(())
    }

    /// Writes what was pushed to the files.
    pub(super) fn write_out(&self) -> io::Result<()> {
        let mut queues = self.queues.lock();
        let Queues { by_directory, unsynced } = &mut *queues;
        for (directory, queue) in by_directory.iter_mut().filter(|(_, queue)| !queue.unwritten.is_empty()) {
            let files = self.files(directory)?;
            while !queue.unwritten.is_empty() {
                let room = (files.units() - queue.end % files.units()) as usize * BATCH_UNIT;
                let len = queue.unwritten.len().min(room);
                unsynced.push(files.write(queue.end, &queue.unwritten[..len])?);
                queue.unwritten.drain(..len);
                queue.end += (len / BATCH_UNIT) as u64;
            }
        }
        Ok(())
    }

    /// Forces what was written to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        let files = std::mem::take(&mut self.queues.lock().unsynced);
        files.iter().try_for_each(disk::sync_all)
    }

    /// Topic, queue id and end (a queue offset) of each queue that has files.
    pub(crate) fn ends(&self) -> io::Result<Vec<(String, i32, i64)>> {
        let mut ends = Vec::new();
        for (topic, queue_id, directory) in self.discover()? {
            let files = self.files(&directory)?;
            let last = files.end()?.checked_sub(1).map_or(Ok(None), |last| files.unit(last))?;
            ends.extend(last.map(|last| (topic, queue_id, last.end())));
        }
        Ok(ends)
    }

    /// Deletes all units, to be pushed anew.
    pub(crate) fn clear(&self) -> io::Result<()> {
        *self.queues.lock() = Queues::default();
        for (_, _, directory) in self.discover()? {
            disk::remove_dir_all(&directory)?;
        }
        Ok(())
    }

    /// Cuts the units of records at `physical_offset` and behind, to be pushed again.
    pub(crate) fn cut(&self, physical_offset: u64) -> io::Result<()> {
        *self.queues.lock() = Queues::default();
        for (_, _, directory) in self.discover()? {
            self.files(&directory)?.cut(physical_offset)?;
        }
        Ok(())
    }

    /// Deletes files of which the log no longer has anything; the last one of each queue stays.
    pub(crate) fn trim(&self, log_min: u64) -> io::Result<()> {
        for (_, _, directory) in self.discover()? {
            let files = self.files(&directory)?;
            for number in files.numbers.iter().rev().skip(1) {
                let last = files.unit((number + 1) * files.units() - 1)?;
                if last.is_some_and(|last| last.unit.physical_offset < log_min) {
                    disk::remove_file(&files.path(*number))?;
                }
            }
        }
        Ok(())
    }

    /// Forgets a topic with everything that there is of it.
    pub(super) fn delete(&self, topic: &str) -> io::Result<()> {
        if !self.contains(topic) {
            return Ok(());
        }
        let directory = self.directory.join(topic);
        self.queues.lock().by_directory.retain(|queue, _| !queue.starts_with(&directory));
        match disk::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.topics.write().remove(topic);
        // For good, as those of other topics.
        for directory in [&self.directory, &self.directory.with_file_name(UNITS_DIRECTORY)] {
            if directory.exists() {
                disk::sync_directory(directory)?;
            }
        }
        Ok(())
    }

    /// Deletes the units of a topic's queues whose last record was deleted, by its physical offset.
    pub(crate) fn delete_units(&self, topic: &str, is_deleted: impl Fn(u64) -> bool) -> io::Result<()> {
        if !self.contains(topic) {
            return Ok(());
        }
        *self.queues.lock() = Queues::default();
        for directory in entries(&self.directory.join(topic))? {
            let files = self.files(&directory)?;
            let last = files.end()?.checked_sub(1).map_or(Ok(None), |last| files.unit(last))?;
            if last.is_some_and(|last| is_deleted(last.unit.physical_offset)) {
                disk::remove_dir_all(&directory)?;
            }
        }
        Ok(())
    }

    /// The directory of a queue.
    pub(super) fn queue_directory(&self, topic: &str, queue_id: i32) -> PathBuf {
        self.directory.join(topic).join(queue_id.to_string())
    }

    /// Every queue with a directory.
    pub(super) fn discover(&self) -> io::Result<Vec<(String, i32, PathBuf)>> {
        let mut found = Vec::new();
        for topic in entries(&self.directory)? {
            for queue in entries(&topic)? {
                let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
                if let (Some(topic), Some(id)) = (name(&topic), name(&queue).and_then(|id| id.parse().ok())) {
                    found.push((topic, id, queue));
                }
            }
        }
        Ok(found)
    }

    fn files<'a>(&self, directory: &'a Path) -> io::Result<BatchFiles<'a>> {
        let mut numbers = Vec::new();
        for path in entries(directory)? {
            let offset = path.file_name().and_then(parse_file_name);
            numbers.extend(offset.map(|offset| offset / self.file_len));
        }
        numbers.sort_unstable();
        Ok(BatchFiles { directory, file_len: self.file_len, numbers })
    }
}

/// Paths of what is in a directory, in order; nothing if there is none.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Ok(entries) => {
            let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
            paths.sort_unstable();
            Ok(paths)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The files of one batch queue. Units are counted from the begin of file 0, whether that is still there or not.
struct BatchFiles<'a> {
    directory: &'a Path,
    file_len: u64,
    /// Which files there are, ascending.
    numbers: Vec<u64>,
}

impl BatchFiles<'_> {
    /// Units in a file.
    fn units(&self) -> u64 {
        (self.file_len / BATCH_UNIT as u64).max(1)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(file_name(number * self.file_len))
    }

    fn unit(&self, index: u64) -> io::Result<Option<BatchUnit>> {
        let mut bytes = [0; BATCH_UNIT];
        let file = match File::open(self.path(index / self.units())) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.read_exact_at(&mut bytes, index % self.units() * BATCH_UNIT as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            result => result.map(|()| BatchUnit::decode(&bytes)),
        }
    }

    /// Behind the last unit.
    fn end(&self) -> io::Result<u64> {
        let (Some(first), Some(last)) = (self.numbers.first(), self.numbers.last()) else { return Ok(0) };
        self.partition(first * self.units(), (last + 1) * self.units(), |unit| unit.is_none())
    }

    /// The first unit in `[low, high)` that `is_behind` says yes to, `high` if none.
    fn partition(
        &self,
        mut low: u64,
        mut high: u64,
        is_behind: impl Fn(Option<BatchUnit>) -> bool,
    ) -> io::Result<u64> {
        while low < high {
            let middle = low + (high - low) / 2;
            if is_behind(self.unit(middle)?) { high = middle } else { low = middle + 1 }
        }
        Ok(low)
    }

    fn cut(&self, physical_offset: u64) -> io::Result<()> {
        let Some(first) = self.numbers.first() else { return Ok(()) };
        let is_behind =
            |unit: Option<BatchUnit>| unit.is_none_or(|unit| unit.unit.physical_offset >= physical_offset);
        let end = self.partition(first * self.units(), self.end()?, is_behind)?;
        for number in self.numbers.iter().rev().take_while(|number| **number * self.units() >= end) {
            disk::remove_file(&self.path(*number))?;
        }
        if end % self.units() > 0 {
            // Cut and extended: what comes back reads as zeros.
            let file = disk::open_or_create(&self.path(end / self.units()))?;
            disk::set_len(&file, end % self.units() * BATCH_UNIT as u64)?;
            disk::set_len(&file, self.file_len)?;
        }
        Ok(())
    }

    /// Writes units from `index` on, which must not cross into the next file.
    fn write(&self, index: u64, units: &[u8]) -> io::Result<File> {
        disk::create_dir_all(self.directory)?;
        let file = disk::open_or_create(&self.path(index / self.units()))?;
        if file.metadata()?.len() != self.file_len {
            // The Java broker refuses any other length.
            disk::set_len(&file, self.file_len)?;
        }
        disk::write_all_at(&file, units, index % self.units() * BATCH_UNIT as u64)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(number: u64) -> BatchUnit {
        let unit = Unit { physical_offset: number * 264, size: 264, tags_code: 2_598_919 };
        BatchUnit { unit, store_timestamp: 1_700_000_001_234, base: number as i64 * 3, messages: 3 }
    }

    #[test]
    fn units_are_those_of_the_reference() {
        // docs/spec/02-store.md §18.2 Q5
        let expected =
            "000000000000010800000108000000000027a8070000018bcfe56cd200000000000000030003ffffffff00000000";
        let encoded = unit(1).encode();
        assert_eq!(encoded.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
        assert_eq!(BatchUnit::decode(&encoded), Some(unit(1)));
        assert_eq!(BatchUnit::decode(&[0; BATCH_UNIT]), None);
    }

    #[test]
    fn files_are_written_on_cut_and_trimmed() {
        let root = tempfile::tempdir().unwrap();
        let open = || BatchQueues::new(root.path(), 10 * BATCH_UNIT as u64, ["T".to_owned()]);
        let directory = root.path().join("batchconsumequeue/T/0");
        for round in 0..3 {
            let queues = open();
            (round * 15..round * 15 + 15).for_each(|number| queues.push("T", 0, unit(number)).unwrap());
            queues.write_out().unwrap();
            queues.sync().unwrap();
        }
        let all = |queues: &BatchQueues| {
            let files = queues.files(&directory).unwrap();
            (0..files.end().unwrap()).map(|index| files.unit(index).unwrap()).collect::<Vec<_>>()
        };
        let expected =
            |range: std::ops::Range<u64>| range.map(|number| Some(unit(number))).collect::<Vec<_>>();
        let queues = open();
        assert_eq!(all(&queues), expected(0..45));
        queues.cut(unit(23).unit.physical_offset).unwrap();
        assert_eq!(all(&queues), expected(0..23));
        queues.push("T", 0, unit(23)).unwrap();
        queues.write_out().unwrap();
        assert_eq!(all(&queues), expected(0..24));
        queues.trim(unit(11).unit.physical_offset).unwrap();
        assert_eq!(queues.files(&directory).unwrap().numbers, [1, 2]);
        assert_eq!(queues.ends().unwrap(), [("T".to_owned(), 0, 72)]);
        queues.delete_units("T", |physical_offset| physical_offset < unit(23).unit.physical_offset).unwrap();
        assert!(directory.exists());
        queues.delete_units("T", |physical_offset| physical_offset <= unit(23).unit.physical_offset).unwrap();
        assert!(!directory.exists());
        queues.push("T", 0, unit(0)).unwrap();
        queues.write_out().unwrap();
        queues.clear().unwrap();
        assert!(!directory.exists());
        queues.declare("U");
        queues.delete("T").unwrap();
        assert!(queues.contains("U") && !queues.contains("T"));
    }
}
