//! How far a group has come (`docs/spec/07-client.md` 19).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferromq_protocol::body::MessageQueue;
use parking_lot::Mutex;

use super::local_offsets::LocalOffsets;
use crate::error::Error;
use crate::instance::Instance;

/// Progress by queue, kept in memory and written to its store from time to time.
#[derive(Debug)]
pub(crate) struct OffsetStore {
    table: Mutex<BTreeMap<MessageQueue, Arc<Progress>>>,
    backing: Backing,
}

/// How far the group has come in one queue.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: not known yet.
    offset: Option<i64>,
    /// An administrator or the broker has set it: what consumption still reports is outdated.
    frozen: bool,
}

impl Progress {
    /// The progress as this consumer knows it.
    pub(crate) fn offset(&self) -> Option<i64> {
        self.state.lock().offset
    }

    /// Notes progress. With `increase_only` a smaller offset changes nothing.
    pub(crate) fn update(&self, offset: i64, increase_only: bool) {
        let mut state = self.state.lock();
        let is_behind = increase_only && state.offset.is_some_and(|known| known > offset);
        if !state.frozen && !is_behind {
            state.offset = Some(offset);
        }
    }

    fn freeze_at(&self, offset: i64) {
        *self.state.lock() = State { offset: Some(offset), frozen: true };
    }
}

/// Where progress is kept when this process ends.
#[derive(Debug)]
enum Backing {
    /// At the brokers: the group shares it.
    Remote { instance: Arc<Instance>, group: String },
    /// In a file on this machine: each consumer has its own.
    Local(LocalOffsets),
}

impl OffsetStore {
    pub(crate) fn remote(instance: Arc<Instance>, group: &str) -> Self {
        Self { table: Mutex::default(), backing: Backing::Remote { instance, group: group.to_owned() } }
    }

    pub(crate) fn local(file: LocalOffsets) -> Self {
        Self { table: Mutex::default(), backing: Backing::Local(file) }
    }

    /// The progress as this consumer knows it.
    pub(crate) fn get(&self, queue: &MessageQueue) -> Option<i64> {
        self.table.lock().get(queue)?.offset()
    }

    /// What is known of a queue, for those who note its progress often; until the queue is [forgotten](Self::forget).
    pub(crate) fn progress(&self, queue: &MessageQueue) -> Arc<Progress> {
        let mut table = self.table.lock();
        if let Some(known) = table.get(queue) {
            return known.clone();
        }
        table.entry(queue.clone()).or_default().clone()
    }

    /// Everything this consumer knows of a topic; of all topics if the name is empty.
    pub(crate) fn of_topic(&self, topic: &str) -> BTreeMap<MessageQueue, i64> {
        let table = self.table.lock();
        let wanted = table.iter().filter(|(queue, _)| topic.is_empty() || queue.topic == topic);
        wanted.filter_map(|(queue, progress)| Some((queue.clone(), progress.offset()?))).collect()
    }

    /// The progress as the store knows it; noted here too. `None`: there is none yet.
    pub(crate) async fn load(&self, queue: &MessageQueue) -> Result<Option<i64>, Error> {
        let stored = match &self.backing {
            Backing::Remote { instance, group } => instance.query_offset(group, queue).await?,
            Backing::Local(file) => file.read().await?.get(queue).copied(),
        };
        if let Some(offset) = stored {
            self.update(queue, offset, false);
        }
        Ok(stored)
    }

    /// Notes progress. With `increase_only` a smaller offset changes nothing.
    pub(crate) fn update(&self, queue: &MessageQueue, offset: i64, increase_only: bool) {
        self.progress(queue).update(offset, increase_only);
    }

    /// Sets the progress for good: until the queue is [forgotten](Self::forget), nothing changes it.
    pub(crate) fn update_and_freeze(&self, queue: &MessageQueue, offset: i64) {
        self.progress(queue).freeze_at(offset);
    }

    pub(crate) fn forget(&self, queue: &MessageQueue) {
        self.table.lock().remove(queue);
    }

    /// Writes the progress in one queue to the store.
    pub(crate) async fn persist(&self, queue: &MessageQueue) {
        self.persist_all(&BTreeSet::from([queue.clone()])).await;
    }

    /// Writes the progress in these queues to the store. What can't be written now will be the next time.
    pub(crate) async fn persist_all(&self, queues: &BTreeSet<MessageQueue>) {
        let known: BTreeMap<MessageQueue, i64> = {
            let table = self.table.lock();
            let known = queues.iter().filter_map(|queue| Some((queue.clone(), table.get(queue)?.offset()?)));
            known.collect()
        };
        if known.is_empty() {
            return;
        }
        match &self.backing {
            Backing::Remote { instance, group } => {
                for (queue, offset) in &known {
                    if let Err(error) = instance.update_offset(group, queue, *offset).await {
                        tracing::warn!(group, %queue, offset, %error, "progress was not told");
                    }
                }
            }
            Backing::Local(file) => {
                if let Err(error) = file.merge(known).await {
                    tracing::error!(%error, "progress was not written");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn progress_only_rises_and_stands_still_when_frozen() {
        let directory = tempfile::tempdir().unwrap();
        let store = OffsetStore::local(LocalOffsets::new(directory.path(), "c@1", "g"));
        let queue = MessageQueue::new("T", "a", 0);
        assert_eq!((store.get(&queue), store.load(&queue).await.unwrap()), (None, None));
        store.update(&queue, 7, true);
        store.update(&queue, 5, true);
        assert_eq!(store.get(&queue), Some(7));
        store.update(&queue, 5, false);
        let progress = store.progress(&queue);
        assert_eq!((store.get(&queue), progress.offset()), (Some(5), Some(5)));
        store.update_and_freeze(&queue, 3);
        store.update(&queue, 9, false);
        progress.update(9, true);
        assert_eq!(store.of_topic("T"), BTreeMap::from([(queue.clone(), 3)]));
        store.persist(&queue).await;
        store.forget(&queue);
        progress.update(9, true);
        assert_eq!((store.get(&queue), store.load(&queue).await.unwrap()), (None, Some(3)));
        assert_eq!(store.get(&queue), Some(3), "what was loaded is known");
    }
}
