//! The route of a topic (`docs/spec/06-namesrv.md` 6).

use ferromq_protocol::body::{BrokerData, QueueData, TopicRouteData};

use super::{BrokerAddrInfo, MASTER_ID, PERM_WRITE, Tables};

/// Prefix of the topic that brokers look up to learn of the members of their set; its routes name the real ids.
const SYNC_BROKER_MEMBER_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";

impl Tables {
    /// The route of a topic, or `None` if no broker of it is known.
    ///
    /// With `supports_acting_master`, sets without master show their first slave as master where it may act as one.
    pub(crate) fn route(&self, topic: &str, supports_acting_master: bool) -> Option<TopicRouteData> {
        let queues = self.topic_queue_table.get(topic)?;
        let brokers = queues.0.iter().filter_map(|queue| self.broker_addr_table.get(&queue.broker_name));
        let mut route = TopicRouteData {
            broker_datas: brokers.cloned().collect(),
            queue_datas: queues.0.clone(),
            topic_queue_mapping_by_broker: self.topic_queue_mapping_info_table.get(topic).cloned(),
            ..TopicRouteData::default()
        };
        if route.broker_datas.is_empty() {
            return None;
        }
        if !self.filter_server_table.is_empty() {
            for broker in &route.broker_datas {
                for addr in broker.broker_addrs.values() {
                    let key =
                        BrokerAddrInfo { cluster_name: broker.cluster.clone(), broker_addr: addr.clone() };
                    if let Some(servers) = self.filter_server_table.get(&key) {
                        route.filter_server_table.insert(key.broker_addr, servers.clone());
                    }
                }
            }
        }
        if supports_acting_master && !topic.starts_with(SYNC_BROKER_MEMBER_PREFIX) {
            for broker in &mut route.broker_datas {
                show_acting_master(broker, &route.queue_datas);
            }
        }
        Some(route)
    }
}

/// Gives the first slave of a set without master the master's id, if the set wants that and takes no messages.
fn show_acting_master(broker: &mut BrokerData, queues: &[QueueData]) {
    if !broker.enable_acting_master || broker.broker_addrs.contains_key(&MASTER_ID) {
        return;
    }
    let queue = queues.iter().find(|queue| queue.broker_name == broker.broker_name);
    if queue.is_some_and(|queue| queue.perm & PERM_WRITE == 0)
        && let Some((_, acting)) = broker.broker_addrs.pop_first()
    {
        broker.broker_addrs.insert(MASTER_ID, acting);
    }
}

/// Leaves out the brokers of other zones, as far as their masters are up (6.5).
pub(crate) fn keep_zone(route: &mut TopicRouteData, zone: &str) {
    let keeps = |broker: &BrokerData| {
        !broker.broker_addrs.contains_key(&MASTER_ID)
            || broker.zone_name.as_deref().is_some_and(|name| equals_ignoring_case(name, zone))
    };
    let (kept, dropped): (Vec<_>, Vec<_>) =
        std::mem::take(&mut route.broker_datas).into_iter().partition(keeps);
    route.broker_datas = kept;
    let drops = |name: &str| dropped.iter().any(|broker| broker.broker_name == name);
    route.queue_datas.retain(|queue| !drops(&queue.broker_name));
    for addr in dropped.iter().flat_map(|broker| broker.broker_addrs.values()) {
        route.filter_server_table.remove(addr);
    }
}

fn equals_ignoring_case(a: &str, b: &str) -> bool {
    a.chars().flat_map(char::to_lowercase).eq(b.chars().flat_map(char::to_lowercase))
}
