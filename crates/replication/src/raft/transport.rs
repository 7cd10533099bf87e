//! Where connections between nodes come from: TCP, or a simulated network in tests.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A connection to another node.
pub trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// A connection of whatever kind.
pub type BoxedConnection = Box<dyn Connection>;
/// Something that is awaited.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Opens connections to other nodes and takes theirs.
pub trait Transport: Send + Sync + 'static {
    /// Connects to `host:port`.
    fn connect<'a>(&'a self, address: &'a str) -> Pending<'a, BoxedConnection>;

    /// Listens at the port of `host:port`.
    fn listen<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Listener>>;
}

/// Takes connections of other nodes.
pub trait Listener: Send + 'static {
    /// The next connection, and who it comes from.
    fn accept(&mut self) -> Pending<'_, (BoxedConnection, SocketAddr)>;
}

/// Plain TCP without Nagle's delay.
#[derive(Debug, Clone)]
pub struct Tcp {
    /// Address of the interface on which others are awaited; `0.0.0.0` is all of them.
    pub bind_address: String,
}

impl Transport for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> Pending<'a, BoxedConnection> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxedConnection)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Listener>> {
        Box::pin(async move {
            let listener = TcpListener::bind((self.bind_address.as_str(), port_of(address)?)).await?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> Pending<'_, (BoxedConnection, SocketAddr)> {
        Box::pin(async move {
            let (stream, from) = TcpListener::accept(self).await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as BoxedConnection, from))
        })
    }
}

/// The port of `host:port`.
pub(crate) fn port_of(address: &str) -> io::Result<u16> {
    address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{address} is not of the form host:port"))
    })
}
