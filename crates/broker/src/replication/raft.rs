//! A broker of a Raft group (`docs/spec/05-ha.md` 10): it is the master while it leads, and a slave otherwise.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_replication::raft::{
    Durability, NodeId, RaftError, RaftNode, RoleState, Settings, Tcp, parse_id, parse_peers,
};
use ferromq_store::Store;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use super::promotion::take_over_topics;
use super::{MasterAddress, synchronize};
use crate::broker::Broker;
use crate::config::{BrokerConfig, BrokerRole, FlushDiskType};

/// After the group has another leader, a slave asks the name servers where the master is, in case it was faster there than the
/// master itself.
const LOOK_FOR_MASTER_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// A broker that has no progress of groups, perhaps because it lost its disk, copies it from a leader within a moment. So long it lets
/// others lead, if there are any.
const COPIES_PROGRESS_WITHIN: Duration = Duration::from_secs(10);

/// The member of a group that this broker is.
pub(super) struct Member {
    node: Mutex<Option<Arc<RaftNode>>>,
    roles: watch::Receiver<RoleState>,
    pub(super) master: Arc<MasterAddress>,
    /// What `dLegerPeers` says.
    peers: Mutex<Option<String>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Member {
    /// Takes part in the group of the settings. Needs a Tokio runtime.
    pub(super) async fn start(store: &Arc<Store>, config: &BrokerConfig) -> Result<Member, RaftError> {
        let network = Arc::new(Tcp { bind_address: config.bind_address.clone() });
        let node = RaftNode::start(settings(config)?, store.clone(), network).await?;
        Ok(Member {
            roles: node.roles(),
            node: Mutex::new(Some(Arc::new(node))),
            master: Arc::default(),
            peers: Mutex::new(config.d_leger_peers.clone()),
            tasks: Mutex::default(),
        })
    }

    /// Keeps the broker's role in step with the group from now on.
    pub(super) fn take_part(&self, broker: &Arc<Broker>) {
        let role = follow_role(broker.clone(), self.roles.clone(), self.master.clone());
        let tables = synchronize::run(broker.clone(), self.master.clone());
        *self.tasks.lock() = vec![tokio::spawn(role), tokio::spawn(tables)];
    }

    pub(super) fn leads(&self) -> bool {
        self.roles.borrow().leads
    }

    /// Whether this broker copies the log of another one.
    pub(super) fn follows(&self) -> bool {
        let role = self.roles.borrow();
        !role.leads && role.leader.is_some()
    }

    /// Changes the group if an administrator has changed `dLegerPeers`.
    pub(super) fn reconfigure(&self, config: &BrokerConfig) {
        let mut peers = self.peers.lock();
        if *peers == config.d_leger_peers {
            return;
        }
        peers.clone_from(&config.d_leger_peers);
        let Some(node) = self.node.lock().clone() else { return };
        match parse_peers(config.d_leger_peers.as_deref().unwrap_or_default()) {
            Ok(members) => {
                tokio::spawn(async move {
                    if let Err(error) = node.change_members(members).await {
                        tracing::error!(%error, "dLegerPeers has changed, but not the Raft group");
                    }
                });
            }
            Err(error) => tracing::error!(%error, "the Raft group is not changed"),
        }
    }

    pub(super) async fn stop(&self) {
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        let node = self.node.lock().take();
        if let Some(node) = node {
            node.stop().await;
        }
        self.master.client.close().await;
    }
}

fn settings(config: &BrokerConfig) -> Result<Settings, RaftError> {
    let preferred = config.preferred_leader_id.as_deref().unwrap_or_default();
    let preferred: Result<Vec<NodeId>, RaftError> =
        preferred.split(';').filter(|id| !id.trim().is_empty()).map(parse_id).collect();
    Ok(Settings {
        group: config.d_leger_group.clone().unwrap_or_else(|| config.broker_name.clone()),
        me: parse_id(config.d_leger_self_id.as_deref().unwrap_or_default())?,
        peers: parse_peers(config.d_leger_peers.as_deref().unwrap_or_default())?,
        preferred: preferred?,
        dir: Path::new(&config.store_path_root_dir).join("raft"),
        others_first: if has_progress(config) { Duration::ZERO } else { COPIES_PROGRESS_WITHIN },
        durability: match config.flush_disk_type {
            FlushDiskType::AsyncFlush => Durability::PageCache,
            FlushDiskType::SyncFlush => Durability::Device,
        },
    })
}

/// Whether this broker has a file with the progress of groups.
fn has_progress(config: &BrokerConfig) -> bool {
    let directory = Path::new(&config.store_path_root_dir).join("config");
    crate::offsets::FILES.iter().any(|name| directory.join(name).exists())
}

/// What is wrong with the settings of a Raft group, if anything is.
pub(crate) fn check(config: &BrokerConfig) -> Result<(), RaftError> {
    settings(config)?.validate()
}

/// The broker's id while it does not lead: the number in `dLegerSelfId` plus one.
fn slave_id(config: &BrokerConfig) -> i64 {
    let number = config.d_leger_self_id.as_deref().and_then(|id| parse_id(id).ok());
    number.and_then(|number| i64::try_from(number).ok()).map_or(1, |number| number + 1)
}

/// Makes the broker master or slave as the group's leader changes, and tells the name servers. The broker is registered once its role is
/// known.
async fn follow_role(broker: Arc<Broker>, mut roles: watch::Receiver<RoleState>, master: Arc<MasterAddress>) {
    let mut is_registered = false;
    let mut was_master = None;
    loop {
        let role = *roles.borrow_and_update();
        // Who is elected but does not lead yet has no role; who is not elected and knows no leader keeps the one of a slave.
        let is_known =
            role.leads || was_master.is_some() || role.leader.is_some_and(|leader| !is_me(&broker, leader));
        if is_known && was_master != Some(role.leads) {
            was_master = Some(role.leads);
            let (member, leads) = (broker.clone(), role.leads);
            if let Err(error) = spawn_blocking(move || take_role(&member, leads)).await {
                tracing::error!(%error, "the broker did not take its new role");
            }
            master.forget();
            if is_registered {
                broker.registration.register_all_soon();
            } else {
                is_registered = true;
                broker.registration.start(broker.clone()).await;
            }
            tracing::info!(
                term = role.term,
                leader = role.leader,
                is_master = role.leads,
                "this broker has a new role"
            );
        } else if role.leader.is_some() && was_master == Some(false) {
            // Another leader.
            master.forget();
            broker.registration.register_all_soon();
        }
        let changed = async {
            if was_master == Some(false) {
                for pause in LOOK_FOR_MASTER_AGAIN {
                    sleep(pause).await;
                    broker.registration.register_all_soon();
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            changed = roles.changed() => if changed.is_err() { return },
            () = changed => {}
        }
    }
}

fn is_me(broker: &Broker, leader: NodeId) -> bool {
    slave_id(&broker.config()) == leader as i64 + 1
}

fn take_role(broker: &Broker, is_master: bool) {
    // Settings that an administrator changes meanwhile must not get lost.
    let _version = broker.config_version.0.lock();
    let mut config = BrokerConfig::clone(&broker.config());
    (config.broker_id, config.broker_role) =
        if is_master { (0, BrokerRole::SyncMaster) } else { (slave_id(&config), BrokerRole::Slave) };
    broker.reconfigure(config);
    if is_master {
        take_over_topics(broker);
        // Name servers look at the topics of a master only, and only if they are new to them.
        broker.topics.bump_data_version();
        if !broker.offsets.is_kept()
            && let Err(error) = broker.offsets.keep()
        {
            tracing::error!(%error, "the progress of groups is not saved");
        }
    }
}
