//! The controllers of a group: who they are and where they listen (`docs/spec/05-ha.md` 7.1).

use std::collections::BTreeMap;

use thiserror::Error;

use crate::config::ControllerConfig;

/// Most controllers in a group: every change waits for the majority of them.
const PEERS_MAX: usize = 9;

/// Number of a controller in its group.
pub(crate) type NodeId = u64;

/// Why the settings name no group.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GroupError {
    /// A setting that has to be there is not.
    #[error("{0} must be set")]
    Missing(&'static str),
    /// An entry of the list of controllers is not what it should be.
    #[error("{key}: `{entry}` is not {wanted}")]
    Entry {
        /// The setting.
        key: &'static str,
        /// The entry.
        entry: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// Two controllers have the same id.
    #[error("{key}: `{id}` is there twice")]
    Twice {
        /// The setting.
        key: &'static str,
        /// The id.
        id: String,
    },
    /// The list does not have this controller.
    #[error("{key}: `{id}` is not one of the controllers that {list} names")]
    NotThere {
        /// The setting that names this controller.
        key: &'static str,
        /// Its id.
        id: String,
        /// The setting that names all.
        list: &'static str,
    },
    /// Too many.
    #[error("{key} names {count} controllers, at most {PEERS_MAX} are possible")]
    TooMany {
        /// The setting.
        key: &'static str,
        /// How many.
        count: usize,
    },
    /// The two lists of the jRaft keys don't belong together.
    #[error("jRaftInitConf names {names} controllers, jRaftControllerRPCAddr {addresses}")]
    Lengths {
        /// How many names.
        names: usize,
        /// How many addresses.
        addresses: usize,
    },
    /// Unknown `controllerType`.
    #[error("controllerType must be DLedger or jRaft, not `{0}`")]
    Type(String),
}

/// One controller of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// What brokers and tools call it: `n0`, or its Raft address when the keys are jRaft's.
    pub(crate) name: String,
    /// `host:port` where it listens.
    pub(crate) address: String,
    /// The port.
    pub(crate) port: u16,
}

/// A group of controllers, and which of them this one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: Option<String>,
    pub(crate) own_id: NodeId,
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    /// As code 1005 tells it.
    pub(crate) peers_text: String,
}

impl Group {
    /// The group that the settings name.
    pub(crate) fn of(config: &ControllerConfig) -> Result<Self, GroupError> {
        match config.controller_type.as_str() {
            kind if kind.eq_ignore_ascii_case("DLedger") => Self::of_dledger_keys(config),
            kind if kind.eq_ignore_ascii_case("jRaft") => Self::of_jraft_keys(config),
            other => Err(GroupError::Type(other.to_owned())),
        }
    }

    fn of_dledger_keys(config: &ControllerConfig) -> Result<Self, GroupError> {
        const LIST: &str = "controllerDLegerPeers";
        const SELF: &str = "controllerDLegerSelfId";
        let list = set(config.controller_dleger_peers.as_deref(), LIST)?;
        let own = set(config.controller_dleger_self_id.as_deref(), SELF)?;
        let mut peers = BTreeMap::new();
        for entry in list.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let malformed =
                || GroupError::Entry { key: LIST, entry: cut(entry), wanted: "of the form n0-host:port" };
            let (name, address) = entry.split_once('-').ok_or_else(malformed)?;
            let id = number(name).ok_or_else(malformed)?;
            let port = port(address).ok_or_else(malformed)?;
            let peer = Peer { name: name.to_owned(), address: address.to_owned(), port };
            if peers.insert(id, peer).is_some() {
                return Err(GroupError::Twice { key: LIST, id: name.to_owned() });
            }
        }
        let not_there = || GroupError::NotThere { key: SELF, id: cut(own), list: LIST };
        let own_id = number(own).filter(|id| peers.contains_key(id)).ok_or_else(not_there)?;
        let peers_text = peers.values().map(|peer| format!("{}:{};", peer.name, peer.address)).collect();
        let name = config.controller_dleger_group.clone();
        Self { name, own_id, peers, peers_text }.of_bearable_size(LIST)
    }

    fn of_jraft_keys(config: &ControllerConfig) -> Result<Self, GroupError> {
        const LIST: &str = "jRaftInitConf";
        const ADDRESSES: &str = "jRaftControllerRPCAddr";
        const SELF: &str = "jRaftServerId";
        let names = entries(&config.jraft_init_conf);
        let addresses = entries(&config.jraft_controller_rpc_addr);
        if names.len() != addresses.len() {
            return Err(GroupError::Lengths { names: names.len(), addresses: addresses.len() });
        }
        let mut peers = BTreeMap::new();
        for ((id, name), address) in (0..).zip(&names).zip(&addresses) {
            let port = port(address).ok_or_else(|| GroupError::Entry {
                key: ADDRESSES,
                entry: cut(address),
                wanted: "of the form host:port",
            })?;
            if peers.values().any(|peer: &Peer| peer.name == *name) {
                return Err(GroupError::Twice { key: LIST, id: cut(name) });
            }
            peers.insert(id, Peer { name: (*name).to_owned(), address: (*address).to_owned(), port });
        }
        let own = config.jraft_server_id.trim();
        let own_id = peers.iter().find(|(_, peer)| peer.name == own).map(|(id, _)| *id);
        let own_id = own_id.ok_or_else(|| GroupError::NotThere { key: SELF, id: cut(own), list: LIST })?;
        let peers_text = peers.values().map(|peer| format!("{};", peer.address)).collect();
        Self { name: Some(config.jraft_group_id.clone()), own_id, peers, peers_text }.of_bearable_size(LIST)
    }

    fn of_bearable_size(self, key: &'static str) -> Result<Self, GroupError> {
        match self.peers.len() {
            count if count > PEERS_MAX => Err(GroupError::TooMany { key, count }),
            _ => Ok(self),
        }
    }

    /// The entry of this controller.
    pub(crate) fn own(&self) -> Option<&Peer> {
        self.peers.get(&self.own_id)
    }

    /// What peers call the group when they greet each other.
    pub(crate) fn greeting_name(&self) -> &str {
        self.name.as_deref().unwrap_or("")
    }
}

fn set<'a>(value: Option<&'a str>, key: &'static str) -> Result<&'a str, GroupError> {
    value.map(str::trim).filter(|value| !value.is_empty()).ok_or(GroupError::Missing(key))
}

fn entries(list: &str) -> Vec<&str> {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect()
}

/// The number of `n0`, `n1`, …
fn number(name: &str) -> Option<NodeId> {
    let digits = name.strip_prefix('n')?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse::<u32>().ok())
        .flatten()
        .map(u64::from)
}

fn port(address: &str) -> Option<u16> {
    let (host, port) = address.rsplit_once(':')?;
    if host.is_empty() { None } else { port.parse().ok().filter(|port| *port > 0) }
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_peers(peers: &str, own: &str) -> Result<Group, GroupError> {
        Group::of(&ControllerConfig {
            controller_dleger_group: Some("group1".to_owned()),
            controller_dleger_peers: Some(peers.to_owned()),
            controller_dleger_self_id: Some(own.to_owned()),
            ..ControllerConfig::default()
        })
    }

    #[test]
    fn dledger_keys() {
        let group = of_peers("n0-10.0.0.1:9745;n1-my-host:9746;", "n1").unwrap();
        assert_eq!(group.own().map(|own| (own.address.as_str(), own.port)), Some(("my-host:9746", 9746)));
        assert_eq!(group.peers_text, "n0:10.0.0.1:9745;n1:my-host:9746;");
    }

    #[test]
    fn jraft_keys() {
        let mut config =
            ControllerConfig { controller_type: "jRaft".to_owned(), ..ControllerConfig::default() };
        config.jraft_server_id = "localhost:9881".to_owned();
        let group = Group::of(&config).unwrap();
        assert_eq!((group.own_id, group.own().map(|own| own.port)), (1, Some(9771)));
        assert_eq!(group.peers_text, "localhost:9770;localhost:9771;localhost:9772;");
        config.jraft_controller_rpc_addr = "localhost:9770".to_owned();
        let error = Group::of(&config).unwrap_err().to_string();
        assert_eq!(error, "jRaftInitConf names 3 controllers, jRaftControllerRPCAddr 1");
    }

    #[test]
    fn what_names_no_group_is_told() {
        let told = |peers, own| of_peers(peers, own).unwrap_err().to_string();
        assert_eq!(told("", "n0"), "controllerDLegerPeers must be set");
        assert_eq!(told("n0-h", "n0"), "controllerDLegerPeers: `n0-h` is not of the form n0-host:port");
        assert_eq!(told("n0-h:1;n0-h:2", "n0"), "controllerDLegerPeers: `n0` is there twice");
        assert_eq!(
            told("n0-h:1", "n3"),
            "controllerDLegerSelfId: `n3` is not one of the controllers that controllerDLegerPeers names"
        );
        let many: String = (0..10).map(|id| format!("n{id}-h:1;")).collect();
        assert_eq!(told(&many, "n0"), "controllerDLegerPeers names 10 controllers, at most 9 are possible");
    }
}
