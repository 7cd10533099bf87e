//! A name server with brokers, in this process: real ones, or ones that follow a script.

#![allow(dead_code, reason = "each test program uses its own part of this")]

pub(crate) mod fake;
pub(crate) mod inbox;
pub(crate) mod pops;
pub(crate) mod stage;

use std::path::Path;
use std::time::Duration;

use ferromq_broker::RunningBroker;
use ferromq_broker::config::BrokerConfig;
use ferromq_client::{Client, ClientBuilder, Message};
use ferromq_namesrv::{Namesrv, NamesrvConfig};
use tempfile::TempDir;

/// How long something may take that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A name server and its brokers; `broker-a` is the first.
pub(crate) struct Cluster {
    directory: TempDir,
    pub(crate) namesrv: Namesrv,
    pub(crate) brokers: Vec<RunningBroker>,
}

impl Cluster {
    /// With this many brokers.
    pub(crate) async fn start(brokers: usize) -> Self {
        // `RUST_LOG=ferromq_client=debug` shows what a test does.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name).display().to_string();
        let config = NamesrvConfig {
            bind_address: "127.0.0.1".to_owned(),
            listen_port: 0,
            kv_config_path: file("kv.json"),
            config_store_path: file("namesrv.properties"),
            ..NamesrvConfig::default()
        };
        let namesrv = Namesrv::start(config).unwrap();
        let mut cluster = Self { directory, namesrv, brokers: Vec::new() };
        for position in 0..brokers {
            let name = broker_name(position);
            let broker = cluster.start_broker(&name).await;
            cluster.brokers.push(broker);
        }
        cluster.registered(brokers).await;
        cluster
    }

    pub(crate) fn name_servers(&self) -> String {
        self.namesrv.address().to_string()
    }

    /// Settings of a client of this cluster that notices changes soon.
    pub(crate) fn client(&self) -> ClientBuilder {
        Client::builder(self.name_servers())
            .client_ip("127.0.0.1")
            .poll_name_server_interval(Duration::from_millis(500))
            .persist_consumer_offset_interval(Duration::from_millis(200))
            .pull_delay_when_exception(Duration::from_millis(100))
    }

    /// Waits until all brokers are in the routes.
    async fn registered(&self, brokers: usize) {
        let client = self.client().start().unwrap();
        let producer = client.producer("probe").start().await.unwrap();
        eventually("all brokers are registered", async || {
            let queues = producer.fetch_publish_message_queues("TBW102").await.unwrap_or_default();
            let mut names: Vec<_> = queues.into_iter().map(|queue| queue.broker_name).collect();
            names.dedup();
            names.len() == brokers
        })
        .await;
        client.shutdown().await;
    }

    async fn start_broker(&self, name: &str) -> RunningBroker {
        let name_servers = self.name_servers();
        let settings = [("brokerName", name), ("namesrvAddr", &name_servers)];
        start_broker(&self.directory.path().join(name), &settings).await
    }

    /// Starts a slave of the first broker, from which consumers may read.
    pub(crate) async fn start_slave(&self) -> RunningBroker {
        let settings = [("brokerRole", "SLAVE"), ("brokerId", "1"), ("slaveReadEnable", "true")];
        self.start_replica("slave", &settings).await
    }

    /// Starts a broker of the set `broker-a` with settings of its own.
    pub(crate) async fn start_replica(&self, folder: &str, settings: &[(&str, &str)]) -> RunningBroker {
        let name_servers = self.name_servers();
        let own = [("brokerName", "broker-a"), ("namesrvAddr", name_servers.as_str())];
        start_broker(&self.directory.path().join(folder), &[&own[..], settings].concat()).await
    }

    /// Stops the last broker.
    pub(crate) async fn stop_broker(&mut self) {
        self.brokers.pop().unwrap().shutdown().await;
    }

    /// Starts the broker again that was stopped last, with what it has stored and another address.
    pub(crate) async fn start_again(&mut self) {
        let broker = self.start_broker(&broker_name(self.brokers.len())).await;
        self.brokers.push(broker);
    }

    /// Creates a topic and sends it `count` messages `0`, `1`, ….
    pub(crate) async fn fill(&self, topic: &str, count: usize) {
        let client = self.client().start().unwrap();
        let producer = client.producer("filler").start().await.unwrap();
        for number in 0..count {
            producer.send(Message::new(topic, number.to_string()).tag("A")).await.unwrap();
        }
        client.shutdown().await;
    }

    pub(crate) async fn shutdown(self) {
        for broker in self.brokers {
            broker.shutdown().await;
        }
        self.namesrv.shutdown().await;
    }
}

fn broker_name(position: usize) -> String {
    format!("broker-{}", (b'a' + position as u8) as char)
}

async fn start_broker(root: &Path, settings: &[(&str, &str)]) -> RunningBroker {
    let mut config = BrokerConfig::default();
    let root = root.display().to_string();
    let own = [
        ("storePathRootDir", root.as_str()),
        ("listenPort", "0"),
        ("brokerIP1", "127.0.0.1"),
        ("brokerIP2", "127.0.0.1"),
        ("mappedFileSizeCommitLog", "16777216"),
        ("maxHashSlotNum", "1000"),
        ("maxIndexNum", "4000"),
        ("messageDelayLevel", "1s 1s 1s 1s 1s 1s"),
        // The disk of a build machine may be nearly full.
        ("diskSpaceWarningLevelRatio", "99"),
        ("diskSpaceCleanForciblyRatio", "99"),
    ];
    for (key, value) in own.iter().chain(settings) {
        assert!(config.set(key, value).expect("a valid setting"), "{key} is a setting");
    }
    RunningBroker::start(config).await.expect("the broker starts")
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never came: {what}"));
}
