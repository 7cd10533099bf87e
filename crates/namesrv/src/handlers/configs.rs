//! Key/value configuration and settings: 100 to 102, 219, 318, 319.

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::{java_properties, json};
use ferromq_settings::Settings as _;

use super::Outcome;
use crate::refusal::Refusal;
use crate::state::{Saving, State};

pub(super) fn put_kv(state: &State, command: &RemotingCommand) -> Result<Outcome, Refusal> {
    let (Some(namespace), Some(key)) = (command.field("namespace"), command.field("key")) else {
        return Err(Refusal::NamespaceOrKeyMissing);
    };
    state.kv.put(namespace, key, command.field("value"))?;
    Ok(Outcome::AfterSaving(Saving::Kv))
}

pub(super) fn get_kv(state: &State, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    let (namespace, key) = (command.field("namespace"), command.field("key"));
    let value = namespace.zip(key).and_then(|(namespace, key)| state.kv.get(namespace, key));
    let value = value.ok_or_else(|| Refusal::NoConfigItem {
        namespace: namespace.map(str::to_owned),
        key: key.map(str::to_owned),
    })?;
    Ok(RemotingCommand::success().with("value", value))
}

pub(super) fn delete_kv(state: &State, command: &RemotingCommand) -> Outcome {
    if let (Some(namespace), Some(key)) = (command.field("namespace"), command.field("key")) {
        state.kv.delete(namespace, key);
    }
    Outcome::AfterSaving(Saving::Kv)
}

pub(super) fn list_kv(state: &State, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    let namespace = command.field("namespace");
    let table = namespace.and_then(|namespace| state.kv.list(namespace));
    let table = table.ok_or_else(|| Refusal::NoNamespace { namespace: namespace.map(str::to_owned) })?;
    Ok(RemotingCommand::success().with_body(json::to_vec(&table)))
}

pub(super) fn get_config(state: &State) -> RemotingCommand {
    RemotingCommand::success().with_body(state.config.load().properties())
}

pub(super) fn update_config(state: &State, command: &RemotingCommand) -> Result<Outcome, Refusal> {
    if command.body.is_empty() {
        return Ok(Outcome::Answer(RemotingCommand::success()));
    }
    state.config.change(&java_properties::parse(&command.body)?)?;
    Ok(Outcome::AfterSaving(Saving::Config))
}
