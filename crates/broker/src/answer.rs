//! What a handler answers when it can't do what was asked: the one place that maps errors to response codes.

use ferromq_protocol::code::response;
use ferromq_protocol::command::{FieldError, RemotingCommand};
use ferromq_protocol::header::HeaderError;
use ferromq_protocol::json::JsonError;
use thiserror::Error;

/// Closes remarks that point users to the questions asked most (`docs/spec/03-broker.md` 1.1).
pub(crate) const FAQ: &str = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.";

/// A request that ends with a code other than SUCCESS, and the sentence that goes with it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{remark} (code {code})")]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) remark: String,
    /// Whether the answer carries an (empty) field map: clients can tell (`docs/spec/01-remoting.md` 1.2).
    pub(crate) field_map: bool,
    /// Keeps [`with_field_map`](Self::with_field_map) from adding one.
    bare: bool,
}

impl Refusal {
    pub(crate) fn new(code: i32, remark: impl Into<String>) -> Self {
        Self { code, remark: remark.into(), field_map: false, bare: false }
    }

    /// SYSTEM_ERROR, for everything that has no code of its own.
    pub(crate) fn system_error(remark: impl Into<String>) -> Self {
        Self::new(response::SYSTEM_ERROR, remark)
    }

    /// What a broker in the wrong role says before it looks any closer (`docs/spec/01-remoting.md` 3.1).
    pub(crate) fn rejected() -> Self {
        Self::new(response::SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
    }

    /// The same with an empty field map.
    pub(crate) fn with_field_map(mut self) -> Self {
        self.field_map = !self.bare;
        self
    }

    /// The same, for a request that failed before its handler had an answer to fill in: no field map at all.
    pub(crate) fn without_fields(self) -> Self {
        Self { bare: true, ..self }
    }

    pub(crate) fn into_command(self) -> RemotingCommand {
        let answer = RemotingCommand::error(self.code, self.remark);
        if self.field_map { answer.with_field_map() } else { answer }
    }
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Self::system_error(error.to_string())
    }
}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::system_error(error.to_string())
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::system_error(format!("the request's body can't be read: {error}"))
    }
}

/// What handlers of everything but sends and pulls return.
pub(crate) type Answer = Result<RemotingCommand, Refusal>;
