//! What the controllers agree on: the broker sets, their replicas, masters and SyncStateSets (`docs/spec/05-ha.md` 7.2).
//!
//! [`BrokerSets`] is a state machine. The group writes [`Command`]s into its log, and every controller applies them in the
//! log's order. So [`BrokerSets::apply`] looks at nothing but the state and the command: what the leader knows of brokers
//! that are alive travels in the command. A command that was sent twice does no harm: an id is given again to the same
//! check code, and everything else is guarded by an epoch.

mod command;
mod election;
mod refused;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ferromq_protocol::body::SyncStateSet;
use serde::{Deserialize, Serialize};

pub(crate) use command::{Applied, Asking, Cleaning, Command, Elected, LiveReplicas};
pub(crate) use election::LiveReplica;
pub(crate) use refused::Refused;

/// Most replicas of all sets together: what strangers ask for must not fill disk and memory, and the whole state must
/// fit into one message to another controller.
const REPLICAS_MAX: usize = 10_000;

/// Longest name, address or check code of a replica, bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 255;

/// All broker sets, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BrokerSets {
    sets: BTreeMap<String, BrokerSet>,
}

/// One broker set: the replicas of one commit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BrokerSet {
    pub(crate) cluster_name: String,
    pub(crate) next_broker_id: i64,
    pub(crate) replicas: BTreeMap<i64, Replica>,
    pub(crate) master: Option<i64>,
    /// Rises with every election, also with one that found nobody.
    pub(crate) master_epoch: i32,
    pub(crate) sync_state_set: BTreeSet<i64>,
    /// Rises with every change of the SyncStateSet.
    pub(crate) sync_state_set_epoch: i32,
}

/// A replica that got its id here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replica {
    pub(crate) address: String,
    /// With it the id can be asked for again.
    pub(crate) check_code: String,
}

impl BrokerSet {
    fn new(cluster_name: String) -> Self {
        Self {
            cluster_name,
            next_broker_id: 1,
            replicas: BTreeMap::new(),
            master: None,
            master_epoch: 0,
            sync_state_set: BTreeSet::new(),
            sync_state_set_epoch: 0,
        }
    }

    /// Address of the master, if there is one.
    pub(crate) fn master_address(&self) -> Option<&str> {
        self.replicas.get(&self.master?).map(|replica| replica.address.as_str())
    }

    /// The SyncStateSet as it travels.
    pub(crate) fn sync_state_set(&self) -> SyncStateSet {
        SyncStateSet {
            sync_state_set: self.sync_state_set.clone(),
            sync_state_set_epoch: self.sync_state_set_epoch,
        }
    }

    /// Takes a new master, which is the only one that is known to have everything.
    fn elect(&mut self, id: i64) {
        self.master = Some(id);
        self.master_epoch = self.master_epoch.saturating_add(1);
        self.sync_state_set = BTreeSet::from([id]);
        self.sync_state_set_epoch = self.sync_state_set_epoch.saturating_add(1);
    }

    fn elect_nobody(&mut self) {
        self.master = None;
        self.master_epoch = self.master_epoch.saturating_add(1);
    }

    fn remove(&mut self, id: i64) {
        self.replicas.remove(&id);
        if self.sync_state_set.remove(&id) {
            self.sync_state_set_epoch = self.sync_state_set_epoch.saturating_add(1);
        }
        if self.master == Some(id) {
            self.elect_nobody();
        }
    }
}

impl BrokerSets {
    /// The set of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&BrokerSet> {
        self.sets.get(name)
    }

    /// All sets with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &BrokerSet)> {
        self.sets.iter().map(|(name, set)| (name.as_str(), set))
    }

    /// The id that 1012 offers. Nothing is reserved.
    pub(crate) fn next_broker_id(&self, name: &str) -> i64 {
        self.get(name).map_or(1, |set| set.next_broker_id)
    }

    /// What a command would come to, if it would change nothing.
    pub(crate) fn unchanged_by(&self, command: &Command) -> Option<Result<Applied, Refused>> {
        let name = command.broker_name();
        let own = self.sets.get(name).map(|set| (name.to_owned(), set.clone()));
        let mut after = Self { sets: own.into_iter().collect() };
        let outcome = after.apply(command);
        (after.get(name) == self.get(name)).then_some(outcome)
    }

    /// Carries out a command of the log. The same state and command give the same result everywhere.
    pub(crate) fn apply(&mut self, command: &Command) -> Result<Applied, Refused> {
        match command {
            Command::ApplyBrokerId { cluster_name, broker_name, broker_id, check_code } => {
                self.apply_broker_id(cluster_name, broker_name, *broker_id, check_code)
            }
            Command::UpdateAddress { broker_name, broker_id, address } => {
                let set = self.set_of(broker_name)?;
                let replica = set.replicas.get_mut(broker_id).ok_or_else(|| Refused::UnknownId {
                    broker_name: broker_name.clone(),
                    broker_id: *broker_id,
                })?;
                replica.address.clone_from(address);
                Ok(Applied::Done)
            }
            Command::AlterSyncStateSet { broker_name, master, master_epoch, proposed, alive } => {
                self.alter_sync_state_set(broker_name, (*master, *master_epoch), proposed, alive)
            }
            Command::ElectMaster { broker_name, asking, live, allow_unclean } => {
                let set = self.sets.get_mut(broker_name).ok_or(Refused::NotRegistered)?;
                election::elect(broker_name, set, *asking, live, *allow_unclean)
            }
            Command::CleanBrokerData { broker_name, cleaning, alive } => {
                self.clean(broker_name, cleaning, alive)
            }
        }
    }

    fn set_of(&mut self, name: &str) -> Result<&mut BrokerSet, Refused> {
        self.sets.get_mut(name).ok_or_else(|| Refused::UnknownSet { broker_name: name.to_owned() })
    }

    /// 1013: an id is taken if it is free, or if this very replica has it.
    fn apply_broker_id(
        &mut self,
        cluster_name: &str,
        broker_name: &str,
        broker_id: i64,
        check_code: &str,
    ) -> Result<Applied, Refused> {
        let refused = || Refused::IdTaken { broker_name: broker_name.to_owned(), broker_id };
        let replicas: usize = self.sets.values().map(|set| set.replicas.len()).sum();
        if !self.sets.contains_key(broker_name) {
            if broker_id != 1 {
                return Err(Refused::IdOfUnknownSet { broker_name: broker_name.to_owned(), broker_id });
            }
            if replicas >= REPLICAS_MAX {
                return Err(Refused::TooManyReplicas);
            }
        }
        let set = self
            .sets
            .entry(broker_name.to_owned())
            .or_insert_with(|| BrokerSet::new(cluster_name.to_owned()));
        if set.cluster_name != cluster_name {
            return Err(Refused::OtherCluster {
                broker_name: broker_name.to_owned(),
                cluster_name: set.cluster_name.clone(),
            });
        }
        match set.replicas.get(&broker_id) {
            Some(replica) if replica.check_code == check_code => return Ok(Applied::Done),
            Some(_) => return Err(refused()),
            None if replicas >= REPLICAS_MAX => return Err(Refused::TooManyReplicas),
            None if broker_id < 1 => return Err(refused()),
            None => {}
        }
        let address = check_code.split(';').next().unwrap_or_default().to_owned();
        set.replicas.insert(broker_id, Replica { address, check_code: check_code.to_owned() });
        set.next_broker_id = set.next_broker_id.saturating_add(1);
        Ok(Applied::Done)
    }

    /// 1001, with the checks in the reference's order.
    fn alter_sync_state_set(
        &mut self,
        broker_name: &str,
        (master, master_epoch): (i64, i32),
        proposed: &SyncStateSet,
        alive: &BTreeSet<i64>,
    ) -> Result<Applied, Refused> {
        let set = self.sets.get_mut(broker_name).ok_or(Refused::AlterUnknownSet)?;
        let ids = &proposed.sync_state_set;
        if *ids == set.sync_state_set {
            return Err(Refused::SameSyncStateSet);
        }
        if set.master != Some(master) {
            return Err(Refused::NotTheMaster { current: set.master, asking: master });
        }
        if set.master_epoch != master_epoch {
            return Err(Refused::MasterEpoch { current: set.master_epoch, asking: master_epoch });
        }
        if set.sync_state_set_epoch != proposed.sync_state_set_epoch {
            return Err(Refused::SyncStateSetEpoch {
                current: set.sync_state_set_epoch,
                asking: proposed.sync_state_set_epoch,
            });
        }
        for id in ids {
            if !set.replicas.contains_key(id) {
                return Err(Refused::UnknownReplica { broker_id: *id });
            }
            if !alive.contains(id) {
                return Err(Refused::DeadReplica { broker_id: *id });
            }
        }
        if !ids.contains(&master) {
            return Err(Refused::WithoutMaster { master });
        }
        set.sync_state_set.clone_from(ids);
        set.sync_state_set_epoch = set.sync_state_set_epoch.saturating_add(1);
        Ok(Applied::SyncStateSet(set.sync_state_set()))
    }

    /// 1011: forgets replicas of a set or the whole set.
    fn clean(
        &mut self,
        broker_name: &str,
        cleaning: &Cleaning,
        alive: &BTreeSet<i64>,
    ) -> Result<Applied, Refused> {
        let set = self
            .sets
            .get_mut(broker_name)
            .ok_or_else(|| Refused::CleanUnknownSet { broker_name: broker_name.to_owned() })?;
        if !cleaning.also_alive {
            match &cleaning.ids {
                None if set.master.is_some() => {
                    return Err(Refused::CleanMaster { broker_name: broker_name.to_owned() });
                }
                None => {}
                Some(ids) => {
                    if let Some(id) = ids.iter().find(|id| alive.contains(id)) {
                        return Err(Refused::CleanAlive {
                            broker_name: broker_name.to_owned(),
                            broker_id: *id,
                        });
                    }
                }
            }
        }
        match &cleaning.ids {
            Some(ids) => ids.iter().for_each(|id| set.remove(*id)),
            None => set.replicas.clear(),
        }
        if set.replicas.is_empty() {
            self.sets.remove(broker_name);
        }
        Ok(Applied::Done)
    }
}
