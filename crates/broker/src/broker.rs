//! The broker as a whole: what it owns, how it starts and stops.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ferromq_protocol::body::{DataVersion, TopicConfigSerializeWrapper};
use ferromq_protocol::message::RecordFields;
use ferromq_remoting::{BindError, Limits, RunningServer, Server, ServerOptions};
use ferromq_replication::autoswitch::EpochFileError;
use ferromq_replication::raft::RaftError;
use ferromq_store::{AppendError, ConsumeQueue, OpenError, Outcome, PushError, Store};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::admin::ConfigVersion;
use crate::client::{self, ConsumerTable, MessageRequestModes, ProducerTable};
use crate::config::{BrokerConfig, store_options};
use crate::config_file::LoadError;
use crate::groups::SubscriptionGroups;
use crate::locks::QueueLocks;
use crate::offsets::ConsumerOffsets;
use crate::pull::{ColdReads, HeldPulls};
use crate::registration::{Registrant, Registration};
use crate::replication::acks::GROUP_TIMEOUT;
use crate::replication::acting::EscapeError;
use crate::replication::{Replication, listens_for_slaves};
use crate::schedule::{self, ScheduleService};
use crate::send::BrokerProperties;
use crate::service::{BrokerService, Port};
use crate::stats::BrokerStats;
use crate::topics::{TopicChange, TopicTable, batch_topics, is_batch};

/// Everything that one broker knows, shared by all its connections.
pub(crate) struct Broker {
    /// The settings in force; replaced as a whole by UPDATE_BROKER_CONFIG.
    config: ArcSwap<BrokerConfig>,
    pub(crate) config_version: ConfigVersion,
    /// `brokerIP1` and the port: what messages record as their store host, and what clients connect to.
    store_host: SocketAddr,
    pub(crate) store: Arc<Store>,
    pub(crate) properties: BrokerProperties,
    pub(crate) topics: TopicTable,
    pub(crate) groups: SubscriptionGroups,
    pub(crate) consumers: ConsumerTable,
    pub(crate) producers: ProducerTable,
    pub(crate) request_modes: MessageRequestModes,
    pub(crate) offsets: ConsumerOffsets,
    pub(crate) locks: QueueLocks,
    pub(crate) held_pulls: Arc<HeldPulls>,
    pub(crate) cold_reads: Arc<ColdReads>,
    pub(crate) stats: BrokerStats,
    pub(crate) schedule: ScheduleService,
    pub(crate) registration: Registration,
    pub(crate) replication: Replication,
}

/// Why a message of the broker's own making was not stored.
#[derive(Debug, Error)]
pub(crate) enum PutError {
    /// The log refused it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// It can't be a record.
    #[error(transparent)]
    Record(#[from] PushError),
    /// This is a slave, and no other set took it.
    #[error(transparent)]
    Escape(#[from] EscapeError),
}

/// Why a broker does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A file under `config/` can't be used.
    #[error(transparent)]
    ConfigFile(#[from] LoadError),
    /// A port can't be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The port for slaves can't be listened on.
    #[error(
        "can't listen for slaves on {address}: {source}; set haListenPort (listenPort + 1 unless it is set)"
    )]
    BindHa {
        /// Where.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The epoch file can't be used.
    #[error(transparent)]
    Epochs(#[from] EpochFileError),
    /// `brokerIP1` is not an address.
    #[error("brokerIP1 must be an IP address, not `{0}`")]
    BrokerIp(String),
    /// The Raft group can't be taken part in.
    #[error(transparent)]
    Raft(#[from] RaftError),
    /// The system refused a thread or a socket.
    #[error("can't start: {0}")]
    System(#[from] io::Error),
}

impl Broker {
    /// The settings in force now.
    pub(crate) fn config(&self) -> Arc<BrokerConfig> {
        self.config.load_full()
    }

    /// Puts new settings in force.
    pub(crate) fn reconfigure(&self, config: BrokerConfig) {
        self.properties.reconfigure(&config);
        self.store.set_retention(&store_options(&config));
        self.replication.reconfigure(&config);
        self.config.store(Arc::new(config));
    }

    /// Tells name servers and connected clients' held pulls about topics that changed.
    fn topics_changed(&self, change: &TopicChange<'_>) {
        match change {
            TopicChange::Updated(topics) => {
                for topic in *topics {
                    if is_batch(topic) {
                        self.store.declare_batch_topic(&topic.topic_name);
                    }
                    self.registration.topic_changed(topic);
                }
            }
            TopicChange::Deleted(topic) => {
                for queue in self.store.queues_of(topic) {
                    self.held_pulls.wake_queue(&queue);
                }
                self.registration.register_all_soon();
            }
            TopicChange::Version => self.registration.register_all_soon(),
        }
    }

    /// `brokerIP1` and the port.
    pub(crate) fn store_host(&self) -> SocketAddr {
        self.store_host
    }

    /// Waits a while until everybody has what ends at `end` who has to, in a Raft group or under controllers, and was stored in the
    /// store's `term`; false if that is not so, or another broker leads. Elsewhere there is nothing to wait for. Blocks.
    pub(crate) fn is_agreed(&self, end: u64, term: u64) -> bool {
        let is_elected = self.replication.is_raft() || self.replication.controlled().is_some();
        !is_elected || self.store.confirmed().wait_blocking(end, GROUP_TIMEOUT) && self.store.term() == term
    }

    /// Stores one message that the broker itself made: a retry, a delivery, a dead letter. Does not wait for a flush.
    pub(crate) fn put(&self, record: &RecordFields<'_>) -> Result<Outcome, PutError> {
        let queue = self.store.queue(record.topic, record.queue_id);
        let mut batch = self.store.new_batch();
        batch.push(&queue, record)?;
        self.store.append(&mut batch)?;
        let outcome = batch.outcomes()[0];
        self.stats.topic_put(record.topic).add(1, u64::from(outcome.size));
        Ok(outcome)
    }
}

impl Registrant for Broker {
    fn config(&self) -> Arc<BrokerConfig> {
        Broker::config(self)
    }

    fn topics(&self) -> TopicConfigSerializeWrapper {
        self.topics.snapshot()
    }

    fn data_version(&self) -> DataVersion {
        self.topics.data_version()
    }

    fn bump_data_version(&self) {
        self.topics.bump_data_version();
    }

    fn set_ordered(&self, topics: &[&str]) {
        self.topics.set_ordered(topics.iter().copied());
    }

    fn master_is(&self, address: Option<&str>, ha_address: Option<&str>) {
        self.replication.master_is(address, ha_address);
    }
}

/// A broker that serves its ports.
pub struct RunningBroker {
    broker: Arc<Broker>,
    main: RunningServer,
    fast: RunningServer,
    address: SocketAddr,
    fast_address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
    schedule: Option<std::thread::JoinHandle<()>>,
}

impl RunningBroker {
    #[cfg(test)]
    pub(crate) fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Opens the store, loads the tables, listens, and registers at the name servers. Needs a Tokio runtime.
    pub async fn start(mut config: BrokerConfig) -> Result<Self, StartError> {
        let idle_timeout = Duration::from_secs(config.server_channel_max_idle_time_seconds.into());
        let options = ServerOptions {
            encoding: config.header_encoding(),
            limits: Limits { idle_timeout, ..Limits::default() },
        };
        let main = Server::bind(&config.bind_address, port(config.listen_port), options.clone())?;
        let fast_port = if config.listen_port == 0 { 0 } else { port(config.listen_port).saturating_sub(2) };
        let fast = Server::bind(&config.bind_address, fast_port, options)?;
        let ha_listener = match listens_for_slaves(&config) {
            true => Some(bind_ha(&config.bind_address, port(config.ha_port())).await?),
            false => None,
        };
        config.listen_port = u32::from(main.address().port());
        if let Some(listener) = &ha_listener {
            config.ha_listen_port = u32::from(listener.local_addr()?.port());
        }
        let (address, fast_address) = (main.address(), fast.address());

        let opened = tokio::task::spawn_blocking(move || Broker::open(config, ha_listener)).await;
        let broker = opened.map_err(|panic| StartError::System(io::Error::other(panic)))??;
        broker.topics.set_listener({
            let broker = Arc::downgrade(&broker);
            move |change| {
                if let Some(broker) = broker.upgrade() {
                    broker.topics_changed(&change);
                }
            }
        });
        let main = main.start(Arc::new(BrokerService::new(broker.clone(), Port::Main)))?;
        let fast = fast.start(Arc::new(BrokerService::new(broker.clone(), Port::Fast)))?;
        let has_role = broker.replication.begin(&broker).await;
        let schedule = std::thread::Builder::new().name("schedule".to_owned()).spawn({
            let broker = broker.clone();
            move || schedule::run(&broker)
        })?;
        let tasks = vec![tokio::spawn(housekeeping(broker.clone()))];
        if has_role {
            broker.registration.start(broker.clone()).await;
        }
        Ok(Self { broker, main, fast, address, fast_address, tasks, schedule: Some(schedule) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens for slaves; `None` if it is one, or in a Raft group.
    pub fn ha_address(&self) -> Option<SocketAddr> {
        self.broker.replication.ha_address()
    }

    /// Where it listens for everything but pulls.
    pub fn fast_address(&self) -> SocketAddr {
        self.fast_address
    }

    /// The settings in force.
    pub fn config(&self) -> Arc<BrokerConfig> {
        self.broker.config()
    }

    /// How many pulls wait for a message.
    pub fn held_pulls(&self) -> usize {
        self.broker.held_pulls.len()
    }

    /// How many pulls were answered by threads that may wait for the disk, since the start.
    pub fn cold_reads(&self) -> u64 {
        self.broker.cold_reads.begun()
    }

    /// Takes the broker out of the routes, closes its connections, and brings everything to the disk.
    pub async fn shutdown(mut self) {
        self.broker.registration.stop().await;
        self.main.stop();
        self.fast.stop();
        for task in self.tasks.drain(..) {
            task.abort();
        }
        self.broker.replication.stop().await;
        let (broker, schedule) = (self.broker.clone(), self.schedule.take());
        let stopped = tokio::task::spawn_blocking(move || {
            broker.schedule.stop();
            if let Some(thread) = schedule {
                // A panic of the thread was reported when it happened.
                let _ = thread.join();
            }
            broker.offsets.stop();
            broker.topics.stop();
            broker.groups.stop();
            broker.request_modes.stop();
            broker.store.shutdown();
        });
        if let Err(error) = stopped.await {
            tracing::error!(%error, "the broker did not stop in an orderly way");
        }
    }
}

async fn bind_ha(host: &str, port: u16) -> Result<TcpListener, StartError> {
    let failed = |source| StartError::BindHa { address: format!("{host}:{port}"), source };
    TcpListener::bind((host, port)).await.map_err(failed)
}

fn port(setting: u32) -> u16 {
    u16::try_from(setting).unwrap_or_default()
}

impl Broker {
    fn open(config: BrokerConfig, ha_listener: Option<TcpListener>) -> Result<Arc<Self>, StartError> {
        let ip: IpAddr = config
            .broker_ip1
            .trim_matches(['[', ']'])
            .parse()
            .map_err(|_| StartError::BrokerIp(config.broker_ip1.clone()))?;
        let store_host = SocketAddr::new(ip, port(config.listen_port));
        let config_directory = Path::new(&config.store_path_root_dir).join("config");
        let mut options = store_options(&config);
        options.batch_topics = batch_topics(&config_directory);
        let levels = options.delay_levels_ms.len();
        let store = Store::open(options)?;
        let replication = Replication::start(&store, &config, ha_listener)?;
        let topics = TopicTable::load(&config_directory, &config)?;
        if topics.is_new() {
            restore_topics(&topics, &store, |_| true);
        }
        let groups = SubscriptionGroups::load(&config_directory, config.enable_lmq)?;
        let held_pulls = Arc::new(HeldPulls::default());
        store.set_arrival_listener(held_pulls.clone());
        Ok(Arc::new(Self {
            store_host,
            properties: BrokerProperties::new(&config, ip),
            offsets: ConsumerOffsets::load(
                &config_directory,
                config.enable_lmq,
                Duration::from_millis(config.flush_consumer_offset_interval.into()),
                config.consumer_offset_update_version_step,
            )?,
            consumers: ConsumerTable::default(),
            producers: ProducerTable::default(),
            request_modes: MessageRequestModes::load(&config_directory)?,
            locks: QueueLocks::default(),
            held_pulls,
            cold_reads: Arc::default(),
            stats: BrokerStats::new(
                &config.broker_cluster_name,
                topics.system_topics().iter().cloned(),
                config.max_stats_idle_time_in_minutes,
            ),
            schedule: ScheduleService::load(&config_directory, levels)?,
            registration: Registration::default(),
            replication,
            topics,
            groups,
            store,
            config_version: ConfigVersion::default(),
            config: ArcSwap::from_pointee(config),
        }))
    }
}

/// Adds topics that are in no table but have queues, the last of which is as `wanted`.
pub(crate) fn restore_topics(topics: &TopicTable, store: &Store, wanted: impl Fn(&ConsumeQueue) -> bool) {
    // Looking at a queue may need the disk: only where there is a reason.
    let missing = store.topics().into_iter().filter(|topic| !topics.contains(topic));
    topics.restore(missing.filter_map(|topic| {
        let queues = store.queues_of(&topic);
        let last = queues.last()?;
        wanted(last).then(|| (topic, last.queue_id() + 1))
    }));
}

/// What a broker does every second and every ten seconds.
async fn housekeeping(broker: Arc<Broker>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for second in 0u64.. {
        ticks.tick().await;
        broker.stats.tick(jiff::Timestamp::now().as_millisecond(), &broker.store.stats());
        if second % client::SCAN_INTERVAL.as_secs() == 0 {
            client::scan(&broker);
        }
    }
}
