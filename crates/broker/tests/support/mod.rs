//! A running broker and clients that it can ask something.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_broker::RunningBroker;
use ferromq_broker::config::BrokerConfig;
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_protocol::header::Request;
use ferromq_protocol::json;
use ferromq_remoting::{Client, Connection, Limits, Service};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a broker with small files, so that many tests can run side by side.
pub(crate) async fn start(directory: &Path, settings: &[(&str, &str)]) -> RunningBroker {
    let mut config = BrokerConfig::default();
    let root = directory.join("store").display().to_string();
    let own = [
        ("storePathRootDir", root.as_str()),
        ("listenPort", "0"),
        ("brokerIP1", "127.0.0.1"),
        ("brokerName", "broker-a"),
        ("mappedFileSizeCommitLog", "16777216"),
        ("maxHashSlotNum", "1000"),
        ("maxIndexNum", "4000"),
    ];
    for (key, value) in own.iter().chain(settings) {
        assert!(config.set(key, value).expect("a valid setting"), "{key} is a setting");
    }
    RunningBroker::start(config).await.expect("the broker starts")
}

/// A pull (11) from topic `T` that does not wait.
pub(crate) fn pull_request(queue_id: i32, offset: i64) -> RemotingCommand {
    const SUBSCRIPTION: i32 = 4;
    RemotingCommand::request(request::PULL_MESSAGE)
        .with("consumerGroup", "consumers")
        .with("topic", "T")
        .with("queueId", queue_id)
        .with("queueOffset", offset)
        .with("maxMsgNums", 8)
        .with("sysFlag", SUBSCRIPTION)
        .with("commitOffset", 0)
        .with("suspendTimeoutMillis", 0)
        .with("subscription", "*")
        .with("subVersion", 1)
}

/// A client on a connection of its own.
pub(crate) struct Peer {
    pub(crate) connection: Arc<Connection>,
    asked: mpsc::UnboundedReceiver<RemotingCommand>,
}

/// Collects what the broker asks; answers with the body `asked` and the question's own fields.
struct Asked(mpsc::UnboundedSender<RemotingCommand>);

impl Service for Asked {
    type Session = ();

    fn open(&self, _: &Arc<Connection>) {}

    fn request(&self, (): &mut (), connection: &Arc<Connection>, request: &Request<'_>, out: &mut Vec<u8>) {
        let command = RemotingCommand::from_request(request).expect("a sound request");
        if !command.is_oneway() {
            let mut answer = RemotingCommand::success().with_body("asked");
            (answer.opaque, answer.fields) = (command.opaque, command.fields.clone());
            answer.encode(connection.encoding(), out);
        }
        // A test that has seen enough does not listen any more.
        let _ = self.0.send(command);
    }
}

impl Peer {
    pub(crate) async fn connect(broker: &RunningBroker) -> Self {
        let (sender, asked) = mpsc::unbounded_channel();
        let client = Client::with_service(Arc::new(Asked(sender)), HeaderEncoding::Json, Limits::default());
        let address = format!("127.0.0.1:{}", broker.address().port());
        Self { connection: client.connection(&address).await.expect("a connection"), asked }
    }

    pub(crate) async fn call(&self, command: RemotingCommand) -> RemotingCommand {
        self.connection.invoke(command, TIMEOUT).await.expect("an answer")
    }

    /// The same for a request that has to succeed.
    pub(crate) async fn done(&self, command: RemotingCommand) -> RemotingCommand {
        let answer = self.call(command).await;
        assert_eq!(answer.code, 0, "{answer:?}");
        answer
    }

    /// Calls with a body and reads the answer's.
    pub(crate) async fn ask<Q: Serialize, A: DeserializeOwned>(&self, code: i32, question: &Q) -> A {
        let answer = self.done(RemotingCommand::request(code).with_body(json::to_vec(question))).await;
        json::from_slice(&answer.body).expect("the answer's body")
    }

    /// The next request of the broker.
    pub(crate) async fn asked(&mut self) -> RemotingCommand {
        let asked = tokio::time::timeout(TIMEOUT, self.asked.recv()).await;
        asked.expect("the broker asks something").expect("the connection lives")
    }

    /// What the broker has asked and nobody has looked at.
    pub(crate) fn asked_already(&mut self) -> Option<RemotingCommand> {
        self.asked.try_recv().ok()
    }
}
