//! Requests of our own that wait for an answer.

use std::collections::HashMap;
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::oneshot;

/// Why a request of ours has no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvokeError {
    /// The connection ended, before or after the request was written.
    #[error("the connection to {peer} was closed")]
    Closed {
        /// Address of the peer.
        peer: String,
    },
    /// No answer in time.
    #[error("no answer from {peer} within {timeout:?}")]
    Timeout {
        /// Address of the peer.
        peer: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// Too many requests are waiting for this peer.
    #[error("{outstanding_max} requests to {peer} are unanswered")]
    TooMany {
        /// Address of the peer.
        peer: String,
        /// The limit ([`Limits::outstanding_max`](crate::Limits::outstanding_max)).
        outstanding_max: usize,
    },
    /// There is no connection and none could be made.
    #[error("can't connect to {peer}: {reason}")]
    Connect {
        /// Address of the peer.
        peer: String,
        /// What the system said.
        reason: String,
    },
}

/// The requests of one connection that wait for an answer, by `opaque`.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    calls: Mutex<HashMap<i32, oneshot::Sender<RemotingCommand>>>,
}

impl Outstanding {
    /// Notes a call; `None` if there are as many as there may be.
    pub(crate) fn begin(&self, opaque: i32, max: usize) -> Option<oneshot::Receiver<RemotingCommand>> {
        let mut calls = self.calls.lock();
        if calls.len() >= max {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        calls.insert(opaque, sender);
        Some(receiver)
    }

    /// Hands an answer to whoever waits for it; false if nobody does (any more).
    pub(crate) fn complete(&self, answer: RemotingCommand) -> bool {
        let waiting = self.calls.lock().remove(&answer.opaque);
        waiting.is_some_and(|sender| sender.send(answer).is_ok())
    }

    pub(crate) fn forget(&self, opaque: i32) {
        self.calls.lock().remove(&opaque);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.lock().is_empty()
    }

    /// Ends all waiting calls: their senders are dropped.
    pub(crate) fn fail_all(&self) {
        self.calls.lock().clear();
    }
}
