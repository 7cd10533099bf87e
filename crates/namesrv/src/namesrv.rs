//! Starting and stopping.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferromq_remoting::{BindError, Client, Limits, RunningServer, Server, ServerOptions};
use ferromq_settings::{LiveSettings, Rules};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::config::NamesrvConfig;
use crate::kv::KvConfig;
use crate::routes::Routes;
use crate::service::NamesrvService;
use crate::state::State;
use crate::tasks;

/// Notices that may wait; while this many do, brokers that should be told can't be reached anyway.
const NOTICES_MAX: usize = 1024;

/// What is read only at the start.
const START_ONLY: [&str; 5] = [
    "bindAddress",
    "enableControllerInNamesrv",
    "listenPort",
    "serverChannelMaxIdleTimeSeconds",
    "unRegisterBrokerQueueCapacity",
];

/// How long connections are given to end at a shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a name server can't start.
#[derive(Debug, Error)]
pub enum StartError {
    /// `bindAddress` and `listenPort` are no place to listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The socket can't be registered with the runtime.
    #[error("can't serve connections: {0}")]
    Serve(#[source] io::Error),
}

/// A running name server. Dropping it stops it at once.
pub struct Namesrv {
    state: Arc<State>,
    address: SocketAddr,
    server: RunningServer,
    /// For what the name server sends to brokers.
    client: Arc<Client>,
    /// Ends when it is dropped.
    _tasks: JoinSet<()>,
}

impl Namesrv {
    /// Starts a name server on the current Tokio runtime. It listens when this returns.
    ///
    /// # Errors
    /// If it can't listen. A key/value file that can't be read is logged and taken as empty.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn start(config: NamesrvConfig) -> Result<Self, StartError> {
        if config.cluster_test {
            tracing::warn!("clusterTest is not offered and has no effect");
        }
        let idle_timeout = Duration::from_secs(config.server_channel_max_idle_time_seconds.get().into());
        let options = ServerOptions {
            limits: Limits { idle_timeout, ..Limits::default() },
            ..ServerOptions::default()
        };
        let server = Server::bind(&config.bind_address, config.listen_port, options)?;
        let address = server.address();

        let (removals, removals_asked) =
            mpsc::channel(config.unregister_broker_queue_capacity.get() as usize);
        let (notices, notices_asked) = mpsc::channel(NOTICES_MAX);
        let rules = Rules {
            server: "name server",
            start_only: &START_ONLY,
            black_list: config.config_black_list.clone(),
            file: PathBuf::from(&config.config_store_path),
        };
        let state = Arc::new(State {
            kv: KvConfig::load(PathBuf::from(&config.kv_config_path)),
            config: LiveSettings::new(config, rules),
            routes: Routes::default(),
            removals,
            notices,
            started: Instant::now(),
            going_away: AtomicBool::new(false),
        });
        let server =
            server.start(Arc::new(NamesrvService { state: state.clone() })).map_err(StartError::Serve)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(tasks::remove_brokers(state.clone(), removals_asked));
        tasks.spawn(tasks::expire_brokers(state.clone()));
        let client = Arc::new(Client::new());
        tasks.spawn(tasks::send_notices(client.clone(), notices_asked));
        tracing::info!(%address, "name server started");
        Ok(Self { state, address, server, client, _tasks: tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it: with `enableShutdownGracefully` clients are sent away for `shutdownWaitTimeSeconds` first.
    pub async fn shutdown(self) {
        let (is_graceful, wait_seconds) = {
            let config = self.state.config.load();
            (config.enable_shutdown_gracefully, config.shutdown_wait_time_seconds)
        };
        if is_graceful {
            self.state.going_away.store(true, Ordering::Relaxed);
            sleep(Duration::from_secs(wait_seconds.into())).await;
        }
        self.server.stop();
        self.client.close().await;
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while self.server.open_connections() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
        tracing::info!(address = %self.address, "name server stopped");
    }
}
