//! Clients for tests.

use std::sync::Arc;
use std::time::Instant;

use ferromq_protocol::version::Language;
use ferromq_remoting::{Client as Dialer, Connection};
use tokio::net::{TcpListener, TcpStream};

use super::Client;

/// An open connection and the socket at its other end.
pub(crate) async fn connection() -> (Arc<Connection>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connection = Dialer::new().connection(&address).await.unwrap();
    (connection, listener.accept().await.unwrap().0)
}

/// A client that was heard of now.
pub(crate) fn client(client_id: &str, connection: &Arc<Connection>) -> Client {
    Client {
        connection: connection.clone(),
        client_id: client_id.into(),
        language: Some(Language::JAVA),
        version: 479,
        heard: Instant::now(),
        heard_ms: 1_700_000_000_000,
    }
}
