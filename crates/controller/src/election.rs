//! Elections: having one, and telling the brokers of it (`docs/spec/05-ha.md` 7.5, 7.7).

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::request::NOTIFY_BROKER_ROLE_CHANGED;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use tokio::time::timeout;

use crate::raft::NotDone;
use crate::shared::Shared;
use crate::state::{Applied, Asking, Command, Elected, LiveReplica, Refused};

/// How long a broker may take to be told.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(3);

/// A master that was not heard of yet but may be alive: it is kept, but it is nobody's better.
const UNHEARD: LiveReplica = LiveReplica { epoch: i32::MIN, max_offset: i64::MIN, priority: i32::MAX };

/// Has the group elect a master of a set. Brokers are told if there is a new one.
pub(crate) async fn elect(
    shared: &Arc<Shared>,
    broker_name: &str,
    asking: Asking,
) -> Result<Result<Applied, Refused>, NotDone> {
    if let Asking::Restarted { id, .. } = asking
        && is_unheard(shared, broker_name, id)
    {
        return Ok(Err(Refused::NobodyElected));
    }
    let mut live = shared.live.live_replicas(broker_name);
    let master = shared.consensus.peek(|sets| sets.get(broker_name).and_then(|set| set.master));
    if let Some(master) = master.filter(|master| !shared.live.is_dead(broker_name, *master)) {
        live.entry(master).or_insert(UNHEARD);
    }
    let command = Command::ElectMaster {
        broker_name: broker_name.to_owned(),
        asking,
        live,
        allow_unclean: shared.config.load().enable_elect_unclean_master,
    };
    let outcome = shared.consensus.write(command).await?;
    if let Ok(Applied::Elected(elected)) = &outcome {
        tracing::info!(
            broker = broker_name,
            master = elected.master,
            epoch = elected.master_epoch,
            ?asking,
            "new master"
        );
        notify(shared, elected);
    }
    Ok(outcome)
}

/// Whether somebody of the SyncStateSet beside `id` may be alive but was not heard of yet: this controller listens since a moment ago.
fn is_unheard(shared: &Shared, broker_name: &str, id: i64) -> bool {
    let alive = shared.live.alive_ids(broker_name);
    let in_sync = shared.consensus.peek(|sets| sets.get(broker_name).map(|set| set.sync_state_set.clone()));
    let mut others = in_sync.into_iter().flatten().filter(|other| *other != id);
    others.any(|other| !alive.contains(&other) && !shared.live.is_dead(broker_name, other))
}

/// Elects a master in the place of one that is gone.
pub(crate) async fn replace_master(shared: &Arc<Shared>, broker_name: &str) {
    let tries = shared.config.load().elect_master_max_retry_count.max(1);
    for _ in 0..tries {
        match elect(shared, broker_name, Asking::Controller).await {
            Ok(Ok(_)) => return,
            Ok(Err(refused)) => return tracing::error!(broker = broker_name, %refused, "no new master"),
            Err(error @ NotDone::NoMajority) => {
                tracing::warn!(broker = broker_name, %error, "no new master yet");
            }
            // Whoever leads now sees to it.
            Err(error) => {
                return tracing::info!(broker = broker_name, %error, "no election by this controller");
            }
        }
    }
}

/// Tells the replicas that are alive of their new master. One that is not reached asks by itself.
fn notify(shared: &Arc<Shared>, elected: &Elected) {
    if !shared.config.load().notify_broker_role_changed {
        return;
    }
    let notice = RemotingCommand::request(NOTIFY_BROKER_ROLE_CHANGED)
        .with("masterAddress", &elected.master_address)
        .with("masterBrokerId", elected.master)
        .with("syncStateSetEpoch", elected.sync_state_set.sync_state_set_epoch)
        .with("masterEpoch", elected.master_epoch)
        .with_body(json::to_vec(&elected.sync_state_set));
    for heartbeat in shared.live.alive(&elected.broker_name).into_values() {
        let (shared, notice, address) = (shared.clone(), notice.clone(), heartbeat.address);
        tokio::spawn(async move {
            match timeout(NOTICE_TIMEOUT, shared.client.connection(&address)).await {
                Ok(Ok(connection)) => connection.oneway(notice),
                Ok(Err(error)) => tracing::warn!(%error, "replica is not told of its new master"),
                Err(_) => tracing::warn!(address, "replica is not told of its new master in time"),
            }
        });
    }
}
