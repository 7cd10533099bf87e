//! Look-up of messages by key: the index files (`docs/spec/02-store.md` §8).

mod file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferromq_protocol::message::{java_string_hash, java_string_hash_onto};
use parking_lot::RwLock;

use crate::clock::{local_time, now_ms};
use crate::disk;
use crate::error::FileError;
pub(crate) use file::IndexFile;

/// All index files of a store.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    directory: PathBuf,
    slots: u32,
    units: u32,
    files: RwLock<Vec<Arc<IndexFile>>>,
    /// A file was created since the last flush: its name may not be on the device.
    has_new_file: AtomicBool,
}

/// The hash that an index file keeps of a key: the absolute value of Java's hash, 0 for the one that has none.
pub(crate) fn key_hash(hash: i32) -> u32 {
    hash.checked_abs().unwrap_or(0) as u32
}

/// Hash of `topic#`, which the hashes of a message's keys continue.
pub(crate) fn topic_hash(topic: &str) -> i32 {
    java_string_hash_onto(java_string_hash(topic), "#")
}

/// Paths of the index files of a directory, oldest first.
pub(crate) fn index_files(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(FileError::at("list", directory))? {
        let path = entry.map_err(FileError::at("list", directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.is_empty() && name.len() <= 20 && name.bytes().all(|b| b.is_ascii_digit()) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

impl KeyIndex {
    /// Loads the index files. What can't be opened or has an impossible header is deleted, with everything behind it: the
    /// log will be indexed again from there.
    pub(crate) fn load(directory: PathBuf, slots: u32, units: u32) -> Result<KeyIndex, FileError> {
        IndexFile::size(slots, units).map_err(FileError::at("size", &directory))?;
        disk::create_dir_all(&directory).map_err(FileError::at("create", &directory))?;
        let paths = index_files(&directory)?;
        let mut files: Vec<Arc<IndexFile>> = Vec::new();
        let mut broken = None;
        for (at, path) in paths.iter().enumerate() {
            let fits = |file: &IndexFile| {
                file.is_plausible()
                    && files
                        .last()
                        .is_none_or(|last| last.is_full() && last.end_offset() <= file.begin_offset())
            };
            match IndexFile::open(path, slots, units) {
                Ok(file) if fits(&file) => files.push(Arc::new(file)),
                Ok(_) => broken = Some((at, "its header can't be right".to_owned())),
                Err(error) => broken = Some((at, error.to_string())),
            }
            if broken.is_some() {
                break;
            }
        }
        if let Some((at, reason)) = broken {
            tracing::warn!(file = %paths[at].display(), reason, newer_files = paths.len() - at - 1, "index file dropped, its keys are indexed again");
            for path in &paths[at..] {
                disk::remove_file(path).map_err(FileError::at("delete", path))?;
            }
        }
        if let Some(last) = files.last() {
            last.reserve().map_err(FileError::at("allocate", &last.path()))?;
        }
        Ok(KeyIndex {
            directory,
            slots,
            units,
            files: RwLock::new(files),
            has_new_file: AtomicBool::new(true),
        })
    }

    /// Store time and physical offset of the newest indexed message; zeros without any.
    pub(crate) fn end(&self) -> (i64, u64) {
        self.files.read().last().map_or((0, 0), |last| (last.end_timestamp(), last.end_offset()))
    }

    /// The physical offset behind which no message is indexed, plus one; 0 without any.
    pub(crate) fn reaches_to(&self) -> u64 {
        let files = self.files.read();
        let newest = files.iter().rev().find(|file| !file.is_empty());
        newest.map_or(0, |newest| newest.end_offset() + 1)
    }

    /// First and last physical offset of every file that holds a key.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let files = self.files.read();
        files
            .iter()
            .filter(|file| !file.is_empty())
            .map(|file| (file.begin_offset(), file.end_offset()))
            .collect()
    }

    /// Deletes every file.
    pub(crate) fn clear(&self) -> Result<(), FileError> {
        self.drop_files(|_| true).map(|_| ())
    }

    /// Deletes the files that are not full, or end at `flushed_ms` (`indexMsgTimestamp` of the checkpoint) or later: they may not
    /// have been on the device when the machine lost power.
    pub(crate) fn drop_unflushed(&self, flushed_ms: i64) -> Result<(), FileError> {
        self.drop_files(|file| !file.is_full() || file.end_timestamp() >= flushed_ms).map(|_| ())
    }

    /// Deletes the files that hold keys of a message at or behind `physical_offset`: what they hold may not be whole. Returns
    /// where the first of them began.
    pub(crate) fn drop_behind_if_unsure(&self, physical_offset: u64) -> Result<Option<u64>, FileError> {
        self.drop_files(|file| !file.is_empty() && file.end_offset() >= physical_offset)
    }

    fn drop_files(&self, which: impl Fn(&IndexFile) -> bool) -> Result<Option<u64>, FileError> {
        let mut files = self.files.write();
        let mut first = None;
        let mut kept = Vec::new();
        for file in files.drain(..) {
            if first.is_none() && !which(&file) {
                kept.push(file);
                continue;
            }
            first.get_or_insert(file.begin_offset());
            disk::remove_file(&file.path()).map_err(FileError::at("delete", &file.path()))?;
        }
        *files = kept;
        Ok(first)
    }

    /// Adds the keys of one message; `hashes` are [`key_hash`]es. Messages must come in the order of the log; one that is
    /// indexed already is left out.
    pub(crate) fn put(&self, hashes: &[u32], physical_offset: u64, store_timestamp: i64) -> io::Result<()> {
        if hashes.is_empty() {
            return Ok(());
        }
        let files = self.files.read();
        if let Some(last) = files.last()
            && last.has_room_for(hashes.len())
            && physical_offset > last.end_offset()
        {
            hashes.iter().for_each(|hash| last.put(*hash, physical_offset, store_timestamp));
            return Ok(());
        }
        let last = files.last().cloned();
        drop(files);
        // An empty file carries on the end of the one before.
        let end = last.as_ref().map_or(0, |last| last.end_offset());
        if physical_offset < end {
            return Ok(());
        }
        let mut last = match last.filter(|last| !last.is_full()) {
            Some(last) => last,
            None => self.writable()?,
        };
        if physical_offset == end {
            // Perhaps the process died between two keys of this message.
            let missing: Vec<u32> =
                hashes.iter().copied().filter(|hash| !self.has(*hash, physical_offset)).collect();
            for hash in missing {
                last = self.put_one(last, hash, physical_offset, store_timestamp)?;
            }
            return Ok(());
        }
        for hash in hashes {
            last = self.put_one(last, *hash, physical_offset, store_timestamp)?;
        }
        Ok(())
    }

    fn put_one(
        &self,
        last: Arc<IndexFile>,
        hash: u32,
        physical_offset: u64,
        store_timestamp: i64,
    ) -> io::Result<Arc<IndexFile>> {
        let last = if last.is_full() { self.writable()? } else { last };
        last.put(hash, physical_offset, store_timestamp);
        Ok(last)
    }

    fn has(&self, hash: u32, physical_offset: u64) -> bool {
        let mut found = false;
        for file in self.files.read().iter().rev().take(2) {
            file.walk(hash, |hit| {
                found |= hit.physical_offset == physical_offset;
                !found && hit.physical_offset > physical_offset
            });
        }
        found
    }

    /// The file to write to; a new one if there is none or it is full.
    fn writable(&self) -> io::Result<Arc<IndexFile>> {
        if let Some(last) = self.files.read().last().filter(|last| !last.is_full()) {
            return Ok(Arc::clone(last));
        }
        let (end_timestamp, end_offset) = self.end();
        // Named by local time; a name that is taken (two files in one millisecond) is counted up.
        let mut name: u64 = local_time(now_ms());
        let newest =
            self.files.read().last().and_then(|last| last.path().file_name()?.to_str()?.parse::<u64>().ok());
        name = name.max(newest.map_or(0, |newest| newest + 1));
        let path = self.directory.join(format!("{name:017}"));
        let file = Arc::new(IndexFile::create(&path, self.slots, self.units, end_timestamp, end_offset)?);
        self.files.write().push(Arc::clone(&file));
        self.has_new_file.store(true, Ordering::Release);
        Ok(file)
    }

    /// Physical offsets of a key hash, newest first, until `take` says no. An offset can come more than once.
    pub(crate) fn look_up(&self, hash: u32, begin_ms: i64, mut take: impl FnMut(u64) -> bool) {
        let files = self.files.read().clone();
        for file in files.iter().rev().filter(|file| !file.is_empty()) {
            let mut go_on = true;
            file.walk(hash, |hit| {
                go_on = take(hit.physical_offset);
                go_on
            });
            if !go_on || file.begin_timestamp() < begin_ms {
                return;
            }
        }
    }

    /// Forces the files to the device.
    pub(crate) fn flush(&self) -> Result<(), FileError> {
        let files = self.files.read().clone();
        for file in files.iter() {
            file.flush().map_err(FileError::at("flush", &file.path()))?;
        }
        if self.has_new_file.swap(false, Ordering::AcqRel)
            && let Err(error) = disk::sync_directory(&self.directory)
        {
            self.has_new_file.store(true, Ordering::Release);
            return Err(FileError::at("flush", &self.directory)(error));
        }
        Ok(())
    }

    /// End time of the newest full file: `indexMsgTimestamp` of the checkpoint.
    pub(crate) fn full_until(&self) -> i64 {
        self.files.read().iter().rev().find(|file| file.is_full()).map_or(0, |file| file.end_timestamp())
    }

    /// Deletes files all of whose messages lie before the log's first offset, except for the newest. Returns how many.
    pub(crate) fn delete_expired(&self, log_min: u64) -> Result<usize, FileError> {
        // Nobody who indexes or looks up waits until the disk has done it.
        let expired: Vec<_> = {
            let mut files = self.files.write();
            let newest = files.len().saturating_sub(1);
            let expired = files[..newest].iter().take_while(|file| file.end_offset() < log_min).count();
            files.drain(..expired).collect()
        };
        for file in &expired {
            disk::remove_file(&file.path()).map_err(FileError::at("delete", &file.path()))?;
        }
        Ok(expired.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_indexed_is_not_indexed_again_though_the_newest_file_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let index = KeyIndex::load(directory.path().to_path_buf(), 5, 4).unwrap();
        for round in 0..2 {
            for offset in [0, 100, 200] {
                index.put(&[7], offset, 1000 + offset as i64).unwrap();
            }
            assert_eq!(index.ranges(), [(0, 200)], "round {round}");
        }
        assert_eq!(index.reaches_to(), 201);
        index.put(&[7, 8], 300, 1300).unwrap();
        index.put(&[7, 8], 300, 1300).unwrap();
        assert_eq!(index.ranges(), [(0, 200), (300, 300)]);
        let mut found = Vec::new();
        index.look_up(7, 0, |offset| {
            found.push(offset);
            true
        });
        assert_eq!(found, [300, 200, 100, 0]);
    }

    #[test]
    fn files_that_may_not_be_on_the_disk_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let load = || KeyIndex::load(directory.path().to_path_buf(), 5, 3).unwrap();
        let index = load();
        for offset in [0, 100, 200, 300, 400] {
            index.put(&[7], offset, 1000 + offset as i64).unwrap();
        }
        assert_eq!(index.ranges(), [(0, 100), (200, 300), (400, 400)]);
        // A key of the message at the mark itself is not below it.
        assert_eq!(index.drop_behind_if_unsure(401).unwrap(), None);
        assert_eq!(index.drop_behind_if_unsure(400).unwrap(), Some(400));
        index.drop_unflushed(1301).unwrap();
        assert_eq!(index.ranges(), [(0, 100), (200, 300)]);
        index.drop_unflushed(1300).unwrap();
        assert_eq!(load().ranges(), [(0, 100)]);
    }
}
