//! The broker's part in a set of replicas: a master that sends its log to slaves, or a slave that copies it
//! (`docs/spec/05-ha.md` 1 to 5), or a member of a
//! [Raft group](raft).
//!
//! How the log travels is the business of [`ferromq_replication`]. Here is what a broker adds: where the master is, which
//! replicas a send waits for ([`acks`]), and copies of everything that is not in the log ([`synchronize`]).

pub(crate) mod acks;
pub(crate) mod acting;
pub(crate) mod raft;
mod returning;
mod synchronize;

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo, KVTable};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Client;
use ferromq_replication::classic::{FirstOffset, HaMaster, HaSettings, HaSlave, SlaveState};
use ferromq_store::Store;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::broker::{Broker, StartError};
use crate::config::{BrokerConfig, BrokerRole};
use acting::Acting;

/// How long an empty slave waits to learn where its master's log begins.
const FIRST_OFFSET_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the master may take to say it.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);

/// The broker's role and what belongs to it.
pub(crate) struct Replication {
    role: Role,
    pub(crate) acting: Acting,
    acting_task: Mutex<Option<JoinHandle<()>>>,
}

enum Role {
    Master(HaMaster),
    Slave(Box<Slave>),
    Raft(Box<raft::Member>),
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
        let role = match listener {
            _ if config.enable_d_leger_commit_log => {
                Role::Raft(Box::new(Handle::current().block_on(raft::Member::start(store, config))?))
            }
            Some(listener) => Role::Master(HaMaster::start(store.clone(), listener, settings(config))?),
            None => Role::Slave(Box::new(Slave::start(store, config))),
        };
        Ok(Self { role, acting: Acting::new(config), acting_task: Mutex::default() })
    }

    /// Whether this broker's role is the business of a Raft group. It registers once that is known.
    pub(crate) fn is_raft(&self) -> bool {
        matches!(self.role, Role::Raft(_))
    }

    /// Begins what needs the whole broker: copying what is not in the log (a slave all that its master has, a master what its slaves
    /// have done without it), and changes of the role. A master for which slaves act knows what they did when this returns.
    pub(crate) async fn synchronize(&self, broker: &Arc<Broker>) {
        let acts_for_others = broker.config().enable_slave_acting_master;
        if acts_for_others {
            *self.acting_task.lock() = Some(tokio::spawn(Acting::run(broker.clone())));
        }
        match &self.role {
            Role::Master(_) if acts_for_others => returning::run(broker.clone()).await,
            Role::Master(_) => drop(tokio::spawn(returning::run(broker.clone()))),
            Role::Slave(slave) => {
                let task = tokio::spawn(synchronize::run(broker.clone(), slave.master.clone()));
                *slave.synchronizing.lock() = Some(task);
            }
            Role::Raft(member) => member.take_part(broker),
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
        };
        if let Some(address) = address {
            slave.master.set(address);
        }
        if let Some(ha_address) = ha_address.filter(|_| !slave.is_fixed) {
            slave.ha.set_master(Some(ha_address.to_owned()));
        }
    }

    /// Whether this is a slave that copies its master's log.
    fn follows(&self) -> bool {
        match &self.role {
            Role::Master(_) => false,
            Role::Slave(slave) => slave.ha.status().state == SlaveState::Transfer,
            Role::Raft(member) => member.follows(),
        }
    }

    /// The master that sends the log to slaves, unless this is one.
    pub(crate) fn master(&self) -> Option<&HaMaster> {
        match &self.role {
            Role::Master(master) => Some(master),
            Role::Slave(_) | Role::Raft(_) => None,
        }
    }

    /// Puts other settings in force.
    pub(crate) fn reconfigure(&self, config: &BrokerConfig) {
        match &self.role {
            Role::Master(master) => master.reconfigure(settings(config)),
            Role::Slave(slave) => slave.ha.reconfigure(settings(config)),
            Role::Raft(member) => member.reconfigure(config),
        }
    }

    /// Whether a slave has most of the log: it can take over slow readers.
    pub(crate) fn has_slave_in_sync(&self) -> bool {
        self.master().is_some_and(|master| master.in_sync() > 0)
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
            Role::Slave(slave) => {
                let status = slave.ha.status();
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
            Role::Raft(member) => HARuntimeInfo {
                master: member.leads(),
                master_commit_log_max_offset: end,
                ..HARuntimeInfo::default()
            },
        }
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
                tracing::info!(master = address, "a name server says where the master is");
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
        let question = RemotingCommand::request(request::GET_BROKER_RUNTIME_INFO);
        let answer = self.client.invoke(&address, question, ASK_TIMEOUT).await;
        let answer = answer
            .map_err(|error| tracing::warn!(%error, "can't find out where the master's log begins"))
            .ok()?;
        let info: KVTable = json::from_slice(&answer.body).ok()?;
        let offset = |key: &str| info.table.get(key)?.parse::<u64>().ok();
        let (begin, end) = (offset("commitLogMinOffset")?, offset("commitLogMaxOffset")?);
        (begin < end).then_some(begin)
    }
}

/// Whether a broker with these settings has slaves of the classic kind.
pub(crate) fn is_master(config: &BrokerConfig) -> bool {
    config.broker_role != BrokerRole::Slave && !config.enable_d_leger_commit_log
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
