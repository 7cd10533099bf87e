//! A controller that anybody can ask anything: it answers everything, and goes on.

#![no_main]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferromq_controller::{Controller, ControllerConfig};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::{Client, Connection};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

const PATIENCE: Duration = Duration::from_secs(10);
/// Code of the messages between controllers.
const PEER_MESSAGE: i32 = 1_090_000;

const CODES: [i32; 14] = [
    request::BROKER_HEARTBEAT,
    request::CONTROLLER_ALTER_SYNC_STATE_SET,
    request::CONTROLLER_ELECT_MASTER,
    request::CONTROLLER_REGISTER_BROKER,
    request::CONTROLLER_GET_REPLICA_INFO,
    request::CONTROLLER_GET_METADATA_INFO,
    request::CONTROLLER_GET_SYNC_STATE_DATA,
    request::UPDATE_CONTROLLER_CONFIG,
    request::GET_CONTROLLER_CONFIG,
    request::CLEAN_BROKER_DATA,
    request::CONTROLLER_GET_NEXT_BROKER_ID,
    request::CONTROLLER_APPLY_BROKER_ID,
    PEER_MESSAGE,
    PEER_MESSAGE,
];

const FIELDS: [&str; 16] = [
    "clusterName",
    "brokerName",
    "brokerId",
    "brokerAddr",
    "brokerAddress",
    "epoch",
    "maxOffset",
    "heartbeatTimeoutMills",
    "electionPriority",
    "masterBrokerId",
    "masterEpoch",
    "designateElect",
    "brokerControllerIdsToClean",
    "isCleanLivingBroker",
    "appliedBrokerId",
    "registerCheckCode",
];

#[derive(Debug, Arbitrary)]
struct Question {
    code: u8,
    fields: Vec<(u8, Text)>,
    body: Body,
}

#[derive(Debug, Arbitrary)]
enum Text {
    Set(u8),
    Small(i8),
    Number(i64),
    Address(u8),
    Bool(bool),
    Any(String),
}

#[derive(Debug, Arbitrary)]
enum Body {
    Any(Vec<u8>),
    SyncStateSet {
        ids: Vec<i8>,
        epoch: i8,
    },
    Names(Vec<u8>),
    /// What another controller might say.
    Message {
        from: u8,
        to: u8,
        message: String,
    },
}

impl Text {
    fn write(&self) -> String {
        match self {
            Text::Set(set) => format!("broker-{}", set % 4),
            Text::Small(number) => number.to_string(),
            Text::Number(number) => number.to_string(),
            Text::Address(port) => format!("127.0.0.1:{};1", u16::from(*port) + 1),
            Text::Bool(is) => is.to_string(),
            Text::Any(text) => text.clone(),
        }
    }
}

impl Body {
    fn write(&self) -> Vec<u8> {
        match self {
            Body::Any(bytes) => bytes.clone(),
            Body::SyncStateSet { ids, epoch } => {
                format!("{{\"syncStateSet\":{ids:?},\"syncStateSetEpoch\":{epoch}}}").into_bytes()
            }
            Body::Names(sets) => {
                format!("{:?}", sets.iter().map(|set| format!("broker-{}", set % 4)).collect::<Vec<_>>()).into_bytes()
            }
            Body::Message { from, to, message } => format!(
                "{{\"protocol\":\"ferromq-controller/1\",\"group\":\"fuzz\",\"from\":{from},\"to\":{to},\"message\":{message}}}"
            )
            .into_bytes(),
        }
    }
}

struct Running {
    runtime: Runtime,
    connection: Arc<Connection>,
    _controller: Controller,
    _client: Client,
    _directory: tempfile::TempDir,
}

fn running() -> &'static Running {
    static RUNNING: OnceLock<Running> = OnceLock::new();
    RUNNING.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address").to_string();
        drop(free);
        let path = |name: &str| directory.path().join(name).display().to_string();
        let config = ControllerConfig {
            controller_dleger_group: Some("fuzz".to_owned()),
            controller_dleger_peers: Some(format!("n0-{address}")),
            controller_dleger_self_id: Some("n0".to_owned()),
            controller_store_path: path("store"),
            config_store_path: path("controller.conf"),
            bind_address: "127.0.0.1".to_owned(),
            ..ControllerConfig::default()
        };
        let client = Client::new();
        let (controller, connection) = runtime.block_on(async {
            let controller = Controller::start(config).await.expect("it starts");
            (controller, client.connection(&address).await.expect("a connection"))
        });
        Running { runtime, connection, _controller: controller, _client: client, _directory: directory }
    })
}

fuzz_target!(|questions: Vec<Question>| {
    let running = running();
    running.runtime.block_on(async {
        for question in questions.iter().take(8) {
            let mut command = RemotingCommand::request(CODES[question.code as usize % CODES.len()]);
            for (field, text) in question.fields.iter().take(FIELDS.len()) {
                command = command.with(FIELDS[*field as usize % FIELDS.len()], text.write());
            }
            let command = command.with_body(question.body.write());
            running.connection.invoke(command, PATIENCE).await.expect("an answer to everything");
        }
    });
});
