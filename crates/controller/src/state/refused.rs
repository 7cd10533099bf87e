//! Why a command was not carried out.

use ferromq_protocol::code::response;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A command that changed nothing (but for [`NobodyLeft`](Self::NobodyLeft)). The texts are the remarks of the answers
/// (`docs/spec/05-ha.md` 7.3).
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refused {
    #[error("Broker-set: {broker_name} hasn't been registered in controller")]
    UnknownSet { broker_name: String },
    #[error("BrokerId: {broker_id} hasn't been registered in broker-set: {broker_name}")]
    UnknownId { broker_name: String, broker_id: i64 },
    #[error(
        "Broker-set: {broker_name} hasn't been registered in controller, but broker try to apply brokerId: {broker_id}"
    )]
    IdOfUnknownSet { broker_name: String, broker_id: i64 },
    #[error("Fail to apply brokerId: {broker_id} in broker-set: {broker_name}")]
    IdTaken { broker_name: String, broker_id: i64 },
    #[error("broker-set {broker_name} belongs to cluster {cluster_name}: choose another brokerName")]
    OtherCluster { broker_name: String, cluster_name: String },
    #[error("no more replicas can be registered: clean those that are no longer used")]
    TooManyReplicas,

    #[error("Broker metadata is not existed")]
    AlterUnknownSet,
    #[error("The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet")]
    SameSyncStateSet,
    #[error("{} the current leader is:{{{}}}, not {{{asking}}}", rejecting(), or_null(*.current))]
    NotTheMaster { current: Option<i64>, asking: i64 },
    #[error("{} the current master epoch is:{{{current}}}, not {{{asking}}}", rejecting())]
    MasterEpoch { current: i32, asking: i32 },
    #[error("{} the current syncStateSet epoch is:{{{current}}}, not {{{asking}}}", rejecting())]
    SyncStateSetEpoch { current: i32, asking: i32 },
    #[error("{} the replicas {{{broker_id}}} don't exist", rejecting())]
    UnknownReplica { broker_id: i64 },
    #[error("{} the replicas {{{broker_id}}} are not alive", rejecting())]
    DeadReplica { broker_id: i64 },
    #[error("{} the newSyncStateSet don't contains origin leader {{{master}}}", rejecting())]
    WithoutMaster { master: i64 },

    #[error("Broker hasn't been registered")]
    NotRegistered,
    #[error("Failed to elect a new master")]
    NobodyElected,
    #[error("the master of {broker_name} is gone and no replica that has all messages is alive")]
    NobodyLeft { broker_name: String },

    #[error("Broker {broker_name} is not existed,clean broker data failure.")]
    CleanUnknownSet { broker_name: String },
    #[error("Broker {broker_name} is still alive, clean up failure")]
    CleanMaster { broker_name: String },
    // The two blanks are the reference's.
    #[error("Broker [{broker_name},  {broker_id}] is still alive, clean up failure")]
    CleanAlive { broker_name: String, broker_id: i64 },
}

fn rejecting() -> &'static str {
    "Rejecting alter syncStateSet request because"
}

fn or_null(id: Option<i64>) -> String {
    id.map_or_else(|| "null".to_owned(), |id| id.to_string())
}

impl Refused {
    /// The code of the answer.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::UnknownSet { .. } | Self::UnknownId { .. } | Self::NotRegistered => {
                response::CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
            }
            Self::IdOfUnknownSet { .. }
            | Self::IdTaken { .. }
            | Self::OtherCluster { .. }
            | Self::TooManyReplicas => response::CONTROLLER_BROKER_ID_INVALID,
            Self::AlterUnknownSet | Self::SameSyncStateSet | Self::WithoutMaster { .. } => {
                response::CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
            }
            Self::NotTheMaster { .. } => response::CONTROLLER_INVALID_MASTER,
            Self::MasterEpoch { .. } => response::CONTROLLER_FENCED_MASTER_EPOCH,
            Self::SyncStateSetEpoch { .. } => response::CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            Self::UnknownReplica { .. } => response::CONTROLLER_INVALID_REPLICAS,
            Self::DeadReplica { .. } => response::CONTROLLER_BROKER_NOT_ALIVE,
            Self::NobodyElected => response::CONTROLLER_ELECT_MASTER_FAILED,
            Self::NobodyLeft { .. } => response::CONTROLLER_MASTER_NOT_AVAILABLE,
            Self::CleanUnknownSet { .. } | Self::CleanMaster { .. } | Self::CleanAlive { .. } => {
                response::CONTROLLER_INVALID_CLEAN_BROKER_METADATA
            }
        }
    }
}
