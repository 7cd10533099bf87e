//! Connections that this side opens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
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
    /// One slot for each address; its lock is held while a connection is being made, so that only one is.
    connections: Mutex<HashMap<String, Arc<Slot>>>,
    /// Retired connections whose last requests are on their way.
    retired: parking_lot::Mutex<Vec<Arc<Connection>>>,
    /// The tasks that serve the connections.
    tasks: TaskTracker,
}

/// The connection to one address, if there is one.
type Slot = Mutex<Option<Arc<Connection>>>;

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
            connections: Mutex::default(),
            retired: parking_lot::Mutex::default(),
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
        let slot = self.slot(address).await;
        let mut slot = slot.lock().await;
        match slot.as_ref() {
            Some(connection) if connection.is_closed() => *slot = None,
            Some(connection) if connection.is_retired() => {
                let mut retired = self.retired.lock();
                retired.retain(|connection| !connection.is_closed());
                retired.extend(slot.take());
            }
            Some(connection) => return Ok(connection.clone()),
            None => {}
        }
        let connection = self.connect(address).await?;
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// The connection to `address` that requests go over now, if there is one; none while one is being made.
    pub async fn connected(&self, address: &str) -> Option<Arc<Connection>> {
        let slot = self.connections.lock().await.get(address)?.clone();
        let connection = slot.try_lock().ok()?.clone()?;
        (!connection.is_closed() && !connection.is_retired()).then_some(connection)
    }

    async fn slot(&self, address: &str) -> Arc<Slot> {
        let mut slots = self.connections.lock().await;
        if slots.len() >= SLOTS_KEPT_MAX && !slots.contains_key(address) {
            // Addresses may come from strangers: those that lead nowhere are not remembered for ever.
            let in_use = |slot: &Arc<Slot>| match slot.try_lock() {
                Ok(slot) => slot.as_ref().is_some_and(|connection| !connection.is_closed()),
                Err(_) => true,
            };
            slots.retain(|_, slot| in_use(slot));
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
        for slot in self.connections.lock().await.values() {
            closing.extend(slot.lock().await.take());
        }
        for connection in closing {
            connection.close();
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}
