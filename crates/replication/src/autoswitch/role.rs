//! The HA port of a replica, and its role.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ferromq_remoting::RateLimit;
use ferromq_store::ReplicaError;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use super::AutoSwitchSettings;
use super::epochs::{Epoch, EpochFile, Epochs};
use super::feed::feed;
use super::master::{ConnectedSlave, Mastership, confirm_appended};
use crate::following::{Following, SlaveStatus, keep_following};
use crate::log::ReplicaLog;

/// Most connections at once.
const CONNECTIONS_MAX: usize = 256;
/// No id was given yet.
const NO_ID: i64 = 0;

/// Why a role was not taken up.
#[derive(Debug, Error)]
pub enum RoleError {
    /// There was a newer master.
    #[error("epoch {asked} is older than {known}, the last one of this replica's log")]
    OldEpoch {
        /// The epoch of the role.
        asked: i32,
        /// The newest one that is known.
        known: i32,
    },
    /// It was master in that epoch, or a newer one, and has stopped since.
    #[error(
        "epoch {asked} is not newer than {known}, the last one of this replica's log, which may have lost its end since: to be master \
         again it has to be elected anew"
    )]
    SameEpoch {
        /// The epoch of the role.
        asked: i32,
        /// The newest one that is known.
        known: i32,
    },
    /// The log can't be prepared.
    #[error(transparent)]
    Log(#[from] ReplicaError),
    /// The epoch file can't be written.
    #[error("can't write the epoch file: {0}")]
    Epochs(io::Error),
}

/// A replica that a controller gives its role. It follows nobody and leads nobody until it is told.
pub struct AutoSwitch {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: JoinHandle<()>,
    /// Held while the role changes.
    role: tokio::sync::Mutex<Role>,
}

enum Role {
    None,
    Master { tasks: JoinSet<()> },
    Slave { task: JoinHandle<()> },
}

pub(super) struct Shared {
    pub(super) log: Arc<dyn ReplicaLog>,
    pub(super) epochs: EpochFile,
    pub(super) settings: ArcSwap<AutoSwitchSettings>,
    own_id: AtomicI64,
    mastership: Mutex<Option<Arc<Mastership>>>,
    following: Mutex<Arc<Following>>,
    /// A slave has acknowledged something.
    pub(super) acked: Notify,
    complaints: RateLimit,
}

impl Shared {
    pub(super) fn own_id(&self) -> i64 {
        self.own_id.load(Ordering::Acquire)
    }

    fn mastership(&self) -> Option<Arc<Mastership>> {
        self.mastership.lock().clone()
    }
}

impl AutoSwitch {
    /// Listens for slaves from now on; they are served while this replica is master. Needs a Tokio runtime.
    pub fn start(
        log: Arc<dyn ReplicaLog>,
        epochs: EpochFile,
        listener: TcpListener,
        settings: AutoSwitchSettings,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            log,
            epochs,
            settings: ArcSwap::from_pointee(settings),
            own_id: AtomicI64::new(NO_ID),
            mastership: Mutex::default(),
            following: Mutex::new(Arc::new(Following::new())),
            acked: Notify::new(),
            complaints: RateLimit::new(10, Duration::from_secs(10)),
        });
        let acceptor = tokio::spawn(accept(shared.clone(), listener));
        Ok(Self { shared, address, acceptor, role: tokio::sync::Mutex::new(Role::None) })
    }

    /// Where slaves connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says which replica of its set this is.
    pub fn set_id(&self, id: i64) {
        self.shared.own_id.store(id, Ordering::Release);
    }

    /// Puts other settings in force.
    pub fn reconfigure(&self, settings: AutoSwitchSettings) {
        self.shared.settings.store(Arc::new(settings));
    }

    /// The epochs of the log.
    pub fn epochs(&self) -> Epochs {
        self.shared.epochs.get()
    }

    /// Forgets epochs of which the log has nothing any more.
    pub fn forget_expired(&self) {
        let begin = self.shared.log.bounds().begin;
        if let Err(error) = self.shared.epochs.change(|epochs| epochs.expire(begin)) {
            tracing::warn!(%error, "expired epochs are still in their file");
        }
    }

    /// Becomes master in `epoch`, with this SyncStateSet and its epoch. One that is master already begins a new epoch.
    ///
    /// The epoch has to be newer than all of the log's: a master that was stopped may have lost the end of its log, of which slaves may
    /// have a copy. What it writes there instead must not bear the same epoch.
    pub async fn become_master(
        &self,
        epoch: i32,
        set: BTreeSet<i64>,
        set_epoch: i32,
    ) -> Result<(), RoleError> {
        let mut role = self.role.lock().await;
        if let Some(known) = self.shared.epochs.last().map(|last| last.number)
            && epoch <= known
        {
            return Err(RoleError::SameEpoch { asked: epoch, known });
        }
        self.end(&mut role).await;
        let shared = self.shared.clone();
        let begun = tokio::task::spawn_blocking(move || -> Result<Epoch, RoleError> {
            shared.log.lead()?;
            let end = shared.log.bounds().end;
            let begin = |epochs: &mut Epochs| {
                epochs.truncate(end.saturating_add(1));
                epochs.begin(Epoch { number: epoch, start: end });
            };
            shared.epochs.change(begin).map_err(RoleError::Epochs)?;
            Ok(shared.epochs.last().unwrap_or(Epoch { number: epoch, start: end }))
        });
        let begun = begun.await.map_err(|panic| RoleError::Epochs(io::Error::other(panic)))??;
        let mastership = Arc::new(Mastership::new(self.shared.own_id(), begun, set, set_epoch));
        *self.shared.mastership.lock() = Some(mastership.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(confirm_appended(self.shared.clone(), mastership));
        *role = Role::Master { tasks };
        Ok(())
    }

    /// Becomes slave of a master of `epoch`, whose HA address is to be [set](Self::set_master). Appends of the broker are refused
    /// when this returns.
    pub async fn become_slave(&self, epoch: i32) -> Result<(), RoleError> {
        let mut role = self.role.lock().await;
        let known = self.shared.epochs.last().map_or(i32::MIN, |last| last.number);
        if epoch < known {
            return Err(RoleError::OldEpoch { asked: epoch, known });
        }
        self.end(&mut role).await;
        let log = self.shared.log.clone();
        // It waits for appends that are under way.
        let followed = tokio::task::spawn_blocking(move || log.follow()).await;
        followed.map_err(|panic| RoleError::Epochs(io::Error::other(panic)))?;
        let following = Arc::new(Following::new());
        *self.shared.following.lock() = following.clone();
        *role = Role::Slave { task: tokio::spawn(keep_following(self.shared.clone(), following)) };
        Ok(())
    }

    /// Says where the master's HA port is, `host:port`. Without effect unless this is a slave.
    pub fn set_master(&self, address: String) {
        self.shared.following.lock().set_master(Some(address));
    }

    /// Whether this is the master.
    pub fn is_master(&self) -> bool {
        self.shared.mastership.lock().is_some()
    }

    /// The SyncStateSet and its epoch as the controller had them last; `None` unless this is the master.
    pub fn sync_state_set(&self) -> Option<(BTreeSet<i64>, i32)> {
        Some(self.shared.mastership()?.accepted())
    }

    /// How many replicas have to have a message before it is confirmed, this one included; 0 unless this is the master.
    pub fn in_sync(&self) -> usize {
        self.shared.mastership().map_or(0, |mastership| mastership.size())
    }

    /// Waits until so many replicas, this one included, have everything below `offset`.
    pub async fn replicated(&self, offset: u64, replicas: usize) {
        loop {
            let mut acked = std::pin::pin!(self.shared.acked.notified());
            acked.as_mut().enable();
            let count = self.shared.mastership().map_or(0, |mastership| mastership.replicas_at(offset));
            if count >= replicas {
                return;
            }
            acked.await;
        }
    }

    /// Resolves when the SyncStateSet may have to change at once.
    pub async fn change_due(&self) {
        match self.shared.mastership() {
            Some(mastership) => mastership.change_due.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The SyncStateSet to propose to the controller, if it has to change, with the epoch of the one that it replaces. From now on
    /// the old and the new one have to have a message.
    pub fn propose(&self) -> Option<(BTreeSet<i64>, i32)> {
        self.shared.mastership()?.propose(&self.shared)
    }

    /// The controller has this SyncStateSet now. Older ones change nothing.
    pub fn accept(&self, set: BTreeSet<i64>, epoch: i32) {
        if let Some(mastership) = self.shared.mastership() {
            mastership.accept(&self.shared, set, epoch);
        }
    }

    /// The controller has not made the change that was proposed.
    pub fn refuse(&self) {
        if let Some(mastership) = self.shared.mastership() {
            mastership.refuse(&self.shared);
        }
    }

    /// The controller did not say whether it made the change that was proposed.
    pub fn doubt(&self) {
        if let Some(mastership) = self.shared.mastership() {
            mastership.doubt();
        }
    }

    /// The slaves that are connected.
    pub fn slaves(&self) -> Vec<ConnectedSlave> {
        self.shared.mastership().map_or_else(Vec::new, |mastership| mastership.slaves())
    }

    /// How the connection to the master is.
    pub fn slave_status(&self) -> SlaveStatus {
        self.shared.following.lock().status()
    }

    /// Ends the role. Nothing is appended or confirmed by replication when this returns.
    async fn end(&self, role: &mut Role) {
        if let Some(mastership) = self.shared.mastership.lock().take() {
            mastership.cede();
        }
        match std::mem::replace(role, Role::None) {
            Role::None => {}
            Role::Master { mut tasks } => tasks.shutdown().await,
            Role::Slave { task } => {
                task.abort();
                // It was aborted; a panic was reported when it happened.
                let _ = task.await;
                let changing = self.shared.following.lock().changing.clone();
                drop(changing.lock().await);
            }
        }
    }

    /// Closes the port and all connections.
    pub async fn stop(&self) {
        self.acceptor.abort();
        let mut role = self.role.lock().await;
        self.end(&mut role).await;
    }
}

impl Drop for AutoSwitch {
    fn drop(&mut self) {
        self.acceptor.abort();
        if let Role::Slave { task } = self.role.get_mut() {
            task.abort();
        }
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    // When this ends, so do they.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) if connections.len() < CONNECTIONS_MAX => {
                connections.spawn(serve(shared.clone(), stream, peer));
            }
            Ok((_, peer)) => {
                complain(&shared, || tracing::warn!(%peer, "slave refused: {CONNECTIONS_MAX} are connected"))
            }
            Err(error) => {
                complain(&shared, || tracing::warn!(%error, "can't accept a slave"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    // Whoever comes too early comes again.
    let Some(mastership) = shared.mastership() else { return };
    let refused = feed(shared.clone(), mastership, stream).await;
    complain(&shared, || tracing::warn!(%peer, "slave disconnected: {refused}"));
}

/// Says something about a peer, unless too much was said of late.
fn complain(shared: &Shared, tell: impl FnOnce()) {
    if shared.complaints.allow().is_some() {
        tell();
    }
}
