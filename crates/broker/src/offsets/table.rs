//! The table of offsets.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{ConsumerOffsetSerializeWrapper, DataVersion};
use ferromq_protocol::names::LMQ_PREFIX;
use ferromq_remoting::RateLimit;
use parking_lot::{Mutex, RwLock};

use crate::clock;
use crate::config_file::{ConfigFile, LoadError, Revision, SaveError, SavedFile};

/// How far each group has come on each queue.
///
/// Three offsets are kept for a queue: the committed one, which lives in `consumerOffset.json`; the pulled one, which
/// says where the group's last pull would go on; and the pending reset, which the group's next pull takes.
///
/// With light queues (`enableLmq`) the file is `lmqConsumerOffset.json`, and the offsets of groups whose names begin with
/// `%LMQ%` stand in a part of its own.
#[derive(Debug)]
pub(crate) struct ConsumerOffsets {
    table: Arc<Table>,
    file: SavedFile,
    is_kept: AtomicBool,
    /// For what clients report and can't be.
    pub(super) complaints: RateLimit,
}

#[derive(Debug)]
struct Table {
    /// Group to topic to queues, so that a look-up builds no key.
    groups: RwLock<HashMap<Arc<str>, Topics>>,
    data_version: Mutex<Version>,
    /// Pending resets in the whole table: nearly always none, and then no pull has to look for one.
    pending_resets: AtomicUsize,
    /// `enableLmq`
    light_queues: bool,
}

/// Topic to queues, for one group.
type Topics = HashMap<Arc<str>, Arc<Progress>>;

#[derive(Debug)]
struct Version {
    data_version: DataVersion,
    /// Commits since it changed.
    commits: u64,
    /// Something may have been committed here that the master does not know, if this is a slave.
    has_own: bool,
    /// `consumerOffsetUpdateVersionStep`
    step: u64,
}

/// The progress of one group on one topic.
#[derive(Debug, Default)]
struct Progress {
    queues: Mutex<BTreeMap<i32, QueueProgress>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct QueueProgress {
    committed: Option<i64>,
    pulled: Option<i64>,
    reset: Option<i64>,
}

impl ConsumerOffsets {
    /// Loads `consumerOffset.json`, or `lmqConsumerOffset.json` with `light_queues` (`enableLmq`), and keeps it up to date from now on.
    ///
    /// `flush_interval` is `flushConsumerOffsetInterval`, `version_step` is `consumerOffsetUpdateVersionStep`.
    pub(crate) fn load(
        config_directory: &Path,
        light_queues: bool,
        flush_interval: Duration,
        version_step: u64,
    ) -> Result<Self, LoadError> {
        let (file, mut loaded) = ConfigFile::load(config_directory.join(file_name(light_queues)))?;
        if loaded.is_none() {
            // The setting was changed: the progress is in the file of the other.
            loaded = ConfigFile::load(config_directory.join(file_name(!light_queues)))?.1;
        }
        let mut loaded: Option<ConsumerOffsetSerializeWrapper> = loaded;
        let is_kept = AtomicBool::new(loaded.is_some());
        let of_light_queues = loaded.as_mut().and_then(|loaded| loaded.lmq_offset_table.take());
        let data_version =
            loaded.as_ref().map_or_else(|| DataVersion::new(clock::now_ms()), |loaded| loaded.data_version);
        let mut groups: HashMap<Arc<str>, Topics> = HashMap::new();
        let of_light_queues = of_light_queues.into_iter().flatten();
        let of_light_queues = of_light_queues.map(|(key, offset)| (key, BTreeMap::from([(0, offset)])));
        let others = loaded.map(|loaded| loaded.offset_table).unwrap_or_default();
        for (key, offsets) in others.into_iter().chain(of_light_queues) {
            // Topics hold no `@`; a broadcasting group is kept as `group@broadcast` (3.9).
            let Some((topic, group)) = key.split_once('@') else {
                tracing::warn!(file = %file.path().display(), key, "not `topic@group`, these offsets are dropped");
                continue;
            };
            // A negative offset means that nothing was committed, so it need not be kept.
            let known = offsets.into_iter().filter(|(_, offset)| *offset >= 0);
            let queues = known
                .map(|(queue_id, offset)| {
                    (queue_id, QueueProgress { committed: Some(offset), ..Default::default() })
                })
                .collect();
            let progress = Arc::new(Progress { queues: Mutex::new(queues) });
            groups.entry(group.into()).or_default().insert(topic.into(), progress);
        }
        let table = Arc::new(Table {
            groups: RwLock::new(groups),
            data_version: Mutex::new(Version {
                data_version,
                commits: 0,
                has_own: true,
                step: version_step.max(1),
            }),
            pending_resets: AtomicUsize::new(0),
            light_queues,
        });
        let file = SavedFile::start(file, flush_interval, {
            let table = table.clone();
            move || table.snapshot()
        })?;
        Ok(Self { table, file, is_kept, complaints: RateLimit::new(10, Duration::from_secs(60)) })
    }

    /// Where the group goes on after a restart; `None` if it never committed.
    pub(crate) fn committed(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        self.table.get(group, topic, queue_id)?.committed
    }

    /// Where the group's last pull went on, or else what it committed.
    pub(crate) fn pulled(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        self.table.get(group, topic, queue_id).and_then(|queue| queue.pulled.or(queue.committed))
    }

    /// The reset that the group's next pull will take.
    pub(crate) fn pending_reset(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        if self.table.pending_resets.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table.get(group, topic, queue_id)?.reset
    }

    /// Takes the pending reset, which lets commits through again. Every pull asks, so it costs one atomic read when
    /// there is none.
    pub(crate) fn take_reset(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        if self.table.pending_resets.load(Ordering::Acquire) == 0 {
            return None;
        }
        let groups = self.table.groups.read();
        let mut queues = groups.get(group)?.get(topic)?.queues.lock();
        let taken = queues.get_mut(&queue_id)?.reset.take();
        if taken.is_some() {
            self.table.pending_resets.fetch_sub(1, Ordering::Release);
        }
        taken
    }

    /// The version of the table.
    pub(crate) fn data_version(&self) -> DataVersion {
        self.table.data_version.lock().data_version
    }

    /// Whether something may have been committed at this slave that its master does not know.
    pub(crate) fn has_own(&self) -> bool {
        self.table.data_version.lock().has_own
    }

    /// Takes over what the master knows; nothing is removed. As long as this slave has progress of its own that the master lacks, as
    /// of consumers that went on here while it was away, no group goes back by that. Returns whether anything changed.
    pub(crate) fn copy_from_master(&self, theirs: ConsumerOffsetSerializeWrapper) -> bool {
        let version = theirs.data_version;
        let mut data_version = self.table.data_version.lock();
        let (mut is_changed, mut is_ahead) = (data_version.data_version < version, false);
        for (group, topic, queue_id, offset) in entries(theirs) {
            match self.committed(&group, &topic, queue_id) {
                Some(ours) if ours == offset => {}
                Some(ours) if ours > offset && data_version.has_own => is_ahead = true,
                _ => {
                    is_changed = true;
                    self.table.change(&group, &topic, queue_id, |queue| queue.committed = Some(offset));
                }
            }
        }
        data_version.has_own = is_ahead;
        data_version.data_version = data_version.data_version.max(version);
        drop(data_version);
        if is_changed {
            self.file.changed();
        }
        is_changed
    }

    /// Takes over what consumers committed at a slave while this master was away. No group goes back by that, nor beyond a queue's
    /// end, which `end_of` says.
    pub(crate) fn merge_from_slave(
        &self,
        theirs: ConsumerOffsetSerializeWrapper,
        end_of: impl Fn(&str, i32) -> i64,
    ) {
        let mut data_version = self.table.data_version.lock();
        data_version.data_version = data_version.data_version.max(theirs.data_version);
        data_version.next();
        for (group, topic, queue_id, offset) in entries(theirs) {
            let offset = offset.min(end_of(&topic, queue_id));
            if self.committed(&group, &topic, queue_id).is_none_or(|ours| ours < offset) {
                self.table.change(&group, &topic, queue_id, |queue| {
                    queue.committed = queue.committed.max(Some(offset));
                });
            }
        }
        drop(data_version);
        self.file.changed();
    }

    /// Records where the group goes on after a restart, whatever was there. For what clients report use
    /// [`commit`](Self::commit), which checks it.
    pub(crate) fn set_committed(&self, group: &str, topic: &str, queue_id: i32, offset: i64) {
        self.table.change(group, topic, queue_id, |queue| queue.committed = Some(offset));
        self.table.data_version.lock().count();
        self.file.changed();
    }

    /// Records where the group's last pull goes on. Memory only.
    pub(crate) fn set_pulled(&self, group: &str, topic: &str, queue_id: i32, offset: i64) {
        self.table.change(group, topic, queue_id, |queue| queue.pulled = Some(offset));
    }

    /// Moves the group: its next pull is sent to `target`, and until then nobody can commit. What is kept for a restart
    /// is `committed`.
    pub(crate) fn reset(&self, group: &str, topic: &str, queue_id: i32, target: i64, committed: i64) {
        self.table.change(group, topic, queue_id, |queue| {
            if queue.reset.replace(target).is_none() {
                self.table.pending_resets.fetch_add(1, Ordering::Release);
            }
            queue.committed = Some(committed);
        });
        self.table.data_version.lock().count();
        self.file.changed();
    }

    /// Committed offsets of the group by queue; empty if there are none.
    pub(crate) fn offsets_of(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        let groups = self.table.groups.read();
        groups
            .get(group)
            .and_then(|topics| topics.get(topic))
            .map(|progress| progress.committed())
            .unwrap_or_default()
    }

    /// Topics on which the group has committed something, in order of their names.
    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        let groups = self.table.groups.read();
        let topics = groups.get(group).into_iter().flatten();
        let mut topics: Vec<_> = topics
            .filter(|(_, progress)| progress.has_committed())
            .map(|(topic, _)| topic.to_string())
            .collect();
        topics.sort_unstable();
        topics
    }

    /// Groups that have committed something on the topic, in order of their names.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        let groups = self.table.groups.read();
        let consumes = |topics: &Topics| topics.get(topic).is_some_and(|progress| progress.has_committed());
        // `group@broadcast` is bookkeeping (3.9), not a group.
        let mut groups: Vec<_> = groups
            .iter()
            .filter(|(group, topics)| !group.contains('@') && consumes(topics))
            .map(|(group, _)| group.to_string())
            .collect();
        groups.sort_unstable();
        groups
    }

    /// Gives `to` the committed offsets of `from` on one topic, or without `topic` on all.
    pub(crate) fn clone_group(&self, from: &str, to: &str, topic: Option<&str>) {
        let topics = topic.map_or_else(|| self.topics_of(from), |topic| vec![topic.to_owned()]);
        for topic in topics {
            for (queue_id, offset) in self.offsets_of(from, &topic) {
                self.set_committed(to, &topic, queue_id, offset);
            }
        }
    }

    /// Forgets everything about a topic: a topic of the same name begins without progress.
    pub(crate) fn remove_topic(&self, topic: &str) -> Revision {
        self.table.groups.write().retain(|_, topics| {
            if let Some(progress) = topics.remove(topic) {
                self.table.forget_resets(&progress);
            }
            !topics.is_empty()
        });
        self.removed()
    }

    /// Forgets everything about a group.
    pub(crate) fn remove_group(&self, group: &str) -> Revision {
        for progress in self.table.groups.write().remove(group).into_iter().flat_map(HashMap::into_values) {
            self.table.forget_resets(&progress);
        }
        self.removed()
    }

    fn removed(&self) -> Revision {
        self.table.data_version.lock().next();
        self.file.changed()
    }

    /// Puts a change on the disk now. Only for threads that may block.
    pub(crate) fn save_now(&self, revision: Revision) -> Result<(), SaveError> {
        self.file.save_now(revision)
    }

    /// Whether there is a file. Without one this broker is new, or lost its disk and does not know yet what groups have committed.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    /// Puts everything on the disk now, even if it is nothing. Only for threads that may block.
    pub(crate) fn keep(&self) -> Result<(), SaveError> {
        self.file.save_now(self.file.changed())?;
        self.is_kept.store(true, Ordering::Release);
        Ok(())
    }

    /// Everything that is committed: the file's content.
    pub(crate) fn snapshot(&self) -> ConsumerOffsetSerializeWrapper {
        self.table.snapshot()
    }

    /// Saves what is not saved yet and ends the saving.
    pub(crate) fn stop(&self) {
        self.file.stop();
    }
}

impl Version {
    fn count(&mut self) {
        let is_first_own = !std::mem::replace(&mut self.has_own, true);
        self.commits += 1;
        // With the first one at a slave its table is newer than the master's, which a Java master goes by when it returns.
        if is_first_own || self.commits >= self.step {
            self.next();
        }
    }

    fn next(&mut self) {
        self.commits = 0;
        self.data_version.next_version(0, clock::now_ms());
    }
}

impl Progress {
    fn committed(&self) -> BTreeMap<i32, i64> {
        let queues = self.queues.lock();
        queues.iter().filter_map(|(queue_id, queue)| Some((*queue_id, queue.committed?))).collect()
    }

    fn has_committed(&self) -> bool {
        self.queues.lock().values().any(|queue| queue.committed.is_some())
    }
}

impl Table {
    fn get(&self, group: &str, topic: &str, queue_id: i32) -> Option<QueueProgress> {
        let groups = self.groups.read();
        let queues = groups.get(group)?.get(topic)?.queues.lock();
        queues.get(&queue_id).copied()
    }

    fn change(&self, group: &str, topic: &str, queue_id: i32, change: impl FnOnce(&mut QueueProgress)) {
        {
            let groups = self.groups.read();
            if let Some(progress) = groups.get(group).and_then(|topics| topics.get(topic)) {
                return change(progress.queues.lock().entry(queue_id).or_default());
            }
        }
        let mut groups = self.groups.write();
        let topics = groups.entry(group.into()).or_default();
        let progress = topics.entry(topic.into()).or_default();
        change(progress.queues.lock().entry(queue_id).or_default());
    }

    /// Counts down for progress that was removed.
    fn forget_resets(&self, progress: &Progress) {
        let pending = progress.queues.lock().values().filter(|queue| queue.reset.is_some()).count();
        self.pending_resets.fetch_sub(pending, Ordering::Release);
    }

    fn snapshot(&self) -> ConsumerOffsetSerializeWrapper {
        let data_version = self.data_version.lock().data_version;
        // Copied outside of the lock, because there can be very much progress and pulls wait for it.
        let progresses: Vec<_> = {
            let groups = self.groups.read();
            let of_group = |(group, topics): (&Arc<str>, &Topics)| {
                let of_topic = |(topic, progress): (&Arc<str>, &Arc<Progress>)| {
                    (topic.clone(), group.clone(), progress.clone())
                };
                topics.iter().map(of_topic).collect::<Vec<_>>()
            };
            groups.iter().flat_map(of_group).collect()
        };
        let offsets = progresses
            .into_iter()
            .map(|(topic, group, progress)| (format!("{topic}@{group}"), progress.committed()));
        let mut offset_table: BTreeMap<_, _> = offsets.filter(|(_, offsets)| !offsets.is_empty()).collect();
        let lmq_offset_table = self.light_queues.then(|| take_light_queues(&mut offset_table));
        ConsumerOffsetSerializeWrapper {
            lmq_offset_table,
            ..ConsumerOffsetSerializeWrapper::new(data_version, offset_table)
        }
    }
}

/// Group, topic, queue and offset of all that was committed.
fn entries(table: ConsumerOffsetSerializeWrapper) -> impl Iterator<Item = (String, String, i32, i64)> {
    let light = table.lmq_offset_table.into_iter().flatten();
    let light = light.map(|(key, offset)| (key, BTreeMap::from([(0, offset)])));
    table.offset_table.into_iter().chain(light).flat_map(|(key, offsets)| {
        let names = key.split_once('@').map(|(topic, group)| (group.to_owned(), topic.to_owned()));
        names.into_iter().flat_map(move |(group, topic)| {
            let known = offsets.clone().into_iter().filter(|(_, offset)| *offset >= 0);
            known.map(move |(queue_id, offset)| (group.clone(), topic.clone(), queue_id, offset))
        })
    })
}

/// Names of the file, without and with light queues.
pub(crate) const FILES: [&str; 2] = ["consumerOffset.json", "lmqConsumerOffset.json"];

fn file_name(light_queues: bool) -> &'static str {
    FILES[usize::from(light_queues)]
}

/// Takes the offsets of groups of light queues out of the table; a light queue has the id 0.
fn take_light_queues(table: &mut BTreeMap<String, BTreeMap<i32, i64>>) -> BTreeMap<String, i64> {
    let light = |key: &String, _: &mut BTreeMap<i32, i64>| {
        key.split_once('@').is_some_and(|(_, group)| group.starts_with(LMQ_PREFIX))
    };
    let taken = table.extract_if(.., light);
    taken.filter_map(|(key, offsets)| Some((key, *offsets.get(&0)?))).collect()
}

#[cfg(test)]
mod tests;
