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
/// Queues of which units are held in memory.
const WINDOWS: usize = 4096;

/// Units of queue files, read in windows.
pub(super) struct QueueFiles {
    directory: PathBuf,
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

impl QueueFiles {
    pub(super) fn new(directory: PathBuf, units_per_file: u64) -> Self {
        let windows = std::iter::repeat_with(|| None).take(WINDOWS).collect();
        QueueFiles { directory, units_per_file: units_per_file as i64, windows }
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
        let place = queue.number() as usize % self.windows.len();
        let known = self.windows[place].as_ref();
        if known.is_none_or(|window| window.queue != queue.number() || window.first != first) {
            let bytes = self.read(&self.path(queue, offset), in_file - in_file % WINDOW as i64)?;
            self.windows[place] = Some(Window { queue: queue.number(), first, bytes });
        }
        let at = (offset - first) as usize * UNIT;
        let unit =
            self.windows[place].as_ref().and_then(|window| window.bytes.get(at..)?.first_chunk::<UNIT>());
        Ok(unit.map_or(NONE, Unit::decode))
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
        bytes.truncate(done / UNIT * UNIT);
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
        match seek(&file, SeekFrom::Data((in_file + 1) as u64 * UNIT as u64)) {
            Ok(data) => {
                let unit = (data / UNIT as u64) as i64;
                Ok((offset - in_file).saturating_add(unit).min(next_file).max(next))
            }
            Err(rustix::io::Errno::NXIO) => Ok(next_file),
            Err(_) => Ok(next),
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
