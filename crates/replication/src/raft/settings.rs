//! How a node and its group are called and where they are (`docs/spec/05-ha.md` §10.1).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use openraft::SnapshotPolicy;

use super::error::RaftError;
use super::storage::Durability;
use super::transport::port_of;
use super::types::NodeId;
use super::wire::{ENTRIES_MAX, GROUP_LEN_MAX};

/// openraft looks at its clock every one and a half of these, so followers hear from a leader that has nothing to say every 240 ms.
const HEARTBEAT: Duration = Duration::from_millis(160);
/// So long a voter keeps to a leader that it does not hear from. Three heartbeats in a row may get lost or come late: a machine that
/// is busy for a moment does not change its leader.
pub(crate) const LEASE: Duration = Duration::from_millis(800);
/// Applied entries after which a new point in the log is named that the index may forget entries up to. Tests want to see it happen.
const ENTRIES_PER_POINT: u64 = if cfg!(test) { 20 } else { 20_000 };
/// Entries that are kept before that point: who lags less gets entries, who lags more copies the log.
const ENTRIES_KEPT: u64 = if cfg!(test) { 30 } else { 100_000 };
/// A new node belongs to the group once it lacks no more entries than that.
const NEW_NODE_LAG_MAX: u64 = 10;

/// What a node must know to take part in a group.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the group (`dLegerGroup`).
    pub group: String,
    /// Number of this node (`dLegerSelfId` without its letter).
    pub me: NodeId,
    /// `host:port` of all nodes with which the group begins, this one included (`dLegerPeers`).
    pub peers: BTreeMap<NodeId, String>,
    /// Nodes that should lead when they can (`preferredLeaderId`).
    pub preferred: Vec<NodeId>,
    /// Where this node keeps its own files.
    pub dir: PathBuf,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// How long after its start this node leaves elections to others, unless the group begins with it: the broker may lack what is
    /// not in the log.
    pub others_first: Duration,
}

impl Settings {
    /// Checks what can be checked before anything is started.
    ///
    /// # Errors
    /// [`RaftError::Settings`] names the setting and what is wrong with it.
    pub fn validate(&self) -> Result<(), RaftError> {
        if self.group.is_empty() || self.group.len() > GROUP_LEN_MAX {
            return Err(RaftError::Settings(format!("dLegerGroup must have 1 to {GROUP_LEN_MAX} bytes")));
        }
        if !self.peers.contains_key(&self.me) {
            return Err(RaftError::Settings(format!("dLegerSelfId=n{} is not in dLegerPeers", self.me)));
        }
        Ok(())
    }

    pub(crate) fn address(&self) -> &str {
        self.peers.get(&self.me).map_or("", String::as_str)
    }

    /// The place of this node in the order in which nodes stand for election: preferred ones first.
    pub(crate) fn rank(&self) -> u32 {
        let mut order: Vec<NodeId> = self.preferred.clone();
        order.extend(self.peers.keys().filter(|id| !self.preferred.contains(id)));
        order.iter().position(|id| *id == self.me).unwrap_or(order.len()) as u32
    }

    pub(crate) fn openraft(&self) -> Result<openraft::Config, RaftError> {
        let lease_ms = LEASE.as_millis() as u64;
        let config = openraft::Config {
            cluster_name: self.group.clone(),
            heartbeat_interval: HEARTBEAT.as_millis() as u64,
            // The lease is the greater one. See `election` for when nodes stand.
            election_timeout_min: lease_ms - 1,
            election_timeout_max: lease_ms,
            enable_elect: false,
            max_payload_entries: ENTRIES_MAX,
            replication_lag_threshold: NEW_NODE_LAG_MAX,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(ENTRIES_PER_POINT),
            max_in_snapshot_log_to_keep: ENTRIES_KEPT,
            purge_batch_size: ENTRIES_PER_POINT,
            ..openraft::Config::default()
        };
        config.validate().map_err(|error| RaftError::Settings(error.to_string()))
    }
}

/// Reads `dLegerPeers`: `n0-host:port;n1-host:port`.
///
/// # Errors
/// [`RaftError::Settings`] names the part that makes no sense.
pub fn parse_peers(text: &str) -> Result<BTreeMap<NodeId, String>, RaftError> {
    let mut peers = BTreeMap::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = || RaftError::Settings(format!("dLegerPeers: {part} is not of the form n0-host:port"));
        let (id, address) = part.split_once('-').ok_or_else(wrong)?;
        port_of(address).map_err(|_| wrong())?;
        if peers.insert(parse_id(id)?, address.to_owned()).is_some() {
            return Err(RaftError::Settings(format!("dLegerPeers: {id} occurs twice")));
        }
    }
    if peers.is_empty() {
        return Err(RaftError::Settings("dLegerPeers is empty".into()));
    }
    Ok(peers)
}

/// Reads an id such as `n0`: one letter and a number.
///
/// # Errors
/// [`RaftError::Settings`] names the id.
pub fn parse_id(text: &str) -> Result<NodeId, RaftError> {
    let mut chars = text.trim().chars();
    let letter = chars.next().is_some_and(|first| first.is_ascii_alphabetic());
    // The broker's id is this number plus one.
    match chars.as_str().parse::<u32>() {
        Ok(number) if letter => Ok(number.into()),
        _ => Err(RaftError::Settings(format!("{text} is no node id: one letter and a number, such as n0"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read_as_rocketmq_writes_them() {
        let peers =
            parse_peers("n0-127.0.0.1:40911; n1-broker-b.example.org:40912;n12-[::1]:40913;").unwrap();
        let expected = [(0, "127.0.0.1:40911"), (1, "broker-b.example.org:40912"), (12, "[::1]:40913")];
        assert_eq!(peers, expected.map(|(id, address)| (id, address.to_owned())).into());
        for wrong in ["", "n0", "n0-host", "0-host:1", "nn-host:1", "n0-host:x", "n0-a:1;n0-b:1"] {
            assert!(parse_peers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn preferred_nodes_stand_for_election_first() {
        let peers = parse_peers("n0-h:1;n1-h:2;n2-h:3").unwrap();
        let rank = |me| {
            let (group, dir, durability) = ("g".into(), PathBuf::new(), Durability::PageCache);
            let (peers, preferred) = (peers.clone(), vec![2]);
            Settings { group, me, peers, preferred, dir, durability, others_first: Duration::ZERO }.rank()
        };
        assert_eq!([0, 1, 2].map(rank), [1, 2, 0]);
    }
}
