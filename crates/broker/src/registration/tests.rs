use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::header::Request;
use ferromq_remoting::{Connection, RunningServer, Server, ServerOptions, Service};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Registrant, Registration};
use crate::config::BrokerConfig;

/// A name server that reports what it is asked.
struct NameServer {
    asked: mpsc::UnboundedReceiver<RemotingCommand>,
    port: u16,
    server: RunningServer,
}

struct Reporter {
    asked: mpsc::UnboundedSender<RemotingCommand>,
    order_topics: &'static str,
}

impl Service for Reporter {
    type Session = ();

    fn open(&self, _: &Arc<Connection>) {}

    fn request(&self, (): &mut (), connection: &Arc<Connection>, request: &Request<'_>, out: &mut Vec<u8>) {
        let _ = self.asked.send(RemotingCommand::from_request(request).unwrap());
        let mut answer = RemotingCommand::success()
            .with("masterAddr", "10.0.0.1:10911")
            .with("haServerAddr", "10.0.0.1:10912")
            .with_body(self.order_topics);
        answer.opaque = request.opaque;
        answer.encode(connection.encoding(), out);
    }
}

impl NameServer {
    /// On a port of the system's choice if that is 0.
    fn start(port: u16) -> Self {
        let (sender, asked) = mpsc::unbounded_channel();
        let server = Server::bind("127.0.0.1", port, ServerOptions::default()).unwrap();
        let port = server.address().port();
        let service = Reporter { asked: sender, order_topics: r#"{"table":{"Ordered":"broker-a:4"}}"# };
        Self { asked, port, server: server.start(Arc::new(service)).unwrap() }
    }

    async fn next(&mut self) -> RemotingCommand {
        timeout(Duration::from_secs(5), self.asked.recv()).await.expect("nothing was asked").unwrap()
    }

    /// The topics of the next request, which must be a registration, and their version.
    async fn next_registration(&mut self) -> (Vec<String>, i64) {
        let command = self.next().await;
        assert_eq!(command.code, request::REGISTER_BROKER);
        let body = RegisterBrokerBody::decode(&command.body).unwrap().topic_config_serialize_wrapper;
        let topics =
            body.topic_config_table.values().map(|topic| format!("{}:{}", topic.topic_name, topic.perm));
        (topics.collect(), body.data_version.counter)
    }
}

#[derive(Default)]
struct Broker {
    config: Mutex<BrokerConfig>,
    version: AtomicI64,
    ordered: Mutex<Vec<String>>,
    master: Mutex<[Option<String>; 2]>,
}

impl Registrant for Broker {
    fn config(&self) -> Arc<BrokerConfig> {
        Arc::new(self.config.lock().clone())
    }

    fn topics(&self) -> TopicConfigSerializeWrapper {
        let topics = ["A", "B"].map(|name| (name.to_owned(), TopicConfig::new(name, 4)));
        TopicConfigSerializeWrapper { data_version: self.data_version(), topic_config_table: topics.into() }
    }

    fn data_version(&self) -> DataVersion {
        DataVersion { counter: self.version.load(Ordering::Relaxed), ..DataVersion::default() }
    }

    fn bump_data_version(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    fn set_ordered(&self, topics: &[&str]) {
        *self.ordered.lock() = topics.iter().map(|topic| (*topic).to_owned()).collect();
    }

    fn master_is(&self, address: Option<&str>, ha_address: Option<&str>) {
        *self.master.lock() = [address, ha_address].map(|address| address.map(str::to_owned));
    }
}

fn broker(name_servers: &[&NameServer]) -> Arc<Broker> {
    let broker = Broker::default();
    broker.config.lock().namesrv_addr = Some(list(name_servers));
    Arc::new(broker)
}

fn list(name_servers: &[&NameServer]) -> String {
    name_servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect::<Vec<_>>().join(";")
}

fn all() -> Vec<String> {
    vec!["A:6".to_owned(), "B:6".to_owned()]
}

#[tokio::test]
async fn every_name_server_is_told_at_the_start_and_at_the_end() {
    let (mut one, mut two) = (NameServer::start(0), NameServer::start(0));
    let (registration, broker) = (Registration::default(), broker(&[&one, &two]));
    registration.start(broker.clone()).await;
    assert_eq!(*broker.ordered.lock(), ["Ordered"]);
    let master = ["10.0.0.1:10911", "10.0.0.1:10912"].map(|address| Some(address.to_owned()));
    assert_eq!(*broker.master.lock(), master);
    for name_server in [&mut one, &mut two] {
        assert_eq!(name_server.next_registration().await, (all(), 0));
    }
    registration.stop().await;
    for name_server in [&mut one, &mut two] {
        let command = name_server.next().await;
        assert_eq!((command.code, command.field("brokerId")), (request::UNREGISTER_BROKER, Some("0")));
    }
}

#[tokio::test]
async fn a_changed_topic_is_told_alone_and_with_a_version_of_its_own() {
    let mut name_server = NameServer::start(0);
    let (registration, broker) = (Registration::default(), broker(&[&name_server]));
    registration.start(broker.clone()).await;
    assert_eq!(name_server.next_registration().await, (all(), 0));
    // The version that is there is already the name server's: it would not look at the topic.
    registration.topic_changed(&Arc::new(TopicConfig::new("C", 1)));
    assert_eq!(name_server.next_registration().await, (vec!["C:6".to_owned()], 1));
    broker.bump_data_version();
    registration.topic_changed(&Arc::new(TopicConfig::new("D", 1)));
    assert_eq!(name_server.next_registration().await, (vec!["D:6".to_owned()], 2));
    registration.stop().await;
}

#[tokio::test]
async fn a_name_server_that_was_restarted_gets_everything_within_two_seconds() {
    let mut name_server = NameServer::start(0);
    let (registration, broker) = (Registration::default(), broker(&[&name_server]));
    registration.start(broker.clone()).await;
    assert_eq!(name_server.next_registration().await, (all(), 0));
    name_server.server.stop();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut name_server = NameServer::start(name_server.port);
    let registered = timeout(Duration::from_secs(2), name_server.next_registration()).await;
    assert_eq!(registered.unwrap(), (all(), 0));
    registration.stop().await;
}

#[tokio::test]
async fn a_name_server_that_is_down_does_not_delay_the_start() {
    let gone = NameServer::start(0);
    gone.server.stop();
    drop(gone.asked);
    let broker = Arc::new(Broker::default());
    broker.config.lock().namesrv_addr = Some(format!("127.0.0.1:{};192.0.2.1:9876", gone.port));
    let registration = Registration::default();
    timeout(Duration::from_secs(3), registration.start(broker)).await.unwrap();
}

#[tokio::test]
async fn the_list_can_change() {
    let (mut one, mut two) = (NameServer::start(0), NameServer::start(0));
    let (registration, broker) = (Registration::default(), broker(&[&one]));
    registration.start(broker.clone()).await;
    one.next_registration().await;
    broker.config.lock().namesrv_addr = Some(list(&[&two]));
    registration.reconfigured();
    assert_eq!(two.next_registration().await, (all(), 0));
    assert_eq!(one.next().await.code, request::UNREGISTER_BROKER);
    registration.stop().await;
    assert_eq!(two.next().await.code, request::UNREGISTER_BROKER);
}

#[tokio::test]
async fn permissions_are_told_anew() {
    let mut name_server = NameServer::start(0);
    let (registration, broker) = (Registration::default(), broker(&[&name_server]));
    registration.start(broker.clone()).await;
    name_server.next_registration().await;
    broker.config.lock().broker_permission = 4;
    broker.bump_data_version();
    registration.register_all_soon();
    assert_eq!(name_server.next_registration().await, (vec!["A:4".to_owned(), "B:4".to_owned()], 1));
    registration.stop().await;
}

#[tokio::test]
async fn portions_have_versions_of_their_own() {
    let mut name_server = NameServer::start(0);
    let (registration, broker) = (Registration::default(), broker(&[&name_server]));
    broker.config.lock().enable_split_registration = true;
    broker.config.lock().split_registration_size = 1;
    registration.start(broker).await;
    assert_eq!(name_server.next_registration().await, (vec!["A:6".to_owned()], 0));
    assert_eq!(name_server.next_registration().await, (vec!["B:6".to_owned()], 1));
    registration.stop().await;
}

#[tokio::test]
async fn single_topics_can_have_their_own_request() {
    let mut name_server = NameServer::start(0);
    let (registration, broker) = (Registration::default(), broker(&[&name_server]));
    broker.config.lock().enable_single_topic_register = true;
    registration.start(broker).await;
    name_server.next_registration().await;
    registration.topic_changed(&Arc::new(TopicConfig::new("C", 1)));
    let command = name_server.next().await;
    assert_eq!((command.code, command.field("topic")), (request::REGISTER_TOPIC_IN_NAMESRV, Some("C")));
    registration.stop().await;
}
