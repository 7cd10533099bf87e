//! The broker as a whole: what it owns, how it starts and stops.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ferromq_store::Store;

use crate::client::{ConsumerTable, ProducerTable};
use crate::config::BrokerConfig;
use crate::groups::SubscriptionGroups;
use crate::locks::QueueLocks;
use crate::offsets::ConsumerOffsets;
use crate::pull::HeldPulls;
use crate::registration::Registration;
use crate::schedule::ScheduleService;
use crate::stats::BrokerStats;
use crate::topics::TopicTable;

/// One broker. All parts are shared by all connections.
pub struct Broker {
    /// The settings in force; replaced as a whole by UPDATE_BROKER_CONFIG.
    config: ArcSwap<BrokerConfig>,
    pub(crate) store: Arc<Store>,
    pub(crate) topics: TopicTable,
    pub(crate) groups: SubscriptionGroups,
    pub(crate) consumers: ConsumerTable,
    pub(crate) producers: ProducerTable,
    pub(crate) offsets: ConsumerOffsets,
    pub(crate) locks: QueueLocks,
    pub(crate) held_pulls: HeldPulls,
    pub(crate) stats: BrokerStats,
    pub(crate) schedule: ScheduleService,
    pub(crate) registration: Registration,
}

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {}

impl Broker {
    /// The settings in force now.
    pub(crate) fn config(&self) -> Arc<BrokerConfig> {
        self.config.load_full()
    }
}
