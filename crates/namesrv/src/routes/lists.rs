//! Lists of topics, brokers and clusters (`docs/spec/06-namesrv.md` 8).

use std::collections::BTreeSet;

use ferromq_protocol::body::{BrokerMemberGroup, ClusterInfo, TopicList};

use super::{Tables, TopicQueues};

/// Bit of a topic's system flag: a unit topic.
const FLAG_UNIT: i32 = 1;
/// Bit of a topic's system flag: there are unit subscriptions.
const FLAG_UNIT_SUB: i32 = 2;

impl Tables {
    /// All clusters with all brokers.
    pub(crate) fn cluster_info(&self) -> ClusterInfo {
        ClusterInfo {
            broker_addr_table: self.broker_addr_table.clone(),
            cluster_addr_table: self.cluster_addr_table.clone(),
        }
    }

    /// The brokers of one set; none if it is unknown. The cluster is not looked at.
    pub(crate) fn broker_member_group(&self, cluster: &str, broker_name: &str) -> BrokerMemberGroup {
        let data = self.broker_addr_table.get(broker_name);
        BrokerMemberGroup {
            broker_addrs: data.map(|data| data.broker_addrs.clone()).unwrap_or_default(),
            broker_name: broker_name.to_owned(),
            cluster: cluster.to_owned(),
        }
    }

    /// All topics.
    pub(crate) fn all_topics(&self) -> TopicList {
        self.topics_where(|_| true)
    }

    /// Topics that some broker of the cluster has.
    pub(crate) fn topics_of_cluster(&self, cluster_name: &str) -> TopicList {
        let Some(broker_names) = self.cluster_addr_table.get(cluster_name) else {
            return TopicList::default();
        };
        self.topics_where(|queues| queues.0.iter().any(|queue| broker_names.contains(&queue.broker_name)))
    }

    /// Names that are topics on every broker, as RocketMQ means it: those of clusters and brokers.
    pub(crate) fn system_topics(&self) -> TopicList {
        let clusters = self.cluster_addr_table.iter();
        let names: BTreeSet<_> =
            clusters.flat_map(|(cluster, brokers)| std::iter::once(cluster).chain(brokers)).collect();
        let broker_addr = self.broker_addr_table.values().find_map(|data| data.broker_addrs.values().next());
        TopicList { broker_addr: broker_addr.cloned(), topic_list: names.into_iter().cloned().collect() }
    }

    /// Unit topics.
    pub(crate) fn unit_topics(&self) -> TopicList {
        self.topics_with_flags(FLAG_UNIT, 0)
    }

    /// Topics with unit subscriptions.
    pub(crate) fn unit_sub_topics(&self) -> TopicList {
        self.topics_with_flags(FLAG_UNIT_SUB, 0)
    }

    /// Topics with unit subscriptions that are no unit topics.
    pub(crate) fn unit_sub_ununit_topics(&self) -> TopicList {
        self.topics_with_flags(FLAG_UNIT_SUB, FLAG_UNIT)
    }

    fn topics_with_flags(&self, set: i32, clear: i32) -> TopicList {
        self.topics_where(|queues| {
            queues.0.first().is_some_and(|queue| queue.topic_sys_flag & (set | clear) == set)
        })
    }

    fn topics_where(&self, is_wanted: impl Fn(&TopicQueues) -> bool) -> TopicList {
        let topics = self.topic_queue_table.iter().filter(|(_, queues)| is_wanted(queues));
        TopicList { broker_addr: None, topic_list: topics.map(|(topic, _)| topic.clone()).collect() }
    }
}
