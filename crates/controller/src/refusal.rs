//! Why a request is refused, and the one place that says how an answer tells it.

use std::io;

use ferromq_protocol::code::response;
use ferromq_protocol::command::{FieldError, RemotingCommand};
use ferromq_protocol::header::HeaderError;
use ferromq_protocol::java_properties::BadUnicodeEscape;
use ferromq_protocol::json::JsonError;
use ferromq_settings::ChangeError;
use thiserror::Error;

use crate::raft::{NotDone, PeerRefusal};
use crate::state::{Refused, TEXT_BYTES_MAX};

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
    #[error("{field} has {bytes} bytes, at most {TEXT_BYTES_MAX} are possible")]
    TextTooLong { field: &'static str, bytes: usize },
    #[error("a SyncStateSet of {0} replicas is not possible")]
    SyncStateSetTooLarge(usize),
    #[error("Heart beat with empty brokerId")]
    HeartbeatWithoutId,
    #[error("not set any response code")]
    NoNames,
    #[error("Broker metadata is not existed")]
    NoMetadata,
    #[error(
        "Please set the option <brokerControllerIdsToClean> according to the format, exception: \
         java.lang.NumberFormatException: For input string: \"{0}\""
    )]
    NotIds(String),
    #[error("{refused}")]
    Refused {
        refused: Refused,
        /// What the answer's header has all the same.
        header: Vec<(&'static str, String)>,
    },
    #[error(transparent)]
    NotDone(#[from] NotDone),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("can't write the configuration: {0}")]
    NotSaved(#[source] io::Error),
    #[error("too many requests are under way")]
    Busy,
    #[error(transparent)]
    Peer(#[from] PeerRefusal),
    #[error("the answer of {bytes} bytes is too long for a frame")]
    AnswerTooLong { bytes: usize },
}

impl Refusal {
    fn code(&self) -> i32 {
        match self {
            Self::UnknownCode(_) => response::REQUEST_CODE_NOT_SUPPORTED,
            Self::HeartbeatWithoutId | Self::TextTooLong { .. } | Self::SyncStateSetTooLarge(_) => {
                response::CONTROLLER_INVALID_REQUEST
            }
            Self::NoMetadata => response::CONTROLLER_BROKER_METADATA_NOT_EXIST,
            Self::NotIds(_) => response::CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
            Self::Refused { refused, .. } => refused.code(),
            Self::NotDone(NotDone::NotLeader) => response::CONTROLLER_NOT_LEADER,
            Self::Change(ChangeError::Forbidden) => response::NO_PERMISSION,
            Self::Busy => response::SYSTEM_BUSY,
            _ => response::SYSTEM_ERROR,
        }
    }

    /// The answer that tells it. Answers with code 2009 have no field map, other refusals of the group have one.
    pub(crate) fn answer(&self) -> RemotingCommand {
        let answer = RemotingCommand::error(self.code(), self.to_string());
        match self {
            Self::NoMetadata => answer.with_field_map(),
            Self::Refused { refused, header }
                if refused.code() != response::CONTROLLER_INVALID_CLEAN_BROKER_METADATA =>
            {
                let with = |answer: RemotingCommand, (name, value): &(&str, String)| answer.with(name, value);
                header.iter().fold(answer.with_field_map(), with)
            }
            _ => answer,
        }
    }
}
