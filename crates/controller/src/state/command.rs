//! The entries of the log, and what comes of them.

use std::collections::{BTreeMap, BTreeSet};

use ferromq_protocol::body::SyncStateSet;
use serde::{Deserialize, Serialize};

use super::LiveReplica;

/// Replicas of a set that the leader heard of, and what they said.
pub(crate) type LiveReplicas = BTreeMap<i64, LiveReplica>;

/// What the controllers are to do, with everything that they need to decide about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    /// A replica takes an id (1013).
    ApplyBrokerId { cluster_name: String, broker_name: String, broker_id: i64, check_code: String },
    /// A replica has another address (1003).
    UpdateAddress { broker_name: String, broker_id: i64, address: String },
    /// A master proposes another SyncStateSet (1001). `proposed` carries the epoch of the set that it replaces.
    AlterSyncStateSet {
        broker_name: String,
        master: i64,
        master_epoch: i32,
        proposed: SyncStateSet,
        alive: BTreeSet<i64>,
    },
    /// Somebody wants a master (1002).
    ElectMaster { broker_name: String, asking: Asking, live: LiveReplicas, allow_unclean: bool },
    /// An operator wants replicas forgotten (1011).
    CleanBrokerData { broker_name: String, cleaning: Cleaning, alive: BTreeSet<i64> },
}

impl Command {
    /// The set that it is about. No command touches another one.
    pub(crate) fn broker_name(&self) -> &str {
        match self {
            Self::ApplyBrokerId { broker_name, .. }
            | Self::UpdateAddress { broker_name, .. }
            | Self::AlterSyncStateSet { broker_name, .. }
            | Self::ElectMaster { broker_name, .. }
            | Self::CleanBrokerData { broker_name, .. } => broker_name,
        }
    }
}

/// Who wants a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Asking {
    /// This replica, for itself or anybody else.
    Replica(i64),
    /// An operator, who wants this replica.
    Operator(i64),
    /// The controller, because the master is gone.
    Controller,
    /// This replica, which was master in `epoch` and has started anew since.
    Restarted { id: i64, epoch: i32 },
}

/// Which replicas to forget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cleaning {
    /// These, or all.
    pub(crate) ids: Option<BTreeSet<i64>>,
    /// Whether they may be alive.
    pub(crate) also_alive: bool,
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Applied {
    /// What it asked for.
    Done,
    /// The SyncStateSet is this one now.
    SyncStateSet(SyncStateSet),
    /// There is a new master.
    Elected(Elected),
    /// The master is alive and stays.
    MasterStays(Elected),
}

/// A master and its set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Elected {
    pub(crate) cluster_name: String,
    pub(crate) broker_name: String,
    pub(crate) master: i64,
    pub(crate) master_address: String,
    pub(crate) master_epoch: i32,
    pub(crate) sync_state_set: SyncStateSet,
    /// Addresses of all replicas.
    pub(crate) members: BTreeMap<i64, String>,
}
