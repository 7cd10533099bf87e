//! Controllers and brokers of one process.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_controller::{Controller, ControllerConfig};
use ferromq_protocol::body::SyncStateSet;
use ferromq_protocol::code::request::*;
use ferromq_protocol::code::response::{CONTROLLER_NOT_LEADER, SUCCESS};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::header::Request;
use ferromq_protocol::json;
use ferromq_remoting::{Client, Connection, RunningServer, Server, ServerOptions, Service};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

pub(crate) const CLUSTER: &str = "DefaultCluster";
pub(crate) const SET: &str = "broker-a";

/// How long something that happens by itself may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A group of controllers, each in a folder of its own.
pub(crate) struct Controllers {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) ports: Vec<u16>,
    pub(crate) running: BTreeMap<usize, Controller>,
    pub(crate) client: Arc<Client>,
}

impl Controllers {
    pub(crate) async fn start(count: usize) -> Self {
        // All are held at once, so that they differ.
        let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports = held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(held);
        let folder = tempfile::tempdir().unwrap();
        let mut group = Self { folder, ports, running: BTreeMap::new(), client: Arc::new(Client::new()) };
        for id in 0..count {
            group.start_one(id).await;
        }
        group
    }

    pub(crate) fn config(&self, id: usize) -> ControllerConfig {
        let peers = self.ports.iter().enumerate().map(|(id, port)| format!("n{id}-127.0.0.1:{port}"));
        let path = |name: &str| -> String { self.path(id).join(name).display().to_string() };
        ControllerConfig {
            controller_dleger_group: Some("group1".to_owned()),
            controller_dleger_peers: Some(peers.collect::<Vec<_>>().join(";")),
            controller_dleger_self_id: Some(format!("n{id}")),
            controller_store_path: path("store"),
            config_store_path: path("controller.conf"),
            bind_address: "127.0.0.1".to_owned(),
            ..ControllerConfig::default()
        }
    }

    pub(crate) fn path(&self, id: usize) -> std::path::PathBuf {
        Path::new(self.folder.path()).join(id.to_string())
    }

    pub(crate) async fn start_one(&mut self, id: usize) {
        let controller = Controller::start(self.config(id)).await.unwrap();
        self.running.insert(id, controller);
    }

    pub(crate) async fn stop_one(&mut self, id: usize) {
        self.running.remove(&id).unwrap().shutdown().await;
    }

    pub(crate) async fn stop(mut self) {
        for id in 0..self.ports.len() {
            if let Some(controller) = self.running.remove(&id) {
                controller.shutdown().await;
            }
        }
    }

    pub(crate) fn address(&self, id: usize) -> String {
        format!("127.0.0.1:{}", self.ports[id])
    }

    /// Waits until one controller leads.
    pub(crate) async fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((id, _)) = self.running.iter().find(|(_, controller)| controller.leads()) {
                return *id;
            }
            assert!(Instant::now() < deadline, "no controller leads");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn ask_one(&self, id: usize, command: RemotingCommand) -> RemotingCommand {
        self.client.invoke(&self.address(id), command, ANSWER_TIMEOUT).await.unwrap()
    }

    /// Asks the leader, whoever that is when it answers.
    pub(crate) async fn ask(&self, command: RemotingCommand) -> RemotingCommand {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader().await;
            let answer = self.client.invoke(&self.address(leader), command.clone(), ANSWER_TIMEOUT).await;
            match answer {
                Ok(answer) if answer.code != CONTROLLER_NOT_LEADER => return answer,
                other => assert!(Instant::now() < deadline, "{other:?}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn succeed(&self, command: RemotingCommand) -> RemotingCommand {
        let answer = self.ask(command).await;
        assert_eq!((answer.code, answer.remark.as_deref()), (SUCCESS, None));
        answer
    }

    /// The set as the leader has it: master, master epoch, SyncStateSet.
    pub(crate) async fn replica_info(&self) -> (Option<i64>, i32, SyncStateSet) {
        let answer = self.succeed(replica_info()).await;
        let master = answer.number_or_none("masterBrokerId").unwrap();
        (master, answer.number("masterEpoch").unwrap(), json::from_slice(&answer.body).unwrap())
    }

    /// Waits until the set has this master.
    pub(crate) async fn until_master(&self, wanted: i64) {
        let deadline = Instant::now() + PATIENCE;
        while self.replica_info().await.0 != Some(wanted) {
            assert!(Instant::now() < deadline, "no change of master: {:?}", self.replica_info().await);
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn alter(&self, master: i64, ids: &[i64]) -> RemotingCommand {
        let (_, master_epoch, set) = self.replica_info().await;
        let set = SyncStateSet { sync_state_set: ids.iter().copied().collect(), ..set };
        let command = RemotingCommand::request(CONTROLLER_ALTER_SYNC_STATE_SET)
            .with("brokerName", SET)
            .with("masterBrokerId", master)
            .with("masterEpoch", master_epoch)
            .with_body(json::to_vec(&set));
        self.succeed(command).await
    }
}

pub(crate) fn apply_id(id: i64, check_code: &str) -> RemotingCommand {
    RemotingCommand::request(CONTROLLER_APPLY_BROKER_ID)
        .with("clusterName", CLUSTER)
        .with("brokerName", SET)
        .with("appliedBrokerId", id)
        .with("registerCheckCode", check_code)
}

pub(crate) fn elect(id: i64, is_designated: bool) -> RemotingCommand {
    RemotingCommand::request(CONTROLLER_ELECT_MASTER)
        .with("clusterName", CLUSTER)
        .with("brokerName", SET)
        .with("brokerId", id)
        .with("designateElect", is_designated)
}

pub(crate) fn replica_info() -> RemotingCommand {
    RemotingCommand::request(CONTROLLER_GET_REPLICA_INFO).with("brokerName", SET)
}

/// Stands for a broker: listens, sends heartbeats to all controllers, and keeps what it is told.
pub(crate) struct FakeBroker {
    pub(crate) id: i64,
    pub(crate) address: String,
    pub(crate) server: RunningServer,
    pub(crate) client: Arc<Client>,
    pub(crate) told: mpsc::UnboundedReceiver<RemotingCommand>,
}

impl FakeBroker {
    /// Starts one and has it registered under `id`.
    pub(crate) async fn start(controllers: &Controllers, id: i64) -> Self {
        let (keep, told) = mpsc::unbounded_channel();
        let server = Server::bind("127.0.0.1", 0, ServerOptions::default()).unwrap();
        let address = server.address().to_string();
        let server = server.start(Arc::new(Told(keep))).unwrap();
        let broker = Self { id, address, server, client: Arc::new(Client::new()), told };
        controllers.succeed(apply_id(id, &format!("{};1700000000000", broker.address))).await;
        broker.heartbeat(controllers, 1, 100).await;
        broker
    }

    /// Sends a heartbeat to all controllers and waits until the leader has it. It holds for longer than any test waits.
    pub(crate) async fn heartbeat(&self, controllers: &Controllers, epoch: i32, max_offset: i64) {
        let command = RemotingCommand::request(BROKER_HEARTBEAT)
            .with("clusterName", CLUSTER)
            .with("brokerAddr", &self.address)
            .with("brokerName", SET)
            .with("brokerId", self.id)
            .with("heartbeatTimeoutMills", 10 * PATIENCE.as_millis())
            .with("epoch", epoch)
            .with("maxOffset", max_offset);
        for id in controllers.running.keys() {
            let answer = self.client.invoke(&controllers.address(*id), command.clone(), ANSWER_TIMEOUT).await;
            assert_eq!(answer.unwrap().code, SUCCESS);
        }
    }

    /// Ends as a process that is killed: its port and its connections are closed.
    pub(crate) async fn die(self) {
        self.close_port().await;
        self.client.close().await;
    }

    /// Ends as a large process that is killed: its connections are closed, and a while later its port.
    pub(crate) async fn die_slowly(self) {
        self.client.close().await;
        // Nobody says when the controllers have noticed that.
        sleep(Duration::from_millis(200)).await;
        self.close_port().await;
    }

    async fn close_port(&self) {
        self.server.stop();
        let deadline = Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect(&self.address).await.is_ok() {
            assert!(Instant::now() < deadline, "the port stays open");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Told(mpsc::UnboundedSender<RemotingCommand>);

impl Service for Told {
    type Session = ();

    fn open(&self, _: &Arc<Connection>) {}

    fn request(&self, (): &mut (), _: &Arc<Connection>, request: &Request<'_>, _: &mut Vec<u8>) {
        let _ = self.0.send(RemotingCommand::from_request(request).unwrap());
    }
}
