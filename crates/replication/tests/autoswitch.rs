//! Replicas of controller mode over sockets: with each other, with what the real ones sent, and with nonsense.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::message::RecordFields;
use ferromq_replication::ReplicaLog;
use ferromq_replication::autoswitch::wire::OfSlave;
use ferromq_replication::autoswitch::{AutoSwitch, AutoSwitchSettings, EpochFile, RoleError};
use ferromq_replication::classic::HaSettings;
use ferromq_store::{ConfirmedBy, DiskUsageSource, Store, StoreOptions};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

fn options(root: &Path) -> StoreOptions {
    StoreOptions {
        commit_log_file_size: 64 << 10,
        disk_usage: DiskUsageSource::Fixed(|_| Some(10)),
        delete_when_hours: Vec::new(),
        follower: true,
        confirmed_by: ConfirmedBy::Replication { known: 0 },
        ..StoreOptions::new(root)
    }
}

fn settings() -> AutoSwitchSettings {
    AutoSwitchSettings {
        ha: HaSettings {
            heartbeat_interval: Duration::from_millis(100),
            reconnect_pause: Duration::from_millis(20),
            ..HaSettings::default()
        },
        lag_max: Duration::from_secs(60),
        from_last_file: false,
        is_learner: false,
    }
}

struct Replica {
    root: tempfile::TempDir,
    store: Arc<Store>,
    ha: AutoSwitch,
}

impl Replica {
    async fn start(id: i64) -> Self {
        Self::open(id, tempfile::tempdir().unwrap()).await
    }

    async fn open(id: i64, root: tempfile::TempDir) -> Self {
        let store = Store::open(options(root.path())).unwrap();
        let epochs = EpochFile::open(root.path().join("epochFileCheckpoint")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ha = AutoSwitch::start(store.clone(), epochs, listener, settings()).unwrap();
        ha.set_id(id);
        Self { root, store, ha }
    }

    async fn lead(&self, epoch: i32, id: i64) {
        self.ha.become_master(epoch, BTreeSet::from([id]), epoch).await.unwrap();
    }

    async fn follow(&self, epoch: i32, master: &Replica) {
        self.ha.become_slave(epoch).await.unwrap();
        self.ha.set_master(master.ha.address().to_string());
    }

    /// Appends messages; returns where the last one ends.
    fn append(&self, count: usize, body: u8) -> u64 {
        let queue = self.store.queue("T", 0);
        let mut batch = self.store.new_batch();
        let host = "10.0.0.1:1".parse().unwrap();
        for _ in 0..count {
            batch.push(&queue, &RecordFields::new("T", 0, host, &[body; 100])).unwrap();
        }
        self.store.append(&mut batch).unwrap();
        batch.outcomes().last().unwrap().end()
    }

    async fn until_confirmed(&self, offset: u64) {
        timeout(PATIENCE, self.store.confirmed().wait(offset)).await.expect("it is not confirmed");
    }

    /// What a broker does when the controller has made the change that it proposed.
    async fn until_in_sync(&self, ids: &[i64]) {
        let wanted: BTreeSet<i64> = ids.iter().copied().collect();
        let deadline = Instant::now() + PATIENCE;
        while self.ha.sync_state_set().unwrap().0 != wanted {
            if let Some((set, epoch)) = self.ha.propose() {
                self.ha.accept(set, epoch + 1);
            }
            assert!(Instant::now() < deadline, "{:?} {:?}", self.ha.sync_state_set(), self.ha.slaves());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let bounds = ReplicaLog::bounds(&*self.store);
        let mut bytes = Vec::new();
        while bounds.begin + (bytes.len() as u64) < bounds.end {
            let offset = bounds.begin + bytes.len() as u64;
            bytes.extend_from_slice(&ReplicaLog::read(&*self.store, offset, usize::MAX).unwrap());
        }
        bytes
    }

    fn epochs(&self) -> Vec<(i32, u64)> {
        self.ha.epochs().entries().iter().map(|epoch| (epoch.number, epoch.start)).collect()
    }

    async fn stop(self) -> tempfile::TempDir {
        self.ha.stop().await;
        self.store.shutdown();
        self.root
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_confirmed_when_the_whole_set_has_it() {
    let (master, slave) = (Replica::start(1).await, Replica::start(2).await);
    master.lead(1, 1).await;
    let alone = master.append(1000, b'a');
    master.until_confirmed(alone).await;

    slave.follow(1, &master).await;
    master.until_in_sync(&[1, 2]).await;
    let together = master.append(1000, b'b');
    master.until_confirmed(together).await;
    assert_eq!(slave.bytes(), master.bytes());
    assert_eq!(slave.epochs(), [(1, 0)]);

    slave.ha.stop().await;
    let unconfirmed = master.append(1, b'c');
    assert!(timeout(Duration::from_millis(300), master.store.confirmed().wait(unconfirmed)).await.is_err());
    // The controller takes it out.
    master.until_in_sync(&[1]).await;
    master.until_confirmed(unconfirmed).await;
}

/// The old master has messages that nobody was promised; the new one has others at the same place.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_master_cuts_what_the_new_one_does_not_have() {
    let (first, second) = (Replica::start(1).await, Replica::start(2).await);
    first.lead(1, 1).await;
    second.follow(1, &first).await;
    first.until_in_sync(&[1, 2]).await;
    let promised = first.append(100, b'a');
    first.until_confirmed(promised).await;
    // It does not know where the master is.
    second.ha.become_slave(1).await.unwrap();
    let lost = first.append(100, b'x');
    let root = first.stop().await;

    second.lead(2, 2).await;
    let new = second.append(150, b'y');
    second.until_confirmed(new).await;
    let first = Replica::open(1, root).await;
    assert_eq!(first.store.appended().get(), lost);
    first.follow(2, &second).await;
    second.until_in_sync(&[1, 2]).await;
    let last = second.append(10, b'z');
    second.until_confirmed(last).await;
    assert_eq!(first.bytes(), second.bytes());
    assert_eq!((first.epochs(), second.epochs()), (vec![(1, 0), (2, promised)], vec![(1, 0), (2, promised)]));

    // And back.
    second.follow(3, &first).await;
    first.lead(3, 1).await;
    first.until_in_sync(&[1, 2]).await;
    let last = first.append(10, b'!');
    first.until_confirmed(last).await;
    assert_eq!(first.bytes(), second.bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn promised_messages_are_not_cut() {
    let (first, second) = (Replica::start(1).await, Replica::start(2).await);
    first.lead(1, 1).await;
    let promised = first.append(100, b'a');
    first.until_confirmed(promised).await;
    // Elected though it has nothing.
    second.lead(2, 2).await;
    let other = second.append(50, b'b');
    second.until_confirmed(other).await;
    first.follow(2, &second).await;
    let deadline = Instant::now() + PATIENCE;
    let told = loop {
        if let Some(told) = first.ha.slave_status().trouble {
            break told;
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(told.contains("no epoch in common") || told.contains("is confirmed up to"), "{told}");
    assert_eq!(first.store.appended().get(), promised);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_role_is_not_taken_up() {
    let replica = Replica::start(1).await;
    replica.lead(5, 1).await;
    replica.append(1, b'a');
    let refused = replica.ha.become_slave(4).await;
    assert!(matches!(refused, Err(RoleError::OldEpoch { asked: 4, known: 5 })));
    assert!(replica.ha.is_master());
}

fn recorded(connection: &str, direction: &str) -> Vec<Vec<u8>> {
    let text = include_str!("vectors/autoswitch.jsonl");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_it = lines.filter(|line| {
        line["name"].as_str().unwrap().starts_with(connection) && line["direction"] == direction
    });
    of_it
        .map(|line| {
            let hex = line["bytes"].as_str().unwrap().to_owned();
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        })
        .collect()
}

/// What a master of RocketMQ 5.3.3 sent, and what its slave answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_slave_of_a_recorded_master() {
    let frames = recorded("conn2", "master->slave");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slave = Replica::start(2).await;
    slave.ha.become_slave(1).await.unwrap();
    slave.ha.set_master(listener.local_addr().unwrap().to_string());
    let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let said = recorded("conn2", "slave->master");
    let mut greeting = [0; 16];
    timeout(PATIENCE, stream.read_exact(&mut greeting)).await.unwrap().unwrap();
    assert_eq!(greeting[..], said[0]);
    stream.write_all(&frames[0]).await.unwrap();
    let mut report = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut report)).await.unwrap().unwrap();
    assert_eq!(report[..], said[1]);
    let mut log = Vec::new();
    for frame in &frames[1..] {
        stream.write_all(frame).await.unwrap();
        log.extend_from_slice(&frame[36..]);
    }
    slave.until_confirmed(log.len() as u64).await;
    assert_eq!(slave.bytes(), log);
    assert_eq!(slave.epochs(), [(1, 0)]);
}

/// What a slave of RocketMQ 5.3.3 says to an empty master, and that one's answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_of_a_recorded_slave() {
    let said = recorded("conn2", "slave->master");
    let answers = recorded("conn2", "master->slave");
    let master = Replica::start(1).await;
    master.lead(1, 1).await;
    let mut stream = TcpStream::connect(master.ha.address()).await.unwrap();
    stream.write_all(&said[0]).await.unwrap();
    for answer in &answers[..2] {
        let mut bytes = vec![0; answer.len()];
        timeout(PATIENCE, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
        assert_eq!(bytes, *answer);
        if answer == &answers[0] {
            stream.write_all(&said[1]).await.unwrap();
        }
    }
    let end = master.append(1, b'a');
    let mut header = [0; 36];
    loop {
        timeout(PATIENCE, stream.read_exact(&mut header)).await.unwrap().unwrap();
        if header[4..8] != [0; 4] {
            break;
        }
    }
    let mut body = vec![0; end as usize];
    timeout(PATIENCE, stream.read_exact(&mut body)).await.unwrap().unwrap();
    assert_eq!(body, master.bytes());
    stream.write_all(&OfSlave::Report(end).encode()).await.unwrap();
    master.until_in_sync(&[1, 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_of_what_was_never_sent_count_for_nothing() {
    let master = Replica::start(1).await;
    master.lead(1, 1).await;
    let end = master.append(10, b'a');
    let greeting = OfSlave::Handshake { from_last_file: false, is_learner: false, id: 2 }.encode();
    for lie in [
        vec![OfSlave::Report(u64::MAX >> 1).encode()],
        vec![OfSlave::Report(0).encode(), OfSlave::Report(end + 1).encode()],
        vec![OfSlave::Handshake { from_last_file: false, is_learner: false, id: 3 }.encode()],
        vec![b"GET / HTTP/1.1\r\n\r\n".to_vec()],
    ] {
        let mut stream = TcpStream::connect(master.ha.address()).await.unwrap();
        stream.write_all(&greeting).await.unwrap();
        for message in &lie {
            stream.write_all(message).await.unwrap();
        }
        let ended = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "{lie:?}: the connection stays open");
    }
    for own in [1, 0, -1] {
        let mut stream = TcpStream::connect(master.ha.address()).await.unwrap();
        let greeting = OfSlave::Handshake { from_last_file: false, is_learner: false, id: own }.encode();
        stream.write_all(&greeting).await.unwrap();
        assert_eq!(timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.unwrap().unwrap(), 0);
    }
    master.until_confirmed(end).await;
    assert_eq!(master.ha.propose(), None);
}

/// Slaves may have what its log has lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_stopped_does_not_go_on_in_its_epoch() {
    let replica = Replica::start(1).await;
    replica.lead(1, 1).await;
    replica.lead(2, 1).await;
    let lost = replica.append(10, b'a');
    replica.until_confirmed(lost).await;
    let root = replica.stop().await;
    let replica = Replica::open(1, root).await;
    for epoch in [1, 2] {
        let refused = replica.ha.become_master(epoch, BTreeSet::from([1]), 1).await;
        assert!(matches!(refused, Err(RoleError::SameEpoch { known: 2, .. })), "{refused:?}");
        assert!(!replica.ha.is_master());
    }
    replica.lead(3, 1).await;
    assert_eq!(replica.epochs(), [(2, 0), (3, lost)]);
}
