//! Listening for peers.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::frame::HeaderEncoding;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::connection::Connection;
use crate::pump::{self, Limits, Service};
use crate::stream::Stream;

/// How a server listens and how it treats its connections.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Encoding of the headers that this server writes (`rocketmq.serialize.type`).
    pub encoding: HeaderEncoding,
    /// What each connection may hold.
    pub limits: Limits,
}

/// Why a server can't listen.
#[derive(Debug, Error)]
pub enum BindError {
    /// Not an address.
    #[error("`{address}` is not an address to listen on")]
    Address {
        /// What was given.
        address: String,
    },
    /// The system refused.
    #[error("can't listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A listening socket, and the connections that came through it.
#[derive(Debug)]
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    options: ServerOptions,
}

/// Stops a [`Server`] that was started.
#[derive(Debug)]
pub struct RunningServer {
    stop: watch::Sender<bool>,
    open: Arc<AtomicUsize>,
}

impl RunningServer {
    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Stops listening and closes all connections.
    pub fn stop(&self) {
        // Fails only when everything has ended already.
        let _ = self.stop.send(true);
    }
}

impl Server {
    /// Binds `host:port`; port 0 lets the system choose.
    pub fn bind(host: &str, port: u16, options: ServerOptions) -> Result<Self, BindError> {
        const BACKLOG: i32 = 1024;
        let not_an_address = || BindError::Address { address: format!("{host}:{port}") };
        let address = (host, port)
            .to_socket_addrs()
            .map_err(|_| not_an_address())?
            .next()
            .ok_or_else(not_an_address)?;
        let open = || -> io::Result<std::net::TcpListener> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        };
        let listener = open().map_err(|source| BindError::Bind { address, source })?;
        let address = listener.local_addr().map_err(|source| BindError::Bind { address, source })?;
        Ok(Self { listener, address, options })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections, each served by a task of its own on the current Tokio runtime.
    ///
    /// # Errors
    /// If the socket can't be registered with the runtime.
    pub fn start<S: Service>(self, service: Arc<S>) -> io::Result<RunningServer> {
        let listener = TcpListener::from_std(self.listener)?;
        let (stop, stopped) = watch::channel(false);
        let open = Arc::new(AtomicUsize::new(0));
        tokio::spawn(accept(listener, service, self.options, stopped, open.clone()));
        Ok(RunningServer { stop, open })
    }
}

async fn accept<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    options: ServerOptions,
    mut stopped: watch::Receiver<bool>,
    open: Arc<AtomicUsize>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, or the peer gave up: others may still get through.
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(local) = stream.local_addr() else { continue };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "connection ended before it began");
            continue;
        }
        let connection = Connection::new(unmapped(peer), unmapped(local), options.encoding, &options.limits);
        let (service, limits, open) = (service.clone(), options.limits.clone(), open.clone());
        let mut stopped = stopped.clone();
        open.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let served = pump::run(Stream::Plain(stream), connection.clone(), service, limits);
            let mut served = std::pin::pin!(served);
            tokio::select! {
                () = &mut served => {}
                _ = stopped.changed() => {
                    connection.close();
                    served.await;
                }
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// An IPv4 peer of an IPv6 socket is an IPv4 peer.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
