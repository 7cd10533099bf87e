//! A node's own idea of the time, by libfaketime.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian and others have it.
const LIBRARIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
];

/// A wall clock that can be moved. The monotonic clock is left alone.
#[derive(Debug)]
pub(crate) struct Clock {
    library: &'static str,
    file: PathBuf,
}

impl Clock {
    /// One whose state is in `file`; `None` if this machine has no libfaketime.
    pub(crate) fn new(file: &Path) -> io::Result<Option<Self>> {
        let Some(library) = LIBRARIES.into_iter().find(|library| Path::new(library).exists()) else {
            return Ok(None);
        };
        let clock = Self { library, file: file.to_owned() };
        clock.set(0)?;
        Ok(Some(clock))
    }

    /// Has a command live by this clock.
    pub(crate) fn apply(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1");
    }

    /// Moves it so many seconds away from the machine's.
    pub(crate) fn set(&self, seconds: i64) -> io::Result<()> {
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}s\n"))?;
        fs::rename(next, &self.file)
    }
}
