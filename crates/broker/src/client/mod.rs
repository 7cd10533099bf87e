//! Who is connected: consumers and producers, what they tell us and what we ask of them
//! (`docs/spec/03-broker.md` 4.1 to 4.5, 4.8, 4.9).
//!
//! | module | what |
//! |---|---|
//! | `consumers` | [`ConsumerTable`]: groups, members, subscriptions |
//! | `group` | one group of it |
//! | `compensation` | subscriptions that came with pulls |
//! | `producers` | [`ProducerTable`] |
//! | `heartbeat` | codes 34 and 35 |
//! | `requests` | codes 38 and 46 |
//! | `assignment`, `request_modes` | codes 400 to 402 |
//! | [`calls`] | requests from us to clients |

use std::sync::Arc;
use std::time::{Duration, Instant};

use ferromq_protocol::version::Language;
use ferromq_remoting::Connection;

use crate::broker::Broker;
use crate::clock;
use crate::service::Handler;

mod assignment;
pub(crate) mod calls;
mod compensation;
mod consumers;
mod group;
mod heartbeat;
mod producers;
mod request_modes;
mod requests;

pub(crate) use consumers::ConsumerTable;
pub(crate) use producers::ProducerTable;
pub(crate) use request_modes::MessageRequestModes;

/// How long a producer may be silent. Consumers have `channelExpiredTimeout`.
const PRODUCER_EXPIRED: Duration = Duration::from_secs(120);

/// How often [`scan`] is to be called.
pub(crate) const SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// A client as a member of a group.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Its connection.
    pub(crate) connection: Arc<Connection>,
    /// What it calls itself.
    pub(crate) client_id: Arc<str>,
    /// The language it says it is written in.
    pub(crate) language: Option<Language>,
    /// Its version (01, 1.9).
    pub(crate) version: i32,
    /// When it was heard of last.
    pub(crate) heard: Instant,
    /// The same for people, ms since the epoch.
    pub(crate) heard_ms: i64,
}

/// The handlers of this module.
pub(crate) fn route(code: i32) -> Option<Handler> {
    heartbeat::route(code)
        .or_else(|| requests::route(code))
        .or_else(|| assignment::route(code))
        .or_else(|| request_modes::route(code))
}

/// A connection ended: its clients are gone, the others of their groups are told at once, and their queue locks end soon.
pub(crate) fn on_close(broker: &Broker, connection: &Connection) {
    broker.producers.on_close(connection.id());
    for group in broker.consumers.on_close(connection.id()) {
        calls::notify_consumer_ids_changed(broker, &group);
    }
    let is_online = |group: &str, client_id: &str| broker.consumers.find(group, client_id).is_some();
    broker.locks.connection_closed(connection.id(), is_online, Instant::now());
}

/// Removes clients that were not heard of for too long, though their connections are open, and what is left of those that
/// went before. To be called every [`SCAN_INTERVAL`].
///
/// Other than in Java, the others of an expired consumer's group are told, so that its queues go on at once.
pub(crate) fn scan(broker: &Broker) {
    let config = broker.config();
    let now = Instant::now();
    let consumer_expired = Duration::from_millis(config.channel_expired_timeout);
    let (groups, mut expired) = broker.consumers.remove_silent(consumer_expired, now);
    expired.extend(broker.producers.remove_silent(PRODUCER_EXPIRED, now));
    for client in expired {
        tracing::warn!(
            client_id = &*client.client_id, peer = %client.connection.client_address(),
            "no heartbeat from this client, closing its connection"
        );
        client.connection.close();
    }
    for group in groups {
        calls::notify_consumer_ids_changed(broker, &group);
    }
    let subscription_expired = i64::try_from(config.subscription_expired_timeout).unwrap_or(i64::MAX);
    broker.consumers.compensation.remove_expired(clock::now_ms().saturating_sub(subscription_expired));
    broker.locks.remove_expired(now);
}

#[cfg(test)]
mod testing;
