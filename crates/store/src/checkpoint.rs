//! The files that tell the next start how this run ended: `checkpoint` and `abort`, in the format that the Java broker
//! reads too (`docs/spec/02-store.md` §9.1, §9.2).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::error::FileError;

const LEN: u64 = 4096;

/// The times in the checkpoint file: up to where the log and its projections are on the disk. We keep them truthful for
/// a Java broker that is started on our files; our own recovery relies on [`Marks`](crate::marks::Marks).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CheckpointTimes {
    /// Store time of the newest record on the disk.
    pub(crate) physic_ms: i64,
    /// Store time of the newest record whose unit is on the disk.
    pub(crate) logics_ms: i64,
    /// End time of the newest full index file.
    pub(crate) index_ms: i64,
    /// What a slave was told of how far its master has flushed.
    pub(crate) master_flushed_offset: i64,
}

/// The checkpoint file.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    file: File,
}

impl Checkpoint {
    pub(crate) fn open(root: &Path) -> Result<Checkpoint, FileError> {
        let path = root.join("checkpoint");
        let file = disk::open_or_create(&path).map_err(FileError::at("open", &path))?;
        let len = file.metadata().map_err(FileError::at("stat", &path))?.len();
        if len != LEN {
            disk::set_len(&file, LEN).map_err(FileError::at("resize", &path))?;
        }
        Ok(Checkpoint { path, file })
    }

    /// Seconds of the file's last change: another broker that ran on this store has changed it.
    pub(crate) fn modified_s(&self) -> Result<i64, FileError> {
        Ok(self.file.metadata().map_err(FileError::at("stat", &self.path))?.mtime())
    }

    pub(crate) fn write(&self, times: CheckpointTimes, sync: bool) -> Result<(), FileError> {
        let mut bytes = [0; 40];
        bytes[..8].copy_from_slice(&times.physic_ms.to_be_bytes());
        bytes[8..16].copy_from_slice(&times.logics_ms.to_be_bytes());
        bytes[16..24].copy_from_slice(&times.index_ms.to_be_bytes());
        bytes[24..32].copy_from_slice(&times.master_flushed_offset.to_be_bytes());
        disk::write_all_at(&self.file, &bytes, 0).map_err(FileError::at("write", &self.path))?;
        if sync {
            disk::sync_data(&self.file).map_err(FileError::at("flush", &self.path))?;
        }
        Ok(())
    }

    /// The times as they are in the file; zeros, which promise nothing, if they can't be made out.
    pub(crate) fn read(&self) -> Result<CheckpointTimes, FileError> {
        let bytes = fs::read(&self.path).map_err(FileError::at("read", &self.path))?;
        Ok(CheckpointTimes::decode(&bytes).unwrap_or_default())
    }
}

impl CheckpointTimes {
    /// Reads the bytes of a checkpoint file; `None` if it has another length than such a file.
    pub(crate) fn decode(bytes: &[u8]) -> Option<CheckpointTimes> {
        let at = |at: usize| {
            let time = bytes.get(at..)?.first_chunk::<8>()?;
            Some(i64::from_be_bytes(*time))
        };
        let (physic_ms, logics_ms, index_ms) = (at(0)?, at(8)?, at(16)?);
        let times = CheckpointTimes { physic_ms, logics_ms, index_ms, master_flushed_offset: at(24)? };
        (bytes.len() as u64 == LEN).then_some(times)
    }
}

/// Content of the abort file; `None` when there is none, that is, after a clean stop.
pub(crate) fn read_abort(root: &Path) -> Result<Option<String>, FileError> {
    let path = root.join("abort");
    match fs::read(&path) {
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::at("read", &path)(error)),
    }
}

/// Writes the abort file, for good: from now on an exit is unclean.
pub(crate) fn write_abort(root: &Path, token: &str) -> Result<(), FileError> {
    let path = root.join("abort");
    let write = || {
        let file = disk::create_empty(&path)?;
        disk::write_all_at(&file, token.as_bytes(), 0)?;
        disk::sync_all(&file)?;
        disk::sync_directory(root)
    };
    write().map_err(FileError::at("write", &path))
}

/// Removes the abort file, for good: the stop was clean.
pub(crate) fn remove_abort(root: &Path) -> Result<(), FileError> {
    let path = root.join("abort");
    match disk::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::at("delete", &path)(error)),
        _ => disk::sync_directory(root).map_err(FileError::at("flush", root)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkpoint_is_that_of_the_reference() {
        // docs/spec/02-store.md §18.8
        let root = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(root.path()).unwrap();
        let times = CheckpointTimes { logics_ms: 1_700_000_004_234, ..CheckpointTimes::default() };
        checkpoint.write(times, true).unwrap();
        assert_eq!(checkpoint.read().unwrap(), times);
        let bytes = fs::read(root.path().join("checkpoint")).unwrap();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(bytes[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x8b, 0xcf, 0xe5, 0x78, 0x8a]);
        assert!(bytes[16..].iter().all(|byte| *byte == 0));
        fs::write(root.path().join("checkpoint"), [1; 100]).unwrap();
        Checkpoint::open(root.path()).unwrap();
        assert_eq!(
            fs::metadata(root.path().join("checkpoint")).unwrap().len(),
            4096,
            "a short one is made whole"
        );
    }

    #[test]
    fn abort_comes_and_goes() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read_abort(root.path()).unwrap(), None);
        write_abort(root.path(), "17 x").unwrap();
        assert_eq!(read_abort(root.path()).unwrap().as_deref(), Some("17 x"));
        remove_abort(root.path()).unwrap();
        remove_abort(root.path()).unwrap();
        assert_eq!(read_abort(root.path()).unwrap(), None);
    }
}
