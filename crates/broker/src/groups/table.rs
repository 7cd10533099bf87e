//! The table of consumer groups.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper};
use ferromq_protocol::names::{LMQ_PREFIX, SYSTEM_GROUP_PREFIX};
use parking_lot::{RwLock, RwLockWriteGuard};
use thiserror::Error;

use super::name::{GroupNameError, check_group};
use crate::clock;
use crate::config::BrokerConfig;
use crate::config_file::{ConfigFile, LoadError, Revision, SaveError, SavedFile};
use crate::topics::{AttributeError, OF_GROUPS, alter_attributes};

/// Groups that every broker has.
const PREDEFINED: [&str; 8] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
];

/// Bit of the forbidden table: the group must not read the topic.
const FORBIDDEN_READ: i32 = 1 << 2;

/// The consumer groups of this broker, kept in `subscriptionGroup.json`.
///
/// A group that a consumer made by coming is saved a moment later; an administrator's change is on the disk when it is
/// answered ([`SubscriptionGroups::wait_saved`]).
#[derive(Debug)]
pub(crate) struct SubscriptionGroups {
    shared: Arc<Shared>,
    file: SavedFile,
    /// `enableLmq`: every group of light queues exists, without being in the table.
    light_queues: bool,
}

#[derive(Debug)]
struct Shared {
    groups: RwLock<Groups>,
}

#[derive(Debug)]
struct Groups {
    by_name: HashMap<String, Arc<SubscriptionGroupConfig>>,
    /// Group to topic to bits.
    forbidden: BTreeMap<String, BTreeMap<String, i32>>,
    data_version: DataVersion,
}

/// Why there is no such group. Clients are told that it does not exist (26).
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum NoGroup {
    /// The broker does not make groups by itself.
    #[error("groups are not created automatically (autoCreateSubscriptionGroup=false)")]
    NotAutomatic,
    /// No group can have this name.
    #[error(transparent)]
    Name(#[from] GroupNameError),
}

impl SubscriptionGroups {
    /// Loads `subscriptionGroup.json` over the groups that every broker has, and keeps it up to date from now on.
    /// `light_queues` is `enableLmq`.
    pub(crate) fn load(config_directory: &Path, light_queues: bool) -> Result<Self, LoadError> {
        let (file, loaded) = ConfigFile::load(config_directory.join("subscriptionGroup.json"))?;
        let SubscriptionGroupWrapper { data_version, forbidden_table, subscription_group_table } = loaded
            .unwrap_or_else(|| SubscriptionGroupWrapper {
                data_version: DataVersion::new(clock::now_ms()),
                ..SubscriptionGroupWrapper::default()
            });
        let mut by_name: HashMap<_, _> = PREDEFINED
            .iter()
            .map(|group| ((*group).to_owned(), Arc::new(SubscriptionGroupConfig::new(*group))))
            .collect();
        for (group_name, group) in subscription_group_table {
            let group = SubscriptionGroupConfig { group_name: group_name.clone(), ..group };
            by_name.insert(group_name, Arc::new(group));
        }
        let groups = RwLock::new(Groups { by_name, forbidden: forbidden_table, data_version });
        let shared = Arc::new(Shared { groups });
        let file = SavedFile::start(file, Duration::ZERO, {
            let shared = shared.clone();
            move || shared.snapshot()
        })?;
        Ok(Self { shared, file, light_queues })
    }

    /// The group, if it exists. One of light queues always does (16.2).
    pub(crate) fn get(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        let known = self.shared.groups.read().by_name.get(group).cloned();
        if known.is_none() && self.light_queues && group.starts_with(LMQ_PREFIX) {
            return Some(Arc::new(SubscriptionGroupConfig::new(group)));
        }
        known
    }

    /// The group, made now if it does not exist and the settings allow that.
    pub(crate) fn get_or_create(
        &self,
        config: &BrokerConfig,
        group: &str,
    ) -> Result<Arc<SubscriptionGroupConfig>, NoGroup> {
        if let Some(existing) = self.get(group) {
            return Ok(existing);
        }
        let automatic = config.auto_create_subscription_group
            || (config.enable_create_sys_group && group.starts_with(SYSTEM_GROUP_PREFIX));
        if !automatic {
            return Err(NoGroup::NotAutomatic);
        }
        check_group(group)?;
        let groups = self.shared.groups.write();
        if let Some(existing) = groups.by_name.get(group) {
            return Ok(existing.clone());
        }
        let created = Arc::new(SubscriptionGroupConfig::new(group));
        tracing::info!(group, "consumer group created");
        self.put(groups, vec![created.clone()]);
        Ok(created)
    }

    /// All groups, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<SubscriptionGroupConfig>> {
        self.shared.groups.read().by_name.values().cloned().collect()
    }

    /// All groups with the version that they are of.
    pub(crate) fn snapshot(&self) -> SubscriptionGroupWrapper {
        self.shared.snapshot()
    }

    /// Creates or changes groups as an administrator wants them; the attributes are modifications. All or none.
    pub(crate) fn update(&self, wanted: Vec<SubscriptionGroupConfig>) -> Result<Revision, AttributeError> {
        let groups = self.shared.groups.write();
        let mut changed = Vec::new();
        for wanted in wanted {
            let current = groups.by_name.get(&wanted.group_name).map(|group| &group.attributes);
            let attributes = alter_attributes(OF_GROUPS, current, &wanted.attributes)?;
            changed.push(Arc::new(SubscriptionGroupConfig { attributes, ..wanted }));
        }
        Ok(self.put(groups, changed))
    }

    /// Removes a group and what is forbidden to it; `None` if there was none.
    pub(crate) fn remove(&self, group: &str) -> Option<Revision> {
        let mut groups = self.shared.groups.write();
        let removed = groups.by_name.remove(group).is_some();
        let allowed = groups.forbidden.remove(group).is_some();
        (removed || allowed).then(|| self.changed(groups))
    }

    /// Whether an administrator forbade the group to read the topic.
    pub(crate) fn is_read_forbidden(&self, group: &str, topic: &str) -> bool {
        let groups = self.shared.groups.read();
        groups
            .forbidden
            .get(group)
            .and_then(|topics| topics.get(topic))
            .is_some_and(|bits| bits & FORBIDDEN_READ != 0)
    }

    /// Forbids or allows the group to read the topic. Other than in Java, allowing it one topic leaves others forbidden, and
    /// is saved.
    pub(crate) fn forbid_read(&self, group: &str, topic: &str, forbidden: bool) -> Revision {
        let mut groups = self.shared.groups.write();
        let topics = groups.forbidden.entry(group.to_owned()).or_default();
        let bits = topics.entry(topic.to_owned()).or_default();
        *bits = if forbidden { *bits | FORBIDDEN_READ } else { *bits & !FORBIDDEN_READ };
        if *bits == 0 {
            topics.remove(topic);
        }
        if topics.is_empty() {
            groups.forbidden.remove(group);
        }
        self.changed(groups)
    }

    /// Makes the table that of a master, whose groups, prohibitions and version these are.
    pub(crate) fn become_copy(
        &self,
        theirs: BTreeMap<String, SubscriptionGroupConfig>,
        forbidden: BTreeMap<String, BTreeMap<String, i32>>,
        version: DataVersion,
    ) {
        let mut groups = self.shared.groups.write();
        if groups.data_version == version
            && groups.forbidden == forbidden
            && groups.by_name.len() == theirs.len()
            && theirs
                .iter()
                .all(|(name, group)| groups.by_name.get(name).is_some_and(|ours| **ours == *group))
        {
            return;
        }
        let named = |(group_name, group): (String, SubscriptionGroupConfig)| {
            (group_name.clone(), Arc::new(SubscriptionGroupConfig { group_name, ..group }))
        };
        groups.by_name = theirs.into_iter().map(named).collect();
        groups.forbidden = forbidden;
        groups.data_version = version;
        drop(groups);
        self.file.changed();
    }

    /// Waits until a change is on the disk. Only for threads that may block.
    pub(crate) fn wait_saved(&self, revision: Revision) -> Result<(), SaveError> {
        self.file.wait(revision)
    }

    /// Saves what is not saved yet and ends the saving.
    pub(crate) fn stop(&self) {
        self.file.stop();
    }

    fn put(
        &self,
        mut groups: RwLockWriteGuard<'_, Groups>,
        changed: Vec<Arc<SubscriptionGroupConfig>>,
    ) -> Revision {
        // One version for each group, the last by `changed` below.
        for (number, group) in changed.into_iter().enumerate() {
            if number > 0 {
                groups.data_version.next_version(0, clock::now_ms());
            }
            groups.by_name.insert(group.group_name.clone(), group);
        }
        self.changed(groups)
    }

    /// Ends a change.
    fn changed(&self, mut groups: RwLockWriteGuard<'_, Groups>) -> Revision {
        groups.data_version.next_version(0, clock::now_ms());
        drop(groups);
        self.file.changed()
    }
}

impl Shared {
    fn snapshot(&self) -> SubscriptionGroupWrapper {
        // Copied outside of the lock, because a broker can have very many groups and pulls wait for it.
        let (data_version, forbidden_table, groups): (_, _, Vec<_>) = {
            let groups = self.groups.read();
            (groups.data_version, groups.forbidden.clone(), groups.by_name.values().cloned().collect())
        };
        let table = groups.iter().map(|group| (group.group_name.clone(), (**group).clone()));
        SubscriptionGroupWrapper { data_version, forbidden_table, subscription_group_table: table.collect() }
    }
}

#[cfg(test)]
mod tests;
