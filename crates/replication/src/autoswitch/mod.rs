//! Replication of brokers that a controller gives their roles, in RocketMQ's epoch protocol (`docs/spec/05-ha.md` 9).
//!
//! As in classic replication slaves connect to the master's HA port and copy its log. Beside that both know which part of the log
//! was written under which master ([`epochs`]), so a former master that returns finds where its log ceases to be the new one's,
//! and cuts the rest. The master keeps the SyncStateSet (`in_sync`), from which the controller elects: a message is confirmed
//! when every member has it.
//!
//! | module | what |
//! |---|---|
//! | [`AutoSwitch`] (`role`) | the HA port and the role of this replica |
//! | `master`, `feed` | a master's time in office; one slave's connection |
//! | `in_sync` | who belongs to the SyncStateSet, and what is confirmed |
//! | `slave` | copying the master's log |
//! | [`epochs`], [`wire`] | the epochs of a log and their file; the bytes on the wire |

pub mod epochs;
mod feed;
mod in_sync;
mod master;
mod role;
mod slave;
pub mod wire;

use std::time::Duration;

pub use epochs::{Epoch, EpochFile, EpochFileError, Epochs};
pub use feed::Refused;
pub use master::ConnectedSlave;
pub use role::{AutoSwitch, RoleError};
pub use slave::SlaveError;

use crate::classic::HaSettings;

/// Settings, named as in `broker.conf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoSwitchSettings {
    /// Those of classic replication that count here too.
    pub ha: HaSettings,
    /// `haMaxTimeSlaveNotCatchup`: who has not had everything for so long leaves the SyncStateSet.
    pub lag_max: Duration,
    /// `syncFromLastFile`: an empty log begins with the master's last file.
    pub from_last_file: bool,
    /// `asyncLearner`: this replica never becomes a part of the SyncStateSet.
    pub is_learner: bool,
}
