//! Peers that send nonsense, while others work on and notice nothing.

mod support;

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferromq_protocol::code::response;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;

use support::client::{Arrival, Client};
use support::messages::{create_topic, pull, read_queue, send};
use support::server::{self, BrokerPlace, Process};

const TOPIC: &str = "Worked";
const SEED: u64 = 20_250_917;
const HOSTILE_CONNECTIONS: usize = 1500;
const HOSTILE_FRAMES_MAX: usize = 8;

#[test]
fn nonsense_ends_its_own_connection_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
    let place = BrokerPlace::new(&directory.path().join("broker"), namesrv.address(), &[]);
    let broker = place.start();
    create_topic(&mut Client::connect(broker.address()), TOPIC, 2);

    let done = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|queue| {
                scope.spawn({
                    let (done, address) = (&done, broker.address());
                    move || work(address, queue, done)
                })
            })
            .collect();
        let mut chance = Chance(SEED);
        let (mut waited, mut closed) = (0, 0);
        for round in 0..HOSTILE_CONNECTIONS {
            let address = if round % 4 == 0 { namesrv.address() } else { broker.address() };
            let mut client = annoy(address, &mut chance);
            // Some wait for their end, so that what they sent is judged and not only received.
            if chance.below(8) == 0 {
                waited += 1;
                closed += usize::from(is_closed(&mut client));
            }
        }
        // The others made the server wait for bytes that never come, or were by chance harmless.
        assert!(closed * 3 > waited, "{closed} of {waited} hostile connections were closed");
        done.store(true, Ordering::Relaxed);
        let sent = workers.into_iter().map(|worker| worker.join().expect("a worker that was not disturbed"));
        sent.collect::<Vec<_>>()
    });

    let mut client = Client::connect(broker.address());
    for (queue, sent) in sent.into_iter().enumerate() {
        let bodies: Vec<_> =
            read_queue(&mut client, TOPIC, queue as i32, 0).into_iter().map(|it| it.body).collect();
        assert!(sent > 0 && bodies == (0..sent).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn announced_bytes_take_no_memory_until_they_come() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
    let place = BrokerPlace::new(&directory.path().join("broker"), namesrv.address(), &[]);
    let broker = place.start();
    for server in [&namesrv, &broker] {
        let before = anonymous_bytes(server);
        let mut connections = Vec::new();
        for _ in 0..200 {
            let mut client = Client::connect(server.address());
            let mut start = 16_777_212_u32.to_be_bytes().to_vec();
            start.extend_from_slice(&[0, 0xff, 0xff, 0xf0]);
            start.extend_from_slice(&[b' '; 64]);
            client.write(&start).expect("the start of a frame");
            connections.push(client);
        }
        let mut witness = Client::connect(server.address());
        for _ in 0..50 {
            witness.call(RemotingCommand::request(9999));
            let grown = anonymous_bytes(server).saturating_sub(before);
            assert!(grown < 32 << 20, "{grown} bytes for 200 frames that only began");
        }
    }
}

/// Sends and reads without a pause; every request has to be answered as always.
fn work(address: SocketAddr, queue: i32, done: &AtomicBool) -> i64 {
    let mut client = Client::connect(address);
    let mut sent = 0;
    while !done.load(Ordering::Relaxed) {
        let answer = client.call(send(TOPIC, queue, sent.to_string()));
        assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
        let answer = client.call(pull("workers", TOPIC, queue, sent));
        assert_eq!(answer.code, response::SUCCESS, "{answer:?}");
        sent += 1;
    }
    sent
}

/// One hostile connection: good frames that were damaged.
fn annoy(address: SocketAddr, chance: &mut Chance) -> Client {
    let mut client = Client::connect(address);
    for _ in 0..=chance.below(HOSTILE_FRAMES_MAX) {
        if client.write(&damaged_frame(chance)).is_err() {
            break;
        }
    }
    client
}

/// Whether the server ends the connection; answers are passed over.
fn is_closed(client: &mut Client) -> bool {
    loop {
        match client.read(Instant::now() + Duration::from_millis(30)) {
            Arrival::Frame(_) => {}
            Arrival::Closed => return true,
            Arrival::Nothing => return false,
        }
    }
}

fn damaged_frame(chance: &mut Chance) -> Vec<u8> {
    let requests = [
        send(TOPIC_OF_NOBODY, 0, "body"),
        pull("nobody", TOPIC_OF_NOBODY, 0, 0),
        RemotingCommand::request(105).with("topic", "T"),
    ];
    let encoding = if chance.below(2) == 0 { HeaderEncoding::Json } else { HeaderEncoding::Binary };
    let mut bytes = Vec::new();
    requests[chance.below(requests.len())].encode(encoding, &mut bytes);
    let at = chance.below(bytes.len());
    match chance.below(6) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << chance.below(8),
        2 => bytes[chance.below(8)] = chance.next() as u8,
        3 => bytes
            .splice(at..at, (0..chance.below(64)).map(|_| chance.next() as u8).collect::<Vec<_>>())
            .for_each(drop),
        4 => bytes[8..].iter_mut().for_each(|byte| *byte = chance.next() as u8),
        _ => bytes = (0..chance.below(4096)).map(|_| chance.next() as u8).collect(),
    }
    bytes
}

/// The damage must not hit the workers' topic, not even by a frame that is still whole.
const TOPIC_OF_NOBODY: &str = "Nobodys";

/// Numbers that look like chance and are the same in every run (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Memory of a process that is not a mapped file.
fn anonymous_bytes(server: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).expect("the process's status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kibibytes * 1024
}
