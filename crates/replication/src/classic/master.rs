//! The master: who its slaves are, and up to where so many replicas have the log.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use ferromq_remoting::RateLimit;
use ferromq_store::Waterline;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::HaSettings;
use super::feed::{Slave, feed};
use crate::log::ReplicaLog;

/// Most connections at once.
const CONNECTIONS_MAX: usize = 256;
/// Most replicas that can be waited for, the master included.
const REPLICAS_MAX: usize = 16;

/// Sends the log to whoever connects and says where to begin.
#[derive(Debug)]
pub struct HaMaster {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: JoinHandle<()>,
}

/// A connected slave, as administrators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedSlave {
    /// Where it connects from.
    pub peer: SocketAddr,
    /// Up to where it has the log; `None` before it said anything.
    pub acked: Option<u64>,
    /// Up to where it was sent the log.
    pub sent: u64,
    /// It lacks less than `haMaxGapNotInSync`.
    pub in_sync: bool,
    /// Bytes that it was sent in the last second.
    pub bytes_per_second: u64,
}

pub(super) struct Shared {
    pub(super) log: Arc<dyn ReplicaLog>,
    settings: ArcSwap<HaSettings>,
    slaves: Mutex<BTreeMap<u64, Arc<Slave>>>,
    /// At `n`: up to where n + 2 replicas have the log, this one included.
    replicated: [Waterline; REPLICAS_MAX - 1],
    next_number: AtomicU64,
    complaints: RateLimit,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("slaves", &self.slaves).finish_non_exhaustive()
    }
}

impl HaMaster {
    /// Accepts slaves from now on. Needs a Tokio runtime.
    pub fn start(
        log: Arc<dyn ReplicaLog>,
        listener: TcpListener,
        settings: HaSettings,
    ) -> std::io::Result<HaMaster> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            log,
            settings: ArcSwap::from_pointee(settings),
            slaves: Mutex::default(),
            replicated: Default::default(),
            next_number: AtomicU64::new(0),
            complaints: RateLimit::new(10, Duration::from_secs(10)),
        });
        let acceptor = tokio::spawn(accept(Arc::clone(&shared), listener));
        Ok(HaMaster { shared, address, acceptor })
    }

    /// Where slaves connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Puts other settings in force.
    pub fn reconfigure(&self, settings: HaSettings) {
        self.shared.settings.store(Arc::new(settings));
    }

    /// Waits until `replicas` replicas, this one included, have everything below `offset`.
    pub async fn replicated(&self, offset: u64, replicas: usize) {
        if replicas <= 1 {
            return;
        }
        match self.shared.replicated.get(replicas - 2) {
            Some(waterline) => waterline.wait(offset).await,
            None => std::future::pending().await,
        }
    }

    /// Up to where `replicas` replicas, this one included, have the log.
    pub fn replicated_to(&self, replicas: usize) -> u64 {
        match replicas {
            0 | 1 => self.shared.log.bounds().end,
            _ => self.shared.replicated.get(replicas - 2).map_or(0, Waterline::get),
        }
    }

    /// Slaves that lack less than `haMaxGapNotInSync` of the log.
    pub fn in_sync(&self) -> usize {
        let (end, gap_max) = (self.shared.log.bounds().end, self.shared.settings().gap_max);
        let acks = self.shared.acks();
        acks.iter().filter(|acked| end.saturating_sub(**acked) < gap_max).count()
    }

    /// The slaves that are connected.
    pub fn slaves(&self) -> Vec<ConnectedSlave> {
        let (end, gap_max) = (self.shared.log.bounds().end, self.shared.settings().gap_max);
        let status = |slave: &Arc<Slave>| ConnectedSlave {
            peer: slave.peer,
            acked: slave.acked(),
            sent: slave.sent(),
            in_sync: slave.acked().is_some_and(|acked| end.saturating_sub(acked) < gap_max),
            bytes_per_second: slave.pace.per_second(Instant::now()),
        };
        self.shared.slaves.lock().values().map(status).collect()
    }

    /// Closes the port and all connections.
    pub fn stop(&self) {
        self.acceptor.abort();
    }
}

impl Drop for HaMaster {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    // When this ends, so do they.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => shared.serve(&mut connections, stream, peer),
            Err(error) => {
                shared.complain(|| tracing::warn!(%error, "can't accept a slave"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

impl Shared {
    pub(super) fn settings(&self) -> Arc<HaSettings> {
        self.settings.load_full()
    }

    /// Says something about a peer, unless too much was said of late.
    fn complain(&self, tell: impl FnOnce()) {
        if self.complaints.allow().is_some() {
            tell();
        }
    }

    fn serve(self: &Arc<Self>, connections: &mut JoinSet<()>, stream: TcpStream, peer: SocketAddr) {
        let enlisted = stream.set_nodelay(true).ok().and_then(|()| self.enlist(peer));
        let Some((number, slave)) = enlisted else {
            self.complain(
                || tracing::warn!(%peer, "slave refused: {CONNECTIONS_MAX} are connected, or it is gone"),
            );
            return;
        };
        let shared = Arc::clone(self);
        connections.spawn(async move {
            let refused = feed(&shared, &slave, stream).await;
            shared.slaves.lock().remove(&number);
            shared.complain(|| tracing::warn!(peer = %slave.peer, "slave disconnected: {refused}"));
        });
    }

    /// Takes a connection into the table. If there are more from its address than there may be slaves, the oldest is of a slave that has
    /// connected again, and ends.
    fn enlist(&self, peer: SocketAddr) -> Option<(u64, Arc<Slave>)> {
        let mut slaves = self.slaves.lock();
        if slaves.len() >= CONNECTIONS_MAX {
            return None;
        }
        let slave = Arc::new(Slave::new(peer));
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        slaves.insert(number, Arc::clone(&slave));
        let of_host: Vec<_> = slaves
            .iter()
            .filter(|(_, other)| other.peer.ip() == peer.ip())
            .map(|(number, _)| *number)
            .collect();
        let surplus = of_host.len().saturating_sub(self.settings().slaves_per_host.max(1));
        for number in &of_host[..surplus] {
            if let Some(old) = slaves.remove(number) {
                old.replaced.send_replace(true);
            }
        }
        Some((number, slave))
    }

    /// A slave has reported.
    pub(super) fn acknowledged(&self) {
        for (acked, waterline) in self.acks().into_iter().zip(&self.replicated) {
            waterline.advance(acked);
        }
    }

    /// Up to where each slave has the log, the highest first. An address counts for no more slaves than it may stand for.
    fn acks(&self) -> Vec<u64> {
        let per_host_max = self.settings().slaves_per_host.max(1);
        let mut acks: Vec<(u64, IpAddr)> = {
            let slaves = self.slaves.lock();
            slaves.values().filter_map(|slave| Some((slave.acked()?, slave.peer.ip()))).collect()
        };
        acks.sort_unstable_by(|a, b| b.cmp(a));
        let mut counted: BTreeMap<IpAddr, usize> = BTreeMap::new();
        acks.retain(|(_, host)| {
            let count = counted.entry(*host).or_default();
            *count += 1;
            *count <= per_host_max
        });
        acks.into_iter().map(|(acked, _)| acked).collect()
    }
}
