//! Who leads, the controllers and the broker sets: 1004 to 1006.

use std::collections::BTreeMap;

use ferromq_protocol::body::{BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use super::name;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::state::BrokerSet;

/// 1004
pub(super) async fn replica_info(
    shared: &Shared,
    command: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    let broker_name = name(command, "brokerName")?;
    let set = shared.consensus.read(|sets| sets.get(&broker_name).cloned()).await?;
    let set = set.ok_or(Refusal::NoMetadata)?;
    Ok(RemotingCommand::success()
        .with_some("masterBrokerId", set.master)
        .with_some("masterAddress", set.master_address())
        .with("masterEpoch", set.master_epoch)
        .with_body(json::to_vec(&set.sync_state_set())))
}

/// 1005: any controller answers it, whether it leads or not.
pub(super) fn controllers(shared: &Shared) -> RemotingCommand {
    let group = &shared.group;
    let leader = shared.consensus.leader();
    let leading = leader.and_then(|id| group.peers.get(&id));
    RemotingCommand::success()
        .with_some("group", group.name.as_ref())
        .with_some("controllerLeaderId", leading.map(|peer| &peer.name))
        .with_some("controllerLeaderAddress", leading.map(|peer| &peer.address))
        .with("isLeader", leader == Some(group.own_id))
        .with("peers", &group.peers_text)
}

/// 1006. Names that are not known are left out.
pub(super) async fn sync_state_data(
    shared: &Shared,
    command: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    let names: Vec<String> =
        if command.body.is_empty() { Vec::new() } else { json::from_slice(&command.body)? };
    if names.is_empty() {
        return Err(Refusal::NoNames);
    }
    let sets: BTreeMap<String, BrokerSet> = shared
        .consensus
        .read(|sets| names.iter().filter_map(|name| Some((name.clone(), sets.get(name)?.clone()))).collect())
        .await?;
    let replicas_info_table =
        sets.into_iter().map(|(name, set)| (name.clone(), replicas_info(shared, &name, &set))).collect();
    Ok(RemotingCommand::success().with_body(json::to_vec(&BrokerReplicasInfo { replicas_info_table })))
}

fn replicas_info(shared: &Shared, broker_name: &str, set: &BrokerSet) -> ReplicasInfo {
    let alive = shared.live.alive_ids(broker_name);
    let identities = set.replicas.iter().map(|(id, replica)| ReplicaIdentity {
        alive: alive.contains(id),
        broker_address: replica.address.clone(),
        broker_id: *id,
        broker_name: broker_name.to_owned(),
    });
    let (in_sync_replicas, not_in_sync_replicas) =
        identities.partition(|replica| set.sync_state_set.contains(&replica.broker_id));
    ReplicasInfo {
        in_sync_replicas,
        master_address: set.master_address().map(str::to_owned),
        master_broker_id: set.master,
        master_epoch: set.master_epoch,
        not_in_sync_replicas,
        sync_state_set_epoch: set.sync_state_set_epoch,
    }
}
