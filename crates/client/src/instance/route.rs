//! What a topic's route means to producers and consumers (`docs/spec/07-client.md` 3.2, 3.3).

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use ferromq_protocol::body::{MessageQueue, SCOPE_GLOBAL, TopicQueueMappingInfo, TopicRouteData};

use crate::meters::SendMeter;

/// Id of a broker group's master.
pub(crate) const MASTER_ID: i64 = 0;

/// Broker name that a static topic's queues show for the global scope; other scopes have their own.
const LOGICAL_PREFIX: &str = "__syslo__";
/// Broker name of a static topic's queue that no broker hosts.
const LOGICAL_NONE: &str = "__syslo__none__";

const PERM_WRITE: i32 = 2;
const PERM_READ: i32 = 4;

/// The route of one topic, and what follows from it.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) data: TopicRouteData,
    /// The queues that messages can be sent to.
    pub(crate) publish: PublishInfo,
    /// The queues that messages can be pulled from.
    pub(crate) subscribe: Vec<MessageQueue>,
    /// Static topics: which broker a logical queue is on now.
    logical: HashMap<MessageQueue, String>,
}

/// The queues of a topic that a producer chooses from, and where it is in its round.
#[derive(Debug)]
pub(crate) struct PublishInfo {
    pub(crate) queues: Vec<MessageQueue>,
    counter: AtomicU32,
    meter: OnceLock<SendMeter>,
}

impl PublishInfo {
    pub(crate) fn new(queues: Vec<MessageQueue>) -> Self {
        // Producers that start together must not all begin with the same queue.
        Self { queues, counter: AtomicU32::new(fastrand::u32(..)), meter: OnceLock::new() }
    }

    /// What measures the sends to the topic.
    pub(crate) fn meter(&self, client_id: &str, topic: &str) -> &SendMeter {
        self.meter.get_or_init(|| SendMeter::new(client_id, topic))
    }

    /// The next queue in the round.
    pub(crate) fn next(&self) -> Option<&MessageQueue> {
        let position = self.counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & 0x7fff_ffff;
        self.queues.get((position as usize).checked_rem(self.queues.len())?)
    }

    /// The next queue in the round that `wanted` agrees to.
    pub(crate) fn next_matching(&self, wanted: impl Fn(&MessageQueue) -> bool) -> Option<&MessageQueue> {
        (0..self.queues.len()).filter_map(|_| self.next()).find(|queue| wanted(queue))
    }

    /// Goes on at a random place.
    pub(crate) fn reset(&self) {
        self.counter.store(fastrand::u32(..0x7fff_fffe), Ordering::Relaxed);
    }
}

impl Route {
    pub(crate) fn new(topic: &str, mut data: TopicRouteData) -> Self {
        // Two name servers may list the same in different order.
        data.queue_datas.sort_by(|left, right| left.broker_name.cmp(&right.broker_name));
        data.broker_datas.sort_by(|left, right| left.broker_name.cmp(&right.broker_name));
        let mappings = data.topic_queue_mapping_by_broker.as_ref().filter(|mappings| !mappings.is_empty());
        let logical = mappings.map(|mappings| logical_queues(topic, mappings.values())).unwrap_or_default();
        let (publish, subscribe) = if logical.is_empty() {
            (publish_queues(topic, &data), subscribe_queues(topic, &data))
        } else {
            let mut queues: Vec<MessageQueue> = logical.keys().cloned().collect();
            queues.sort_by(|left, right| (left.queue_id, left).cmp(&(right.queue_id, right)));
            let publish = if has_order(&data) { publish_queues(topic, &data) } else { queues.clone() };
            (publish, queues)
        };
        Self { publish: PublishInfo::new(publish), subscribe, logical, data }
    }

    /// Name of the broker that has the queue: of a static topic's queue the one that hosts it now.
    pub(crate) fn real_broker<'a>(&'a self, queue: &'a MessageQueue) -> &'a str {
        self.logical.get(queue).map_or(&queue.broker_name, |broker| broker)
    }

    /// Whether all queues that can be written are on one broker, so that a retry has nowhere else to go.
    pub(crate) fn has_one_broker(&self) -> bool {
        let mut brokers = self.publish.queues.iter().map(|queue| self.real_broker(queue));
        brokers.next().is_none_or(|first| brokers.all(|broker| broker == first))
    }

    /// Addresses of a broker group by id.
    pub(crate) fn addresses(&self, broker: &str) -> Option<&BTreeMap<i64, String>> {
        let mut brokers = self.data.broker_datas.iter();
        brokers.find(|data| data.broker_name == broker).map(|data| &data.broker_addrs)
    }

    /// Whether clients would notice a difference.
    pub(crate) fn is_same(&self, other: &TopicRouteData) -> bool {
        let addresses = |route: &TopicRouteData| -> BTreeMap<String, BTreeMap<i64, String>> {
            let brokers = route.broker_datas.iter();
            brokers.map(|broker| (broker.broker_name.clone(), broker.broker_addrs.clone())).collect()
        };
        let queues = |route: &TopicRouteData| -> Vec<_> {
            let mut queues = route.queue_datas.clone();
            queues.sort_by(|left, right| left.broker_name.cmp(&right.broker_name));
            queues
        };
        let (mine, other_route) = (&self.data, other);
        addresses(mine) == addresses(other_route)
            && queues(mine) == queues(other_route)
            && mine.order_topic_conf == other_route.order_topic_conf
            && mine.topic_queue_mapping_by_broker == other_route.topic_queue_mapping_by_broker
    }
}

fn has_order(data: &TopicRouteData) -> bool {
    data.order_topic_conf.as_ref().is_some_and(|conf| !conf.is_empty())
}

fn publish_queues(topic: &str, data: &TopicRouteData) -> Vec<MessageQueue> {
    let queues_of = |broker: &str, count: i32| {
        let broker = broker.to_owned();
        (0..count.max(0)).map(move |id| MessageQueue::new(topic, broker.clone(), id))
    };
    if let Some(conf) = data.order_topic_conf.as_ref().filter(|conf| !conf.is_empty()) {
        let brokers = conf.split(';').filter_map(|item| item.split_once(':'));
        let counted = brokers.filter_map(|(broker, count)| Some((broker, count.trim().parse().ok()?)));
        return counted.flat_map(|(broker, count)| queues_of(broker, count)).collect();
    }
    let has_master = |broker: &str| {
        let mut brokers = data.broker_datas.iter().filter(|data| data.broker_name == broker);
        brokers.any(|data| data.broker_addrs.contains_key(&MASTER_ID))
    };
    data.queue_datas
        .iter()
        .filter(|queues| queues.perm & PERM_WRITE != 0 && has_master(&queues.broker_name))
        .flat_map(|queues| queues_of(&queues.broker_name, queues.write_queue_nums))
        .collect()
}

fn subscribe_queues(topic: &str, data: &TopicRouteData) -> Vec<MessageQueue> {
    let readable = data.queue_datas.iter().filter(|queues| queues.perm & PERM_READ != 0);
    readable
        .flat_map(|queues| {
            let ids = 0..queues.read_queue_nums.max(0);
            ids.map(|id| MessageQueue::new(topic, queues.broker_name.clone(), id))
        })
        .collect()
}

/// The queues of a static topic with the brokers that host them.
fn logical_queues<'a>(
    topic: &str,
    mappings: impl Iterator<Item = &'a TopicQueueMappingInfo>,
) -> HashMap<MessageQueue, String> {
    let mut scopes: BTreeMap<&str, Vec<&TopicQueueMappingInfo>> = BTreeMap::new();
    for mapping in mappings {
        scopes.entry(&mapping.scope).or_default().push(mapping);
    }
    let mut queues = HashMap::new();
    for (scope, mut infos) in scopes {
        // The newest epoch counts; of two equal ones the later.
        infos.sort_by_key(|info| info.epoch);
        let total = infos.iter().map(|info| info.total_queues).max().unwrap_or(0);
        let name = if scope == SCOPE_GLOBAL {
            format!("{LOGICAL_PREFIX}global__")
        } else {
            format!("{LOGICAL_PREFIX}{scope}")
        };
        for id in 0..total {
            let host = infos.iter().rev().find(|info| info.curr_id_map.contains_key(&id));
            let broker = host.map_or(LOGICAL_NONE, |info| &info.bname);
            queues.insert(MessageQueue::new(topic, name.clone(), id), broker.to_owned());
        }
    }
    queues
}

/// Whether a queue is one of a static topic.
pub(crate) fn is_logical(broker: &str) -> bool {
    broker.starts_with(LOGICAL_PREFIX)
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::body::{BrokerData, QueueData};

    use super::*;

    fn broker(name: &str, id: i64) -> BrokerData {
        BrokerData {
            broker_name: name.to_owned(),
            broker_addrs: BTreeMap::from([(id, format!("{name}:10911"))]),
            ..BrokerData::default()
        }
    }

    fn queues(name: &str, perm: i32, read: i32, write: i32) -> QueueData {
        QueueData {
            broker_name: name.to_owned(),
            perm,
            read_queue_nums: read,
            write_queue_nums: write,
            topic_sys_flag: 0,
        }
    }

    fn names(queues: &[MessageQueue]) -> Vec<String> {
        queues.iter().map(|queue| format!("{}{}", queue.broker_name, queue.queue_id)).collect()
    }

    fn route(data: TopicRouteData) -> Route {
        Route::new("T", data)
    }

    #[test]
    fn producers_need_a_master_and_the_write_bit_consumers_only_the_read_bit() {
        let data = TopicRouteData {
            broker_datas: vec![broker("b", 0), broker("a", 0), broker("c", 1)],
            queue_datas: vec![
                queues("b", 6, 1, 2),
                queues("a", 4, 2, 2),
                queues("c", 6, 1, 1),
                queues("d", 2, 1, 1),
            ],
            ..TopicRouteData::default()
        };
        let route = route(data);
        assert_eq!(names(&route.publish.queues), ["b0", "b1"]);
        assert_eq!(names(&route.subscribe), ["a0", "a1", "b0", "c0"]);
        assert!(route.has_one_broker());
    }

    #[test]
    fn ordered_topics_have_the_queues_of_their_configuration() {
        let data = TopicRouteData {
            order_topic_conf: Some("b:1;a:2".to_owned()),
            queue_datas: vec![queues("a", 6, 8, 8)],
            ..TopicRouteData::default()
        };
        assert_eq!(names(&route(data).publish.queues), ["b0", "a0", "a1"]);
    }

    #[test]
    fn a_round_visits_every_queue() {
        let info = PublishInfo::new((0..3).map(|id| MessageQueue::new("T", "a", id)).collect());
        let mut round: Vec<i32> = (0..3).map(|_| info.next().unwrap().queue_id).collect();
        round.sort_unstable();
        assert_eq!(round, [0, 1, 2]);
        assert_eq!(info.next_matching(|queue| queue.queue_id == 1).unwrap().queue_id, 1);
        assert!(info.next_matching(|_| false).is_none());
        assert!(PublishInfo::new(Vec::new()).next().is_none());
    }

    fn mapping(broker: &str, scope: &str, epoch: i64, ids: &[(i32, i32)]) -> (String, TopicQueueMappingInfo) {
        let info = TopicQueueMappingInfo {
            bname: broker.to_owned(),
            scope: scope.to_owned(),
            epoch,
            total_queues: 4,
            curr_id_map: ids.iter().copied().collect(),
            ..TopicQueueMappingInfo::default()
        };
        (broker.to_owned(), info)
    }

    fn hosts(route: &Route, broker: &str) -> Vec<String> {
        (0..4).map(|id| route.real_broker(&MessageQueue::new("T", broker, id)).to_owned()).collect()
    }

    #[test]
    fn logical_queues_of_the_spec_25_11() {
        let mapped = |scope: &str| TopicRouteData {
            topic_queue_mapping_by_broker: Some(BTreeMap::from([
                mapping("broker-a", SCOPE_GLOBAL, 2, &[(0, 0), (1, 1)]),
                mapping("broker-b", scope, 3, &[(1, 0), (2, 1)]),
            ])),
            ..TopicRouteData::default()
        };
        let one = route(mapped(SCOPE_GLOBAL));
        assert_eq!(hosts(&one, "__syslo__global__"), ["broker-a", "broker-b", "broker-b", LOGICAL_NONE]);
        assert_eq!(one.publish.queues.len(), 4);
        let two = route(mapped("us"));
        assert_eq!(hosts(&two, "__syslo__global__"), ["broker-a", "broker-a", LOGICAL_NONE, LOGICAL_NONE]);
        assert_eq!(hosts(&two, "__syslo__us"), [LOGICAL_NONE, "broker-b", "broker-b", LOGICAL_NONE]);
        assert_eq!(
            two.subscribe.iter().map(|queue| queue.queue_id).collect::<Vec<_>>(),
            [0, 0, 1, 1, 2, 2, 3, 3]
        );
    }
}
