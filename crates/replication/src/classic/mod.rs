//! Classic replication between a master and its slaves, in RocketMQ's HA protocol (`docs/spec/05-ha.md` §2).
//!
//! The slave connects and says up to where its log reaches; from then on the master sends what follows, in frames cut anywhere, and
//! the slave says again and again how far it got ([`wire`]). There is no handshake, and nothing says who is who.
//!
//! | module | what |
//! |---|---|
//! | [`HaMaster`] (`master`) | accepts slaves, knows how far each is, and up to where so many replicas have the log |
//! | `feed` | one slave's connection, at the master |
//! | [`HaSlave`] (`slave`) | connects to the master, again and again |
//! | `intake` | what the slave makes of the bytes: is the master's log the one that ours is a copy of; whole records |
//! | `pace` | bytes in the last second, and how many more are allowed in this one |
//!
//! Both sides get on with the Java broker's other side. Where that one believes whatever it is sent, these refuse: a slave whose log is
//! not a part of the master's, bytes that are no records, acknowledgements of what was never sent.

mod feed;
mod intake;
mod master;
mod pace;
mod slave;
pub mod wire;

use std::time::Duration;

pub(crate) use feed::AtEnd;
pub use feed::Refused;
pub use intake::BadBytes;
pub(crate) use intake::Intake;
pub use master::{ConnectedSlave, HaMaster};
pub(crate) use pace::Pace;
pub use slave::{FirstOffset, HaSlave, SlaveError};

/// Settings of both sides, named as in `broker.conf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaSettings {
    /// `haSendHeartbeatInterval`: after so long without anything else a heartbeat is sent.
    pub heartbeat_interval: Duration,
    /// `haHousekeepingInterval`: a connection over which nothing came for so long is closed.
    pub housekeeping_interval: Duration,
    /// `haTransferBatchSize`: most bytes of the log in one frame.
    pub batch_size: usize,
    /// `haMaxGapNotInSync`: a slave that lacks so many bytes is not in sync.
    pub gap_max: u64,
    /// `maxHaTransferByteInSecond`, if `haFlowControlEnable`: most bytes of the log that one slave is sent in a second.
    pub bytes_per_second_max: Option<u64>,
    /// `haSlavesPerHost`: how many slaves one address may stand for.
    pub slaves_per_host: usize,
    /// How long a slave waits before it asks a master again that it can't follow. It connects again after a fifth of that when the
    /// connection is lost.
    pub reconnect_pause: Duration,
}

impl Default for HaSettings {
    fn default() -> Self {
        HaSettings {
            heartbeat_interval: Duration::from_secs(5),
            housekeeping_interval: Duration::from_secs(20),
            batch_size: 32 << 10,
            gap_max: 256 << 20,
            bytes_per_second_max: None,
            slaves_per_host: 1,
            reconnect_pause: Duration::from_secs(5),
        }
    }
}
