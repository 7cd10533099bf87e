//! The broker's part in a set of replicas: a master that sends its log to slaves, or a slave that copies it
//! (`docs/spec/05-ha.md` 1 to 5), or a member of a
//! [Raft group](raft).
//!
//! How the log travels is the business of [`ferromq_replication`]. Here is what a broker adds: where the master is, which
//! replicas a send waits for ([`acks`]), copies of everything that is not in the log ([`synchronize`], [`promotion`]), and doing what
//! controllers say ([`controlled`], [`controllers`], [`identity`]).

pub(crate) mod acks;
pub(crate) mod acting;
mod controlled;
mod controllers;
pub(crate) mod exchange;
mod identity;
mod promotion;
pub(crate) mod raft;
mod returning;
mod synchronize;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ferromq_protocol::body::{
    EpochEntry, EpochEntryCache, HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo, KVTable,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Client;
use ferromq_replication::autoswitch::{AutoSwitch, AutoSwitchSettings, Epoch, EpochFile};
use ferromq_replication::classic::{FirstOffset, HaMaster, HaSettings, HaSlave};
use ferromq_replication::{SlaveState, SlaveStatus};
use ferromq_store::Store;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::broker::{Broker, StartError};
use crate::config::{BrokerConfig, BrokerRole};
use acting::Acting;
use controllers::SetState;

/// How long an empty slave waits to learn where its master's log begins.
const FIRST_OFFSET_TIMEOUT: Duration = Duration::from_secs(15);
/// How often it is asked for the begin of its log, and the pause in between.
const FIRST_OFFSET_TRIES: u32 = 20;
const FIRST_OFFSET_PAUSE: Duration = Duration::from_millis(500);
/// How soon a slave connects again to a master that a controller named.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// How soon a new master that does not say yet where its HA port is is asked again at first, and at last.
const ASK_AGAIN_FIRST: Duration = Duration::from_millis(20);
const ASK_AGAIN_LAST: Duration = Duration::from_secs(1);
/// How long a new master waits for what it takes over, before it takes messages.
const TAKES_OVER_WITHIN: Duration = Duration::from_millis(500);
/// Notices of a controller that may wait.
const NOTICES_MAX: usize = 16;
/// How long the master may take to say it.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);

/// The broker's role and what belongs to it.
pub(crate) struct Replication {
    role: Role,
    pub(crate) acting: Acting,
    /// Where the log ended when this broker started.
    end_at_start: u64,
    acting_task: Mutex<Option<JoinHandle<()>>>,
}

enum Role {
    Master(HaMaster),
    Slave(Box<Slave>),
    Raft(Box<raft::Member>),
    Controlled(Arc<Controlled>),
}

/// A replica that a controller makes master or slave.
pub(crate) struct Controlled {
    ha: AutoSwitch,
    /// To the controllers.
    client: Arc<Client>,
    /// The controllers are to take this replica for dead.
    is_silent: AtomicBool,
    /// Of the master, while this is a slave.
    master: Arc<MasterAddress>,
    /// What it copies from the master, or takes over as one.
    synchronizing: Mutex<Option<JoinHandle<()>>>,
    notices: mpsc::Sender<SetState>,
    to_obey: Mutex<Option<mpsc::Receiver<SetState>>>,
    /// Ends when it is dropped.
    tasks: controlled::Tasks,
}

struct Slave {
    ha: HaSlave,
    /// `haMasterAddress` is set: name servers don't say where the HA port is.
    is_fixed: bool,
    master: Arc<MasterAddress>,
    synchronizing: Mutex<Option<JoinHandle<()>>>,
}

/// Where the master answers requests, as far as a name server said.
#[derive(Debug, Default)]
struct MasterAddress {
    address: watch::Sender<Option<String>>,
    client: Client,
}

impl Replication {
    /// Takes up the role of the settings. `listener` is the HA port of a master. Needs a Tokio runtime.
    pub(crate) fn start(
        store: &Arc<Store>,
        config: &BrokerConfig,
        listener: Option<TcpListener>,
    ) -> Result<Self, StartError> {
        let end_at_start = store.appended().get();
        let role = match listener {
            _ if config.enable_d_leger_commit_log => {
                Role::Raft(Box::new(Handle::current().block_on(raft::Member::start(store, config))?))
            }
            Some(listener) if config.enable_controller_mode => {
                Role::Controlled(Arc::new(Controlled::start(store, config, listener)?))
            }
            Some(listener) => Role::Master(HaMaster::start(store.clone(), listener, settings(config))?),
            None => Role::Slave(Box::new(Slave::start(store, config))),
        };
        Ok(Self { role, acting: Acting::new(config), end_at_start, acting_task: Mutex::default() })
    }

    /// Whether this broker's role is the business of a Raft group.
    pub(crate) fn is_raft(&self) -> bool {
        matches!(self.role, Role::Raft(_))
    }

    /// Begins what needs the whole broker: copying what is not in the log (a slave all that its master has, a master what its slaves
    /// have done without it), and changes of the role. A master for which slaves act knows what they did when this returns. False if
    /// the broker must not be registered before it has a role.
    pub(crate) async fn begin(&self, broker: &Arc<Broker>) -> bool {
        let acts_for_others = broker.config().enable_slave_acting_master;
        if acts_for_others {
            *self.acting_task.lock() = Some(tokio::spawn(Acting::run(broker.clone())));
        }
        match &self.role {
            Role::Master(_) if acts_for_others => {
                returning::run(broker.clone()).await;
                true
            }
            Role::Master(_) => {
                tokio::spawn(returning::run(broker.clone()));
                true
            }
            Role::Slave(slave) => {
                let task = tokio::spawn(synchronize::run(broker.clone(), slave.master.clone()));
                *slave.synchronizing.lock() = Some(task);
                true
            }
            Role::Raft(member) => {
                member.take_part(broker);
                false
            }
            Role::Controlled(controlled) => {
                if let Some(notices) = controlled.to_obey.lock().take() {
                    let obey = controlled::run(broker.clone(), controlled.clone(), notices);
                    controlled.tasks.lock().spawn(obey);
                }
                false
            }
        }
    }

    /// The replica that a controller gives its role, if there is one.
    pub(crate) fn controlled(&self) -> Option<&Controlled> {
        match &self.role {
            Role::Controlled(controlled) => Some(controlled),
            Role::Master(_) | Role::Slave(_) | Role::Raft(_) => None,
        }
    }

    /// A name server said where the master is.
    pub(crate) fn master_is(&self, address: Option<&str>, ha_address: Option<&str>) {
        let slave = match &self.role {
            Role::Master(_) => return,
            Role::Slave(slave) => slave,
            Role::Raft(member) => {
                if let Some(address) = address.filter(|_| !member.leads()) {
                    member.master.set(address);
                }
                return;
            }
            Role::Controlled(controlled) => return controlled.master_is(address, ha_address),
        };
        if let Some(address) = address {
            slave.master.set(address);
        }
        if let Some(ha_address) = ha_address.filter(|_| !slave.is_fixed) {
            slave.ha.set_master(Some(ha_address.to_owned()));
        }
    }

    /// The master itself said where it is, which no name server may know yet.
    fn master_returns(&self, address: Option<&str>, ha_address: &str) {
        if matches!(self.role, Role::Slave(_)) {
            self.master_is(address, Some(ha_address));
        }
    }

    /// Whether this is a slave that copies its master's log.
    fn follows(&self) -> bool {
        match &self.role {
            Role::Master(_) => false,
            Role::Slave(slave) => slave.ha.status().state == SlaveState::Transfer,
            Role::Raft(member) => member.follows(),
            Role::Controlled(controlled) => controlled.follows(),
        }
    }

    /// The master that sends the log to slaves, in classic replication.
    pub(crate) fn master(&self) -> Option<&HaMaster> {
        match &self.role {
            Role::Master(master) => Some(master),
            Role::Slave(_) | Role::Raft(_) | Role::Controlled(_) => None,
        }
    }

    /// Puts other settings in force.
    pub(crate) fn reconfigure(&self, config: &BrokerConfig) {
        match &self.role {
            Role::Master(master) => master.reconfigure(settings(config)),
            Role::Slave(slave) => slave.ha.reconfigure(settings(config)),
            Role::Raft(member) => member.reconfigure(config),
            Role::Controlled(controlled) => controlled.ha.reconfigure(auto_switch_settings(config)),
        }
    }

    /// Whether a slave has most of the log: it can take over slow readers.
    pub(crate) fn has_slave_in_sync(&self) -> bool {
        match &self.role {
            Role::Master(master) => master.in_sync() > 0,
            Role::Slave(_) | Role::Raft(_) => false,
            Role::Controlled(controlled) => controlled.ha.in_sync() > 1,
        }
    }

    /// Ends all connections. Nothing is appended to a slave's log when this returns.
    pub(crate) async fn stop(&self) {
        if let Some(task) = self.acting_task.lock().take() {
            task.abort();
        }
        self.acting.stop().await;
        match &self.role {
            Role::Master(master) => master.stop(),
            Role::Slave(slave) => {
                if let Some(task) = slave.synchronizing.lock().take() {
                    task.abort();
                }
                slave.ha.stop().await;
                slave.master.client.close().await;
            }
            Role::Raft(member) => member.stop().await,
            Role::Controlled(controlled) => {
                let mut tasks = std::mem::take(&mut *controlled.tasks.lock());
                tasks.shutdown().await;
                controlled.end_synchronizing();
                controlled.ha.stop().await;
                controlled.client.close().await;
                controlled.master.client.close().await;
            }
        }
    }

    /// Where slaves connect to; `None` if none can.
    pub(crate) fn ha_address(&self) -> Option<SocketAddr> {
        match &self.role {
            Role::Master(master) => Some(master.address()),
            Role::Slave(_) | Role::Raft(_) => None,
            Role::Controlled(controlled) => Some(controlled.ha.address()),
        }
    }

    /// What GET_BROKER_HA_STATUS tells.
    pub(crate) fn status(&self, store: &Store) -> HARuntimeInfo {
        let end = number(store.appended().get());
        match &self.role {
            Role::Master(master) => HARuntimeInfo {
                master: true,
                master_commit_log_max_offset: end,
                in_sync_slave_nums: master.in_sync() as i32,
                ha_connection_info: master
                    .slaves()
                    .into_iter()
                    .map(|slave| {
                        let acked = slave.acked.map_or(-1, number);
                        HAConnectionRuntimeInfo {
                            addr: Some(slave.peer.to_string()),
                            diff: end - acked,
                            in_sync: slave.in_sync,
                            slave_ack_offset: acked,
                            transfer_from_where: number(slave.sent),
                            transferred_byte_in_second: number(slave.bytes_per_second),
                        }
                    })
                    .collect(),
                ..HARuntimeInfo::default()
            },
            Role::Raft(member) => HARuntimeInfo {
                master: member.leads(),
                master_commit_log_max_offset: end,
                ..HARuntimeInfo::default()
            },
            Role::Controlled(controlled) if controlled.ha.is_master() => HARuntimeInfo {
                master: true,
                master_commit_log_max_offset: end,
                in_sync_slave_nums: controlled.ha.in_sync().saturating_sub(1) as i32,
                ha_connection_info: controlled
                    .ha
                    .slaves()
                    .into_iter()
                    .map(|slave| HAConnectionRuntimeInfo {
                        addr: Some(slave.peer.to_string()),
                        diff: end - number(slave.acked),
                        in_sync: slave.in_sync,
                        slave_ack_offset: number(slave.acked),
                        transfer_from_where: number(slave.sent),
                        transferred_byte_in_second: number(slave.bytes_per_second),
                    })
                    .collect(),
                ..HARuntimeInfo::default()
            },
            Role::Controlled(controlled) => of_slave(controlled.ha.slave_status(), store, end),
            Role::Slave(slave) => of_slave(slave.ha.status(), store, end),
        }
    }
}

fn of_slave(status: SlaveStatus, store: &Store, end: i64) -> HARuntimeInfo {
    HARuntimeInfo {
        ha_client_runtime_info: HAClientRuntimeInfo {
            last_read_timestamp: status.last_read_ms,
            last_write_timestamp: status.last_write_ms,
            master_addr: status.master,
            master_flush_offset: store.master_flushed_offset(),
            max_offset: end,
            transferred_byte_in_second: number(status.bytes_per_second),
        },
        ..HARuntimeInfo::default()
    }
}

impl Controlled {
    fn start(store: &Arc<Store>, config: &BrokerConfig, listener: TcpListener) -> Result<Self, StartError> {
        let epochs = match &config.store_path_epoch_file {
            Some(path) => PathBuf::from(path),
            None => Path::new(&config.store_path_root_dir).join("epochFileCheckpoint"),
        };
        let epochs = EpochFile::open(epochs)?;
        let ha = AutoSwitch::start(store.clone(), epochs, listener, auto_switch_settings(config))?;
        let (notices, to_obey) = mpsc::channel(NOTICES_MAX);
        Ok(Self {
            ha,
            client: Arc::default(),
            is_silent: AtomicBool::new(false),
            master: Arc::default(),
            synchronizing: Mutex::default(),
            notices,
            to_obey: Mutex::new(Some(to_obey)),
            tasks: controlled::Tasks::default(),
        })
    }

    /// The controller told something.
    pub(crate) fn notice(&self, command: &RemotingCommand) {
        controlled::notice(self, command);
    }

    /// How many replicas have to have a message before it is confirmed.
    pub(crate) fn in_sync(&self) -> usize {
        self.ha.in_sync()
    }

    /// Waits until so many replicas have everything below `offset`.
    pub(crate) async fn replicated(&self, offset: u64, replicas: usize) {
        self.ha.replicated(offset, replicas).await;
    }

    /// What GET_BROKER_EPOCH_CACHE tells.
    pub(crate) fn epochs(&self, store: &Store, config: &BrokerConfig) -> EpochEntryCache {
        let epochs = self.ha.epochs();
        let entries = epochs.entries();
        let ends = entries.iter().skip(1).map(|next| number(next.start)).chain([i64::MAX]);
        let entry = |(epoch, end_offset): (&Epoch, i64)| EpochEntry {
            end_offset,
            epoch: epoch.number,
            start_offset: number(epoch.start),
        };
        EpochEntryCache {
            broker_id: config.broker_id,
            broker_name: config.broker_name.clone(),
            cluster_name: config.broker_cluster_name.clone(),
            epoch_list: entries.iter().zip(ends).map(entry).collect(),
            max_offset: number(store.appended().get()),
        }
    }

    /// A name server said where the master is. Only the one that the controller named counts.
    fn master_is(&self, address: Option<&str>, ha_address: Option<&str>) {
        let is_expected = address.is_some() && self.master.address.borrow().as_deref() == address;
        if let Some(ha_address) = ha_address.filter(|_| is_expected) {
            self.ha.set_master(ha_address.to_owned());
        }
    }

    /// Looks for the HA port of the master at `address` from now on, and copies from it what is not in the log; `None`: from nobody.
    fn synchronize(self: &Arc<Self>, address: Option<&str>, broker: &Arc<Broker>) {
        self.end_synchronizing();
        self.master.address.send_replace(address.map(str::to_owned));
        if let Some(address) = address.map(str::to_owned) {
            let (controlled, tables) = (self.clone(), synchronize::run(broker.clone(), self.master.clone()));
            let both = async move { tokio::join!(controlled.look_for_ha_port(&address), tables).1 };
            let task = tokio::spawn(both);
            *self.synchronizing.lock() = Some(task);
        }
    }

    /// Takes over what the last master left behind, which goes on behind this if it takes a while.
    async fn take_over(&self, broker: &Arc<Broker>) {
        let mut topics = tokio::spawn(promotion::take_over_topics_when_confirmed(broker.clone()));
        let is_done = tokio::time::timeout(TAKES_OVER_WITHIN, &mut topics).await.is_ok();
        if !is_done {
            *self.synchronizing.lock() = Some(topics);
        }
    }

    /// Asks the master itself, which is registered at name servers a little later than it is named by the controller.
    async fn look_for_ha_port(&self, master: &str) {
        let mut pause = ASK_AGAIN_FIRST;
        loop {
            let question = RemotingCommand::request(request::EXCHANGE_BROKER_HA_INFO);
            let answer = self.master.client.invoke(master, question, ASK_TIMEOUT).await;
            let told = answer.as_ref().ok().and_then(|answer| answer.field("masterHaAddress"));
            if let Some(ha_address) = told.filter(|address| !address.is_empty()) {
                return self.master_is(Some(master), Some(ha_address));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(ASK_AGAIN_LAST);
        }
    }

    fn end_synchronizing(&self) {
        if let Some(task) = self.synchronizing.lock().take() {
            task.abort();
        }
    }

    fn follows(&self) -> bool {
        self.ha.slave_status().state == SlaveState::Transfer
    }
}

impl Slave {
    fn start(store: &Arc<Store>, config: &BrokerConfig) -> Self {
        let master = Arc::new(MasterAddress::default());
        let first: FirstOffset = {
            let (master, copy_whole_log) = (master.clone(), config.ha_copy_whole_log);
            Box::new(move || {
                let master = master.clone();
                Box::pin(async move { if copy_whole_log { master.first_offset().await } else { None } })
            })
        };
        let ha = HaSlave::start(store.clone(), settings(config), first);
        let fixed = config.ha_master_address.clone();
        let is_fixed = fixed.is_some();
        ha.set_master(fixed);
        Slave { ha, is_fixed, master, synchronizing: Mutex::default() }
    }
}

impl MasterAddress {
    fn forget(&self) {
        self.address.send_if_modified(|known| known.take().is_some());
    }

    fn set(&self, address: &str) {
        self.address.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(address);
            if is_new {
                tracing::info!(master = address, "this is where the master is");
                *known = Some(address.to_owned());
            }
            is_new
        });
    }

    /// The first offset of the master's log; `None` if it is empty, or can't be found out.
    async fn first_offset(&self) -> Option<u64> {
        let mut known = self.address.subscribe();
        let known = tokio::time::timeout(FIRST_OFFSET_TIMEOUT, known.wait_for(Option::is_some)).await;
        let address = known.ok()?.ok()?.clone()?;
        // A Java broker that has just started can't answer yet.
        for _ in 0..FIRST_OFFSET_TRIES {
            match self.log_bounds(&address).await {
                Some((begin, end)) => return (begin < end).then_some(begin),
                None => tokio::time::sleep(FIRST_OFFSET_PAUSE).await,
            }
        }
        tracing::warn!(
            master = address,
            "can't find out where the master's log begins: its last file is copied"
        );
        None
    }

    /// Where the master's log begins and ends, if it says so.
    async fn log_bounds(&self, address: &str) -> Option<(u64, u64)> {
        let question = RemotingCommand::request(request::GET_BROKER_RUNTIME_INFO);
        let answer = self.client.invoke(address, question, ASK_TIMEOUT).await.ok()?;
        let info: KVTable = json::from_slice(&answer.body).ok()?;
        let offset = |key: &str| info.table.get(key)?.parse::<u64>().ok();
        Some((offset("commitLogMinOffset")?, offset("commitLogMaxOffset")?))
    }
}

/// Whether a broker with these settings has a port for slaves.
pub(crate) fn listens_for_slaves(config: &BrokerConfig) -> bool {
    let is_master = config.broker_role != BrokerRole::Slave && !config.enable_d_leger_commit_log;
    is_master || config.enable_controller_mode
}

fn auto_switch_settings(config: &BrokerConfig) -> AutoSwitchSettings {
    AutoSwitchSettings {
        ha: HaSettings { reconnect_pause: RECONNECT_PAUSE, ..settings(config) },
        lag_max: Duration::from_millis(config.ha_max_time_slave_not_catchup),
        from_last_file: config.sync_from_last_file,
        is_learner: config.async_learner,
    }
}

fn settings(config: &BrokerConfig) -> HaSettings {
    HaSettings {
        heartbeat_interval: Duration::from_millis(config.ha_send_heartbeat_interval.into()),
        housekeeping_interval: Duration::from_millis(config.ha_housekeeping_interval.into()),
        batch_size: config.ha_transfer_batch_size as usize,
        gap_max: config.ha_max_gap_not_in_sync.into(),
        bytes_per_second_max: config.ha_flow_control_enable.then_some(config.max_ha_transfer_byte_in_second),
        slaves_per_host: config.ha_slaves_per_host as usize,
        ..HaSettings::default()
    }
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
