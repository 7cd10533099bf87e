//! The table of producers (`docs/spec/03-broker.md` 4.8).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ferromq_protocol::body::{self, ProducerConnection, ProducerInfo, ProducerTableInfo};
use ferromq_remoting::Connection;
use parking_lot::RwLock;

use super::Client;

/// The producers that are connected, by group.
#[derive(Debug, Default)]
pub(crate) struct ProducerTable {
    state: RwLock<State>,
    #[allow(dead_code, reason = "see `pick`")]
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Members by number of their connection.
    groups: HashMap<Arc<str>, BTreeMap<u64, Client>>,
    by_connection: HashMap<u64, HashSet<Arc<str>>>,
    /// The connection over which each client was heard of last.
    by_client: HashMap<Arc<str>, Arc<Connection>>,
}

impl ProducerTable {
    /// Takes over what a heartbeat says.
    pub(super) fn register(&self, group: &str, client: &Client) {
        let mut state = self.state.write();
        let name = match state.groups.get_key_value(group) {
            Some((name, _)) => name.clone(),
            None => group.into(),
        };
        let connection = &client.connection;
        let members = state.groups.entry(name.clone()).or_default();
        match members.get_mut(&connection.id()).filter(|known| known.client_id == client.client_id) {
            // What else it said of itself first is kept, as in Java.
            Some(known) => (known.heard, known.heard_ms) = (client.heard, client.heard_ms),
            None => {
                members.insert(connection.id(), client.clone());
            }
        }
        state.by_connection.entry(connection.id()).or_default().insert(name);
        state.by_client.insert(client.client_id.clone(), connection.clone());
    }

    /// Removes the member of a group behind a connection.
    pub(super) fn unregister(&self, connection: u64, group: &str) {
        let mut state = self.state.write();
        let Some(groups) = state.by_connection.get_mut(&connection) else { return };
        groups.remove(group);
        let was_last = groups.is_empty();
        if was_last {
            state.by_connection.remove(&connection);
        }
        state.remove(connection, group, was_last);
    }

    /// A connection ended: removes it from all groups.
    pub(super) fn on_close(&self, connection: u64) {
        let mut state = self.state.write();
        for group in state.by_connection.remove(&connection).unwrap_or_default() {
            state.remove(connection, &group, true);
        }
    }

    /// Removes producers that were silent for longer than `limit`, and returns them.
    pub(super) fn remove_silent(&self, limit: Duration, now: Instant) -> Vec<Client> {
        let Some(deadline) = now.checked_sub(limit) else { return Vec::new() };
        let silent: Vec<_> = {
            let state = self.state.read();
            let members = state
                .groups
                .iter()
                .flat_map(|(group, members)| members.values().map(|client| (group.clone(), client.clone())));
            members.filter(|(_, client)| client.heard < deadline).collect()
        };
        let removed = silent.into_iter().map(|(group, client)| {
            self.unregister(client.connection.id(), &group);
            client
        });
        removed.collect()
    }

    /// A connection to any producer of the group: to each in turn. For questions about transactions, and replies.
    #[allow(dead_code, reason = "transactions ask producers; they come next")]
    pub(crate) fn pick(&self, group: &str) -> Option<Arc<Connection>> {
        let state = self.state.read();
        let members = state.groups.get(group)?;
        let first = self.next.fetch_add(1, Ordering::Relaxed) % members.len().max(1);
        let in_turn = members.values().skip(first).chain(members.values().take(first));
        let mut connections = in_turn.map(|client| &client.connection);
        connections.find(|connection| !connection.is_closed()).cloned()
    }

    /// The connection over which a client was heard of last, if it is open.
    #[allow(dead_code, reason = "replies are pushed to producers; they come next")]
    pub(crate) fn connection_of(&self, client_id: &str) -> Option<Arc<Connection>> {
        let state = self.state.read();
        state.by_client.get(client_id).filter(|connection| !connection.is_closed()).cloned()
    }

    /// The answer to code 204; `None` if no producer of the group is connected.
    pub(crate) fn connections(&self, group: &str) -> Option<ProducerConnection> {
        let state = self.state.read();
        let connection = |client: &Client| body::Connection {
            client_addr: client.connection.client_address().to_string(),
            client_id: client.client_id.to_string(),
            language: client.language,
            version: client.version,
        };
        let connection_set = state.groups.get(group)?.values().map(connection).collect();
        Some(ProducerConnection { connection_set })
    }

    /// The answer to code 328.
    pub(crate) fn table_info(&self) -> ProducerTableInfo {
        let info = |client: &Client| ProducerInfo {
            client_id: client.client_id.to_string(),
            language: client.language,
            last_update_timestamp: client.heard_ms,
            remote_ip: format!("/{}", client.connection.client_address()),
            version: client.version,
        };
        let state = self.state.read();
        let groups = state.groups.iter();
        let data = groups.map(|(group, members)| (group.to_string(), members.values().map(info).collect()));
        ProducerTableInfo { data: data.collect() }
    }
}

impl State {
    fn remove(&mut self, connection: u64, group: &str, forget_client: bool) {
        let Some(members) = self.groups.get_mut(group) else { return };
        let removed = members.remove(&connection);
        if members.is_empty() {
            self.groups.remove(group);
        }
        let Some(client) = removed.filter(|_| forget_client) else { return };
        if self.by_client.get(&client.client_id).is_some_and(|latest| latest.id() == connection) {
            self.by_client.remove(&client.client_id);
        }
    }
}

#[cfg(test)]
mod tests;
