//! The table of all queues, by name and by number.
//!
//! The dispatcher looks up the queue of each record. With many queues it waits for memory, not for instructions: so what it reads to find
//! one lies in one piece, for topics with a name and a number of queues that are usual.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::ConsumeQueue;

/// Every queue that has a handle.
#[derive(Debug, Default)]
pub(super) struct QueueTable {
    topics: HashMap<TopicName, TopicQueues, RandomState>,
    by_number: Vec<Arc<ConsumeQueue>>,
}

type TopicName = SmallVec<[u8; 36]>;

/// The numbers of one topic's queues. Ids are small and dense, except for strange clients.
#[derive(Debug, Default)]
struct TopicQueues {
    by_id: SmallVec<[u32; 8]>,
    others: BTreeMap<i32, u32>,
}

impl QueueTable {
    /// The number of a queue.
    pub(super) fn find(&self, topic: &[u8], queue_id: i32) -> Option<u32> {
        self.topics.get(topic)?.get(queue_id)
    }

    /// All handles, by their number.
    pub(super) fn handles(&self) -> &[Arc<ConsumeQueue>] {
        &self.by_number
    }

    /// The queues of a topic.
    pub(super) fn of_topic(&self, topic: &str) -> Option<impl Iterator<Item = &Arc<ConsumeQueue>>> {
        self.topics.get(topic.as_bytes()).map(|queues| self.of(queues))
    }

    /// For each topic its queues, of which there is at least one.
    pub(super) fn topics(&self) -> impl Iterator<Item = impl Iterator<Item = &Arc<ConsumeQueue>>> {
        self.topics.values().map(|queues| self.of(queues))
    }

    fn of<'t>(&'t self, queues: &'t TopicQueues) -> impl Iterator<Item = &'t Arc<ConsumeQueue>> {
        queues.iter().map(|number| &self.by_number[number as usize])
    }

    /// Adds a queue that the table does not have; `create` makes its handle, given its number.
    pub(super) fn insert(
        &mut self,
        topic: &str,
        queue_id: i32,
        create: impl FnOnce(Arc<str>, u32) -> ConsumeQueue,
    ) -> Arc<ConsumeQueue> {
        // All handles of a topic share one name.
        let name = match self.of_topic(topic).and_then(|mut queues| queues.next()) {
            Some(queue) => queue.topic_name(),
            None => Arc::from(topic),
        };
        let number = self.by_number.len() as u32;
        let queue = Arc::new(create(name, number));
        self.by_number.push(Arc::clone(&queue));
        self.topics.entry(TopicName::from_slice(topic.as_bytes())).or_default().insert(queue_id, number);
        queue
    }
}

impl TopicQueues {
    const DENSE: usize = 1024;
    /// In `by_id`: there is no such queue.
    const NONE: u32 = u32::MAX;

    fn get(&self, queue_id: i32) -> Option<u32> {
        match usize::try_from(queue_id) {
            Ok(id) if id < Self::DENSE => self.by_id.get(id).copied().filter(|number| *number != Self::NONE),
            _ => self.others.get(&queue_id).copied(),
        }
    }

    fn insert(&mut self, queue_id: i32, number: u32) {
        match usize::try_from(queue_id) {
            Ok(id) if id < Self::DENSE => {
                if self.by_id.len() <= id {
                    self.by_id.resize(id + 1, Self::NONE);
                }
                self.by_id[id] = number;
            }
            _ => {
                self.others.insert(queue_id, number);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let dense = self.by_id.iter().copied().filter(|number| *number != Self::NONE);
        dense.chain(self.others.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;
    use crate::queue::ConsumeQueues;

    #[test]
    fn every_queue_is_found_by_its_name_and_number_however_strange_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let queues = ConsumeQueues::new(&StoreOptions::new(directory.path()));
        let long = "long".repeat(30);
        let topics = ["", "T", "%RETRY%a_group_with_a_name_of_medium_length", &long, "日本"];
        let ids = [0, 3, 7, 8, 1023, 1024, i32::MAX, -1, i32::MIN];
        let mut made = Vec::new();
        for topic in topics {
            for id in ids {
                assert!(queues.find(topic, id).is_none());
                let queue = queues.get_or_create(topic, id);
                assert_eq!(
                    (queue.topic(), queue.queue_id(), queue.number() as usize),
                    (topic, id, made.len())
                );
                made.push(queue);
            }
        }
        for queue in &made {
            assert!(Arc::ptr_eq(&queues.find(queue.topic(), queue.queue_id()).unwrap(), queue));
            assert!(Arc::ptr_eq(&queues.get_or_create(queue.topic(), queue.queue_id()), queue));
        }
        let mut numbers = Vec::new();
        let names = made.iter().map(|queue| (queue.topic().as_bytes(), queue.queue_id()));
        queues.find_each(names.chain([(&b"other"[..], 0), (b"T", 1)]), &mut numbers);
        let mut expected: Vec<_> = made.iter().map(|queue| Some(queue.number())).collect();
        expected.extend([None, None]);
        assert_eq!(numbers, expected);
        for (topic, of_topic) in topics.iter().zip(made.chunks(ids.len())) {
            let mut ids: Vec<_> = of_topic.iter().map(|queue| queue.queue_id()).collect();
            ids.sort_unstable();
            let found: Vec<_> = queues.of_topic(topic).iter().map(|queue| queue.queue_id()).collect();
            assert_eq!(found, ids);
        }
        assert_eq!(queues.iter().count(), made.len());
        assert!(queues.topics().is_empty(), "none of them has given an offset");
        made[ids.len()].raise_next_offset(1);
        assert_eq!(queues.topics(), [Arc::from("T")]);
    }
}
