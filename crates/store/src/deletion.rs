//! Deleting topics, here or as another broker did.

use std::collections::BTreeMap;

use crate::error::{FileError, ReplicaError};
use crate::queue::ConsumeQueue;
use crate::shared::Shared;
use crate::store::Store;

impl Store {
    /// Deletes every queue of a topic. A topic of the same name starts at offset 0, with nothing old in sight, also after
    /// a crash. The log keeps the bytes until they expire. Waits for the disk.
    pub fn delete_topic(&self, topic: &str) -> Result<(), FileError> {
        self.delete_topics(&[topic])
    }

    fn delete_topics(&self, topics: &[&str]) -> Result<(), FileError> {
        let shared = &*self.shared;
        if topics.is_empty() {
            return Ok(());
        }
        // Nothing is dispatched and no queue file is written meanwhile; appends pause only while the queues are reset.
        let dispatcher = shared.dispatcher.lock();
        shared.queues.without_writing(|| {
            let paused = shared.log.pause_appends();
            let end = shared.log.appended.get();
            shared.deleted.add(topics.iter().map(|topic| (*topic, end)))?;
            for queue in topics.iter().flat_map(|topic| shared.queues.of_topic(topic)) {
                queue.reset();
            }
            drop(paused);
            shared.deleted.sync()?;
            topics.iter().try_for_each(|topic| shared.delete_queue_files(topic))
        })?;
        drop(dispatcher);
        Ok(())
    }

    /// `cleanUnusedTopic`: deletes the queues of every topic that `in_use` says no to. Returns how many topics. Waits for the
    /// disk.
    pub fn clean_unused_topics(&self, in_use: &dyn Fn(&str) -> bool) -> Result<usize, FileError> {
        let topics = self.topics();
        let unused: Vec<&str> = topics.iter().map(|topic| &**topic).filter(|topic| !in_use(topic)).collect();
        self.delete_topics(&unused)?;
        Ok(unused.len())
    }

    /// Topics that were deleted while the log still had their messages, and the offset of the log below which those lie: what
    /// brokers with the same log need in order to [delete](Self::delete_topics_below) the same. Deletions behind what is
    /// confirmed are left out, as the log may not stay what it is there.
    pub fn deleted_topics(&self) -> BTreeMap<String, u64> {
        self.shared.deleted.up_to(self.shared.confirmed().get())
    }

    /// Deletes topics as the broker did whose log this is a copy of: all of their messages below the offset given for each, which
    /// may lie behind the log's end. What came later stays. Returns the topics of which that was not known yet. Only on a
    /// [follower](Self::follow). Waits for the disk.
    pub fn delete_topics_below(
        &self,
        deletions: &BTreeMap<String, u64>,
    ) -> Result<Vec<String>, ReplicaError> {
        let shared = &*self.shared;
        // As above; nobody else appends to a follower's queues, and it stays one while the dispatcher stands.
        let _dispatcher = shared.dispatcher.lock();
        if !shared.log.is_following() {
            return Err(ReplicaError::Leading);
        }
        let log_min = shared.log.files.min_offset();
        let is_new = |(topic, below): &(&String, &u64)| {
            **below > log_min && !shared.deleted.covers(topic, **below - 1)
        };
        let new: Vec<(&String, &u64)> = deletions.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(Vec::new());
        }
        shared.queues.without_writing(|| {
            shared.deleted.add(new.iter().map(|(topic, below)| (topic.as_str(), **below)))?;
            shared.deleted.sync()?;
            new.iter().try_for_each(|(topic, below)| shared.delete_queues_below(topic, **below))
        })?;
        Ok(new.into_iter().map(|(topic, _)| topic.clone()).collect())
    }
}

impl Shared {
    /// Deletes the queues of a topic all of whose messages lie below an offset of the log. One with newer messages has nothing older:
    /// the dispatcher began it anew with the first of them.
    fn delete_queues_below(&self, topic: &str, below: u64) -> Result<(), FileError> {
        let directory = self.queues.topic_directory(topic);
        let failed = |action| FileError::at(action, &directory);
        let is_deleted = |queue: &ConsumeQueue| {
            let end = queue.max_offset();
            let last = queue.unit_at(end - 1)?;
            Ok(end == 0 || last.is_some_and(|last| last.not_behind() < below))
        };
        let mut is_in_use = false;
        for queue in self.queues.of_topic(topic) {
            if is_deleted(&queue).map_err(failed("read"))? {
                queue.cut(0).map_err(failed("delete files in"))?;
                queue.reset();
            } else {
                is_in_use = true;
            }
        }
        if is_in_use {
            let is_deleted = |offset| offset < below;
            return self.queues.batch().delete_units(topic, is_deleted).map_err(failed("delete"));
        }
        self.delete_queue_files(topic)
    }

    /// Deletes the files of a topic whose queues were reset.
    fn delete_queue_files(&self, topic: &str) -> Result<(), FileError> {
        let directory = self.queues.topic_directory(topic);
        self.queues.delete_files(topic).map_err(FileError::at("delete", &directory))
    }
}
