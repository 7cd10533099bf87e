//! A group in a simulated network (`turmoil`), with producers and a checker. A seed decides what happens when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;

use super::memory_log::MemoryLog;
use crate::log::ReplicaLog;
use crate::raft::transport::{BoxedConnection, Listener, Pending, Transport, port_of};
use crate::raft::types::NodeId;
use crate::raft::{Durability, RaftNode, RoleState, Settings};

pub(super) const FILE_SIZE: u64 = 4096;
const PORT: u16 = 40911;

/// The network of the simulation.
struct Simulated;

impl Transport for Simulated {
    fn connect<'a>(&'a self, address: &'a str) -> Pending<'a, BoxedConnection> {
        Box::pin(async move {
            let stream = turmoil::net::TcpStream::connect(address).await?;
            Ok(Box::new(stream) as BoxedConnection)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Listener>> {
        Box::pin(async move {
            let listener = turmoil::net::TcpListener::bind(("0.0.0.0", port_of(address)?)).await?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

impl Listener for turmoil::net::TcpListener {
    fn accept(&mut self) -> Pending<'_, (BoxedConnection, std::net::SocketAddr)> {
        Box::pin(async move {
            let (stream, from) = turmoil::net::TcpListener::accept(self).await?;
            Ok((Box::new(stream) as BoxedConnection, from))
        })
    }
}

/// What of a node outlives its process.
struct Member {
    id: NodeId,
    name: String,
    disk: Arc<Mutex<Disk>>,
    process: Arc<Mutex<Option<Process>>>,
}

struct Disk {
    log: Arc<MemoryLog>,
    dir: TempDir,
}

struct Process {
    node: Arc<RaftNode>,
    roles: watch::Receiver<RoleState>,
}

/// A message for which the broker owes an answer.
struct Sent {
    log: Arc<MemoryLog>,
    reign: u64,
    end: u64,
    payload: Vec<u8>,
}

pub(super) struct Group {
    pub(super) sim: turmoil::Sim<'static>,
    members: Vec<Member>,
    durability: Durability,
    pub(super) rng: fastrand::Rng,
    sent: Vec<Sent>,
    /// Where each acknowledged message ends in the log.
    pub(super) acknowledged: Vec<(u64, Vec<u8>)>,
    leaders: BTreeMap<(u64, NodeId), ()>,
    count: u64,
}

pub(super) fn address(id: NodeId) -> String {
    format!("n{id}:{PORT}")
}

fn new_dir() -> TempDir {
    // Flushing is real; in memory it takes no time.
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Group {
    /// A group of empty nodes that start at once.
    pub(super) fn new(seed: u64, size: u64, durability: Durability) -> Group {
        let logs = (0..size).map(|_| MemoryLog::new(FILE_SIZE)).collect();
        Group::over(seed, logs, size, Vec::new(), durability)
    }

    /// A group whose nodes have these logs. Only the first `size` are members from the beginning.
    pub(super) fn over(
        seed: u64,
        logs: Vec<Arc<MemoryLog>>,
        size: u64,
        preferred: Vec<NodeId>,
        durability: Durability,
    ) -> Group {
        if std::env::var_os("RUST_LOG").is_some() {
            let filter = tracing_subscriber::EnvFilter::from_default_env();
            let _again = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        }
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .simulation_duration(Duration::from_secs(3600))
            .tick_duration(Duration::from_millis(2))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(12))
            .tcp_capacity(4096)
            .build();
        let peers: BTreeMap<NodeId, String> = (0..size).map(|id| (id, address(id))).collect();
        let members: Vec<Member> = (0..)
            .zip(logs)
            .map(|(id, log)| {
                let disk = Arc::new(Mutex::new(Disk { log, dir: new_dir() }));
                Member { id, name: format!("n{id}"), disk, process: Arc::default() }
            })
            .collect();
        for member in &members {
            let mut peers = peers.clone();
            peers.insert(member.id, address(member.id));
            start(&mut sim, member, &peers, &preferred, durability);
        }
        Group {
            sim,
            members,
            durability,
            rng: fastrand::Rng::with_seed(seed),
            sent: Vec::new(),
            acknowledged: Vec::new(),
            leaders: BTreeMap::new(),
            count: 0,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    /// Asks something of a node, and lets time pass until it has answered.
    pub(super) fn ask<T: 'static>(
        &mut self,
        id: usize,
        question: impl AsyncFnOnce(Arc<RaftNode>) -> T + 'static,
    ) -> T {
        let node = self.members[id].process.lock().as_ref().map(|process| Arc::clone(&process.node)).unwrap();
        let answer: Arc<Mutex<Option<T>>> = Arc::default();
        let answered = Arc::clone(&answer);
        self.count += 1;
        self.sim.client(format!("client{}", self.count), async move {
            let given = question(node).await;
            *answered.lock() = Some(given);
            Ok(())
        });
        let limit = self.sim.elapsed() + Duration::from_secs(60);
        loop {
            if let Some(answer) = answer.lock().take() {
                return answer;
            }
            assert!(self.sim.elapsed() < limit, "no answer");
            self.step();
        }
    }

    pub(super) fn members_known_to(&self, id: usize) -> BTreeMap<NodeId, String> {
        self.members[id].process.lock().as_ref().map(|process| process.node.members()).unwrap_or_default()
    }

    pub(super) fn role(&self, id: usize) -> RoleState {
        self.members[id].process.lock().as_ref().map(|process| *process.roles.borrow()).unwrap_or_default()
    }

    pub(super) fn log(&self, id: usize) -> Arc<MemoryLog> {
        Arc::clone(&self.members[id].disk.lock().log)
    }

    fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name.clone()).collect()
    }

    /// Lets some time pass, without sending anything.
    pub(super) fn step(&mut self) {
        self.sim.step().unwrap();
        self.collect();
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.sim.elapsed() + time;
        while self.sim.elapsed() < end {
            self.step();
        }
    }

    /// Lets time pass until something is so.
    pub(super) fn run_until(&mut self, what: &str, limit: Duration, mut is_so: impl FnMut(&Group) -> bool) {
        let end = self.sim.elapsed() + limit;
        while !is_so(self) {
            assert!(self.sim.elapsed() < end, "not within {limit:?}: {what}");
            self.step();
        }
    }

    /// Takes the answers that brokers give, and looks at who leads.
    fn collect(&mut self) {
        let acknowledged = &mut self.acknowledged;
        self.sent.retain(|sent| {
            let stored = sent.log.is_acknowledged(sent.reign, sent.end);
            if stored {
                acknowledged.push((sent.end, sent.payload.clone()));
            }
            !stored
        });
        for member in &self.members {
            if let Some(process) = &*member.process.lock() {
                let role = *process.roles.borrow();
                if role.leads {
                    self.leaders.insert((role.term, member.id), ());
                }
            }
        }
    }

    /// Producers send to whoever takes messages.
    pub(super) fn send(&mut self) {
        for id in 0..self.members.len() {
            let log = self.log(id);
            self.count += 1;
            let mut payload = format!("message {:06} ", self.count).into_bytes();
            payload.resize(payload.len() + self.rng.usize(1..200), b'.');
            if let Some((reign, end)) = log.send_in_reign(&payload) {
                self.sent.push(Sent { log, reign, end, payload });
            }
        }
    }

    pub(super) fn kill(&mut self, id: usize) {
        self.end_process(id);
        let mut disk = self.members[id].disk.lock();
        let after = match self.durability {
            Durability::PageCache => disk.log.after_kill(),
            Durability::Device => disk.log.after_power_loss(),
        };
        disk.log = after;
    }

    pub(super) fn lose_disk(&mut self, id: usize) {
        self.end_process(id);
        *self.members[id].disk.lock() = Disk { log: MemoryLog::new(FILE_SIZE), dir: new_dir() };
    }

    /// The index of a node that is down is empty when it starts, but for its header.
    pub(super) fn damage_index(&mut self, id: usize) {
        let disk = self.members[id].disk.lock();
        let index = std::fs::File::options().write(true).open(disk.dir.path().join("raft/index")).unwrap();
        index.set_len(16).unwrap();
    }

    /// Stops a node in order.
    pub(super) fn stop(&mut self, id: usize) {
        let node = self.members[id].process.lock().take().map(|process| process.node).unwrap();
        let stopped: Arc<Mutex<bool>> = Arc::default();
        let done = Arc::clone(&stopped);
        self.sim.client(format!("stop{id}"), async move {
            node.stop().await;
            *done.lock() = true;
            Ok(())
        });
        self.run_until("the node has stopped", Duration::from_secs(10), |_| *stopped.lock());
    }

    fn end_process(&mut self, id: usize) {
        let name = self.members[id].name.clone();
        if self.sim.is_host_running(name.as_str()) {
            self.sim.crash(name.as_str());
        }
        self.members[id].process.lock().take();
        let log = self.log(id);
        self.sent.retain(|sent| !Arc::ptr_eq(&sent.log, &log));
    }

    pub(super) fn start(&mut self, id: usize) {
        let name = self.members[id].name.clone();
        if !self.sim.is_host_running(name.as_str()) {
            self.sim.bounce(name.as_str());
        }
    }

    pub(super) fn is_running(&mut self, id: usize) -> bool {
        let name = self.members[id].name.clone();
        self.sim.is_host_running(name.as_str())
    }

    pub(super) fn leader(&self) -> Option<usize> {
        (0..self.members.len()).find(|id| self.log(*id).is_leading())
    }

    pub(super) fn heal(&mut self) {
        let names = self.names();
        for a in &names {
            for b in &names {
                if a != b {
                    self.sim.repair_oneway(a.as_str(), b.as_str());
                }
            }
        }
    }

    /// Cuts a node off, in one direction or both.
    pub(super) fn cut_off(&mut self, id: usize) {
        let names = self.names();
        let me = names[id].clone();
        let way = self.rng.u8(0..3);
        for other in names.iter().filter(|name| **name != me) {
            match way {
                0 => self.sim.partition(me.as_str(), other.as_str()),
                1 => self.sim.partition_oneway(me.as_str(), other.as_str()),
                _ => self.sim.partition_oneway(other.as_str(), me.as_str()),
            }
        }
    }

    /// Everything is repaired and everybody up: the group must work, and have what it acknowledged.
    pub(super) fn conclude(&mut self) {
        self.heal();
        for id in 0..self.members.len() {
            self.start(id);
        }
        self.run_until("a leader", Duration::from_secs(60), |group| group.leader().is_some());
        let before = self.acknowledged.len();
        let limit = self.sim.elapsed() + Duration::from_secs(60);
        while self.acknowledged.len() == before {
            assert!(self.sim.elapsed() < limit, "nothing is acknowledged any more");
            self.send();
            self.run_for(Duration::from_millis(100));
        }
        let end = self.acknowledged.last().unwrap().0;
        self.run_until("all nodes have everything", Duration::from_secs(60), |group| {
            (0..group.members.len()).all(|id| group.log(id).bounds().confirmed >= end)
        });
        self.check();
    }

    pub(super) fn check(&self) {
        for id in 0..self.members.len() {
            let log = self.log(id);
            for other in 0..id {
                assert!(log.agrees_with(&self.log(other)), "n{id} and n{other} confirmed different messages");
            }
            let confirmed = log.bounds().confirmed;
            for (end, payload) in self.acknowledged.iter().filter(|(end, _)| *end <= confirmed) {
                let what = String::from_utf8_lossy(payload);
                assert!(log.holds(*end, payload), "n{id} lost what was acknowledged: {what} at {end}");
            }
        }
        let mut terms: Vec<u64> = self.leaders.keys().map(|(term, _)| *term).collect();
        terms.dedup();
        assert_eq!(terms.len(), self.leaders.len(), "two leaders in one term: {:?}", self.leaders.keys());
    }
}

fn start(
    sim: &mut turmoil::Sim<'static>,
    member: &Member,
    peers: &BTreeMap<NodeId, String>,
    preferred: &[NodeId],
    durability: Durability,
) {
    let (id, disk, process) = (member.id, Arc::clone(&member.disk), Arc::clone(&member.process));
    let (peers, preferred) = (peers.clone(), preferred.to_vec());
    sim.host(member.name.as_str(), move || {
        let (log, dir) = {
            let disk = disk.lock();
            (Arc::clone(&disk.log), disk.dir.path().join("raft"))
        };
        let settings = Settings {
            group: "g".into(),
            me: id,
            peers: peers.clone(),
            preferred: preferred.clone(),
            dir,
            durability,
            others_first: Duration::ZERO,
        };
        let process = Arc::clone(&process);
        async move {
            let node = RaftNode::start(settings, log, Arc::new(Simulated)).await?;
            let roles = node.roles();
            *process.lock() = Some(Process { node: Arc::new(node), roles });
            std::future::pending().await
        }
    });
}
