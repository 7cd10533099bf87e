//! [`Admin`]: what administrators ask of a cluster (`docs/spec/10-admin.md`).
//!
//! One file per subject; the methods are listed with [`Admin`].

mod access;
mod brokers;
mod connections;
mod controllers;
mod groups;
mod messages;
mod name_servers;
mod offsets;
mod pages;
mod progress;
mod replication;
mod topics;
mod traces;
mod tracks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{BrokerData, ClusterInfo};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::{java_properties, json};
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::{Destination, Error};
use crate::instance::Instance;
use crate::instance::route::MASTER_ID;

pub use crate::trace::{ConsumeReturn, MessageType, TraceRecord};
pub use controllers::{ControllerMetadata, ElectedMaster};
pub use name_servers::ORDER_TOPIC_CONFIG;
pub use traces::MessageTrace;
pub use tracks::{MessageTrack, TrackType};

/// Time-out of one request (`docs/spec/10-admin.md` 2).
const TIMEOUT: Duration = Duration::from_secs(5);

/// Who errors say was asked if only its address is known.
const BROKER: &str = "broker";

/// The topic that requests without one are about.
const NO_TOPIC: &str = "-";

/// The operations of administrators: everything that `mqadmin` does, as functions.
///
/// ```no_run
/// use ferromq_client::admin::Brokers;
/// use ferromq_client::{Client, protocol::body::TopicConfig};
///
/// # async fn example() -> Result<(), ferromq_client::Error> {
/// let client = Client::builder("127.0.0.1:9876").start()?;
/// let admin = client.admin();
/// admin.update_topic(&Brokers::masters_of("DefaultCluster"), &TopicConfig::new("Orders", 8)).await?;
/// for (queue, offsets) in admin.consume_stats("kitchen", None).await?.offset_table {
///     println!("{queue}: {} behind", offsets.broker_offset - offsets.consumer_offset);
/// }
/// # Ok(())
/// # }
/// ```
///
/// Arguments called `address` are those of brokers, `host:port`; [`cluster_info`](Self::cluster_info) has them. What
/// changes something is done at one broker after the other and ends at the first one that fails: [`Error`] says which, and
/// those before it stay changed. What reads from all brokers of a topic fails if one of them does.
///
/// Nothing that a broker or a name server says is kept, and it makes the client a member of no group.
///
/// | subject | operations |
/// |---|---|
/// | topics | [`update_topic`](Self::update_topic), [`update_topics`](Self::update_topics), [`delete_topic`](Self::delete_topic), [`topics`](Self::topics), [`topics_of_cluster`](Self::topics_of_cluster), [`topic_route`](Self::topic_route), [`topic_config`](Self::topic_config), [`topic_stats`](Self::topic_stats), [`clusters_of_topic`](Self::clusters_of_topic), [`groups_of_topic`](Self::groups_of_topic) |
/// | groups | [`update_group`](Self::update_group), [`update_groups`](Self::update_groups), [`delete_group`](Self::delete_group), [`group_config`](Self::group_config), [`group_configs`](Self::group_configs), [`topics_of_group`](Self::topics_of_group), [`set_consume_mode`](Self::set_consume_mode) |
/// | clients | [`consumer_connection`](Self::consumer_connection), [`producer_connection`](Self::producer_connection), [`producers`](Self::producers), [`consumer_running_info`](Self::consumer_running_info), [`consumer_offsets`](Self::consumer_offsets) |
/// | progress | [`consume_stats`](Self::consume_stats), [`broker_consume_stats`](Self::broker_consume_stats), [`consume_time_span`](Self::consume_time_span), [`reset_offset_by_time`](Self::reset_offset_by_time), [`skip_accumulated_messages`](Self::skip_accumulated_messages), [`reset_queue_offset`](Self::reset_queue_offset), [`clone_group_offset`](Self::clone_group_offset) |
/// | queues | [`max_offset`](Self::max_offset), [`min_offset`](Self::min_offset), [`search_offset`](Self::search_offset), [`earliest_msg_store_time`](Self::earliest_msg_store_time), [`query_consume_queue`](Self::query_consume_queue) |
/// | messages | [`query_message_by_key`](Self::query_message_by_key), [`query_message_by_unique_key`](Self::query_message_by_unique_key), [`view_message`](Self::view_message), [`message_at`](Self::message_at), [`message_track_detail`](Self::message_track_detail), [`message_trace`](Self::message_trace), [`consume_message_directly`](Self::consume_message_directly), [`resume_check_half_message`](Self::resume_check_half_message) |
/// | brokers | [`cluster_info`](Self::cluster_info), [`broker_config`](Self::broker_config), [`update_broker_config`](Self::update_broker_config), [`broker_runtime_info`](Self::broker_runtime_info), [`broker_stats`](Self::broker_stats), [`clean_expired_consume_queue`](Self::clean_expired_consume_queue), [`clean_unused_topic`](Self::clean_unused_topic), [`delete_expired_commit_log`](Self::delete_expired_commit_log) |
/// | name servers | [`namesrv_config`](Self::namesrv_config), [`update_namesrv_config`](Self::update_namesrv_config), [`kv_config`](Self::kv_config), [`put_kv_config`](Self::put_kv_config), [`wipe_write_perm`](Self::wipe_write_perm), [`add_write_perm`](Self::add_write_perm) |
/// | replication | [`ha_status`](Self::ha_status), [`broker_epochs`](Self::broker_epochs), [`reset_master_flush_offset`](Self::reset_master_flush_offset), [`controller_metadata`](Self::controller_metadata), [`sync_state_sets`](Self::sync_state_sets), [`elect_master`](Self::elect_master), [`clean_broker_metadata`](Self::clean_broker_metadata) |
/// | users | [`create_user`](Self::create_user), [`list_users`](Self::list_users), [`create_acl`](Self::create_acl), [`list_acls`](Self::list_acls) and their like |
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
    timeout: Duration,
}

/// Which brokers something is to be done at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Brokers {
    /// The one with this address, `host:port`.
    At(String),
    /// The masters of this cluster.
    MastersOf(String),
    /// All brokers of this cluster, slaves too.
    AllOf(String),
}

impl Brokers {
    /// The broker with this address, `host:port`.
    pub fn at(address: impl Into<String>) -> Self {
        Self::At(address.into())
    }

    /// The masters of a cluster.
    pub fn masters_of(cluster: impl Into<String>) -> Self {
        Self::MastersOf(cluster.into())
    }

    /// The masters and slaves of a cluster.
    pub fn all_of(cluster: impl Into<String>) -> Self {
        Self::AllOf(cluster.into())
    }
}

/// A broker that requests go to.
#[derive(Clone, Debug)]
struct Place {
    broker: String,
    address: String,
}

impl Place {
    /// The one of a set that administrators ask: the master, else any.
    fn of(broker: &BrokerData) -> Option<Self> {
        let addresses = &broker.broker_addrs;
        let address = addresses.get(&MASTER_ID).or_else(|| fastrand::choice(addresses.values()))?;
        Some(Self { broker: broker.broker_name.clone(), address: address.clone() })
    }

    fn about<'a>(&'a self, topic: &'a str) -> Destination<'a> {
        Destination { broker: &self.broker, address: &self.address, topic }
    }
}

/// A broker of which only the address is known.
fn at<'a>(address: &'a str, topic: &'a str) -> Destination<'a> {
    Destination { broker: BROKER, address, topic }
}

/// The JSON in the body of an answer.
fn body<T: DeserializeOwned>(to: Destination<'_>, code: i32, answer: &RemotingCommand) -> Result<T, Error> {
    json::from_slice(&answer.body).map_err(|error| to.malformed(request::name(code), error))
}

/// The JSON in the body of an answer; the default if the body is empty, which is how "nothing" is said.
fn body_or_default<T: DeserializeOwned + Default>(
    to: Destination<'_>,
    code: i32,
    answer: &RemotingCommand,
) -> Result<T, Error> {
    if answer.body.is_empty() { Ok(T::default()) } else { body(to, code, answer) }
}

/// The `key=value` lines in the body of an answer.
fn settings(
    to: Destination<'_>,
    code: i32,
    answer: &RemotingCommand,
) -> Result<BTreeMap<String, String>, Error> {
    let lines = java_properties::parse(&answer.body);
    let lines = lines.map_err(|error| to.malformed(request::name(code), error))?;
    Ok(lines.into_iter().map(|line| (line.key, line.value)).collect())
}

impl Admin {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, timeout: TIMEOUT }
    }

    /// The same with another time-out of one request; default 5 s. Requests that are slow by nature have a multiple of it.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The addresses that are meant by `brokers`, ordered by broker name and id.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name servers don't know the cluster.
    pub async fn addresses(&self, brokers: &Brokers) -> Result<Vec<String>, Error> {
        Ok(self.places(brokers).await?.into_iter().map(|place| place.address).collect())
    }

    fn instance(&self) -> &Arc<Instance> {
        self.client.instance()
    }

    /// Sends a request that has to succeed.
    async fn done(&self, to: Destination<'_>, request: RemotingCommand) -> Result<RemotingCommand, Error> {
        self.instance().check_running()?;
        self.instance().transport.done(to, request, self.timeout).await
    }

    /// Sends a request that has to succeed and be answered with JSON.
    async fn get<T: DeserializeOwned>(
        &self,
        to: Destination<'_>,
        request: RemotingCommand,
    ) -> Result<T, Error> {
        let code = request.code;
        body(to, code, &self.done(to, request).await?)
    }

    /// Sends a request to several brokers, one after the other.
    async fn done_at(&self, brokers: &Brokers, topic: &str, request: RemotingCommand) -> Result<(), Error> {
        for place in self.places(brokers).await? {
            self.done(place.about(topic), request.clone()).await?;
        }
        Ok(())
    }

    async fn places(&self, brokers: &Brokers) -> Result<Vec<Place>, Error> {
        let (cluster, with_slaves) = match brokers {
            Brokers::At(address) => {
                return Ok(vec![Place { broker: BROKER.to_owned(), address: address.clone() }]);
            }
            Brokers::MastersOf(cluster) => (cluster, false),
            Brokers::AllOf(cluster) => (cluster, true),
        };
        let info = self.cluster_info().await?;
        let addresses = |set: &BrokerData| -> Vec<Place> {
            let wanted = set.broker_addrs.iter().filter(|(id, _)| with_slaves || **id == MASTER_ID);
            wanted
                .map(|(_, address)| Place { broker: set.broker_name.clone(), address: address.clone() })
                .collect()
        };
        Ok(sets_of(&info, cluster)?.flat_map(addresses).collect())
    }

    /// One broker of each set that has a topic.
    async fn places_of_topic(&self, topic: &str) -> Result<Vec<Place>, Error> {
        Ok(self.topic_route(topic).await?.broker_datas.iter().filter_map(Place::of).collect())
    }
}

/// The broker sets of a cluster.
fn sets_of<'a>(
    info: &'a ClusterInfo,
    cluster: &str,
) -> Result<impl Iterator<Item = &'a BrokerData> + use<'a>, Error> {
    let names = info.cluster_addr_table.get(cluster).ok_or_else(|| {
        let reason =
            "the name server does not know it: check its name, and that the client asks the right server";
        Error::invalid(format!("cluster `{cluster}`"), reason)
    })?;
    Ok(names.iter().filter_map(|name| info.broker_addr_table.get(name)))
}
