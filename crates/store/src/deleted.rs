//! Which topics were deleted, and up to where of the log.
//!
//! The log keeps a deleted topic's records until they expire. So that no rebuild, restart or look-up brings them back, the
//! store remembers per deleted topic the offset below which its records do not count. The file (`deletedTopics`, text) is
//! written before the deletion takes effect; of two lines of a topic the later counts; an entry goes away when the log begins behind it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::disk;
use crate::error::FileError;

const FILE: &str = "deletedTopics";

/// The deleted topics of a store.
#[derive(Debug)]
pub(crate) struct DeletedTopics {
    path: PathBuf,
    /// Topic to the offset below which its records are gone.
    topics: RwLock<HashMap<String, u64>>,
    /// The highest of those offsets: most records lie behind it and need no look-up.
    highest: AtomicU64,
    /// The file holds something else, too: what is left of an entry that did not get to the disk as a whole.
    is_torn: bool,
}

impl DeletedTopics {
    pub(crate) fn load(root: &Path) -> Result<DeletedTopics, FileError> {
        let path = root.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(FileError::at("read", &path)(error)),
        };
        let mut topics = HashMap::new();
        let mut is_torn = false;
        for line in String::from_utf8_lossy(&bytes).split_inclusive('\n') {
            let entry = line.strip_suffix('\n').and_then(|line| line.split_once(' '));
            match entry.and_then(|(offset, topic)| Some((offset.parse::<u64>().ok()?, topic))) {
                Some((offset, topic)) => {
                    topics.insert(topic.to_owned(), offset);
                }
                None => {
                    tracing::warn!(file = %path.display(), line, "not an entry: ignored");
                    is_torn = true;
                }
            }
        }
        let highest = AtomicU64::new(topics.values().copied().max().unwrap_or(0));
        Ok(DeletedTopics { path, topics: RwLock::new(topics), highest, is_torn })
    }

    /// Writes the file anew if it holds something else than entries: the next one must not run into it.
    pub(crate) fn mend(&self) -> Result<(), FileError> {
        if self.is_torn { self.save(&self.topics.read()) } else { Ok(()) }
    }

    /// No topic was deleted.
    pub(crate) fn none() -> DeletedTopics {
        DeletedTopics {
            path: PathBuf::new(),
            topics: RwLock::default(),
            highest: AtomicU64::new(0),
            is_torn: false,
        }
    }

    /// Whether the record of `topic` at `physical_offset` was deleted with its topic.
    #[inline]
    pub(crate) fn covers(&self, topic: &str, physical_offset: u64) -> bool {
        physical_offset < self.highest.load(Ordering::Acquire)
            && self.topics.read().get(topic).is_some_and(|below| physical_offset < *below)
    }

    /// The topics, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.topics.read().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// The topics, with the offset below which their records are gone, unless that is behind `offset`.
    pub(crate) fn up_to(&self, offset: u64) -> BTreeMap<String, u64> {
        let topics = self.topics.read();
        topics
            .iter()
            .filter(|(_, below)| **below <= offset)
            .map(|(name, below)| (name.clone(), *below))
            .collect()
    }

    /// Remembers that the records of these topics below the offset of each are deleted. Quick: the entries survive the death of
    /// the process at once, that of the machine after [`sync`](Self::sync).
    pub(crate) fn add<'t>(
        &self,
        deletions: impl Iterator<Item = (&'t str, u64)> + Clone,
    ) -> Result<(), FileError> {
        let mut topics = self.topics.write();
        let lines: String = deletions.clone().map(|(name, below)| format!("{below} {name}\n")).collect();
        let append = || {
            let file = disk::open_or_create(&self.path)?;
            disk::write_all_at(&file, lines.as_bytes(), file.metadata()?.len())
        };
        append().map_err(FileError::at("write", &self.path))?;
        for (name, below) in deletions {
            topics.insert(name.to_owned(), below);
            self.highest.fetch_max(below, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Forces the entries, if there are any, to the disk.
    pub(crate) fn sync(&self) -> Result<(), FileError> {
        let sync = || -> io::Result<()> {
            match File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                file => disk::sync_all(&file?)?,
            }
            self.path.parent().map_or(Ok(()), disk::sync_directory)
        };
        sync().map_err(FileError::at("flush", &self.path))
    }

    /// The topics that got nothing in a log that ends at `log_end` since they were deleted, in order.
    pub(crate) fn empty_since(&self, log_end: u64) -> Vec<String> {
        let topics = self.topics.read();
        let behind = topics.iter().filter(|(_, below)| **below >= log_end);
        let mut names: Vec<String> = behind.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The log ends at `log_end`: what comes there is new, also when a deletion had been behind it before a crash cut the log.
    pub(crate) fn end_with_log(&self, log_end: u64) -> Result<(), FileError> {
        let mut topics = self.topics.write();
        if topics.values().all(|below| *below <= log_end) {
            return Ok(());
        }
        topics.values_mut().for_each(|below| *below = log_end.min(*below));
        self.highest.store(log_end, Ordering::Release);
        self.save(&topics)
    }

    /// Forgets entries that the log no longer reaches back to.
    pub(crate) fn trim(&self, log_min: u64) -> Result<(), FileError> {
        let mut topics = self.topics.write();
        if topics.values().all(|below| *below > log_min) {
            return Ok(());
        }
        topics.retain(|_, below| *below > log_min);
        self.save(&topics)
    }

    fn save(&self, topics: &HashMap<String, u64>) -> Result<(), FileError> {
        let write = || -> io::Result<()> {
            let temporary = self.path.with_extension("tmp");
            let mut text = String::new();
            for (topic, below) in topics {
                text.push_str(&format!("{below} {topic}\n"));
            }
            let file = disk::create_empty(&temporary)?;
            disk::write_all_at(&file, text.as_bytes(), 0)?;
            disk::sync_all(&file)?;
            disk::rename(&temporary, &self.path)?;
            self.path.parent().map_or(Ok(()), disk::sync_directory)
        };
        write().map_err(FileError::at("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_a_restart_and_end_with_the_log() {
        let root = tempfile::tempdir().unwrap();
        let deleted = DeletedTopics::load(root.path()).unwrap();
        assert!(!deleted.covers("a", 0));
        deleted.add([("a", 100), ("b c", 100)].into_iter()).unwrap();
        deleted.add([("d", 50)].into_iter()).unwrap();
        deleted.sync().unwrap();
        let deleted = DeletedTopics::load(root.path()).unwrap();
        assert!(deleted.covers("a", 99) && !deleted.covers("a", 100));
        assert!(deleted.covers("b c", 0) && deleted.covers("d", 49) && !deleted.covers("d", 50));
        assert!(!deleted.covers("e", 0));
        deleted.end_with_log(70).unwrap();
        let deleted = DeletedTopics::load(root.path()).unwrap();
        assert!(deleted.covers("a", 69) && !deleted.covers("a", 70) && deleted.covers("d", 49));
        deleted.trim(50).unwrap();
        assert!(!deleted.covers("d", 1));
        assert!(DeletedTopics::load(root.path()).unwrap().covers("a", 1));
        fs::write(root.path().join(FILE), "nonsense\n7 x\n").unwrap();
        assert!(DeletedTopics::load(root.path()).unwrap().covers("x", 6));
    }

    #[test]
    fn an_entry_that_is_not_whole_takes_no_other_with_it() {
        for torn in ["\0\0\0\0", "12 To", "12", "\u{fffd} \n"] {
            let root = tempfile::tempdir().unwrap();
            fs::write(root.path().join(FILE), format!("7 x\n{torn}")).unwrap();
            let deleted = DeletedTopics::load(root.path()).unwrap();
            deleted.mend().unwrap();
            assert!(!deleted.covers("To", 1));
            deleted.add([("y", 9)].into_iter()).unwrap();
            let deleted = DeletedTopics::load(root.path()).unwrap();
            assert!(deleted.covers("x", 6) && deleted.covers("y", 8), "{torn:?}");
        }
    }
}
