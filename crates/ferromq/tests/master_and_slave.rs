//! A master and a slave as processes, which are killed again and again: what a synchronous master acknowledged is at the slave, and
//! each goes on where it was.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;

use support::client::Client;
use support::messages::{create_topic, pull, read_queue, send};
use support::server::{self, BrokerPlace, Process};

const TOPIC: &str = "Copied";
const PATIENCE: Duration = Duration::from_secs(60);
/// Small files, so that every round crosses some file ends.
const SMALL_FILES: [(&str, &str); 3] =
    [("mappedFileSizeCommitLog", "262144"), ("maxHashSlotNum", "1000"), ("maxIndexNum", "4000")];

/// A broker set and its name server.
struct Set {
    master: BrokerPlace,
    slave: BrokerPlace,
    _namesrv: Process,
    _directory: tempfile::TempDir,
}

impl Set {
    fn new(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
        let place = |name: &str, own: &[(&str, &str)]| {
            let settings = [&SMALL_FILES[..], settings, own].concat();
            BrokerPlace::new(&directory.path().join(name), namesrv.address(), &settings)
        };
        let slave = [("brokerRole", "SLAVE"), ("brokerId", "1"), ("slaveReadEnable", "true")];
        Set {
            master: place("master", &[]),
            slave: place("slave", &slave),
            _namesrv: namesrv,
            _directory: directory,
        }
    }
}

fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn max_offset(client: &mut Client) -> i64 {
    let end = RemotingCommand::request(request::GET_MAX_OFFSET).with("topic", TOPIC).with("queueId", 0);
    client.call(end).number("offset").expect("offset")
}

/// Waits until the slave knows the topic, which it copies beside the log.
fn await_topic(slave: &mut Client) {
    await_that("the slave knows the topic", || {
        slave.call(pull("test-reader", TOPIC, 0, 0)).code != response::TOPIC_NOT_EXIST
    });
}

/// Sends until so many are acknowledged; then the master is killed with others under way. Returns what was acknowledged by offset.
fn send_until_killed(master: &mut Process, round: usize, wanted: usize) -> BTreeMap<i64, String> {
    const PIPELINE: usize = 32;
    let mut client = Client::connect(master.address());
    let mut sent = BTreeMap::new();
    let mut acknowledged = BTreeMap::new();
    let mut number = 0;
    while acknowledged.len() < wanted {
        let mut bytes = Vec::new();
        while sent.len() < PIPELINE {
            let body = format!("{round}-{number}-{}", "x".repeat(number % 700));
            let opaque = client.encode(send(TOPIC, 0, body.clone()), &mut bytes);
            sent.insert(opaque, body);
            number += 1;
        }
        client.write(&bytes).expect("the sends are written");
        let answer = client.response().expect("the master keeps the connection");
        let body = sent.remove(&answer.opaque).expect("an answer to a send");
        if answer.code == response::SUCCESS {
            acknowledged.insert(answer.number("queueOffset").expect("queueOffset"), body);
        } else {
            assert_eq!(answer.code, response::FLUSH_SLAVE_TIMEOUT, "{answer:?}");
        }
    }
    master.kill();
    acknowledged
}

#[test]
fn what_a_synchronous_master_acknowledged_is_at_the_slave_when_the_master_is_killed() {
    let set = Set::new(&[("brokerRole", "SYNC_MASTER"), ("inSyncReplicas", "2"), ("totalReplicas", "2")]);
    let mut acknowledged = BTreeMap::new();
    let mut slave = set.slave.start();
    for round in 0..4 {
        let mut master = set.master.start();
        if round == 0 {
            create_topic(&mut Client::connect(master.address()), TOPIC, 1);
            await_topic(&mut Client::connect(slave.address()));
        }
        acknowledged.extend(send_until_killed(&mut master, round, 300));
        let mut client = Client::connect(slave.address());
        // What is in the queues is dispatched by the pull itself.
        let copied = read_queue(&mut client, TOPIC, 0, 0);
        for (offset, body) in &acknowledged {
            let copy = copied.get(*offset as usize).map(|message| &message.body);
            assert_eq!(copy, Some(body), "acknowledged at {offset}");
        }
        if round % 2 == 1 {
            slave.kill();
            slave = set.slave.start();
        }
    }
}

#[test]
fn a_slave_that_is_killed_again_and_again_catches_up_and_has_the_masters_bytes() {
    let set = Set::new(&[]);
    let master = set.master.start();
    let mut client = Client::connect(master.address());
    create_topic(&mut client, TOPIC, 1);
    let mut slave = set.slave.start();
    for round in 0..4 {
        let mut bytes = Vec::new();
        for number in 0..500 {
            client.encode(send(TOPIC, 0, format!("{round}-{number}")), &mut bytes);
        }
        client.write(&bytes).expect("the sends are written");
        if round > 0 {
            slave.kill();
            slave = set.slave.start();
        }
        for _ in 0..500 {
            assert_eq!(client.response().expect("an answer").code, response::SUCCESS);
        }
    }
    let mut of_slave = Client::connect(slave.address());
    await_that("the slave has everything", || max_offset(&mut of_slave) == 2000);
    await_topic(&mut of_slave);
    assert_eq!(read_queue(&mut of_slave, TOPIC, 0, 0), read_queue(&mut client, TOPIC, 0, 0));
    let log = |place: &BrokerPlace| log_files(&place.store().join("commitlog"));
    assert!(log(&set.slave) == log(&set.master), "the logs differ");
}

fn log_files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(directory).expect("the log's directory").map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read(path).expect("a log file"))
    });
    files.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)).collect()
}
