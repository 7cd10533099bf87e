//! Noticing that a master is gone (`docs/spec/05-ha.md` 7.6).
//!
//! A process that died closes its connections and its port, so its replica is replaced at once. A connection can end for
//! other reasons: a broker on a busy machine closes and opens it again. Therefore somebody knocks at the broker's port
//! first, and only one that is closed counts; otherwise the heartbeats decide. The system closes what a dead process had
//! open one after the other, so somebody knocks again for a while.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::election::replace_master;
use crate::live::{Disconnected, ReplicaId};
use crate::shared::Shared;
use crate::state::{BrokerSet, BrokerSets};

/// How long a broker's port may take to answer a knock.
const KNOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Pauses between knocks at a port that is open, ms.
const KNOCK_PAUSES_MS: [u64; 6] = [10, 20, 50, 100, 300, 1000];

/// Looks for silent replicas again and again.
pub(crate) async fn expire_replicas(shared: Arc<Shared>) {
    loop {
        let period_ms = shared.config.load().scan_not_active_broker_interval.get();
        sleep(Duration::from_millis(period_ms.into())).await;
        for id in shared.live.expire() {
            tracing::warn!(broker = id.broker_name, id = id.broker_id, "replica is silent");
            lost(&shared, &id).await;
        }
        shared.consensus.peek(|sets| {
            let is_known = |name: &str, id| sets.get(name).is_some_and(|set| set.replicas.contains_key(&id));
            shared.live.retain(is_known);
        });
    }
}

/// Replaces masters for as long as this controller takes part in its group.
pub(crate) async fn lead(shared: Arc<Shared>) {
    replace_masters(&shared).await;
    if let Some(trouble) = shared.consensus.trouble() {
        tracing::error!(trouble, "this controller can't go on: restart it when that is mended");
    }
}

/// Looks for sets without a living master while this controller leads, also for what happened before it did.
async fn replace_masters(shared: &Arc<Shared>) {
    while shared.consensus.until_it_leads().await {
        tracing::info!("this controller leads");
        loop {
            scan_masters(shared).await;
            let period_ms = shared.config.load().scan_inactive_master_interval.get();
            tokio::select! {
                () = sleep(Duration::from_millis(period_ms.into())) => {}
                goes_on = shared.consensus.until_it_follows() => {
                    if !goes_on {
                        return;
                    }
                    break;
                }
            }
        }
        tracing::info!("this controller does not lead any more");
    }
}

async fn scan_masters(shared: &Arc<Shared>) {
    let masters: Result<Vec<ReplicaId>, _> = shared
        .consensus
        .read(|sets| {
            let master = |(name, set): (&str, &BrokerSet)| {
                Some(ReplicaId { broker_name: name.to_owned(), broker_id: set.master? })
            };
            sets.iter().filter_map(master).collect()
        })
        .await;
    for master in masters.unwrap_or_default() {
        let is_dead = shared.live.is_dead(&master.broker_name, master.broker_id);
        if is_dead && !shared.live.alive_ids(&master.broker_name).is_empty() {
            replace_master(shared, &master.broker_name).await;
        }
    }
}

/// A connection ended over which replicas had sent heartbeats.
pub(crate) async fn knock(shared: Arc<Shared>, disconnected: Vec<Disconnected>) {
    for replica in disconnected {
        if is_closed(&replica.address).await && shared.live.bury(&replica) {
            let ReplicaId { broker_name, broker_id } = &replica.id;
            tracing::warn!(
                broker = broker_name,
                id = broker_id,
                address = replica.address,
                "replica is gone"
            );
            lost(&shared, &replica.id).await;
        }
    }
}

/// Whether a port is closed, or is so in a moment.
async fn is_closed(address: &str) -> bool {
    let mut pauses = KNOCK_PAUSES_MS.into_iter();
    loop {
        match timeout(KNOCK_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return true,
            Ok(Ok(_) | Err(_)) => {}
            // A host that is away is not a process that died.
            Err(_) => return false,
        }
        let Some(pause) = pauses.next() else { return false };
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Replaces a replica that is gone, if it is its set's master. Only the leader's state decides that.
async fn lost(shared: &Arc<Shared>, id: &ReplicaId) {
    let is_master =
        |sets: &BrokerSets| sets.get(&id.broker_name).is_some_and(|set| set.master == Some(id.broker_id));
    if shared.consensus.read(is_master).await.unwrap_or(false) {
        replace_master(shared, &id.broker_name).await;
    }
}
