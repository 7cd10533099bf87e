//! Requests to name servers and brokers (`docs/spec/07-client.md` 23).

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_protocol::version::Language;
use ferromq_remoting::{Client, Connection, InvokeError, Limits, TlsConnector};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::broker_requests::BrokerRequests;
use super::signing::Credentials;
use crate::error::{Destination, Error};

/// What every request of this client says it is written in.
pub(crate) const LANGUAGE: Language = Language::RUST;

/// Requests that may wait for an answer of one broker: pipelining producers have many.
const OUTSTANDING_MAX: usize = 65_535;

/// What every request says about its sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestIdentity {
    /// Adds the header field by which proxies tell streaming clients.
    pub(crate) stream: bool,
    /// The namespace that names are meant in.
    pub(crate) namespace: Option<String>,
    /// Who it is, where that is asked.
    pub(crate) credentials: Option<Credentials>,
}

/// One connection to each address, opened on demand, and the requests over it.
#[derive(Debug)]
pub(crate) struct Transport {
    client: Client<BrokerRequests>,
    identity: RequestIdentity,
    /// When it is cancelled, no connection is opened any more.
    stop: CancellationToken,
}

impl Transport {
    pub(crate) fn new(
        requests: BrokerRequests,
        identity: RequestIdentity,
        tls: Option<TlsConnector>,
        stop: CancellationToken,
    ) -> Self {
        let limits = Limits { outstanding_max: OUTSTANDING_MAX, ..Limits::default() };
        // Binary headers can't hold the codes of POP requests.
        let client = Client::with_service(Arc::new(requests), HeaderEncoding::Json, limits).over_tls(tls);
        Self { client, identity, stop }
    }

    /// Sends a request and waits for its answer, whatever its code. The time to connect counts.
    ///
    /// Dropping the future leaves the connection as it is: a request is queued as a whole or not at all.
    pub(crate) async fn call(
        &self,
        to: Destination<'_>,
        command: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, Error> {
        let command = self.prepare(command);
        let write = |opaque, encoding, out: &mut Vec<u8>| command.encode_as(opaque, 0, encoding, out);
        self.call_with(to, request::name(command.code), write, Instant::now(), timeout).await
    }

    /// As [`call`](Self::call) for a request that `write` appends to the connection's bytes with this `opaque`, perhaps twice, when
    /// the time has been running since `started`. It must have what every request of this client has.
    pub(crate) async fn call_with(
        &self,
        to: Destination<'_>,
        name: &'static str,
        write: impl Fn(i32, HeaderEncoding, &mut Vec<u8>),
        started: Instant,
        timeout: Duration,
    ) -> Result<RemotingCommand, Error> {
        let mut sent_away = false;
        loop {
            let connected = self.connection(to.address, started + timeout).await;
            let connection = connected.map_err(|error| to.remoting(name, error))?;
            match connection.invoke_with(&write, started, timeout).await {
                // The server shuts down and says so: whoever listens there now gets the request.
                Ok(answer) if answer.code == response::GO_AWAY && !sent_away => {
                    connection.retire();
                    sent_away = true;
                }
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    if matches!(error, InvokeError::Timeout { .. }) {
                        // Perhaps the network lost this connection only. Others' requests on it keep their chance.
                        connection.retire();
                    }
                    return Err(to.remoting(name, error));
                }
            }
        }
    }

    /// As [`call`](Self::call), for requests that have succeeded only with code 0.
    pub(crate) async fn done(
        &self,
        to: Destination<'_>,
        command: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, Error> {
        let name = request::name(command.code);
        let answer = self.call(to, command, timeout).await?;
        if answer.code == response::SUCCESS { Ok(answer) } else { Err(to.refused(name, &answer)) }
    }

    /// Sends a request that has no answer. When this returns, it has been queued.
    pub(crate) async fn oneway(
        &self,
        to: Destination<'_>,
        command: RemotingCommand,
        timeout: Duration,
    ) -> Result<(), Error> {
        let name = request::name(command.code);
        let connected = self.connection(to.address, Instant::now() + timeout).await;
        connected.map_err(|error| to.remoting(name, error))?.oneway(self.prepare(command));
        Ok(())
    }

    /// The connection to an address, if there is one now.
    pub(crate) fn connected(&self, address: &str) -> Option<Arc<Connection>> {
        self.client.connected(address)
    }

    pub(crate) async fn close(&self) {
        self.client.close().await;
    }

    async fn connection(&self, address: &str, deadline: Instant) -> Result<Arc<Connection>, InvokeError> {
        match self.client.connected(address) {
            Some(connection) => Ok(connection),
            None => Box::pin(self.connect(address, deadline)).await,
        }
    }

    async fn connect(&self, address: &str, deadline: Instant) -> Result<Arc<Connection>, InvokeError> {
        let failed = |reason: String| InvokeError::Connect { peer: address.to_owned(), reason };
        let connecting = timeout_at(deadline, self.client.connection(address));
        match self.stop.run_until_cancelled(connecting).await {
            Some(Ok(Ok(connection))) => Ok(connection),
            Some(Ok(Err(error))) => Err(failed(error.reason)),
            Some(Err(_)) => Err(failed("no connection in time".to_owned())),
            None => Err(failed("the client is shut down".to_owned())),
        }
    }

    /// Whether requests of this client are like those of any other, but for the [`LANGUAGE`].
    pub(crate) fn is_plain(&self) -> bool {
        let RequestIdentity { stream, namespace, credentials } = &self.identity;
        !stream && namespace.is_none() && credentials.is_none()
    }

    /// Adds to a request what every request of this client has.
    pub(crate) fn prepare(&self, mut command: RemotingCommand) -> RemotingCommand {
        command.language = Some(LANGUAGE);
        let identity = &self.identity;
        if let Some(namespace) = &identity.namespace {
            command = command.with("nsd", true).with("ns", namespace);
        }
        if identity.stream {
            command = command.with("ReqT", 0);
        }
        match &identity.credentials {
            // Last, because a server checks every field.
            Some(credentials) => credentials.sign(command),
            None => command,
        }
    }
}
