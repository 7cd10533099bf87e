//! The settings of this controller: 1009, 1010.

use std::io;
use std::sync::Arc;

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::java_properties;
use ferromq_settings::Settings as _;

use crate::refusal::Refusal;
use crate::shared::Shared;

/// 1010
pub(super) fn get(shared: &Shared) -> RemotingCommand {
    RemotingCommand::success().with_body(shared.config.load().properties())
}

/// 1009: answered when the file has it.
pub(super) async fn update(
    shared: &Arc<Shared>,
    command: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    if command.body.is_empty() {
        return Ok(RemotingCommand::success());
    }
    shared.config.change(&java_properties::parse(&command.body)?)?;
    let saving = shared.clone();
    let saved = tokio::task::spawn_blocking(move || saving.config.save()).await;
    saved.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(Refusal::NotSaved)?;
    Ok(RemotingCommand::success())
}
