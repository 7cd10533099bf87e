//! Replicas come, stay and go: 904, 1003, 1011 to 1013.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use super::{name, number_or, with_names};
use crate::live::{DEFAULT_TIMEOUT, Heartbeat, ReplicaId};
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::state::{Cleaning, Command, LiveReplica, Refused};

/// 904. Strangers are not noted.
pub(crate) fn heartbeat(
    shared: &Shared,
    command: &RemotingCommand,
    connection: u64,
) -> Result<RemotingCommand, Refusal> {
    command.text("clusterName")?;
    let address = name(command, "brokerAddr")?;
    let broker_name = name(command, "brokerName")?;
    let broker_id: Option<i64> = command.number_or_none("brokerId")?;
    let broker_id = broker_id.ok_or(Refusal::HeartbeatWithoutId)?;
    let timeout_ms: i64 = number_or(command, "heartbeatTimeoutMills", DEFAULT_TIMEOUT.as_millis() as i64)?;
    let heartbeat = Heartbeat {
        address,
        timeout: Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0)),
        replica: LiveReplica {
            epoch: number_or(command, "epoch", -1)?,
            max_offset: number_or(command, "maxOffset", -1)?,
            priority: number_or(command, "electionPriority", i32::MAX)?,
        },
    };
    let is_known = shared
        .consensus
        .peek(|sets| sets.get(&broker_name).is_some_and(|set| set.replicas.contains_key(&broker_id)));
    if is_known {
        shared.live.heard(ReplicaId { broker_name, broker_id }, heartbeat, connection);
    }
    Ok(RemotingCommand::success())
}

/// 1012
pub(super) async fn next_id(shared: &Shared, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    let (cluster_name, broker_name) = (name(command, "clusterName")?, name(command, "brokerName")?);
    let next = shared.consensus.read(|sets| sets.next_broker_id(&broker_name)).await?;
    Ok(named(&cluster_name, &broker_name).with("nextBrokerId", next))
}

/// 1013
pub(super) async fn apply_id(shared: &Shared, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    let (cluster_name, broker_name) = (name(command, "clusterName")?, name(command, "brokerName")?);
    let apply = Command::ApplyBrokerId {
        cluster_name: cluster_name.clone(),
        broker_name: broker_name.clone(),
        broker_id: command.number("appliedBrokerId")?,
        check_code: name(command, "registerCheckCode")?,
    };
    match shared.consensus.write(apply).await? {
        Ok(_) => Ok(named(&cluster_name, &broker_name)),
        Err(refused) => Err(with_names(refused, &cluster_name, &broker_name)),
    }
}

/// 1003: a replica is back, perhaps with another address, and asks for its master.
pub(super) async fn register(
    shared: &Arc<Shared>,
    command: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    let (cluster_name, broker_name) = (name(command, "clusterName")?, name(command, "brokerName")?);
    let broker_id: i64 = command.number("brokerId")?;
    let address = name(command, "brokerAddress")?;
    let refused = |refused| with_names(refused, &cluster_name, &broker_name);

    let update =
        Command::UpdateAddress { broker_name: broker_name.clone(), broker_id, address: address.clone() };
    shared.consensus.write(update).await?.map_err(refused)?;
    let set = shared.consensus.peek(|sets| sets.get(&broker_name).cloned());
    let set = set.ok_or_else(|| refused(Refused::UnknownSet { broker_name: broker_name.clone() }))?;

    let mut answer = named(&cluster_name, &broker_name);
    if let Some(master) = set.master.filter(|master| !shared.live.is_dead(&broker_name, *master)) {
        answer = answer
            .with("masterBrokerId", master)
            .with_some("masterAddress", set.master_address())
            .with("masterEpoch", set.master_epoch)
            .with("syncStateSetEpoch", set.sync_state_set_epoch);
    }
    Ok(answer.with_body(json::to_vec(&set.sync_state_set())))
}

/// 1011
pub(super) async fn clean(shared: &Shared, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    let broker_name = name(command, "brokerName")?;
    let ids = command.field("brokerControllerIdsToClean").filter(|ids| !ids.is_empty());
    let cleaning =
        Cleaning { ids: ids.map(parse_ids).transpose()?, also_alive: command.boolean("isCleanLivingBroker") };
    let alive = shared.live.alive_ids(&broker_name);
    let cleaned = shared.consensus.write(Command::CleanBrokerData { broker_name, cleaning, alive }).await?;
    cleaned.map_err(|refused| Refusal::Refused { refused, header: Vec::new() })?;
    Ok(RemotingCommand::success())
}

/// `1;2;3`
fn parse_ids(ids: &str) -> Result<BTreeSet<i64>, Refusal> {
    let parse = |id: &str| id.trim().parse().map_err(|_| Refusal::NotIds(id.chars().take(64).collect()));
    ids.split(';').filter(|id| !id.trim().is_empty()).map(parse).collect()
}

fn named(cluster_name: &str, broker_name: &str) -> RemotingCommand {
    RemotingCommand::success().with("clusterName", cluster_name).with("brokerName", broker_name)
}
