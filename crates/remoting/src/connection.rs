//! The handle to one peer.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_protocol::header::{FLAG_ONEWAY, FLAG_RESPONSE};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::invoke::{InvokeError, Outcome, Outstanding};
use crate::pump::Limits;

/// Who a peer is, besides the address of its socket: what a PROXY protocol header in front of the first frame said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Address of the client behind the load balancer.
    pub client: Option<SocketAddr>,
    /// Address of the server that the client connected to.
    pub server: Option<SocketAddr>,
}

/// One connection to a peer, shared by everybody who wants to send something over it.
///
/// Bytes that others queue here are written by the connection's own task, behind the answers it is writing.
pub struct Connection {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    encoding: HeaderEncoding,
    queued_bytes_max: usize,
    outstanding_max: usize,
    identity: OnceLock<PeerIdentity>,
    /// Bytes to be written, queued by other tasks.
    queued: Mutex<Vec<u8>>,
    has_queued: AtomicBool,
    wake: Notify,
    closed: AtomicBool,
    /// Takes no new requests, and closes when the last one is answered or given up.
    retired: AtomicBool,
    closed_notify: Notify,
    outstanding: Outstanding,
    next_opaque: AtomicI32,
}

impl Connection {
    pub(crate) fn new(
        peer: SocketAddr,
        local: SocketAddr,
        encoding: HeaderEncoding,
        limits: &Limits,
    ) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            peer,
            local,
            encoding,
            queued_bytes_max: limits.queued_bytes_max,
            outstanding_max: limits.outstanding_max,
            identity: OnceLock::new(),
            queued: Mutex::default(),
            has_queued: AtomicBool::new(false),
            wake: Notify::new(),
            closed: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            closed_notify: Notify::new(),
            outstanding: Outstanding::default(),
            next_opaque: AtomicI32::new(0),
        })
    }

    /// A number that no other connection of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the socket's other end: what messages record as their born host.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Address of the socket's own end.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Address to show as the client's: that behind a load balancer, if one told it (2.1).
    pub fn client_address(&self) -> SocketAddr {
        self.identity.get().and_then(|identity| identity.client).unwrap_or(self.peer)
    }

    pub(crate) fn identify(&self, identity: PeerIdentity) {
        // Only the first frame can be preceded by a PROXY header, so there is one at most.
        let _ = self.identity.set(identity);
    }

    /// The encoding in which this side writes headers, whatever the peer uses (1.5).
    pub fn encoding(&self) -> HeaderEncoding {
        self.encoding
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the connection as soon as its task sees this. Queued bytes may be lost.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_one();
        self.closed_notify.notify_waiters();
        self.outstanding.fail_all();
    }

    /// Lets the requests on their way be answered, then closes: for a connection that is to be replaced, because its
    /// peer goes away or no longer answers. A [`Client`](crate::Client) opens a new one for the next request.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.close_if_done();
    }

    /// Whether new requests belong on another connection.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    fn close_if_done(&self) {
        if self.is_retired() && self.outstanding.is_empty() {
            self.close();
        }
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) {
        let mut notified = std::pin::pin!(self.closed_notify.notified());
        notified.as_mut().enable();
        if !self.is_closed() {
            notified.await;
        }
    }

    /// Queues bytes that `write` appends: one or more whole frames.
    ///
    /// A peer for which more than [`Limits::queued_bytes_max`] wait is not reading; it is cut off.
    pub fn send_with(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.is_closed() {
            return;
        }
        let queued_bytes = {
            let mut queued = self.queued.lock();
            write(&mut queued);
            queued.len()
        };
        if queued_bytes > self.queued_bytes_max {
            tracing::warn!(peer = %self.peer, queued_bytes, "peer does not read its answers, closing the connection");
            self.queued.lock().clear();
            self.close();
            return;
        }
        if !self.has_queued.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// Queues the answer to the request with this `opaque`.
    pub fn respond(&self, opaque: i32, mut response: RemotingCommand) {
        response.opaque = opaque;
        response.flag = FLAG_RESPONSE;
        self.send_with(|out| response.encode(self.encoding, out));
    }

    /// Sends a request of ours that wants no answer.
    pub fn oneway(&self, mut command: RemotingCommand) {
        command.opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
        command.flag = FLAG_ONEWAY;
        self.send_with(|out| command.encode(self.encoding, out));
    }

    /// Sends a request of ours and waits for its answer.
    pub async fn invoke(
        &self,
        command: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, InvokeError> {
        let write = |opaque, encoding, out: &mut Vec<u8>| command.encode_as(opaque, 0, encoding, out);
        self.invoke_with(write, Instant::now(), timeout).await
    }

    /// As [`invoke`](Self::invoke), for a request that `write` appends as a whole frame with this `opaque`, when the time has been
    /// running since `started`.
    pub async fn invoke_with(
        &self,
        write: impl FnOnce(i32, HeaderEncoding, &mut Vec<u8>),
        started: Instant,
        timeout: Duration,
    ) -> Result<RemotingCommand, InvokeError> {
        let peer = || self.peer.to_string();
        let opaque = self.next_opaque.fetch_add(1, Ordering::Relaxed);
        let mut call = PendingCall { connection: self, opaque, is_known: false };
        let mut write = Some(write);
        let outcome = poll_fn(|context| {
            let Some(write) = write.take() else {
                return self.outstanding.poll(opaque, context.waker()).map(Ok);
            };
            call.is_known =
                self.outstanding.begin(opaque, started + timeout, context.waker(), self.outstanding_max);
            if !call.is_known {
                let outstanding_max = self.outstanding_max;
                return Poll::Ready(Err(InvokeError::TooMany { peer: peer(), outstanding_max }));
            }
            if self.is_closed() {
                return Poll::Ready(Err(InvokeError::Closed { peer: peer() }));
            }
            self.send_with(|out| write(opaque, self.encoding, out));
            Poll::Pending
        });
        let outcome = outcome.await?;
        call.is_known = false;
        match outcome {
            Outcome::Answered(answer) => Ok(answer),
            Outcome::Closed => Err(InvokeError::Closed { peer: peer() }),
            Outcome::Late => Err(InvokeError::Timeout { peer: peer(), timeout }),
        }
    }

    pub(crate) fn outstanding(&self) -> &Outstanding {
        &self.outstanding
    }

    /// Moves what others queued to the end of `out`; false if there is nothing.
    pub(crate) fn take_queued(&self, out: &mut Vec<u8>) -> bool {
        if !self.has_queued.swap(false, Ordering::AcqRel) {
            return false;
        }
        let mut queued = self.queued.lock();
        if out.is_empty() {
            std::mem::swap(out, &mut *queued);
        } else {
            out.append(&mut queued);
        }
        true
    }

    /// Resolves when something was queued or the connection is to be closed.
    pub(crate) fn woken(&self) -> impl Future<Output = ()> + '_ {
        self.wake.notified()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Connection({} {})", self.id, self.peer)
    }
}

/// A call that is waited for. Dropping it must not leave an entry behind.
struct PendingCall<'a> {
    connection: &'a Connection,
    opaque: i32,
    is_known: bool,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if self.is_known {
            self.connection.outstanding.forget(self.opaque);
        }
        self.connection.close_if_done();
    }
}
