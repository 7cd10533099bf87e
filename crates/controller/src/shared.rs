//! What all connections and tasks of a controller share.

use std::sync::Arc;

use ferromq_remoting::Client;
use ferromq_settings::LiveSettings;
use tokio::sync::Semaphore;

use crate::config::ControllerConfig;
use crate::group::Group;
use crate::live::LiveTable;
use crate::raft::Consensus;

/// The settings, the group, and what is known of the brokers.
pub(crate) struct Shared {
    pub(crate) config: LiveSettings<ControllerConfig>,
    pub(crate) group: Arc<Group>,
    pub(crate) consensus: Consensus,
    pub(crate) live: LiveTable,
    /// For what the controller says to brokers.
    pub(crate) client: Client,
    /// One permit for each request that is under way.
    pub(crate) requests: Arc<Semaphore>,
}
