//! Consume queues: per queue of a topic, where its messages lie in the log.
//!
//! [`ConsumeQueue`] is one of them, [`ConsumeQueues`] all of them. A queue is a projection of the log: what its files lack or
//! have wrong, the log gives back.

mod batch_queue;
mod check;
mod consume_queue;
mod files;
mod list;
mod table;
mod unit;
mod unwritten;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};

use crate::disk;
use crate::options::StoreOptions;
pub(crate) use batch_queue::{BATCH_DIRECTORY, BATCH_UNIT, BatchQueues, BatchUnit, UNITS_DIRECTORY};
pub(crate) use check::Doubt;
pub(crate) use consume_queue::Pushed;
pub use consume_queue::{ConsumeQueue, QueueWatch};
use files::QueueFiles;
pub(crate) use list::{ListedOffsets, ListedQueue, Listing, QueueList, QueueListWriter};
use table::QueueTable;
pub(crate) use unit::{UNIT, Unit, is_plausible};
pub(crate) use unwritten::{Extent, WriteOutError};
use unwritten::{Pending, Unsynced};

/// Handles taken from the table at a time, by what goes through all of them.
const QUEUES_AT_A_TIME: usize = 1024;

/// All consume queues of a store.
#[derive(Debug)]
pub(crate) struct ConsumeQueues {
    files: Arc<QueueFiles>,
    batch: Arc<BatchQueues>,
    table: RwLock<QueueTable>,
    /// Queues with units that are not in their file, oldest first.
    unwritten: Mutex<VecDeque<Pending>>,
    unwritten_units: AtomicI64,
    /// Most units that are to wait in memory.
    unwritten_units_max: i64,
    /// Queues that keep units in memory for consumers at the tail.
    kept: Mutex<Vec<Arc<ConsumeQueue>>>,
    /// Held while queue files are written or deleted.
    writing: Mutex<Unsynced>,
}

impl ConsumeQueues {
    pub(crate) fn new(options: &StoreOptions) -> Self {
        let file_len = u64::from(options.batch_consume_queue_file_size);
        let batch = Arc::new(BatchQueues::new(&options.root, file_len, options.batch_topics.iter().cloned()));
        ConsumeQueues {
            files: Arc::new(QueueFiles::new(
                &options.root,
                options.consume_queue_file_units(),
                Arc::clone(&batch),
            )),
            batch,
            table: RwLock::default(),
            unwritten: Mutex::default(),
            unwritten_units: AtomicI64::new(0),
            unwritten_units_max: unwritten::units_max(),
            kept: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    pub(crate) fn find(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        let table = self.table.read();
        let number = table.find(topic.as_bytes(), queue_id)?;
        Some(Arc::clone(&table.handles()[number as usize]))
    }

    pub(crate) fn get_or_create(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.find(topic, queue_id) {
            return queue;
        }
        let mut table = self.table.write();
        if let Some(number) = table.find(topic.as_bytes(), queue_id) {
            return Arc::clone(&table.handles()[number as usize]);
        }
        table.insert(topic, queue_id, |topic, number| {
            ConsumeQueue::new(topic, queue_id, number, Arc::clone(&self.files))
        })
    }

    /// Adds the number of each of these queues to `numbers`, as far as they have a handle.
    pub(crate) fn find_each<'n>(
        &self,
        names: impl Iterator<Item = (&'n [u8], i32)> + Clone,
        numbers: &mut Vec<Option<u32>>,
    ) {
        self.table.read_recursive().find_each(names, numbers);
    }

    /// Every handle, by its number. No queue is made while the guard lives. Does not queue up behind somebody who wants to make one, who
    /// may have to wait for others that look through all of them.
    pub(crate) fn handles(&self) -> MappedRwLockReadGuard<'_, [Arc<ConsumeQueue>]> {
        RwLockReadGuard::map(self.table.read_recursive(), QueueTable::handles)
    }

    /// The topics whose batches are one record each, and what other brokers read of them.
    pub(crate) fn batch(&self) -> &BatchQueues {
        &self.batch
    }

    /// Queues of a topic by id.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        let mut queues: Vec<_> = self.table.read().of_topic(topic).into_iter().flatten().cloned().collect();
        queues.sort_by_key(|queue| queue.queue_id());
        queues
    }

    /// Topics with a queue that has given an offset.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        let used = |queue: &&Arc<ConsumeQueue>| queue.next_offset() > 0 || queue.max_offset() > 0;
        let table = self.table.read();
        table.topics().filter_map(|mut queues| queues.find(used)).map(|queue| queue.topic_name()).collect()
    }

    /// Number of queues with a handle.
    pub(crate) fn len(&self) -> usize {
        self.table.read().handles().len()
    }

    /// Every queue with a handle, in the order of their numbers; those that are made meanwhile too. No lock is held between two.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<ConsumeQueue>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let some: Vec<_> =
                self.table.read().handles().iter().skip(next).take(QUEUES_AT_A_TIME).cloned().collect();
            next += some.len();
            (!some.is_empty()).then_some(some)
        })
        .flatten()
    }

    /// Makes handles for every queue that has a directory.
    pub(crate) fn discover(&self) -> io::Result<()> {
        let mut topics = Vec::new();
        self.files.for_each_topic(|topic| topics.push(topic.to_owned()))?;
        topics.sort_unstable();
        topics.iter().try_for_each(|topic| self.discover_topic(topic))
    }

    /// Makes handles for every queue of a topic that has a directory.
    pub(crate) fn discover_topic(&self, topic: &str) -> io::Result<()> {
        for queue_id in self.files.queue_ids(topic)? {
            self.get_or_create(topic, queue_id);
        }
        Ok(())
    }

    /// Makes handles for every queue that has a directory of units that other brokers read.
    pub(crate) fn discover_batch_queues(&self) -> io::Result<()> {
        for (topic, queue_id, _) in self.batch.discover()? {
            self.get_or_create(&topic, queue_id);
        }
        Ok(())
    }

    /// Compares the topics that have a directory with those that have a queue with something in its files.
    pub(crate) fn compare_directories(&self) -> io::Result<Directories> {
        let table = self.table.read();
        let (mut found, mut unknown) = (0, Vec::new());
        let in_files = |queue: &Arc<ConsumeQueue>| queue.has_readable_units_in_files();
        self.files.for_each_topic(|topic| match table.of_topic(topic) {
            Some(mut queues) => found += usize::from(queues.any(in_files)),
            None => unknown.push(topic.to_owned()),
        })?;
        let expected = table.topics().filter_map(|mut queues| queues.any(in_files).then_some(())).count();
        Ok(Directories { missing: expected - found, unknown })
    }

    /// Says where the log begins: queues need not have what lies before.
    pub(crate) fn set_log_min(&self, log_min: u64) {
        self.files.set_log_min(log_min);
    }

    pub(crate) fn directory(&self) -> &Path {
        self.files.directory()
    }

    /// Where the queues of a topic are.
    pub(crate) fn topic_directory(&self, topic: &str) -> PathBuf {
        self.files.topic_directory(topic)
    }

    /// Begins a new list with what is in the files of every queue. All units below `position` must have been written; before
    /// a list of [what is synced](Listing::Synced) is finished, the files must be synced.
    pub(crate) fn begin_list(
        &self,
        root: &Path,
        listing: Listing,
        position: u64,
    ) -> io::Result<QueueListWriter> {
        let mut list = QueueListWriter::create(root, listing, position)?;
        for queue in self.iter() {
            if let Some(offsets) = queue.written_offsets()? {
                list.put(&ListedQueue { topic: queue.topic(), queue_id: queue.queue_id(), offsets })?;
            }
        }
        Ok(list)
    }

    // ---- deletion ----

    /// Deletes the files of a topic. Its handles must have been reset, within the same [`without_writing`](Self::without_writing).
    pub(crate) fn delete_files(&self, topic: &str) -> io::Result<()> {
        self.files.delete_topic(topic)?;
        self.batch.delete(topic)?;
        // For good: when the log no longer reaches back to the deletion, nothing tells that these files are dead.
        disk::sync_directory(self.files.directory())
    }

    /// Runs `work` while no queue file is written.
    pub(crate) fn without_writing<T>(&self, work: impl FnOnce() -> T) -> T {
        let _writing = self.writing.lock();
        work()
    }
}

/// Directories of topics beside what is known.
#[derive(Debug)]
pub(crate) struct Directories {
    /// Topics that should have one and have none.
    pub(crate) missing: usize,
    /// Directories of topics without any queue that is known.
    pub(crate) unknown: Vec<String>,
}
