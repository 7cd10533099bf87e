//! Queue locks that a majority of the broker's set has to grant (`lockInStrictMode`, `docs/spec/05-ha.md` 6.9), so that whoever acts for a
//! master that died knows what it had locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{LockBatchRequestBody, LockBatchResponseBody, MessageQueue};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::replication::acting::Acting;

/// How long a member may take. A client waits for a second.
const TIMEOUT: Duration = Duration::from_millis(800);

/// Whether other members have a say in what is asked.
pub(super) fn is_needed(config: &BrokerConfig, asked: &LockBatchRequestBody) -> bool {
    config.lock_in_strict_mode
        && config.enable_slave_acting_master
        && !asked.only_this_broker
        && majority(config) > 1
}

fn majority(config: &BrokerConfig) -> u32 {
    config.total_replicas / 2 + 1
}

/// Those of the queues, which this broker has locked, that a majority locks.
pub(super) async fn granted(broker: &Arc<Broker>, asked: LockBatchRequestBody) -> BTreeSet<MessageQueue> {
    let majority = majority(&broker.config());
    let mut grants: BTreeMap<MessageQueue, u32> =
        asked.mq_set.iter().map(|queue| (queue.clone(), 1)).collect();
    let mut answers = Acting::ask_others(broker, &question(request::LOCK_BATCH_MQ, asked), TIMEOUT);
    // Who is slow is not waited for longer than needed.
    while grants.values().any(|count| *count < majority) {
        let Some(answer) = answers.join_next().await else { break };
        let Ok(Some(answer)) = answer else { continue };
        let granted: LockBatchResponseBody = json::from_slice(&answer.body).unwrap_or_default();
        for queue in granted.lock_ok_mq_set {
            if let Some(count) = grants.get_mut(&queue) {
                *count += 1;
            }
        }
    }
    grants.into_iter().filter(|(_, count)| *count >= majority).map(|(queue, _)| queue).collect()
}

/// Gives the locks back at the other members. Nobody waits for that: they end by themselves, too.
pub(super) fn give_back(broker: &Arc<Broker>, asked: LockBatchRequestBody) {
    Acting::ask_others(broker, &question(request::UNLOCK_BATCH_MQ, asked), TIMEOUT).detach_all();
}

fn question(code: i32, asked: LockBatchRequestBody) -> RemotingCommand {
    let asked = LockBatchRequestBody { only_this_broker: true, ..asked };
    RemotingCommand::request(code).with_body(json::to_vec(&asked))
}
