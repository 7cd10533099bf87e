//! How replicas stand to each other (`docs/spec/10-admin.md` 11).

use ferromq_protocol::body::{EpochEntryCache, HARuntimeInfo};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;

use super::{Admin, NO_TOPIC, at};
use crate::error::Error;

impl Admin {
    /// A master's slaves and how far they are, or a slave's connection to its master.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn ha_status(&self, address: &str) -> Result<HARuntimeInfo, Error> {
        self.get(at(address, NO_TOPIC), RemotingCommand::request(request::GET_BROKER_HA_STATUS)).await
    }

    /// Which parts of its log a broker under a controller has from which master.
    ///
    /// # Errors
    /// If the broker is not under a controller.
    pub async fn broker_epochs(&self, address: &str) -> Result<EpochEntryCache, Error> {
        self.get(at(address, NO_TOPIC), RemotingCommand::request(request::GET_BROKER_EPOCH_CACHE)).await
    }

    /// Tells a slave up to where its master has flushed, bytes.
    ///
    /// # Errors
    /// If the broker refuses.
    pub async fn reset_master_flush_offset(&self, address: &str, offset: i64) -> Result<(), Error> {
        let reset =
            RemotingCommand::request(request::RESET_MASTER_FLUSH_OFFSET).with("masterFlushOffset", offset);
        self.done(at(address, NO_TOPIC), reset).await.map(drop)
    }
}
