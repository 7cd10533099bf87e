//! The loop that a connection lives in: read, split, parse, handle, write.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::{self, FrameError};
use ferromq_protocol::header::{HeaderError, HeaderScratch, Request};
use thiserror::Error;
use tokio::io::ReadBuf;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::proxy_protocol::{self, MalformedHeader, Preface};
use crate::rate_limit::RateLimit;
use crate::stream::Stream;

/// What handles the requests of peers. All methods run on the connection's own task and must not block.
pub trait Service: Send + Sync + 'static {
    /// What the service keeps for each connection.
    type Session: Send;

    /// A connection was opened.
    fn open(&self, connection: &Arc<Connection>) -> Self::Session;

    /// Handles one request. Its answer is appended to `out` now, or sent through `connection` at any later time.
    ///
    /// Answers may be held back until [`batch_end`](Self::batch_end), which follows when everything that one read
    /// brought was handled.
    fn request(
        &self,
        session: &mut Self::Session,
        connection: &Arc<Connection>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    );

    /// Everything that was read has been handled; `out` is written next.
    fn batch_end(&self, session: &mut Self::Session, connection: &Arc<Connection>, out: &mut Vec<u8>) {
        let _ = (session, connection, out);
    }

    /// The connection ended.
    fn close(&self, session: Self::Session, connection: &Arc<Connection>) {
        let _ = (session, connection);
    }
}

/// A service for connections on which the peer has nothing to ask: every request gets the standard answer.
#[derive(Debug, Default)]
pub struct NoRequests;

impl Service for NoRequests {
    type Session = ();

    fn open(&self, _: &Arc<Connection>) {}

    fn request(&self, (): &mut (), connection: &Arc<Connection>, request: &Request<'_>, out: &mut Vec<u8>) {
        if request.is_oneway() {
            return;
        }
        let mut answer = RemotingCommand::not_supported(request.code);
        answer.opaque = request.opaque;
        answer.encode(connection.encoding(), out);
    }
}

/// How much one connection may hold, and for how long.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Answers of one round above which no further request is handled before they are written.
    pub round_bytes_max: usize,
    /// Bytes queued by others above which the peer is cut off.
    pub queued_bytes_max: usize,
    /// Requests of our own that may wait for an answer of one peer.
    pub outstanding_max: usize,
    /// Silence in both directions after which the connection is closed.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            round_bytes_max: 1024 * 1024,
            queued_bytes_max: 64 * 1024 * 1024,
            outstanding_max: 4096,
            idle_timeout: Duration::from_secs(120),
        }
    }
}

/// Bytes that one read can bring.
const READ_BYTES: usize = 256 * 1024;
/// Answers to requests of ours that are handed over at once, however few are waited for: each hand-over costs a write.
const ROUND_ANSWERS_MIN: usize = 4;
/// Buffers above this are not kept while a connection is quiet.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Buffers of one thread, lent to the connection that is being served: a quiet connection holds none.
struct Lent {
    read: Box<[u8]>,
    out: Vec<u8>,
    header: HeaderScratch,
    answers: Vec<RemotingCommand>,
}

thread_local! {
    static LENT: RefCell<Lent> = RefCell::new(Lent {
        read: vec![0; READ_BYTES].into_boxed_slice(),
        out: Vec::new(),
        header: HeaderScratch::default(),
        answers: Vec::new(),
    });
}

/// Why a connection ended, when it was not the peer that closed it in an orderly way.
#[derive(Debug, Error)]
enum CloseReason {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Proxy(#[from] MalformedHeader),
    #[error("the peer speaks TLS, which this listener does not offer")]
    Tls,
    #[error("nothing was sent or received for {0:?}")]
    Idle(Duration),
    #[error(transparent)]
    Io(#[from] io::Error),
}

struct Pump<S: Service> {
    stream: Stream,
    connection: Arc<Connection>,
    service: Arc<S>,
    session: S::Session,
    limits: Limits,
    /// The beginning of a frame, or frames that wait until the answers before them are written.
    unhandled: Vec<u8>,
    out: Vec<u8>,
    /// Whether the first bytes were looked at for a PROXY header.
    started: bool,
    /// Whether `unhandled` holds a whole frame.
    has_whole_frame: bool,
    /// Answers to requests of ours that are handed over at once: half of what is waited for. Those who got them send their next
    /// requests before the rest is handed over; so this side and the peer work at the same time, and not in turn.
    round_answers_max: usize,
    /// Whether those who just got answers are to go on first.
    gives_way: bool,
    /// Why nothing can be written any more. What the peer had sent before it went is still read and handled: its last words are
    /// often requests that want no answer, such as the progress of a consumer that shuts down.
    write_error: Option<io::Error>,
    last_activity: Instant,
}

/// Serves one connection until it ends.
pub(crate) async fn run<S: Service>(
    stream: Stream,
    connection: Arc<Connection>,
    service: Arc<S>,
    limits: Limits,
) {
    static MALFORMED: std::sync::LazyLock<RateLimit> =
        std::sync::LazyLock::new(|| RateLimit::new(20, Duration::from_secs(10)));
    let session = service.open(&connection);
    let mut pump = Pump {
        stream,
        connection: connection.clone(),
        service,
        session,
        limits,
        unhandled: Vec::new(),
        out: Vec::new(),
        started: false,
        has_whole_frame: false,
        round_answers_max: ROUND_ANSWERS_MIN,
        gives_way: false,
        write_error: None,
        last_activity: Instant::now(),
    };
    let result = tokio::select! {
        biased;
        result = pump.run() => result,
        () = connection.outstanding().give_up_late() => Ok(()),
    };
    let Pump { service, session, .. } = pump;
    connection.close();
    match result {
        Ok(()) => tracing::debug!(peer = %connection.peer(), "connection closed"),
        Err(reason @ (CloseReason::Io(_) | CloseReason::Idle(_))) => {
            tracing::debug!(peer = %connection.peer(), %reason, "connection closed");
        }
        Err(reason) => {
            if let Some(suppressed) = MALFORMED.allow() {
                tracing::warn!(peer = %connection.peer(), %reason, suppressed, "connection closed");
            }
        }
    }
    service.close(session, &connection);
}

impl<S: Service> Pump<S> {
    async fn run(&mut self) -> Result<(), CloseReason> {
        let connection = self.connection.clone();
        let mut idle = pin!(tokio::time::sleep(self.limits.idle_timeout));
        let mut woken = pin!(connection.woken());
        loop {
            if connection.is_closed() {
                return Ok(());
            }
            if std::mem::take(&mut self.gives_way) {
                tokio::task::yield_now().await;
            }
            if connection.take_queued(&mut self.out) || !self.out.is_empty() {
                self.write_out().await?;
                continue;
            }
            if self.has_whole_frame {
                LENT.with_borrow_mut(|lent| self.handle_rest(lent))?;
                continue;
            }
            tokio::select! {
                biased;
                () = &mut woken => woken.set(connection.woken()),
                open = poll_fn(|context| self.poll_read(context)) => {
                    if !open? {
                        return self.write_error.take().map_or(Ok(()), |error| Err(error.into()));
                    }
                }
                () = &mut idle => {
                    let deadline = self.last_activity + self.limits.idle_timeout;
                    if Instant::now() >= deadline {
                        return Err(CloseReason::Idle(self.limits.idle_timeout));
                    }
                    idle.as_mut().reset(deadline);
                }
            }
        }
    }

    /// Empties `out`: writes everything in it, unless the peer is gone. Nothing is read meanwhile: that is the back-pressure.
    async fn write_out(&mut self) -> Result<(), CloseReason> {
        if self.write_error.is_none() {
            match self.write_all().await {
                Ok(()) => self.last_activity = Instant::now(),
                Err(CloseReason::Io(error)) => self.write_error = Some(error),
                Err(reason) => return Err(reason),
            }
        }
        self.out.clear();
        let buffer = std::mem::take(&mut self.out);
        if buffer.capacity() <= KEPT_BYTES_MAX {
            LENT.with_borrow_mut(|lent| {
                if lent.out.capacity() < buffer.capacity() {
                    lent.out = buffer;
                }
            });
        }
        Ok(())
    }

    /// Writes everything in `out`, or as much as was possible before the connection was closed.
    async fn write_all(&mut self) -> Result<(), CloseReason> {
        let written = match self.stream.try_write(&self.out) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        if written == self.out.len() {
            return Ok(());
        }
        let rest = self.stream.write_all(&self.out[written..]);
        tokio::select! {
            written = tokio::time::timeout(self.limits.idle_timeout, rest) => match written {
                Ok(written) => Ok(written?),
                Err(_) => Err(CloseReason::Idle(self.limits.idle_timeout)),
            },
            () = self.connection.closed() => Ok(()),
        }
    }

    /// Reads what is there and handles it at once, in the thread's own buffer. False at the end of the stream.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, CloseReason>> {
        LENT.with_borrow_mut(|lent| {
            let mut buffer = ReadBuf::new(&mut lent.read);
            ready!(self.stream.poll_read(context, &mut buffer))?;
            let length = buffer.filled().len();
            if length == 0 {
                return Poll::Ready(Ok(false));
            }
            self.last_activity = Instant::now();
            if self.unhandled.is_empty() {
                let read = std::mem::take(&mut lent.read);
                let handled = self.handle(&read[..length], lent);
                if let Ok(used) = handled {
                    self.unhandled.extend_from_slice(&read[used..length]);
                }
                lent.read = read;
                Poll::Ready(handled.map(|_| true))
            } else {
                self.unhandled.extend_from_slice(&lent.read[..length]);
                Poll::Ready(self.handle_rest(lent).map(|()| true))
            }
        })
    }

    /// Handles the frames in `unhandled`.
    fn handle_rest(&mut self, lent: &mut Lent) -> Result<(), CloseReason> {
        let mut bytes = std::mem::take(&mut self.unhandled);
        let used = self.handle(&bytes, lent)?;
        if used == bytes.len() {
            return Ok(());
        }
        bytes.drain(..used);
        if bytes.capacity() > KEPT_BYTES_MAX
            && frame::announced_bytes(&bytes).is_none_or(|bytes| bytes < READ_BYTES)
        {
            bytes.shrink_to(READ_BYTES);
        }
        self.unhandled = bytes;
        Ok(())
    }

    /// Handles the whole frames at the start of `bytes` and returns how many bytes they were.
    fn handle(&mut self, bytes: &[u8], lent: &mut Lent) -> Result<usize, CloseReason> {
        let mut used = 0;
        self.has_whole_frame = false;
        if !self.started {
            match proxy_protocol::detect(bytes)? {
                Preface::Incomplete => return Ok(0),
                Preface::None => {}
                Preface::Header(identity, length) => {
                    self.connection.identify(identity);
                    used = length;
                }
            }
            self.started = true;
            const TLS_HANDSHAKE: u8 = 0x16;
            if bytes.get(used) == Some(&TLS_HANDSHAKE) {
                return Err(CloseReason::Tls);
            }
        }
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, &mut lent.out);
        }
        let handled = self.handle_frames(&bytes[used..], lent);
        if !lent.answers.is_empty() {
            let waiting = self.connection.outstanding().complete(&mut lent.answers);
            self.round_answers_max = (waiting / 2).max(ROUND_ANSWERS_MIN);
            self.gives_way = self.has_whole_frame;
        }
        used += handled?;
        self.service.batch_end(&mut self.session, &self.connection, &mut self.out);
        Ok(used)
    }

    fn handle_frames(&mut self, bytes: &[u8], lent: &mut Lent) -> Result<usize, CloseReason> {
        let mut used = 0;
        while let Some((frame, length)) = frame::split(&bytes[used..])? {
            if self.out.len() > self.limits.round_bytes_max || lent.answers.len() >= self.round_answers_max {
                self.has_whole_frame = true;
                break;
            }
            used += length;
            let request = lent.header.parse(&frame)?;
            if request.is_response() {
                lent.answers.push(RemotingCommand::from_request(&request)?);
            } else {
                self.service.request(&mut self.session, &self.connection, &request, &mut self.out);
            }
        }
        Ok(used)
    }
}
