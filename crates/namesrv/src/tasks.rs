//! What a name server does by itself: removing brokers, looking for silent ones, telling of new smallest ids.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::request::NOTIFY_MIN_BROKER_ID_CHANGE;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::routes::{MinBrokerIdNotice, Unregistration};
use crate::state::State;

/// How long one notice may take, connecting included (3.4).
const NOTICE_TIMEOUT: Duration = Duration::from_millis(300);

/// Removals that are carried out under one lock.
const BATCH_MAX: usize = 10_000;

/// Removes brokers as they are asked for, everything that waits in one batch (4.1).
pub(crate) async fn remove_brokers(state: Arc<State>, mut removals: mpsc::Receiver<Unregistration>) {
    let mut batch = Vec::new();
    while removals.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let notifies = state.config.load().notify_min_broker_id_changed;
        let notices = state.routes.write().unregister(&batch, notifies);
        notices.into_iter().for_each(|notice| state.notify(notice));
        batch.clear();
    }
}

/// Looks for silent brokers again and again.
pub(crate) async fn expire_brokers(state: Arc<State>) {
    loop {
        let period_ms = state.config.load().scan_not_active_broker_interval.get();
        sleep(Duration::from_millis(period_ms.into())).await;
        let expired = state.routes.read().expire(state.now_ms());
        for unregistration in expired {
            if let Err(refusal) = state.remove(unregistration) {
                tracing::warn!(%refusal, "silent brokers stay until the next scan");
                break;
            }
        }
    }
}

/// Sends notices over connections of our own, one notice after the other so that a broker gets them in order.
pub(crate) async fn send_notices(client: Arc<Client>, mut notices: mpsc::Receiver<MinBrokerIdNotice>) {
    while let Some(notice) = notices.recv().await {
        let command = RemotingCommand::request(NOTIFY_MIN_BROKER_ID_CHANGE)
            .with_some("haBrokerAddr", notice.ha_broker_addr)
            .with("minBrokerAddr", notice.min_broker_addr)
            .with("minBrokerId", notice.min_broker_id)
            .with_some("offlineBrokerAddr", notice.offline_broker_addr);
        let mut sending = JoinSet::new();
        for addr in notice.receivers {
            let (client, command) = (client.clone(), command.clone());
            sending.spawn(async move {
                let connected = timeout(NOTICE_TIMEOUT, client.connection(&addr)).await;
                match connected.map_err(|_| format!("no connection to {addr} in time")) {
                    Ok(Ok(connection)) => connection.oneway(command),
                    Ok(Err(error)) => tracing::warn!(%error, "broker is not told of a new smallest id"),
                    Err(error) => tracing::warn!(error, "broker is not told of a new smallest id"),
                }
            });
        }
        while sending.join_next().await.is_some() {}
    }
}
