//! The broker's entries at the name servers (`docs/spec/03-broker.md` 14, `docs/spec/06-namesrv.md` 14).
//!
//! [`Registration`] keeps one task for each name server of `namesrvAddr` ([`link`]), which registers the broker there,
//! keeps the connection, and registers again as soon as the name server is back after it was gone. What is registered
//! comes from a [`Registrant`], and how it is written is in [`request`].

mod link;
mod request;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{DataVersion, TopicConfig, TopicConfigSerializeWrapper};
use ferromq_remoting::Client;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

use crate::config::BrokerConfig;
use link::Link;

/// How long a start waits for the name servers. One that can't be reached gets its registration later.
const FIRST_ATTEMPT_MAX: Duration = Duration::from_secs(1);

/// Who is registered.
pub(crate) trait Registrant: Send + Sync + 'static {
    /// The settings in force.
    fn config(&self) -> Arc<BrokerConfig>;

    /// All topics, and the version that they are of.
    fn topics(&self) -> TopicConfigSerializeWrapper;

    /// The version of the topics.
    fn data_version(&self) -> DataVersion;

    /// Gives the topics a new version, so that name servers look at them again.
    fn bump_data_version(&self);

    /// A name server says that these topics are ordered.
    fn set_ordered(&self, topics: &[&str]);

    /// A name server says where the master answers requests and where its HA port is, if it knows.
    fn master_is(&self, address: Option<&str>, ha_address: Option<&str>);
}

/// Keeps the broker registered, from [`start`](Self::start) to [`stop`](Self::stop).
#[derive(Default)]
pub(crate) struct Registration {
    links: Arc<Links>,
    running: Mutex<Option<Running>>,
}

struct Running {
    supervisor: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

/// The name servers that the broker is registered at now, by address.
#[derive(Default)]
struct Links {
    by_address: Mutex<HashMap<String, Arc<Link>>>,
    /// The list of name servers may have changed.
    reconfigured: Notify,
}

impl Registration {
    /// Registers at all name servers and keeps doing so. Returns when each of them was tried once, or after a second.
    pub(crate) async fn start<R: Registrant>(&self, registrant: Arc<R>) {
        let (stop, stopped) = watch::channel(false);
        let (tried, first_attempts) = oneshot::channel();
        let supervisor = tokio::spawn(supervise(self.links.clone(), registrant, stopped, tried));
        *self.running.lock() = Some(Running { supervisor, stop });
        // What goes wrong is logged by the link, and it goes on trying.
        let _ = tokio::time::timeout(FIRST_ATTEMPT_MAX, first_attempts).await;
    }

    /// Tells the name servers of a topic that is new or has changed.
    pub(crate) fn topic_changed(&self, topic: &Arc<TopicConfig>) {
        for link in self.links.by_address.lock().values() {
            link.topic_changed(topic.clone());
        }
    }

    /// Registers everything anew: what name servers are told of every topic has changed (`brokerPermission`).
    pub(crate) fn register_all_soon(&self) {
        for link in self.links.by_address.lock().values() {
            link.register_soon();
        }
    }

    /// Applies settings that have changed: other name servers may be listed now.
    pub(crate) fn reconfigured(&self) {
        self.links.reconfigured.notify_one();
    }

    /// Takes the broker out of the routes and ends everything. Returns when all name servers have been told, or could
    /// not be.
    pub(crate) async fn stop(&self) {
        let running = self.running.lock().take();
        if let Some(Running { supervisor, stop }) = running {
            // Fails only when the supervisor has ended already.
            let _ = stop.send(true);
            let _ = supervisor.await;
        }
    }
}

/// Keeps one link for each name server that is listed.
async fn supervise<R: Registrant>(
    links: Arc<Links>,
    registrant: Arc<R>,
    mut stopped: watch::Receiver<bool>,
    tried: oneshot::Sender<()>,
) {
    struct Task {
        handle: JoinHandle<()>,
        end: watch::Sender<bool>,
    }
    let client = Arc::new(Client::new());
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    let mut tried = Some(tried);
    while !*stopped.borrow() {
        let config = registrant.config();
        if let Some(listed) = name_servers(&config).await {
            links.by_address.lock().retain(|address, _| listed.contains(address));
            let (kept, dropped): (BTreeMap<_, _>, _) =
                tasks.into_iter().partition(|(address, _)| listed.contains(address));
            tasks = kept;
            for task in dropped.into_values() {
                let _ = task.end.send(true);
            }
            let mut first_attempts = Vec::new();
            for address in listed {
                if tasks.contains_key(&address) {
                    continue;
                }
                let (end, ended) = watch::channel(false);
                let (tried, first_attempt) = oneshot::channel();
                first_attempts.push(first_attempt);
                let link = Arc::new(Link::new(address.clone()));
                links.by_address.lock().insert(address.clone(), link.clone());
                let handle = tokio::spawn(link::run(link, client.clone(), registrant.clone(), ended, tried));
                tasks.insert(address, Task { handle, end });
            }
            if let Some(tried) = tried.take() {
                tokio::spawn(async move {
                    for attempt in first_attempts {
                        let _ = attempt.await;
                    }
                    let _ = tried.send(());
                });
            }
        }
        tokio::select! {
            () = links.reconfigured.notified() => {}
            () = tokio::time::sleep(Duration::from_millis(config.update_name_server_addr_period.max(1000))) => {}
            _ = stopped.changed() => {}
        }
    }
    links.by_address.lock().clear();
    for task in tasks.values() {
        let _ = task.end.send(true);
    }
    for task in tasks.into_values() {
        let _ = task.handle.await;
    }
    client.close().await;
}

/// The addresses of `namesrvAddr`; `None` if they can't be found out now.
pub(crate) async fn name_servers(config: &BrokerConfig) -> Option<Vec<String>> {
    let list = config.namesrv_addr.as_deref().unwrap_or_default();
    if config.fetch_name_srv_addr_by_dns_lookup && !list.is_empty() {
        let found = tokio::net::lookup_host(list).await;
        let found =
            found.map_err(|error| tracing::warn!(domain = list, %error, "can't resolve namesrvAddr")).ok()?;
        return Some(found.map(|address| address.to_string()).collect());
    }
    Some(list.split(';').filter(|address| !address.is_empty()).map(str::to_owned).collect())
}
