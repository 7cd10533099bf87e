//! The route tables: who is there, and which broker has which queues (`docs/spec/06-namesrv.md` 2).
//!
//! [`Tables`] is plain data with one method for each thing that can be asked of it or done to it; the files beside this
//! one each hold a kind of them. [`Routes`] puts the tables behind one read/write lock. Nothing here knows of requests,
//! and of connections only what [`Link`] says.

mod lists;
mod liveness;
mod lookup;
mod register;
mod topics;
mod unregister;

#[cfg(test)]
mod sample;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ferromq_protocol::body::{BrokerData, DataVersion, QueueData, TopicQueueMappingInfo};
use ferromq_remoting::Connection;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use lookup::keep_zone;
pub(crate) use register::{Completeness, Registration, RegistrationRefused};
pub(crate) use unregister::Unregistration;

/// Id of a set's master.
const MASTER_ID: i64 = 0;
/// Permission bit: producers may send.
const PERM_WRITE: i32 = 2;
/// Permission bits: consumers may read, producers may send.
const PERM_READ_WRITE: i32 = 6;
/// How long a broker may be silent that does not say so itself, ms.
const HEARTBEAT_TIMEOUT_MS: i64 = 120_000;

/// Most topics that are known at once: ten times what one cluster has been seen with. Like the other limits it keeps a
/// stranger from filling the memory.
const TOPICS_MAX: usize = 1_000_000;
/// Most names of broker sets, names of clusters, and living brokers, each.
const BROKERS_MAX: usize = 100_000;
/// Longest name or address, bytes. Those of RocketMQ's brokers, topics and groups stay below 300.
const NAME_BYTES_MAX: usize = 1024;

/// The connection that a broker registered over; its life is the broker's.
pub(crate) trait Link: Debug + Send + Sync {
    /// A number that no other connection has.
    fn id(&self) -> u64;

    /// Ends the connection.
    fn close(&self);
}

impl Link for Connection {
    fn id(&self) -> u64 {
        Connection::id(self)
    }

    fn close(&self) {
        Connection::close(self);
    }
}

/// One broker process as the liveness tables know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BrokerAddrInfo {
    pub(crate) cluster_name: String,
    pub(crate) broker_addr: String,
}

/// When a broker was heard of last, and what its last registration said.
#[derive(Debug)]
struct BrokerLiveInfo {
    broker_name: String,
    /// On the name server's own clock, ms. Heartbeats set it under the read lock.
    last_update_ms: AtomicI64,
    heartbeat_timeout_ms: i64,
    data_version: DataVersion,
    ha_server_addr: Option<String>,
    link: Arc<dyn Link>,
}

impl BrokerLiveInfo {
    fn has_expired(&self, now_ms: i64) -> bool {
        self.last_update_ms.load(Ordering::Relaxed).saturating_add(self.heartbeat_timeout_ms) < now_ms
    }
}

/// The queues of one topic: one entry for each broker set that has it, sorted by the set's name. Few, so a list.
#[derive(Debug, Default)]
struct TopicQueues(Vec<QueueData>);

impl TopicQueues {
    fn position(&self, broker_name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|queue| queue.broker_name.as_str().cmp(broker_name))
    }

    fn get_mut(&mut self, broker_name: &str) -> Option<&mut QueueData> {
        self.position(broker_name).ok().map(|position| &mut self.0[position])
    }

    fn contains(&self, broker_name: &str) -> bool {
        self.position(broker_name).is_ok()
    }

    fn set(&mut self, queue: QueueData) {
        match self.position(&queue.broker_name) {
            Ok(position) => self.0[position] = queue,
            Err(position) => {
                self.0.reserve_exact(1);
                self.0.insert(position, queue);
            }
        }
    }

    fn remove(&mut self, broker_name: &str) {
        if let Ok(position) = self.position(broker_name) {
            self.0.remove(position);
        }
    }
}

/// Addresses of a set's brokers that are to be told of its new smallest id (3.4).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MinBrokerIdNotice {
    pub(crate) min_broker_id: i64,
    pub(crate) min_broker_addr: String,
    /// Who left, if somebody did.
    pub(crate) offline_broker_addr: Option<String>,
    /// Where the one who came replicates from, if somebody did.
    pub(crate) ha_broker_addr: Option<String>,
    pub(crate) receivers: Vec<String>,
}

impl MinBrokerIdNotice {
    fn new(
        broker_addrs: &BTreeMap<i64, String>,
        offline: Option<String>,
        ha: Option<String>,
    ) -> Option<Self> {
        let (&min_broker_id, min_broker_addr) = broker_addrs.first_key_value()?;
        let to_all = offline.is_some() || broker_addrs.len() == 1;
        let receivers = broker_addrs.iter().filter(|(id, _)| to_all || **id != min_broker_id);
        Some(Self {
            min_broker_id,
            min_broker_addr: min_broker_addr.clone(),
            offline_broker_addr: offline,
            ha_broker_addr: ha,
            receivers: receivers.map(|(_, addr)| addr.clone()).collect(),
        })
    }
}

/// All tables, with RocketMQ's names.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    topic_queue_table: HashMap<String, TopicQueues>,
    /// By the name of the set alone: sets of the same name in two clusters collide, as they do in RocketMQ.
    broker_addr_table: BTreeMap<String, BrokerData>,
    cluster_addr_table: BTreeMap<String, BTreeSet<String>>,
    broker_live_table: HashMap<BrokerAddrInfo, BrokerLiveInfo>,
    filter_server_table: HashMap<BrokerAddrInfo, Vec<String>>,
    /// Topic to broker name to mapping. Never shrinks (15.9).
    topic_queue_mapping_info_table: HashMap<String, BTreeMap<String, TopicQueueMappingInfo>>,
}

impl Tables {
    /// Whether a set wants a slave to stand in for its master, and has none.
    fn acts_without_master(&self, broker_name: &str) -> bool {
        self.broker_addr_table.get(broker_name).is_some_and(|broker| {
            broker.enable_acting_master
                && broker.broker_addrs.keys().next().is_none_or(|min| *min > MASTER_ID)
        })
    }

    /// Whether this many more topics may be added, if all of them are new.
    fn has_room_for_topics(&self, topics: usize) -> bool {
        self.topic_queue_table.len().max(self.topic_queue_mapping_info_table.len()) + topics <= TOPICS_MAX
    }

    /// Applies `change` to the queues of every topic and forgets topics that have none left.
    fn change_all_topics(&mut self, mut change: impl FnMut(&str, &mut TopicQueues)) {
        self.topic_queue_table.retain(|topic, queues| {
            change(topic, queues);
            !queues.0.is_empty()
        });
    }
}

/// The tables behind their lock. A route is copied out under the read lock; nothing is encoded or sent under it.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    tables: RwLock<Tables>,
}

impl Routes {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write()
    }
}
