//! Groups of three controllers in a simulated network that loses, delays and cuts, with controllers that are killed and come
//! back with what their disk has. A seed always gives the same run; `FERROMQ_SEED` repeats one, `FERROMQ_SEEDS` runs more.
//!
//! The set that the controllers decide about gets elections and changes of its SyncStateSet all along. Then: no epoch has two
//! masters, nothing that was answered is forgotten, and all controllers have the same state in the end.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::SyncStateSet;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};
use turmoil::net::{TcpListener, TcpStream};

use super::{Consensus, PeerLink, Timing};
use crate::config::ControllerConfig;
use crate::group::{Group, NodeId};
use crate::state::{Applied, Asking, BrokerSet, Command, LiveReplica, LiveReplicas};

const SET: &str = "broker-a";
const REPLICAS: std::ops::RangeInclusive<i64> = 1..=3;
const PEER_PORT: u16 = 1;
const CLIENT_PORT: u16 = 2;

fn host(id: NodeId) -> String {
    format!("n{id}")
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_u32(bytes.len() as u32).await?;
    stream.write_all(bytes).await
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; stream.read_u32().await? as usize];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn call(host: String, port: u16, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((host, port)).await?;
    write(&mut stream, bytes).await?;
    read(&mut stream).await
}

#[derive(Clone)]
struct SimulatedLink;

impl PeerLink for SimulatedLink {
    async fn call(&self, peer: NodeId, message: Vec<u8>, patience: Duration) -> Result<Vec<u8>, String> {
        let answer = timeout(patience, call(host(peer), PEER_PORT, &message)).await;
        answer.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())
    }
}

/// What the client of the simulation asks.
#[derive(Serialize, Deserialize)]
enum Ask {
    Write(Command),
    Read,
    Peek,
}

/// The outcome of a command, or the state of the set.
#[derive(Serialize, Deserialize)]
enum Answer {
    Written(Result<Applied, String>),
    Set(Option<BrokerSet>),
    NotDone,
}

async fn answer(consensus: &Consensus, ask: Ask) -> Answer {
    match ask {
        Ask::Write(command) => match consensus.write(command).await {
            Ok(outcome) => Answer::Written(outcome.map_err(|refused| refused.to_string())),
            Err(_) => Answer::NotDone,
        },
        Ask::Read => match consensus.read(|sets| sets.get(SET).cloned()).await {
            Ok(set) => Answer::Set(set),
            Err(_) => Answer::NotDone,
        },
        Ask::Peek => Answer::Set(consensus.peek(|sets| sets.get(SET).cloned())),
    }
}

async fn serve<F, A>(port: u16, handle: F) -> io::Result<()>
where
    F: Fn(Vec<u8>) -> A + Clone + 'static,
    A: Future<Output = Option<Vec<u8>>>,
{
    let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let handle = handle.clone();
        tokio::task::spawn_local(async move {
            if let Ok(message) = read(&mut stream).await
                && let Some(answer) = handle(message).await
            {
                // The peer may be gone.
                let _ = write(&mut stream, &answer).await;
            }
        });
    }
}

async fn controller(id: NodeId, folder: PathBuf, election_timeout_ms: u64) -> turmoil::Result {
    let group = Group::of(&ControllerConfig {
        controller_dleger_group: Some("simulated".to_owned()),
        controller_dleger_peers: Some("n0-n0:1;n1-n1:1;n2-n2:1".to_owned()),
        controller_dleger_self_id: Some(host(id)),
        ..ControllerConfig::default()
    })?;
    // A range of one: `openraft` draws from it with a generator that has no seed.
    let timing = Timing { election_timeout_ms: election_timeout_ms..election_timeout_ms + 1 };
    let consensus = Consensus::join(Arc::new(group), &folder, timing, SimulatedLink).await?;
    let for_peers = consensus.clone();
    let peers = serve(PEER_PORT, move |message| {
        let consensus = for_peers.clone();
        async move { consensus.peer_message(&message).await.ok() }
    });
    let clients = serve(CLIENT_PORT, move |message| {
        let consensus = consensus.clone();
        async move {
            let ask = serde_json::from_slice(&message).ok()?;
            serde_json::to_vec(&answer(&consensus, ask).await).ok()
        }
    });
    tokio::try_join!(peers, clients)?;
    Ok(())
}

async fn ask(id: NodeId, ask: &Ask) -> Answer {
    let bytes = serde_json::to_vec(ask).unwrap();
    match timeout(Duration::from_secs(8), call(host(id), CLIENT_PORT, &bytes)).await {
        Ok(Ok(answer)) => serde_json::from_slice(&answer).unwrap(),
        _ => Answer::NotDone,
    }
}

/// What was answered so far.
#[derive(Default)]
struct Seen {
    masters: BTreeMap<i32, i64>,
    master_epoch: i32,
    sync_state_set_epoch: i32,
    written: usize,
}

impl Seen {
    fn master(&mut self, epoch: i32, master: i64) {
        let known = *self.masters.entry(epoch).or_insert(master);
        assert_eq!(known, master, "epoch {epoch} has two masters");
    }

    /// `is_current`: nothing that was answered before may be missing.
    fn set(&mut self, set: &BrokerSet, is_current: bool) {
        if let Some(master) = set.master {
            self.master(set.master_epoch, master);
        }
        if is_current {
            assert!(set.master_epoch >= self.master_epoch, "an answered election was forgotten");
            assert!(
                set.sync_state_set_epoch >= self.sync_state_set_epoch,
                "an answered change was forgotten"
            );
            self.master_epoch = set.master_epoch;
            self.sync_state_set_epoch = set.sync_state_set_epoch;
        }
    }

    fn applied(&mut self, applied: &Applied) {
        self.written += 1;
        match applied {
            Applied::Elected(elected) => {
                assert!(elected.master_epoch > self.master_epoch, "an answered election was forgotten");
                self.master(elected.master_epoch, elected.master);
                self.master_epoch = elected.master_epoch;
                self.sync_state_set_epoch = elected.sync_state_set.sync_state_set_epoch;
            }
            Applied::SyncStateSet(set) => {
                assert!(
                    set.sync_state_set_epoch > self.sync_state_set_epoch,
                    "an answered change was forgotten"
                );
                self.sync_state_set_epoch = set.sync_state_set_epoch;
            }
            Applied::Done | Applied::MasterStays(_) => {}
        }
    }
}

fn random_command(random: &mut fastrand::Rng, set: Option<&BrokerSet>) -> Command {
    let broker_name = SET.to_owned();
    let Some(set) = set.filter(|set| set.replicas.len() == REPLICAS.count()) else {
        let broker_id = random.i64(REPLICAS);
        let check_code = format!("10.0.0.{broker_id}:10911;1");
        return Command::ApplyBrokerId { cluster_name: "C".to_owned(), broker_name, broker_id, check_code };
    };
    let master = set.master.unwrap_or(1);
    if set.master.is_some() && random.bool() {
        let mut sync_state_set: std::collections::BTreeSet<i64> =
            REPLICAS.filter(|_| random.bool()).collect();
        sync_state_set.insert(master);
        return Command::AlterSyncStateSet {
            broker_name,
            master,
            master_epoch: set.master_epoch,
            proposed: SyncStateSet { sync_state_set, sync_state_set_epoch: set.sync_state_set_epoch },
            alive: REPLICAS.collect(),
        };
    }
    let mut live = LiveReplicas::new();
    for id in REPLICAS.filter(|id| *id != master) {
        live.insert(id, LiveReplica { epoch: 1, max_offset: random.i64(0..1000), priority: 0 });
    }
    let asking = if set.master_epoch == 0 { Asking::Replica(1) } else { Asking::Controller };
    Command::ElectMaster { broker_name, asking, live, allow_unclean: random.bool() }
}

/// Sends commands to whoever takes them, and looks at what comes back.
async fn client(seed: u64, seen: Arc<Mutex<Seen>>, healed: Arc<Mutex<bool>>) -> turmoil::Result {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut known = None;
    while !*healed.lock() {
        let id = random.u64(0..3);
        if random.u8(0..4) == 0 {
            if let Answer::Set(Some(set)) = ask(id, &Ask::Read).await {
                seen.lock().set(&set, true);
                known = Some(set);
            }
        } else if let Answer::Written(Ok(applied)) =
            ask(id, &Ask::Write(random_command(&mut random, known.as_ref()))).await
        {
            seen.lock().applied(&applied);
        }
        if let Answer::Set(Some(set)) = ask(random.u64(0..3), &Ask::Peek).await {
            seen.lock().set(&set, false);
            known.get_or_insert(set);
        }
        sleep(Duration::from_millis(random.u64(1..200))).await;
    }
    // All controllers come to the same state.
    loop {
        let mut states = Vec::new();
        for id in 0..3 {
            match ask(id, &Ask::Peek).await {
                Answer::Set(set) => states.push(set),
                _ => break,
            }
        }
        let is_read = match ask(random.u64(0..3), &Ask::Read).await {
            Answer::Set(Some(set)) => {
                seen.lock().set(&set, true);
                states.push(Some(set));
                true
            }
            _ => false,
        };
        if is_read && states.len() == 4 && states.iter().all(|state| *state == states[3]) {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn simulate(seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut simulation = turmoil::Builder::new()
        .simulation_duration(Duration::from_secs(300))
        .tick_duration(Duration::from_millis(5))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(random.u64(2..60)))
        .enable_random_order()
        .rng_seed(seed)
        .build();
    for id in 0..3 {
        let folder = folder.path().join(id.to_string());
        let election_timeout_ms = random.u64(1000..2000);
        simulation.host(host(id), move || controller(id, folder.clone(), election_timeout_ms));
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let healed = Arc::new(Mutex::new(false));
    simulation.client("client", client(seed, seen.clone(), healed.clone()));

    let mut crashed: Option<NodeId> = None;
    for _ in 0..12 {
        let until = simulation.elapsed() + Duration::from_millis(random.u64(300..4000));
        while simulation.elapsed() < until {
            simulation.step().unwrap();
        }
        let (one, other) = (random.u64(0..3), random.u64(0..3));
        match random.u8(0..5) {
            0 if crashed.is_none() => {
                simulation.crash(host(one));
                crashed = Some(one);
            }
            1 | 2 if one != other => simulation.partition(host(one), host(other)),
            _ => {
                if let Some(id) = crashed.take() {
                    simulation.bounce(host(id));
                }
                for (one, other) in [(0, 1), (0, 2), (1, 2)] {
                    simulation.repair(host(one), host(other));
                }
            }
        }
    }
    if let Some(id) = crashed {
        simulation.bounce(host(id));
    }
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        simulation.repair(host(one), host(other));
    }
    *healed.lock() = true;
    simulation.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    seen.lock().written
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_epoch_has_two_masters_and_nothing_answered_is_forgotten() {
    let seeds = match number("FERROMQ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FERROMQ_SEEDS").unwrap_or(10),
    };
    let mut written = 0;
    for seed in seeds {
        println!("seed {seed}");
        written += simulate(seed);
    }
    assert!(written > 0, "no command was carried out");
}
