//! One non-blocking connection to the server under load.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ferromq_protocol::frame::{self, Frame};

use super::error::BenchError;

/// Bytes that one read can bring.
pub(super) const READ_BYTES: usize = 512 * 1024;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a connection that sends small frames at once.
pub(super) fn connect(address: &str) -> Result<TcpStream, BenchError> {
    let open = || {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
        for resolved in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&resolved, CONNECT_TIMEOUT) {
                Ok(stream) => return stream.set_nodelay(true).map(|()| stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    open().map_err(|source| BenchError::Connect { address: address.to_owned(), source })
}

/// A connection with what is to be written and what was read of an incomplete frame.
pub(super) struct Link {
    address: String,
    stream: TcpStream,
    unread: Vec<u8>,
    written: usize,
    /// Frames to be written by the next [`flush`](Self::flush).
    pub(super) out: Vec<u8>,
    /// Whether the poller reports when it can be written.
    pub(super) watches_writing: bool,
}

impl Link {
    pub(super) fn connect(address: &str) -> Result<Self, BenchError> {
        let stream = connect(address)?;
        stream
            .set_nonblocking(true)
            .map_err(|source| BenchError::Connect { address: address.to_owned(), source })?;
        Ok(Self {
            address: address.to_owned(),
            stream,
            unread: Vec::new(),
            written: 0,
            out: Vec::new(),
            watches_writing: false,
        })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Reads once and hands every whole frame to `on_frame`.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        mut on_frame: impl FnMut(&Frame<'_>) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let length = match self.stream.read(buffer) {
            Ok(0) => return Err(BenchError::Closed { address: self.address.clone(), unanswered: 0 }),
            Ok(length) => length,
            Err(error) if is_temporary(&error) => return Ok(()),
            Err(source) => return Err(BenchError::Io { address: self.address.clone(), source }),
        };
        let mut split_all = |bytes: &[u8]| {
            let mut used = 0;
            loop {
                match frame::split(&bytes[used..]) {
                    Ok(Some((frame, length))) => {
                        on_frame(&frame)?;
                        used += length;
                    }
                    Ok(None) => return Ok(used),
                    Err(source) => return Err(BenchError::Frame { address: self.address.clone(), source }),
                }
            }
        };
        if self.unread.is_empty() {
            let used = split_all(&buffer[..length])?;
            self.unread.extend_from_slice(&buffer[used..length]);
        } else {
            self.unread.extend_from_slice(&buffer[..length]);
            let used = split_all(&self.unread)?;
            self.unread.drain(..used);
        }
        Ok(())
    }

    /// Writes as much as the socket takes; false if something is left.
    pub(super) fn flush(&mut self) -> Result<bool, BenchError> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(length) => self.written += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(source) => return Err(BenchError::Io { address: self.address.clone(), source }),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(true)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
