//! Requests to tidy up the store (`docs/spec/03-broker.md` 12.5).

use std::sync::Arc;

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::names;
use ferromq_remoting::Connection;

use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// CLEAN_EXPIRED_CONSUMEQUEUE: removes the files of queues whose messages are all gone from the log.
pub(super) fn clean_expired_consume_queue(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    _: &RemotingCommand,
) -> Answer {
    let queues = broker.store.clean_expired_queues();
    tracing::info!(queues, "an administrator had expired consume queues cleaned");
    Ok(RemotingCommand::success())
}

/// CLEAN_UNUSED_TOPIC: deletes the queues of topics that are no longer configured.
pub(super) fn clean_unused_topic(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    let in_use = |topic: &str| {
        broker.topics.get(topic).is_some()
            || broker.topics.is_system(topic)
            || topic.starts_with(names::LMQ_PREFIX)
    };
    let topics = broker
        .store
        .clean_unused_topics(&in_use)
        .map_err(|error| Refusal::system_error(error.to_string()))?;
    tracing::info!(topics, "an administrator had unused topics cleaned");
    Ok(RemotingCommand::success())
}

/// DELETE_EXPIRED_COMMITLOG: deletes expired files of the log now, whatever the hour.
pub(super) fn delete_expired_commit_log(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    _: &RemotingCommand,
) -> Answer {
    let files = broker.store.delete_expired_files();
    tracing::info!(files, "an administrator had expired log files deleted");
    Ok(RemotingCommand::success())
}
