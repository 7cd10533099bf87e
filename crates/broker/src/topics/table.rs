//! The table of topics.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferromq_protocol::body::{DataVersion, TopicConfig, TopicConfigSerializeWrapper};
use ferromq_protocol::names;
use parking_lot::{RwLock, RwLockWriteGuard};
use thiserror::Error;

use super::attributes::{AttributeError, OF_TOPICS, alter_attributes, is_batch};
use super::{PERM_INHERIT, PERM_READ, PERM_WRITE, system};
use crate::clock;
use crate::config::BrokerConfig;
use crate::config_file::{ConfigFile, LoadError, Revision, SaveError, SavedFile};

/// What a listener is told about.
#[derive(Debug)]
pub(crate) enum TopicChange<'c> {
    /// These topics are new or have changed.
    Updated(&'c [Arc<TopicConfig>]),
    /// This topic is gone.
    Deleted(&'c str),
    /// Nothing but the data version changed.
    Version,
}

type Listener = Box<dyn Fn(TopicChange<'_>) + Send + Sync>;

/// The topics of this broker, kept in `topics.json`.
///
/// A topic that a message made by itself is saved a moment after the message was acknowledged; if the broker dies in
/// between, the next message makes it again and the old ones are still there. An administrator's change is on the disk
/// when it is answered ([`TopicTable::wait_saved`]).
pub(crate) struct TopicTable {
    shared: Arc<Shared>,
    file: SavedFile,
    system: BTreeSet<String>,
    /// There was no `topics.json`.
    is_new: bool,
    /// `enableLmq`: every light queue is a topic, without being in the table.
    light_queues: bool,
    listener: OnceLock<Listener>,
}

#[derive(Debug)]
struct Shared {
    topics: RwLock<Topics>,
    /// Changes after each change of `topics`, before their lock is released.
    version: AtomicU64,
}

#[derive(Debug)]
struct Topics {
    by_name: HashMap<String, Arc<TopicConfig>>,
    data_version: DataVersion,
}

impl Topics {
    /// Another state of the same epoch of the broker set.
    fn next_version(&mut self) {
        let epoch = self.data_version.state_version;
        self.data_version.next_version(epoch, clock::now_ms());
    }
}

/// Why a message did not make its topic (2.5). Clients are told that the topic does not exist.
#[derive(Debug, Error)]
pub(crate) enum NotCreated {
    /// The topic to be copied does not exist: for `TBW102`, the broker was started with `autoCreateTopicEnable=false`.
    #[error("default topic {0} does not exist")]
    NoDefaultTopic(String),
    /// Topics are not to be made from it.
    #[error("default topic {0} has no inherit permission")]
    NotInheritable(String),
    /// It would have no queues; other than in Java it is not made then. The configuration that it would have had is for the
    /// remark.
    #[error("{} would have no queues", .0.topic_name)]
    NoQueues(Box<TopicConfig>),
}

/// The topics in `topics.json` whose batches are one record each: what must be known before the store is opened.
pub fn batch_topics(config_directory: &Path) -> Vec<String> {
    let saved: Option<TopicConfigSerializeWrapper> = ConfigFile::peek(&config_directory.join("topics.json"));
    let topics = saved.map(|saved| saved.topic_config_table).unwrap_or_default();
    topics.into_iter().filter(|(_, topic)| is_batch(topic)).map(|(name, _)| name).collect()
}

impl TopicTable {
    /// Loads `topics.json` over the topics that every broker has, and keeps it up to date from now on.
    pub(crate) fn load(config_directory: &Path, config: &BrokerConfig) -> Result<Self, LoadError> {
        let (file, loaded) = ConfigFile::load(config_directory.join("topics.json"))?;
        let loaded: Option<TopicConfigSerializeWrapper> = loaded;
        let is_new = loaded.is_none();
        let built_in = system::built_in(config);
        let system = system::names(&built_in);
        let data_version =
            loaded.as_ref().map_or_else(|| DataVersion::new(clock::now_ms()), |loaded| loaded.data_version);
        let mut by_name: HashMap<_, _> =
            built_in.into_iter().map(|topic| (topic.topic_name.clone(), Arc::new(topic))).collect();
        for (topic_name, topic) in loaded.map(|loaded| loaded.topic_config_table).unwrap_or_default() {
            by_name.insert(topic_name.clone(), Arc::new(TopicConfig { topic_name, ..topic }));
        }
        let topics = RwLock::new(Topics { by_name, data_version });
        let shared = Arc::new(Shared { topics, version: AtomicU64::new(1) });
        let file = SavedFile::start(file, Duration::ZERO, {
            let shared = shared.clone();
            move || shared.snapshot()
        })?;
        Ok(Self { shared, file, system, is_new, light_queues: config.enable_lmq, listener: OnceLock::new() })
    }

    /// Sets the one listener for changes. It is called by whoever makes a change, after the change is in force and outside
    /// of all locks; that may be a connection's task, so it must not wait.
    pub(crate) fn set_listener(&self, listener: impl Fn(TopicChange<'_>) + Send + Sync + 'static) {
        // Set once, when the broker starts.
        let _ = self.listener.set(Box::new(listener));
    }

    /// The topic, if it exists. A light queue always does, with one queue (16.2).
    pub(crate) fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        let known = self.shared.topics.read().by_name.get(topic).cloned();
        if known.is_none() && self.light_queues && topic.starts_with(names::LMQ_PREFIX) {
            return Some(Arc::new(TopicConfig::new(topic, 1)));
        }
        known
    }

    /// Whether the topic exists.
    pub(crate) fn contains(&self, topic: &str) -> bool {
        self.shared.topics.read().by_name.contains_key(topic)
    }

    /// Changes with every change of any topic. Whoever remembers what [`get`](Self::get) said reads this *before*, and may
    /// rely on it as long as this stays the same.
    pub(crate) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// Whether the name belongs to the system on this broker.
    pub(crate) fn is_system(&self, topic: &str) -> bool {
        names::is_system_topic(topic) || self.system.contains(topic)
    }

    /// The names that belong to the system on this broker (code 305).
    pub(crate) fn system_topics(&self) -> &BTreeSet<String> {
        &self.system
    }

    /// All topics with the version that they are of.
    pub(crate) fn snapshot(&self) -> TopicConfigSerializeWrapper {
        self.shared.snapshot()
    }

    /// Which state of the table this is, as name servers and slaves are told.
    pub(crate) fn data_version(&self) -> DataVersion {
        self.shared.topics.read().data_version
    }

    /// Makes name servers and slaves look again, because what they are told of the topics has changed
    /// (`brokerPermission`).
    pub(crate) fn bump_data_version(&self) {
        let mut topics = self.shared.topics.write();
        topics.next_version();
        self.shared.changed(topics);
        self.saved_soon(TopicChange::Version);
    }

    /// The broker became master, or slave of one, in this epoch of its set. Name servers believe the newest epoch.
    pub(crate) fn enter_epoch(&self, epoch: i64) {
        let mut topics = self.shared.topics.write();
        topics.data_version.next_version(epoch, clock::now_ms());
        self.shared.changed(topics);
        self.saved_soon(TopicChange::Version);
    }

    /// Whether `topics.json` was missing.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Makes topics that have queues, given with their numbers, but are not in the table: it was lost, or the master that made them
    /// was gone before it told. Their other settings are those that a topic has by default.
    pub(crate) fn restore(&self, found: impl IntoIterator<Item = (Arc<str>, i32)>) {
        for (topic, queues) in found {
            if self.is_system(&topic) || topic.starts_with(names::LMQ_PREFIX) || self.contains(&topic) {
                continue;
            }
            tracing::warn!(topic = &*topic, queues, "a topic is in no table: made from its queues");
            let topic = TopicConfig { perm: PERM_READ | PERM_WRITE, ..TopicConfig::new(&*topic, queues) };
            self.put(self.shared.topics.write(), vec![Arc::new(topic)]);
        }
    }

    /// Makes the topic of a message if the settings allow it (2.5).
    ///
    /// `queue_nums` and `sys_flag` are what the message's request asks for.
    pub(crate) fn create_by_send(
        &self,
        config: &BrokerConfig,
        topic: &str,
        default_topic: &str,
        queue_nums: i32,
        sys_flag: i32,
    ) -> Result<Arc<TopicConfig>, NotCreated> {
        let topics = self.shared.topics.write();
        if let Some(existing) = topics.by_name.get(topic) {
            return Ok(existing.clone());
        }
        let Some(template) = topics.by_name.get(default_topic).cloned() else {
            return Err(NotCreated::NoDefaultTopic(default_topic.to_owned()));
        };
        let switched_off = default_topic == names::AUTO_CREATE_TOPIC && !config.auto_create_topic_enable;
        if template.perm & PERM_INHERIT == 0 || switched_off {
            if template.perm & PERM_INHERIT != 0 {
                // The switch was turned off since the broker started; name servers show that now.
                self.put(
                    topics,
                    vec![Arc::new(TopicConfig { perm: PERM_READ | PERM_WRITE, ..(*template).clone() })],
                );
            }
            return Err(NotCreated::NotInheritable(default_topic.to_owned()));
        }
        let queue_nums = queue_nums.min(template.write_queue_nums).max(0);
        let created = TopicConfig {
            perm: template.perm & !PERM_INHERIT,
            topic_filter_type: template.topic_filter_type,
            topic_sys_flag: sys_flag,
            ..TopicConfig::new(topic, queue_nums)
        };
        if queue_nums == 0 {
            return Err(NotCreated::NoQueues(Box::new(created)));
        }
        let created = Arc::new(created);
        self.put(topics, vec![created.clone()]);
        Ok(created)
    }

    /// The topic for a group's retries or dead letters, made if it does not exist. An existing one only takes over `order`
    /// (2.10, 4.2).
    pub(crate) fn create_by_send_back(
        &self,
        topic: &str,
        queue_nums: i32,
        order: bool,
        sys_flag: i32,
    ) -> Arc<TopicConfig> {
        if let Some(existing) = self.get(topic).filter(|existing| existing.order == order) {
            return existing;
        }
        let topics = self.shared.topics.write();
        let wanted = match topics.by_name.get(topic) {
            Some(existing) if existing.order == order => return existing.clone(),
            Some(existing) => TopicConfig { order, ..(**existing).clone() },
            None => TopicConfig {
                order,
                perm: PERM_READ | PERM_WRITE,
                topic_sys_flag: sys_flag,
                ..TopicConfig::new(topic, queue_nums.max(0))
            },
        };
        let topic = Arc::new(wanted);
        self.put(topics, vec![topic.clone()]);
        topic
    }

    /// Creates or changes topics as an administrator wants them; the attributes are modifications. All or none.
    ///
    /// Topics that already are as wanted stay untouched; `None` if all are.
    pub(crate) fn update(&self, wanted: Vec<TopicConfig>) -> Result<Option<Revision>, AttributeError> {
        let topics = self.shared.topics.write();
        let mut changed = Vec::new();
        for wanted in wanted {
            let current = topics.by_name.get(&wanted.topic_name);
            let current_attributes = current.map(|topic| &topic.attributes);
            let attributes = alter_attributes(OF_TOPICS, current_attributes, &wanted.attributes)?;
            let wanted = TopicConfig { attributes, ..wanted };
            if current.is_none_or(|current| **current != wanted) {
                changed.push(Arc::new(wanted));
            }
        }
        Ok(if changed.is_empty() { None } else { Some(self.put(topics, changed)) })
    }

    /// Sets `order` of those of the topics that exist (what a name server's answer to a registration says).
    pub(crate) fn set_ordered<'t>(&self, topics: impl IntoIterator<Item = &'t str>) {
        let table = self.shared.topics.write();
        let existing = topics.into_iter().filter_map(|topic| table.by_name.get(topic));
        let changed: Vec<_> = existing
            .filter(|topic| !topic.order)
            .map(|topic| Arc::new(TopicConfig { order: true, ..(**topic).clone() }))
            .collect();
        if !changed.is_empty() {
            self.put(table, changed);
        }
    }

    /// Removes a topic's configuration, and nothing else of it; `None` if there was none.
    pub(crate) fn remove(&self, topic: &str) -> Option<Revision> {
        let mut topics = self.shared.topics.write();
        topics.by_name.remove(topic)?;
        topics.next_version();
        self.shared.changed(topics);
        Some(self.saved_soon(TopicChange::Deleted(topic)))
    }

    /// Makes the table that of a master, whose topics and version these are. Topics that only a broker has to itself stay.
    pub(crate) fn become_copy(&self, theirs: BTreeMap<String, TopicConfig>, version: DataVersion) {
        let mut topics = self.shared.topics.write();
        let is_gone = |topic: &&String| !theirs.contains_key(*topic) && !self.is_system(topic);
        let gone: Vec<String> = topics.by_name.keys().filter(is_gone).cloned().collect();
        for topic in &gone {
            topics.by_name.remove(topic);
        }
        let mut changed = Vec::new();
        for (topic_name, topic) in theirs {
            let topic = TopicConfig { topic_name, ..topic };
            if topics.by_name.get(&topic.topic_name).is_none_or(|ours| **ours != topic) {
                let topic = Arc::new(topic);
                topics.by_name.insert(topic.topic_name.clone(), topic.clone());
                changed.push(topic);
            }
        }
        let is_new = std::mem::replace(&mut topics.data_version, version) != version;
        if !is_new && gone.is_empty() && changed.is_empty() {
            return;
        }
        self.shared.changed(topics);
        for topic in &gone {
            tracing::info!(topic, "the master no longer has this topic");
            self.saved_soon(TopicChange::Deleted(topic));
        }
        self.saved_soon(TopicChange::Updated(&changed));
    }

    /// Waits until a change is on the disk. Only for threads that may block.
    pub(crate) fn wait_saved(&self, revision: Revision) -> Result<(), SaveError> {
        self.file.wait(revision)
    }

    /// Saves what is not saved yet and ends the saving.
    pub(crate) fn stop(&self) {
        self.file.stop();
    }

    /// Puts topics in place of those with the same names.
    fn put(&self, mut topics: RwLockWriteGuard<'_, Topics>, changed: Vec<Arc<TopicConfig>>) -> Revision {
        for topic in &changed {
            topics.by_name.insert(topic.topic_name.clone(), topic.clone());
            topics.next_version();
        }
        self.shared.changed(topics);
        self.saved_soon(TopicChange::Updated(&changed))
    }

    fn saved_soon(&self, change: TopicChange<'_>) -> Revision {
        let revision = self.file.changed();
        if let Some(listener) = self.listener.get() {
            listener(change);
        }
        revision
    }
}

impl Shared {
    /// Ends a change.
    fn changed(&self, topics: RwLockWriteGuard<'_, Topics>) {
        self.version.fetch_add(1, Ordering::Release);
        drop(topics);
    }

    fn snapshot(&self) -> TopicConfigSerializeWrapper {
        // Copied outside of the lock, because a broker can have very many topics and sends wait for it.
        let (data_version, topics): (_, Vec<_>) = {
            let topics = self.topics.read();
            (topics.data_version, topics.by_name.values().cloned().collect())
        };
        let table = topics.iter().map(|topic| (topic.topic_name.clone(), (**topic).clone()));
        TopicConfigSerializeWrapper { data_version, topic_config_table: table.collect() }
    }
}

impl fmt::Debug for TopicTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TopicTable").field("shared", &self.shared).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
