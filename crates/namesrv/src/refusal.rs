//! Why a request is refused, and the one place that says how an answer tells it.

use std::io;

use ferromq_protocol::body::RegistrationError;
use ferromq_protocol::code::response;
use ferromq_protocol::command::{FieldError, RemotingCommand};
use ferromq_protocol::header::HeaderError;
use ferromq_protocol::java_properties::BadUnicodeEscape;
use ferromq_protocol::json::JsonError;
use ferromq_settings::ChangeError;
use thiserror::Error;

use crate::kv::TooLarge;
use crate::routes::RegistrationRefused;

/// A request that gets another answer than SUCCESS. The texts are the remarks.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error(" request type {0} not supported")]
    UnknownCode(i32),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("the body is not readable: {0}")]
    Body(#[from] JsonError),
    #[error("the body is not readable: {0}")]
    Properties(#[from] BadUnicodeEscape),
    #[error("the registration is not readable: {0}")]
    Registration(#[from] RegistrationError),
    #[error("crc32 not match")]
    CrcMismatch,
    #[error(transparent)]
    RegistrationRefused(#[from] RegistrationRefused),
    #[error("too many removals of brokers are waiting")]
    RemovalsFull,
    #[error("name server not ready")]
    NotReady,
    #[error(
        "No topic route info in name server for the topic: {}\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
        or_null(.topic)
    )]
    NoRoute { topic: Option<String> },
    #[error("disable")]
    ListDisabled,
    #[error("namespace or key is null")]
    NamespaceOrKeyMissing,
    #[error("No config item, Namespace: {} Key: {}", or_null(.namespace), or_null(.key))]
    NoConfigItem { namespace: Option<String>, key: Option<String> },
    #[error("No config item, Namespace: {}", or_null(.namespace))]
    NoNamespace { namespace: Option<String> },
    #[error(transparent)]
    KvTooLarge(#[from] TooLarge),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("can't write {what}: {source}")]
    NotSaved { what: &'static str, source: io::Error },
    #[error("the answer of {bytes} bytes is too long for a frame")]
    AnswerTooLong { bytes: usize },
    #[error("please go away")]
    GoAway,
}

/// A field that the request does not have, as Java prints it.
fn or_null(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or("null")
}

impl Refusal {
    fn code(&self) -> i32 {
        match self {
            Self::UnknownCode(_) => response::REQUEST_CODE_NOT_SUPPORTED,
            Self::NoRoute { .. } => response::TOPIC_NOT_EXIST,
            Self::NoConfigItem { .. } | Self::NoNamespace { .. } => response::QUERY_NOT_FOUND,
            Self::Change(ChangeError::Forbidden) => response::NO_PERMISSION,
            Self::GoAway => response::GO_AWAY,
            _ => response::SYSTEM_ERROR,
        }
    }

    /// The answer that tells it.
    pub(crate) fn answer(&self) -> RemotingCommand {
        let answer = RemotingCommand::error(self.code(), self.to_string());
        match self {
            // These come with an empty field map, all others with none.
            Self::CrcMismatch | Self::RegistrationRefused(_) | Self::NoConfigItem { .. } => {
                answer.with_field_map()
            }
            _ => answer,
        }
    }
}
