//! The way to the other controllers: over the port that brokers use, as requests of a code of our own.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::response::SUCCESS;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::FRAME_BYTES_MAX;
use ferromq_remoting::Client;

use crate::group::{Group, NodeId};
use crate::raft::PeerLink;

/// Code of a request that carries a message between controllers. RocketMQ uses none near it.
pub(crate) const PEER_MESSAGE: i32 = 1_090_000;

/// Longest message: a frame less than enough for its header.
const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - 64 * 1024;

/// Sends messages over remoting connections.
#[derive(Clone, Debug)]
pub(crate) struct RemotingLink {
    client: Arc<Client>,
    group: Arc<Group>,
}

impl RemotingLink {
    pub(crate) fn new(group: Arc<Group>) -> Self {
        Self { client: Arc::new(Client::new()), group }
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        self.client.close().await;
    }
}

impl PeerLink for RemotingLink {
    async fn call(&self, peer: NodeId, message: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, String> {
        let address = &self.group.peers.get(&peer).ok_or("it is not of this group")?.address;
        if message.len() > MESSAGE_BYTES_MAX {
            tracing::error!(bytes = message.len(), peer, "a message is too long for the other controller");
            return Err(format!("a message of {} bytes is too long", message.len()));
        }
        let request = RemotingCommand::request(PEER_MESSAGE).with_body(message);
        // Connecting counts too: `openraft` gives up after that time.
        let answer = tokio::time::timeout(timeout, self.client.invoke(address, request, timeout));
        let answer = answer.await.map_err(|_| format!("no answer from {address} within {timeout:?}"))?;
        match answer.map_err(|error| error.to_string())? {
            answer if answer.code == SUCCESS => Ok(answer.body.into()),
            answer => Err(answer.remark.unwrap_or_else(|| format!("code {}", answer.code))),
        }
    }
}
