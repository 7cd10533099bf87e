//! Master and slave over sockets: with each other, with what the real ones sent, and with nonsense.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::message::RecordFields;
use ferromq_replication::ReplicaLog;
use ferromq_replication::SlaveState;
use ferromq_replication::classic::wire::{FrameHeader, HEADER_LEN, encode_report};
use ferromq_replication::classic::{HaMaster, HaSettings, HaSlave};
use ferromq_store::{DiskUsageSource, Store, StoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const FILE: u32 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

fn options(root: &Path, follower: bool) -> StoreOptions {
    StoreOptions {
        commit_log_file_size: FILE,
        disk_usage: DiskUsageSource::Fixed(|_| Some(10)),
        delete_when_hours: Vec::new(),
        follower,
        ..StoreOptions::new(root)
    }
}

fn settings() -> HaSettings {
    HaSettings {
        heartbeat_interval: Duration::from_millis(200),
        reconnect_pause: Duration::from_millis(50),
        ..HaSettings::default()
    }
}

struct Master {
    store: Arc<Store>,
    ha: HaMaster,
    _root: tempfile::TempDir,
}

impl Master {
    async fn start(messages: usize) -> Master {
        Self::start_with(messages, settings()).await
    }

    async fn start_with(messages: usize, settings: HaSettings) -> Master {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(options(root.path(), false)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ha = HaMaster::start(store.clone(), listener, settings).unwrap();
        let master = Master { store, ha, _root: root };
        master.send(messages);
        master
    }

    fn send(&self, messages: usize) {
        send(&self.store, messages);
    }

    fn address(&self) -> String {
        self.ha.address().to_string()
    }

    async fn connect(&self) -> Peer {
        Peer(TcpStream::connect(self.ha.address()).await.unwrap())
    }

    fn end(&self) -> u64 {
        self.store.appended().get()
    }
}

fn send(store: &Store, messages: usize) {
    let queue = store.queue("T", 0);
    let mut batch = store.new_batch();
    for number in 0..messages {
        let body = vec![b'a' + (number % 26) as u8; 50 + number % 300];
        batch.push(&queue, &RecordFields::new("T", 0, "10.0.0.1:1".parse().unwrap(), &body)).unwrap();
    }
    store.append(&mut batch).unwrap();
}

fn bytes(store: &Store) -> (u64, Vec<u8>) {
    let bounds = store.bounds();
    let mut bytes = Vec::new();
    while bounds.begin + (bytes.len() as u64) < bounds.end {
        bytes.extend_from_slice(&store.read_log(bounds.begin + bytes.len() as u64, 1 << 20).unwrap());
    }
    (bounds.begin, bytes)
}

struct Slave {
    store: Arc<Store>,
    ha: HaSlave,
}

impl Slave {
    fn start(root: &Path, master: &str, first: Option<u64>) -> Slave {
        let store = Store::open(options(root, true)).unwrap();
        let first = Box::new(move || Box::pin(async move { first }) as _);
        let ha = HaSlave::start(store.clone(), settings(), first);
        ha.set_master(Some(master.to_owned()));
        Slave { store, ha }
    }

    async fn reach(&self, end: u64) {
        let reached = timeout(PATIENCE, self.store.appended().wait(end)).await;
        assert!(reached.is_ok(), "at {} of {end}: {:?}", self.store.appended().get(), self.ha.status());
    }

    /// Waits for trouble that says `part`.
    async fn trouble(&self, part: &str) -> String {
        let found = async {
            loop {
                let trouble = self.ha.status().trouble.unwrap_or_default();
                if trouble.contains(part) {
                    return trouble;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let status = || format!("{:?}", self.ha.status());
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no `{part}`: {}", status()))
    }
}

/// The other side of a connection, byte for byte.
struct Peer(TcpStream);

impl Peer {
    async fn report(&mut self, offset: i64) {
        self.0.write_all(&encode_report(offset as u64)).await.unwrap();
    }

    /// The next frame; `None` when the connection is closed.
    async fn frame(&mut self) -> Option<(i64, Vec<u8>)> {
        let mut header = [0; HEADER_LEN];
        timeout(PATIENCE, self.0.read_exact(&mut header)).await.expect("no frame").ok()?;
        let header = FrameHeader::peek(&header).unwrap();
        let mut body = vec![0; header.len as usize];
        self.0.read_exact(&mut body).await.ok()?;
        Some((header.offset, body))
    }

    async fn is_closed(&mut self) -> bool {
        timeout(PATIENCE, async { while self.frame().await.is_some() {} }).await.is_ok()
    }

    async fn send(&mut self, offset: i64, len: i32, body: &[u8]) {
        self.0.write_all(&FrameHeader { offset, len }.encode()).await.unwrap();
        self.0.write_all(body).await.unwrap();
    }

    /// The next report of a slave.
    async fn next_report(&mut self) -> i64 {
        timeout(PATIENCE, self.0.read_i64()).await.expect("no report").unwrap()
    }
}

#[tokio::test]
async fn a_slave_copies_the_whole_log_and_what_comes() {
    let master = Master::start(2000).await;
    let root = tempfile::tempdir().unwrap();
    let slave = Slave::start(root.path(), &master.address(), Some(0));
    slave.reach(master.end()).await;
    for _ in 0..20 {
        master.send(50);
        slave.reach(master.end()).await;
    }
    assert_eq!(bytes(&slave.store), bytes(&master.store));
    timeout(PATIENCE, master.ha.replicated(master.end(), 2)).await.unwrap();
    assert_eq!((master.ha.in_sync(), master.ha.slaves().len()), (1, 1));
    slave.store.dispatch_to_confirmed();
    assert_eq!(slave.store.queue("T", 0).max_offset(), 3000);
    assert_eq!(slave.ha.status().state, SlaveState::Transfer);
}

#[tokio::test]
async fn a_slave_that_does_not_know_the_masters_begin_starts_with_its_last_file() {
    let master = Master::start(2000).await;
    let root = tempfile::tempdir().unwrap();
    let slave = Slave::start(root.path(), &master.address(), None);
    slave.reach(master.end()).await;
    assert_eq!(slave.store.min_offset(), master.end() - master.end() % u64::from(FILE));
    assert!(bytes(&master.store).1.ends_with(&bytes(&slave.store).1));
}

#[tokio::test]
async fn a_slave_goes_on_where_its_log_ends() {
    let master = Master::start(1000).await;
    let root = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let slave = Slave::start(root.path(), &master.address(), Some(0));
        slave.reach(master.end()).await;
        slave.ha.stop().await;
        if round == 1 {
            slave.store.shutdown();
        }
        drop(slave);
        master.send(700);
    }
    let slave = Slave::start(root.path(), &master.address(), Some(0));
    slave.reach(master.end()).await;
    assert_eq!(bytes(&slave.store), bytes(&master.store));
}

#[tokio::test]
async fn a_master_that_comes_later_and_elsewhere_is_found() {
    let root = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let slave = Slave::start(root.path(), &gone.to_string(), Some(0));
    slave.trouble("can't connect").await;
    let master = Master::start(100).await;
    slave.ha.set_master(Some(master.address()));
    slave.reach(master.end()).await;
    assert_eq!(slave.ha.status().trouble, None);
}

#[tokio::test]
async fn a_slave_with_another_log_is_refused_and_keeps_it() {
    let (one, other) = (Master::start(300).await, Master::start(0).await);
    let root = tempfile::tempdir().unwrap();
    let slave = Slave::start(root.path(), &one.address(), Some(0));
    slave.reach(one.end()).await;
    // The same messages, stored at another time: as after a master lost its last ones and got new ones.
    tokio::time::sleep(Duration::from_millis(5)).await;
    other.send(400);
    let before = bytes(&slave.store);
    slave.ha.set_master(Some(other.address()));
    let trouble = slave.trouble("differs from the master's").await;
    assert!(trouble.contains("empty storePathRootDir"), "{trouble}");
    assert_eq!(bytes(&slave.store), before);
}

#[tokio::test]
async fn a_slave_that_has_more_is_refused_by_our_master_and_notices_a_java_master() {
    let (one, other) = (Master::start(300).await, Master::start(10).await);
    let root = tempfile::tempdir().unwrap();
    let slave = Slave::start(root.path(), &one.address(), Some(0));
    slave.reach(one.end()).await;
    let before = bytes(&slave.store);
    slave.ha.set_master(Some(other.address()));
    slave.trouble("the master closed the connection").await;
    assert_eq!(other.ha.replicated_to(2), 0, "nothing is acknowledged by it");
    // A Java master has nothing there, and sends heartbeats.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    slave.ha.set_master(Some(listener.local_addr().unwrap().to_string()));
    let mut java = Peer(listener.accept().await.unwrap().0);
    let asked = java.next_report().await;
    java.send(asked, 0, b"").await;
    java.send(asked, 0, b"").await;
    let trouble = slave.trouble("the master has nothing at").await;
    assert!(trouble.contains("empty storePathRootDir"), "{trouble}");
    assert_eq!(bytes(&slave.store), before);
}

/// `docs/spec/05-ha.md` §2.3, and what we do not believe.
#[tokio::test]
async fn odd_reports() {
    let master = Master::start(2000).await;
    let (end, last_file) = (master.end() as i64, (master.end() - master.end() % u64::from(FILE)) as i64);
    // In the middle of a record: from exactly that byte.
    let mut peer = master.connect().await;
    peer.report(100).await;
    let (offset, body) = peer.frame().await.unwrap();
    assert_eq!((offset, &body[..]), (100, &bytes(&master.store).1[100..100 + body.len()]));
    // 0: the last file.
    let mut peer = master.connect().await;
    peer.report(0).await;
    assert_eq!(peer.frame().await.unwrap().0, last_file);
    // -1 is none yet, and a report comes in pieces.
    let mut peer = master.connect().await;
    peer.report(-1).await;
    let report = encode_report(end as u64 - 10);
    peer.0.write_all(&report[..5]).await.unwrap();
    peer.0.write_all(&report[5..]).await.unwrap();
    assert_eq!(peer.frame().await.unwrap().0, end - 10);
    peer.report(end).await;
    assert_eq!(peer.frame().await.unwrap(), (end, Vec::new()), "a heartbeat");
    timeout(PATIENCE, master.ha.replicated(end as u64, 2)).await.unwrap();
    // Refused: negative, beyond the end, below the one before, beyond what was sent.
    for reports in
        [&[-2][..], &[i64::MIN], &[end + 1], &[i64::MAX], &[end, end - 1], &[100, i64::MAX], &[100, -5]]
    {
        let mut peer = master.connect().await;
        for report in reports {
            peer.report(*report).await;
        }
        assert!(peer.is_closed().await, "{reports:?}");
    }
    assert_eq!(master.ha.replicated_to(2), end as u64);
    assert_eq!(master.ha.replicated_to(3), 0);
}

#[tokio::test]
async fn who_says_nothing_is_cut_off() {
    let settings = HaSettings { housekeeping_interval: Duration::from_millis(100), ..settings() };
    let master = Master::start_with(10, settings).await;
    assert!(master.connect().await.is_closed().await);
}

#[tokio::test]
async fn two_connections_of_one_slave_are_one_replica() {
    let master = Master::start(100).await;
    let end = master.end();
    let mut old = master.connect().await;
    old.report(end as i64).await;
    assert!(old.frame().await.is_some());
    let mut young = master.connect().await;
    young.report(end as i64).await;
    assert!(young.frame().await.is_some());
    assert!(old.is_closed().await, "the slave has connected again");
    assert_eq!((master.ha.replicated_to(2), master.ha.replicated_to(3)), (end, 0));
    assert_eq!((master.ha.in_sync(), master.ha.slaves().len()), (1, 1));
}

#[tokio::test]
async fn an_address_can_stand_for_more_slaves_if_the_settings_say_so() {
    let master = Master::start_with(100, HaSettings { slaves_per_host: 2, ..settings() }).await;
    let end = master.end();
    let (mut one, mut two) = (master.connect().await, master.connect().await);
    one.report(end as i64).await;
    two.report(end as i64 - 5).await;
    assert!(one.frame().await.is_some() && two.frame().await.is_some());
    assert_eq!((master.ha.replicated_to(2), master.ha.replicated_to(3)), (end, end - 5));
    two.report(end as i64).await;
    timeout(PATIENCE, master.ha.replicated(end, 3)).await.unwrap();
    assert_eq!(master.ha.in_sync(), 2);
}

#[tokio::test]
async fn bodies_count_for_the_limit() {
    let limit = 100_000;
    let settings = HaSettings { bytes_per_second_max: Some(limit), ..settings() };
    let master = Master::start_with(3000, settings).await;
    let mut peer = master.connect().await;
    peer.report(1).await;
    let (mut received, begun) = (0, tokio::time::Instant::now());
    while received < 3 * limit {
        received += peer.frame().await.unwrap().1.len() as u64;
    }
    // Three seconds' worth can't have come before the third second began.
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_slave_refuses_what_no_master_sends() {
    let master = Master::start(100).await;
    let whole = bytes(&master.store).1;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let root = tempfile::tempdir().unwrap();
    let slave = Slave::start(root.path(), &listener.local_addr().unwrap().to_string(), None);
    type Case<'a> = (i64, i32, &'a [u8], &'a str);
    let cases: [Case<'_>; 7] = [
        (0, -1, b"", "a frame of -1 bytes"),
        (0, i32::MAX, b"", "a frame of 2147483647 bytes"),
        (0, 4 << 20, b"", "a frame of 4194304 bytes"),
        (-1, 4, b"xxxx", "goes on at offset -1"),
        (5, 4, b"xxxx", "mappedFileSizeCommitLog"),
        (0, 40, &[b'x'; 40], "is no record"),
        (0, 40, &[0; 40], "is no record"),
    ];
    for (offset, len, body, expected) in cases {
        let mut peer = Peer(listener.accept().await.unwrap().0);
        assert_eq!(peer.next_report().await, 0);
        peer.send(offset, len, body).await;
        slave.trouble(expected).await;
        assert_eq!(slave.store.appended().get(), 0, "{expected}");
    }
    // And goes on with a sound one.
    let mut peer = Peer(listener.accept().await.unwrap().0);
    assert_eq!(peer.next_report().await, 0);
    peer.send(0, whole.len() as i32, &whole).await;
    assert_eq!(peer.next_report().await, whole.len() as i64);
    assert_eq!(bytes(&slave.store).1, whole);
    peer.send(7, 0, b"").await;
    slave.trouble("goes on at offset 7").await;
}

/// Frames that brokers of 5.3.3 and 4.9.7 sent.
#[tokio::test]
async fn recorded_frames_of_real_masters() {
    let recorded = include_str!("vectors/classic.jsonl");
    let lines: Vec<serde_json::Value> =
        recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for server in ["5.3.3", "4.9.7"] {
        let find = |name: &str| {
            let line = lines.iter().find(|line| line["name"] == name && line["server"] == server).unwrap();
            let hex = line["bytes"].as_str().unwrap();
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            (bytes, line["decoded"].clone())
        };
        let (data, decoded) = find("first-data");
        let (heartbeat, _) = find("heartbeat");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let root = tempfile::tempdir().unwrap();
        let slave = Slave::start(root.path(), &listener.local_addr().unwrap().to_string(), None);
        let mut peer = Peer(listener.accept().await.unwrap().0);
        let mut first = [0; 8];
        peer.0.read_exact(&mut first).await.unwrap();
        assert_eq!(first[..], find("first-data-new-slave").0);
        peer.0.write_all(&data).await.unwrap();
        assert_eq!(peer.next_report().await, decoded["size"].as_i64().unwrap());
        peer.0.write_all(&heartbeat).await.unwrap();
        assert_eq!(bytes(&slave.store), (0, data[HEADER_LEN..].to_vec()));
        slave.store.dispatch_to_confirmed();
        let queues = slave.store.queues_of("h4");
        let messages: i64 = queues.iter().map(|queue| queue.max_offset()).sum();
        assert_eq!(messages as usize, decoded["records"].as_array().unwrap().len());
        assert_eq!(slave.ha.status().trouble, None);

        // Our own master with the same log sends the same bytes.
        slave.ha.stop().await;
        slave.store.lead().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let master = HaMaster::start(slave.store.clone(), listener, settings()).unwrap();
        let mut peer = TcpStream::connect(master.address()).await.unwrap();
        peer.write_all(&first).await.unwrap();
        let mut sent = vec![0; data.len() + heartbeat.len()];
        timeout(PATIENCE, peer.read_exact(&mut sent)).await.unwrap().unwrap();
        assert_eq!(sent, [data, heartbeat].concat());

        // The end of a file, with what fills it.
        let (frame, decoded) = find("end-of-file-frame");
        let header = FrameHeader::peek(&frame).unwrap();
        let next_file = decoded["nextFile"].as_i64().unwrap();
        assert_eq!(header.offset + i64::from(header.len), next_file);
        let blank_at = (decoded["blankAt"].as_i64().unwrap() - header.offset) as usize + HEADER_LEN;
        assert!(frame[blank_at + 8..].iter().all(|byte| *byte == 0));
    }
}
