//! Requests about replicas, as a master without any answers them.

use std::sync::Arc;

use ferromq_protocol::body::HARuntimeInfo;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;

use super::answer_body;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// GET_BROKER_HA_STATUS.
pub(super) fn get_broker_ha_status(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    answer_body(&HARuntimeInfo {
        master: true,
        master_commit_log_max_offset: i64::try_from(broker.store.appended().get()).unwrap_or(i64::MAX),
        ..HARuntimeInfo::default()
    })
}

/// RESET_MASTER_FLUSH_OFFSET tells a slave how far its master has flushed; a master has nothing to do.
pub(super) fn reset_master_flush_offset(
    _: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let _: i64 = request.number("masterFlushOffset")?;
    Ok(RemotingCommand::success())
}

/// GET_BROKER_EPOCH_CACHE.
pub(super) fn get_broker_epoch_cache(_: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    Err(Refusal::system_error("this request only for controllerMode "))
}
