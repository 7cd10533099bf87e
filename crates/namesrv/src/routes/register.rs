//! A broker registers (`docs/spec/06-namesrv.md` 3.3).

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use ferromq_protocol::body::{
    BrokerData, DataVersion, QueueData, TopicConfig, TopicConfigAndMappingSerializeWrapper,
};
use thiserror::Error;

use super::{
    BrokerAddrInfo, BrokerLiveInfo, HEARTBEAT_TIMEOUT_MS, Link, MASTER_ID, MinBrokerIdNotice, PERM_WRITE,
    Tables,
};
use crate::config::NamesrvConfig;

/// Whether a registration names all topics of the broker.
///
/// RocketMQ's registrations do not say it, so that its name server takes a first one with a single topic for an
/// incremental one that came too early. FerroMQ's say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// All topics, however few.
    Complete,
    /// Only what changed.
    Incremental,
    /// The broker does not say.
    Unstated,
}

/// What a broker says of itself.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) broker: BrokerAddrInfo,
    pub(crate) broker_name: String,
    /// 0 is the master.
    pub(crate) broker_id: i64,
    pub(crate) ha_server_addr: Option<String>,
    /// How long it may be silent, ms, if not the default.
    pub(crate) heartbeat_timeout_ms: Option<i64>,
    /// `None` is a broker before 5.0, which is not the same as `false`.
    pub(crate) enable_acting_master: Option<bool>,
    pub(crate) zone_name: Option<String>,
    pub(crate) completeness: Completeness,
    pub(crate) topics: TopicConfigAndMappingSerializeWrapper,
    /// `None` in the form before 3.0.11, which does not touch the filter servers.
    pub(crate) filter_servers: Option<Vec<String>>,
    pub(crate) link: Arc<dyn Link>,
}

/// What a broker learns from its registration.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Registered {
    /// Where a slave replicates from.
    pub(crate) ha_server_addr: Option<String>,
    /// A slave's master.
    pub(crate) master_addr: Option<String>,
    /// Whom to tell of a new smallest id.
    pub(crate) notice: Option<MinBrokerIdNotice>,
}

/// The registration of some topics came before that of all; the broker repeats the latter soon.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("register broker failed")]
pub(crate) struct RegistrationRefused;

impl Tables {
    /// Takes a registration at `now_ms` of the name server's clock.
    pub(crate) fn register(
        &mut self,
        registration: Registration,
        config: &NamesrvConfig,
        now_ms: i64,
    ) -> Result<Registered, RegistrationRefused> {
        let Registration { broker, broker_name, broker_id, topics, .. } = &registration;
        let data_version = topics.data_version;
        self.cluster_addr_table.entry(broker.cluster_name.clone()).or_default().insert(broker_name.clone());
        let data = self.broker_addr_table.entry(broker_name.clone()).or_insert_with(|| BrokerData {
            broker_name: broker_name.clone(),
            cluster: broker.cluster_name.clone(),
            ..BrokerData::default()
        });
        data.enable_acting_master = registration.enable_acting_master == Some(true);
        data.zone_name.clone_from(&registration.zone_name);
        let addrs = &mut data.broker_addrs;

        let min_before = addrs.keys().next().copied().unwrap_or(MASTER_ID);
        let min_changed = *broker_id < min_before;
        // An address has one id: this is how a slave becomes master where it is.
        addrs.retain(|id, addr| *addr != broker.broker_addr || id == broker_id);

        if let Some(owner) = addrs.get(broker_id).filter(|owner| **owner != broker.broker_addr) {
            let owner =
                BrokerAddrInfo { cluster_name: broker.cluster_name.clone(), broker_addr: owner.clone() };
            let owner = self.broker_live_table.get(&owner);
            if owner.is_some_and(|owner| owner.data_version.state_version > data_version.state_version) {
                tracing::warn!(?registration.broker, broker_name, broker_id, "the id belongs to a broker of a later term");
                self.broker_live_table.remove(broker);
                return Ok(Registered::default());
            }
        }
        let may_be_incremental = match registration.completeness {
            Completeness::Complete => false,
            Completeness::Incremental => true,
            Completeness::Unstated => topics.topic_config_table.len() == 1,
        };
        if may_be_incremental && !addrs.contains_key(broker_id) {
            tracing::warn!(?registration.broker, broker_name, "some topics were registered before all topics");
            return Err(RegistrationRefused);
        }
        let is_first =
            addrs.insert(*broker_id, broker.broker_addr.clone()).is_none_or(|owner| owner.is_empty());

        let is_master = *broker_id == MASTER_ID;
        let is_prime_slave = registration.enable_acting_master.is_some()
            && !is_master
            && addrs.keys().next() == Some(broker_id);
        let withholds_writing = is_prime_slave && data.enable_acting_master;
        let notice = (min_changed && config.notify_min_broker_id_changed)
            .then(|| MinBrokerIdNotice::new(addrs, None, registration.ha_server_addr.clone()))
            .flatten();
        let master_addr = if is_master { None } else { addrs.get(&MASTER_ID).cloned() };

        if is_master || is_prime_slave {
            if config.delete_topic_with_broker_registration
                && registration.completeness != Completeness::Incremental
                && topics.topic_queue_mapping_info_map.is_empty()
            {
                self.change_all_topics(|topic, queues| {
                    if !topics.topic_config_table.contains_key(topic) {
                        queues.remove(broker_name);
                    }
                });
            }
            let known = self.broker_live_table.get(broker).map(|live| live.data_version);
            let is_news = is_first || known != Some(data_version);
            self.take_topics(broker_name, topics, is_news, withholds_writing);
        }

        let master = master_addr.and_then(|master_addr| {
            let key = BrokerAddrInfo { cluster_name: broker.cluster_name.clone(), broker_addr: master_addr };
            let ha_server_addr = self.broker_live_table.get(&key)?.ha_server_addr.clone();
            Some((key.broker_addr, ha_server_addr))
        });
        let (master_addr, ha_server_addr) = master.map_or((None, None), |(addr, ha)| (Some(addr), ha));
        self.take_liveness(registration, data_version, now_ms);
        Ok(Registered { ha_server_addr, master_addr, notice })
    }

    /// Takes the queues of all topics, or, if the broker's version is known already, of those that went missing here.
    fn take_topics(
        &mut self,
        broker_name: &str,
        topics: &TopicConfigAndMappingSerializeWrapper,
        is_news: bool,
        withholds_writing: bool,
    ) {
        for (topic, config) in &topics.topic_config_table {
            let queues = match self.topic_queue_table.get_mut(topic) {
                Some(queues) => queues,
                None => self.topic_queue_table.entry(topic.clone()).or_default(),
            };
            if is_news || !queues.contains(broker_name) {
                queues.set(queue_data(broker_name, config, withholds_writing));
            }
        }
        if is_news {
            for (topic, mapping) in &topics.topic_queue_mapping_info_map {
                let by_broker = self.topic_queue_mapping_info_table.entry(topic.clone()).or_default();
                by_broker.insert(mapping.bname.clone(), mapping.clone());
            }
        }
    }

    fn take_liveness(&mut self, registration: Registration, data_version: DataVersion, now_ms: i64) {
        if let Some(servers) = registration.filter_servers {
            self.filter_server_table.remove(&registration.broker);
            if !servers.is_empty() {
                self.filter_server_table.insert(registration.broker.clone(), servers);
            }
        }
        let live = BrokerLiveInfo {
            broker_name: registration.broker_name,
            last_update_ms: AtomicI64::new(now_ms),
            heartbeat_timeout_ms: registration.heartbeat_timeout_ms.unwrap_or(HEARTBEAT_TIMEOUT_MS),
            data_version,
            ha_server_addr: registration.ha_server_addr,
            link: registration.link,
        };
        if self.broker_live_table.insert(registration.broker.clone(), live).is_none() {
            tracing::info!(broker = ?registration.broker, "new broker registered");
        }
    }
}

fn queue_data(broker_name: &str, config: &TopicConfig, withholds_writing: bool) -> QueueData {
    QueueData {
        broker_name: broker_name.to_owned(),
        perm: if withholds_writing { config.perm & !PERM_WRITE } else { config.perm },
        read_queue_nums: config.read_queue_nums,
        topic_sys_flag: config.topic_sys_flag,
        write_queue_nums: config.write_queue_nums,
    }
}
