//! The lock file: one process per store (`docs/spec/02-store.md` §9.3).

use std::fs::{File, TryLockError};
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::disk;
use crate::error::{FileError, OpenError};

/// Held as long as the store is open; the operating system gives it back when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
}

impl StoreLock {
    /// Takes the lock before anything else in the store is looked at.
    pub(crate) fn take(root: &Path) -> Result<StoreLock, OpenError> {
        disk::create_dir_all(root).map_err(FileError::at("create", root))?;
        let path = root.join("lock");
        let file = disk::open_or_create(&path).map_err(FileError::at("open", &path))?;
        let locked = || OpenError::Locked { root: root.to_path_buf() };
        // A record lock excludes the Java broker, which takes the same kind. It does not exclude this very process; the
        // other kind, which belongs to the open file, does.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked()),
            Err(TryLockError::Error(error)) => return Err(FileError::at("lock", &path)(error).into()),
        }
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::ACCESS | Errno::AGAIN) => return Err(locked()),
            Err(error) => return Err(FileError::at("lock", &path)(error.into()).into()),
        }
        if file.metadata().map_err(FileError::at("stat", &path))?.len() != 4 {
            disk::write_all_at(&file, b"lock", 0).map_err(FileError::at("write", &path))?;
        }
        Ok(StoreLock { file })
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Closing would do, were it not for a child process between fork and exec, which has the file open too.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_until_the_first_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let first = StoreLock::take(root.path()).unwrap();
        assert!(matches!(StoreLock::take(root.path()), Err(OpenError::Locked { .. })));
        drop(first);
        StoreLock::take(root.path()).unwrap();
        assert_eq!(std::fs::read(root.path().join("lock")).unwrap(), b"lock");
    }
}
