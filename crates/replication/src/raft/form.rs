//! The start of a node that knows of no group: does one begin, or is there one already?
//!
//! A node without files may be new, or it may be one that lost its disk. The latter has acknowledged entries that it no longer has;
//! if it voted now, a node that lacks them too could be elected. So a node asks the others first. If anything was ever decided among
//! them, it joins as amnesiac: it takes part in elections once it has caught up.
//!
//! Only if all nodes are there and none of them remembers anything, as after a loss of power everywhere without synchronous flushing,
//! does a group begin anew with nodes that are known to have forgotten something: the longest log is the best there is.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::peer::{PeerState, Peers};
use super::settings::Settings;
use super::types::NodeId;
use crate::log::ReplicaLog;

/// A group begins with a majority of its nodes, but the others get that long to show up: one of them may know of an older group, or
/// have a longer log.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two rounds of asking: at first, and later.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
const LATER_ROUND_PAUSE: Duration = Duration::from_secs(1);

/// What such a node found.
pub(crate) enum Formed {
    /// The group begins. Nodes with shorter logs stand for election later.
    Begin { elections_from: Instant },
    /// There is a group.
    Join,
}

/// Finds out. A node that `is_amnesiac` begins a group with all others only.
pub(crate) async fn form(
    settings: &Settings,
    peers: &Peers,
    log: &dyn ReplicaLog,
    is_amnesiac: bool,
) -> Formed {
    let started = Instant::now();
    let others: Vec<(NodeId, &str)> = settings
        .peers
        .iter()
        .filter(|(id, _)| **id != settings.me)
        .map(|(id, address)| (*id, address.as_str()))
        .collect();
    let mut answers: Vec<Option<PeerState>> = vec![None; others.len()];
    loop {
        for ((id, address), answer) in others.iter().zip(&mut answers) {
            if let Ok((_, state)) = peers.connect(*id, address).await {
                if state.history {
                    tracing::info!(
                        group = settings.group,
                        known_by = id,
                        "joining a Raft group that there is already"
                    );
                    return Formed::Join;
                }
                *answer = Some(state);
            }
        }
        let present = 1 + answers.iter().flatten().count();
        let all = present == settings.peers.len();
        let enough = present > settings.peers.len() / 2 && started.elapsed() >= PATIENCE && !is_amnesiac;
        if all || enough {
            let end = log.bounds().end;
            let longest = answers.iter().flatten().map(|state| state.end).max().unwrap_or(0);
            tracing::info!(group = settings.group, present, end, "a Raft group begins");
            let now = Instant::now();
            return Formed::Begin { elections_from: if longest > end { now + PATIENCE } else { now } };
        }
        sleep(if started.elapsed() < PATIENCE { ROUND_PAUSE } else { LATER_ROUND_PAUSE }).await;
    }
}
