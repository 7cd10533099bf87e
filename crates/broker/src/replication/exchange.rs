//! What brokers of RocketMQ ask of the others of their set, with `enableSlaveActingMaster`, before they take part in it
//! (`docs/spec/05-ha.md` 6.7, 6.8): until they are answered no name server knows of them.

use std::sync::Arc;

use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;

use crate::answer::Answer;
use crate::broker::Broker;
use crate::service::Handler;

/// Seven numbers of eight bytes: two times, three offsets and the version, which has three parts.
const TIMER_CHECK_POINT_SIZE: usize = 56;

pub(crate) fn route(code: i32) -> Option<Handler> {
    match code {
        request::EXCHANGE_BROKER_HA_INFO => Some(Handler::Inline(exchange_broker_ha_info)),
        request::GET_TIMER_CHECK_POINT => Some(Handler::Inline(get_timer_check_point)),
        _ => None,
    }
}

/// EXCHANGE_BROKER_HA_INFO. A master that returns tells where it is, before it is registered; a slave asks the master for the same.
fn exchange_broker_ha_info(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let told = |name| request.field(name).filter(|value| !value.is_empty());
    let replication = &broker.replication;
    if let Some(ha_address) = told("masterHaAddress") {
        replication.master_returns(told("masterAddress"), ha_address);
        return Ok(RemotingCommand::success());
    }
    let config = broker.config();
    if config.broker_id != 0 || replication.ha_address().is_none() {
        return Ok(RemotingCommand::success());
    }
    Ok(RemotingCommand::success()
        .with("masterHaAddress", config.ha_server_address())
        .with("masterFlushOffset", replication.end_at_start)
        .with("masterAddress", config.broker_address()))
}

/// GET_TIMER_CHECK_POINT. A master that returns does not go on without an answer of its slaves. Timers never run here, so the check point is
/// older than any other, and nobody takes it. Slaves would do so whatever its age, and are not answered.
fn get_timer_check_point(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    if !broker.store.is_follower() {
        return Ok(RemotingCommand::not_supported(request.code));
    }
    Ok(RemotingCommand::success().with_body(vec![0; TIMER_CHECK_POINT_SIZE]))
}
