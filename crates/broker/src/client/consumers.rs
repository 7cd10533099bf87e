//! The table of consumers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferromq_protocol::body::{ConsumeType, ConsumerConnection, MessageModel, SubscriptionData};
use parking_lot::RwLock;

use super::Client;
use super::compensation::Compensation;
use super::group::{Group, Membership, Registered, SubscriptionsByClient};

/// The consumers that are connected, by group.
///
/// A consumer is known by its connection: two connections of one client are two members.
#[derive(Debug, Default)]
pub(crate) struct ConsumerTable {
    state: RwLock<State>,
    /// Subscriptions of groups that send them with their pulls.
    pub(crate) compensation: Compensation,
}

#[derive(Debug, Default)]
struct State {
    groups: HashMap<Arc<str>, Group>,
    by_connection: HashMap<u64, HashSet<Arc<str>>>,
}

/// What a pull has to know about its group.
#[derive(Clone, Debug)]
pub(crate) struct PullingConsumer {
    /// Who of the group gets a message, according to its last heartbeat.
    pub(crate) message_model: Option<MessageModel>,
    /// What counts for this pull: the subscription of the client that sends it, or else the group's.
    pub(crate) subscription: Option<Arc<SubscriptionData>>,
}

impl ConsumerTable {
    /// What a pull over this connection has to know; `None` if no consumer of the group is connected.
    pub(crate) fn for_pull(&self, connection: u64, group: &str, topic: &str) -> Option<PullingConsumer> {
        let state = self.state.read();
        let group = state.groups.get(group)?;
        Some(PullingConsumer {
            message_model: group.message_model(),
            subscription: group.subscription_over(connection, topic).cloned(),
        })
    }

    /// What the group as a whole subscribes to, or else what its pulls said (4.5). For administrators.
    pub(crate) fn subscription(&self, group: &str, topic: &str) -> Option<Arc<SubscriptionData>> {
        let of_group =
            self.state.read().groups.get(group).and_then(|group| group.subscription(topic)).cloned();
        of_group.or_else(|| self.compensation.get(group, topic))
    }

    /// Whether the group's consumers subscribe to the topic; `None` if none is connected, or none has said to what.
    pub(crate) fn subscribes(&self, group: &str, topic: &str) -> Option<bool> {
        let state = self.state.read();
        let group = state.groups.get(group)?;
        group.has_subscriptions().then(|| group.subscribes_to(topic))
    }

    /// How the group gets its messages and who of it gets one; `None` if no consumer of it is connected.
    pub(crate) fn model(&self, group: &str) -> Option<(Option<ConsumeType>, Option<MessageModel>)> {
        self.state.read().groups.get(group).map(|group| (group.consume_type(), group.message_model()))
    }

    /// The group's consumers, in the order in which their connections were opened.
    pub(crate) fn clients(&self, group: &str) -> Vec<Client> {
        self.state.read().groups.get(group).into_iter().flat_map(Group::clients).cloned().collect()
    }

    /// A consumer by its name.
    pub(crate) fn find(&self, group: &str, client_id: &str) -> Option<Client> {
        self.state.read().groups.get(group)?.clients().find(|client| &*client.client_id == client_id).cloned()
    }

    /// The answer to code 203; `None` if no consumer of the group is connected.
    pub(crate) fn connections(&self, group: &str) -> Option<ConsumerConnection> {
        self.state.read().groups.get(group).map(Group::connections)
    }

    /// Groups that have a consumer connected which subscribes to the topic (code 300).
    pub(crate) fn groups_subscribing_to(&self, topic: &str) -> BTreeSet<String> {
        let state = self.state.read();
        let groups = state.groups.iter().filter(|(_, group)| group.subscribes_to(topic));
        groups.map(|(name, _)| name.to_string()).collect()
    }

    /// Groups whose consumers subscribe to different things.
    pub(crate) fn differing_subscriptions(&self) -> Vec<(String, SubscriptionsByClient)> {
        let state = self.state.read();
        let differing = state.groups.iter().filter(|(_, group)| group.differs());
        differing.map(|(name, group)| (name.to_string(), group.subscriptions_by_client())).collect()
    }

    /// Takes over what a heartbeat says.
    pub(super) fn register(&self, membership: &Membership<'_>) -> Registered {
        let mut state = self.state.write();
        let state = &mut *state;
        let name = match state.groups.get_key_value(&*membership.data.group_name) {
            Some((name, _)) => name.clone(),
            None => membership.data.group_name.as_str().into(),
        };
        let group = state.groups.entry(name.clone()).or_default();
        let registered = group.register(membership);
        if registered.begins_to_differ {
            group.log_difference(&name);
        }
        state.by_connection.entry(membership.client.connection.id()).or_default().insert(name);
        registered
    }

    /// Removes the member of a group behind a connection; whether it was one.
    pub(super) fn unregister(&self, connection: u64, group: &str) -> bool {
        let mut state = self.state.write();
        if let Some(groups) = state.by_connection.get_mut(&connection) {
            groups.remove(group);
            if groups.is_empty() {
                state.by_connection.remove(&connection);
            }
        }
        state.remove(connection, group)
    }

    /// A connection ended: removes it from all groups, and returns those.
    pub(super) fn on_close(&self, connection: u64) -> Vec<Arc<str>> {
        let mut state = self.state.write();
        let groups = state.by_connection.remove(&connection).unwrap_or_default();
        groups.into_iter().filter(|group| state.remove(connection, group)).collect()
    }

    /// Removes consumers that were silent for longer than `limit`; returns their groups and them.
    pub(super) fn remove_silent(&self, limit: Duration, now: Instant) -> (Vec<Arc<str>>, Vec<Client>) {
        let Some(deadline) = now.checked_sub(limit) else { return Default::default() };
        let silent: Vec<_> = {
            let state = self.state.read();
            let silent = |(name, group): (&Arc<str>, &Group)| (name.clone(), group.silent_since(deadline));
            state.groups.iter().map(silent).filter(|(_, clients)| !clients.is_empty()).collect()
        };
        let (mut groups, mut gone) = (Vec::new(), Vec::new());
        for (group, clients) in silent {
            for client in &clients {
                self.unregister(client.connection.id(), &group);
            }
            groups.push(group);
            gone.extend(clients);
        }
        (groups, gone)
    }
}

impl State {
    fn remove(&mut self, connection: u64, name: &str) -> bool {
        let Some(group) = self.groups.get_mut(name) else { return false };
        let removed = group.remove(connection);
        if group.is_empty() {
            self.groups.remove(name);
        }
        removed
    }
}

#[cfg(test)]
mod tests;
