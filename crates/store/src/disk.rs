//! The disk: every call by which the store changes what a power cut, or the death of the process, would leave behind.
//!
//! Files are created, written, lengthened, renamed, removed and forced to the device through these functions and no others, except
//! for stores into mapped memory, which only a flush can tell from what was there before. Each function does what its
//! namesake of the standard library does, and no more. In tests with the feature `simulation` each then reports what it did
//! ([`DiskEvent`](crate::simulation::DiskEvent)), and forcing to the device is left to the imagination.
//!
//! Durability, as the store counts on it (ext4, XFS):
//!
//! * [`sync_data`] makes a file's bytes durable, and the length that is needed to read them. The name of a new file may still get lost.
//! * [`sync_all`] makes the name durable too, as long as the file has the one it was created with.
//! * [`sync_directory`] makes creations, renames and removals in a directory durable. Until then each may be undone.
//! * A rename is atomic. A file that was never synced may be there with its length, and zeros inside.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[cfg(feature = "simulation")]
use crate::simulation::{DiskEvent, happened};

/// Reports an event to the simulation. In a build without it there is nothing here.
macro_rules! report {
    ($event:expr) => {
        #[cfg(feature = "simulation")]
        happened(&$event);
    };
}

/// Whether this is the real disk, and the device has to be asked.
pub(crate) fn is_real() -> bool {
    #[cfg(feature = "simulation")]
    return !crate::simulation::is_simulated();
    #[cfg(not(feature = "simulation"))]
    true
}

// ---- files ----

/// Opens a file for reading and writing; one that is not there is created.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    report!(DiskEvent::Opened { path, file: &file });
    Ok(file)
}

/// Creates a file that must not be there.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    report!(DiskEvent::Opened { path, file: &file });
    Ok(file)
}

/// Creates a file for writing; what one of that name held is gone.
pub(crate) fn create_empty(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    report!(DiskEvent::Opened { path, file: &file });
    Ok(file)
}

/// Writes all of `bytes` at a position.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], position: u64) -> io::Result<()> {
    file.write_all_at(bytes, position)?;
    report!(DiskEvent::Changed { file });
    Ok(())
}

/// Makes a file longer (zeros come behind) or shorter.
pub(crate) fn set_len(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    report!(DiskEvent::Changed { file });
    Ok(())
}

/// Renames a file, over another one if there is one.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    report!(DiskEvent::Renamed { from, to });
    Ok(())
}

/// Removes a file.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    report!(DiskEvent::Removed { path });
    Ok(())
}

// ---- directories ----

/// Makes a directory and those above it, where they are missing.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    report!(DiskEvent::DirectoryMade { path });
    Ok(())
}

/// Removes a directory with everything in it.
pub(crate) fn remove_dir_all(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)?;
    report!(DiskEvent::Removed { path });
    Ok(())
}

// ---- durability ----

/// Makes what a file holds durable.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    if is_real() {
        file.sync_data()?;
    }
    report!(DiskEvent::Synced { file, with_name: false });
    Ok(())
}

/// Makes what a file holds durable, and that it is there.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    if is_real() {
        file.sync_all()?;
    }
    report!(DiskEvent::Synced { file, with_name: true });
    Ok(())
}

/// Makes durable which names are in a directory.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    if is_real() {
        File::open(path)?.sync_all()?;
    }
    report!(DiskEvent::DirectorySynced { path });
    Ok(())
}

/// Makes everything durable that is on the file system of a directory.
pub(crate) fn sync_file_system(directory: &Path) -> io::Result<()> {
    if is_real() {
        rustix::fs::syncfs(File::open(directory)?)?;
    }
    report!(DiskEvent::FileSystemSynced);
    Ok(())
}

/// To be called when pages of a file were written to the device ([`MappedFile::write_back`](crate::mapped::MappedFile::write_back)): they
/// are durable with the next commit of the journal.
#[inline]
pub(crate) fn wrote_back(file: &File, position: u32, len: u32) {
    #[cfg(not(feature = "simulation"))]
    let _ = (file, position, len);
    report!(DiskEvent::WroteBack { file, position, len });
}

/// Forces a directory whose times were just changed, and with it everything that the journal of the file system holds
/// ([`Journal`](crate::log::Journal)): names, and which pages of files were written.
pub(crate) fn commit_journal(directory: &File) -> io::Result<()> {
    if is_real() {
        rustix::fs::fsync(directory)?;
    }
    report!(DiskEvent::JournalCommitted);
    Ok(())
}
