//! A cluster under test: a name server that nothing happens to, and nodes that everything happens to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::links::{Links, Place};
use crate::mode::Ports;
use crate::node::{Node, Role};
use crate::plan::{Fault, Strike, Victim};
use crate::process::Process;
use crate::requests::Requests;
use crate::run::Options;

/// The broker set.
pub(crate) const BROKER_NAME: &str = "broker-a";
const CLOCK_JUMP_SECONDS: i64 = 300;
const POLL: Duration = Duration::from_millis(100);

/// What is tested.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    links: Box<dyn Links>,
    namesrv: Process,
    namesrv_address: String,
    requests: Requests,
}

impl Cluster {
    /// Starts everything and waits for nothing.
    pub(crate) fn start(options: &Options, disk_bytes: u64) -> io::Result<Self> {
        let Options { program, mode, directory, .. } = options;
        let listening = Ports::starting_at(0).all();
        let links = options.links.make(mode.brokers(), &listening, Ports::COUNT)?;
        tracing::info!("nodes are linked by {}", links.describe());
        let (namesrv, namesrv_address) = start_namesrv(&*links, program, &directory.join("namesrv"))?;
        let mut nodes = Vec::new();
        let host_of = |node| links.address(node).to_string();
        let ports = |node| Ports::starting_at(links.ports(node));
        for index in 0..mode.brokers() {
            let place = directory.join(format!("node{index}"));
            let mut node = Node::new(index, place, program.to_owned(), disk_bytes)?;
            if let Some(own) = mode.controller_settings(index, &host_of, &ports) {
                let common = [
                    ("bindAddress", links.bind_address(index).to_string()),
                    ("controllerStorePath", node.controller_store().display().to_string()),
                ];
                let own = common.into_iter().chain(own).map(|(key, value)| (key.to_owned(), value));
                node.add(Role::Controller, &own.collect::<Vec<_>>())?;
            }
            let own = mode.broker_settings(index, &host_of, &ports);
            let common = broker_settings(&*links, index, &node.store(), &namesrv_address);
            let own = common.into_iter().chain(own).map(|(key, value)| (key.to_owned(), value));
            let settings: Vec<_> = own.chain(options.settings.iter().cloned()).collect();
            node.add(Role::Broker, &settings)?;
            node.start(&*links)?;
            nodes.push(node);
        }
        let requests = Requests::new(namesrv_address.clone());
        Ok(Self { nodes, links, namesrv, namesrv_address, requests })
    }

    /// Where clients ask for brokers.
    pub(crate) fn namesrv(&self) -> &str {
        &self.namesrv_address
    }

    /// Directories of the stores.
    pub(crate) fn stores(&self) -> Vec<PathBuf> {
        self.nodes.iter().map(Node::store).collect()
    }

    /// Directories of the nodes.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.nodes.iter().map(Node::directory)
    }

    /// `host:port` of a broker.
    pub(crate) fn broker(&self, node: usize) -> String {
        format!("{}:{}", self.links.address(node), Ports::starting_at(self.links.ports(node)).broker)
    }

    /// The node that is registered as master.
    pub(crate) async fn master(&self) -> Option<usize> {
        let master = self.requests.registered(BROKER_NAME).await.remove(&0)?;
        (0..self.nodes.len()).find(|node| self.broker(*node) == master)
    }

    /// Waits until there is a master, and all brokers know the topic.
    pub(crate) async fn create_topic(
        &self,
        topic: &str,
        queues: i32,
        patience: Duration,
    ) -> Result<(), String> {
        self.until("a master that creates the topic", patience, async || {
            let Some(master) = self.master().await else { return false };
            self.requests.create_topic(&self.broker(master), topic, queues).await
        })
        .await?;
        for node in 0..self.nodes.len() {
            self.until(&format!("the topic is known to node {node}"), patience, async || {
                self.requests.has_topic(&self.broker(node), topic).await
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until all brokers have all that the master has now, and know the topic.
    pub(crate) async fn caught_up(&self, topic: &str, patience: Duration) -> Result<(), String> {
        let mut goal = 0;
        let everybody: Vec<_> = (0..self.nodes.len()).collect();
        let mut ends = Vec::new();
        let reached = self
            .until("all replicas have the whole log", patience, async || {
                // Another master may have less, and is then the one that counts.
                let Some(master) = self.master().await else { return false };
                let Some(end) = self.requests.log_end(&self.broker(master)).await else { return false };
                goal = end;
                ends.clear();
                for node in &everybody {
                    ends.push(self.requests.log_end(&self.broker(*node)).await);
                }
                ends.iter().all(|end| *end == Some(goal))
            })
            .await;
        reached.map_err(|error| {
            format!("{error}; the master's log ends at {goal}, those of the nodes at {ends:?}")
        })?;
        for node in everybody {
            self.until(&format!("the topic is known to node {node}"), patience, async || {
                self.requests.has_topic(&self.broker(node), topic).await
            })
            .await?;
        }
        Ok(())
    }

    async fn until(
        &self,
        what: &str,
        patience: Duration,
        mut is_so: impl AsyncFnMut() -> bool,
    ) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        while !is_so().await {
            if Instant::now() > deadline {
                return Err(format!("not within {patience:?}: {what}"));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The node that a strike hits now.
    pub(crate) async fn victim(&self, victim: Victim) -> usize {
        let master = self.master().await.unwrap_or(0);
        match victim {
            Victim::Master => master,
            Victim::Slave(number) => {
                let slaves: Vec<_> = (0..self.nodes.len()).filter(|node| *node != master).collect();
                slaves[number % slaves.len()]
            }
        }
    }

    /// Lets a fault happen to a node; false if that is not possible here.
    pub(crate) fn strike(&mut self, strike: Strike, node: usize) -> io::Result<bool> {
        let peers: Vec<_> = (0..self.nodes.len()).filter(|peer| *peer != node).map(Place::Node).collect();
        let me = Place::Node(node);
        match strike.fault {
            Fault::Kill => self.nodes[node].kill(Role::Broker)?,
            Fault::KillController => self.nodes[node].kill(Role::Controller)?,
            Fault::Pause => self.nodes[node].pause()?,
            Fault::Isolate => {
                for other in peers.into_iter().chain([Place::Outside]) {
                    self.links.cut(me, other)?;
                    self.links.cut(other, me)?;
                }
            }
            Fault::CutFromPeers => {
                for peer in peers {
                    self.links.cut(me, peer)?;
                    self.links.cut(peer, me)?;
                }
            }
            Fault::OneWayOut => {
                for peer in peers {
                    self.links.cut(me, peer)?;
                }
            }
            Fault::OneWayIn => {
                for peer in peers {
                    self.links.cut(peer, me)?;
                }
            }
            Fault::Bridge => {
                for one in &peers {
                    for other in peers.iter().filter(|other| *other != one) {
                        self.links.cut(*one, *other)?;
                    }
                }
            }
            Fault::SlowLink => return self.links.slow(node),
            Fault::FullDisk => return self.nodes[node].fill_disk(),
            Fault::ClockJump => {
                let seconds = if node.is_multiple_of(2) { CLOCK_JUMP_SECONDS } else { -CLOCK_JUMP_SECONDS };
                return self.nodes[node].set_clock(seconds);
            }
            Fault::LoseStore => self.nodes[node].lose_store()?,
        }
        Ok(true)
    }

    /// Everything works again, and what was killed is started.
    pub(crate) fn mend(&mut self) -> io::Result<()> {
        self.links.heal()?;
        for node in &mut self.nodes {
            node.resume()?;
            node.free_disk()?;
            node.set_clock(0)?;
            node.start(&*self.links)?;
        }
        Ok(())
    }

    /// SIGKILL for all nodes.
    pub(crate) fn kill_all(&mut self) -> io::Result<()> {
        self.nodes.iter_mut().try_for_each(Node::kill_all)
    }

    /// SIGTERM for all nodes, and waits.
    pub(crate) fn terminate(&mut self, patience: Duration) -> io::Result<()> {
        self.nodes.iter_mut().try_for_each(|node| node.terminate(patience))
    }

    /// Programs that ended although nobody killed them, in words.
    pub(crate) fn deaths(&mut self) -> io::Result<Vec<String>> {
        let mut deaths = Vec::new();
        for node in &mut self.nodes {
            deaths.extend(node.deaths()?);
        }
        if let Some(status) = self.namesrv.ended()? {
            deaths.push(format!("the name server ended, {status}:\n{}", self.namesrv.log_tail()));
        }
        Ok(deaths)
    }

    /// Leaves all files where they are, also those on small disks.
    pub(crate) fn keep_files(&mut self) -> io::Result<()> {
        self.kill_all()?;
        self.nodes.iter_mut().try_for_each(Node::keep_files)
    }
}

fn broker_settings(
    links: &dyn Links,
    node: usize,
    store: &Path,
    namesrv: &str,
) -> Vec<(&'static str, String)> {
    let (address, ports) = (links.address(node).to_string(), Ports::starting_at(links.ports(node)));
    let store = store.display();
    vec![
        ("brokerClusterName", "DefaultCluster".to_owned()),
        ("brokerName", BROKER_NAME.to_owned()),
        ("brokerIP1", address.clone()),
        ("brokerIP2", address),
        ("bindAddress", links.bind_address(node).to_string()),
        ("listenPort", ports.broker.to_string()),
        ("namesrvAddr", namesrv.to_owned()),
        ("storePathRootDir", format!("{store}")),
        ("storePathCommitLog", format!("{store}/commitlog")),
        ("mappedFileSizeCommitLog", crate::node::SEGMENT_BYTES.to_string()),
        ("mappedFileSizeConsumeQueue", "20000".to_owned()),
        ("maxHashSlotNum", "1000".to_owned()),
        ("maxIndexNum", "4000".to_owned()),
        ("slaveReadEnable", "true".to_owned()),
        // Nothing may be deleted, however full the disk is.
        ("cleanFileForciblyEnable", "false".to_owned()),
        ("fileReservedTime", "720".to_owned()),
    ]
}

fn start_namesrv(links: &dyn Links, program: &Path, directory: &Path) -> io::Result<(Process, String)> {
    fs::create_dir_all(directory)?;
    let host = links.outside();
    let port = std::net::TcpListener::bind((host, 0))?.local_addr()?.port();
    let configuration = directory.join("namesrv.conf");
    let kv = directory.join("kvConfig.json");
    let lines = format!("listenPort={port}\nbindAddress={host}\nkvConfigPath={}\n", kv.display());
    fs::write(&configuration, lines)?;
    let mut command = Command::new(program);
    command.arg("namesrv").arg("-c").arg(&configuration).current_dir(directory);
    Ok((Process::start(command, &directory.join("namesrv.log"))?, format!("{host}:{port}")))
}
