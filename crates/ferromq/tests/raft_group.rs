//! Three brokers of a Raft group as processes (`docs/spec/05-ha.md` 10): leaders are killed in the middle of sends, disks get lost, and a
//! store moves from a single broker into a group and back. Members come and go, and the preferred one leads when it can.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ferromq_protocol::body::ClusterInfo;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use support::client::Client;
use support::messages::{Stored, create_topic, pull, read_queue, send};
use support::server::{self, BrokerPlace, Process};

const TOPIC: &str = "Agreed";
const PATIENCE: Duration = Duration::from_secs(60);
/// Small files, so that every round crosses some file ends; they stay, however full the machine's disk is.
const SMALL_FILES: [(&str, &str); 4] = [
    ("mappedFileSizeCommitLog", "262144"),
    ("maxHashSlotNum", "1000"),
    ("maxIndexNum", "4000"),
    ("cleanFileForciblyEnable", "false"),
];
/// Sends that wait for their answers at the same time.
const PIPELINE: usize = 32;

fn await_that<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// An entry of `dLegerPeers` with a free port.
fn peer(id: usize) -> String {
    format!("n{id}-127.0.0.1:{}", server::free_port())
}

/// A group and its name server.
struct Group {
    /// As in `dLegerPeers`, also of brokers that are no members any more.
    peers: Vec<String>,
    settings: Vec<(String, String)>,
    places: Vec<BrokerPlace>,
    brokers: Vec<Option<Process>>,
    namesrv: Process,
    /// Bodies of the messages that were acknowledged, by queue offset.
    acknowledged: BTreeMap<i64, String>,
    /// How many messages were sent.
    sent: usize,
    directory: tempfile::TempDir,
}

impl Group {
    fn new(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
        let settings = SMALL_FILES.iter().chain(settings);
        let mut group = Self {
            peers: (0..3).map(peer).collect(),
            settings: settings.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            places: Vec::new(),
            brokers: Vec::new(),
            namesrv,
            acknowledged: BTreeMap::new(),
            sent: 0,
            directory,
        };
        (0..3).for_each(|_| group.add_place());
        group
    }

    /// A place for one more broker, which knows all peers.
    fn add_place(&mut self) {
        let own_id = format!("n{}", self.places.len());
        let peers = self.peers.join(";");
        let raft = [
            ("enableDLegerCommitLog", "true"),
            ("dLegerGroup", "broker-a"),
            ("dLegerPeers", peers.as_str()),
            ("dLegerSelfId", own_id.as_str()),
            ("slaveReadEnable", "true"),
        ];
        let settings = self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let settings: Vec<_> = raft.into_iter().chain(settings).collect();
        let directory = self.directory.path().join(&own_id);
        self.places.push(BrokerPlace::new(&directory, self.namesrv.address(), &settings));
        self.brokers.push(None);
    }

    /// Makes the group consist of these brokers, as an operator does (`docs/raft.md`), and waits until it does.
    fn change_members(&self, members: &[usize]) {
        let peers: Vec<&str> = members.iter().map(|id| self.peers[*id].as_str()).collect();
        let leader = self.leader();
        let change = format!("dLegerPeers={}", peers.join(";"));
        let answer = self
            .client(leader)
            .call(RemotingCommand::request(request::UPDATE_BROKER_CONFIG).with_body(change));
        assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
        await_that("the leader says that the group has changed", || {
            let log = self.brokers[leader].as_ref().expect("it runs").log_tail();
            let outcome = log.lines().rfind(|line| line.contains("the Raft group has changed"))?;
            let is_member =
                |id: &usize| outcome.contains(self.peers[*id].split_once('-').expect("id-address").1);
            (0..self.peers.len()).all(|id| is_member(&id) == members.contains(&id)).then_some(())
        });
    }

    fn start(&mut self, id: usize) {
        self.brokers[id] = Some(self.places[id].start());
    }

    /// Starts all brokers; the group gets a leader and the topic.
    fn start_all(&mut self) {
        for id in 0..3 {
            self.start(id);
        }
        let leader = self.leader();
        create_topic(&mut self.client(leader), TOPIC, 1);
    }

    fn kill(&mut self, id: usize) {
        if let Some(mut broker) = self.brokers[id].take() {
            broker.kill();
        }
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.brokers.len()).filter(|id| self.brokers[*id].is_some())
    }

    fn client(&self, id: usize) -> Client {
        Client::connect(self.address(id))
    }

    fn address(&self, id: usize) -> SocketAddr {
        self.brokers[id].as_ref().expect("it runs").address()
    }

    /// The brokers of the set as the name server knows them.
    fn registered(&self) -> BTreeMap<i64, String> {
        let answer = Client::connect(self.namesrv.address())
            .call(RemotingCommand::request(request::GET_BROKER_CLUSTER_INFO));
        let info: ClusterInfo = json::from_slice(&answer.body).expect("the name server's answer");
        info.broker_addr_table.get("broker-a").map(|set| set.broker_addrs.clone()).unwrap_or_default()
    }

    /// The running broker that is registered as master, once there is one.
    fn leader(&self) -> usize {
        await_that("a master is registered", || {
            let master = self.registered().remove(&0)?;
            self.running().find(|id| self.address(*id).to_string() == master)
        })
    }

    /// Sends to the master until so many more are acknowledged. Others are still under way when this returns.
    fn send(&mut self, wanted: usize) -> usize {
        let wanted = self.acknowledged.len() + wanted;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader();
            if self.send_to(leader, wanted).is_some() {
                return leader;
            }
            assert!(Instant::now() < deadline, "sends are refused for {PATIENCE:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The same to one broker; `None` if it takes no more.
    fn send_to(&mut self, id: usize, wanted: usize) -> Option<()> {
        let mut client = self.client(id);
        let mut under_way = BTreeMap::new();
        while self.acknowledged.len() < wanted {
            let mut bytes = Vec::new();
            while under_way.len() < PIPELINE {
                let body = format!("{}-{}", self.sent, "x".repeat(self.sent % 700));
                let opaque = client.encode(send(TOPIC, 0, body.clone()), &mut bytes);
                under_way.insert(opaque, body);
                self.sent += 1;
            }
            client.write(&bytes).ok()?;
            let answer = client.response()?;
            let body = under_way.remove(&answer.opaque).expect("an answer to a send");
            match answer.code {
                response::SUCCESS => {
                    let offset = answer.number("queueOffset").expect("queueOffset");
                    assert_eq!(
                        self.acknowledged.insert(offset, body),
                        None,
                        "{offset} is acknowledged twice"
                    );
                }
                // Not the leader any more, or not yet: a client tries again elsewhere.
                response::SYSTEM_BUSY | response::SERVICE_NOT_AVAILABLE | response::SYSTEM_ERROR => {
                    return None;
                }
                _ => panic!("{answer:?}"),
            }
        }
        Some(())
    }

    /// All messages of the queue at one broker, once it has all that were acknowledged.
    fn read(&self, id: usize) -> Vec<Stored> {
        let end = self.acknowledged.last_key_value().map_or(0, |(offset, _)| offset + 1);
        let mut client = self.client(id);
        await_that("the broker has everything", || {
            let answer = client.call(pull("test-reader", TOPIC, 0, 0));
            (answer.code == response::SUCCESS && answer.number::<i64>("maxOffset").ok()? >= end).then_some(())
        });
        read_queue(&mut client, TOPIC, 0, 0)
    }

    /// Each acknowledged message is where it was acknowledged, and nothing is there twice.
    fn check(&self, id: usize) {
        let messages = self.read(id);
        for (offset, body) in &self.acknowledged {
            let stored = messages.get(*offset as usize).map(|message| &message.body);
            assert_eq!(stored, Some(body), "n{id}: acknowledged at {offset}");
        }
        let mut bodies: Vec<&str> = messages.iter().map(|message| message.body.as_str()).collect();
        bodies.sort_unstable();
        assert!(bodies.windows(2).all(|pair| pair[0] != pair[1]), "n{id} has a message twice");
    }
}

#[test]
fn what_was_acknowledged_is_there_when_leaders_are_killed() {
    // The topic too: members that have not copied the table yet know it from the messages.
    let mut group = Group::new(&[("autoCreateTopicEnable", "false")]);
    group.start_all();
    for round in 0..4 {
        let leader = group.send(300);
        group.kill(leader);
        let killed = Instant::now();
        group.send(1);
        println!(
            "round {round}: acknowledged again {} ms after the leader's death",
            killed.elapsed().as_millis()
        );
        group.start(leader);
    }
    group.send(50);
    (0..3).for_each(|id| group.check(id));
}

#[test]
fn the_leader_is_the_master_and_the_others_are_slaves_that_serve_reads() {
    let mut group = Group::new(&[]);
    group.start_all();
    let leader = group.send(20);
    let expected: BTreeMap<i64, String> = (0..3)
        .map(|id| (if id == leader { 0 } else { id as i64 + 1 }, group.address(id).to_string()))
        .collect();
    await_that("all are registered", || (group.registered() == expected).then_some(()));
    for id in (0..3).filter(|id| *id != leader) {
        group.check(id);
        let refused = group.client(id).call(send(TOPIC, 0, "refused"));
        assert_eq!(refused.code, response::SYSTEM_BUSY, "{refused:?}");
        // What is not in the log is copied as well.
        create_topic(&mut group.client(leader), &format!("Other{id}"), 1);
        let mut slave = group.client(id);
        await_that("the slave knows the topic", || {
            let answer = slave.call(pull("test-reader", &format!("Other{id}"), 0, 0));
            (answer.code != response::TOPIC_NOT_EXIST).then_some(())
        });
    }
    // In order: the next leader is there at once, and the old one is out of the routes.
    let stopped = group.brokers[leader].as_mut().expect("it runs").terminate(PATIENCE);
    assert!(stopped.success(), "{stopped}");
    group.brokers[leader] = None;
    group.send(20);
    group.check(group.leader());
}

#[test]
fn a_broker_that_lost_its_store_catches_up_and_counts_again() {
    let mut group = Group::new(&[("flushDiskType", "SYNC_FLUSH")]);
    group.start_all();
    let leader = group.send(300);
    let (lost, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.kill(lost);
    fs::remove_dir_all(group.places[lost].store()).expect("its store is removed");
    group.send(300);
    group.start(lost);
    group.check(lost);
    // The leader and this one are a majority.
    group.kill(other);
    group.send(50);
    let leader = group.leader();
    group.kill(leader);
    group.start(other);
    group.send(50);
    group.running().for_each(|id| group.check(id));
}

/// It would send the group back to the begin of the queue.
#[test]
fn a_member_that_lost_its_store_says_nothing_of_a_group_before_it_has_copied_progress() {
    let mut group = Group::new(&[]);
    group.start_all();
    let leader = group.send(20);
    let lost = (leader + 1) % 3;
    await_that("the others know the topic", || {
        let known =
            |id| group.client(id).call(pull("test-reader", TOPIC, 0, 0)).code != response::TOPIC_NOT_EXIST;
        (0..3).all(known).then_some(())
    });
    (0..3).for_each(|id| group.kill(id));
    fs::remove_dir_all(group.places[lost].store()).expect("its store is removed");
    let question = || {
        RemotingCommand::request(request::QUERY_CONSUMER_OFFSET)
            .with("consumerGroup", "readers")
            .with("topic", TOPIC)
            .with("queueId", 0)
    };
    group.start(lost);
    let refused = group.client(lost).call(question());
    assert_eq!(refused.code, response::SYSTEM_BUSY, "{refused:?}");

    (0..3).filter(|id| *id != lost).for_each(|id| group.start(id));
    await_that("it has copied the progress and answers as the others do", || {
        (group.client(lost).call(question()).code != response::SYSTEM_BUSY).then_some(())
    });
}

#[test]
fn the_preferred_member_leads_whenever_it_can() {
    let mut group = Group::new(&[("preferredLeaderId", "n2")]);
    group.start_all();
    await_that("n2 leads", || (group.leader() == 2).then_some(()));
    assert_eq!(group.send(100), 2);
    group.kill(2);
    assert_ne!(group.send(100), 2);
    group.start(2);
    // Sends go on while it catches up and takes over.
    await_that("n2 leads again", || (group.send(20) == 2).then_some(()));
    (0..3).for_each(|id| group.check(id));
}

#[test]
fn members_are_added_and_removed() {
    let mut group = Group::new(&[]);
    group.start_all();
    group.send(200);
    group.peers.extend((3..5).map(peer));
    for id in 3..5 {
        group.add_place();
        group.start(id);
    }
    group.change_members(&[0, 1, 2, 3, 4]);
    group.send(50);
    (0..5).for_each(|id| group.check(id));

    // The new ones count: three of five are a majority, two of the old ones would be none.
    let leader = group.leader();
    let dead = [leader, (0..3).find(|id| *id != leader).expect("three have a second")];
    dead.iter().for_each(|id| group.kill(*id));
    group.send(50);

    // Without the dead ones two of three are enough.
    let left: Vec<usize> = group.running().collect();
    group.change_members(&left);
    let leader = group.leader();
    group.kill(left.into_iter().find(|id| *id != leader).expect("three have a second"));
    group.send(50);
    group.running().for_each(|id| group.check(id));
}

#[test]
fn a_store_moves_from_a_single_broker_into_a_group_and_back() {
    let mut group = Group::new(&[]);
    let (namesrv, directory) = (group.namesrv.address(), group.directory.path().to_owned());
    let single = |name: &str| BrokerPlace::new(&directory.join(name), namesrv, &SMALL_FILES);
    let before = single("before");
    let mut broker = before.start();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client, TOPIC, 1);
    for number in 0..200 {
        let body = format!("single-{number}");
        let answer = client.call(send(TOPIC, 0, body.clone()));
        assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
        group.acknowledged.insert(answer.number("queueOffset").expect("queueOffset"), body);
    }
    assert!(broker.terminate(PATIENCE).success());
    copy(&before.store(), &group.places[1].store());

    group.start_all();
    group.send(100);
    (0..3).for_each(|id| group.check(id));
    for broker in &mut group.brokers {
        assert!(broker.take().expect("it runs").terminate(PATIENCE).success());
    }

    let after = single("after");
    copy(&group.places[2].store(), &after.store());
    let broker = after.start();
    let mut client = Client::connect(broker.address());
    let messages = read_queue(&mut client, TOPIC, 0, 0);
    for (offset, body) in &group.acknowledged {
        assert_eq!(messages.get(*offset as usize).map(|message| &message.body), Some(body), "at {offset}");
    }
    assert_eq!(client.call(send(TOPIC, 0, "single again")).code, response::SUCCESS);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target);
        } else {
            fs::copy(&source, &target).expect("a copy");
        }
    }
}
