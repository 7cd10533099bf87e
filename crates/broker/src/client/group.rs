//! The consumers of one group that are connected.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use ferromq_protocol::body::{
    self, ConsumeFromWhere, ConsumeType, ConsumerConnection, ConsumerData, MessageModel, SubscriptionData,
};

use super::Client;

type Subscriptions = HashMap<String, Arc<SubscriptionData>>;

/// What a heartbeat says about its client's membership.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership<'h> {
    pub(super) client: &'h Client,
    pub(super) data: &'h ConsumerData,
    /// 0 in classic heartbeats.
    pub(super) fingerprint: i32,
    /// The heartbeat left out the subscriptions because they are the same as before.
    pub(super) without_sub: bool,
    /// For subscriptions without a version of their own, ms since the epoch.
    pub(super) now_ms: i64,
}

/// What a heartbeat changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registered {
    /// Members have to share out the queues anew: a consumer came, or a topic was added or dropped.
    pub(super) changed: bool,
    /// Something that pulls or administrators can see has changed.
    pub(super) visible: bool,
    /// The client has to send its subscriptions: they are not known, or not the ones it means.
    pub(super) sub_change: bool,
    /// The members have just begun to subscribe to different things.
    pub(super) begins_to_differ: bool,
}

/// Client id, topic and expression of each subscription.
pub(crate) type SubscriptionsByClient = Vec<(String, String, String)>;

/// One group. Exists as long as it has members.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// By number of their connection.
    members: BTreeMap<u64, Member>,
    /// What the group subscribes to according to its last heartbeat. Shown to administrators; a pull is judged by the
    /// subscription of its own client.
    subscriptions: Subscriptions,
    consume_type: Option<ConsumeType>,
    message_model: Option<MessageModel>,
    consume_from_where: Option<ConsumeFromWhere>,
    differs: bool,
}

#[derive(Debug)]
struct Member {
    client: Client,
    /// `None` as long as only short heartbeats came over this connection.
    subscriptions: Option<Subscriptions>,
    fingerprint: i32,
}

impl Group {
    /// Takes over what a heartbeat says (4.2).
    pub(super) fn register(&mut self, membership: &Membership<'_>) -> Registered {
        let mut registered = self.register_member(membership);
        let data = membership.data;
        let properties = (data.consume_type, data.message_model, data.consume_from_where);
        if (self.consume_type, self.message_model, self.consume_from_where) != properties {
            (self.consume_type, self.message_model, self.consume_from_where) = properties;
            registered.visible = true;
        }
        if !membership.without_sub {
            self.subscribe(&data.subscription_data_set, membership.now_ms, &mut registered);
        }
        if registered.visible {
            let differs = self.find_difference().is_some();
            registered.begins_to_differ = differs && !self.differs;
            self.differs = differs;
        }
        registered
    }

    fn register_member(&mut self, membership: &Membership<'_>) -> Registered {
        let &Membership { client, data, fingerprint, without_sub, now_ms } = membership;
        let mut registered = Registered::default();
        let member = self.members.entry(client.connection.id()).or_insert_with(|| {
            (registered.changed, registered.visible) = (true, true);
            Member { client: client.clone(), subscriptions: None, fingerprint }
        });
        if member.client.client_id == client.client_id {
            // What else it said of itself first is kept, as in Java.
            (member.client.heard, member.client.heard_ms) = (client.heard, client.heard_ms);
        } else {
            tracing::warn!(
                before = &*member.client.client_id, now = &*client.client_id, group = data.group_name,
                peer = %client.connection.client_address(), "a connection's client has another name now"
            );
            member.client = client.clone();
            registered.visible = true;
        }
        registered.sub_change = std::mem::replace(&mut member.fingerprint, fingerprint) != fingerprint;
        if without_sub {
            registered.sub_change |= member.subscriptions.is_none();
            return registered;
        }
        let same = |known: &Subscriptions| {
            known.len() == data.subscription_data_set.len()
                && data.subscription_data_set.iter().all(|subscription| {
                    known.get(&subscription.topic).is_some_and(|known| is_same(known, subscription))
                })
        };
        if !member.subscriptions.as_ref().is_some_and(same) {
            let subscriptions = data.subscription_data_set.iter().map(|subscription| {
                (subscription.topic.clone(), Arc::new(with_version(subscription, now_ms)))
            });
            member.subscriptions = Some(subscriptions.collect());
            registered.visible = true;
        }
        registered
    }

    /// Replaces the group's subscriptions.
    fn subscribe(&mut self, wanted: &[SubscriptionData], now_ms: i64, registered: &mut Registered) {
        for told in wanted {
            match self.subscriptions.get_mut(&told.topic) {
                Some(known) if is_same(known, told) => {}
                Some(known) => {
                    let told = with_version(told, now_ms);
                    if told.sub_version > known.sub_version {
                        *known = Arc::new(told);
                        registered.visible = true;
                    }
                }
                None => {
                    self.subscriptions.insert(told.topic.clone(), Arc::new(with_version(told, now_ms)));
                    (registered.changed, registered.visible) = (true, true);
                }
            }
        }
        let before = self.subscriptions.len();
        self.subscriptions.retain(|topic, _| wanted.iter().any(|subscription| subscription.topic == *topic));
        if self.subscriptions.len() != before {
            (registered.changed, registered.visible) = (true, true);
        }
    }

    /// Two members that subscribe to different things, and the topic.
    fn find_difference(&self) -> Option<(&Member, &Member, &str)> {
        let mut told =
            self.members.values().filter_map(|member| Some((member, member.subscriptions.as_ref()?)));
        let (first, expected) = told.next()?;
        told.find_map(|(member, subscriptions)| {
            let differs = |topic: &&String| match (expected.get(*topic), subscriptions.get(*topic)) {
                (Some(one), Some(other)) => {
                    (&one.expression_type, &one.sub_string) != (&other.expression_type, &other.sub_string)
                }
                _ => true,
            };
            let topic = expected.keys().chain(subscriptions.keys()).find(differs)?;
            Some((first, member, topic.as_str()))
        })
    }

    /// Says which members subscribe to different things.
    pub(super) fn log_difference(&self, group: &str) {
        let Some((one, other, topic)) = self.find_difference() else { return };
        let expression = |member: &Member| {
            let subscriptions = member.subscriptions.as_ref();
            subscriptions
                .and_then(|known| known.get(topic))
                .map_or("nothing", |known| &known.sub_string)
                .to_owned()
        };
        tracing::warn!(
            group,
            topic,
            "the consumers of a group should subscribe to the same: {} to `{}`, {} to `{}`",
            one.client.client_id,
            expression(one),
            other.client.client_id,
            expression(other)
        );
    }

    /// Whether members subscribe to different things.
    pub(super) fn differs(&self) -> bool {
        self.differs
    }

    /// Removes a member; whether it was one.
    pub(super) fn remove(&mut self, connection: u64) -> bool {
        let removed = self.members.remove(&connection).is_some();
        if removed && self.differs {
            self.differs = self.find_difference().is_some();
        }
        removed
    }

    /// Members that were not heard of since `deadline`.
    pub(super) fn silent_since(&self, deadline: Instant) -> Vec<Client> {
        self.clients().filter(|client| client.heard < deadline).cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = &Client> {
        self.members.values().map(|member| &member.client)
    }

    pub(super) fn consume_type(&self) -> Option<ConsumeType> {
        self.consume_type
    }

    pub(super) fn message_model(&self) -> Option<MessageModel> {
        self.message_model
    }

    /// What the group as a whole subscribes to.
    pub(super) fn subscription(&self, topic: &str) -> Option<&Arc<SubscriptionData>> {
        self.subscriptions.get(topic)
    }

    /// What counts for a pull over this connection: its own client's subscription, or else the group's.
    pub(super) fn subscription_over(&self, connection: u64, topic: &str) -> Option<&Arc<SubscriptionData>> {
        let own = self.members.get(&connection).and_then(|member| member.subscriptions.as_ref());
        own.and_then(|own| own.get(topic)).or_else(|| self.subscriptions.get(topic))
    }

    /// Whether its consumers have said what they subscribe to.
    pub(super) fn has_subscriptions(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Whether any member subscribes to the topic.
    pub(super) fn subscribes_to(&self, topic: &str) -> bool {
        let own = |member: &Member| member.subscriptions.as_ref().is_some_and(|own| own.contains_key(topic));
        self.subscriptions.contains_key(topic) || self.members.values().any(own)
    }

    /// What each member subscribes to.
    pub(super) fn subscriptions_by_client(&self) -> SubscriptionsByClient {
        let of_member = |member: &Member| {
            let client_id = member.client.client_id.to_string();
            let own = member.subscriptions.iter().flatten();
            own.map(|(topic, own)| (client_id.clone(), topic.clone(), own.sub_string.clone()))
                .collect::<Vec<_>>()
        };
        self.members.values().flat_map(of_member).collect()
    }

    /// The answer to code 203.
    pub(super) fn connections(&self) -> ConsumerConnection {
        let connection = |client: &Client| body::Connection {
            client_addr: client.connection.client_address().to_string(),
            client_id: client.client_id.to_string(),
            language: client.language,
            version: client.version,
        };
        ConsumerConnection {
            connection_set: self.clients().map(connection).collect(),
            consume_from_where: self.consume_from_where,
            consume_type: self.consume_type,
            message_model: self.message_model,
            subscription_table: self
                .subscriptions
                .iter()
                .map(|(topic, subscription)| (topic.clone(), (**subscription).clone()))
                .collect(),
        }
    }
}

/// A client that leaves the version out means the time of arrival.
fn with_version(subscription: &SubscriptionData, now_ms: i64) -> SubscriptionData {
    let mut subscription = subscription.clone();
    if subscription.sub_version == 0 {
        subscription.sub_version = now_ms;
    }
    subscription
}

fn is_same(known: &SubscriptionData, told: &SubscriptionData) -> bool {
    let version = if told.sub_version == 0 { known.sub_version } else { told.sub_version };
    known.sub_version == version
        && known.sub_string == told.sub_string
        && known.expression_type == told.expression_type
        && known.tags_set == told.tags_set
        && known.code_set == told.code_set
        && known.class_filter_mode == told.class_filter_mode
}
