//! The files of consume queues, read only: no file stays open, and none is made fit.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};

use crate::log::{file_name, parse_file_name};
use crate::queue::{ConsumeQueue, UNIT, Unit};

/// Units read at a time.
const WINDOW: usize = 256;
/// Memory for what was read: enough for a dozen units of a million queues.
const WINDOWS_BYTES_MAX: usize = 256 << 20;
/// What a window costs beside its units.
const WINDOW_OVERHEAD: usize = 64;

/// Units of queue files, read in windows.
pub(super) struct QueueFiles {
    directory: PathBuf,
    units_per_file: i64,
    /// By the number of the queue's handle.
    windows: Vec<Option<Window>>,
    windows_bytes: usize,
    /// Chooses the window that has to go.
    dice: u32,
}

#[derive(Debug)]
struct Window {
    first: i64,
    /// Units that were there; behind them there are none.
    bytes: Vec<u8>,
}

impl QueueFiles {
    pub(super) fn new(directory: PathBuf, units_per_file: u64) -> Self {
        QueueFiles {
            directory,
            units_per_file: units_per_file as i64,
            windows: Vec::new(),
            windows_bytes: 0,
            dice: 1,
        }
    }

    /// Length of a unit.
    pub(super) fn unit_bytes(&self) -> u64 {
        UNIT as u64
    }

    pub(super) fn units_per_file(&self) -> i64 {
        self.units_per_file
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.units_per_file as u64 * UNIT as u64
    }

    pub(super) fn directory(&self, queue: &ConsumeQueue) -> PathBuf {
        self.directory.join(queue.topic()).join(queue.queue_id().to_string())
    }

    /// The file of a queue offset, which must not be negative.
    pub(super) fn path(&self, queue: &ConsumeQueue, offset: i64) -> PathBuf {
        let file = (offset / self.units_per_file) as u64;
        self.directory(queue).join(file_name(file.saturating_mul(self.file_bytes())))
    }

    /// The unit at a queue offset; zeros where there is none.
    pub(super) fn unit(&mut self, queue: &ConsumeQueue, offset: i64) -> io::Result<Unit> {
        const NONE: Unit = Unit { physical_offset: 0, size: 0, tags_code: 0 };
        // Where no file can be: its name would have more than 20 digits.
        if offset < 0 || offset >= i64::MAX / UNIT as i64 - self.units_per_file {
            return Ok(NONE);
        }
        let in_file = offset % self.units_per_file;
        let first = offset - in_file % WINDOW as i64;
        let number = queue.number() as usize;
        let known = self.windows.get(number).and_then(Option::as_ref);
        if known.is_none_or(|window| window.first != first) {
            let bytes = self.read(&self.path(queue, offset), in_file - in_file % WINDOW as i64)?;
            self.keep(number, Window { first, bytes });
        }
        let at = (offset - first) as usize * UNIT;
        let window = self.windows.get(number).and_then(Option::as_ref);
        let unit = window.and_then(|window| window.bytes.get(at..)?.first_chunk::<UNIT>());
        Ok(unit.map_or(NONE, Unit::decode))
    }

    /// Keeps a window in place of the queue's last one. If there are too many, some others go: which ones is left to chance,
    /// since queues are often written in turns, and the one used longest ago is the one needed next.
    fn keep(&mut self, number: usize, window: Window) {
        if self.windows.len() <= number {
            self.windows.resize_with(number + 1, || None);
        }
        let cost = |window: &Window| window.bytes.capacity() + WINDOW_OVERHEAD;
        self.windows_bytes += cost(&window);
        let last = self.windows[number].replace(window);
        self.windows_bytes -= last.as_ref().map_or(0, cost);
        while self.windows_bytes > WINDOWS_BYTES_MAX {
            self.dice = self.dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let other = (self.dice >> 8) as usize % self.windows.len();
            if other != number {
                self.windows_bytes -= self.windows[other].take().as_ref().map_or(0, cost);
            }
        }
    }

    fn read(&self, path: &Path, first_in_file: i64) -> io::Result<Vec<u8>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let units = (self.units_per_file - first_in_file).min(WINDOW as i64) as usize;
        let mut bytes = vec![0; units * UNIT];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], first_in_file as u64 * UNIT as u64 + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Most queues end within the window, and most of a file is still empty.
        let end = bytes[..done].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end.next_multiple_of(UNIT).min(done / UNIT * UNIT));
        bytes.shrink_to_fit();
        Ok(bytes)
    }

    /// The next queue offset at or behind which something may be written, at most `to`; more than `offset`, where nothing is.
    pub(super) fn skip_unwritten(&self, queue: &ConsumeQueue, offset: i64, to: i64) -> io::Result<i64> {
        let next = offset.saturating_add(1);
        if offset < 0 {
            return Ok(to.min(0).max(next));
        }
        let in_file = offset % self.units_per_file;
        let next_file = (offset - in_file).saturating_add(self.units_per_file).min(to).max(next);
        let file = match File::open(self.path(queue, offset)) {
            Ok(file) => file,
            // A damaged record can name any offset: go to the next file that is there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let firsts = self.list(queue)?.into_iter().map(|(base, _)| (base / UNIT as u64) as i64);
                return Ok(firsts.filter(|first| *first > offset).min().unwrap_or(to).min(to).max(next));
            }
            Err(error) => return Err(error),
        };
        let window_first = offset - in_file % WINDOW as i64;
        let known = self.windows.get(queue.number() as usize).and_then(Option::as_ref);
        let known = known.filter(|window| window.first == window_first);
        let is_rest_empty =
            known.is_some_and(|window| (offset - window_first) as usize * UNIT >= window.bytes.len());
        // The system knows empty blocks only, not what is empty in them.
        let from = if is_rest_empty { (window_first + WINDOW as i64).min(next_file) } else { next };
        if from >= next_file {
            return Ok(next_file);
        }
        let file_first = offset - in_file;
        match seek(&file, SeekFrom::Data((from - file_first) as u64 * UNIT as u64)) {
            Ok(data) => {
                let unit = (data / UNIT as u64) as i64;
                Ok(file_first.saturating_add(unit).min(next_file).max(from))
            }
            Err(rustix::io::Errno::NXIO) => Ok(next_file),
            Err(_) => Ok(from),
        }
    }

    /// Names and lengths of the queue's files, ascending.
    pub(super) fn list(&self, queue: &ConsumeQueue) -> io::Result<Vec<(u64, u64)>> {
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

    /// The first queue offset for which there is a file.
    pub(super) fn first_offset(&self, queue: &ConsumeQueue) -> io::Result<Option<i64>> {
        let files = self.list(queue)?;
        let first = files.iter().find(|(base, _)| base.is_multiple_of(self.file_bytes()));
        Ok(first.map(|(base, _)| (*base / UNIT as u64) as i64))
    }
}
