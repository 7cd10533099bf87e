//! What can go wrong, with everything that is needed to find out why.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::InvokeError;
use thiserror::Error;

/// Codes that the client itself gives to failures, as the Java client does (`docs/spec/07-client.md` 6.3).
pub mod client_code {
    /// No connection.
    pub const CONNECT_BROKER_EXCEPTION: i32 = 10001;
    /// No answer in time.
    pub const ACCESS_BROKER_TIMEOUT: i32 = 10002;
    /// The broker of a queue is in no route.
    pub const BROKER_NOT_EXIST_EXCEPTION: i32 = 10003;
    /// No name server is known.
    pub const NO_NAME_SERVER_EXCEPTION: i32 = 10004;
    /// The topic has no route, or none with a queue that can be used.
    pub const NOT_FOUND_TOPIC_EXCEPTION: i32 = 10005;
}

/// Why something that was asked of this client was not done.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A name, a message or a setting that no broker would take; nothing was sent.
    #[error("{what}: {reason}")]
    Invalid {
        /// What can't be used.
        what: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// Two producers, or two consumers, of one group in one client.
    #[error(
        "the {kind} group {group} exists in this client already: choose another name, or start another client"
    )]
    GroupInUse {
        /// `producer` or `consumer`.
        kind: &'static str,
        /// The group.
        group: String,
    },
    /// The list of name servers is empty.
    #[error("no name server address, please set it")]
    NoNameServer,
    /// The address server has not told any name server yet.
    #[error("no name server is known, because {url} does not tell: {reason}")]
    AddressServer {
        /// What was fetched.
        url: String,
        /// Why that failed.
        reason: String,
    },
    /// The name servers know no usable queue of the topic.
    #[error("no route info of topic {topic}: it does not exist, or no broker that serves it is registered")]
    NoRoute {
        /// The topic.
        topic: String,
    },
    /// A queue's broker has no address in any route.
    #[error("the broker {broker} of topic {topic} does not exist: no route has an address of it")]
    BrokerNotExist {
        /// Name of the broker.
        broker: String,
        /// The topic.
        topic: String,
    },
    /// A request that did not reach its goal, or whose answer did not come back.
    #[error("{to}: {source}")]
    Remoting {
        /// The request.
        to: Box<RequestInfo>,
        /// What happened.
        source: InvokeError,
    },
    /// The other side answered, and the answer was no.
    #[error("{to} was refused: code {code}, {remark}")]
    Refused {
        /// The request.
        to: Box<RequestInfo>,
        /// Response code ([`ferromq_protocol::code::response`]).
        code: i32,
        /// What the other side said.
        remark: String,
    },
    /// An answer that does not hold what it should.
    #[error("the answer to {to} can't be read: {reason}")]
    Malformed {
        /// The request.
        to: Box<RequestInfo>,
        /// What is wrong with the answer.
        reason: String,
    },
    /// A message was not stored, after all attempts that it was allowed.
    #[error(
        "send [{attempts}] times, still failed, cost [{elapsed:?}], topic: {topic}, brokers sent: {brokers:?}: {last}"
    )]
    SendFailed {
        /// The topic.
        topic: String,
        /// How many attempts were made.
        attempts: usize,
        /// How long all of them took.
        elapsed: Duration,
        /// The brokers that were tried, in order.
        brokers: Vec<String>,
        /// Why the last attempt failed.
        #[source]
        last: Box<Error>,
    },
    /// The time that a call was given is over.
    #[error("{what} took longer than {timeout:?}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long it could have taken.
        timeout: Duration,
    },
    /// The client, producer or consumer was shut down.
    #[error("{what} is shut down")]
    Closed {
        /// Which object.
        what: String,
    },
    /// The file with the offsets of a broadcasting consumer.
    #[error("offset file {path}: {source}")]
    OffsetFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
}

impl Error {
    /// The response code that stands for this error: the broker's, or one of [`client_code`].
    pub fn response_code(&self) -> Option<i32> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Remoting { source: InvokeError::Timeout { .. }, .. } | Self::Timeout { .. } => {
                Some(client_code::ACCESS_BROKER_TIMEOUT)
            }
            Self::Remoting { .. } => Some(client_code::CONNECT_BROKER_EXCEPTION),
            Self::BrokerNotExist { .. } => Some(client_code::BROKER_NOT_EXIST_EXCEPTION),
            Self::NoNameServer | Self::AddressServer { .. } => Some(client_code::NO_NAME_SERVER_EXCEPTION),
            Self::NoRoute { .. } => Some(client_code::NOT_FOUND_TOPIC_EXCEPTION),
            Self::SendFailed { last, .. } => last.response_code(),
            _ => None,
        }
    }

    /// What the broker said, if it was the broker that refused.
    pub fn remark(&self) -> Option<&str> {
        match self {
            Self::Refused { remark, .. } => Some(remark),
            Self::SendFailed { last, .. } => last.remark(),
            _ => None,
        }
    }

    /// Name of the broker that this is about.
    pub fn broker(&self) -> Option<&str> {
        match self {
            Self::Remoting { to, .. } | Self::Refused { to, .. } | Self::Malformed { to, .. } => {
                Some(&to.broker)
            }
            Self::BrokerNotExist { broker, .. } => Some(broker),
            Self::SendFailed { last, .. } => last.broker(),
            _ => None,
        }
    }

    /// The topic that this is about.
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::Remoting { to, .. } | Self::Refused { to, .. } | Self::Malformed { to, .. } => {
                Some(&to.topic)
            }
            Self::NoRoute { topic } | Self::BrokerNotExist { topic, .. } | Self::SendFailed { topic, .. } => {
                Some(topic)
            }
            _ => None,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), reason: reason.into() }
    }

    /// Whether the request may never have arrived, or was not answered.
    pub(crate) fn is_remoting(&self) -> bool {
        matches!(self, Self::Remoting { .. })
    }
}

/// A request and where it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Name of the request.
    pub request: &'static str,
    /// Name of the broker, or `name server`.
    pub broker: String,
    /// `host:port`.
    pub address: String,
    /// The topic it was about; `-` if about none.
    pub topic: String,
}

impl fmt::Display for RequestInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, broker, address, topic } = self;
        write!(formatter, "{request} to {broker} ({address}), topic {topic}")
    }
}

/// Where a request goes and what it is about, for the errors that may come of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination<'a> {
    /// Name of the broker.
    pub(crate) broker: &'a str,
    /// `host:port`.
    pub(crate) address: &'a str,
    /// The topic, or `-`.
    pub(crate) topic: &'a str,
}

impl Destination<'_> {
    pub(crate) fn remoting(&self, request: &'static str, source: InvokeError) -> Error {
        Error::Remoting { to: self.info(request), source }
    }

    pub(crate) fn refused(&self, request: &'static str, answer: &RemotingCommand) -> Error {
        let remark = answer.remark.clone().unwrap_or_default();
        Error::Refused { to: self.info(request), code: answer.code, remark }
    }

    pub(crate) fn malformed(&self, request: &'static str, reason: impl ToString) -> Error {
        Error::Malformed { to: self.info(request), reason: reason.to_string() }
    }

    fn info(&self, request: &'static str) -> Box<RequestInfo> {
        Box::new(RequestInfo {
            request,
            broker: self.broker.to_owned(),
            address: self.address.to_owned(),
            topic: self.topic.to_owned(),
        })
    }
}
