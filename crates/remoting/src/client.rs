//! Connections that this side opens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use crate::connection::Connection;
use crate::invoke::InvokeError;
use crate::pump::{self, Limits, NoRequests, Service};
use crate::stream::Stream;
use crate::tls::TlsConnector;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Addresses above which those without a connection are forgotten.
const SLOTS_KEPT_MAX: usize = 256;

/// No connection could be made.
#[derive(Debug, Error)]
#[error("can't connect to {address}: {reason}")]
pub struct ConnectError {
    /// Where to.
    pub address: String,
    /// What the system said.
    pub reason: String,
}

/// Keeps one connection to each address and opens it when it is needed.
#[derive(Debug)]
pub struct Client<S: Service = NoRequests> {
    service: Arc<S>,
    encoding: HeaderEncoding,
    limits: Limits,
    /// `None`: connections are not encrypted.
    tls: Option<TlsConnector>,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    /// Retired connections whose last requests are on their way.
    retired: Mutex<Vec<Arc<Connection>>>,
    /// The tasks that serve the connections.
    tasks: TaskTracker,
}

/// The place of the connection to one address.
#[derive(Debug, Default)]
struct Slot {
    connection: Mutex<Option<Arc<Connection>>>,
    /// Held while a connection is being made, so that only one is.
    connecting: tokio::sync::Mutex<()>,
}

impl Slot {
    /// The connection, if it takes requests.
    fn connected(&self) -> Option<Arc<Connection>> {
        let takes_requests =
            |connection: &&Arc<Connection>| !connection.is_closed() && !connection.is_retired();
        self.connection.lock().as_ref().filter(takes_requests).cloned()
    }
}

impl Client<NoRequests> {
    /// A client whose peers have nothing to ask.
    pub fn new() -> Self {
        Self::with_service(Arc::new(NoRequests), HeaderEncoding::Json, Limits::default())
    }
}

impl Default for Client<NoRequests> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Service> Client<S> {
    /// A client that lets `service` handle what its peers ask.
    pub fn with_service(service: Arc<S>, encoding: HeaderEncoding, limits: Limits) -> Self {
        Self {
            service,
            encoding,
            limits,
            tls: None,
            slots: Mutex::default(),
            retired: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// The same with encrypted connections if there is a connector.
    #[must_use]
    pub fn over_tls(mut self, tls: Option<TlsConnector>) -> Self {
        self.tls = tls;
        self
    }

    /// The connection to `address` (`host:port`), opened now if there is none that takes requests.
    pub async fn connection(&self, address: &str) -> Result<Arc<Connection>, ConnectError> {
        if let Some(connection) = self.connected(address) {
            return Ok(connection);
        }
        let slot = self.slot(address);
        let _connecting = slot.connecting.lock().await;
        if let Some(connection) = slot.connected() {
            return Ok(connection);
        }
        if let Some(old) = slot.connection.lock().take() {
            let mut retired = self.retired.lock();
            retired.push(old);
            retired.retain(|connection| !connection.is_closed());
        }
        let connection = self.connect(address).await?;
        *slot.connection.lock() = Some(connection.clone());
        Ok(connection)
    }

    /// The connection to `address` that requests go over now, if there is one; none while one is being made.
    pub fn connected(&self, address: &str) -> Option<Arc<Connection>> {
        self.slots.lock().get(address)?.connected()
    }

    fn slot(&self, address: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if slots.len() >= SLOTS_KEPT_MAX && !slots.contains_key(address) {
            // Addresses may come from strangers: those that lead nowhere are not remembered for ever.
            slots.retain(|_, slot| {
                let is_being_connected = Arc::strong_count(slot) > 1;
                is_being_connected
                    || slot.connection.lock().as_ref().is_some_and(|connection| !connection.is_closed())
            });
        }
        slots.entry(address.to_owned()).or_default().clone()
    }

    async fn connect(&self, address: &str) -> Result<Arc<Connection>, ConnectError> {
        let failed = |reason: String| ConnectError { address: address.to_owned(), reason };
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .map_err(|_| failed(format!("no answer within {CONNECT_TIMEOUT:?}")))?
            .map_err(|error| failed(error.to_string()))?;
        let ends = stream.set_nodelay(true).and_then(|()| Ok((stream.peer_addr()?, stream.local_addr()?)));
        let (peer, local) = ends.map_err(|error| failed(error.to_string()))?;
        let stream = match &self.tls {
            None => Stream::Plain(stream),
            Some(tls) => {
                let encrypted = tokio::time::timeout(CONNECT_TIMEOUT, tls.connect(address, stream)).await;
                let late = || format!("no TLS handshake within {CONNECT_TIMEOUT:?}");
                Stream::Tls(Box::new(encrypted.unwrap_or_else(|_| Err(late())).map_err(failed)?))
            }
        };
        let connection = Connection::new(peer, local, self.encoding, &self.limits);
        self.tasks.spawn(pump::run(stream, connection.clone(), self.service.clone(), self.limits.clone()));
        Ok(connection)
    }

    /// Sends a request to `address` and waits for its answer.
    pub async fn invoke(
        &self,
        address: &str,
        command: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, InvokeError> {
        let connection = self.connection(address).await;
        let connection =
            connection.map_err(|error| InvokeError::Connect { peer: error.address, reason: error.reason })?;
        connection.invoke(command, timeout).await
    }

    /// Closes all connections and waits until the tasks that served them have ended.
    pub async fn close(&self) {
        let mut closing: Vec<_> = self.retired.lock().drain(..).collect();
        let slots: Vec<_> = self.slots.lock().values().cloned().collect();
        for slot in slots {
            let _connecting = slot.connecting.lock().await;
            closing.extend(slot.connection.lock().take());
        }
        for connection in closing {
            connection.close();
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}
