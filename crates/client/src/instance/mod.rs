//! What all producers and consumers of one client share: connections, routes, heartbeats
//! (`docs/spec/07-client.md` 3).

mod address_server;
mod broker_calls;
mod broker_requests;
mod heartbeat;
pub(crate) mod member;
mod name_servers;
pub(crate) mod route;
mod routes;
mod signing;
pub(crate) mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::TopicRouteData;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::AUTO_CREATE_TOPIC;
use ferromq_remoting::Tls;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Destination, Error};
use crate::identity::Identity;
use crate::producer::PendingReplies;
pub use address_server::AddressServer;
pub(crate) use broker_calls::QueueEnd;
use broker_requests::BrokerRequests;
use heartbeat::Heartbeats;
pub(crate) use heartbeat::Round;
use member::{ConsumerMember, ProducerMember};
pub(crate) use name_servers::NameServerSource;
use name_servers::NameServers;
use route::Route;
use routes::Routes;
pub use signing::Credentials;
pub(crate) use transport::RequestIdentity;
use transport::Transport;

/// Who errors say was asked when it was a name server.
pub(crate) const NAME_SERVER: &str = "name server";

/// How long a look-up waits for one that is under way.
const LOOKUP_WAIT_MAX: Duration = Duration::from_secs(3);

/// A route that was asked for within this time is not doubted again: sends to a dead broker may fail many times a second.
const DOUBT_INTERVAL: Duration = Duration::from_millis(100);

/// Topics whose route somebody wants soon; more than that need not be remembered.
const ROUTES_WANTED_MAX: usize = 1024;

/// Settings of a client that do not change.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) poll_name_server_interval: Duration,
    pub(crate) heartbeat_broker_interval: Duration,
    pub(crate) persist_consumer_offset_interval: Duration,
    pub(crate) api_timeout: Duration,
    pub(crate) pull_delay_when_exception: Duration,
    pub(crate) heartbeat_v2: bool,
    /// `None`: connections are not encrypted.
    pub(crate) tls: Option<Tls>,
    pub(crate) identity: RequestIdentity,
}

/// The inside of a [`Client`](crate::Client).
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) identity: Identity,
    pub(crate) settings: Settings,
    pub(crate) transport: Transport,
    pub(crate) routes: Routes,
    /// Cancelled when the client is shut down or its last handle is dropped.
    pub(crate) stop: CancellationToken,
    /// Every task of this client and of its producers and consumers.
    pub(crate) tasks: TaskTracker,
    pub(crate) name_servers: NameServers,
    heartbeats: Heartbeats,
    /// Held during a look-up, so that many who miss one route ask for it once.
    lookup: tokio::sync::Mutex<()>,
    routes_wanted: mpsc::Sender<String>,
    /// Requests of the application that wait for a reply.
    pub(crate) replies: PendingReplies,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    producers: BTreeMap<String, ProducerMember>,
    consumers: BTreeMap<String, Arc<dyn ConsumerMember>>,
}

impl std::fmt::Debug for Members {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let consumers: Vec<_> = self.consumers.keys().collect();
        write!(formatter, "producers {:?}, consumers {consumers:?}", self.producers.keys())
    }
}

impl Instance {
    /// Starts a client on the current Tokio runtime.
    pub(crate) fn start(
        name_servers: &NameServerSource,
        unit: Option<&str>,
        identity: Identity,
        settings: Settings,
    ) -> Result<Arc<Self>, Error> {
        let name_servers = NameServers::new(name_servers, unit)?;
        let tls = settings.tls.as_ref().map(Tls::connector).transpose();
        let tls = tls.map_err(|error| Error::invalid("TLS", error.to_string()))?;
        let (routes_wanted, wanted) = mpsc::channel(ROUTES_WANTED_MAX);
        let stop = CancellationToken::new();
        let instance = Arc::new_cyclic(|instance| Self {
            transport: Transport::new(
                BrokerRequests { instance: instance.clone() },
                settings.identity.clone(),
                tls,
                stop.clone(),
            ),
            identity,
            settings,
            routes: Routes::default(),
            stop,
            tasks: TaskTracker::new(),
            name_servers,
            heartbeats: Heartbeats::default(),
            lookup: tokio::sync::Mutex::default(),
            routes_wanted,
            replies: PendingReplies::default(),
            members: Mutex::default(),
        });
        instance.spawn(instance.clone().keep_name_servers());
        instance.spawn(instance.clone().keep_routes(wanted));
        instance.spawn(instance.clone().keep_brokers_informed());
        // Dropping the last handle can't wait; this task closes the connections then.
        let closing = instance.clone();
        instance.tasks.spawn(async move {
            closing.stop.cancelled().await;
            closing.transport.close().await;
        });
        tracing::debug!(client = instance.identity.client_id, "client started");
        Ok(instance)
    }

    /// Runs a task until it ends or the client stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled_owned(task).await });
    }

    /// Shuts down all consumers, takes leave of the brokers and waits until every task has ended.
    pub(crate) async fn shutdown(self: &Arc<Self>) {
        for consumer in self.consumers() {
            consumer.shutdown().await;
        }
        for group in self.producer_groups() {
            self.leave_producer(&group).await;
        }
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        tracing::debug!(client = self.identity.client_id, "client stopped");
    }

    pub(crate) fn check_running(&self) -> Result<(), Error> {
        if self.stop.is_cancelled() { Err(Error::Closed { what: "the client".to_owned() }) } else { Ok(()) }
    }
}

/// Members.
impl Instance {
    pub(crate) fn join_producer(&self, group: &str, producer: ProducerMember) -> Result<(), Error> {
        self.check_running()?;
        let mut members = self.members.lock();
        if members.producers.contains_key(group) {
            return Err(Error::GroupInUse { kind: "producer", group: group.to_owned() });
        }
        members.producers.insert(group.to_owned(), producer);
        Ok(())
    }

    pub(crate) fn join_consumer(&self, group: &str, consumer: Arc<dyn ConsumerMember>) -> Result<(), Error> {
        self.check_running()?;
        let mut members = self.members.lock();
        if members.consumers.contains_key(group) {
            return Err(Error::GroupInUse { kind: "consumer", group: group.to_owned() });
        }
        members.consumers.insert(group.to_owned(), consumer);
        Ok(())
    }

    /// Removes a producer without telling anybody; `None` if it is not there (any more).
    pub(crate) fn drop_producer(&self, group: &str) -> Option<ProducerMember> {
        self.members.lock().producers.remove(group)
    }

    /// Removes a consumer without telling anybody; false if it is not there (any more).
    pub(crate) fn drop_consumer(&self, group: &str) -> bool {
        self.members.lock().consumers.remove(group).is_some()
    }

    /// Ends a producer in an orderly way, and tells the brokers.
    pub(crate) async fn leave_producer(&self, group: &str) {
        if let Some(producer) = self.drop_producer(group) {
            producer.core.finish().await;
            self.unregister("producerGroup", group).await;
        }
    }

    /// Removes a consumer and tells the brokers.
    pub(crate) async fn leave_consumer(&self, group: &str) {
        if self.drop_consumer(group) {
            self.unregister("consumerGroup", group).await;
        }
    }

    fn consumers(&self) -> Vec<Arc<dyn ConsumerMember>> {
        self.members.lock().consumers.values().cloned().collect()
    }

    fn consumer(&self, group: &str) -> Option<Arc<dyn ConsumerMember>> {
        self.members.lock().consumers.get(group).cloned()
    }

    fn producer(&self, group: &str) -> Option<ProducerMember> {
        self.members.lock().producers.get(group).cloned()
    }

    fn producer_groups(&self) -> Vec<String> {
        self.members.lock().producers.keys().cloned().collect()
    }
}

/// Routes.
impl Instance {
    /// The route of a topic that is sent to. The first message to a topic that does not exist yet goes where the template
    /// of new topics is, and makes the broker create it (3.2).
    pub(crate) async fn publish_route(
        &self,
        topic: &str,
        new_topic_queues: i32,
    ) -> Result<Arc<Route>, Error> {
        if let Some(route) = self.routes.get_publish(topic) {
            return Ok(route);
        }
        let looked_up = match self.refresh_route(topic).await {
            // Only then: the route of a topic that exists may just be slow to come.
            Err(Error::Refused { code: response::TOPIC_NOT_EXIST, .. }) => {
                let asked_at = Instant::now();
                match self.lookup_route(AUTO_CREATE_TOPIC).await {
                    Ok(mut template) => {
                        for queues in &mut template.queue_datas {
                            let count = queues.read_queue_nums.min(new_topic_queues);
                            (queues.read_queue_nums, queues.write_queue_nums) = (count, count);
                        }
                        Ok(self.routes.learn(topic, template, asked_at))
                    }
                    Err(error) => Err(error),
                }
            }
            other => other,
        };
        match looked_up {
            Ok(route) if route.publish.queues.is_empty() => Err(Error::NoRoute { topic: topic.to_owned() }),
            Ok(route) => Ok(route),
            Err(Error::Refused { code: response::TOPIC_NOT_EXIST, .. }) => {
                Err(Error::NoRoute { topic: topic.to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    /// Asks for a route now. Those who ask for it meanwhile get the same answer.
    pub(crate) async fn refresh_route(&self, topic: &str) -> Result<Arc<Route>, Error> {
        let asked_at = Instant::now();
        let waited = timeout_at(asked_at + LOOKUP_WAIT_MAX, self.lookup.lock()).await;
        let _lookup = waited.map_err(|_| Error::Timeout {
            what: format!("another look-up before that of topic {topic}"),
            timeout: LOOKUP_WAIT_MAX,
        })?;
        if let Some(route) = self.routes.get_since(topic, asked_at) {
            return Ok(route);
        }
        let (asked_at, before) = (Instant::now(), self.routes.get(topic));
        let data = self.lookup_route(topic).await?;
        let route = self.routes.learn(topic, data, asked_at);
        if before.is_none_or(|before| !Arc::ptr_eq(&before, &route)) {
            let consumers = self.consumers().into_iter();
            let concerned = consumers.filter(|consumer| consumer.topics().iter().any(|other| other == topic));
            concerned.for_each(|consumer| consumer.wake_rebalance());
        }
        Ok(route)
    }

    /// Asks for a route soon, without waiting for it: something that a broker said or did not say makes the known one
    /// doubtful.
    pub(crate) fn doubt_route(&self, topic: &str) {
        // If so many are wanted already, the next regular round comes as soon.
        let _ = self.routes_wanted.try_send(topic.to_owned());
    }

    /// What a name server says about a topic, without taking it over.
    pub(crate) async fn lookup_route(&self, topic: &str) -> Result<TopicRouteData, Error> {
        let request = RemotingCommand::request(request::GET_ROUTEINFO_BY_TOPIC).with("topic", topic);
        let (address, answer) = self.ask_name_server(topic, request, self.settings.api_timeout).await?;
        json::from_slice(&answer.body).map_err(|error| {
            let to = Destination { broker: NAME_SERVER, address: &address, topic };
            to.malformed("GET_ROUTEINFO_BY_TOPIC", error)
        })
    }

    /// Asks the chosen name server, and the next one if it can't be reached. Returns who answered, too.
    pub(crate) async fn ask_name_server(
        &self,
        topic: &str,
        request: RemotingCommand,
        timeout: Duration,
    ) -> Result<(String, RemotingCommand), Error> {
        self.name_servers.known(timeout).await?;
        let mut failed = None;
        for _ in 0..self.name_servers.len() {
            let Some(address) = self.name_servers.chosen() else { break };
            let to = Destination { broker: NAME_SERVER, address: &address, topic };
            match self.transport.done(to, request.clone(), timeout).await {
                Ok(answer) => return Ok((address, answer)),
                Err(error) if error.is_remoting() => {
                    tracing::warn!(%error, "the next name server is asked");
                    self.name_servers.leave(&address);
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(failed.unwrap_or(Error::NoNameServer))
    }

    /// Refreshes all routes regularly, and some at once when they are doubted.
    async fn keep_routes(self: Arc<Self>, mut wanted: mpsc::Receiver<String>) {
        let period = self.settings.poll_name_server_interval;
        let mut regular = interval_at(Instant::now() + period, period);
        loop {
            let topics = tokio::select! {
                _ = regular.tick() => {
                    let consumers = self.consumers();
                    let subscribed = consumers.iter().flat_map(|consumer| consumer.topics());
                    self.routes.topics().into_iter().chain(subscribed).collect()
                }
                Some(topic) = wanted.recv() => {
                    let mut topics = BTreeSet::from([topic]);
                    while let Ok(topic) = wanted.try_recv() {
                        topics.insert(topic);
                    }
                    let recent = Instant::now().checked_sub(DOUBT_INTERVAL);
                    topics.retain(|topic| {
                        recent.and_then(|time| self.routes.get_since(topic, time)).is_none()
                    });
                    topics
                }
            };
            for topic in topics {
                if let Err(error) = self.refresh_route(&topic).await {
                    tracing::debug!(%error, "the known route stays");
                }
            }
        }
    }

    /// Sends heartbeats regularly, and to each broker at once when a connection to it was opened.
    async fn keep_brokers_informed(self: Arc<Self>) {
        let period = self.settings.heartbeat_broker_interval;
        let mut regular = interval_at(Instant::now() + Duration::from_secs(1).min(period), period);
        loop {
            tokio::select! {
                _ = regular.tick() => {
                    self.routes.drop_offline_brokers();
                    self.heartbeat(Round::All).await;
                }
                () = self.heartbeats.connection_opened.notified() => {
                    self.heartbeat(Round::NewConnections).await;
                    self.consumers().iter().for_each(|consumer| consumer.wake_rebalance());
                }
            }
        }
    }
}
