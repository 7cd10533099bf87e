//! A name server as its peers see it, where the recordings do not reach.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ferromq_settings::Settings as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_namesrv::{Namesrv, NamesrvConfig};
use ferromq_protocol::body::{
    KVTable, RegisterBrokerBody, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicList,
    TopicRouteData,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_protocol::json;
use ferromq_remoting::{Client, InvokeError, Limits, NoRequests};

const TIMEOUT: Duration = Duration::from_secs(10);

fn config(folder: &Path) -> NamesrvConfig {
    NamesrvConfig {
        bind_address: "127.0.0.1".to_owned(),
        listen_port: 0,
        kv_config_path: folder.join("kvConfig.json").to_string_lossy().into_owned(),
        config_store_path: folder.join("namesrv.conf").to_string_lossy().into_owned(),
        ..NamesrvConfig::default()
    }
}

struct Peer {
    client: Client,
    address: String,
}

impl Peer {
    fn of(namesrv: &Namesrv) -> Self {
        Self { client: Client::new(), address: namesrv.address().to_string() }
    }

    async fn call(&self, command: RemotingCommand) -> RemotingCommand {
        self.client.invoke(&self.address, command, TIMEOUT).await.unwrap()
    }

    async fn topics(&self) -> Vec<String> {
        let answer = self.call(RemotingCommand::request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).await;
        json::from_slice::<TopicList>(&answer.body).unwrap().topic_list
    }
}

fn registration(topics: usize) -> RegisterBrokerBody {
    let topics = (0..topics).map(|number| format!("Topic{number}"));
    RegisterBrokerBody {
        topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper {
            topic_config_table: topics.map(|topic| (topic.clone(), TopicConfig::new(topic, 4))).collect(),
            ..Default::default()
        },
        ..RegisterBrokerBody::default()
    }
}

fn register() -> RemotingCommand {
    RemotingCommand::request(request::REGISTER_BROKER)
        .with("clusterName", "C")
        .with("brokerName", "b")
        .with("brokerAddr", "127.0.0.1:1")
        .with("brokerId", 0)
        .with("haServerAddr", "127.0.0.1:2")
}

fn route(topic: &str) -> RemotingCommand {
    RemotingCommand::request(request::GET_ROUTEINFO_BY_TOPIC).with("topic", topic)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_topics_are_taken_plain_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = Namesrv::start(config(folder.path())).unwrap();
    let peer = Peer::of(&namesrv);
    let body = registration(5000);
    let answer = peer.call(register().with_body(body.encode())).await;
    assert_eq!((answer.code, answer.remark), (response::SUCCESS, None));
    assert_eq!(peer.topics().await.len(), 5000);

    let more = registration(6000);
    let answer = peer.call(register().with("compressed", true).with_body(more.encode_compressed())).await;
    assert_eq!(answer.code, response::SUCCESS);
    assert_eq!(peer.topics().await.len(), 6000);
    let answer = peer.call(route("Topic5999")).await;
    let route: TopicRouteData = json::from_slice(&answer.body).unwrap();
    assert_eq!(route.broker_datas[0].broker_addrs[&0], "127.0.0.1:1");
    namesrv.shutdown().await;
}

#[tokio::test]
async fn a_broker_leaves_with_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = Namesrv::start(config(folder.path())).unwrap();
    let (broker, peer) = (Peer::of(&namesrv), Peer::of(&namesrv));
    broker.call(register().with_body(registration(2).encode())).await;
    assert_eq!(peer.topics().await.len(), 2);
    broker.client.close().await;
    while !peer.topics().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    namesrv.shutdown().await;
}

#[tokio::test]
async fn complete_registrations_may_be_small() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = Namesrv::start(config(folder.path())).unwrap();
    let peer = Peer::of(&namesrv);
    let one = registration(1).encode();
    let answer = peer.call(register().with_body(one.clone())).await;
    assert_eq!(answer.remark.as_deref(), Some("register broker failed"));
    let answer = peer.call(register().with("ferromqComplete", true).with_body(one)).await;
    assert_eq!(answer.code, response::SUCCESS);
    assert_eq!(peer.topics().await, ["Topic0"]);
    namesrv.shutdown().await;
}

#[tokio::test]
async fn refusals_name_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = Namesrv::start(config(folder.path())).unwrap();
    let peer = Peer::of(&namesrv);
    let nameless = RemotingCommand::request(request::REGISTER_BROKER).with("brokerName", "b");
    let answer = peer.call(nameless).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    assert_eq!(answer.remark.as_deref(), Some("REGISTER_BROKER needs header field `brokerId`"));
    let broken = register().with_body("{oops");
    let answer = peer.call(broken).await;
    assert!(answer.remark.unwrap().starts_with("the registration is not readable: "));
    assert!(peer.topics().await.is_empty());
    namesrv.shutdown().await;
}

#[tokio::test]
async fn binary_headers_are_understood() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = Namesrv::start(config(folder.path())).unwrap();
    let client = Client::with_service(Arc::new(NoRequests), HeaderEncoding::Binary, Limits::default());
    let address = namesrv.address().to_string();
    let put = RemotingCommand::request(request::PUT_KV_CONFIG)
        .with("namespace", "n")
        .with("key", "k")
        .with("value", "v");
    assert_eq!(client.invoke(&address, put, TIMEOUT).await.unwrap().code, response::SUCCESS);
    let get = RemotingCommand::request(request::GET_KV_CONFIG).with("namespace", "n").with("key", "k");
    assert_eq!(client.invoke(&address, get, TIMEOUT).await.unwrap().field("value"), Some("v"));
    namesrv.shutdown().await;
}

#[tokio::test]
async fn key_values_and_settings_are_on_the_disk_when_they_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = Namesrv::start(config(folder.path())).unwrap();
    let peer = Peer::of(&namesrv);
    let put = |key: usize| {
        let put = RemotingCommand::request(request::PUT_KV_CONFIG).with("namespace", "ORDER_TOPIC_CONFIG");
        put.with("key", format!("T{key}")).with("value", "b:4")
    };
    let (one, two, three) = tokio::join!(peer.call(put(1)), peer.call(put(2)), peer.call(put(3)));
    assert!([one, two, three].iter().all(|answer| answer.code == response::SUCCESS));
    let update =
        RemotingCommand::request(request::UPDATE_NAMESRV_CONFIG).with_body("orderMessageEnable=true\n");
    assert_eq!(peer.call(update).await.code, response::SUCCESS);
    // Killed: nothing is written at the end.
    drop(namesrv);

    let mut again = config(folder.path());
    for line in std::fs::read_to_string(&again.config_store_path).unwrap().lines() {
        let (key, value) = line.split_once('=').unwrap();
        if key == "orderMessageEnable" {
            again.set(key, value).unwrap();
        }
    }
    let namesrv = Namesrv::start(again).unwrap();
    let peer = Peer::of(&namesrv);
    let list =
        RemotingCommand::request(request::GET_KVLIST_BY_NAMESPACE).with("namespace", "ORDER_TOPIC_CONFIG");
    let table: KVTable = json::from_slice(&peer.call(list).await.body).unwrap();
    assert_eq!(table.table.keys().collect::<Vec<_>>(), ["T1", "T2", "T3"]);
    peer.call(register().with_body(registration(2).encode())).await;
    let put = RemotingCommand::request(request::PUT_KV_CONFIG).with("namespace", "ORDER_TOPIC_CONFIG");
    peer.call(put.with("key", "Topic1").with("value", "b:4")).await;
    let answer = peer.call(route("Topic1")).await;
    let route: TopicRouteData = json::from_slice(&answer.body).unwrap();
    assert_eq!(route.order_topic_conf.as_deref(), Some("b:4"));
    namesrv.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_saved_is_not_answered_with_success() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    std::fs::write(folder.path().join("file"), "").unwrap();
    config.kv_config_path = folder.path().join("file/kvConfig.json").to_string_lossy().into_owned();
    let namesrv = Namesrv::start(config).unwrap();
    let peer = Peer::of(&namesrv);
    let put = RemotingCommand::request(request::PUT_KV_CONFIG)
        .with("namespace", "n")
        .with("key", "k")
        .with("value", "v");
    let answer = peer.call(put).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    assert!(answer.remark.unwrap().starts_with("can't write the key/value configuration: "));
    namesrv.shutdown().await;
}

#[tokio::test]
async fn clients_cannot_point_the_name_server_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut start = config(folder.path());
    start.unknown.insert("controllerStorePath".to_owned(), "/data/controller".to_owned());
    let namesrv = Namesrv::start(start.clone()).unwrap();
    let peer = Peer::of(&namesrv);
    let elsewhere = folder.path().join("elsewhere");
    for key in ["kvConfigPath", "configStorePath", "rocketmqHome", "controllerStorePath", "configBlackList"] {
        let body = format!("orderMessageEnable=true\n{key}={}\n", elsewhere.display());
        let update = RemotingCommand::request(request::UPDATE_NAMESRV_CONFIG).with_body(body);
        assert_eq!(peer.call(update).await.code, response::NO_PERMISSION, "{key}");
    }
    let answer = peer.call(RemotingCommand::request(request::GET_NAMESRV_CONFIG)).await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(
        text.contains("orderMessageEnable=false\n")
            && text.contains("controllerStorePath=/data/controller\n")
    );
    assert!(!elsewhere.exists() && !Path::new(&start.config_store_path).exists());
    namesrv.shutdown().await;
}

#[tokio::test]
async fn one_way_requests_get_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let namesrv = Namesrv::start(config(folder.path())).unwrap();
    let peer = Peer::of(&namesrv);
    let connection = peer.client.connection(&peer.address).await.unwrap();
    connection.oneway(register().with_body(registration(2).encode()));
    connection.oneway(route("T"));
    connection.oneway(RemotingCommand::request(999));
    // Answers come in order: this one would not be the first.
    assert_eq!(peer.topics().await.len(), 2);
    namesrv.shutdown().await;
}

#[tokio::test]
async fn new_clients_are_sent_away_before_a_graceful_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.enable_shutdown_gracefully = true;
    config.shutdown_wait_time_seconds = 1;
    let namesrv = Namesrv::start(config).unwrap();
    let peer = Peer::of(&namesrv);
    assert_eq!(peer.call(route("T")).await.code, response::TOPIC_NOT_EXIST);
    let ending = tokio::spawn(namesrv.shutdown());
    while peer.call(route("T")).await.code != response::GO_AWAY {}
    let answer = peer.call(RemotingCommand::request(request::GET_BROKER_CLUSTER_INFO)).await;
    assert_eq!(answer.remark.as_deref(), Some("please go away"));
    let old = RemotingCommand { version: 401, ..route("T") };
    assert_eq!(peer.call(old).await.code, response::TOPIC_NOT_EXIST);
    ending.await.unwrap();
    let gone = peer.client.invoke(&peer.address, route("T"), TIMEOUT).await;
    assert!(matches!(gone, Err(InvokeError::Connect { .. })), "{gone:?}");
}
