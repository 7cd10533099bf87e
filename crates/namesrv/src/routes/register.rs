//! A broker registers (`docs/spec/06-namesrv.md` 3.3).

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use ferromq_protocol::body::{
    BrokerData, DataVersion, QueueData, TopicConfig, TopicConfigAndMappingSerializeWrapper,
};
use thiserror::Error;

use super::{
    BROKERS_MAX, BrokerAddrInfo, BrokerLiveInfo, HEARTBEAT_TIMEOUT_MS, Link, MASTER_ID, MinBrokerIdNotice,
    NAME_BYTES_MAX, PERM_WRITE, TOPICS_MAX, Tables,
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

/// Why a registration is not taken.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum RegistrationRefused {
    /// The registration of some topics came before that of all. The broker repeats the latter soon.
    #[error("register broker failed")]
    Incremental,
    /// A name or address is longer than any of RocketMQ's could be.
    #[error("register broker failed: `{name}…` has {bytes} bytes, the limit is {NAME_BYTES_MAX}")]
    NameTooLong {
        /// How it begins.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// The tables are full.
    #[error("register broker failed: the limit of {TOPICS_MAX} topics or {BROKERS_MAX} brokers is reached")]
    TooMany,
}

impl Registration {
    fn check_names(&self) -> Result<(), RegistrationRefused> {
        let own = [&self.broker.cluster_name, &self.broker.broker_addr, &self.broker_name];
        let of_topics = self.topics.topic_config_table.keys();
        let of_static_topics = self.topics.topic_queue_mapping_info_map.keys();
        let mut names = own.into_iter().chain(of_topics).chain(of_static_topics);
        match names.find(|name| name.len() > NAME_BYTES_MAX) {
            Some(name) => Err(RegistrationRefused::NameTooLong {
                name: name.chars().take(32).collect(),
                bytes: name.len(),
            }),
            None => Ok(()),
        }
    }
}

impl Tables {
    /// Takes a registration at `now_ms` of the name server's clock. Comments name the steps of 3.3.
    pub(crate) fn register(
        &mut self,
        registration: Registration,
        config: &NamesrvConfig,
        now_ms: i64,
    ) -> Result<Registered, RegistrationRefused> {
        registration.check_names()?;
        self.check_room(&registration)?;
        let Registration { broker, broker_name, broker_id, topics, .. } = &registration;
        let data_version = topics.data_version;

        // 1 to 3: cluster and set.
        self.cluster_addr_table.entry(broker.cluster_name.clone()).or_default().insert(broker_name.clone());
        let data = self.broker_addr_table.entry(broker_name.clone()).or_insert_with(|| BrokerData {
            broker_name: broker_name.clone(),
            cluster: broker.cluster_name.clone(),
            ..BrokerData::default()
        });
        data.enable_acting_master = registration.enable_acting_master == Some(true);
        data.zone_name.clone_from(&registration.zone_name);
        let addrs = &mut data.broker_addrs;

        // 4 and 5: an address has one id; this is how a slave becomes master where it is.
        let min_before = addrs.keys().next().copied().unwrap_or(MASTER_ID);
        let min_changed = *broker_id < min_before;
        addrs.retain(|id, addr| *addr != broker.broker_addr || id == broker_id);

        // 6: of two that claim an id, the one of the later term has it.
        if let Some(owner) = addrs.get(broker_id).filter(|owner| **owner != broker.broker_addr) {
            let owner =
                BrokerAddrInfo { cluster_name: broker.cluster_name.clone(), broker_addr: owner.clone() };
            let owner = self.broker_live_table.get(&owner);
            if owner.is_some_and(|owner| owner.data_version.state_version > data_version.state_version) {
                warn_now_and_then!(?registration.broker, broker_name, broker_id, "the id belongs to a broker of a later term");
                self.broker_live_table.remove(broker);
                return Ok(Registered::default());
            }
        }
        // 7 and 8: the id is taken, unless this may be only a part of the first registration.
        let may_be_incremental = match registration.completeness {
            Completeness::Complete => false,
            Completeness::Incremental => true,
            Completeness::Unstated => topics.topic_config_table.len() == 1,
        };
        if may_be_incremental && !addrs.contains_key(broker_id) {
            warn_now_and_then!(?registration.broker, broker_name, "some topics were registered before all topics");
            return Err(RegistrationRefused::Incremental);
        }
        let is_first =
            addrs.insert(*broker_id, broker.broker_addr.clone()).is_none_or(|owner| owner.is_empty());

        // 9: who may say which topics the set has.
        let is_master = *broker_id == MASTER_ID;
        let is_prime_slave = registration.enable_acting_master.is_some()
            && !is_master
            && addrs.keys().next() == Some(broker_id);
        let withholds_writing = is_prime_slave && data.enable_acting_master;
        let notice = (min_changed && config.notify_min_broker_id_changed)
            .then(|| MinBrokerIdNotice::new(addrs, None, registration.ha_server_addr.clone()))
            .flatten();
        let master_addr = if is_master { None } else { addrs.get(&MASTER_ID).cloned() };

        // 10: topics.
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

        // 11 to 14: liveness, and what the broker and its set have to know.
        let master = master_addr.and_then(|master_addr| {
            let key = BrokerAddrInfo { cluster_name: broker.cluster_name.clone(), broker_addr: master_addr };
            let ha_server_addr = self.broker_live_table.get(&key)?.ha_server_addr.clone();
            Some((key.broker_addr, ha_server_addr))
        });
        let (master_addr, ha_server_addr) = master.map_or((None, None), |(addr, ha)| (Some(addr), ha));
        self.take_liveness(registration, data_version, now_ms);
        Ok(Registered { ha_server_addr, master_addr, notice })
    }

    fn check_room(&self, registration: &Registration) -> Result<(), RegistrationRefused> {
        let Registration { broker, broker_name, topics, .. } = registration;
        let new_topics = topics.topic_config_table.len().max(topics.topic_queue_mapping_info_map.len());
        let has_room = self.has_room_for_topics(new_topics)
            || topics.topic_config_table.keys().all(|topic| self.topic_queue_table.contains_key(topic))
                && topics.topic_queue_mapping_info_map.is_empty();
        let fits = |is_known: bool, count: usize| is_known || count < BROKERS_MAX;
        let has_room = has_room
            && fits(self.broker_addr_table.contains_key(broker_name), self.broker_addr_table.len())
            && fits(
                self.cluster_addr_table.contains_key(&broker.cluster_name),
                self.cluster_addr_table.len(),
            )
            && fits(self.broker_live_table.contains_key(broker), self.broker_live_table.len());
        if has_room { Ok(()) } else { Err(RegistrationRefused::TooMany) }
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

#[cfg(test)]
mod tests {
    use super::super::sample::{broker, registration};
    use super::*;

    fn with_version(mut registration: Registration, state_version: i64, counter: i64) -> Registration {
        registration.topics.data_version = DataVersion { counter, state_version, timestamp: 1 };
        registration
    }

    #[test]
    fn a_single_topic_is_refused_as_first_registration_unless_it_is_said_to_be_all() {
        let mut tables = Tables::default();
        assert_eq!(tables.take(registration("b", 0, "m", &["T"])), Err(RegistrationRefused::Incremental));
        assert_eq!(tables.route("T", false), None);

        let complete =
            Registration { completeness: Completeness::Complete, ..registration("b", 0, "m", &["T"]) };
        tables.take(complete).unwrap();
        assert_eq!(tables.addrs("T"), [(0, "m".to_owned())]);

        // Now that the broker is known, its single topics are welcome.
        tables.take(with_version(registration("b", 0, "m", &["U"]), 0, 2)).unwrap();
        assert!(tables.route("T", false).is_some() && tables.route("U", false).is_some());
    }

    #[test]
    fn an_incremental_registration_is_never_the_first() {
        let mut tables = Tables::default();
        let incremental = Registration {
            completeness: Completeness::Incremental,
            ..registration("b", 0, "m", &["T", "U"])
        };
        assert_eq!(tables.take(incremental), Err(RegistrationRefused::Incremental));
    }

    #[test]
    fn an_incremental_registration_deletes_no_topics() {
        let config =
            NamesrvConfig { delete_topic_with_broker_registration: true, ..NamesrvConfig::default() };
        let mut tables = Tables::default();
        tables.register(registration("b", 0, "m", &["T", "U"]), &config, 0).unwrap();
        let incremental =
            Registration { completeness: Completeness::Incremental, ..registration("b", 0, "m", &["V"]) };
        tables.register(with_version(incremental, 0, 2), &config, 0).unwrap();
        assert_eq!(tables.all_topics().topic_list.len(), 3);
        tables.register(with_version(registration("b", 0, "m", &["V", "U"]), 0, 3), &config, 0).unwrap();
        assert_eq!(tables.all_topics().topic_list.len(), 2);
    }

    #[test]
    fn a_slave_learns_of_its_master() {
        let mut tables = Tables::default();
        assert_eq!(tables.take(registration("b", 0, "m", &["T", "U"])), Ok(Registered::default()));
        let registered = tables.take(registration("b", 1, "s", &["T", "U"])).unwrap();
        assert_eq!(registered.master_addr.as_deref(), Some("m"));
        assert_eq!(registered.ha_server_addr.as_deref(), Some("ha of m"));
        assert_eq!(registered.notice, None);
    }

    #[test]
    fn slaves_of_4_x_contribute_no_topics() {
        let mut tables = Tables::default();
        let old = Registration { enable_acting_master: None, ..registration("b", 1, "s", &["T", "U"]) };
        tables.take(old).unwrap();
        assert_eq!(tables.route("T", false), None);
        tables.take(registration("b", 1, "s", &["T", "U"])).unwrap();
        assert_eq!(tables.perm("T"), 6);
    }

    /// `docs/spec/06-namesrv.md` 16.6, without acting master
    #[test]
    fn a_new_smallest_id_is_told_to_the_others() {
        let mut tables = Tables::default();
        let notice = |registered: Registered| registered.notice.map(|it| (it.min_broker_addr, it.receivers));
        let owned = |text: &str| text.to_owned();
        let registered = tables.take(registration("b", 2, "s2", &["T", "U"])).unwrap();
        assert_eq!(notice(registered), None);
        let registered = tables.take(registration("b", 1, "s1", &["T", "U"])).unwrap();
        assert_eq!(notice(registered), Some((owned("s1"), vec![owned("s2")])));
        let registered = tables.take(registration("b", 0, "s0", &["T", "U"])).unwrap();
        assert_eq!(notice(registered), Some((owned("s0"), vec![owned("s1"), owned("s2")])));
    }

    #[test]
    fn a_master_of_an_earlier_term_is_ignored() {
        let mut tables = Tables::default();
        tables.take(with_version(registration("b", 0, "new", &["T", "U"]), 5, 1)).unwrap();
        let ignored = tables.take(with_version(registration("b", 0, "old", &["T", "U"]), 4, 9));
        assert_eq!(ignored, Ok(Registered::default()));
        assert_eq!(tables.addrs("T"), [(0, "new".to_owned())]);
        assert_eq!(tables.data_version(&broker("old")), None);
    }

    #[test]
    fn an_address_has_one_id() {
        let mut tables = Tables::default();
        tables.take(registration("b", 1, "x", &["T", "U"])).unwrap();
        tables.take(registration("b", 0, "x", &["T", "U"])).unwrap();
        assert_eq!(tables.addrs("T"), [(0, "x".to_owned())]);
    }

    #[test]
    fn a_known_version_changes_nothing_but_brings_back_what_is_missing() {
        let mut tables = Tables::default();
        tables.take(registration("b", 0, "m", &["T", "U"])).unwrap();
        tables.wipe_write_perm("b");
        tables.delete_topic("U", None);
        tables.take(registration("b", 0, "m", &["T", "U"])).unwrap();
        assert_eq!((tables.perm("T"), tables.perm("U")), (4, 6));
        tables.take(with_version(registration("b", 0, "m", &["T", "U"]), 0, 2)).unwrap();
        assert_eq!(tables.perm("T"), 6);
    }

    #[test]
    fn names_and_numbers_are_bounded() {
        let mut tables = Tables::default();
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let refused = tables.take(registration("b", 0, "m", &["T", &long])).unwrap_err();
        assert!(matches!(refused, RegistrationRefused::NameTooLong { .. }), "{refused}");
        tables.take(registration("b0", 0, "m0", &["T", "U"])).unwrap();
        let others = (1..BROKERS_MAX).map(|number| (format!("b{number}"), BrokerData::default()));
        tables.broker_addr_table.extend(others);
        assert_eq!(tables.take(registration("b", 0, "m", &[])), Err(RegistrationRefused::TooMany));
        tables.take(registration("b0", 0, "m0", &["T", "U"])).unwrap();
    }
}
