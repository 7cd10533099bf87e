//! A master that was away asks its slaves what was done meanwhile: how far consumers have come there, and which delayed messages the
//! slave that acted for it has delivered.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::ConsumerOffsetSerializeWrapper;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Client;

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::offsets::OWN_PROGRESS;
use crate::registration::name_servers;
use crate::replication::acting::members;

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Asks every slave that a name server knows, once.
pub(super) async fn run(broker: Arc<Broker>) {
    let client = Client::new();
    let config = broker.config();
    for slave in slaves(&client, &config).await {
        if config.enable_slave_acting_master
            && let Err(error) = delay_offsets(&broker, &client, &slave).await
        {
            tracing::warn!(slave, error, "can't ask a slave which delayed messages it has delivered");
        }
        match progress_of(&broker, &client, &slave).await {
            Ok(Some(theirs)) => merge(&broker, &slave, theirs).await,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(slave, error, "can't ask a slave how far consumers have come there");
            }
        }
    }
    client.close().await;
}

/// Addresses of the slaves.
async fn slaves(client: &Client, config: &BrokerConfig) -> Vec<String> {
    let name_servers = name_servers(config).await.unwrap_or_default();
    let members = members(client, &name_servers, config).await.unwrap_or_default();
    members.broker_addrs.into_iter().filter(|(id, _)| *id != 0).map(|(_, slave)| slave).collect()
}

/// The progress that a slave knows, if consumers have committed some there. Slaves of RocketMQ don't say: where slaves act for masters,
/// what they have is taken unless it is older than ours.
async fn progress_of(
    broker: &Broker,
    client: &Client,
    slave: &str,
) -> Result<Option<ConsumerOffsetSerializeWrapper>, String> {
    let question = RemotingCommand::request(request::GET_ALL_CONSUMER_OFFSET);
    let answer = client.invoke(slave, question, TIMEOUT).await.map_err(|error| error.to_string())?;
    let has_own = answer.boolean(OWN_PROGRESS);
    if answer.code != response::SUCCESS || !(has_own || broker.config().enable_slave_acting_master) {
        return Ok(None);
    }
    let theirs: ConsumerOffsetSerializeWrapper =
        json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    Ok((has_own || theirs.data_version >= broker.offsets.data_version()).then_some(theirs))
}

async fn delay_offsets(broker: &Broker, client: &Client, slave: &str) -> Result<(), String> {
    let question = RemotingCommand::request(request::GET_ALL_DELAY_OFFSET);
    let answer = client.invoke(slave, question, TIMEOUT).await.map_err(|error| error.to_string())?;
    let theirs = json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    broker.schedule.merge(&theirs);
    Ok(())
}

async fn merge(broker: &Arc<Broker>, slave: &str, theirs: ConsumerOffsetSerializeWrapper) {
    tracing::info!(slave, "takes over how far consumers have come at a slave");
    let broker = broker.clone();
    let merged = tokio::task::spawn_blocking(move || {
        broker.store.dispatch_to_confirmed();
        let end_of = |topic: &str, queue_id: i32| {
            broker.store.find_queue(topic, queue_id).map_or(0, |queue| queue.max_offset())
        };
        broker.offsets.merge_from_slave(theirs, end_of);
    });
    if merged.await.is_err() {
        tracing::error!(slave, "the progress that a slave knows could not be taken over");
    }
}
