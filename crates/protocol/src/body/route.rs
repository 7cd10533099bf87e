//! Where topics and brokers are, as name servers tell it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::TopicQueueMappingInfo;

/// One broker set and the addresses of its members: in codes 105 and 106.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerData {
    /// Broker id to `address:port`; 0 is the master.
    pub broker_addrs: BTreeMap<i64, String>,
    /// Name of the set.
    pub broker_name: String,
    /// The cluster.
    pub cluster: String,
    /// Whether a slave may stand in for a dead master.
    pub enable_acting_master: bool,
    /// Zone, if brokers are spread over zones.
    pub zone_name: Option<String>,
}

/// The queues of a topic on one broker set: in code 105, and the part that code 217 uses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueData {
    /// Name of the broker set.
    pub broker_name: String,
    /// As in [`super::TopicConfig`].
    pub perm: i32,
    /// As in [`super::TopicConfig`].
    pub read_queue_nums: i32,
    /// As in [`super::TopicConfig`].
    pub topic_sys_flag: i32,
    /// As in [`super::TopicConfig`].
    pub write_queue_nums: i32,
}

/// The route of a topic: answer to code 105 (legacy form to old clients, standard form to new ones), body of code 217.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicRouteData {
    /// The broker sets that have the topic.
    pub broker_datas: Vec<BrokerData>,
    /// Obsolete filter servers by broker address; empty today.
    pub filter_server_table: BTreeMap<String, Vec<String>>,
    /// `broker:queues;broker:queues` of an order topic.
    pub order_topic_conf: Option<String>,
    /// Its queues on each of them.
    pub queue_datas: Vec<QueueData>,
    /// Of a static topic: by broker name.
    pub topic_queue_mapping_by_broker: Option<BTreeMap<String, TopicQueueMappingInfo>>,
}

/// All clusters and brokers: answer to code 106, always in legacy form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInfo {
    /// The broker sets by name.
    pub broker_addr_table: BTreeMap<String, BrokerData>,
    /// Names of the broker sets of each cluster.
    pub cluster_addr_table: BTreeMap<String, BTreeSet<String>>,
}

/// The members of one broker set: in codes 901 and 1002.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerMemberGroup {
    /// Broker id to `address:port`.
    pub broker_addrs: BTreeMap<i64, String>,
    /// Name of the set.
    pub broker_name: String,
    /// The cluster.
    pub cluster: String,
}

/// Answer to code 901.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GetBrokerMemberGroupResponseBody {
    /// The members, if known.
    pub broker_member_group: Option<BrokerMemberGroup>,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;
    use crate::json;

    const BROKERDATA: &str = r#"{"brokerAddrs":{0:"1.1.1.1:10911",1:"1.1.1.2:10911"},"brokerName":"b0","cluster":"c","enableActingMaster":true,"zoneName":"z"}"#;
    const QUEUEDATA: &str =
        r#"{"brokerName":"b0","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}"#;

    fn broker_data() -> BrokerData {
        BrokerData {
            broker_addrs: BTreeMap::from([(0, "1.1.1.1:10911".to_owned()), (1, "1.1.1.2:10911".to_owned())]),
            broker_name: "b0".to_owned(),
            cluster: "c".to_owned(),
            enable_acting_master: true,
            zone_name: Some("z".to_owned()),
        }
    }

    fn queue_data() -> QueueData {
        QueueData {
            broker_name: "b0".to_owned(),
            perm: 6,
            read_queue_nums: 8,
            topic_sys_flag: 0,
            write_queue_nums: 8,
        }
    }

    fn route() -> TopicRouteData {
        TopicRouteData {
            broker_datas: vec![BrokerData {
                broker_addrs: BTreeMap::from([(0, "1.1.1.1:10911".to_owned())]),
                enable_acting_master: false,
                zone_name: None,
                ..broker_data()
            }],
            filter_server_table: BTreeMap::from([("1.1.1.1:10911".to_owned(), Vec::new())]),
            order_topic_conf: Some("b0:8".to_owned()),
            queue_datas: vec![queue_data()],
            topic_queue_mapping_by_broker: Some(BTreeMap::from([("b0".to_owned(), mapping_info())])),
        }
    }

    #[test]
    fn parts_of_a_route() {
        assert_sample(&broker_data(), BROKERDATA);
        assert_sample(&queue_data(), QUEUEDATA);
        let both_keys: BrokerData = json::from_slice(br#"{"brokerAddrs":{"0":"a",1:"b"}}"#).unwrap();
        assert_eq!(both_keys.broker_addrs, BTreeMap::from([(0, "a".to_owned()), (1, "b".to_owned())]));
    }

    #[test]
    fn route_for_old_clients() {
        assert_sample(
            &route(),
            &format!(
                r#"{{"brokerDatas":[{{"brokerAddrs":{{0:"1.1.1.1:10911"}},"brokerName":"b0","cluster":"c","enableActingMaster":false}}],"filterServerTable":{{"1.1.1.1:10911":[]}},"orderTopicConf":"b0:8","queueDatas":[{QUEUEDATA}],"topicQueueMappingByBroker":{{"b0":{MAPPINGINFO}}}}}"#
            ),
        );
    }

    #[test]
    fn route_in_standard_json() {
        let text = r#"{"brokerDatas":[{"brokerAddrs":{"0":"1.1.1.1:10911"},"brokerName":"b0","cluster":"c","enableActingMaster":false}],"filterServerTable":{"1.1.1.1:10911":[]},"orderTopicConf":"b0:8","queueDatas":[{"brokerName":"b0","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}],"topicQueueMappingByBroker":{"b0":{"bname":"b0","currIdMap":{"0":0,"1":1},"dirty":false,"epoch":123,"scope":"__global__","topic":"T","totalQueues":4}}}"#;
        assert_eq!(json::to_vec_standard(&route()), text.as_bytes());
        assert_eq!(json::from_slice(text.as_bytes()), Ok(route()));
        assert!(serde_json::from_str::<serde_json::Value>(text).is_ok());
    }

    #[test]
    fn clusters_and_members() {
        let clusters = ClusterInfo {
            broker_addr_table: BTreeMap::from([("b0".to_owned(), broker_data())]),
            cluster_addr_table: BTreeMap::from([("c".to_owned(), BTreeSet::from(["b0".to_owned()]))]),
        };
        assert_sample(
            &clusters,
            &format!(r#"{{"brokerAddrTable":{{"b0":{BROKERDATA}}},"clusterAddrTable":{{"c":["b0"]}}}}"#),
        );
        let members = GetBrokerMemberGroupResponseBody {
            broker_member_group: Some(BrokerMemberGroup {
                broker_addrs: BTreeMap::from([(0, "1.1.1.1:10911".to_owned())]),
                broker_name: "b0".to_owned(),
                cluster: "c".to_owned(),
            }),
        };
        assert_sample(
            &members,
            r#"{"brokerMemberGroup":{"brokerAddrs":{0:"1.1.1.1:10911"},"brokerName":"b0","cluster":"c"}}"#,
        );
        assert_sample(&GetBrokerMemberGroupResponseBody::default(), "{}");
    }
}
