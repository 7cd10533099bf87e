//! What can end a benchmark.

use std::io;
use std::path::PathBuf;

use ferromq_protocol::frame::FrameError;
use ferromq_protocol::header::HeaderError;
use ferromq_protocol::json::JsonError;
use ferromq_remoting::BindError;
use thiserror::Error;

/// Why a benchmark could not be run, or not to its end.
#[derive(Debug, Error)]
pub(super) enum BenchError {
    /// No connection could be made.
    #[error("can't connect to {address}: {source}")]
    Connect { address: String, source: io::Error },
    /// A connection broke.
    #[error("connection to {address}: {source}")]
    Io { address: String, source: io::Error },
    /// The server ended a connection.
    #[error("{address} closed the connection; {unanswered} requests were not answered")]
    Closed { address: String, unanswered: usize },
    /// Bytes that are not a frame.
    #[error("{address} sent something that is not a frame: {source}")]
    Frame { address: String, source: FrameError },
    /// A frame whose header can't be read.
    #[error("{address} sent a header that can't be read: {source}")]
    Header { address: String, source: HeaderError },
    /// An answer that belongs to no request.
    #[error("{address} answered request {opaque}, which is not waiting for an answer")]
    Unexpected { address: String, opaque: i32 },
    /// A request that prepares the benchmark was refused.
    #[error("{address} refused to {action}: code {code}, {remark}")]
    Refused { address: String, action: String, code: i32, remark: String },
    /// An answer that lacks what was asked for.
    #[error("{address} answered {action} with something unexpected: {what}")]
    Answer { address: String, action: String, what: String },
    /// A route that is not JSON.
    #[error("{address} sent a route that can't be read: {source}")]
    Route { address: String, source: JsonError },
    /// Nothing to pull.
    #[error("no queue of topic {topic} holds a message; fill it with `ferromq bench producer` first")]
    NothingToPull { topic: String },
    /// What is known of the measured process can't be read.
    #[error("can't read {path}: {reason}")]
    Process { path: PathBuf, reason: String },
    /// The system refused to watch sockets.
    #[error("can't watch sockets: {0}")]
    Poll(io::Error),
    /// A client could not be started.
    #[error(transparent)]
    Client(#[from] ferromq_client::Error),
    /// The null server can't listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The runtime of the null server or of the client can't be had.
    #[error("can't run: {0}")]
    Serve(io::Error),
}
