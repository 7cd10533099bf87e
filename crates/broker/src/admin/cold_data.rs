//! Requests about reads of cold data, as a broker answers them that does not throttle such reads
//! (`docs/spec/03-broker.md` 3.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_protocol::code::response;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;
use serde::Serialize;

use super::answer_body;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// Body of GET_COLD_DATA_FLOW_CTR_INFO, in RocketMQ's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ColdDataInfo {
    /// Groups that read cold data lately, and how much.
    runtime_table: BTreeMap<String, i64>,
    /// Limits of single groups.
    config_table: BTreeMap<String, i64>,
    cg_cold_read_threshold: u64,
    global_cold_read_threshold: u64,
    /// Cold bytes read in the current window.
    global_acc: i64,
}

/// UPDATE_COLD_DATA_FLOW_CTR_CONFIG. RocketMQ takes the limits and, with the control off as it is by default, ignores
/// them; here they are refused, so that nobody relies on them.
pub(super) fn update_config(_: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    Err(Refusal::system_error("this broker does not limit reads of cold data, the threshold was not stored"))
}

/// REMOVE_COLD_DATA_FLOW_CTR_CONFIG: there is none.
pub(super) fn remove_config(_: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    Ok(RemotingCommand::success())
}

/// GET_COLD_DATA_FLOW_CTR_INFO.
pub(super) fn get_info(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    let config = broker.config();
    answer_body(&ColdDataInfo {
        runtime_table: BTreeMap::new(),
        config_table: BTreeMap::new(),
        cg_cold_read_threshold: config.cg_cold_read_threshold,
        global_cold_read_threshold: config.global_cold_read_threshold,
        global_acc: 0,
    })
}

/// SET_COMMITLOG_READ_MODE: a hint about how the log is read, which the store does not need.
pub(super) fn set_commit_log_read_mode(
    _: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    match request.text("READ_AHEAD_MODE")? {
        mode @ ("0" | "1") => Ok(RemotingCommand::success()
            .with_remark(format!("set commitlog readahead mode success, mode: {mode}"))),
        _ => Err(Refusal::new(response::INVALID_PARAMETER, "set commitlog readahead mode param value error")),
    }
}
