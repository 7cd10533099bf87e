//! The files of consume queues, and the few of them that are open.
//!
//! `consumequeue/<topic>/<queueId>/<byte offset, 20 digits>`, each of the configured size from the moment it is created
//! (sparse), because the Java broker refuses any other length.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::batch_queue::{BatchQueues, UNITS_DIRECTORY};
use super::unit::{UNIT, Unit};
use crate::disk;
use crate::log::{file_name, parse_file_name};

/// Most files kept open. Beyond that the one opened first is closed.
const OPEN_FILES_MAX: usize = 1024;

/// Which file: number of the queue's handle, number of the file in the queue.
type Key = (u32, u64);

/// Access to the files of all consume queues.
#[derive(Debug)]
pub(crate) struct QueueFiles {
    directory: PathBuf,
    /// The topics whose queues are in a directory of their own.
    batch: Arc<BatchQueues>,
    batch_directory: PathBuf,
    units_per_file: u64,
    /// Where the log begins.
    log_min: AtomicU64,
    open: Mutex<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    files: BTreeMap<Key, Arc<File>>,
    /// In the order of opening. Files that were closed since are still in it.
    by_age: VecDeque<Key>,
}

/// Identity of a queue as its files know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueName<'a> {
    pub(crate) number: u32,
    pub(crate) topic: &'a str,
    pub(crate) queue_id: i32,
}

impl QueueFiles {
    pub(crate) fn new(root: &Path, units_per_file: u64, batch: Arc<BatchQueues>) -> Self {
        QueueFiles {
            directory: root.join("consumequeue"),
            batch,
            batch_directory: root.join(UNITS_DIRECTORY),
            units_per_file,
            log_min: AtomicU64::new(0),
            open: Mutex::default(),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn batch(&self) -> &BatchQueues {
        &self.batch
    }

    pub(crate) fn units_per_file(&self) -> u64 {
        self.units_per_file
    }

    pub(crate) fn log_min(&self) -> u64 {
        self.log_min.load(Ordering::Acquire)
    }

    pub(crate) fn set_log_min(&self, log_min: u64) {
        self.log_min.store(log_min, Ordering::Release);
    }

    pub(crate) fn topic_directory(&self, topic: &str) -> PathBuf {
        if self.batch.contains(topic) { self.batch_directory.join(topic) } else { self.directory.join(topic) }
    }

    pub(crate) fn queue_directory(&self, queue: QueueName<'_>) -> PathBuf {
        self.topic_directory(queue.topic).join(queue.queue_id.to_string())
    }

    fn file_bytes(&self) -> u64 {
        self.units_per_file * UNIT as u64
    }

    fn path(&self, queue: QueueName<'_>, file: u64) -> PathBuf {
        self.queue_directory(queue).join(file_name(file * self.file_bytes()))
    }

    /// The file, opened if it exists.
    fn file(&self, queue: QueueName<'_>, number: u64, no_wait: bool) -> io::Result<Option<Arc<File>>> {
        let key = (queue.number, number);
        if let Some(file) = self.open.lock().files.get(&key) {
            return Ok(Some(Arc::clone(file)));
        }
        let path = self.path(queue, number);
        let file = match no_wait {
            true => open_without_waiting(&path),
            false => File::options().read(true).write(true).open(path),
        };
        match file {
            Ok(file) => Ok(Some(self.keep(key, file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn keep(&self, key: Key, file: File) -> Arc<File> {
        let file = Arc::new(file);
        let mut open = self.open.lock();
        if open.files.insert(key, Arc::clone(&file)).is_none() {
            open.by_age.push_back(key);
        }
        while open.files.len() > OPEN_FILES_MAX || open.by_age.len() > 2 * OPEN_FILES_MAX {
            let Some(oldest) = open.by_age.pop_front() else { break };
            open.files.remove(&oldest);
        }
        file
    }

    fn forget(&self, queue: u32, which: impl Fn(u64) -> bool) {
        let mut open = self.open.lock();
        let gone: Vec<Key> = open
            .files
            .range((queue, 0)..=(queue, u64::MAX))
            .map(|(key, _)| *key)
            .filter(|(_, file)| which(*file))
            .collect();
        for key in gone {
            open.files.remove(&key);
        }
    }

    /// Writes encoded units, the first of which has queue offset `from`; they must not cross into the next file. A new file
    /// gets its full length, and blank units before `from`. Returns the file, which is yet to be synced.
    pub(crate) fn write(&self, queue: QueueName<'_>, from: i64, units: &[u8]) -> io::Result<Arc<File>> {
        let (number, at) = self.place(from);
        debug_assert!(at + units.len() as u64 <= self.file_bytes());
        let file = match self.file(queue, number, false)? {
            Some(file) => file,
            None => self.create(queue, number, at)?,
        };
        disk::write_all_at(&file, units, at)?;
        Ok(file)
    }

    fn create(&self, queue: QueueName<'_>, number: u64, blank_until: u64) -> io::Result<Arc<File>> {
        let path = self.path(queue, number);
        if let Some(directory) = path.parent() {
            disk::create_dir_all(directory)?;
        }
        let file = disk::open_or_create(&path)?;
        disk::set_len(&file, self.file_bytes())?;
        if blank_until > 0 {
            disk::write_all_at(&file, &Unit::PRE_BLANK.encode().repeat(blank_until as usize / UNIT), 0)?;
        }
        Ok(self.keep((queue.number, number), file))
    }

    /// File number and byte position of a queue offset.
    fn place(&self, queue_offset: i64) -> (u64, u64) {
        let unit = queue_offset.max(0) as u64;
        (unit / self.units_per_file, unit % self.units_per_file * UNIT as u64)
    }

    /// Reads units from queue offset `from` on into `out`, not beyond the file that holds `from`, and returns how many.
    /// With `no_wait` only what is in memory: fewer units, or [`io::ErrorKind::WouldBlock`].
    pub(crate) fn read(
        &self,
        queue: QueueName<'_>,
        from: i64,
        out: &mut [[u8; UNIT]],
        no_wait: bool,
    ) -> io::Result<usize> {
        let (number, at) = self.place(from);
        let Some(file) = self.file(queue, number, no_wait)? else { return Ok(0) };
        let count = out.len().min(((self.file_bytes() - at) / UNIT as u64) as usize);
        let mut bytes = out[..count].as_flattened_mut();
        let mut done = 0;
        while !bytes.is_empty() {
            let flags = if no_wait { ReadWriteFlags::NOWAIT } else { ReadWriteFlags::empty() };
            let read = match preadv2(&*file, &mut [io::IoSliceMut::new(bytes)], at + done as u64, flags) {
                Ok(read) => read,
                // Neither the flag nor the call is known everywhere; then a short wait is what there is.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.read_at(bytes, at + done as u64)?,
                Err(Errno::INTR) => continue,
                Err(error) if error == Errno::AGAIN && done >= UNIT => break,
                Err(error) => return Err(error.into()),
            };
            if read == 0 {
                break;
            }
            done += read;
            bytes = &mut std::mem::take(&mut bytes)[read..];
        }
        Ok(done / UNIT)
    }

    /// Numbers of the queue's files, ascending. Files of another length are made fit: they are cut short by a copy or a
    /// crash, and their content is checked against the log anyway.
    pub(crate) fn list(&self, queue: QueueName<'_>) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        let entries = match fs::read_dir(self.queue_directory(queue)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let Some(offset) = parse_file_name(&entry.file_name()) else { continue };
            if offset % self.file_bytes() != 0 {
                tracing::warn!(file = %entry.path().display(), "not at a multiple of mappedFileSizeConsumeQueue: left alone");
                continue;
            }
            let len = entry.metadata()?.len();
            if len != self.file_bytes() {
                tracing::warn!(file = %entry.path().display(), len, expected = self.file_bytes(), "length corrected");
                disk::set_len(&File::options().write(true).open(entry.path())?, self.file_bytes())?;
            }
            numbers.push(offset / self.file_bytes());
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Deletes the files that `which` names and says how many. A file that is already gone is fine.
    pub(crate) fn delete(
        &self,
        queue: QueueName<'_>,
        numbers: &[u64],
        which: impl Fn(u64) -> bool,
    ) -> io::Result<usize> {
        self.forget(queue.number, &which);
        let mut deleted = 0;
        for number in numbers.iter().filter(|number| which(**number)) {
            match disk::remove_file(&self.path(queue, *number)) {
                Ok(()) => deleted += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    /// Overwrites everything from queue offset `from` to the end of its file with zeros.
    pub(crate) fn zero_from(&self, queue: QueueName<'_>, from: i64) -> io::Result<()> {
        let (number, at) = self.place(from);
        if let Some(file) = self.file(queue, number, false)? {
            // Cut and extended: what comes back reads as zeros.
            disk::set_len(&file, at)?;
            disk::set_len(&file, self.file_bytes())?;
        }
        Ok(())
    }

    /// Removes the directories of a topic with everything in them.
    pub(crate) fn delete_topic(&self, topic: &str) -> io::Result<()> {
        match disk::remove_dir_all(&self.topic_directory(topic)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Closes every open file of a queue.
    pub(crate) fn close(&self, queue: u32) {
        self.forget(queue, |_| true);
    }

    /// Hands out the names of the topics that have a directory.
    pub(crate) fn for_each_topic(&self, mut take: impl FnMut(&str)) -> io::Result<()> {
        for directory in [&self.directory, &self.batch_directory] {
            let topics = match fs::read_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                topics => topics?,
            };
            for topic in topics {
                let topic = topic?;
                if topic.file_type()?.is_dir()
                    && let Some(name) = topic.file_name().to_str()
                {
                    take(name);
                }
            }
        }
        Ok(())
    }

    /// Queue ids of a topic for which there are directories, ascending.
    pub(crate) fn queue_ids(&self, topic: &str) -> io::Result<Vec<i32>> {
        let queues = match fs::read_dir(self.topic_directory(topic)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            queues => queues?,
        };
        let mut ids = Vec::new();
        for queue in queues {
            ids.extend(queue?.file_name().to_str().and_then(|id| id.parse::<i32>().ok()));
        }
        ids.sort_unstable();
        Ok(ids)
    }
}

/// Opens a file if the system has everything in memory that it must know of it, else [`io::ErrorKind::WouldBlock`]; also where
/// that can't be asked (Linux before 5.12).
fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(file) => Ok(file.into()),
        Err(Errno::NOENT) => Err(io::ErrorKind::NotFound.into()),
        Err(_) => Err(io::ErrorKind::WouldBlock.into()),
    }
}
