//! Telling brokers which groups this client takes part in (`docs/spec/07-client.md` 3.4).

use std::collections::HashMap;
use std::sync::Arc;

use ferromq_protocol::body::{HeartbeatData, ProducerData};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::Instance;
use super::route::MASTER_ID;
use crate::error::{Destination, Error};

/// Producer group that every client announces: that of the messages which its consumers send back.
const INNER_PRODUCER_GROUP: &str = "CLIENT_INNER_PRODUCER";

/// What brokers were told.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    /// By address.
    told: Mutex<HashMap<String, Told>>,
    /// A connection was opened: its broker does not know yet who is at the other end.
    pub(crate) connection_opened: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    /// The connection that the last heartbeat went over.
    connection: u64,
    /// Fingerprint of the subscriptions that the broker knows; `None` if it wants them in full.
    fingerprint: Option<i32>,
}

/// Which brokers get a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// All of them.
    All,
    /// All of them, with all subscriptions: they have changed.
    Changed,
    /// Those that got none over the connection that is open now.
    NewConnections,
}

impl Instance {
    /// Sends heartbeats and returns whether every broker accepted its one.
    pub(crate) async fn heartbeat(self: &Arc<Self>, round: Round) -> bool {
        let data = self.heartbeat_data();
        if data.consumer_data_set.is_empty() && data.producer_data_set.is_empty() {
            return true;
        }
        if round == Round::Changed {
            self.heartbeats.told.lock().values_mut().for_each(|told| told.fingerprint = None);
        }
        let has_consumer = !data.consumer_data_set.is_empty();
        let data = Arc::new(data);
        let mut beats = JoinSet::new();
        for (broker, id, address) in self.routes.brokers() {
            if !has_consumer && id != MASTER_ID {
                continue;
            }
            if round == Round::NewConnections && !self.is_new_connection(&address) {
                continue;
            }
            let (instance, data) = (self.clone(), data.clone());
            beats.spawn(async move {
                let beat = instance.heartbeat_to(&broker, &address, &data).await;
                beat.inspect_err(|error| tracing::warn!(%error, "heartbeat failed")).is_ok()
            });
        }
        let mut all = true;
        while let Some(beat) = beats.join_next().await {
            all &= beat.unwrap_or(false);
        }
        all
    }

    fn heartbeat_data(&self) -> HeartbeatData {
        let consumers = self.consumers();
        let mut groups = self.producer_groups();
        if !consumers.is_empty() || !groups.is_empty() {
            groups.push(INNER_PRODUCER_GROUP.to_owned());
        }
        HeartbeatData {
            client_id: self.identity.client_id.clone(),
            consumer_data_set: consumers.iter().map(|consumer| consumer.heartbeat()).collect(),
            producer_data_set: groups.into_iter().map(|group_name| ProducerData { group_name }).collect(),
            ..HeartbeatData::default()
        }
    }

    fn is_new_connection(&self, address: &str) -> bool {
        let Some(connection) = self.transport.connected(address) else { return false };
        let told = self.heartbeats.told.lock().get(address).copied();
        told.is_none_or(|told| told.connection != connection.id())
    }

    async fn heartbeat_to(&self, broker: &str, address: &str, data: &HeartbeatData) -> Result<(), Error> {
        let to = Destination { broker, address, topic: "-" };
        if !self.settings.heartbeat_v2 {
            self.beat(to, data).await?;
            return Ok(());
        }
        let fingerprint = data.compute_fingerprint();
        let full = HeartbeatData { heartbeat_fingerprint: fingerprint, ..data.clone() };
        // A broker behind a new connection may have been started anew and know nothing.
        let is_new = self.is_new_connection(address);
        let told = self.heartbeats.told.lock().get(address).copied();
        if told.is_some_and(|told| !is_new && told.fingerprint == Some(fingerprint)) {
            let mut light = HeartbeatData { without_sub: true, ..full.clone() };
            light.consumer_data_set.iter_mut().for_each(|data| data.subscription_data_set.clear());
            if self.beat(to, &light).await? {
                return Ok(());
            }
        }
        self.beat(to, &full).await?;
        Ok(())
    }

    /// Sends one heartbeat, notes what the broker knows now, and returns whether that is everything.
    async fn beat(&self, to: Destination<'_>, data: &HeartbeatData) -> Result<bool, Error> {
        let beat = RemotingCommand::request(request::HEART_BEAT).with_body(json::to_vec(data));
        let answer = self.transport.done(to, beat, self.settings.api_timeout).await?;
        let knows = answer.boolean("IS_SUPPORT_HEART_BEAT_V2") && !answer.boolean("IS_SUB_CHANGE");
        if let Some(connection) = self.transport.connected(to.address) {
            let fingerprint = knows.then_some(data.heartbeat_fingerprint);
            let told = Told { connection: connection.id(), fingerprint };
            self.heartbeats.told.lock().insert(to.address.to_owned(), told);
        }
        Ok(knows)
    }
}
