//! The lock file: one process per store (`docs/spec/02-store.md` §9.3).

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::checkpoint::read_abort;
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
        // A record lock excludes the Java broker, which takes the same kind. It does not exclude this very process; the
        // other kind, which belongs to the open file, does.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(root, &file)),
            Err(TryLockError::Error(error)) => return Err(FileError::at("lock", &path)(error).into()),
        }
        lock_record(root, &path, &file, FlockOperation::NonBlockingLockExclusive)?;
        if file.metadata().map_err(FileError::at("stat", &path))?.len() != 4 {
            disk::write_all_at(&file, b"lock", 0).map_err(FileError::at("write", &path))?;
        }
        Ok(StoreLock { file })
    }

    /// Keeps brokers away while the store is looked into, and changes nothing: others may look into it at the same time.
    /// `None` if there is no lock file, that is, if no broker can be holding it.
    pub(crate) fn take_to_look(root: &Path) -> Result<Option<StoreLock>, OpenError> {
        let path = root.join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::at("open", &path)(error).into()),
        };
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(root, &file)),
            Err(TryLockError::Error(error)) => return Err(FileError::at("lock", &path)(error).into()),
        }
        lock_record(root, &path, &file, FlockOperation::NonBlockingLockShared)?;
        Ok(Some(StoreLock { file }))
    }
}

fn lock_record(root: &Path, path: &Path, file: &File, operation: FlockOperation) -> Result<(), OpenError> {
    match fcntl_lock(file, operation) {
        Ok(()) => Ok(()),
        Err(Errno::ACCESS | Errno::AGAIN) => Err(locked(root, file)),
        Err(error) => Err(FileError::at("lock", path)(error.into()).into()),
    }
}

/// The error that names who holds the lock: the holder of the record lock, else the one that the abort file names.
fn locked(root: &Path, file: &File) -> OpenError {
    let holder = fcntl_getlk(file, &Flock::from(FlockType::WriteLock)).ok().flatten();
    let holder = holder.and_then(|lock| lock.pid).map(|process| process.as_raw_nonzero().get());
    let named = || read_abort(root).ok().flatten()?.split(' ').next()?.parse().ok();
    let process = holder.and_then(|process| u32::try_from(process).ok()).or_else(named);
    OpenError::Locked { root: root.to_path_buf(), process }
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

    #[test]
    fn lookers_exclude_brokers_but_not_each_other() {
        let root = tempfile::tempdir().unwrap();
        assert!(StoreLock::take_to_look(root.path()).unwrap().is_none());
        assert!(!root.path().join("lock").exists());
        let broker = StoreLock::take(root.path()).unwrap();
        std::fs::write(root.path().join("abort"), "4711 18bcfe568").unwrap();
        let error = StoreLock::take_to_look(root.path()).unwrap_err();
        assert!(error.to_string().contains("process 4711"), "{error}");
        drop(broker);
        let first = StoreLock::take_to_look(root.path()).unwrap().unwrap();
        let second = StoreLock::take_to_look(root.path()).unwrap().unwrap();
        assert!(matches!(StoreLock::take(root.path()), Err(OpenError::Locked { .. })));
        drop((first, second));
        StoreLock::take(root.path()).unwrap();
    }
}
