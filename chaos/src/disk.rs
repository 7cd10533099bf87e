//! A small file system in memory that a node has for itself, so that it can be filled.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};

/// The file that takes up the space.
const BALLAST: &str = "ballast";
/// Space is taken in pieces of this, then of smaller ones.
const PIECES: [u64; 3] = [16 << 20, 1 << 20, 4096];

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
}

impl Disk {
    /// Mounts one of `bytes` on `directory`. Needs the right to mount.
    pub(crate) fn mount(directory: &Path, bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let size = format!("size={bytes}");
        let output =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// Takes all the space that is left.
    pub(crate) fn fill(&self) -> io::Result<()> {
        let ballast = File::create(self.directory.join(BALLAST))?;
        let mut taken = 0;
        for piece in PIECES {
            while fallocate(&ballast, FallocateFlags::empty(), taken, piece).is_ok() {
                taken += piece;
            }
        }
        Ok(())
    }

    /// Gives the space back.
    pub(crate) fn free(&self) -> io::Result<()> {
        match fs::remove_file(self.directory.join(BALLAST)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Leaves the files where they are, on the machine's own disk, when the run is over.
    pub(crate) fn keep(self) -> io::Result<()> {
        let kept = self.directory.with_extension("kept");
        let directory = self.directory.clone();
        copy(&directory, &kept)?;
        drop(self);
        fs::remove_dir(&directory)?;
        fs::rename(&kept, &directory)
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cp: {status}"))) }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If it is busy, it goes with the last who uses it.
        let _ = Command::new("umount").arg("-l").arg(&self.directory).status();
    }
}
