//! The modes of replication: how brokers are set up for them, and what they promise.

use std::time::Duration;

use crate::plan::Fault;

/// How the brokers of a set keep their copies (`docs/spec/05-ha.md` 1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// One SYNC_MASTER and two slaves, `inSyncReplicas=2`. Nobody takes the master's place.
    SyncMaster,
    /// Three brokers with `enableControllerMode=true`, each beside one of three controllers.
    Controller,
    /// Three brokers with `enableDLegerCommitLog=true`.
    Raft,
}

/// What a mode promises to those who use it. The checker holds a cluster to it.
///
/// Every mode promises that an acknowledged message stays where its acknowledgement said, that no message is there more often than
/// it was sent, that acknowledged messages of one producer keep their order in a queue, that nobody reads what is
/// not there in the end, and that all replicas come to hold the same log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Stores that have a message when its send is acknowledged. So many less one may be lost.
    pub copies: usize,
    /// Whether another broker takes the master's place. In each term, only one acknowledges anything.
    pub is_elected: bool,
    /// How much of the groups' progress may be lost when brokers die or change roles: a group's committed offset is never below
    /// what it was that long before.
    pub progress_lost_max: Duration,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::SyncMaster, Mode::Controller, Mode::Raft];

    /// Brokers in the set.
    pub fn brokers(self) -> usize {
        3
    }

    /// What is promised. `cut_off_max` is how long a node may be cut off from the others or stand still in this run.
    pub fn promise(self, cut_off_max: Duration) -> Promise {
        // Brokers write progress every 5 s, and slaves ask for it every 10 s (`docs/spec/05-ha.md` 4.1).
        let (persisted, copied) = (Duration::from_secs(5), Duration::from_secs(10));
        match self {
            Mode::SyncMaster => {
                Promise { copies: 2, is_elected: false, progress_lost_max: persisted + cut_off_max }
            }
            Mode::Controller | Mode::Raft => Promise {
                copies: 2,
                is_elected: true,
                // A node becomes master that was cut off until just now.
                progress_lost_max: persisted + copied + cut_off_max,
            },
        }
    }

    /// What may happen to a cluster in this mode.
    pub fn faults(self) -> Vec<Fault> {
        let is_possible = |fault: &Fault| match fault {
            // A replica without a disk is another one, with another id: that is the administrator's business.
            Fault::LoseStore => self != Mode::Controller,
            Fault::KillController => self == Mode::Controller,
            _ => true,
        };
        Fault::ALL.into_iter().filter(is_possible).collect()
    }

    /// Lines of the `broker.conf` of node `index`. `host_of` tells where the others are.
    pub(crate) fn broker_settings(
        self,
        index: usize,
        host_of: &dyn Fn(usize) -> String,
        ports: &dyn Fn(usize) -> Ports,
    ) -> Vec<(&'static str, String)> {
        let on_all = |port: &dyn Fn(Ports) -> u16| -> Vec<String> {
            (0..self.brokers()).map(|node| format!("{}:{}", host_of(node), port(ports(node)))).collect()
        };
        match self {
            Mode::SyncMaster => {
                let (role, id) = if index == 0 { ("SYNC_MASTER", 0) } else { ("SLAVE", index) };
                vec![
                    ("brokerRole", role.to_owned()),
                    ("brokerId", id.to_string()),
                    ("totalReplicas", "3".to_owned()),
                    ("inSyncReplicas", "2".to_owned()),
                ]
            }
            Mode::Controller => vec![
                ("enableControllerMode", "true".to_owned()),
                ("controllerAddr", on_all(&|ports| ports.controller).join(";")),
                ("brokerRole", "SLAVE".to_owned()),
                ("brokerId", "-1".to_owned()),
                ("totalReplicas", "3".to_owned()),
                ("inSyncReplicas", "2".to_owned()),
                ("minInSyncReplicas", "2".to_owned()),
                ("allAckInSyncStateSet", "true".to_owned()),
            ],
            Mode::Raft => vec![
                ("enableDLegerCommitLog", "true".to_owned()),
                ("dLegerGroup", "broker-a".to_owned()),
                ("dLegerPeers", peers(&on_all(&|ports| ports.raft))),
                ("dLegerSelfId", format!("n{index}")),
            ],
        }
    }

    /// Lines of the `controller.conf` beside node `index`, if there is a controller.
    pub(crate) fn controller_settings(
        self,
        index: usize,
        host_of: &dyn Fn(usize) -> String,
        ports: &dyn Fn(usize) -> Ports,
    ) -> Option<Vec<(&'static str, String)>> {
        let addresses: Vec<_> =
            (0..self.brokers()).map(|node| format!("{}:{}", host_of(node), ports(node).controller)).collect();
        (self == Mode::Controller).then(|| {
            vec![
                ("controllerDLegerGroup", "controllers".to_owned()),
                ("controllerDLegerPeers", peers(&addresses)),
                ("controllerDLegerSelfId", format!("n{index}")),
            ]
        })
    }
}

fn peers(addresses: &[String]) -> String {
    let named: Vec<_> =
        addresses.iter().enumerate().map(|(node, address)| format!("n{node}-{address}")).collect();
    named.join(";")
}

/// Ports of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// `listenPort`. The fast port is two below, the HA port one above.
    pub(crate) broker: u16,
    /// Of the Raft group.
    pub(crate) raft: u16,
    /// Of the controller.
    pub(crate) controller: u16,
}

impl Ports {
    /// So many ports belong to a node, from [`first`](Self::starting_at) on.
    pub(crate) const COUNT: u16 = 6;

    /// The ports of a node to which `first` and those behind it belong.
    pub(crate) fn starting_at(first: u16) -> Self {
        Self { broker: first + 2, raft: first + 4, controller: first + 5 }
    }

    /// All ports on which a node listens.
    pub(crate) fn all(self) -> [u16; 5] {
        [self.broker - 2, self.broker, self.broker + 1, self.raft, self.controller]
    }
}
