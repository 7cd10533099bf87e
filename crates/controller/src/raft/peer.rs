//! What the controllers of a group say to each other, and the checks of what comes in.
//!
//! A message is JSON in an [`Envelope`] that names protocol, group, sender and receiver. How it travels is the business of
//! a [`PeerLink`]. Whatever can't come from a controller of the group is refused before Raft sees it.

use std::future::Future;
use std::time::Duration;

use openraft::error::{RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{
    EmptyNode, EntryPayload, LogIdOptionExt as _, Membership, OptionalSend, Snapshot, SnapshotMeta,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{StoredMembership, Types, Vote};
use crate::group::{Group, NodeId};
use crate::state::BrokerSets;

/// Name and version of what is spoken.
const PROTOCOL: &str = "ferromq-controller/1";

/// How long a controller that can't be reached is left alone.
const BACKOFF: Duration = Duration::from_millis(200);

/// Carries messages to other controllers.
pub(crate) trait PeerLink: Clone + Send + Sync + 'static {
    /// Sends `message` to `peer` and returns its answer, or why there is none.
    fn call(
        &self,
        peer: NodeId,
        message: Vec<u8>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<u8>, String>> + Send;
}

/// Why a message was not taken.
#[derive(Debug, Error)]
pub(crate) enum PeerRefusal {
    #[error("not a message between controllers: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the peer speaks `{0}`, this controller {PROTOCOL}")]
    Protocol(String),
    #[error("the peer is of group `{theirs}`, this controller of `{ours}`")]
    Group { theirs: String, ours: String },
    #[error("the message is for controller {to}, this is {own}")]
    Receiver { to: NodeId, own: NodeId },
    #[error("controller {0} is not of this group")]
    Sender(NodeId),
    #[error("the message of controller {from} is not one that a controller sends: {what}")]
    Nonsense { from: NodeId, what: &'static str },
    #[error("this controller can't answer: {0}")]
    Raft(String),
}

/// A message with who sends it to whom.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<M> {
    protocol: String,
    group: String,
    from: NodeId,
    to: NodeId,
    message: M,
}

/// What one controller asks of another one.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Vote(VoteRequest<NodeId>),
    Append(AppendEntriesRequest<Types>),
    Snapshot { vote: Vote, meta: SnapshotMeta<NodeId, EmptyNode>, state: Box<BrokerSets> },
}

/// Handles a message of a peer and returns the answer.
pub(super) async fn handle(
    raft: &openraft::Raft<Types>,
    group: &Group,
    message: &[u8],
) -> Result<Vec<u8>, PeerRefusal> {
    match checked(group, message)? {
        Message::Vote(request) => answer(raft.vote(request).await),
        Message::Append(request) => answer(raft.append_entries(request).await),
        Message::Snapshot { vote, meta, state } => {
            answer(raft.install_full_snapshot(vote, Snapshot { meta, snapshot: state }).await)
        }
    }
}

fn answer<A: Serialize, E: std::error::Error>(answer: Result<A, E>) -> Result<Vec<u8>, PeerRefusal> {
    Ok(serde_json::to_vec(&answer.map_err(|error| PeerRefusal::Raft(error.to_string()))?)?)
}

/// The message, if a controller of this group can have sent it to this one.
fn checked(group: &Group, message: &[u8]) -> Result<Message, PeerRefusal> {
    let Envelope { protocol, group: theirs, from, to, message } = serde_json::from_slice(message)?;
    if protocol != PROTOCOL {
        return Err(PeerRefusal::Protocol(protocol.chars().take(64).collect()));
    }
    if theirs != group.greeting_name() {
        let ours = group.greeting_name().to_owned();
        return Err(PeerRefusal::Group { theirs: theirs.chars().take(64).collect(), ours });
    }
    if to != group.own_id {
        return Err(PeerRefusal::Receiver { to, own: group.own_id });
    }
    if from == to || !group.peers.contains_key(&from) {
        return Err(PeerRefusal::Sender(from));
    }
    match nonsense(group, from, &message) {
        Some(what) => Err(PeerRefusal::Nonsense { from, what }),
        None => Ok(message),
    }
}

/// What is wrong with a message, if anything is.
fn nonsense(group: &Group, from: NodeId, message: &Message) -> Option<&'static str> {
    let is_of_group = |membership: &Membership<NodeId, EmptyNode>| {
        membership.nodes().map(|(id, _)| *id).eq(group.peers.keys().copied())
    };
    let vote = match message {
        Message::Vote(request) => &request.vote,
        Message::Append(request) => &request.vote,
        Message::Snapshot { vote, .. } => vote,
    };
    if vote.leader_id.voted_for() != Some(from) {
        return Some("it votes for somebody else");
    }
    match message {
        Message::Vote(request) => request.vote.committed.then_some("it asks for votes that it has"),
        Message::Append(request) => {
            let mut previous = request.prev_log_id;
            for entry in &request.entries {
                if entry.log_id.index != previous.next_index()
                    || previous.is_some_and(|previous| previous.leader_id > entry.log_id.leader_id)
                {
                    return Some("its entries do not follow each other");
                }
                if matches!(&entry.payload, EntryPayload::Membership(membership) if !is_of_group(membership))
                {
                    return Some("it names other controllers than the settings do");
                }
                previous = Some(entry.log_id);
            }
            (!request.vote.committed).then_some("it was not elected")
        }
        Message::Snapshot { vote, meta, .. } => {
            let membership: &StoredMembership = &meta.last_membership;
            if !is_of_group(membership.membership()) {
                return Some("it names other controllers than the settings do");
            }
            (!vote.committed).then_some("it was not elected")
        }
    }
}

/// The other controllers, as `openraft` reaches them.
#[derive(Clone, Debug)]
pub(super) struct Peers<L> {
    group: Group,
    link: L,
}

impl<L: PeerLink> Peers<L> {
    pub(super) fn new(group: Group, link: L) -> Self {
        Self { group, link }
    }
}

impl<L: PeerLink> RaftNetworkFactory<Types> for Peers<L> {
    type Network = PeerNetwork<L>;

    async fn new_client(&mut self, target: NodeId, _: &EmptyNode) -> PeerNetwork<L> {
        PeerNetwork { peers: self.clone(), target }
    }
}

/// The way to one of them.
#[derive(Debug)]
pub(super) struct PeerNetwork<L> {
    peers: Peers<L>,
    target: NodeId,
}

impl<L: PeerLink> PeerNetwork<L> {
    async fn ask<A: for<'a> Deserialize<'a>>(
        &self,
        message: Message,
        timeout: Duration,
    ) -> Result<A, Unreachable> {
        let group = &self.peers.group;
        let envelope = Envelope {
            protocol: PROTOCOL.to_owned(),
            group: group.greeting_name().to_owned(),
            from: group.own_id,
            to: self.target,
            message,
        };
        let message = serde_json::to_vec(&envelope).map_err(|error| Unreachable::new(&error))?;
        let answer = self.peers.link.call(self.target, message, timeout).await;
        let answer = answer.map_err(|reason| {
            warn_now_and_then!(controller = self.target, reason, "another controller does not answer");
            Unreachable::new(&PeerRefusal::Raft(reason))
        })?;
        serde_json::from_slice(&answer).map_err(|error| Unreachable::new(&error))
    }
}

type CallError = RPCError<NodeId, EmptyNode, RaftError<NodeId>>;

impl<L: PeerLink> RaftNetwork<Types> for PeerNetwork<L> {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, CallError> {
        Ok(self.ask(Message::Append(request), option.hard_ttl()).await?)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        option: RPCOption,
    ) -> Result<VoteResponse<NodeId>, CallError> {
        Ok(self.ask(Message::Vote(request), option.hard_ttl()).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<Types, openraft::error::Fatal<NodeId>>> {
        let Snapshot { meta, snapshot: state } = snapshot;
        tokio::select! {
            answer = self.ask(Message::Snapshot { vote, meta, state }, option.hard_ttl()) => Ok(answer?),
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}
