//! The files of consume queues, read only: no file stays open, and none is made fit.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};

use crate::log::{file_name, parse_file_name};
use crate::options::StoreOptions;
use crate::queue::{BATCH_UNIT, ConsumeQueue, UNIT, Unit};

use super::finding::{Finding, Problem};

/// Units read at a time.
const WINDOW: usize = 256;
/// Queues of which units are held in memory.
const WINDOWS: usize = 4096;

/// Units of `LEN` bytes in files of queues, read in windows. A unit is known by its index: how many lie before it, from the begin of
/// file 0 on, whether that is still there or not. In a consume queue that is its queue offset.
pub(super) struct QueueFiles<const LEN: usize> {
    directory: fn(&ConsumeQueue) -> PathBuf,
    /// The setting for the length of a file.
    setting: &'static str,
    file_bytes: u64,
    units_per_file: i64,
    /// By queue number, modulo their count.
    windows: Vec<Option<Window>>,
}

struct Window {
    queue: u32,
    first: i64,
    /// Units that were there; behind them there are none.
    bytes: Vec<u8>,
}

impl QueueFiles<UNIT> {
    /// The files of consume queues.
    pub(super) fn of_queues(options: &StoreOptions) -> Self {
        let file_bytes = options.consume_queue_file_units() * UNIT as u64;
        QueueFiles::new(ConsumeQueue::directory, "mappedFileSizeConsumeQueue", file_bytes)
    }

    /// The unit at a queue offset; zeros where there is none.
    pub(super) fn unit(&mut self, queue: &ConsumeQueue, offset: i64) -> io::Result<Unit> {
        Ok(Unit::decode(&self.bytes(queue, offset)?))
    }
}

impl QueueFiles<BATCH_UNIT> {
    /// The files of batch consume queues, as every broker reads them.
    pub(super) fn of_batch_queues(options: &StoreOptions) -> Self {
        let file_bytes = u64::from(options.batch_consume_queue_file_size);
        QueueFiles::new(ConsumeQueue::batch_directory, "mapperFileSizeBatchConsumeQueue", file_bytes)
    }
}

impl<const LEN: usize> QueueFiles<LEN> {
    fn new(directory: fn(&ConsumeQueue) -> PathBuf, setting: &'static str, file_bytes: u64) -> Self {
        let units_per_file = (file_bytes / LEN as u64).max(1) as i64;
        let windows = std::iter::repeat_with(|| None).take(WINDOWS).collect();
        QueueFiles { directory, setting, file_bytes, units_per_file, windows }
    }

    /// The directory of a queue.
    pub(super) fn directory(&self, queue: &ConsumeQueue) -> PathBuf {
        (self.directory)(queue)
    }

    /// The file in which a unit lies, and the byte in it.
    pub(super) fn place(&self, queue: &ConsumeQueue, index: i64) -> (PathBuf, u64) {
        let index = index.max(0);
        (self.path(queue, index), (index % self.units_per_file) as u64 * LEN as u64)
    }

    fn path(&self, queue: &ConsumeQueue, index: i64) -> PathBuf {
        let file = (index / self.units_per_file) as u64;
        self.directory(queue).join(file_name(file.saturating_mul(self.file_bytes)))
    }

    /// The bytes of a unit; zeros where there is none.
    pub(super) fn bytes(&mut self, queue: &ConsumeQueue, index: i64) -> io::Result<[u8; LEN]> {
        // Where no file can be: its name would have more than 20 digits.
        if index < 0 || index >= i64::MAX / LEN as i64 - self.units_per_file {
            return Ok([0; LEN]);
        }
        let in_file = index % self.units_per_file;
        let first = index - in_file % WINDOW as i64;
        let place = queue.number() as usize % self.windows.len();
        let known = self.windows[place].as_ref();
        if known.is_none_or(|window| window.queue != queue.number() || window.first != first) {
            let bytes = self.read(&self.path(queue, index), in_file - in_file % WINDOW as i64)?;
            self.windows[place] = Some(Window { queue: queue.number(), first, bytes });
        }
        let at = (index - first) as usize * LEN;
        let unit =
            self.windows[place].as_ref().and_then(|window| window.bytes.get(at..)?.first_chunk::<LEN>());
        Ok(unit.copied().unwrap_or([0; LEN]))
    }

    fn read(&self, path: &Path, first_in_file: i64) -> io::Result<Vec<u8>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let units = (self.units_per_file - first_in_file).min(WINDOW as i64) as usize;
        let mut bytes = vec![0; units * LEN];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], first_in_file as u64 * LEN as u64 + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(done / LEN * LEN);
        Ok(bytes)
    }

    /// The next index at or behind which something may be written, at most `to`; more than `index`, where nothing is.
    pub(super) fn skip_unwritten(&self, queue: &ConsumeQueue, index: i64, to: i64) -> io::Result<i64> {
        let next = index.saturating_add(1);
        if index < 0 {
            return Ok(to.min(0).max(next));
        }
        let in_file = index % self.units_per_file;
        let next_file = (index - in_file).saturating_add(self.units_per_file).min(to).max(next);
        let file = match File::open(self.path(queue, index)) {
            Ok(file) => file,
            // A damaged record can name any offset: go to the next file that is there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let firsts = self.list(queue)?.into_iter().map(|(base, _)| self.first_in(base));
                return Ok(firsts.filter(|first| *first > index).min().unwrap_or(to).min(to).max(next));
            }
            Err(error) => return Err(error),
        };
        match seek(&file, SeekFrom::Data((in_file + 1) as u64 * LEN as u64)) {
            Ok(data) => {
                let unit = (data / LEN as u64) as i64;
                Ok((index - in_file).saturating_add(unit).min(next_file).max(next))
            }
            Err(rustix::io::Errno::NXIO) => Ok(next_file),
            Err(_) => Ok(next),
        }
    }

    /// Names and lengths of the queue's files, ascending.
    fn list(&self, queue: &ConsumeQueue) -> io::Result<Vec<(u64, u64)>> {
        let mut files = Vec::new();
        let entries = match fs::read_dir(self.directory(queue)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            // Beyond that no queue offset lies.
            let base = parse_file_name(&entry.file_name()).filter(|base| *base <= i64::MAX as u64 / 2);
            if let Some(base) = base {
                files.push((base, entry.metadata()?.len()));
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Index of the first unit in the file of that name.
    fn first_in(&self, base: u64) -> i64 {
        (base / self.file_bytes) as i64 * self.units_per_file
    }

    /// The indices for which there are files, file by file; those with names that no file can have are left out.
    pub(super) fn ranges(&self, queue: &ConsumeQueue) -> io::Result<Vec<Range<i64>>> {
        let mut bases: Vec<u64> = self.list(queue)?.into_iter().map(|(base, _)| base).collect();
        bases.retain(|base| base.is_multiple_of(self.file_bytes));
        let range = |base| self.first_in(base)..self.first_in(base).saturating_add(self.units_per_file);
        Ok(bases.into_iter().map(range).collect())
    }

    /// The first index for which there is a file.
    pub(super) fn first(&self, queue: &ConsumeQueue) -> io::Result<Option<i64>> {
        Ok(self.ranges(queue)?.first().map(|range| range.start))
    }

    /// Reports files whose names or lengths can't be right.
    pub(super) fn check(&self, queue: &ConsumeQueue, found: &mut dyn FnMut(Finding)) -> io::Result<()> {
        let (expected, setting) = (self.file_bytes, self.setting);
        for (base, len) in self.list(queue)? {
            let problem = if !base.is_multiple_of(expected) {
                Problem::QueueFileName { setting, expected }
            } else if len != expected {
                Problem::QueueFileLength { len, setting, expected }
            } else {
                continue;
            };
            found(Finding { file: self.directory(queue).join(file_name(base)), position: None, problem });
        }
        Ok(())
    }
}
