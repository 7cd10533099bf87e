//! Requests about replicas.

use std::sync::Arc;

use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;

use super::answer_body;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// GET_BROKER_HA_STATUS.
pub(super) fn get_broker_ha_status(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    answer_body(&broker.replication.status(&broker.store))
}

/// RESET_MASTER_FLUSH_OFFSET tells a slave how far its master has flushed; a master has nothing to do.
pub(super) fn reset_master_flush_offset(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let offset: i64 = request.number("masterFlushOffset")?;
    if broker.store.is_follower() {
        broker.store.set_master_flushed_offset(offset);
    }
    Ok(RemotingCommand::success())
}

/// GET_BROKER_EPOCH_CACHE.
pub(super) fn get_broker_epoch_cache(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    _: &RemotingCommand,
) -> Answer {
    match broker.replication.controlled() {
        Some(controlled) => answer_body(&controlled.epochs(&broker.store, &broker.config())),
        None => Err(Refusal::system_error("this request only for controllerMode ")),
    }
}

/// NOTIFY_BROKER_ROLE_CHANGED.
pub(super) fn notify_broker_role_changed(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    if let Some(controlled) = broker.replication.controlled() {
        controlled.notice(request);
    }
    Ok(RemotingCommand::success())
}
