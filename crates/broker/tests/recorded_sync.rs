//! Conformance: how a slave of RocketMQ 5.3.3 copied its master's tables, as it was recorded. Our slave asks that master, our master is
//! asked by that slave.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame;
use ferromq_protocol::header::Request;
use ferromq_remoting::{Connection, Server, ServerOptions, Service};
use ferromq_replication::classic::wire::FrameHeader;
use serde_json::{Map, Value, json};
use support::{Peer, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);
/// In the order of the recording. The two of timers (60, 61) come with timers.
const TABLES: [i32; 5] = [
    request::GET_ALL_TOPIC_CONFIG,
    request::GET_ALL_CONSUMER_OFFSET,
    request::GET_ALL_DELAY_OFFSET,
    request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    request::GET_ALL_MESSAGE_REQUEST_MODE,
];

/// What a fresh broker of ours does not have: the topic of the recording's messages, and that of timers.
const LACKING: [&str; 2] = ["h4", "rmq_sys_wheel_timer"];

fn recorded(name: &str) -> RemotingCommand {
    let lines = include_str!("vectors/slave-sync.jsonl").lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let line = lines.find(|line| line["name"] == name).unwrap();
    let hex = line["bytes"].as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let (frame, length) = frame::split(&bytes).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    RemotingCommand::decode(&frame).unwrap()
}

fn body(answer: &RemotingCommand) -> Map<String, Value> {
    serde_json::from_slice(&answer.body).unwrap()
}

/// The recorded master, which is its own name server.
struct RecordedMaster {
    address: String,
    ha_address: String,
    asked: mpsc::UnboundedSender<RemotingCommand>,
}

impl RecordedMaster {
    fn answer(&self, code: i32) -> RemotingCommand {
        match code {
            request::REGISTER_BROKER => RemotingCommand::success()
                .with("masterAddr", &self.address)
                .with("haServerAddr", &self.ha_address),
            code if TABLES.contains(&code) => recorded(&format!("response-{code}")),
            code => RemotingCommand::error(response::REQUEST_CODE_NOT_SUPPORTED, format!("{code}")),
        }
    }
}

impl Service for RecordedMaster {
    type Session = ();

    fn open(&self, _: &Arc<Connection>) {}

    fn request(&self, (): &mut (), connection: &Arc<Connection>, request: &Request<'_>, out: &mut Vec<u8>) {
        let question = RemotingCommand::from_request(request).unwrap();
        let mut answer = self.answer(question.code);
        answer.opaque = question.opaque;
        answer.encode(connection.encoding(), out);
        // A test that has seen enough does not listen any more.
        let _ = self.asked.send(question);
    }
}

/// Takes slaves, and says with every report that there is nothing new.
async fn serve_empty_log(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            while let Ok(offset) = stream.read_i64().await {
                if stream.write_all(&FrameHeader { offset, len: 0 }.encode()).await.is_err() {
                    break;
                }
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_slave_has_the_tables_of_the_recorded_master() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ha_address = listener.local_addr().unwrap().to_string();
    tokio::spawn(serve_empty_log(listener));
    let server = Server::bind("127.0.0.1", 0, ServerOptions::default()).unwrap();
    let address = server.address().to_string();
    let (asked, mut questions) = mpsc::unbounded_channel();
    let master = RecordedMaster { address: address.clone(), ha_address, asked };
    let server = server.start(Arc::new(master)).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let settings = [
        ("namesrvAddr", address.as_str()),
        ("brokerRole", "SLAVE"),
        ("brokerId", "1"),
        ("haCopyWholeLog", "false"),
    ];
    let slave = start(directory.path(), &settings).await;
    let mut order = Vec::new();
    while order.len() < TABLES.len() {
        let question = timeout(PATIENCE, questions.recv()).await.expect("the slave asks").unwrap();
        if TABLES.contains(&question.code) {
            let asked = recorded(&format!("request-{}", question.code));
            assert_eq!((question.flag, question.body.len()), (asked.flag, asked.body.len()));
            order.push(question.code);
        }
    }
    assert_eq!(order, TABLES);

    let peer = Peer::connect(&slave).await;
    let table = async |code: i32, name: &str| {
        let of_master = body(&recorded(&format!("response-{code}")));
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let of_slave = body(&peer.done(RemotingCommand::request(code)).await);
            if of_slave["dataVersion"] == of_master["dataVersion"] {
                let entries = of_slave[name].as_object().unwrap().clone();
                break (entries, of_master[name].as_object().unwrap().clone());
            }
            assert!(tokio::time::Instant::now() < deadline, "{:?}", of_slave["dataVersion"]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (topics, of_master) = table(request::GET_ALL_TOPIC_CONFIG, "topicConfigTable").await;
    assert_eq!(topics, of_master);
    let (groups, of_master) =
        table(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable").await;
    assert_eq!(groups, of_master);
    slave.shutdown().await;
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_master_answers_the_recorded_slave_in_the_same_shape() {
    let directory = tempfile::tempdir().unwrap();
    let master = start(directory.path(), &[]).await;
    let peer = Peer::connect(&master).await;
    for code in TABLES {
        let ours = peer.done(recorded(&format!("request-{code}"))).await;
        let theirs = recorded(&format!("response-{code}"));
        assert_eq!((ours.code, &ours.remark, &ours.fields), (theirs.code, &theirs.remark, &theirs.fields));
        let (ours, theirs) = (body(&ours), body(&theirs));
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{code}");
        for (name, of_theirs) in &theirs {
            let shared = |table: &Value, other: &Value| -> BTreeMap<String, Value> {
                let entries = table.as_object().into_iter().flatten();
                let entries = entries.filter(|(key, _)| other.get(key).is_some());
                entries.map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            let (of_ours, of_theirs) = (&ours[name], of_theirs);
            if name.ends_with("ersion") {
                let parts = json!({ "counter": 0, "stateVersion": 0, "timestamp": 0 });
                assert_eq!(shared(&parts, of_ours).len(), 3, "{of_ours}");
            } else {
                assert_eq!(shared(of_ours, of_theirs), shared(of_theirs, of_ours), "{code} {name}");
                let lacking = of_theirs.as_object().unwrap().keys().filter(|key| of_ours.get(key).is_none());
                let lacking: Vec<&str> = lacking.map(String::as_str).collect();
                assert!(lacking.iter().all(|key| LACKING.contains(key)), "{code} {name}: {lacking:?}");
            }
        }
    }
    master.shutdown().await;
}
