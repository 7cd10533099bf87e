//! Requests about RocksDB, which this broker does not use.

use std::sync::Arc;

use ferromq_protocol::body::CheckRocksdbCqWriteResult;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;

use super::answer_body;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// `checkStatus` for a check that could not be made.
const CHECK_ERROR: i32 = 3;

/// CHECK_ROCKSDB_CQ_WRITE_PROGRESS: whether the queues in RocksDB equal those in files. RocketMQ always says that it is
/// still looking.
pub(super) fn check_cq_write_progress(
    _: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    request.text("topic")?;
    answer_body(&CheckRocksdbCqWriteResult {
        check_result: Some("the consume queues are in files only, there is nothing to compare".to_owned()),
        check_status: CHECK_ERROR,
    })
}

/// EXPORT_ROCKSDB_CONFIG_TO_JSON: the tables are JSON files already.
pub(super) fn export_config_to_json(
    _: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let known = ["topics", "subscriptionGroups", "consumerOffsets"];
    let is_known = |kind: &str| known.iter().any(|known| known.eq_ignore_ascii_case(kind));
    let mut asked = request.text("configType")?.split(';').filter(|kind| !kind.is_empty());
    match asked.find(|kind| !is_known(kind)) {
        None => Ok(RemotingCommand::success().with_remark("export done.")),
        Some(unknown) => Err(Refusal::system_error(format!(
            "unknown configType {unknown}, known are {}",
            known.join(", ")
        ))),
    }
}
