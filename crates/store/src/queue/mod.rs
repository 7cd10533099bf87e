//! Consume queues: per queue of a topic, where its messages lie in the log.
//!
//! [`ConsumeQueue`] is one of them, [`ConsumeQueues`] all of them. A queue is a projection of the log: what its files lack or
//! have wrong, the log gives back.

mod consume_queue;
mod files;
mod unit;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::disk;
pub(crate) use consume_queue::Pushed;
pub use consume_queue::{ConsumeQueue, QueueWatch};
use files::QueueFiles;
pub(crate) use unit::{UNIT, Unit};

/// Queues written by one pass of the flusher when there are many; the oldest first.
const QUEUES_PER_PASS: usize = 20_000;
/// Open files beyond which one `syncfs` is cheaper than syncing each.
const SYNC_EACH_MAX: usize = 256;

/// All consume queues of a store.
#[derive(Debug)]
pub(crate) struct ConsumeQueues {
    files: Arc<QueueFiles>,
    topics: RwLock<Topics>,
    /// Queues with units that are not in their file, oldest first.
    unwritten: Mutex<Vec<Arc<ConsumeQueue>>>,
    /// Held while queue files are written or deleted.
    writing: Mutex<Unsynced>,
}

#[derive(Debug, Default)]
struct Topics {
    by_name: HashMap<Arc<str>, TopicQueues>,
    count: u32,
}

/// Queues of one topic. Ids are small and dense, except for strange clients.
#[derive(Debug, Default, Clone)]
pub(crate) struct TopicQueues {
    by_id: Vec<Option<Arc<ConsumeQueue>>>,
    others: HashMap<i32, Arc<ConsumeQueue>>,
}

#[derive(Debug, Default)]
struct Unsynced {
    files: Vec<Arc<File>>,
    too_many: bool,
}

impl TopicQueues {
    const DENSE: usize = 1024;

    pub(crate) fn get(&self, queue_id: i32) -> Option<&Arc<ConsumeQueue>> {
        match usize::try_from(queue_id) {
            Ok(id) if id < Self::DENSE => self.by_id.get(id)?.as_ref(),
            _ => self.others.get(&queue_id),
        }
    }

    fn insert(&mut self, queue: Arc<ConsumeQueue>) {
        match usize::try_from(queue.queue_id()) {
            Ok(id) if id < Self::DENSE => {
                if self.by_id.len() <= id {
                    self.by_id.resize(id + 1, None);
                }
                self.by_id[id] = Some(queue);
            }
            _ => {
                self.others.insert(queue.queue_id(), queue);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<ConsumeQueue>> {
        self.by_id.iter().flatten().chain(self.others.values())
    }
}

impl ConsumeQueues {
    pub(crate) fn new(directory: PathBuf, units_per_file: u64) -> Self {
        ConsumeQueues {
            files: Arc::new(QueueFiles::new(directory, units_per_file)),
            topics: RwLock::default(),
            unwritten: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    pub(crate) fn find(&self, topic: &str, queue_id: i32) -> Option<Arc<ConsumeQueue>> {
        self.topics.read().by_name.get(topic)?.get(queue_id).cloned()
    }

    pub(crate) fn get_or_create(&self, topic: &str, queue_id: i32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.find(topic, queue_id) {
            return queue;
        }
        let mut topics = self.topics.write();
        let Topics { by_name, count } = &mut *topics;
        let name = match by_name.get_key_value(topic) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(topic),
        };
        let queues = by_name.entry(Arc::clone(&name)).or_default();
        if let Some(queue) = queues.get(queue_id) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(ConsumeQueue::new(name, queue_id, *count, Arc::clone(&self.files)));
        *count += 1;
        queues.insert(Arc::clone(&queue));
        queue
    }

    /// Queues of a topic by id.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<Arc<ConsumeQueue>> {
        let mut queues: Vec<_> = self
            .topics
            .read()
            .by_name
            .get(topic)
            .map(|queues| queues.iter().cloned().collect())
            .unwrap_or_default();
        queues.sort_by_key(|queue| queue.queue_id());
        queues
    }

    /// Topics with a queue that has given an offset.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        let topics = self.topics.read();
        let used = |queues: &TopicQueues| {
            queues.iter().any(|queue| queue.next_offset() > 0 || queue.max_offset() > 0)
        };
        topics.by_name.iter().filter(|(_, queues)| used(queues)).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Number of queues with a handle.
    pub(crate) fn len(&self) -> usize {
        self.topics.read().count as usize
    }

    /// Topics with a handle.
    pub(crate) fn topics_known(&self) -> Vec<Arc<str>> {
        self.topics.read().by_name.keys().cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        self.topics.read().by_name.values().flat_map(|queues| queues.iter().cloned()).collect()
    }

    /// Makes handles for every queue that has a directory.
    pub(crate) fn discover(&self) -> io::Result<()> {
        for (topic, queue_id) in self.files.discover()? {
            self.get_or_create(&topic, queue_id);
        }
        Ok(())
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.files.directory()
    }

    // ---- writing ----

    /// Puts a queue on the list of those with something to write.
    pub(crate) fn list(&self, queue: &Arc<ConsumeQueue>) {
        self.unwritten.lock().push(Arc::clone(queue));
    }

    /// Writes the listed queues' units to their files (`everything`: all of them, else at most a pass's worth).
    ///
    /// Returns the physical offset below which every unit is in its file, given that everything below `dispatched` had
    /// been pushed before the call.
    pub(crate) fn write_out(&self, dispatched: u64, everything: bool) -> io::Result<u64> {
        let mut writing = self.writing.lock();
        let mut listed = std::mem::take(&mut *self.unwritten.lock());
        let due = if everything { listed.len() } else { listed.len().min(QUEUES_PER_PASS) };
        let later = listed.split_off(due);
        let mut failure = None;
        let mut back = Vec::new();
        for queue in listed {
            if failure.is_some() {
                back.push(queue);
                continue;
            }
            match queue.write_out() {
                Ok(written) => writing.add(written.files),
                Err(error) => {
                    failure = Some(error);
                    back.push(queue);
                }
            }
        }
        back.extend(later);
        if let Some(error) = failure {
            self.put_back(back);
            return Err(error);
        }
        let written =
            back.iter().filter_map(|queue| queue.first_unwritten_physical()).fold(dispatched, u64::min);
        self.put_back(back);
        Ok(written)
    }

    /// Writes one queue's units, out of turn.
    pub(crate) fn write_queue(&self, queue: &Arc<ConsumeQueue>) -> io::Result<()> {
        let mut writing = self.writing.lock();
        let written = queue.write_out()?;
        writing.add(written.files);
        Ok(())
    }

    fn put_back(&self, mut queues: Vec<Arc<ConsumeQueue>>) {
        let mut unwritten = self.unwritten.lock();
        queues.append(&mut unwritten);
        *unwritten = queues;
    }

    /// Any file may hold what is not on the device: it was written by an earlier run. The next [`sync`](Self::sync) does them all.
    pub(crate) fn suspect_everything(&self) {
        *self.writing.lock() = Unsynced { files: Vec::new(), too_many: true };
    }

    /// Forces what was written to the device.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let Unsynced { files, too_many } = std::mem::take(&mut *self.writing.lock());
        if too_many {
            return disk::sync_file_system(self.files.directory());
        }
        for file in files {
            // Also the length and the directory entry of a new file.
            disk::sync_all(&file)?;
        }
        Ok(())
    }

    /// Gives back what idle queues hold.
    pub(crate) fn release_idle(&self) {
        self.all().iter().for_each(|queue| queue.release_if_idle());
    }

    // ---- deletion ----

    /// Deletes the files of a topic. Its handles must have been reset, within the same [`without_writing`](Self::without_writing).
    pub(crate) fn delete_files(&self, topic: &str) -> io::Result<()> {
        self.files.delete_topic(topic)?;
        // For good: when the log no longer reaches back to the deletion, nothing tells that these files are dead.
        disk::sync_directory(self.files.directory())
    }

    /// Runs `work` while no queue file is written.
    pub(crate) fn without_writing<T>(&self, work: impl FnOnce() -> T) -> T {
        let _writing = self.writing.lock();
        work()
    }
}

impl Unsynced {
    fn add(&mut self, files: Vec<Arc<File>>) {
        for file in files {
            if self.too_many || self.files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                continue;
            }
            self.files.push(file);
            if self.files.len() > SYNC_EACH_MAX {
                self.files.clear();
                self.too_many = true;
            }
        }
    }
}
