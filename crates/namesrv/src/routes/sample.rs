//! Brokers and connections for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ferromq_protocol::body::{
    DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicRouteData,
};

use super::register::Registered;
use super::{BrokerAddrInfo, Completeness, Link, Registration, RegistrationRefused, Tables};
use crate::config::NamesrvConfig;

/// A connection that only notes whether it was closed.
#[derive(Debug)]
pub(super) struct FakeLink {
    id: u64,
    closed: AtomicBool,
}

impl FakeLink {
    pub(super) fn new() -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), closed: AtomicBool::new(false) })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl Link for FakeLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

pub(super) fn broker(broker_addr: &str) -> BrokerAddrInfo {
    BrokerAddrInfo { cluster_name: "C".to_owned(), broker_addr: broker_addr.to_owned() }
}

/// A registration in cluster `C` of a 5.x broker without acting master, with topics of four queues.
pub(super) fn registration(
    broker_name: &str,
    broker_id: i64,
    broker_addr: &str,
    topics: &[&str],
) -> Registration {
    let topics = topics.iter().map(|topic| ((*topic).to_owned(), TopicConfig::new(*topic, 4)));
    Registration {
        broker: broker(broker_addr),
        broker_name: broker_name.to_owned(),
        broker_id,
        ha_server_addr: Some(format!("ha of {broker_addr}")),
        heartbeat_timeout_ms: None,
        enable_acting_master: Some(false),
        zone_name: None,
        completeness: Completeness::Unstated,
        topics: TopicConfigAndMappingSerializeWrapper {
            data_version: DataVersion { counter: 1, state_version: 0, timestamp: 1 },
            topic_config_table: topics.collect(),
            ..Default::default()
        },
        filter_servers: Some(Vec::new()),
        link: FakeLink::new(),
    }
}

impl Tables {
    /// Registers at time 0, with minimum-id notices on.
    pub(super) fn take(&mut self, registration: Registration) -> Result<Registered, RegistrationRefused> {
        let config = NamesrvConfig { notify_min_broker_id_changed: true, ..NamesrvConfig::default() };
        self.register(registration, &config, 0)
    }

    /// The route with acting masters; panics if there is none.
    pub(super) fn route_of(&self, topic: &str) -> TopicRouteData {
        self.route(topic, true).unwrap()
    }

    /// Permission of a topic on its only broker set.
    pub(super) fn perm(&self, topic: &str) -> i32 {
        self.route_of(topic).queue_datas[0].perm
    }

    /// Ids and addresses of a topic's only broker set.
    pub(super) fn addrs(&self, topic: &str) -> Vec<(i64, String)> {
        self.route_of(topic).broker_datas[0].broker_addrs.clone().into_iter().collect()
    }
}
