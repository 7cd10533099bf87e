//! The process dies in the middle of its work, again and again: nothing that was acknowledged is lost, moved or doubled.

mod support;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;

use support::client::Client;
use support::messages::{self, Stored, create_topic, read_queue};
use support::server::{self, BrokerPlace, Process};

const TOPIC: &str = "Killed";
const GROUP: &str = "killed-group";
const QUEUES: i32 = 4;
const CONNECTIONS: usize = 3;
/// Sends that a connection has under way.
const PIPELINE: usize = 32;

/// Small files, so that every round crosses some file ends.
const SETTINGS: [(&str, &str); 5] = [
    ("mappedFileSizeCommitLog", "1048576"),
    ("mappedFileSizeConsumeQueue", "20000"),
    ("maxHashSlotNum", "1000"),
    ("maxIndexNum", "4000"),
    ("flushConsumerOffsetInterval", "100"),
];

#[test]
fn nothing_acknowledged_is_lost_when_the_broker_is_killed_20_times() {
    Ordeal::new(&[("flushDiskType", "ASYNC_FLUSH")]).run(20, 300..3000);
}

#[test]
fn nothing_acknowledged_is_lost_when_a_broker_that_flushes_first_is_killed() {
    Ordeal::new(&[("flushDiskType", "SYNC_FLUSH")]).run(5, 50..300);
}

/// Their progress is saved every ten seconds; the log tells what was delivered since.
#[test]
fn delayed_messages_come_once_although_the_broker_is_killed_while_it_delivers() {
    const DELAYED: usize = 2500;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
    let place = BrokerPlace::new(&directory.path().join("broker"), namesrv.address(), &SETTINGS);
    let mut broker = place.start();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client, TOPIC, 1);

    let mut bytes = Vec::new();
    for number in 0..DELAYED {
        client.encode(messages::send_delayed(TOPIC, 0, 1, number.to_string()), &mut bytes);
    }
    client.write(&bytes).expect("the sends are written");
    for _ in 0..DELAYED {
        let answer = client.response().expect("the server keeps the connection");
        assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
    }
    await_messages(&mut client, 1);
    broker.kill();

    let mut broker = place.start();
    let mut client = Client::connect(broker.address());
    await_messages(&mut client, DELAYED);
    broker.kill();

    // What is sent last is delivered last.
    let broker = place.start();
    let mut client = Client::connect(broker.address());
    client.call(messages::send_delayed(TOPIC, 0, 1, "last"));
    await_messages(&mut client, DELAYED + 1);
    let bodies: Vec<_> =
        read_queue(&mut client, TOPIC, 0, 0).into_iter().map(|message| message.body).collect();
    let sent: Vec<_> = (0..DELAYED).map(|number| number.to_string()).chain(["last".to_owned()]).collect();
    assert!(bodies == sent, "{} messages of {} come, in their order", bodies.len(), sent.len());
}

fn await_messages(client: &mut Client, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let end = || RemotingCommand::request(request::GET_MAX_OFFSET).with("topic", TOPIC).with("queueId", 0);
    while client.call(end()).number::<i64>("offset").expect("offset") < count as i64 {
        assert!(Instant::now() < deadline, "{count} messages don't come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// One store, its broker, and what is known about its messages.
struct Ordeal {
    place: BrokerPlace,
    _namesrv: Process,
    _directory: tempfile::TempDir,
    /// What was read, per queue; position is offset.
    read: Vec<Vec<String>>,
    /// Every body that was read, to see it only once.
    bodies: HashSet<String>,
    acknowledged: BTreeMap<(i32, i64), String>,
}

impl Ordeal {
    fn new(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
        let settings = [&SETTINGS[..], settings].concat();
        let place = BrokerPlace::new(&directory.path().join("broker"), namesrv.address(), &settings);
        let read = vec![Vec::new(); QUEUES as usize];
        Self {
            _directory: directory,
            place,
            _namesrv: namesrv,
            read,
            bodies: HashSet::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    fn run(mut self, kills: u64, acknowledgements: std::ops::Range<u64>) {
        let mut committed = None;
        for round in 0..kills {
            let mut broker = self.place.start();
            let mut client = Client::connect(broker.address());
            if round == 0 {
                create_topic(&mut client, TOPIC, QUEUES);
            }
            self.read_on(&mut client);
            assert_eq!(query_offset(&mut client), committed, "the persisted progress after kill {round}");
            committed = Some(self.read[0].len() as i64);
            commit_offset(&mut client, self.read[0].len() as i64);
            await_persisted_offset(&self.place, self.read[0].len() as i64);

            let span = acknowledgements.end - acknowledgements.start;
            let target = acknowledgements.start + scrambled(round) % span;
            self.send_and_kill(&mut broker, round, target as usize);
            // Every other time it is killed once more, while it recovers.
            if round % 2 == 1 {
                let mut recovering = self.place.begin_to_start();
                thread::sleep(Duration::from_millis(scrambled(round) % 80));
                recovering.kill();
            }
        }
        self.restart_cleanly(committed);
    }

    /// Sends on several connections and kills the broker when it has acknowledged `target` messages.
    fn send_and_kill(&mut self, broker: &mut Process, round: u64, target: usize) {
        let (acknowledge, acknowledgements) = mpsc::channel();
        let senders: Vec<_> = (0..CONNECTIONS)
            .map(|connection| {
                let (client, acknowledge) = (Client::connect(broker.address()), acknowledge.clone());
                thread::spawn(move || {
                    send_until_the_end(client, &format!("{round}-{connection}"), &acknowledge)
                })
            })
            .collect();
        drop(acknowledge);
        for (count, (place, body)) in acknowledgements.into_iter().enumerate() {
            if count == target {
                broker.kill();
            }
            let before = self.acknowledged.insert(place, body);
            assert_eq!(before, None, "queue and offset {place:?} are given once");
        }
        for sender in senders {
            sender.join().expect("a sender that only ends with its connection");
        }
    }

    /// Reads what was added to the queues and compares it with what was acknowledged.
    fn read_on(&mut self, client: &mut Client) {
        for queue in 0..QUEUES {
            let known = &mut self.read[queue as usize];
            let from = known.len() as i64;
            for Stored { offset, body } in read_queue(client, TOPIC, queue, from) {
                if let Some(acknowledged) = self.acknowledged.get(&(queue, offset)) {
                    assert_eq!(
                        &body, acknowledged,
                        "queue {queue} at {offset} holds what was acknowledged there"
                    );
                }
                assert!(
                    self.bodies.insert(body.clone()),
                    "{body} is stored twice, the second time in queue {queue} at {offset}"
                );
                known.push(body);
            }
        }
        for (queue, offset) in self.acknowledged.keys() {
            let end = self.read[*queue as usize].len() as i64;
            assert!(*offset < end, "queue {queue} ends at {end}, but {offset} was acknowledged");
        }
    }

    /// A clean end and a new start are quick, and everything is where it was.
    fn restart_cleanly(&mut self, committed: Option<i64>) {
        let mut broker = self.place.start();
        self.read_on(&mut Client::connect(broker.address()));
        let begin = Instant::now();
        let status = broker.terminate(Duration::from_secs(20));
        assert!(status.success(), "a clean end, not {status}");
        let stopped = begin.elapsed();
        let broker = self.place.start();
        let mut client = Client::connect(broker.address());
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "stopped after {stopped:?}, restarted after {:?}",
            begin.elapsed()
        );
        for (queue, known) in self.read.iter().enumerate() {
            let bodies =
                read_queue(&mut client, TOPIC, queue as i32, 0).into_iter().map(|message| message.body);
            assert!(bodies.eq(known.iter().cloned()), "queue {queue} is as it was");
        }
        assert_eq!(query_offset(&mut client), committed, "the progress after a clean end");
        println!(
            "{} messages acknowledged, {} found; stopped after {stopped:?}, ready again after {:?}",
            self.acknowledged.len(),
            self.bodies.len(),
            begin.elapsed(),
        );
    }
}

/// Keeps [`PIPELINE`] sends under way until the connection ends; tells where each acknowledged body is.
fn send_until_the_end(mut client: Client, name: &str, acknowledge: &mpsc::Sender<((i32, i64), String)>) {
    let mut under_way = HashMap::new();
    let mut bytes = Vec::new();
    for number in 0.. {
        let body = format!("{name}-{number}-{}", "x".repeat(number % 7 * 50));
        let opaque = client.encode(messages::send(TOPIC, number as i32 % QUEUES, body.as_str()), &mut bytes);
        under_way.insert(opaque, body);
        if under_way.len() < PIPELINE {
            continue;
        }
        if client.write(&std::mem::take(&mut bytes)).is_err() {
            return;
        }
        // What is answered together makes room for as many sends in the next write.
        while under_way.len() > PIPELINE / 2 {
            let Some(answer) = client.response() else { return };
            assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
            let body = under_way.remove(&answer.opaque).expect("an answer to a request that is under way");
            let place = (
                answer.number("queueId").expect("queueId"),
                answer.number("queueOffset").expect("queueOffset"),
            );
            if acknowledge.send((place, body)).is_err() {
                return;
            }
        }
    }
}

fn commit_offset(client: &mut Client, offset: i64) {
    let answer = client.call(
        RemotingCommand::request(request::UPDATE_CONSUMER_OFFSET)
            .with("consumerGroup", GROUP)
            .with("topic", TOPIC)
            .with("queueId", 0)
            .with("commitOffset", offset),
    );
    assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
}

fn query_offset(client: &mut Client) -> Option<i64> {
    // Makes the group known, like any pull.
    client.call(messages::pull(GROUP, TOPIC, 0, 0));
    let answer = client.call(
        RemotingCommand::request(request::QUERY_CONSUMER_OFFSET)
            .with("consumerGroup", GROUP)
            .with("topic", TOPIC)
            .with("queueId", 0)
            .with("setZeroIfNotFound", false),
    );
    (answer.code == response::SUCCESS).then(|| answer.number("offset").expect("offset"))
}

/// Progress is written some time after it was committed, and has to survive from then on.
fn await_persisted_offset(place: &BrokerPlace, offset: i64) {
    let file = place.store().join("config/consumerOffset.json");
    let deadline = Instant::now() + Duration::from_secs(15);
    let entry = format!("\"{TOPIC}@{GROUP}\":{{0:{offset}");
    while !without_blanks(&file).contains(&entry) {
        assert!(Instant::now() < deadline, "{entry} does not come into {}", file.display());
        thread::sleep(Duration::from_millis(5));
    }
}

fn without_blanks(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().collect()
}

/// A number that looks like chance and is the same in every run.
fn scrambled(round: u64) -> u64 {
    (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33
}
