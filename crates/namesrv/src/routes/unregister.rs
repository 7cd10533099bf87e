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
            data.broker_addrs.retain(|_, addr| *addr != broker.broker_addr);
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
