//! The world that the store under test lives in.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ferromq_store::simulation::{DiskEvent, World};

use super::image::Image;

/// A machine with a disk, a clock, and a moment at which the crash comes.
pub(crate) struct Machine {
    root: RefCell<PathBuf>,
    disk: RefCell<Image>,
    now_ms: Cell<i64>,
    boot: Cell<u32>,
    /// Changes of the disk so far.
    changes: Cell<u64>,
    /// So many changes of the disk from now the crash comes.
    until_crash: Cell<Option<u32>>,
    /// The disk as it was when the crash came. What the store does after that did not happen.
    crashed: RefCell<Option<Image>>,
}

impl Machine {
    pub(crate) fn new(root: &Path) -> Machine {
        Machine {
            root: RefCell::new(root.to_path_buf()),
            disk: RefCell::default(),
            now_ms: Cell::new(1_700_000_000_000),
            boot: Cell::new(0),
            changes: Cell::new(0),
            until_crash: Cell::new(None),
            crashed: RefCell::default(),
        }
    }

    pub(crate) fn pass_time(&self, ms: i64) {
        self.now_ms.set(self.now_ms.get() + ms);
    }

    pub(crate) fn boot_again(&self) {
        self.boot.set(self.boot.get() + 1);
    }

    pub(crate) fn disk(&self) -> std::cell::RefMut<'_, Image> {
        self.disk.borrow_mut()
    }

    /// Goes on with another disk, whose files lie below `root`.
    pub(crate) fn exchange_disk(&self, root: &Path, disk: Image) {
        self.root.replace(root.to_path_buf());
        self.disk.replace(disk);
    }

    pub(crate) fn crash_after(&self, changes: Option<u32>) {
        self.until_crash.set(changes);
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.crashed.borrow().is_some()
    }

    /// The disk as the crash found it: now, if it has not come yet.
    pub(crate) fn take_crashed(&self) -> Image {
        self.until_crash.set(None);
        let crashed = self.crashed.borrow_mut().take();
        crashed.unwrap_or_else(|| self.disk.borrow().freeze())
    }
}

impl World for Machine {
    fn happened(&self, event: &DiskEvent<'_>) {
        let mut disk = self.disk.borrow_mut();
        disk.note(&self.root.borrow(), event);
        if let DiskEvent::Changed { file } = event {
            // Times of files are those of this world, else a run would not be the same twice.
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(self.now_ms.get() as u64))
                .unwrap();
        }
        self.changes.set(self.changes.get() + 1);
        match self.until_crash.get() {
            Some(0) => {
                self.until_crash.set(None);
                self.crashed.replace(Some(disk.freeze()));
            }
            until => self.until_crash.set(until.map(|changes| changes - 1)),
        }
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.get()
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot.get())
    }
}
