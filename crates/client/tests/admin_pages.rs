//! Tables of brokers that hand them out in pages, and of those that do not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ferromq_client::Error;
use ferromq_protocol::body::{
    DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper, TopicConfig, TopicConfigSerializeWrapper,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use support::fake::{self, FakeServer, Reply};

/// Entries that the broker gives at once, of all that it has.
const PAGE: usize = 3;
const ALL: usize = 8;

fn version(counter: i64) -> DataVersion {
    DataVersion { counter, ..DataVersion::default() }
}

/// The part of `0..ALL` that a request wants: from its first on, or from the start if it knows another version.
fn wanted(command: &RemotingCommand, first: &'static str, version: DataVersion) -> std::ops::Range<usize> {
    let is_same = command.field("dataVersion") == Some(&json::to_string(&version));
    let first = if is_same { command.number(first).unwrap() } else { 0 };
    first..ALL.min(first + PAGE)
}

fn topics(numbers: std::ops::Range<usize>, data_version: DataVersion) -> Vec<u8> {
    let configs = numbers.map(|number| TopicConfig::new(format!("T{number}"), 1));
    let topic_config_table = configs.map(|config| (config.topic_name.clone(), config)).collect();
    json::to_vec(&TopicConfigSerializeWrapper { data_version, topic_config_table })
}

fn groups(numbers: std::ops::Range<usize>, data_version: DataVersion) -> Vec<u8> {
    let configs = numbers.map(|number| SubscriptionGroupConfig::new(format!("g{number}")));
    let subscription_group_table = configs.map(|config| (config.group_name.clone(), config)).collect();
    let wrapper = SubscriptionGroupWrapper {
        data_version,
        subscription_group_table,
        ..SubscriptionGroupWrapper::default()
    };
    json::to_vec(&wrapper)
}

/// A broker whose table has this version at each request.
fn paging_broker(now: impl Fn() -> DataVersion + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(move |command| {
        let version = now();
        let (total, body) = match command.code {
            request::GET_ALL_TOPIC_CONFIG => {
                ("totalTopicNum", topics(wanted(command, "topicSeq", version), version))
            }
            _ => ("totalGroupNum", groups(wanted(command, "groupSeq", version), version)),
        };
        Reply::Answer(RemotingCommand::success().with(total, ALL).with_body(body))
    })
}

#[tokio::test]
async fn pages_make_a_table() {
    let name_server = fake::name_server(|| fake::route(&[]));
    let mut broker = paging_broker(|| version(1));
    let client = fake::client(&name_server).start().unwrap();
    let admin = client.admin();
    let table = admin.topic_configs(&broker.address).await.unwrap();
    assert_eq!((table.topic_config_table.len(), table.data_version), (ALL, version(1)));
    assert_eq!(broker.count(request::GET_ALL_TOPIC_CONFIG), 3);
    let table = admin.group_configs(&broker.address).await.unwrap();
    assert_eq!((table.subscription_group_table.len(), table.data_version), (ALL, version(1)));
    assert_eq!(broker.count(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG), 3);
    client.shutdown().await;
}

#[tokio::test]
async fn a_table_that_changes_is_read_anew() {
    let name_server = fake::name_server(|| fake::route(&[]));
    let asked = Arc::new(AtomicI64::new(0));
    let count = asked.clone();
    // Changes once, at the second request.
    let mut broker = paging_broker(move || version(i64::from(count.fetch_add(1, Ordering::SeqCst) > 0)));
    let client = fake::client(&name_server).start().unwrap();
    let table = client.admin().topic_configs(&broker.address).await.unwrap();
    assert_eq!((table.topic_config_table.len(), table.data_version), (ALL, version(1)));
    assert_eq!(broker.count(request::GET_ALL_TOPIC_CONFIG), 2 + 3);

    let restless = paging_broker(move || version(asked.fetch_add(1, Ordering::SeqCst)));
    let error = client.admin().topic_configs(&restless.address).await.unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
    assert!(error.to_string().contains("changed"), "{error}");
    client.shutdown().await;
}

/// As up to RocketMQ 5.3.3: no total, whatever page is asked for.
#[tokio::test]
async fn a_broker_that_knows_no_pages_gives_everything() {
    let name_server = fake::name_server(|| fake::route(&[]));
    let mut broker = FakeServer::start(|command| {
        Reply::Answer(RemotingCommand::success().with_body(match command.code {
            request::GET_ALL_TOPIC_CONFIG => topics(0..ALL, version(1)),
            _ => groups(0..ALL, version(1)),
        }))
    });
    let client = fake::client(&name_server).start().unwrap();
    let admin = client.admin();
    assert_eq!(admin.topic_configs(&broker.address).await.unwrap().topic_config_table.len(), ALL);
    assert_eq!(admin.group_configs(&broker.address).await.unwrap().subscription_group_table.len(), ALL);
    assert_eq!(broker.count(request::GET_ALL_TOPIC_CONFIG), 1);
    client.shutdown().await;
}
