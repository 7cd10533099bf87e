//! What the façade and the background threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::background::Stop;
use crate::checkpoint::Checkpoint;
use crate::cold_pages::ColdPages;
use crate::commit_log::CommitLog;
use crate::deleted::DeletedTopics;
use crate::dispatch::{DispatchBell, Dispatcher};
use crate::error::FileError;
use crate::index::KeyIndex;
use crate::lock_file::StoreLock;
use crate::log::{Journal, Leaving};
use crate::marks::{Marks, MarksFile};
use crate::options::{ConfirmedBy, FlushDiskType, StoreOptions};
use crate::queue::ConsumeQueues;
use crate::residency::ResidentBlocks;
use crate::retention::DiskGuard;
use crate::scan::ReadLimits;
use crate::stats::Counters;
use crate::waterline::Waterline;

/// The parts of a running store.
///
/// Locks are taken in this order: `cleaning`, `listing`, `repairing`, `dispatcher`, the queues' writing lock, the log's append lock, `keeper`.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: StoreOptions,
    /// The options that deletion goes by: those of the open store, or what came since
    /// ([`Store::set_retention`](crate::Store::set_retention)).
    pub(crate) retention: RwLock<Arc<StoreOptions>>,
    /// Held during a round of deletion.
    pub(crate) cleaning: Mutex<()>,
    /// Rounds of deletion that an administrator asked for and that are yet to come.
    pub(crate) manual_rounds: AtomicU32,
    /// Deleted log files that somebody reads.
    pub(crate) leaving: Leaving,
    pub(crate) log: CommitLog,
    pub(crate) queues: Arc<ConsumeQueues>,
    pub(crate) index: Option<Arc<KeyIndex>>,
    pub(crate) deleted: Arc<DeletedTopics>,
    pub(crate) dispatcher: Mutex<Dispatcher>,
    pub(crate) dispatched: Waterline,
    pub(crate) bell: DispatchBell,
    /// What replication has confirmed: at most the log's end ([`ConfirmedBy::Replication`]).
    pub(crate) replicated: Waterline,
    /// What replication has confirmed, maybe behind the log's end.
    pub(crate) promised: AtomicU64,
    /// Up to here the dispatcher has found no further whole record: it need not look again before more is confirmed.
    pub(crate) looked_at: AtomicU64,
    /// Counts [`Store::lead`](crate::Store::lead) and [`Store::follow`](crate::Store::follow).
    pub(crate) term: AtomicU64,
    /// A message for a watched queue waits for the flush (SYNC_FLUSH).
    pub(crate) urgent: AtomicBool,
    pub(crate) disk: DiskGuard,
    pub(crate) counters: Counters,
    pub(crate) read_limits: ReadLimits,
    pub(crate) resident_blocks: ResidentBlocks,
    pub(crate) cold_pages: ColdPages,
    /// Under ASYNC_FLUSH, what makes written pages durable. It leaves the pages ahead of the log's end alone, which are many; under
    /// SYNC_FLUSH these are clean, and forcing the whole file takes one call less.
    pub(crate) journal: Option<Journal>,
    /// Held during a flush of the log.
    pub(crate) flushing: Mutex<()>,
    /// Held while the list of queues is written.
    pub(crate) listing: Mutex<()>,
    /// Held while queues' files are laid anew.
    pub(crate) repairing: Mutex<()>,
    /// Store time of the newest record that is on the disk.
    pub(crate) flushed_timestamp: AtomicI64,
    pub(crate) keeper: Mutex<Keeper>,
    pub(crate) stop: Stop,
    /// Given back by a clean stop, or (last) when everything else is gone.
    pub(crate) lock: Mutex<Option<StoreLock>>,
}

/// Keeps the files that the next start will read.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) marks_file: MarksFile,
    pub(crate) marks: Marks,
    /// Store time of the newest record whose unit is in its file.
    pub(crate) written_timestamp: i64,
    /// What a slave was told of how far its master has flushed.
    pub(crate) master_flushed_offset: i64,
}

impl Keeper {
    pub(crate) fn write(&mut self, sync: bool) -> Result<(), FileError> {
        self.marks_file.write(&mut self.marks, sync)
    }
}

impl Shared {
    /// What consumers may see.
    #[inline]
    pub(crate) fn confirmed(&self) -> &Waterline {
        match (self.options.confirmed_by, self.options.flush_disk_type) {
            (ConfirmedBy::Store, FlushDiskType::AsyncFlush) => &self.log.appended,
            (ConfirmedBy::Store, FlushDiskType::SyncFlush) => &self.log.flushed,
            (ConfirmedBy::Replication { .. }, _) => &self.replicated,
        }
    }

    /// Whether the last record that is confirmed may be there in part only.
    fn confirms_parts(&self) -> bool {
        self.log.is_following() || self.options.confirmed_by != ConfirmedBy::Store
    }

    /// One round of dispatch, if there is something to do; says whether there was.
    pub(crate) fn dispatch_round(&self) -> bool {
        if !self.is_to_dispatch(self.confirmed().get()) {
            return false;
        }
        let mut dispatcher = self.dispatcher.lock();
        // Asked again: the log may have been cut while this thread waited for the lock.
        let target = self.confirmed().get();
        let before = dispatcher.position();
        dispatcher.round(&self.log, target, self.confirms_parts());
        let position = dispatcher.position();
        if position == before {
            self.looked_at.store(target, Ordering::Relaxed);
        }
        self.dispatched.raise(position);
        drop(dispatcher);
        self.dispatched.notify(position);
        position > before
    }

    /// Whether there is anything below `target` that the dispatcher has not seen.
    pub(crate) fn is_to_dispatch(&self, target: u64) -> bool {
        self.dispatched.get() < target && self.looked_at.load(Ordering::Relaxed) < target
    }

    pub(crate) fn dispatch_to(&self, target: u64) {
        while self.dispatched.get() < target && self.dispatch_round() {}
    }
}
