//! A plain socket client: frames out, frames in.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::{self, HeaderEncoding};

/// How long an answer may take where nothing else is said.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What a connection brought.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// One whole frame, length field included.
    Frame(Vec<u8>),
    /// The server closed the connection.
    Closed,
    /// Nothing until the deadline.
    Nothing,
}

/// A connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
    opaque_next: i32,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream =
            TcpStream::connect(address).unwrap_or_else(|error| panic!("connecting to {address}: {error}"));
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Self { stream, unread: Vec::new(), opaque_next: 1 }
    }

    /// Writes bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next frame, or what else happens until `deadline`.
    pub(crate) fn read(&mut self, deadline: Instant) -> Arrival {
        loop {
            if let Some((_, length)) = frame::split(&self.unread).expect("the server sends frames") {
                let rest = self.unread.split_off(length);
                return Arrival::Frame(std::mem::replace(&mut self.unread, rest));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Arrival::Nothing;
            }
            self.stream.set_read_timeout(Some(left)).expect("a time limit for reads");
            let mut buffer = [0; 64 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Arrival::Closed,
                Ok(length) => self.unread.extend_from_slice(&buffer[..length]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Arrival::Closed,
                Err(error) => panic!("reading from a server: {error}"),
            }
        }
    }

    /// Gives a request its opaque and appends its frame to `out`.
    pub(crate) fn encode(&mut self, mut request: RemotingCommand, out: &mut Vec<u8>) -> i32 {
        request.opaque = self.opaque_next;
        self.opaque_next += 1;
        request.encode(HeaderEncoding::Json, out);
        request.opaque
    }

    /// The next response; requests of the server are passed over. `None` when the connection ended.
    pub(crate) fn response(&mut self) -> Option<RemotingCommand> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.read(deadline) {
                Arrival::Frame(bytes) => {
                    let command = decode(&bytes);
                    if command.is_response() {
                        return Some(command);
                    }
                }
                Arrival::Closed => return None,
                Arrival::Nothing => panic!("no response within {PATIENCE:?}"),
            }
        }
    }

    /// Sends one request and returns its answer.
    pub(crate) fn call(&mut self, request: RemotingCommand) -> RemotingCommand {
        let mut bytes = Vec::new();
        let opaque = self.encode(request, &mut bytes);
        self.write(&bytes).expect("the request is written");
        let response = self.response().expect("the server keeps the connection");
        assert_eq!(response.opaque, opaque, "one request, its answer");
        response
    }
}

/// The command in a whole frame.
pub(crate) fn decode(bytes: &[u8]) -> RemotingCommand {
    let (frame, _) = frame::split(bytes).expect("a frame").expect("a whole frame");
    RemotingCommand::decode(&frame).expect("a header")
}
