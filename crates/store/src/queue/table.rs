//! The table of all queues, by name and by number.
//!
//! The dispatcher looks up the queue of each record. With many queues it waits for memory, not for instructions: so what tells the queues
//! of a topic lies in one piece, if its name and their number are usual, and for many records these pieces are fetched all at once.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::ConsumeQueue;
use crate::mapped::prefetch;

/// Every queue that has a handle.
#[derive(Debug, Default)]
pub(super) struct QueueTable {
    /// Leads from a topic's name to its place in `topics`.
    places: HashTable<Place>,
    topics: Vec<Topic>,
    by_number: Vec<Arc<ConsumeQueue>>,
    hashes: RandomState,
}

/// Where a topic is, and half of its hash, so that others are not looked at.
#[derive(Debug, Clone, Copy)]
struct Place {
    hash: u32,
    topic: u32,
}

/// A topic and the numbers of its queues. Ids are small and dense, except for strange clients.
#[derive(Debug)]
struct Topic {
    name: SmallVec<[u8; 36]>,
    by_id: SmallVec<[u32; 8]>,
    others: BTreeMap<i32, u32>,
}

impl Place {
    fn half(hash: u64) -> u32 {
        // The unit tests want names to meet.
        let bits = if cfg!(test) { 2 } else { 32 };
        (hash >> (u64::BITS - bits)) as u32
    }

    fn may_be(&self, hash: u64) -> bool {
        self.hash == Self::half(hash)
    }
}

impl QueueTable {
    /// The number of a queue.
    pub(super) fn find(&self, topic: &[u8], queue_id: i32) -> Option<u32> {
        self.topic(topic)?.get(queue_id)
    }

    fn topic(&self, name: &[u8]) -> Option<&Topic> {
        let hash = self.hashes.hash_one(name);
        let topic = |place: &Place| &self.topics[place.topic as usize];
        let is_it = |place: &Place| place.may_be(hash) && topic(place).name.as_slice() == name;
        self.places.find(hash, is_it).map(topic)
    }

    /// Adds the numbers of many queues, as far as there are such.
    pub(super) fn find_each<'n>(
        &self,
        names: impl Iterator<Item = (&'n [u8], i32)> + Clone,
        numbers: &mut Vec<Option<u32>>,
    ) {
        let from = numbers.len();
        numbers.extend(names.clone().map(|(topic, _)| {
            let hash = self.hashes.hash_one(topic);
            let place = self.places.find(hash, |place| place.may_be(hash))?;
            self.topics[place.topic as usize].prefetch();
            Some(place.topic)
        }));
        for (number, (name, queue_id)) in numbers[from..].iter_mut().zip(names) {
            *number = number.and_then(|topic| match &self.topics[topic as usize] {
                topic if topic.name.as_slice() == name => topic.get(queue_id),
                // Two names have the same half of a hash.
                _ => self.find(name, queue_id),
            });
        }
    }

    /// All handles, by their number.
    pub(super) fn handles(&self) -> &[Arc<ConsumeQueue>] {
        &self.by_number
    }

    /// The queues of a topic.
    pub(super) fn of_topic(&self, topic: &str) -> Option<impl Iterator<Item = &Arc<ConsumeQueue>>> {
        self.topic(topic.as_bytes()).map(|topic| self.of(topic))
    }

    /// For each topic its queues, of which there is at least one.
    pub(super) fn topics(&self) -> impl Iterator<Item = impl Iterator<Item = &Arc<ConsumeQueue>>> {
        self.topics.iter().map(|topic| self.of(topic))
    }

    fn of<'t>(&'t self, topic: &'t Topic) -> impl Iterator<Item = &'t Arc<ConsumeQueue>> {
        topic.numbers().map(|number| &self.by_number[number as usize])
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
        self.topic_or_insert(topic.as_bytes()).insert(queue_id, number);
        queue
    }

    fn topic_or_insert(&mut self, name: &[u8]) -> &mut Topic {
        let QueueTable { places, topics, hashes, .. } = self;
        let hash = hashes.hash_one(name);
        let is_it =
            |place: &Place| place.may_be(hash) && topics[place.topic as usize].name.as_slice() == name;
        let hash_of = |place: &Place| hashes.hash_one(topics[place.topic as usize].name.as_slice());
        let place = places.entry(hash, is_it, hash_of).or_insert_with(|| {
            topics.push(Topic {
                name: SmallVec::from_slice(name),
                by_id: SmallVec::new(),
                others: BTreeMap::new(),
            });
            Place { hash: Place::half(hash), topic: topics.len() as u32 - 1 }
        });
        &mut topics[place.get().topic as usize]
    }
}

impl Topic {
    const DENSE: usize = 1024;
    /// In `by_id`: there is no such queue.
    const NONE: u32 = u32::MAX;

    #[inline]
    fn prefetch(&self) {
        prefetch(&raw const self.name);
        prefetch(&raw const self.by_id);
    }

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

    fn numbers(&self) -> impl Iterator<Item = u32> {
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
        let many: Vec<String> = (0..300).map(|number| format!("Topic{number}")).collect();
        let mut topics = vec!["", "T", "%RETRY%a_group_with_a_name_of_medium_length", &long, "日本"];
        topics.extend(many.iter().map(String::as_str));
        let ids = [0, 3, 7, 8, 1023, 1024, i32::MAX, -1, i32::MIN];
        let mut made = Vec::new();
        for topic in &topics {
            for id in ids {
                assert!(queues.find(topic, id).is_none());
                let queue = queues.get_or_create(topic, id);
                assert_eq!(
                    (queue.topic(), queue.queue_id(), queue.number() as usize),
                    (*topic, id, made.len())
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
