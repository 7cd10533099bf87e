//! Brokers under controllers, all as processes: the master is killed in the middle of its sends, again and again, and nothing that
//! was acknowledged is lost.

mod support;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ferromq_protocol::body::BrokerReplicasInfo;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use support::client::Client;
use support::messages::{create_topic, pull, read_queue, send};
use support::server::{self, BrokerPlace, Process};

const TOPIC: &str = "Promised";
const SET: &str = "broker-a";
/// Roles change within seconds; this is for machines that have other things to do.
const PATIENCE: Duration = Duration::from_secs(120);
/// Small files, so that every round crosses some file ends.
const SMALL_FILES: [(&str, &str); 3] =
    [("mappedFileSizeCommitLog", "262144"), ("maxHashSlotNum", "1000"), ("maxIndexNum", "4000")];

/// Three controllers and the brokers of a set.
struct Cluster {
    controllers: Vec<Process>,
    /// Position `id - 1`.
    places: Vec<BrokerPlace>,
    brokers: Vec<Option<Process>>,
    _namesrv: Process,
    _directory: tempfile::TempDir,
}

impl Cluster {
    fn start(brokers: usize, settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
        let controllers = server::start_controllers(&directory.path().join("controllers"), 3);
        let addresses: Vec<_> =
            controllers.iter().map(|controller| controller.address().to_string()).collect();
        let addresses = addresses.join(";");
        let own =
            [("enableControllerMode", "true"), ("controllerAddr", &addresses), ("slaveReadEnable", "true")];
        let settings = [&SMALL_FILES[..], settings, &own].concat();
        let place = |id: usize| {
            BrokerPlace::new(&directory.path().join(format!("broker-{id}")), namesrv.address(), &settings)
        };
        let mut cluster = Self {
            controllers,
            places: (1..=brokers).map(place).collect(),
            brokers: (0..brokers).map(|_| None).collect(),
            _namesrv: namesrv,
            _directory: directory,
        };
        for id in 1..=brokers as i64 {
            cluster.start_broker(id);
            await_that("the broker has its id", || cluster.knows(id));
        }
        cluster
    }

    fn start_broker(&mut self, id: i64) {
        let position = id as usize - 1;
        self.brokers[position] = Some(self.places[position].start());
    }

    fn broker(&self, id: i64) -> Client {
        Client::connect(self.brokers[id as usize - 1].as_ref().expect("it runs").address())
    }

    /// The set as the leading controller has it.
    fn replicas(&self) -> Option<ferromq_protocol::body::ReplicasInfo> {
        self.controllers.iter().find_map(|controller| {
            let question = RemotingCommand::request(request::CONTROLLER_GET_SYNC_STATE_DATA)
                .with_body(json::to_vec(&[SET]));
            let answer = Client::connect(controller.address()).call(question);
            let table: BrokerReplicasInfo = if answer.code == response::SUCCESS {
                json::from_slice(&answer.body).ok()?
            } else {
                return None;
            };
            table.replicas_info_table.get(SET).cloned()
        })
    }

    fn knows(&self, id: i64) -> bool {
        self.replicas().is_some_and(|set| {
            set.in_sync_replicas
                .iter()
                .chain(&set.not_in_sync_replicas)
                .any(|replica| replica.broker_id == id)
        })
    }

    fn await_in_sync(&self, count: usize) {
        await_that("all replicas are in sync", || {
            self.replicas().is_some_and(|set| set.in_sync_replicas.len() == count)
        });
    }

    fn master(&self) -> Option<i64> {
        self.replicas()?.master_broker_id
    }

    fn epoch(&self) -> i32 {
        self.replicas().map_or(0, |set| set.master_epoch)
    }

    fn signal_controllers(&self, signal: &str) {
        for controller in &self.controllers {
            let sent = Command::new("kill").args([signal, &controller.id().to_string()]).status();
            assert!(sent.expect("kill").success());
        }
    }
}

fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends until so many are acknowledged; then the master is killed with others under way.
fn send_until_killed(
    cluster: &mut Cluster,
    master: i64,
    round: usize,
    wanted: usize,
    acknowledged: &mut BTreeMap<i64, String>,
) {
    const PIPELINE: usize = 32;
    let mut client = cluster.broker(master);
    let mut under_way = BTreeMap::new();
    let (mut number, before) = (0, acknowledged.len());
    while acknowledged.len() < before + wanted {
        let mut bytes = Vec::new();
        while under_way.len() < PIPELINE {
            let body = format!("{round}-{number}-{}", "x".repeat(number % 700));
            let opaque = client.encode(send(TOPIC, 0, body.clone()), &mut bytes);
            under_way.insert(opaque, body);
            number += 1;
        }
        client.write(&bytes).expect("the sends are written");
        let answer = client.response().expect("the master keeps the connection");
        let body = under_way.remove(&answer.opaque).expect("an answer to a send");
        match answer.code {
            response::SUCCESS => {
                acknowledged.insert(answer.number("queueOffset").expect("queueOffset"), body);
            }
            response::FLUSH_SLAVE_TIMEOUT => {}
            code => panic!("{code}: {answer:?}"),
        }
    }
    cluster.brokers[master as usize - 1].take().expect("it runs").kill();
}

fn nothing_acknowledged_is_lost(brokers: usize, settings: &[(&str, &str)], rounds: usize) {
    let mut cluster = Cluster::start(brokers, settings);
    cluster.await_in_sync(brokers);
    let first = cluster.master().expect("there is a master");
    create_topic(&mut cluster.broker(first), TOPIC, 1);
    for id in 1..=brokers as i64 {
        let mut client = cluster.broker(id);
        await_that("the broker knows the topic", || {
            client.call(pull("test-reader", TOPIC, 0, 0)).code != response::TOPIC_NOT_EXIST
        });
    }
    let mut acknowledged = BTreeMap::new();
    for round in 0..rounds {
        cluster.await_in_sync(brokers);
        let killed = cluster.master().expect("there is a master");
        send_until_killed(&mut cluster, killed, round, 300, &mut acknowledged);
        await_that("another master", || cluster.master().is_some_and(|master| master != killed));
        let master = cluster.master().expect("there is a master");
        let mut client = cluster.broker(master);
        await_that("the new master takes messages", || {
            client.call(send(TOPIC, 0, "taken")).code == response::SUCCESS
        });
        let stored = read_queue(&mut client, TOPIC, 0, 0);
        for (offset, body) in &acknowledged {
            let found = stored.get(*offset as usize).map(|message| &message.body);
            assert_eq!(found, Some(body), "round {round}: acknowledged at {offset}");
        }
        let bodies: HashSet<_> =
            stored.iter().map(|message| &message.body).filter(|body| *body != "taken").collect();
        let taken = stored.iter().filter(|message| message.body == "taken").count();
        assert_eq!(bodies.len() + taken, stored.len(), "round {round}: a message is there twice");
        cluster.start_broker(killed);
    }
    // Who came back has the same messages.
    cluster.await_in_sync(brokers);
    let expected = read_queue(&mut cluster.broker(cluster.master().expect("there is a master")), TOPIC, 0, 0);
    for id in 1..=brokers as i64 {
        let mut client = cluster.broker(id);
        await_that("all replicas show the same", || read_queue(&mut client, TOPIC, 0, 0) == expected);
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_default_settings() {
    nothing_acknowledged_is_lost(2, &[], 3);
}

#[test]
fn nothing_acknowledged_is_lost_when_two_of_three_have_to_have_it() {
    nothing_acknowledged_is_lost(3, &[("inSyncReplicas", "2"), ("minInSyncReplicas", "2")], 3);
}

/// Nobody but the messages tells the next master of it.
#[test]
fn a_topic_outlives_the_master_that_has_just_made_it() {
    let mut cluster = Cluster::start(2, &[("autoCreateTopicEnable", "false")]);
    cluster.await_in_sync(2);
    let killed = cluster.master().expect("there is a master");
    let mut client = cluster.broker(killed);
    create_topic(&mut client, TOPIC, 3);
    let acknowledged = client.call(send(TOPIC, 2, "kept"));
    assert_eq!(acknowledged.code, response::SUCCESS, "{acknowledged:?}");
    cluster.brokers[killed as usize - 1].take().expect("it runs").kill();

    await_that("another master", || cluster.master().is_some_and(|master| master != killed));
    let mut client = cluster.broker(cluster.master().expect("there is a master"));
    await_that("the new master takes messages", || {
        client.call(send(TOPIC, 2, "taken")).code == response::SUCCESS
    });
    let stored = read_queue(&mut client, TOPIC, 2, 0);
    let bodies: Vec<_> = stored.iter().map(|message| message.body.as_str()).collect();
    assert_eq!(bodies, ["kept", "taken"]);
}

/// The controllers do not notice that it was away, and the slave has what it lost.
#[test]
fn a_master_that_lost_the_end_of_its_log_does_not_go_on_in_its_epoch() {
    let mut cluster = Cluster::start(2, &[]);
    cluster.await_in_sync(2);
    let (master, epoch) = (cluster.master().expect("there is a master"), cluster.epoch());
    create_topic(&mut cluster.broker(master), TOPIC, 1);
    let mut client = cluster.broker(master);
    for number in 0..300 {
        let answer = client.call(send(TOPIC, 0, format!("{number}-{}", "x".repeat(number % 700))));
        assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
    }
    let acknowledged = read_queue(&mut client, TOPIC, 0, 0);
    assert_eq!(acknowledged.len(), 300);

    cluster.signal_controllers("-STOP");
    cluster.brokers[master as usize - 1].take().expect("it runs").kill();
    lose_end_of_log(&cluster.places[master as usize - 1].store());
    cluster.start_broker(master);
    cluster.signal_controllers("-CONT");
    await_that("an epoch is newer", || cluster.epoch() > epoch);
    let mut seen = cluster.broker(cluster.master().expect("there is a master"));
    await_that("the master takes messages", || seen.call(send(TOPIC, 0, "taken")).code == response::SUCCESS);
    cluster.await_in_sync(2);
    for id in 1..=2 {
        let mut client = cluster.broker(id);
        await_that("every replica has everything", || {
            read_queue(&mut client, TOPIC, 0, 0).get(..300) == Some(&acknowledged[..])
        });
    }
}

/// What a power cut can do to a log that was not flushed.
fn lose_end_of_log(store: &Path) {
    let files = fs::read_dir(store.join("commitlog")).expect("the log");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let last = files.iter().rfind(|file| fs::read(file).expect("a file").iter().any(|byte| *byte != 0));
    let file = last.expect("there are messages");
    let mut bytes = fs::read(file).expect("a log file");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("there are messages");
    bytes[end / 2..].fill(0);
    fs::write(file, bytes).expect("the file is written");
    fs::remove_file(store.join("ferromq.marks")).expect("the marks are gone");
}
