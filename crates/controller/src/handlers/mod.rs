//! The handlers of the request codes (`docs/spec/05-ha.md` 7.3): each parses, checks, does one thing and answers.

mod brokers;
mod elections;
mod metadata;
mod settings;

use std::sync::Arc;

use ferromq_protocol::code::request;
use ferromq_protocol::command::{FieldError, RemotingCommand};

use crate::link::PEER_MESSAGE;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::state::{Refused, TEXT_BYTES_MAX};

pub(crate) use brokers::heartbeat;

/// Handles every code but 904, which waits for nobody: [`heartbeat`].
pub(crate) async fn handle(
    shared: &Arc<Shared>,
    command: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    match command.code {
        PEER_MESSAGE => {
            let answer = shared.consensus.peer_message(&command.body).await?;
            Ok(RemotingCommand::success().with_body(answer))
        }
        request::CONTROLLER_ALTER_SYNC_STATE_SET => elections::alter_sync_state_set(shared, command).await,
        request::CONTROLLER_ELECT_MASTER => elections::elect_master(shared, command).await,
        request::CONTROLLER_REGISTER_BROKER => brokers::register(shared, command).await,
        request::CONTROLLER_GET_NEXT_BROKER_ID => brokers::next_id(shared, command).await,
        request::CONTROLLER_APPLY_BROKER_ID => brokers::apply_id(shared, command).await,
        request::CLEAN_BROKER_DATA => brokers::clean(shared, command).await,
        request::CONTROLLER_GET_REPLICA_INFO => metadata::replica_info(shared, command).await,
        request::CONTROLLER_GET_SYNC_STATE_DATA => metadata::sync_state_data(shared, command).await,
        request::CONTROLLER_GET_METADATA_INFO => Ok(metadata::controllers(shared)),
        request::GET_CONTROLLER_CONFIG => Ok(settings::get(shared)),
        request::UPDATE_CONTROLLER_CONFIG => settings::update(shared, command).await,
        code => Err(Refusal::UnknownCode(code)),
    }
}

/// A header field that goes into the state and must not be too long for it.
fn name(command: &RemotingCommand, field: &'static str) -> Result<String, Refusal> {
    let text = command.text(field)?;
    match text.len() {
        bytes if bytes > TEXT_BYTES_MAX => Err(Refusal::TextTooLong { field, bytes }),
        _ => Ok(text.to_owned()),
    }
}

/// A number that has a value when it is not there.
fn number_or<N: TryFrom<i64>>(
    command: &RemotingCommand,
    field: &'static str,
    default: N,
) -> Result<N, FieldError> {
    Ok(command.number_or_none(field)?.unwrap_or(default))
}

/// A refusal of the group whose answer names cluster and set.
fn with_names(refused: Refused, cluster_name: &str, broker_name: &str) -> Refusal {
    let header = vec![("clusterName", cluster_name.to_owned()), ("brokerName", broker_name.to_owned())];
    Refusal::Refused { refused, header }
}
