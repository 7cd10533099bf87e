//! The JSON files under `<storePathRootDir>/config` (`docs/spec/02-store.md` 3.1, `docs/spec/03-broker.md` 15.2).
//!
//! The rules that keep a table from being lost:
//!
//! * A [`ConfigFile`] exists only after [`ConfigFile::load`], so nothing is saved before it was loaded.
//! * A file that can't be read is never overwritten and never taken for an empty table: its backup counts, and without a
//!   sound backup the broker does not start. The unreadable file stays beside the others as `X.damaged`.
//! * A new state is written to `X.tmp` and synced before it takes the place of `X`, which becomes `X.bak`. A crash at
//!   any moment leaves a whole file under one of the two names.
//!
//! [`SavedFile`] does the writing on a thread of its own, so a connection's task never waits for the disk. Whoever
//! promised durability (an administrator's request, answered by a thread that may block) calls [`SavedFile::wait`].

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ferromq_protocol::json::{self, JsonError};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Pause after a save that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a file under `config/` can't be used. The broker does not start then, because it would begin with an empty table
/// and overwrite what may still be repaired.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The system does not let us read it.
    #[error("can't read {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is damaged and there is no backup to fall back to.
    #[error(
        "{path} is damaged ({reason}) and there is no usable {}: put a sound copy in its place, or remove {path} to \
         start without what it held",
        backup_of(path).display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Damage,
    },
    /// Only the backup is there, and it is damaged.
    #[error(
        "{path} is missing and {} is damaged ({reason}): put a sound copy in place of {path}, or remove the backup to \
         start without what it held",
        backup_of(path).display()
    )]
    DamagedBackup {
        /// The file that is missing.
        path: PathBuf,
        /// What is wrong with its backup.
        reason: Damage,
    },
    /// The system gives us no thread.
    #[error("can't start the thread that saves {path}: {source}")]
    Thread {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What is wrong with the content of a file.
#[derive(Debug, Error)]
pub enum Damage {
    /// It was created, but its bytes never reached the disk.
    #[error("it is empty")]
    Empty,
    /// A power cut leaves such files.
    #[error("it holds nothing but zero bytes")]
    Zeros,
    /// It was cut, or written by something else.
    #[error(transparent)]
    Json(#[from] JsonError),
}

/// One file that has been loaded, and may therefore be saved.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
}

impl ConfigFile {
    /// Reads the file or its backup; `None` if there is neither.
    pub(crate) fn load<T: DeserializeOwned>(
        path: impl Into<PathBuf>,
    ) -> Result<(Self, Option<T>), LoadError> {
        let path = path.into();
        let damage = match read(&path)? {
            Content::Sound(value) => return Ok((Self { path }, Some(value))),
            Content::Missing => None,
            Content::Damaged(reason) => Some(reason),
        };
        let value = match (read(&backup_of(&path))?, damage) {
            (Content::Sound(value), damage) => {
                match damage {
                    Some(reason) => {
                        tracing::warn!(file = %path.display(), %reason, "file is damaged, its backup is used");
                        // Out of the way of the next save, which would let it take the place of the sound backup.
                        let aside = with_suffix(&path, "damaged");
                        fs::rename(&path, aside)
                            .map_err(|source| LoadError::Io { path: path.clone(), source })?;
                    }
                    None => tracing::warn!(file = %path.display(), "file is missing, its backup is used"),
                }
                Some(value)
            }
            (_, Some(reason)) => return Err(LoadError::Damaged { path, reason }),
            (Content::Damaged(reason), None) => return Err(LoadError::DamagedBackup { path, reason }),
            (Content::Missing, None) => None,
        };
        Ok((Self { path }, value))
    }

    /// What [`load`](Self::load) would read, without changing anything; `None` also if it would fail.
    pub(crate) fn peek<T: DeserializeOwned>(path: &Path) -> Option<T> {
        [path.to_owned(), backup_of(path)].iter().find_map(|path| match read(path) {
            Ok(Content::Sound(value)) => Some(value),
            _ => None,
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts `text` in the file's place; what was there becomes the backup. Durable when it returns.
    pub(crate) fn save(&self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let new = with_suffix(&self.path, "tmp");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match fs::rename(&self.path, backup_of(&self.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::rename(&new, &self.path)?,
        }
        File::open(directory)?.sync_all()
    }
}

enum Content<T> {
    Missing,
    Sound(T),
    Damaged(Damage),
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Content<T>, LoadError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Missing),
        Err(source) => return Err(LoadError::Io { path: path.to_owned(), source }),
    };
    Ok(if bytes.trim_ascii().is_empty() {
        Content::Damaged(Damage::Empty)
    } else if bytes.iter().all(|byte| *byte == 0) {
        Content::Damaged(Damage::Zeros)
    } else {
        json::from_slice(&bytes).map_or_else(|error| Content::Damaged(error.into()), Content::Sound)
    })
}

fn backup_of(path: &Path) -> PathBuf {
    with_suffix(path, "bak")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Names a state of a table, see [`SavedFile::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Revision(u64);

/// Keeps a file up to date with a table, on a thread of its own that sleeps as long as the table does not change.
///
/// Changes that come while a save is under way are saved together by the next one.
#[derive(Debug)]
pub(crate) struct SavedFile {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told when there is something to save, and when to stop.
    work: Condvar,
    /// Told after each save.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Revision of the table.
    current: u64,
    /// Revision that the file holds.
    saved: u64,
    /// The last save that failed: the revision it was for, and why.
    failed: Option<(u64, String)>,
    /// Revision that somebody wants saved without delay.
    hurry: u64,
    /// Whether the thread waits without a limit and has to be woken.
    asleep: bool,
    stopping: bool,
}

impl SavedFile {
    /// Starts the thread. `encode` takes the table's state of the moment; `delay` is how long a change may wait so that
    /// others are saved along with it.
    pub(crate) fn start<T, F>(file: ConfigFile, delay: Duration, encode: F) -> Result<Self, LoadError>
    where
        T: Serialize,
        F: Fn() -> T + Send + 'static,
    {
        let shared = Arc::new(Shared { state: Mutex::default(), work: Condvar::new(), done: Condvar::new() });
        let name =
            file.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let path = file.path().to_owned();
        let thread = std::thread::Builder::new().name(name).spawn({
            let shared = shared.clone();
            move || run(&shared, &file, delay, || json::to_string_pretty(&encode()))
        });
        let thread = thread.map_err(|source| LoadError::Thread { path, source })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Says that the table has changed. Cheap, and never waits for the disk.
    pub(crate) fn changed(&self) -> Revision {
        let mut state = self.shared.state.lock();
        state.current += 1;
        if state.asleep {
            self.shared.work.notify_one();
        }
        Revision(state.current)
    }

    /// Waits until the file holds this revision or a later one. Only for threads that may block.
    ///
    /// # Errors
    /// If a save of this revision failed. It is tried again, but nobody waits for that.
    pub(crate) fn wait(&self, revision: Revision) -> Result<(), SaveError> {
        let mut state = self.shared.state.lock();
        loop {
            if state.saved >= revision.0 {
                return Ok(());
            }
            if let Some((_, reason)) = state.failed.as_ref().filter(|(failed, _)| *failed >= revision.0) {
                return Err(SaveError { reason: reason.clone() });
            }
            if state.stopping {
                return Err(SaveError { reason: "the broker is stopping".to_owned() });
            }
            self.shared.done.wait(&mut state);
        }
    }

    /// The same without the delay.
    pub(crate) fn save_now(&self, revision: Revision) -> Result<(), SaveError> {
        {
            let mut state = self.shared.state.lock();
            state.hurry = state.hurry.max(revision.0);
        }
        self.shared.work.notify_one();
        self.wait(revision)
    }

    /// Saves what is not saved yet and ends the thread. Idempotent.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for SavedFile {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A change is in force, but not on the disk.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the change is in force, but it could not be saved: {reason}")]
pub(crate) struct SaveError {
    reason: String,
}

fn run(shared: &Shared, file: &ConfigFile, delay: Duration, encode: impl Fn() -> String) {
    let mut pause = delay;
    let mut state = shared.state.lock();
    loop {
        while state.saved == state.current && !state.stopping {
            state.asleep = true;
            shared.work.wait(&mut state);
            state.asleep = false;
        }
        if state.saved == state.current {
            break;
        }
        let hurry = state.hurry > state.saved && state.failed.is_none();
        if !state.stopping && !hurry && !pause.is_zero() {
            shared.work.wait_for(&mut state, pause);
        }
        let stopping = state.stopping;
        let revision = state.current;
        drop(state);
        let result = file.save(&encode());
        state = shared.state.lock();
        match result {
            Ok(()) => {
                (state.saved, state.failed, pause) = (revision, None, delay);
            }
            Err(error) => {
                tracing::error!(file = %file.path().display(), %error, "can't save; the changes live in memory only");
                state.failed = Some((revision, format!("{}: {error}", file.path().display())));
                pause = RETRY_AFTER;
            }
        }
        shared.done.notify_all();
        if stopping {
            break;
        }
    }
    // Nobody shall wait for a thread that is gone.
    state.stopping = true;
    shared.done.notify_all();
}

#[cfg(test)]
mod tests;
