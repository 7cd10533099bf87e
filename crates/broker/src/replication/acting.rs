//! A slave that acts for its master while that is away (`docs/spec/05-ha.md` 6).
//!
//! With `enableSlaveActingMaster`, brokers tell the name servers every second that they live, and ask who else of the set does. Name
//! servers (with `supportActingMaster`) show the slave with the smallest id as the master of a set that has none, for reading. That
//! slave takes progress, and (with `enableRemoteEscape`) sends delayed messages that are due to the master of another set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{BrokerMemberGroup, GetBrokerMemberGroupResponseBody, TopicRouteData};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::message::{RecordFields, properties};
use ferromq_remoting::{Client, InvokeError};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::registration::name_servers;

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Topic to copy, and queues, if the other set does not know the message's topic.
const DEFAULT_TOPIC_QUEUES: i32 = 8;
/// A queue that can be sent to.
const PERM_WRITE: i32 = 2;

/// What this broker knows of the others of its set.
#[derive(Debug)]
pub(crate) struct Acting {
    /// This is the slave with the smallest id, and there is no master.
    acts: AtomicBool,
    /// Members that live, this one included.
    alive: AtomicU32,
    /// Addresses of the others that live.
    others: Mutex<Vec<String>>,
    client: Client,
    runtime: Handle,
    /// Counts messages that were brought to another set, to take turns.
    brought: AtomicUsize,
}

/// Why a message could not be brought to another set.
#[derive(Debug, Error)]
pub(crate) enum EscapeError {
    /// No other set has the topic, or none of them a master.
    #[error("no other broker set takes messages of topic {0}")]
    NoTarget(String),
    /// It can't be asked.
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    /// It does not want the message.
    #[error("the other broker answers {code}: {remark}")]
    Refused {
        /// Its code.
        code: i32,
        /// Its words.
        remark: String,
    },
}

impl Acting {
    /// Needs a Tokio runtime.
    pub(super) fn new(config: &BrokerConfig) -> Self {
        Self {
            acts: AtomicBool::new(false),
            alive: AtomicU32::new(config.total_replicas),
            others: Mutex::default(),
            client: Client::new(),
            runtime: Handle::current(),
            brought: AtomicUsize::new(0),
        }
    }

    /// Whether this slave acts for its master now.
    pub(crate) fn acts(&self) -> bool {
        self.acts.load(Ordering::Acquire)
    }

    /// Closes all connections.
    pub(super) async fn stop(&self) {
        self.client.close().await;
    }

    /// Members of the set that live, this one included.
    pub(super) fn alive(&self) -> usize {
        self.alive.load(Ordering::Acquire) as usize
    }

    /// Tells the name servers that this broker lives, and learns who else of the set does; again and again.
    pub(super) async fn run(broker: Arc<Broker>) {
        let acting = &broker.replication.acting;
        loop {
            let config = broker.config();
            let name_servers = name_servers(&config).await.unwrap_or_default();
            for name_server in &name_servers {
                if let Ok(connection) = acting.client.connection(name_server).await {
                    connection.oneway(heartbeat(&config));
                }
            }
            if let Some(members) = members(&acting.client, &name_servers, &config).await {
                acting.note(&broker, &config, &members);
            }
            let period = config.sync_broker_member_group_period.min(config.broker_heartbeat_interval);
            tokio::time::sleep(Duration::from_millis(period.max(100))).await;
        }
    }

    fn note(&self, broker: &Broker, config: &BrokerConfig, members: &BrokerMemberGroup) {
        let ids = members.broker_addrs.keys().copied();
        let others = members.broker_addrs.iter().filter(|(id, _)| **id != config.broker_id);
        let others: Vec<String> = others.map(|(_, address)| address.clone()).collect();
        self.alive.store(others.len() as u32 + 1, Ordering::Release);
        *self.others.lock() = others;
        let acts = broker.store.is_follower() && ids.min().is_none_or(|least| least >= config.broker_id);
        if self.acts.swap(acts, Ordering::AcqRel) != acts {
            tracing::info!(acts, "whether this slave acts for its master");
        }
    }

    /// Asks all other members of the set that live, at the same time. `None` comes from who does not answer within `timeout`.
    pub(crate) fn ask_others(
        broker: &Arc<Broker>,
        question: &RemotingCommand,
        timeout: Duration,
    ) -> JoinSet<Option<RemotingCommand>> {
        let mut answers = JoinSet::new();
        for address in broker.replication.acting.others.lock().iter() {
            let (broker, address, question) = (broker.clone(), address.clone(), question.clone());
            answers.spawn(async move {
                let invoked = broker.replication.acting.client.invoke(&address, question, timeout);
                tokio::time::timeout(timeout, invoked).await.ok()?.ok()
            });
        }
        answers
    }

    /// Brings a message to the master of another set. Waits for its answer; not on a thread of the runtime.
    pub(crate) fn escape(&self, broker: &Broker, message: &RecordFields<'_>) -> Result<(), EscapeError> {
        self.runtime.block_on(async {
            let config = broker.config();
            let (address, queue_id) = self.target(&config, message.topic).await?;
            let answer =
                self.client.invoke(&address, send_request(&config, message, queue_id), TIMEOUT).await?;
            match answer.code {
                response::SUCCESS
                | response::FLUSH_DISK_TIMEOUT
                | response::SLAVE_NOT_AVAILABLE
                | response::FLUSH_SLAVE_TIMEOUT => Ok(()),
                code => Err(EscapeError::Refused { code, remark: answer.remark.unwrap_or_default() }),
            }
        })
    }

    /// A queue of the topic on the master of another set; they take turns.
    async fn target(&self, config: &BrokerConfig, topic: &str) -> Result<(String, i32), EscapeError> {
        for name_server in name_servers(config).await.unwrap_or_default() {
            let question = RemotingCommand::request(request::GET_ROUTEINFO_BY_TOPIC).with("topic", topic);
            let Ok(answer) = self.client.invoke(&name_server, question, TIMEOUT).await else { continue };
            let Ok(route) = json::from_slice::<TopicRouteData>(&answer.body) else { continue };
            let mut queues = Vec::new();
            for data in route.queue_datas.iter().filter(|data| data.perm & PERM_WRITE != 0) {
                let set = route.broker_datas.iter().find(|set| set.broker_name == data.broker_name);
                let master = set.filter(|set| set.broker_name != config.broker_name);
                if let Some(master) = master.and_then(|set| set.broker_addrs.get(&0)) {
                    queues.extend((0..data.write_queue_nums.min(1024)).map(|queue| (master.clone(), queue)));
                }
            }
            if !queues.is_empty() {
                let turn = self.brought.fetch_add(1, Ordering::Relaxed) % queues.len();
                return Ok(queues.swap_remove(turn));
            }
        }
        Err(EscapeError::NoTarget(topic.to_owned()))
    }
}

/// The members of the broker's set, as the first name server says that answers.
pub(super) async fn members(
    client: &Client,
    name_servers: &[String],
    config: &BrokerConfig,
) -> Option<BrokerMemberGroup> {
    for name_server in name_servers {
        let question = RemotingCommand::request(request::GET_BROKER_MEMBER_GROUP)
            .with("clusterName", &config.broker_cluster_name)
            .with("brokerName", &config.broker_name);
        let Ok(answer) = client.invoke(name_server, question, TIMEOUT).await else { continue };
        let body = json::from_slice::<GetBrokerMemberGroupResponseBody>(&answer.body).ok();
        if let Some(members) = body.and_then(|body| body.broker_member_group) {
            return Some(members);
        }
    }
    None
}

fn heartbeat(config: &BrokerConfig) -> RemotingCommand {
    RemotingCommand::request(request::BROKER_HEARTBEAT)
        .with("clusterName", &config.broker_cluster_name)
        .with("brokerAddr", config.broker_address())
        .with("brokerName", &config.broker_name)
}

/// SEND_MESSAGE_V2 with a message that has waited long enough.
fn send_request(config: &BrokerConfig, message: &RecordFields<'_>, queue_id: i32) -> RemotingCommand {
    let mut kept = Vec::new();
    // It must not wait again, and nobody waits for its copies.
    for (name, value) in
        properties::iter(message.properties).filter(|(name, _)| !matches!(*name, "DELAY" | "WAIT"))
    {
        properties::append(&mut kept, name, value);
    }
    properties::append(&mut kept, "WAIT", "false");
    let group = format!("InnerProducerGroup_{}_{}", config.broker_name, config.broker_id);
    RemotingCommand::request(request::SEND_MESSAGE_V2)
        .with("a", group)
        .with("b", message.topic)
        .with("c", ferromq_protocol::names::AUTO_CREATE_TOPIC)
        .with("d", DEFAULT_TOPIC_QUEUES)
        .with("e", queue_id)
        .with("f", message.sys_flag)
        .with("g", message.born_timestamp)
        .with("h", message.flag)
        .with("i", String::from_utf8_lossy(&kept).into_owned())
        .with("j", message.reconsume_times)
        .with("k", false)
        .with("m", false)
        .with_body(message.body.to_vec())
}
