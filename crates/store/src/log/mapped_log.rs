//! The row of log files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Segment, file_name, parse_file_name, reserve_blocks};
use crate::disk;
use crate::error::FileError;
use crate::mapped::MappedFile;

/// A log file found on disk, before it is mapped.
#[derive(Debug)]
pub(crate) struct LoadedFile {
    pub(crate) base: u64,
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
}

/// The log files of a directory by ascending offset. Sub-directories and files whose name is not an offset are left
/// alone, the latter with a warning.
pub(crate) fn load_files(directory: &Path) -> Result<Vec<LoadedFile>, FileError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(FileError::at("list", directory))? {
        let entry = entry.map_err(FileError::at("list", directory))?;
        let metadata = entry.metadata().map_err(FileError::at("stat", &entry.path()))?;
        if metadata.is_dir() {
            continue;
        }
        match parse_file_name(&entry.file_name()) {
            Some(base) => files.push(LoadedFile { base, path: entry.path(), len: metadata.len() }),
            None => {
                tracing::warn!(file = %entry.path().display(), "not a log file (its name is no offset): left alone");
            }
        }
    }
    files.sort_by_key(|file| file.base);
    Ok(files)
}

/// The mapped files of the log. Cheap to look up in; changed only when a file begins or is deleted.
#[derive(Debug)]
pub(crate) struct MappedLog {
    file_size: u32,
    segments: RwLock<Vec<Arc<Segment>>>,
}

impl MappedLog {
    pub(crate) fn new(file_size: u32, segments: Vec<Arc<Segment>>) -> Self {
        debug_assert!(segments.is_sorted_by_key(|segment| segment.base()));
        MappedLog { file_size, segments: RwLock::new(segments) }
    }

    /// Creates the file that begins at `base`, with real blocks, and maps it. A file that is there is taken over: it was
    /// prepared before a restart, and recovery has made sure that it holds nothing.
    pub(crate) fn create(directory: &Path, base: u64, size: u32) -> io::Result<Arc<Segment>> {
        let path = directory.join(file_name(base));
        let file = disk::open_or_create(&path)?;
        if let Err(error) = reserve_blocks(&file, 0, u64::from(size)) {
            // Half a file would only take the space that is missing.
            let _ = disk::remove_file(&path);
            return Err(error);
        }
        // For good, with its length: when the files before it are deleted, only its name tells where the log goes on.
        disk::sync_all(&file)?;
        disk::sync_directory(directory)?;
        Ok(Arc::new(Segment::new(base, MappedFile::map(&path, file, size)?)))
    }

    pub(crate) fn push(&self, segment: Arc<Segment>) {
        let mut segments = self.segments.write();
        debug_assert!(segments.last().is_none_or(|last| last.end() <= segment.base()));
        segments.push(segment);
    }

    /// The file that holds `offset`.
    pub(crate) fn segment_at(&self, offset: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let first = segments.first()?;
        // Without missing files in between, the place is a division away.
        let guess = (offset.checked_sub(first.base())? / u64::from(self.file_size)) as usize;
        let holds = |segment: &&Arc<Segment>| segment.base() <= offset && offset < segment.end();
        if let Some(segment) = segments.get(guess).filter(holds) {
            return Some(Arc::clone(segment));
        }
        let behind = segments.partition_point(|segment| segment.base() <= offset);
        segments.get(behind.checked_sub(1)?).filter(holds).cloned()
    }

    /// The first file that begins at or after `offset`.
    pub(crate) fn segment_from(&self, offset: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        segments.get(segments.partition_point(|segment| segment.base() < offset)).cloned()
    }

    /// The files that are left when the log ends at `offset`, and the others. A log keeps at least one file.
    pub(crate) fn split(&self, offset: u64) -> (Vec<Arc<Segment>>, Vec<Arc<Segment>>) {
        let segments = self.segments.read();
        let kept = segments.partition_point(|segment| segment.base() < offset).max(1).min(segments.len());
        (segments[..kept].to_vec(), segments[kept..].to_vec())
    }

    /// Puts these files in the place of all.
    pub(crate) fn replace(&self, segments: Vec<Arc<Segment>>) {
        *self.segments.write() = segments;
    }

    pub(crate) fn all(&self) -> Vec<Arc<Segment>> {
        self.segments.read().clone()
    }

    /// The first file, unless it is the last one too: that tells where the log goes on.
    pub(crate) fn first_of_more(&self) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        segments.first().filter(|_| segments.len() > 1).cloned()
    }

    /// Begin of the first file; 0 without files.
    pub(crate) fn min_offset(&self) -> u64 {
        self.segments.read().first().map_or(0, |segment| segment.base())
    }

    /// Takes the first file out, if it is `base` and not the last one. Reads that are under way keep it mapped.
    pub(crate) fn remove_first(&self, base: u64) -> Option<Arc<Segment>> {
        let mut segments = self.segments.write();
        (segments.len() > 1 && segments[0].base() == base).then(|| segments.remove(0))
    }

    /// Forces `from..to` to the device.
    pub(crate) fn flush(&self, from: u64, to: u64) -> Result<(), FileError> {
        let due: Vec<_> = {
            let segments = self.segments.read();
            segments.iter().filter(|segment| segment.base() < to && from < segment.end()).cloned().collect()
        };
        for segment in due {
            let (from, to) = (from.max(segment.base()), to.min(segment.end()));
            segment.mapped().unmap_pages((from - segment.base()) as u32, (to - from) as u32);
            segment.mapped().flush().map_err(FileError::at("flush", segment.path()))?;
        }
        Ok(())
    }

    /// Writes the finished pages of `from..to` to the device and returns the end of the last one. The page that is being
    /// appended to, and those ahead of it, are left alone. [`Journal::commit`](super::Journal::commit) makes it durable.
    pub(crate) fn write_finished_pages(&self, from: u64, to: u64) -> Result<u64, FileError> {
        self.write_up_to(from, |segment| finished(segment, to))
    }

    /// The same with the page that is being appended to.
    pub(crate) fn write_pages(&self, from: u64, to: u64) -> Result<u64, FileError> {
        self.write_up_to(from, |segment| to.clamp(segment.base(), segment.end()))
    }

    fn write_up_to(&self, from: u64, end_in: impl Fn(&Segment) -> u64) -> Result<u64, FileError> {
        let mut end = from;
        for segment in self.all() {
            let (from, to) = (from.max(segment.base()), end_in(&segment));
            if from >= to {
                continue;
            }
            let mapped = segment.mapped();
            let written = if to == segment.end() {
                mapped.flush()
            } else {
                mapped.write_back((from - segment.base()) as u32, (to - from) as u32)
            };
            written.map_err(FileError::at("flush", segment.path()))?;
            end = to;
        }
        Ok(end)
    }

    /// Starts the writing of the finished pages of `from..to` without waiting.
    pub(crate) fn start_write_back(&self, from: u64, to: u64) {
        for segment in self.all() {
            let (from, to) = (from.max(segment.base()), finished(&segment, to));
            if from < to {
                segment.mapped().start_write_back((from - segment.base()) as u32, (to - from) as u32);
            }
        }
    }
}

/// The end of the last group of pages of a segment that a log which ends at `end` will not come back to.
fn finished(segment: &Segment, end: u64) -> u64 {
    let end = end.clamp(segment.base(), segment.end());
    if end == segment.end() { end } else { end - (end - segment.base()) % segment.mapped().page_group() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_offset_also_around_a_gap() {
        let directory = tempfile::tempdir().unwrap();
        let log = MappedLog::new(4096, Vec::new());
        assert_eq!(
            (log.min_offset(), log.segment_at(0).is_none(), log.first_of_more().is_none()),
            (0, true, true)
        );
        for base in [8192, 12288, 20480] {
            log.push(MappedLog::create(directory.path(), base, 4096).unwrap());
        }
        let base_at = |offset| log.segment_at(offset).map(|segment| segment.base());
        assert_eq!(base_at(8191), None);
        assert_eq!(base_at(8192), Some(8192));
        assert_eq!(base_at(16383), Some(12288));
        assert_eq!(base_at(16384), None);
        assert_eq!(base_at(20481), Some(20480));
        assert_eq!(base_at(24576), None);
        assert_eq!(log.segment_from(12289).map(|segment| segment.base()), Some(20480));
        assert_eq!(log.first_of_more().map(|segment| segment.base()), Some(8192));
        assert!(log.remove_first(12288).is_none());
        assert!(log.remove_first(8192).is_some());
        assert_eq!(log.min_offset(), 12288);
        assert!(log.remove_first(12288).is_some());
        assert!(log.first_of_more().is_none() && log.remove_first(20480).is_none(), "the last file stays");
    }

    #[test]
    fn foreign_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["00000000000000004096", "00000000000000000000", "notes.txt", "0000000000000000000x"] {
            fs::write(directory.path().join(name), b"x").unwrap();
        }
        fs::create_dir(directory.path().join("00000000000000008192")).unwrap();
        let files = load_files(directory.path()).unwrap();
        assert_eq!(files.iter().map(|file| file.base).collect::<Vec<_>>(), [0, 4096]);
        assert!(directory.path().join("notes.txt").exists());
    }
}
