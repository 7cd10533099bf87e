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

#[cfg(test)]
mod tests {
    use ferromq_protocol::json;

    use super::super::Registration;
    use super::super::sample::registration;
    use super::*;

    /// `docs/spec/06-namesrv.md` 16.7
    #[test]
    fn brokers_of_other_zones_are_left_out_while_their_masters_are_up() {
        let mut tables = Tables::default();
        for (name, id, zone) in
            [("a", 0, Some("Z1")), ("b", 0, Some("z2")), ("c", 1, Some("z2")), ("d", 0, None)]
        {
            let zone_name = zone.map(str::to_owned);
            let filter_servers = Some(vec![format!("filter of {name}")]);
            let registration = registration(name, id, &format!("{name}:1"), &["T", "U"]);
            tables.take(Registration { zone_name, filter_servers, ..registration }).unwrap();
        }
        let mut route = tables.route_of("T");
        assert_eq!(route.broker_datas.len(), 4);
        keep_zone(&mut route, "z1");
        let names: Vec<_> = route.broker_datas.iter().map(|broker| broker.broker_name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        let names: Vec<_> = route.queue_datas.iter().map(|queue| queue.broker_name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        let addrs: Vec<_> = route.filter_server_table.keys().map(String::as_str).collect();
        assert_eq!(addrs, ["a:1", "c:1"]);
    }

    #[test]
    fn members_of_a_set_see_the_real_ids() {
        let mut tables = Tables::default();
        let topic = "rmq_sys_SYNC_BROKER_MEMBER_b";
        let slave = registration("b", 2, "s:1", &["T", topic]);
        tables.take(Registration { enable_acting_master: Some(true), ..slave }).unwrap();
        assert_eq!(tables.addrs("T"), [(0, "s:1".to_owned())]);
        assert_eq!(tables.addrs(topic), [(2, "s:1".to_owned())]);
        assert_eq!(tables.route("T", false).unwrap().broker_datas[0].broker_addrs.keys().next(), Some(&2));
    }

    /// `docs/spec/06-namesrv.md` 16.4
    #[test]
    fn routes_are_written_in_both_dialects() {
        let mut tables = Tables::default();
        for (id, addr) in [(0, "10.0.0.1:10911"), (1, "10.0.0.2:10911")] {
            let mut registration = registration("broker-a", id, addr, &["T", "U"]);
            registration.broker.cluster_name = "DefaultCluster".to_owned();
            tables.take(registration).unwrap();
        }
        let route = tables.route_of("T");
        let legacy = r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#;
        assert_eq!(String::from_utf8(json::to_vec(&route)).unwrap(), legacy);
        let standard = legacy.replace("{0:", r#"{"0":"#).replace(",1:", r#","1":"#);
        assert_eq!(String::from_utf8(json::to_vec_standard(&route)).unwrap(), standard);
    }
}
