//! Starting and stopping.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferromq_remoting::{BindError, Client, Limits, RunningServer, Server, ServerOptions};
use ferromq_settings::{LiveSettings, Rules};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::config::{ControllerConfig, START_ONLY};
use crate::group::{Group, GroupError};
use crate::link::RemotingLink;
use crate::live::LiveTable;
use crate::raft::{Consensus, JoinError, Timing};
use crate::service::ControllerService;
use crate::shared::Shared;
use crate::watch;

/// How long connections are given to end at a shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a controller can't start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The settings name no group of controllers.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The port can't be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The socket can't be registered with the runtime.
    #[error("can't serve connections: {0}")]
    Serve(#[source] io::Error),
    /// What is in `controllerStorePath` can't be gone on from.
    #[error("{0}")]
    Join(String),
}

impl From<JoinError> for StartError {
    fn from(error: JoinError) -> Self {
        Self::Join(error.to_string())
    }
}

/// A running controller. Dropping it without [`shutdown`](Self::shutdown) stops serving; what it promised is on the disk.
pub struct Controller {
    shared: Arc<Shared>,
    address: SocketAddr,
    server: RunningServer,
    link: RemotingLink,
    folder: PathBuf,
    /// Ends when it is dropped.
    _tasks: JoinSet<()>,
}

impl Controller {
    /// Starts a controller on the current Tokio runtime. It listens when this returns; its group elects a leader when the
    /// majority is there.
    ///
    /// # Errors
    /// If the settings name no group, it can't listen, or its files are damaged or of another group.
    pub async fn start(config: ControllerConfig) -> Result<Self, StartError> {
        let group = Arc::new(Group::of(&config)?);
        let port = group.own().map_or(0, |own| own.port);
        let idle_timeout = Duration::from_secs(config.server_channel_max_idle_time_seconds.get().into());
        let options = ServerOptions {
            limits: Limits { idle_timeout, ..Limits::default() },
            ..ServerOptions::default()
        };
        // Binding comes first: it keeps a second controller of the same id away from the files.
        let server = Server::bind(&config.bind_address, port, options)?;
        let address = server.address();

        let folder = config.store_path().join(format!("ferromq-n{}", group.own_id));
        let shortest = u64::from(config.jraft_election_timeout_ms.get());
        let timing = Timing { election_timeout_ms: shortest..2 * shortest };
        let link = RemotingLink::new(group.clone());
        let consensus = Consensus::join(group.clone(), &folder, timing, link.clone()).await?;

        let rules = Rules {
            server: "controller",
            start_only: &START_ONLY,
            black_list: config.config_black_list.clone(),
            file: PathBuf::from(&config.config_store_path),
        };
        let requests = config.controller_request_thread_pool_queue_capacity.get() as usize;
        let shared = Arc::new(Shared {
            config: LiveSettings::new(config, rules),
            group,
            consensus,
            live: LiveTable::new(),
            client: Client::new(),
            requests: Arc::new(Semaphore::new(requests)),
        });
        let service = ControllerService { shared: shared.clone() };
        let server = server.start(Arc::new(service)).map_err(StartError::Serve)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(watch::expire_replicas(shared.clone()));
        tasks.spawn(watch::lead(shared.clone()));
        tracing::info!(%address, folder = %folder.display(), "controller started");
        Ok(Self { shared, address, server, link, folder, _tasks: tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Name of its group, and its own id there.
    pub fn identity(&self) -> (Option<&str>, &str) {
        let group = &self.shared.group;
        (group.name.as_deref(), group.own().map_or("", |own| &own.name))
    }

    /// Addresses of all controllers of the group, as brokers want them in `controllerAddr`.
    pub fn controller_addr(&self) -> String {
        let addresses: Vec<&str> =
            self.shared.group.peers.values().map(|peer| peer.address.as_str()).collect();
        addresses.join(";")
    }

    /// Folder of what it must not forget.
    pub fn store_path(&self) -> &Path {
        &self.folder
    }

    /// Whether it leads its group, as far as it knows.
    pub fn leads(&self) -> bool {
        self.shared.consensus.leads()
    }

    /// Stops it.
    pub async fn shutdown(self) {
        self.server.stop();
        self.shared.consensus.leave().await;
        self.link.close().await;
        self.shared.client.close().await;
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while self.server.open_connections() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
        tracing::info!(address = %self.address, "controller stopped");
    }
}
