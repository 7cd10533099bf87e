//! Masters and SyncStateSets change: 1001, 1002.

use std::sync::Arc;

use ferromq_protocol::body::{BrokerMemberGroup, ElectMasterResponseBody, SyncStateSet};
use ferromq_protocol::code::response::CONTROLLER_MASTER_STILL_EXIST;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use super::{name, number_or};
use crate::election::elect;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::state::{Applied, Asking, Command, Elected};

/// Largest SyncStateSet that is looked at.
const SYNC_STATE_SET_MAX: usize = 1000;

/// Id of nobody: the controller itself asks.
const NO_REPLICA: i64 = -1;

/// 1001
pub(super) async fn alter_sync_state_set(
    shared: &Shared,
    command: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    let broker_name = name(command, "brokerName")?;
    let proposed: SyncStateSet = json::from_slice(&command.body)?;
    if proposed.sync_state_set.len() > SYNC_STATE_SET_MAX {
        return Err(Refusal::SyncStateSetTooLarge(proposed.sync_state_set.len()));
    }
    let alter = Command::AlterSyncStateSet {
        master: command.number("masterBrokerId")?,
        master_epoch: command.number("masterEpoch")?,
        proposed,
        alive: shared.live.alive_ids(&broker_name),
        broker_name,
    };
    match shared.consensus.write(alter).await? {
        Ok(Applied::SyncStateSet(new)) => Ok(RemotingCommand::success()
            .with("newSyncStateSetEpoch", new.sync_state_set_epoch)
            .with_body(json::to_vec(&new))),
        Ok(_) => Ok(RemotingCommand::success()),
        Err(refused) => {
            Err(Refusal::Refused { refused, header: vec![("newSyncStateSetEpoch", "0".to_owned())] })
        }
    }
}

/// 1002. One field is not RocketMQ's: a replica says by `masterEpoch` that it was master in that epoch and has started anew.
pub(super) async fn elect_master(
    shared: &Arc<Shared>,
    command: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    let broker_name = name(command, "brokerName")?;
    let asking = match number_or(command, "brokerId", NO_REPLICA)? {
        NO_REPLICA => Asking::Controller,
        id if command.field("masterEpoch").is_some() => {
            Asking::Restarted { id, epoch: command.number("masterEpoch")? }
        }
        id if command.boolean("designateElect") => Asking::Operator(id),
        id => Asking::Replica(id),
    };
    match elect(shared, &broker_name, asking).await? {
        Ok(Applied::Elected(elected)) => {
            let group = BrokerMemberGroup {
                broker_addrs: elected.members.clone(),
                broker_name,
                cluster: elected.cluster_name.clone(),
            };
            Ok(answer(RemotingCommand::success(), &elected, Some(group)))
        }
        Ok(Applied::MasterStays(elected)) => {
            let remark = format!(
                "The old master {} is still alive, not need to elect new master for broker {broker_name}",
                elected.master
            );
            Ok(answer(RemotingCommand::error(CONTROLLER_MASTER_STILL_EXIST, remark), &elected, None))
        }
        Ok(_) => Ok(RemotingCommand::success()),
        Err(refused) => Err(Refusal::Refused { refused, header: Vec::new() }),
    }
}

fn answer(
    answer: RemotingCommand,
    elected: &Elected,
    broker_member_group: Option<BrokerMemberGroup>,
) -> RemotingCommand {
    let sync_state_set = elected.sync_state_set.sync_state_set.clone();
    answer
        .with("masterBrokerId", elected.master)
        .with("masterAddress", &elected.master_address)
        .with("masterEpoch", elected.master_epoch)
        .with("syncStateSetEpoch", elected.sync_state_set.sync_state_set_epoch)
        .with_body(json::to_vec(&ElectMasterResponseBody { broker_member_group, sync_state_set }))
}
