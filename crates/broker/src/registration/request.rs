//! What a broker sends to a name server.

use std::collections::BTreeMap;

use ferromq_protocol::body::{
    DataVersion, KVTable, QueueData, RegisterBrokerBody, TopicConfig, TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::{json, message};

use crate::config::BrokerConfig;

const PERM_READ_WRITE: u32 = 6;

/// How many of a broker's topics a registration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All.
    Complete,
    /// A part of all, the others follow.
    Portion,
    /// Those that have changed.
    Changes,
}

/// REGISTER_BROKER.
///
/// A name server of ours is told how much it is, so that it takes a complete registration whole and changes never for the
/// first registration; RocketMQ ignores that field and guesses.
pub(super) fn register_broker(
    config: &BrokerConfig,
    topics: &[TopicConfig],
    data_version: DataVersion,
    extent: Extent,
) -> RemotingCommand {
    let topic_config_table: BTreeMap<_, _> =
        topics.iter().map(|topic| (topic.topic_name.clone(), as_registered(config, topic))).collect();
    let body = RegisterBrokerBody {
        topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper {
            data_version,
            topic_config_table,
            ..Default::default()
        },
        ..Default::default()
    };
    let body = body.encode();
    with_identity(request::REGISTER_BROKER, config)
        .with("haServerAddr", config.ha_server_address())
        .with("enableActingMaster", config.enable_slave_acting_master)
        .with_some(
            "heartbeatTimeoutMillis",
            config.enable_slave_acting_master.then_some(config.broker_not_active_timeout_millis),
        )
        .with("compressed", false)
        .with("bodyCrc32", message::crc32(&body))
        .with_some(
            "ferromqComplete",
            match extent {
                Extent::Complete => Some(true),
                Extent::Portion => None,
                Extent::Changes => Some(false),
            },
        )
        .with_body(body)
}

/// QUERY_DATA_VERSION.
pub(super) fn query_data_version(config: &BrokerConfig, version: &DataVersion) -> RemotingCommand {
    with_identity(request::QUERY_DATA_VERSION, config).with_body(json::to_vec(version))
}

/// Whether the answer to [`query_data_version`] says that the name server has something else.
pub(super) fn is_changed(answer: &RemotingCommand, version: &DataVersion) -> bool {
    answer.boolean("changed") || json::from_slice::<DataVersion>(&answer.body).ok().as_ref() != Some(version)
}

/// REGISTER_TOPIC_IN_NAMESRV.
pub(super) fn register_topic(config: &BrokerConfig, topic: &TopicConfig) -> RemotingCommand {
    let topic = as_registered(config, topic);
    let queue_data = QueueData {
        broker_name: config.broker_name.clone(),
        perm: topic.perm,
        read_queue_nums: topic.read_queue_nums,
        write_queue_nums: topic.write_queue_nums,
        topic_sys_flag: topic.topic_sys_flag,
    };
    let route = TopicRouteData { queue_datas: vec![queue_data], ..Default::default() };
    RemotingCommand::request(request::REGISTER_TOPIC_IN_NAMESRV)
        .with("topic", topic.topic_name)
        .with_body(json::to_vec(&route))
}

/// UNREGISTER_BROKER.
pub(super) fn unregister_broker(config: &BrokerConfig) -> RemotingCommand {
    with_identity(request::UNREGISTER_BROKER, config)
}

/// The topics that the answer to a registration calls ordered.
pub(super) fn ordered_topics(answer: &RemotingCommand) -> Vec<String> {
    let table = json::from_slice::<KVTable>(&answer.body).unwrap_or_default();
    table.table.into_keys().collect()
}

fn with_identity(code: i32, config: &BrokerConfig) -> RemotingCommand {
    RemotingCommand::request(code)
        .with("brokerName", &config.broker_name)
        .with("brokerAddr", config.broker_address())
        .with("clusterName", &config.broker_cluster_name)
        .with("brokerId", config.broker_id)
}

/// A broker that does not read or write says so of each topic, and nothing about its order and attributes.
fn as_registered(config: &BrokerConfig, topic: &TopicConfig) -> TopicConfig {
    if config.broker_permission & PERM_READ_WRITE == PERM_READ_WRITE {
        return topic.clone();
    }
    TopicConfig {
        topic_name: topic.topic_name.clone(),
        read_queue_nums: topic.read_queue_nums,
        write_queue_nums: topic.write_queue_nums,
        perm: topic.perm & config.broker_permission as i32,
        topic_sys_flag: topic.topic_sys_flag,
        ..TopicConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> BrokerConfig {
        BrokerConfig {
            broker_name: "broker-a".into(),
            broker_ip1: "10.0.0.1".into(),
            broker_ip2: "10.0.0.2".into(),
            ha_listen_port: 10912,
            ..BrokerConfig::default()
        }
    }

    /// `docs/spec/03-broker.md` 20.6, the registration body.
    #[test]
    fn a_registration() {
        let topic = TopicConfig {
            attributes: BTreeMap::from([("message.type".to_owned(), "DELAY".to_owned())]),
            ..TopicConfig::new("TopicA", 4)
        };
        let version = DataVersion { counter: 7, state_version: 0, timestamp: 1_700_000_000_000 };
        let command = register_broker(&config(), &[topic], version, Extent::Complete);
        let body = r#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1700000000000},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicConfigTable":{"TopicA":{"attributes":{"message.type":"DELAY"},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"TopicA","topicSysFlag":0,"writeQueueNums":4}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}"#;
        assert_eq!(str::from_utf8(&command.body), Ok(body));
        for (field, value) in [
            ("brokerName", "broker-a"),
            ("brokerAddr", "10.0.0.1:10911"),
            ("clusterName", "DefaultCluster"),
            ("haServerAddr", "10.0.0.2:10912"),
            ("brokerId", "0"),
            ("compressed", "false"),
            ("enableActingMaster", "false"),
            ("ferromqComplete", "true"),
            ("bodyCrc32", &message::crc32(body.as_bytes()).to_string()),
        ] {
            assert_eq!(command.field(field), Some(value), "{field}");
        }
        assert_eq!(command.field("heartbeatTimeoutMillis"), None);
    }

    #[test]
    fn a_drained_broker_takes_writing_from_its_topics() {
        let topic = TopicConfig { order: true, ..TopicConfig::new("T", 3) };
        let registered = as_registered(&BrokerConfig { broker_permission: 4, ..config() }, &topic);
        assert_eq!(registered, TopicConfig { perm: 4, ..TopicConfig::new("T", 3) });
        assert_eq!(as_registered(&config(), &topic), topic);
    }

    #[test]
    fn versions_are_compared_as_a_whole() {
        let version = DataVersion { counter: 1, ..DataVersion::default() };
        let answer = |changed: bool| {
            RemotingCommand::success().with("changed", changed).with_body(json::to_vec(&version))
        };
        assert!(!is_changed(&answer(false), &version));
        assert!(is_changed(&answer(true), &version));
        assert!(is_changed(&answer(false), &DataVersion::default()));
        assert!(is_changed(&RemotingCommand::success(), &version));
    }
}
