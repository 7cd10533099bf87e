//! The broker's entry at one name server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{DataVersion, TopicConfig};
use ferromq_protocol::code::response;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::{Client, ConnectError, Connection, InvokeError};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::Registrant;
use super::request::{self, Extent};

/// How soon a name server that does not answer, or refuses, is tried again. With it a name server that was restarted
/// has the broker's routes well within two seconds.
const RETRY: Duration = Duration::from_secs(1);
/// How soon a connection that was lost is made again: a name server that is just starting needs a moment.
const RECONNECT: Duration = Duration::from_millis(100);
/// The first repetition of a registration.
const FIRST_REPETITION: Duration = Duration::from_secs(10);
/// How long small requests may take.
const SMALL_REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// What has to be told to one name server.
pub(super) struct Link {
    address: String,
    due: Mutex<Due>,
    wake: Notify,
}

#[derive(Default)]
struct Due {
    everything: bool,
    topics: BTreeMap<String, Arc<TopicConfig>>,
}

impl Link {
    pub(super) fn new(address: String) -> Self {
        let due = Due { everything: true, ..Due::default() };
        Self { address, due: Mutex::new(due), wake: Notify::new() }
    }

    pub(super) fn topic_changed(&self, topic: Arc<TopicConfig>) {
        self.due.lock().topics.insert(topic.topic_name.clone(), topic);
        self.wake.notify_one();
    }

    pub(super) fn register_soon(&self) {
        self.due.lock().everything = true;
        self.wake.notify_one();
    }
}

#[derive(Debug, Error)]
enum RegisterError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    #[error("it answers {code}: {remark}")]
    Refused { code: i32, remark: String },
}

/// Keeps the entry until `ended`, and takes it out then. `tried` hears of the first attempt.
pub(super) async fn run<R: Registrant>(
    link: Arc<Link>,
    client: Arc<Client>,
    registrant: Arc<R>,
    mut ended: watch::Receiver<bool>,
    tried: oneshot::Sender<()>,
) {
    let mut entry = Entry {
        link: &link,
        client: &client,
        registrant: &*registrant,
        connection: None,
        version: None,
        repeat_at: Instant::now() + FIRST_REPETITION,
        is_failing: false,
    };
    let mut tried = Some(tried);
    loop {
        let wait = tokio::select! {
            wait = entry.update() => wait,
            _ = ended.changed() => break,
        };
        if let Some(tried) = tried.take() {
            let _ = tried.send(());
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = link.wake.notified(), if !entry.is_failing => {}
            () = closed(entry.connection.as_ref()) => tokio::time::sleep(RECONNECT).await,
            _ = ended.changed() => break,
        }
    }
    entry.unregister().await;
}

async fn closed(connection: Option<&Arc<Connection>>) {
    match connection {
        Some(connection) => connection.closed().await,
        None => std::future::pending().await,
    }
}

struct Entry<'a, R> {
    link: &'a Link,
    client: &'a Client,
    registrant: &'a R,
    /// The one that everything was registered on.
    connection: Option<Arc<Connection>>,
    /// Of the topics, as the name server has it.
    version: Option<DataVersion>,
    repeat_at: Instant,
    is_failing: bool,
}

impl<R: Registrant> Entry<'_, R> {
    /// Tells the name server what it does not know yet. Returns how long there will be nothing to do.
    async fn update(&mut self) -> Duration {
        let is_connected = self.connection.as_ref().is_some_and(|connection| !connection.is_closed());
        let due = std::mem::take(&mut *self.link.due.lock());
        let topics: Vec<Arc<TopicConfig>> = due.topics.values().cloned().collect();
        let outcome = if due.everything || !is_connected {
            self.register_everything().await
        } else if Instant::now() >= self.repeat_at {
            self.repeat().await
        } else if !topics.is_empty() {
            self.register_changes(topics).await
        } else {
            Ok(())
        };
        let address = &self.link.address;
        match outcome {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(name_server = %address, "registered again");
                }
                self.repeat_at.saturating_duration_since(Instant::now())
            }
            Err(error) => {
                self.link.due.lock().everything = true;
                if std::mem::replace(&mut self.is_failing, true) {
                    tracing::debug!(name_server = %address, %error, "still not registered");
                } else {
                    tracing::warn!(name_server = %address, %error, "not registered, trying on");
                }
                RETRY
            }
        }
    }

    async fn repeat(&mut self) -> Result<(), RegisterError> {
        let config = self.registrant.config();
        if config.force_register || config.enable_split_registration || self.is_out_of_date().await {
            return self.register_everything().await;
        }
        self.repeat_at = Instant::now() + period(config.register_name_server_period);
        Ok(())
    }

    /// Asks the name server; one that can't say is out of date.
    async fn is_out_of_date(&self) -> bool {
        let version = self.registrant.data_version();
        let query = request::query_data_version(&self.registrant.config(), &version);
        match self.client.invoke(&self.link.address, query, SMALL_REQUEST_TIMEOUT).await {
            Ok(answer) => answer.code != response::SUCCESS || request::is_changed(&answer, &version),
            Err(_) => true,
        }
    }

    async fn register_everything(&mut self) -> Result<(), RegisterError> {
        let connection = self.client.connection(&self.link.address).await?;
        let config = self.registrant.config();
        let all = self.registrant.topics();
        let mut version = all.data_version;
        let topics: Vec<TopicConfig> = all.topic_config_table.into_values().collect();
        let portion = match config.enable_split_registration {
            true => config.split_registration_size.max(1) as usize,
            false => topics.len().max(1),
        };
        // A broker without topics registers too.
        let mut portions: Vec<&[TopicConfig]> = topics.chunks(portion).collect();
        if portions.is_empty() {
            portions.push(&[]);
        }
        let extent = if portions.len() == 1 { Extent::Complete } else { Extent::Portion };
        for (number, portion) in portions.into_iter().enumerate() {
            if number > 0 {
                // A name server that has a version does not look at the topics that come with it.
                self.registrant.bump_data_version();
                version = self.registrant.data_version();
            }
            self.register(portion, version, extent).await?;
        }
        self.repeat_at = Instant::now()
            + if self.connection.is_some() {
                period(config.register_name_server_period)
            } else {
                FIRST_REPETITION
            };
        self.connection = Some(connection);
        Ok(())
    }

    async fn register_changes(&mut self, topics: Vec<Arc<TopicConfig>>) -> Result<(), RegisterError> {
        let config = self.registrant.config();
        if config.enable_single_topic_register {
            for topic in &topics {
                let register = request::register_topic(&config, topic);
                check(self.client.invoke(&self.link.address, register, SMALL_REQUEST_TIMEOUT).await?)?;
            }
            return Ok(());
        }
        let mut version = self.registrant.data_version();
        if self.version == Some(version) {
            // The name server got this version with another change that was made at the same time.
            self.registrant.bump_data_version();
            version = self.registrant.data_version();
        }
        let topics: Vec<TopicConfig> = topics.iter().map(|topic| TopicConfig::clone(topic)).collect();
        self.register(&topics, version, Extent::Changes).await
    }

    async fn register(
        &mut self,
        topics: &[TopicConfig],
        version: DataVersion,
        extent: Extent,
    ) -> Result<(), RegisterError> {
        let config = self.registrant.config();
        let register = request::register_broker(&config, topics, version, extent);
        let timeout = Duration::from_millis(config.register_broker_timeout_mills.into());
        let answer = check(self.client.invoke(&self.link.address, register, timeout).await?)?;
        self.version = Some(version);
        let told = |field: &str| answer.field(field).filter(|address| !address.is_empty());
        self.registrant.master_is(told("masterAddr"), told("haServerAddr"));
        let ordered = request::ordered_topics(&answer);
        if !ordered.is_empty() {
            self.registrant.set_ordered(&ordered.iter().map(String::as_str).collect::<Vec<_>>());
        }
        Ok(())
    }

    async fn unregister(&self) {
        let address = &self.link.address;
        let unregister = request::unregister_broker(&self.registrant.config());
        let answer = self.client.invoke(address, unregister, SMALL_REQUEST_TIMEOUT).await;
        match answer.map_err(RegisterError::from).and_then(check) {
            Ok(_) => tracing::debug!(name_server = %address, "unregistered"),
            Err(error) => tracing::warn!(name_server = %address, %error, "not unregistered"),
        }
    }
}

fn check(answer: RemotingCommand) -> Result<RemotingCommand, RegisterError> {
    match answer.code {
        response::SUCCESS => Ok(answer),
        code => Err(RegisterError::Refused { code, remark: answer.remark.unwrap_or_default() }),
    }
}

/// Of full registrations, as the reference clamps it.
fn period(setting: u32) -> Duration {
    Duration::from_millis(setting.clamp(10_000, 60_000).into())
}
