//! What is done ahead of the appenders, by two threads: one creates and maps the next log file, one faults in the pages that the
//! next appends will touch. Normally that is a window that grows and shrinks with the traffic; with `warmMapedFileEnable` it is
//! all of the present file and of the next one, locked into memory.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{MappedLog, Segment};
use crate::disk;
use crate::error::{AppendError, DiskFull};

/// Smallest and first window of faulted-in pages. Flushing makes pages clean again and so costs what lies in the window
/// twice; a store with little traffic has a small one.
const WINDOW_MIN: u64 = 64 << 10;
/// The window moves on in so many steps: each is short, so that on a machine with few cores no append waits for one.
const STEPS: u64 = 16;
/// So many steps ahead each step makes sure once more.
const NEAR_STEPS: u64 = 2;
/// From this window on (tens of megabytes a second), pages are brought in as many at once as the system likes, and huge ones if it
/// has them: that takes a fraction of the time, but keeps a core for many milliseconds at a stretch, and what is brought in
/// at once is written at once.
const BULK_WINDOW: u64 = 8 << 20;
/// Pages are brought in so many bytes at a time; in between the thread looks whether it should end.
const POPULATED_AT_ONCE: u64 = 4 << 20;
/// Steps that follow each other quicker than this ask for a larger window, slower than that for a smaller one. The window
/// then lasts for a fraction of a second, which is as long as this thread may be kept from its work.
const STEP_SHORT: Duration = Duration::from_millis(12);
const STEP_LONG: Duration = Duration::from_millis(50);
/// How long an append waits for a file that is being created.
const TAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// After a failed creation, how long until the next try.
const RETRY: Duration = Duration::from_secs(1);

/// What the pages ahead are faulted in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    /// For writing: an append pays no fault at all. Makes them dirty, so a flush writes them once more.
    Write,
    /// For reading: the pages are there, the first append to each pays a minor fault. For SYNC_FLUSH, where every flush
    /// would make the pages clean (and write-protected) again anyway.
    Read,
}

/// Which pages are kept faulted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Warmth {
    /// A window behind the log's end, of at most so many bytes.
    Window(u32),
    /// The file that is written to and the next one, all of them, locked into memory.
    WholeFiles,
}

/// Shared between the appenders and the threads.
#[derive(Debug)]
pub(crate) struct Ahead {
    directory: PathBuf,
    file_size: u32,
    warmth: Warmth,
    demand: Demand,
    /// Pages below this offset of the log were faulted in.
    warmed: AtomicU64,
    /// An append that ends at or behind this offset calls [`Ahead::poke`].
    poke_at: AtomicU64,
    state: Mutex<State>,
    /// Signalled when pages have to be faulted in.
    poked: Condvar,
    /// Signalled when a file is wanted.
    wanted: Condvar,
    /// Signalled when a file is ready or could not be made.
    ready: Condvar,
}

#[derive(Debug)]
struct State {
    /// Where the next file must begin, until somebody has taken it.
    wanted: Option<u64>,
    next: Option<Arc<Segment>>,
    failure: Option<Failure>,
    /// The file that is being appended to, and how far.
    active: Option<Arc<Segment>>,
    poked: bool,
    stopping: bool,
}

#[derive(Debug)]
struct Failure {
    error: AppendError,
    retry_at: Instant,
}

impl Ahead {
    pub(crate) fn new(directory: PathBuf, file_size: u32, warmth: Warmth, demand: Demand) -> Self {
        Ahead {
            directory,
            file_size,
            warmth,
            demand,
            warmed: AtomicU64::new(0),
            poke_at: AtomicU64::new(u64::MAX),
            state: Mutex::new(State {
                wanted: None,
                next: None,
                failure: None,
                active: None,
                poked: false,
                stopping: false,
            }),
            poked: Condvar::new(),
            wanted: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    /// Asks for the file behind `active`, and for pages of `active` from now on.
    pub(crate) fn follow(&self, active: &Arc<Segment>) {
        self.want(active.end(), Some(active));
        self.poke_at.store(0, Ordering::Relaxed);
    }

    /// Asks for the file that begins at `base`, and no other. One that is there in vain is removed.
    pub(crate) fn want(&self, base: u64, active: Option<&Arc<Segment>>) {
        let mut state = self.state.lock();
        state.active = active.cloned();
        state.wanted = Some(base);
        let useless = state.next.take_if(|next| next.base() != base);
        drop(state);
        if let Some(useless) = useless {
            discard(&useless);
        }
        self.wanted.notify_one();
    }

    /// The file that begins at `base`. Normally it is ready; else waits for it. Called with the append lock held.
    pub(crate) fn take(&self, base: u64) -> Result<Arc<Segment>, AppendError> {
        let deadline = Instant::now() + TAKE_TIMEOUT;
        let mut state = self.state.lock();
        loop {
            if let Some(next) = state.next.take_if(|next| next.base() == base) {
                state.wanted = None;
                return Ok(next);
            }
            if state.stopping {
                return Err(AppendError::Shutdown);
            }
            // A failure is answered at once; the thread goes on trying.
            if let Some(failure) = &state.failure {
                return Err(failure.error.clone());
            }
            state.wanted = Some(base);
            self.wanted.notify_one();
            if self.ready.wait_until(&mut state, deadline).timed_out() {
                return Err(AppendError::CreateFile(format!(
                    "the file at {base} was not ready within {TAKE_TIMEOUT:?}: the disk is busy or broken"
                )));
            }
        }
    }

    /// To be called by an append that ends at `end`, after publishing it.
    #[inline]
    pub(crate) fn appended(&self, end: u64) {
        if end >= self.poke_at.load(Ordering::Relaxed) {
            self.poke();
        }
    }

    #[cold]
    fn poke(&self) {
        self.poke_at.store(u64::MAX, Ordering::Relaxed);
        self.state.lock().poked = true;
        self.poked.notify_one();
    }

    /// A flush has made the pages ahead clean: the next append asks for them again.
    pub(crate) fn pages_were_cleaned(&self) {
        if self.demand == Demand::Write {
            self.poke_at.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the last try to create a file failed.
    pub(crate) fn failure(&self) -> Option<AppendError> {
        self.state.lock().failure.as_ref().map(|failure| failure.error.clone())
    }

    /// How far the pages of the log are faulted in.
    pub(crate) fn warmed(&self) -> u64 {
        self.warmed.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.poked.notify_all();
        self.wanted.notify_all();
        self.ready.notify_all();
    }

    /// Creates the next file, if it is wanted and not there.
    #[cfg(feature = "simulation")]
    pub(crate) fn create_wanted(&self) {
        let wanted = {
            let state = self.state.lock();
            state.wanted.filter(|_| state.next.is_none())
        };
        if let Some(base) = wanted {
            self.create(base);
        }
    }

    /// The file that was prepared and not taken.
    pub(crate) fn take_unused(&self) -> Option<Arc<Segment>> {
        self.state.lock().next.take()
    }

    /// Loop of the thread that creates files. It has nothing else to do: on a disk that is busy writing, a file takes long.
    pub(crate) fn create_files(&self) {
        loop {
            let mut state = self.state.lock();
            let base = loop {
                if state.stopping {
                    return;
                }
                let retry_at = state.failure.as_ref().map(|failure| failure.retry_at);
                match (state.wanted.filter(|_| state.next.is_none()), retry_at) {
                    (Some(_), Some(at)) if at > Instant::now() => {
                        self.wanted.wait_until(&mut state, at);
                    }
                    (Some(base), _) => break base,
                    (None, _) => self.wanted.wait(&mut state),
                }
            };
            drop(state);
            self.create(base);
        }
    }

    /// Loop of the thread that faults pages in. `write_position` tells the log's end.
    pub(crate) fn warm_pages(&self, write_position: impl Fn() -> u64) {
        let (window_min, window_max) = match self.warmth {
            Warmth::Window(max) => (WINDOW_MIN, u64::from(max).max(WINDOW_MIN)),
            Warmth::WholeFiles => (u64::from(self.file_size), u64::from(self.file_size)),
        };
        let mut window = window_min;
        // The file that is worked ahead in, and whether in bulk.
        let mut followed: Option<(Arc<Segment>, bool)> = None;
        let mut last_poke = Instant::now();
        loop {
            let mut state = self.state.lock();
            while !state.poked && !state.stopping {
                self.poked.wait(&mut state);
            }
            if state.stopping {
                return;
            }
            state.poked = false;
            let active = state.active.clone();
            drop(state);
            let now = Instant::now();
            window = match now - last_poke {
                pause if pause < STEP_SHORT => (window * 2).min(window_max),
                pause if pause > STEP_LONG => (window / 2).max(window_min),
                _ => window,
            };
            last_poke = now;
            let Some(active) = active else { continue };
            // What is brought in at once is written at once: a flush of one message would take megabytes.
            let bulk = window >= BULK_WINDOW && self.demand == Demand::Write;
            let position = write_position();
            self.prepare(&active, position, bulk, &mut followed);
            self.warm(&active, position, window);
        }
    }

    /// Sets how the system treats faults in `active` from the log's end at `position` on, when the file is new or that changes.
    fn prepare(
        &self,
        active: &Arc<Segment>,
        position: u64,
        bulk: bool,
        followed: &mut Option<(Arc<Segment>, bool)>,
    ) {
        let is_new = followed.as_ref().is_none_or(|(segment, _)| !Arc::ptr_eq(segment, active));
        if is_new && let Some((finished, _)) = followed.take() {
            finished.mapped().expect_order(true);
            finished.mapped().expect_huge_pages(None);
            if self.warmth == Warmth::WholeFiles {
                finished.mapped().unlock();
            }
        }
        if followed.as_ref().is_none_or(|(_, in_bulk)| *in_bulk != bulk) {
            active.mapped().expect_order(bulk);
            active
                .mapped()
                .expect_huge_pages(bulk.then(|| (position.max(active.base()) - active.base()) as u32));
            if self.warmth == Warmth::WholeFiles {
                self.lock_in_memory(active);
            }
            *followed = Some((Arc::clone(active), bulk));
        }
    }

    /// Faults in the window. Most of it is there from the last step. What is there for reading stays; what is there for writing the
    /// system may have written (and so protected) meanwhile: it is looked at again just before it is needed.
    fn warm(&self, active: &Segment, position: u64, window: u64) {
        let from = position.max(active.base());
        if self.warmth == Warmth::WholeFiles && self.warmed() >= active.end() {
            // What is locked stays; a flush protects only what is around the log's end.
            self.populate(active, from, (from + WINDOW_MIN).min(active.end()));
            return self.warm_next(window);
        }
        let to = (from + window).min(active.end());
        let looked_at_again = match self.demand {
            Demand::Write => NEAR_STEPS * window / STEPS,
            Demand::Read => 0,
        };
        // The log may have gone on to the next file meanwhile, and then all of this is behind it.
        let near = (from + looked_at_again).min(to);
        self.populate(active, from, near);
        self.populate(active, self.warmed().clamp(near, to), to);
        if to == active.end() {
            self.warm_next(window);
        } else {
            self.poke_at.store(from + window / STEPS, Ordering::Relaxed);
        }
    }

    /// The next file's first pages, so that crossing over costs nothing either.
    fn warm_next(&self, window: u64) {
        let next = self.state.lock().next.clone();
        if let Some(next) = next.filter(|next| self.warmed() < next.end()) {
            self.populate(&next, next.base(), (next.base() + window).min(next.end()));
        }
    }

    fn populate(&self, segment: &Segment, from: u64, to: u64) {
        let mut at = from;
        while at < to && !self.state.lock().stopping {
            let end = (at + POPULATED_AT_ONCE).min(to);
            let (position, len) = ((at - segment.base()) as u32, (end - at) as u32);
            match self.demand {
                Demand::Write => segment.mapped().populate(position, len),
                Demand::Read => segment.mapped().populate_for_read(position, len),
            }
            self.warmed.fetch_max(end, Ordering::Relaxed);
            at = end;
        }
    }

    /// Keeps the file's pages in memory from when they are faulted in.
    fn lock_in_memory(&self, segment: &Segment) {
        if let Err(error) = segment.mapped().lock() {
            tracing::warn!(
                file = %segment.path().display(), %error,
                "warmMapedFileEnable: can't lock the log file into memory (see `ulimit -l`); it is faulted in, but may be swapped out"
            );
        }
    }

    fn create(&self, base: u64) {
        let result = MappedLog::create(&self.directory, base, self.file_size);
        let mut state = self.state.lock();
        match result {
            Ok(segment) => {
                if state.failure.take().is_some() {
                    tracing::info!(file = %segment.path().display(), "log files can be created again");
                }
                if state.wanted.is_some_and(|wanted| wanted != base) {
                    // The log was cut meanwhile: it goes on elsewhere.
                    discard(&segment);
                    return;
                }
                segment.mapped().expect_order(false);
                if self.warmth == Warmth::WholeFiles {
                    segment.mapped().expect_huge_pages((self.demand == Demand::Write).then_some(0));
                    self.lock_in_memory(&segment);
                }
                state.next = Some(segment);
                // Its first pages may be needed at once.
                state.poked = true;
                self.poked.notify_one();
            }
            Err(error) => {
                if state.failure.is_none() {
                    tracing::error!(directory = %self.directory.display(), base, %error, "can't create the next log file");
                }
                let error = self.append_error(&error);
                state.failure = Some(Failure { error, retry_at: Instant::now() + RETRY });
            }
        }
        drop(state);
        self.ready.notify_all();
    }

    fn append_error(&self, error: &io::Error) -> AppendError {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            AppendError::DiskFull(DiskFull {
                directory: self.directory.clone(),
                used_percent: 100,
                limit_percent: 100,
                setting: "mappedFileSizeCommitLog (room for the next log file)",
            })
        } else {
            AppendError::CreateFile(format!("in {}: {error}", self.directory.display()))
        }
    }
}

/// Removes a file in which nothing was written, and which must not be taken for a part of the log.
fn discard(segment: &Segment) {
    if let Err(error) = disk::remove_file(segment.path()) {
        tracing::error!(file = %segment.path().display(), %error, "can't delete a log file that was created in vain");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 1 << 20;

    #[test]
    fn the_next_file_is_there_and_both_are_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let ahead = Ahead::new(directory.path().to_owned(), FILE, Warmth::WholeFiles, Demand::Write);
        let active = MappedLog::create(directory.path(), 0, FILE).unwrap();
        ahead.follow(&active);
        std::thread::scope(|scope| {
            scope.spawn(|| ahead.create_files());
            scope.spawn(|| ahead.warm_pages(|| 0));
            ahead.appended(0);
            let next = ahead.take(u64::from(FILE)).unwrap();
            assert_eq!((next.base(), next.size()), (u64::from(FILE), FILE));
            // Given back, as if it was not taken yet: it is warmed whether it came before or after the first step.
            ahead.state.lock().next = Some(Arc::clone(&next));
            ahead.poke();
            while ahead.warmed() < next.end() {
                std::thread::yield_now();
            }
            assert!(active.mapped().is_resident(0, FILE) && next.mapped().is_resident(0, FILE));
            ahead.stop();
        });
    }

    #[test]
    fn a_window_ends_where_it_should() {
        let directory = tempfile::tempdir().unwrap();
        let ahead = Ahead::new(directory.path().to_owned(), FILE, Warmth::Window(FILE), Demand::Write);
        let active = MappedLog::create(directory.path(), 0, FILE).unwrap();
        active.mapped().expect_order(false);
        ahead.warm(&active, 8192, WINDOW_MIN);
        assert_eq!(ahead.warmed(), 8192 + WINDOW_MIN);
        assert!(active.mapped().is_resident(8192, WINDOW_MIN as u32));
        assert!(!active.mapped().is_resident(FILE / 2, FILE / 2), "pages far ahead are left alone");
        assert_eq!(
            ahead.poke_at.load(Ordering::Relaxed),
            8192 + WINDOW_MIN / STEPS,
            "the next step begins here"
        );
    }

    #[test]
    fn a_log_that_has_gone_on_to_the_next_file_meanwhile_needs_nothing_of_this_one() {
        for demand in [Demand::Read, Demand::Write] {
            let directory = tempfile::tempdir().unwrap();
            let ahead = Ahead::new(directory.path().to_owned(), FILE, Warmth::Window(FILE), demand);
            let active = MappedLog::create(directory.path(), 0, FILE).unwrap();
            let next = MappedLog::create(directory.path(), u64::from(FILE), FILE).unwrap();
            ahead.state.lock().next = Some(Arc::clone(&next));
            ahead.warm(&active, u64::from(FILE) + 100, WINDOW_MIN);
            assert_eq!(ahead.warmed(), next.base() + WINDOW_MIN);
        }
    }
}
