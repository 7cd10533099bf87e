//! For tests of what crashes do (feature `simulation`): a store whose disk is watched, whose clock and machine are made up, and whose
//! background work is done step by step by whoever calls. The same calls give the same files.
//!
//! [`enter`] a [`World`] and everything that the store does on this thread happens in it; [`Store::open_stepwise`] opens a store
//! that has no threads of its own.

use std::cell::RefCell;
use std::fs::File;
use std::marker::PhantomData;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::error::{FileError, OpenError};
use crate::options::StoreOptions;
use crate::queue::Extent;
use crate::store::Store;

/// What was done to the disk, successfully.
#[derive(Debug)]
pub enum DiskEvent<'a> {
    /// A file was opened for writing. If it was not there before, it was created.
    Opened {
        /// Its path.
        path: &'a Path,
        /// The file.
        file: &'a File,
    },
    /// A file's content or length was changed by a call (not through mapped memory).
    Changed {
        /// The file.
        file: &'a File,
    },
    /// A file got another name.
    Renamed {
        /// Its name before.
        from: &'a Path,
        /// Its name now.
        to: &'a Path,
    },
    /// A file, or a directory with everything in it, was removed.
    Removed {
        /// Its path.
        path: &'a Path,
    },
    /// A directory was made, unless it was there, with those above it.
    DirectoryMade {
        /// Its path.
        path: &'a Path,
    },
    /// A file is durable.
    Synced {
        /// The file.
        file: &'a File,
        /// So is the name that it was created with.
        with_name: bool,
    },
    /// The names in a directory are durable.
    DirectorySynced {
        /// Its path.
        path: &'a Path,
    },
    /// Everything is durable.
    FileSystemSynced,
    /// A part of a file is on the device, and durable with the next commit of the journal.
    WroteBack {
        /// The file.
        file: &'a File,
        /// Where the part begins.
        position: u32,
        /// Its length in bytes.
        len: u32,
    },
    /// All names are durable, and all parts that were written back.
    JournalCommitted,
}

/// What a store knows of the world outside, and what it does to it.
pub trait World {
    /// Something was done to the disk.
    fn happened(&self, event: &DiskEvent<'_>);
    /// The time, milliseconds since 1970.
    fn now_ms(&self) -> i64;
    /// Identification of the machine's boot: changes when the machine loses power.
    fn boot_id(&self) -> String;
}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// Puts this thread into a world, until the guard is dropped.
pub fn enter(world: Rc<dyn World>) -> Entered {
    WORLD.set(Some(world));
    Entered { _thread: PhantomData }
}

/// Keeps a thread in a world, see [`enter`].
#[derive(Debug)]
pub struct Entered {
    /// It must be dropped on the same thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

fn world() -> Option<Rc<dyn World>> {
    WORLD.with_borrow(|world| world.clone())
}

pub(crate) fn is_simulated() -> bool {
    WORLD.with_borrow(|world| world.is_some())
}

pub(crate) fn happened(event: &DiskEvent<'_>) {
    if let Some(world) = world() {
        world.happened(event);
    }
}

pub(crate) fn now_ms() -> Option<i64> {
    world().map(|world| world.now_ms())
}

pub(crate) fn boot_id() -> Option<String> {
    world().map(|world| world.boot_id())
}

/// The work of the background threads, step by step.
impl Store {
    /// Opens a store without background threads.
    pub fn open_stepwise(options: StoreOptions) -> Result<Arc<Store>, OpenError> {
        Store::open_with(options, |_| Ok(Vec::new()))
    }

    /// Creates the log file behind the present one, if it is not there yet. An append that finds no next file waits in vain.
    pub fn step_ahead(&self) {
        self.shared.log.ahead.create_wanted();
    }

    /// Forces the log to the disk.
    pub fn step_flush(&self) -> Result<(), FileError> {
        self.shared.flush_log()
    }

    /// Forces what is finished of the log to the disk, as ASYNC_FLUSH does while messages keep coming.
    pub fn step_flush_finished_pages(&self) -> Result<(), FileError> {
        self.shared.flush_finished_pages_now()
    }

    /// Dispatches some records; says whether there were any.
    pub fn step_dispatch(&self) -> bool {
        self.shared.dispatch_round()
    }

    /// Writes the queues' units to their files.
    pub fn step_write_queues(&self) -> Result<(), FileError> {
        self.shared.write_projections(Extent::Due)
    }

    /// Lists the queues as of what is written to their files.
    pub fn step_list_queues(&self) -> Result<(), FileError> {
        self.shared.list_recent().map(|_| ())
    }

    /// Forces queues, index, marks and checkpoint to the disk.
    pub fn step_flush_projections(&self) -> Result<(), FileError> {
        self.shared.queues.release_idle();
        self.shared.flush_projections()
    }
}
