//! Which brokers are still there (`docs/spec/06-namesrv.md` 4.3, 5).

use std::sync::atomic::Ordering;

use ferromq_protocol::body::DataVersion;

use super::{BrokerAddrInfo, BrokerLiveInfo, Tables, Unregistration};

impl Tables {
    /// Notes that a broker was heard of. One that is not registered is not told so.
    pub(crate) fn heartbeat(&self, broker: &BrokerAddrInfo, now_ms: i64) {
        if let Some(live) = self.broker_live_table.get(broker) {
            live.last_update_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// The version of the topics that a broker registered last.
    pub(crate) fn data_version(&self, broker: &BrokerAddrInfo) -> Option<DataVersion> {
        self.broker_live_table.get(broker).map(|live| live.data_version)
    }

    /// Closes the connections of brokers that were silent for too long, and tells what is to be removed.
    pub(crate) fn expire(&self, now_ms: i64) -> Vec<Unregistration> {
        let expired = self.broker_live_table.iter().filter(|(_, live)| live.has_expired(now_ms));
        expired
            .map(|(broker, live)| {
                let timeout_ms = live.heartbeat_timeout_ms;
                tracing::warn!(?broker, timeout_ms, "broker has been silent for too long");
                live.link.close();
                self.removal(broker, live)
            })
            .collect()
    }

    /// What is to be removed when connection `link`, over which `broker` once registered, has ended.
    pub(crate) fn lost(&self, broker: &BrokerAddrInfo, link: u64) -> Option<Unregistration> {
        let live = self.broker_live_table.get(broker).filter(|live| live.link.id() == link)?;
        Some(self.removal(broker, live))
    }

    fn removal(&self, broker: &BrokerAddrInfo, live: &BrokerLiveInfo) -> Unregistration {
        let data = self.broker_addr_table.get(&live.broker_name);
        let id =
            data.and_then(|data| data.broker_addrs.iter().find(|(_, addr)| **addr == broker.broker_addr));
        Unregistration {
            broker: broker.clone(),
            broker_name: live.broker_name.clone(),
            broker_id: id.map(|(id, _)| *id),
            link: Some(live.link.id()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Registration;
    use super::super::sample::{FakeLink, broker, registration};
    use super::*;

    #[test]
    fn silent_brokers_expire_after_the_time_that_they_named() {
        let mut tables = Tables::default();
        let link = FakeLink::new();
        let impatient = registration("a", 0, "a0", &["T", "U"]);
        tables
            .take(Registration { heartbeat_timeout_ms: Some(3000), link: link.clone(), ..impatient })
            .unwrap();
        tables.take(registration("b", 0, "b0", &["T", "U"])).unwrap();

        assert_eq!(tables.expire(3000), []);
        tables.heartbeat(&broker("a0"), 2000);
        tables.heartbeat(&broker("unknown"), 2000);
        assert_eq!(tables.expire(5000), []);
        assert!(!link.is_closed());

        let expired = tables.expire(5001);
        assert!(link.is_closed());
        assert_eq!(expired.len(), 1);
        assert_eq!((expired[0].broker_name.as_str(), expired[0].broker_id), ("a", Some(0)));
        tables.unregister(&expired, false);
        assert_eq!(tables.expire(120_000), []);
        assert_eq!(tables.expire(120_001).len(), 1);
    }

    #[test]
    fn a_broker_that_lost_its_id_is_forgotten_when_it_expires() {
        let mut tables = Tables::default();
        for addr in ["old", "new"] {
            let registration = registration("b", 1, addr, &["T", "U"]);
            tables.take(Registration { enable_acting_master: Some(true), ..registration }).unwrap();
        }
        tables.heartbeat(&broker("new"), 1000);
        tables.add_write_perm("b");
        let expired = tables.expire(120_001);
        assert_eq!(expired.len(), 1);
        assert_eq!(expired[0].broker_id, None);
        tables.unregister(&expired, true);
        assert_eq!(tables.data_version(&broker("old")), None);
        assert_eq!((tables.addrs("T"), tables.perm("T")), (vec![(1, "new".to_owned())], 6));
    }
}
