//! [`Client`]: the way to everything else.

use std::sync::Arc;
use std::time::Duration;

use ferromq_remoting::Tls;

use crate::admin::Admin;
use crate::consumer::{LitePullConsumerBuilder, PopConsumerBuilder, PushConsumerBuilder};
use crate::error::Error;
use crate::identity::{Identity, local_address};
use crate::instance::{AddressServer, Credentials, Instance, NameServerSource, RequestIdentity, Settings};
use crate::meters;
use crate::producer::ProducerBuilder;

/// Names the name servers, `host:port;host:port`.
const NAMESRV_ADDR: &str = "NAMESRV_ADDR";

/// One application's connections to a RocketMQ cluster, shared by its producers and consumers.
///
/// Handles are cheap to clone. Call [`shutdown`](Self::shutdown) at the end: it commits offsets, gives queues back, tells
/// the brokers, and returns when the last task has ended. If all handles are just dropped, tasks and connections end too,
/// but brokers learn it from the closed connections only, and what was consumed since the last commit is consumed again.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Arc<Handle>,
}

/// Ends the client when the last handle is gone.
#[derive(Debug)]
struct Handle {
    instance: Arc<Instance>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.instance.stop.cancel();
    }
}

impl Client {
    /// A client of the cluster that these name servers know, e.g. `10.0.0.1:9876;10.0.0.2:9876`.
    pub fn builder(name_servers: impl Into<String>) -> ClientBuilder {
        Self::builder_with(NameServerSource::List(name_servers.into()))
    }

    /// A client of the cluster whose name servers this address server tells.
    pub fn discover(address_server: AddressServer) -> ClientBuilder {
        Self::builder_with(NameServerSource::Discovery(address_server))
    }

    /// A client of the cluster that the environment variable `NAMESRV_ADDR` names, as other RocketMQ clients have it; without
    /// the variable, that of the [default address server](AddressServer::default).
    pub fn from_env() -> ClientBuilder {
        match std::env::var(NAMESRV_ADDR) {
            Ok(list) if !list.trim().is_empty() => Self::builder(list),
            _ => Self::discover(AddressServer::default()),
        }
    }

    fn builder_with(name_servers: NameServerSource) -> ClientBuilder {
        ClientBuilder {
            name_servers,
            client_ip: None,
            instance_name: None,
            unit_name: None,
            settings: Settings {
                poll_name_server_interval: Duration::from_secs(30),
                heartbeat_broker_interval: Duration::from_secs(30),
                persist_consumer_offset_interval: Duration::from_secs(5),
                api_timeout: Duration::from_secs(3),
                pull_delay_when_exception: Duration::from_secs(1),
                heartbeat_v2: false,
                tls: None,
                identity: RequestIdentity::default(),
            },
        }
    }

    /// A producer of this group.
    pub fn producer(&self, group: impl Into<String>) -> ProducerBuilder {
        ProducerBuilder::new(self.clone(), group.into())
    }

    /// A consumer of this group that calls a listener.
    pub fn push_consumer(&self, group: impl Into<String>) -> PushConsumerBuilder {
        PushConsumerBuilder::new(self.clone(), group.into())
    }

    /// A consumer of this group that is asked for messages.
    pub fn lite_pull_consumer(&self, group: impl Into<String>) -> LitePullConsumerBuilder {
        LitePullConsumerBuilder::new(self.clone(), group.into())
    }

    /// A consumer of this group that is lent messages, each for a time.
    pub fn pop_consumer(&self, group: impl Into<String>) -> PopConsumerBuilder {
        PopConsumerBuilder::new(self.clone(), group.into())
    }

    /// The operations of administrators.
    pub fn admin(&self) -> Admin {
        Admin::new(self.clone())
    }

    /// The name under which brokers know this client.
    pub fn id(&self) -> &str {
        &self.instance().identity.client_id
    }

    /// Shuts down all producers and consumers of this client, then the client, and returns when no task of it is left.
    pub async fn shutdown(&self) {
        self.instance().shutdown().await;
    }

    pub(crate) fn instance(&self) -> &Arc<Instance> {
        &self.handle.instance
    }
}

/// Settings of a [`Client`]; their names are those of Java's `ClientConfig`.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    name_servers: NameServerSource,
    client_ip: Option<String>,
    instance_name: Option<String>,
    unit_name: Option<String>,
    settings: Settings,
}

impl ClientBuilder {
    /// The address that stands in the client's id; default is one of this machine's.
    #[must_use]
    pub fn client_ip(mut self, address: impl Into<String>) -> Self {
        self.client_ip = Some(address.into());
        self
    }

    /// Name of the client on its machine. Without one it gets a new one at each start, so that no two clients get in each
    /// other's way.
    #[must_use]
    pub fn instance_name(mut self, name: impl Into<String>) -> Self {
        self.instance_name = Some(name.into());
        self
    }

    /// The unit of a deployment in units: part of the client's id and of what an address server is asked.
    #[must_use]
    pub fn unit_name(mut self, unit: impl Into<String>) -> Self {
        self.unit_name = Some(unit.into());
        self
    }

    /// How often all routes are refreshed; default 30 s.
    #[must_use]
    pub fn poll_name_server_interval(mut self, period: Duration) -> Self {
        self.settings.poll_name_server_interval = at_least_1ms(period);
        self
    }

    /// How often brokers get a heartbeat; default 30 s. Brokers forget a client after 120 s.
    #[must_use]
    pub fn heartbeat_broker_interval(mut self, period: Duration) -> Self {
        self.settings.heartbeat_broker_interval = at_least_1ms(period);
        self
    }

    /// How often consumers tell brokers their progress; default 5 s.
    #[must_use]
    pub fn persist_consumer_offset_interval(mut self, period: Duration) -> Self {
        self.settings.persist_consumer_offset_interval = at_least_1ms(period);
        self
    }

    /// Time-out of look-ups and heartbeats (`mqClientApiTimeout`); default 3 s.
    #[must_use]
    pub fn api_timeout(mut self, timeout: Duration) -> Self {
        self.settings.api_timeout = timeout;
        self
    }

    /// How long a consumer waits after a pull that failed (`pullTimeDelayMillsWhenException`); default 1 s.
    #[must_use]
    pub fn pull_delay_when_exception(mut self, delay: Duration) -> Self {
        self.settings.pull_delay_when_exception = delay;
        self
    }

    /// Leave subscriptions out of heartbeats as long as a broker knows them (`useHeartbeatV2`); default false.
    #[must_use]
    pub fn heartbeat_v2(mut self, on: bool) -> Self {
        self.settings.heartbeat_v2 = on;
        self
    }

    /// Mark requests as those of a streaming client (`enableStreamRequestType`), for proxies; default false.
    #[must_use]
    pub fn stream_requests(mut self, on: bool) -> Self {
        self.settings.identity.stream = on;
        self
    }

    /// Encrypt the connections to name servers and brokers (`useTLS`).
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Sign all requests, for clusters with access control.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.settings.identity.credentials = Some(credentials);
        self
    }

    /// The namespace that topics and groups are meant in (`namespaceV2`); servers add it to the names.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.settings.identity.namespace = Some(namespace.into());
        self
    }

    /// Starts the client on the current Tokio runtime. Nothing is connected before something has to be sent.
    ///
    /// # Errors
    /// If the list of name servers or the files of [`tls`](Self::tls) can't be used.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn start(self) -> Result<Client, Error> {
        let address = self.client_ip.unwrap_or_else(local_address);
        let (instance_name, unit_name) = (self.instance_name.as_deref(), self.unit_name.as_deref());
        let identity = Identity::new(&address, instance_name, unit_name, self.settings.identity.stream);
        meters::describe();
        let instance = Instance::start(&self.name_servers, unit_name, identity, self.settings)?;
        Ok(Client { handle: Arc::new(Handle { instance }) })
    }
}

fn at_least_1ms(period: Duration) -> Duration {
    period.max(Duration::from_millis(1))
}
