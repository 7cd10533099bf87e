//! The routes of all topics that this client uses (`docs/spec/07-client.md` 3.2, 3.6).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ferromq_protocol::body::TopicRouteData;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::route::{MASTER_ID, Route};

/// Topic to route, and broker to addresses. Both are what name servers said last; an old route stays when they don't
/// answer.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    tables: RwLock<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    topics: HashMap<String, Known>,
    /// Broker name to id to address. Routes overlap: the one that came last counts.
    brokers: BTreeMap<String, BTreeMap<i64, Arc<str>>>,
}

#[derive(Debug)]
struct Known {
    route: Arc<Route>,
    /// When it was asked for last.
    asked_at: Instant,
}

impl Routes {
    pub(crate) fn get(&self, topic: &str) -> Option<Arc<Route>> {
        self.tables.read().topics.get(topic).map(|known| known.route.clone())
    }

    /// The route, if it has a queue to send to.
    pub(crate) fn get_publish(&self, topic: &str) -> Option<Arc<Route>> {
        self.get(topic).filter(|route| !route.publish.queues.is_empty())
    }

    /// The route, if it was asked for at this time or later.
    pub(crate) fn get_since(&self, topic: &str, time: Instant) -> Option<Arc<Route>> {
        let tables = self.tables.read();
        tables.topics.get(topic).filter(|known| known.asked_at >= time).map(|known| known.route.clone())
    }

    pub(crate) fn topics(&self) -> Vec<String> {
        self.tables.read().topics.keys().cloned().collect()
    }

    /// Takes over what a name server said. A route that says nothing new leaves the round of producers where it is.
    pub(crate) fn learn(&self, topic: &str, data: TopicRouteData, asked_at: Instant) -> Arc<Route> {
        let mut tables = self.tables.write();
        for broker in &data.broker_datas {
            let addresses = broker.broker_addrs.iter().map(|(id, address)| (*id, address.as_str().into()));
            tables.brokers.insert(broker.broker_name.clone(), addresses.collect());
        }
        if let Some(known) = tables.topics.get_mut(topic).filter(|known| known.route.is_same(&data)) {
            known.asked_at = asked_at;
            return known.route.clone();
        }
        let route = Arc::new(Route::new(topic, data));
        tracing::debug!(topic, queues = route.publish.queues.len(), "route changed");
        tables.topics.insert(topic.to_owned(), Known { route: route.clone(), asked_at });
        route
    }

    /// Forgets the addresses that occur in no route any more.
    pub(crate) fn drop_offline_brokers(&self) {
        let mut tables = self.tables.write();
        let Tables { topics, brokers } = &mut *tables;
        let in_routes: BTreeSet<&str> = topics
            .values()
            .flat_map(|known| &known.route.data.broker_datas)
            .flat_map(|broker| broker.broker_addrs.values().map(String::as_str))
            .collect();
        brokers.retain(|_, addresses| {
            addresses.retain(|_, address| in_routes.contains(&**address));
            !addresses.is_empty()
        });
    }

    /// All brokers: name, id, address.
    pub(crate) fn brokers(&self) -> Vec<(String, i64, String)> {
        let tables = self.tables.read();
        let each = tables.brokers.iter().flat_map(|(name, addresses)| {
            addresses.iter().map(move |(id, address)| (name.clone(), *id, address.to_string()))
        });
        each.collect()
    }

    /// Address of a broker group's master.
    pub(crate) fn master(&self, broker: &str) -> Option<Arc<str>> {
        self.tables.read().brokers.get(broker)?.get(&MASTER_ID).cloned()
    }

    /// Address of the broker of a group that has this id, else of one that can stand in for it, with its id.
    pub(crate) fn replica(&self, broker: &str, id: i64) -> Option<(i64, String)> {
        let tables = self.tables.read();
        let addresses = tables.brokers.get(broker)?;
        let next = || (id != MASTER_ID).then(|| addresses.get_key_value(&(id + 1))).flatten();
        let found = addresses.get_key_value(&id).or_else(next).or_else(|| addresses.first_key_value());
        found.map(|(id, address)| (*id, address.to_string()))
    }

    /// Id of another member of a broker group than this one, if there is one.
    pub(crate) fn other_replica(&self, broker: &str, id: i64) -> Option<i64> {
        self.tables.read().brokers.get(broker)?.keys().copied().find(|other| *other != id)
    }

    /// Some broker that has the topic: name and address. The master if the chosen group has one.
    pub(crate) fn any_broker(&self, topic: &str) -> Option<(String, String)> {
        let route = self.get(topic)?;
        let broker = fastrand::choice(&route.data.broker_datas)?;
        let addresses = &broker.broker_addrs;
        let address = addresses.get(&MASTER_ID).or_else(|| fastrand::choice(addresses.values()))?;
        Some((broker.broker_name.clone(), address.clone()))
    }
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::body::BrokerData;

    use super::*;

    fn route(name: &str, addresses: &[(i64, &str)]) -> TopicRouteData {
        let broker_addrs = addresses.iter().map(|(id, address)| (*id, (*address).to_owned())).collect();
        let broker = BrokerData { broker_name: name.to_owned(), broker_addrs, ..BrokerData::default() };
        TopicRouteData { broker_datas: vec![broker], ..TopicRouteData::default() }
    }

    #[test]
    fn a_replica_stands_in_for_one_that_is_gone() {
        let routes = Routes::default();
        let replica = |id| routes.replica("a", id).map(|(id, _)| id);
        routes.learn("T", route("a", &[(0, "m"), (2, "s")]), Instant::now());
        assert_eq!((replica(0), replica(1), replica(2), replica(7)), (Some(0), Some(2), Some(2), Some(0)));
        routes.learn("T", route("a", &[(2, "s")]), Instant::now());
        assert_eq!(replica(0), Some(2), "the master is gone");
        assert_eq!(routes.master("a"), None);
        assert_eq!(routes.replica("b", 0), None);
    }

    #[test]
    fn brokers_that_left_all_routes_are_forgotten() {
        let routes = Routes::default();
        routes.learn("T", route("a", &[(0, "a0"), (1, "a1")]), Instant::now());
        routes.learn("U", route("b", &[(0, "b0")]), Instant::now());
        routes.learn("U", route("a", &[(0, "a0"), (1, "a1")]), Instant::now());
        routes.drop_offline_brokers();
        let names: Vec<_> = routes.brokers().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["a", "a"]);
        assert_eq!(routes.any_broker("T").unwrap().1, "a0");
    }

    #[test]
    fn the_same_route_again_changes_nothing() {
        let routes = Routes::default();
        let first = routes.learn("T", route("a", &[(0, "m")]), Instant::now());
        let again = routes.learn("T", route("a", &[(0, "m")]), Instant::now());
        assert!(Arc::ptr_eq(&first, &again));
    }
}
