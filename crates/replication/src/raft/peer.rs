//! The way to another node: openraft's network.
//!
//! openraft gives up a request after a heartbeat's time and asks again, and has at most one request to a node under way. A follower
//! whose disk is slow for a moment must not be sent the same megabytes over and over: a request that is repeated while its answer is
//! still to come waits for that answer.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{
    Fatal, RPCError, RaftError as ApiError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Snapshot};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::catch_up;
use super::election::ElectionClock;
use super::storage::NodeStore;
use super::transport::{BoxedConnection, Transport};
use super::types::{GroupConfig, LogId, NodeId, Vote};
use super::wire::{self, Message};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take before the connection is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before a node that could not be reached is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

type RpcError = RPCError<NodeId, BasicNode, ApiError<NodeId>>;

/// What all ways of one node have in common.
pub(crate) struct Peers {
    pub(crate) group: String,
    pub(crate) me: NodeId,
    pub(crate) transport: Arc<dyn Transport>,
    /// Learns from the answers of voters.
    pub(crate) election: Arc<Mutex<ElectionClock>>,
}

impl Peers {
    /// Opens a connection and introduces ourselves. Answers what the node says of itself.
    pub(crate) async fn connect(
        &self,
        to: NodeId,
        address: &str,
    ) -> io::Result<(BoxedConnection, PeerState)> {
        let opening = async {
            let mut connection = self.transport.connect(address).await?;
            let hello = Message::Hello { group: self.group.clone(), from: self.me, to };
            let welcome = ask(&mut connection, &hello).await?;
            match welcome {
                Message::Welcome { history, end } => Ok((connection, PeerState { history, end })),
                other => Err(unexpected(&other)),
            }
        };
        timeout(CONNECT_TIMEOUT, opening).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// What a node says of itself when a connection is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerState {
    /// Anything was ever decided as far as it knows.
    pub(crate) history: bool,
    /// Where its log ends.
    pub(crate) end: u64,
}

/// Sends a request and reads its answer; a refusal is an error.
pub(crate) async fn ask(connection: &mut BoxedConnection, request: &Message) -> io::Result<Message> {
    wire::write(connection, request).await?;
    match wire::read(connection).await? {
        Some(Message::Refused(reason)) => Err(io::Error::other(reason)),
        Some(answer) => Ok(answer),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

pub(crate) fn unexpected(answer: &Message) -> io::Error {
    let name = format!("{answer:?}");
    let name = name.split(['(', '{', ' ']).next().unwrap_or_default();
    io::Error::new(io::ErrorKind::InvalidData, format!("{name} is no answer to that"))
}

/// Makes ways to nodes.
pub(crate) struct PeerFactory {
    pub(crate) peers: Arc<Peers>,
    pub(crate) store: NodeStore,
}

impl RaftNetworkFactory<GroupConfig> for PeerFactory {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, node: &BasicNode) -> Peer {
        Peer {
            peers: Arc::clone(&self.peers),
            store: self.store.clone(),
            target,
            address: node.addr.clone(),
            link: None,
            unanswered: None,
        }
    }
}

/// The way to one node.
pub(crate) struct Peer {
    peers: Arc<Peers>,
    store: NodeStore,
    target: NodeId,
    address: String,
    link: Option<mpsc::Sender<Request>>,
    unanswered: Option<Unanswered>,
}

/// A request for the task that owns the connection.
struct Request {
    message: Message,
    answer: oneshot::Sender<io::Result<Message>>,
}

/// Entries that were sent and not answered yet.
struct Unanswered {
    vote: Vote,
    prev: Option<LogId>,
    last: Option<LogId>,
    since: Instant,
    answer: oneshot::Receiver<io::Result<Message>>,
}

impl Peer {
    /// Hands a request to the connection's task, which is started if there is none.
    async fn send(&mut self, message: Message) -> oneshot::Receiver<io::Result<Message>> {
        let (answer, receiver) = oneshot::channel();
        let mut request = Request { message, answer };
        if let Some(link) = &self.link {
            match link.send(request).await {
                Ok(()) => return receiver,
                Err(mpsc::error::SendError(returned)) => request = returned,
            }
        }
        let (link, requests) = mpsc::channel(1);
        tokio::spawn(serve_link(Arc::clone(&self.peers), self.target, self.address.clone(), requests));
        // The channel is empty and its receiver alive.
        drop(link.try_send(request));
        self.link = Some(link);
        receiver
    }

    fn unreachable(&mut self, error: &io::Error) -> Unreachable {
        self.link = None;
        tracing::debug!(node = self.target, address = self.address, %error, "can't reach a node of the Raft group");
        Unreachable::new(error)
    }
}

/// Owns a connection: opens it, and answers one request after the other. A request that nobody waits for any more is answered all the
/// same, so that the connection stays in step.
async fn serve_link(
    peers: Arc<Peers>,
    target: NodeId,
    address: String,
    mut requests: mpsc::Receiver<Request>,
) {
    let Some(first) = requests.recv().await else { return };
    let mut connection = match peers.connect(target, &address).await {
        Ok((connection, _)) => connection,
        Err(error) => {
            drop(first.answer.send(Err(error)));
            return;
        }
    };
    let mut next = Some(first);
    while let Some(Request { message, answer }) = next {
        let asked = timeout(ANSWER_TIMEOUT, ask(&mut connection, &message)).await;
        let asked = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let failed = asked.is_err();
        drop(answer.send(asked));
        if failed {
            return;
        }
        next = requests.recv().await;
    }
}

fn received(answer: Result<io::Result<Message>, oneshot::error::RecvError>) -> io::Result<Message> {
    answer.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionAborted.into()))
}

impl RaftNetwork<GroupConfig> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<GroupConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, RpcError> {
        let (vote, prev) = (request.vote, request.prev_log_id);
        let last = request.entries.last().map(|entry| entry.log_id).or(prev);
        let repeated = self.unanswered.as_ref().is_some_and(|sent| {
            sent.vote == vote
                && sent.prev == prev
                && sent.last <= last
                && sent.since.elapsed() < ANSWER_TIMEOUT
        });
        if !repeated {
            let answer = self.send(Message::Append(request)).await;
            self.unanswered = Some(Unanswered { vote, prev, last, since: Instant::now(), answer });
        }
        // If openraft loses patience here, the receiver stays for the repetition.
        let Some(sent) = &mut self.unanswered else {
            return Err(Unreachable::new(&io::Error::from(io::ErrorKind::NotConnected)).into());
        };
        let answer = received((&mut sent.answer).await);
        let sent_last = sent.last;
        self.unanswered = None;
        match answer {
            Ok(Message::Appended(AppendEntriesResponse::Success)) if sent_last != last => {
                Ok(AppendEntriesResponse::PartialSuccess(sent_last))
            }
            Ok(Message::Appended(response)) => Ok(response),
            Ok(other) => Err(self.unreachable(&unexpected(&other)).into()),
            Err(error) => Err(self.unreachable(&error).into()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        _option: RPCOption,
    ) -> Result<VoteResponse<NodeId>, RpcError> {
        let answer = self.send(Message::Vote(request)).await;
        match received(answer.await) {
            Ok(Message::Voted(response)) => {
                if response.last_log_id > self.store.last_id() {
                    self.peers.election.lock().behind();
                }
                Ok(response)
            }
            Ok(other) => Err(self.unreachable(&unexpected(&other)).into()),
            Err(error) => Err(self.unreachable(&error).into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<GroupConfig>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<GroupConfig, Fatal<NodeId>>> {
        let (mut connection, _) = match self.peers.connect(self.target, &self.address).await {
            Ok(opened) => opened,
            Err(error) => return Err(self.unreachable(&error).into()),
        };
        let log = self.store.log();
        tokio::select! {
            closed = cancel => Err(closed.into()),
            served = catch_up::serve(&mut connection, log, vote, &snapshot) => match served {
                Ok(vote) => Ok(SnapshotResponse { vote }),
                Err(error) => {
                    tracing::warn!(node = self.target, %error, "copying the log to a node of the Raft group ended early");
                    Err(self.unreachable(&error).into())
                }
            },
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY_PAUSE))
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("target", &self.target)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
