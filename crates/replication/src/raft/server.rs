//! What other nodes may ask of this one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::{EntryPayload, LogIdOptionExt};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::node::{Command, Running, Shared};
use super::transport::{BoxedConnection, Listener};
use super::types::{GroupConfig, NodeId, Vote};
use super::wire::{self, Message};

/// A peer introduces itself within that time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection on which nothing was asked for so long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections at a time. A group has a handful of nodes, each with a few.
const CONNECTIONS_MAX: usize = 256;

/// Takes connections until it is dropped.
pub(crate) async fn serve(shared: Arc<Shared>, mut listener: Box<dyn Listener>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (connection, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection of the Raft group");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(%from, "too many connections to the Raft port: refused");
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            if let Err(error) = serve_connection(&shared, connection, from).await {
                tracing::warn!(%from, %error, "a connection of the Raft group is closed");
            }
            drop(place);
        });
    }
}

async fn serve_connection(
    shared: &Shared,
    mut connection: BoxedConnection,
    from: SocketAddr,
) -> io::Result<()> {
    let hello = match timeout(HELLO_TIMEOUT, wire::read(&mut connection)).await?? {
        Some(hello) => hello,
        None => return Ok(()),
    };
    let peer = match introduced(shared, hello) {
        Ok(peer) => peer,
        Err(reason) => {
            tracing::warn!(%from, reason, "a peer of the Raft group is refused");
            return wire::write(&mut connection, &Message::Refused(reason)).await;
        }
    };
    let Some(state) = shared.peer_state() else {
        return wire::write(&mut connection, &Message::Refused("this node is starting".into())).await;
    };
    wire::write(&mut connection, &Message::Welcome { history: state.history, end: state.end }).await?;
    loop {
        let request = match timeout(IDLE_TIMEOUT, wire::read(&mut connection)).await {
            Ok(request) => request?,
            Err(_idle) => return Ok(()),
        };
        let Some(request) = request else { return Ok(()) };
        let answer = match (request, shared.running()) {
            (_, None) => Message::Refused("this node is starting or copying the log".into()),
            (Message::Offer(offer), Some(running)) => {
                let vote = running.store.vote().unwrap_or_default();
                if offer.vote.leader_id.node_id != peer || !offer.vote.committed || offer.vote < vote {
                    Message::Caught(vote)
                } else {
                    shared.command(Command::CatchUp(connection, Box::new(offer))).await;
                    return Ok(());
                }
            }
            (Message::Vote(request), Some(running)) => vote(shared, &running, peer, request).await,
            (Message::Append(request), Some(running)) => append(shared, &running, peer, request).await,
            (Message::Stand(vote), Some(running)) => stand(&running, peer, vote).await,
            (Message::StandBack(vote), Some(running)) => stand_back(shared, &running, peer, vote),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "no request")),
        };
        if let Message::Refused(reason) = &answer {
            tracing::debug!(%from, peer, reason, "a request of a peer is refused");
        }
        wire::write(&mut connection, &answer).await?;
    }
}

/// Who the peer is, if it may talk to us.
fn introduced(shared: &Shared, hello: Message) -> Result<NodeId, String> {
    let Message::Hello { group, from, to } = hello else {
        return Err("a connection begins with an introduction".into());
    };
    let settings = &shared.settings;
    if group != settings.group {
        return Err(format!("this is a node of group {}, not of {group}", settings.group));
    }
    if to != settings.me {
        return Err(format!("this is node n{}, not n{to}", settings.me));
    }
    if from == settings.me || !shared.knows(from) {
        return Err(format!("n{from} is not in group {group}"));
    }
    Ok(from)
}

async fn vote(shared: &Shared, running: &Running, peer: NodeId, request: VoteRequest<NodeId>) -> Message {
    let Running { raft, store } = running;
    if request.vote.leader_id.node_id != peer {
        return Message::Refused("a vote for somebody else".into());
    }
    if store.is_amnesiac() {
        return Message::Voted(VoteResponse::new(store.vote().unwrap_or_default(), store.last_id(), false));
    }
    match raft.vote(request).await {
        Ok(response) => {
            if response.vote_granted {
                shared.heard_leader();
            }
            Message::Voted(response)
        }
        Err(error) => Message::Refused(error.to_string()),
    }
}

async fn append(
    shared: &Shared,
    running: &Running,
    peer: NodeId,
    request: AppendEntriesRequest<GroupConfig>,
) -> Message {
    if request.vote.leader_id.node_id != peer || !request.vote.committed {
        return Message::Refused("entries of somebody who does not lead".into());
    }
    if let Some(reason) = misplaced(running, &request) {
        tracing::error!(peer, reason, "entries are refused");
        return Message::Refused(reason);
    }
    let (vote, commit) = (request.vote, request.leader_commit);
    let hearing = shared.hearing_leader();
    let response = running.raft.append_entries(request).await;
    if matches!(response, Ok(AppendEntriesResponse::Success)) && running.store.is_amnesiac() {
        remember(running, vote, commit);
    }
    if response.as_ref().is_ok_and(|response| !matches!(response, AppendEntriesResponse::HigherVote(_))) {
        shared.heard_leader();
    }
    drop(hearing);
    match response {
        Ok(response) => Message::Appended(response),
        Err(error) => Message::Refused(error.to_string()),
    }
}

/// Whether the ranges don't lie where the entry before them ends.
fn misplaced(running: &Running, request: &AppendEntriesRequest<GroupConfig>) -> Option<String> {
    let end = running.store.end_of(request.prev_log_id?)?;
    let first = request.entries.iter().find_map(|entry| match &entry.payload {
        EntryPayload::Normal(range) => Some(range.offset),
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    })?;
    (first != end).then(|| format!("entries for offset {first} where the log ends at {end}"))
}

/// Ends amnesia once everything is here that was committed when the present leader began its term: that is more than this node can
/// ever have acknowledged before.
fn remember(running: &Running, vote: Vote, commit: Option<super::types::LogId>) {
    let applied = running.raft.metrics().borrow().last_applied;
    if commit.is_some_and(|commit| commit.leader_id == vote.leader_id) && applied.index() >= commit.index() {
        match running.store.set_amnesiac(false) {
            Ok(()) => tracing::info!(
                "this node has caught up with its Raft group and takes part in elections again"
            ),
            Err(error) => tracing::error!(%error, "can't note that this node has caught up"),
        }
    }
}

async fn stand(running: &Running, peer: NodeId, leader: Vote) -> Message {
    let Running { raft, store } = running;
    if leader.leader_id.node_id != peer || store.vote() != Some(leader) {
        return Message::Refused("this node follows somebody else".into());
    }
    if store.is_amnesiac() {
        return Message::Refused("this node has not caught up".into());
    }
    match raft.trigger().elect().await {
        Ok(()) => Message::Agreed,
        Err(error) => Message::Refused(error.to_string()),
    }
}

fn stand_back(shared: &Shared, running: &Running, peer: NodeId, leader: Vote) -> Message {
    if leader.leader_id.node_id != peer || running.store.vote() != Some(leader) {
        return Message::Refused("this node follows somebody else".into());
    }
    shared.stand_back();
    Message::Agreed
}
