//! Single topics, and permissions: 205, 216, 217, 327.

use ferromq_protocol::body::TopicRouteData;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use crate::refusal::Refusal;
use crate::state::State;

pub(super) fn register(state: &State, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    if !command.body.is_empty() {
        let route: TopicRouteData = json::from_slice(&command.body)?;
        if let Some(topic) = command.field("topic") {
            state.routes.write().register_topic(topic, route.queue_datas);
        }
    }
    Ok(RemotingCommand::success())
}

pub(super) fn delete(state: &State, command: &RemotingCommand) -> RemotingCommand {
    if let Some(topic) = command.field("topic") {
        let cluster_name = command.field("clusterName").filter(|name| !name.is_empty());
        state.routes.write().delete_topic(topic, cluster_name);
        tracing::info!(topic, cluster_name, "topic deleted");
    }
    RemotingCommand::success()
}

pub(super) fn wipe_write_perm(state: &State, command: &RemotingCommand) -> RemotingCommand {
    let broker_name = command.field("brokerName").unwrap_or_default();
    let topics = state.routes.write().wipe_write_perm(broker_name);
    tracing::info!(broker_name, topics, "write permission wiped");
    RemotingCommand::success().with("wipeTopicCount", topics)
}

pub(super) fn add_write_perm(state: &State, command: &RemotingCommand) -> RemotingCommand {
    let broker_name = command.field("brokerName").unwrap_or_default();
    let topics = state.routes.write().add_write_perm(broker_name);
    tracing::info!(broker_name, topics, "write permission added");
    RemotingCommand::success().with("addTopicCount", topics)
}
