//! How far queues had got, by anything that tells: no queue offset is given twice, whatever the log has lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Rebuild, Retry};
use crate::error::FileError;
use crate::queue::{ConsumeQueue, ListedOffsets, ListedQueue, Listing, QueueList, QueueListWriter};

/// The next offset of each queue, by queue number.
pub(crate) type Given = BTreeMap<u32, (Arc<ConsumeQueue>, i64)>;

impl Rebuild<'_> {
    /// Notes how far the queues had got, before their files are cut, which may be the only ones that tell: this recovery may be
    /// ended by a crash too.
    pub(super) fn remember_given(&self) -> Result<(), Retry> {
        self.recall_given();
        let given = self.given.borrow();
        let mut queues = given.values().filter(|(_, next)| *next > 0).peekable();
        if queues.peek().is_none() {
            // A new store: nothing to lose.
            return Ok(());
        }
        let root = &self.options.root;
        let failed = |error| Retry::from(FileError::at("write the list of queues in", root)(error));
        let log_end = self.segments.last().map_or(0, |segment| segment.end());
        let mut list = QueueListWriter::create(root, Listing::Given, log_end).map_err(failed)?;
        for (queue, next) in queues {
            let offsets =
                ListedOffsets { min: *next, max: *next, min_physical: log_end, last_physical: None };
            let (topic, queue_id) = (queue.topic(), queue.queue_id());
            list.put(&ListedQueue { topic, queue_id, offsets }).map_err(failed)?;
        }
        list.finish().map_err(failed)
    }

    /// Takes over what a recovery noted that was not completed.
    fn recall_given(&self) {
        let Some(list) = QueueList::load(&self.options.root, Listing::Given) else { return };
        for listed in list.queues().flatten().filter(|listed| self.is_alive(&list, listed)) {
            let queue = self.queues.get_or_create(listed.topic, listed.queue_id);
            self.was_given(&queue, listed.offsets.max);
        }
    }

    /// The queue has given the offsets below `next`.
    pub(super) fn was_given(&self, queue: &Arc<ConsumeQueue>, next: i64) {
        let mut given = self.given.borrow_mut();
        let entry = given.entry(queue.number()).or_insert_with(|| (Arc::clone(queue), 0));
        entry.1 = entry.1.max(next);
    }

    /// No offset is given twice: where a queue had got further than the log, holes take the places. Says whether there was one.
    pub(super) fn keep_given(&self, log_end: u64) -> bool {
        self.recall_given();
        let mut some_are_lost = false;
        // A replica gets what it has lost once more, from the one that gave the offsets.
        let gone = if self.options.is_replica() { Given::new() } else { self.given.borrow().clone() };
        for (queue, offset) in gone.values() {
            let missing = *offset - queue.max_offset();
            if missing > queue.holes_max() {
                tracing::error!(
                    topic = queue.topic(),
                    queue = queue.queue_id(),
                    queue_offset = *offset,
                    "the queue's files claim more messages than the log can have had: not believed"
                );
            } else if missing > 0 {
                tracing::error!(
                    topic = queue.topic(),
                    queue = queue.queue_id(),
                    from = queue.max_offset(),
                    to = *offset,
                    "the last messages of the queue are lost: their offsets are not given again"
                );
                some_are_lost = true;
                if queue.fill_holes(*offset, log_end) {
                    self.queues.list(queue, log_end);
                }
            }
        }
        for queue in self.queues.iter() {
            queue.raise_next_offset(queue.max_offset());
        }
        some_are_lost
    }
}
