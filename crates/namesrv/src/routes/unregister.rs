//! Brokers leave: by their own word, by silence, or with their connection (`docs/spec/06-namesrv.md` 4).

use std::collections::{HashMap, HashSet};

use super::{BrokerAddrInfo, MinBrokerIdNotice, PERM_WRITE, Tables};

/// A broker that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unregistration {
    pub(crate) broker: BrokerAddrInfo,
    pub(crate) broker_name: String,
    /// The id that it has, as far as is known.
    pub(crate) broker_id: Option<i64>,
    /// The connection that was lost or has gone silent. If the broker has registered over another one by the time this
    /// is carried out, it stays. `None` removes it in any case: it asked for it.
    pub(crate) link: Option<u64>,
}

impl Tables {
    /// Removes a batch of brokers and tells whom to notify.
    pub(crate) fn unregister(&mut self, batch: &[Unregistration], notifies: bool) -> Vec<MinBrokerIdNotice> {
        let mut removed = HashSet::new();
        let mut reduced = HashSet::new();
        // Name of a set to the address that left it, where that had the smallest id.
        let mut left = HashMap::new();
        for Unregistration { broker, broker_name, broker_id, link } in batch {
            let live = self.broker_live_table.get(broker);
            if link.is_some() && link != &live.map(|live| live.link.id()) {
                continue;
            }
            self.broker_live_table.remove(broker);
            self.filter_server_table.remove(broker);
            tracing::info!(?broker, broker_name, "broker removed");

            let Some(data) = self.broker_addr_table.get_mut(broker_name) else {
                reduced.insert(broker_name.as_str());
                continue;
            };
            let min_changed = data.broker_addrs.keys().next().is_some_and(|min| Some(*min) == *broker_id);
            let brokers_before = data.broker_addrs.len();
            data.broker_addrs.retain(|_, addr| *addr != broker.broker_addr);
            if link.is_some() && data.broker_addrs.len() == brokers_before && brokers_before > 0 {
                // It had lost its id to another one before; its end means nothing to the set.
                continue;
            }
            if data.broker_addrs.is_empty() {
                self.broker_addr_table.remove(broker_name);
                self.leave_cluster(&broker.cluster_name, broker_name);
                removed.insert(broker_name.as_str());
            } else {
                reduced.insert(broker_name.as_str());
                if min_changed {
                    left.insert(broker_name.as_str(), broker.broker_addr.as_str());
                }
            }
        }

        reduced.retain(|broker_name| self.acts_without_master(broker_name));
        if !removed.is_empty() || !reduced.is_empty() {
            self.change_all_topics(|_, queues| {
                queues.0.retain(|queue| !removed.contains(queue.broker_name.as_str()));
                for queue in &mut queues.0 {
                    if reduced.contains(queue.broker_name.as_str()) {
                        queue.perm &= !PERM_WRITE;
                    }
                }
            });
        }
        if !notifies {
            return Vec::new();
        }
        let notice = |(broker_name, addr): (&str, &str)| {
            let data = self.broker_addr_table.get(broker_name).filter(|data| data.enable_acting_master)?;
            MinBrokerIdNotice::new(&data.broker_addrs, Some(addr.to_owned()), None)
        };
        left.into_iter().filter_map(notice).collect()
    }

    fn leave_cluster(&mut self, cluster_name: &str, broker_name: &str) {
        if let Some(names) = self.cluster_addr_table.get_mut(cluster_name) {
            names.remove(broker_name);
            if names.is_empty() {
                self.cluster_addr_table.remove(cluster_name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{broker, registration};
    use super::super::{Registration, Tables};
    use super::*;

    fn leaving(broker_name: &str, broker_id: i64, broker_addr: &str) -> Unregistration {
        Unregistration {
            broker: broker(broker_addr),
            broker_name: broker_name.to_owned(),
            broker_id: Some(broker_id),
            link: None,
        }
    }

    fn acting(broker_id: i64, broker_addr: &str) -> Registration {
        let registration = registration("b", broker_id, broker_addr, &["T", "U"]);
        Registration { enable_acting_master: Some(true), ..registration }
    }

    /// `docs/spec/06-namesrv.md` 16.6, steps B to F
    #[test]
    fn a_slave_acts_as_master_while_there_is_none() {
        let mut tables = Tables::default();
        tables.take(acting(0, "m")).unwrap();
        tables.take(acting(1, "s")).unwrap();
        let notices = tables.unregister(&[leaving("b", 0, "m")], true);
        let expected = MinBrokerIdNotice {
            min_broker_id: 1,
            min_broker_addr: "s".to_owned(),
            offline_broker_addr: Some("m".to_owned()),
            ha_broker_addr: None,
            receivers: vec!["s".to_owned()],
        };
        assert_eq!(notices, [expected]);
        assert_eq!((tables.addrs("T"), tables.perm("T")), (vec![(0, "s".to_owned())], 4));

        tables.take(acting(0, "m")).unwrap();
        assert_eq!(tables.perm("T"), 6);
        assert_eq!(tables.addrs("T").len(), 2);
    }

    #[test]
    fn the_last_of_a_set_takes_topics_and_cluster_along() {
        let mut tables = Tables::default();
        tables.take(registration("a", 0, "a0", &["T", "U"])).unwrap();
        tables.take(registration("b", 0, "b0", &["T", "V"])).unwrap();
        assert_eq!(tables.unregister(&[leaving("a", 0, "a0")], true), []);
        assert_eq!(tables.route("U", false), None);
        assert_eq!(tables.route_of("T").broker_datas.len(), 1);
        tables.unregister(&[leaving("b", 0, "b0"), leaving("unknown", 0, "x")], false);
        let info = tables.cluster_info();
        assert!(info.broker_addr_table.is_empty() && info.cluster_addr_table.is_empty());
        assert!(tables.all_topics().topic_list.is_empty());
    }

    #[test]
    fn a_former_owner_of_an_id_does_not_take_the_new_one_along() {
        let mut tables = Tables::default();
        tables.take(registration("b", 0, "old", &["T", "U"])).unwrap();
        tables.take(registration("b", 0, "new", &["T", "U"])).unwrap();
        tables.unregister(&[leaving("b", 0, "old")], false);
        assert_eq!(tables.addrs("T"), [(0, "new".to_owned())]);
    }

    #[test]
    fn a_broker_that_came_back_over_another_connection_stays() {
        let mut tables = Tables::default();
        let first = registration("b", 0, "m", &["T", "U"]);
        let first_link = first.link.id();
        tables.take(first).unwrap();
        let lost = tables.lost(&broker("m"), first_link).unwrap();
        let second = registration("b", 0, "m", &["T", "U"]);
        let second_link = second.link.id();
        tables.take(second).unwrap();

        tables.unregister(&[lost], false);
        assert_eq!(tables.addrs("T"), [(0, "m".to_owned())]);
        assert_eq!(tables.lost(&broker("m"), first_link), None);

        let lost = tables.lost(&broker("m"), second_link).unwrap();
        tables.unregister(&[lost.clone(), lost], false);
        assert_eq!(tables.route("T", false), None);
    }
}
