//! Who is connected, and what to (`docs/spec/10-admin.md` 6).

use std::sync::Arc;

use ferromq_protocol::body::QuerySubscriptionResponseBody;
use ferromq_protocol::code::response;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;

use super::answer_body;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// GET_CONSUMER_CONNECTION_LIST.
pub(super) fn get_consumer_connections(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let group = request.text("consumerGroup")?;
    match broker.consumers.connections(group) {
        Some(connections) => answer_body(&connections),
        None => {
            let remark = format!("the consumer group[{group}] not online");
            Err(Refusal::new(response::CONSUMER_NOT_ONLINE, remark))
        }
    }
}

/// GET_PRODUCER_CONNECTION_LIST.
pub(super) fn get_producer_connections(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let group = request.text("producerGroup")?;
    match broker.producers.connections(group) {
        Some(connections) => answer_body(&connections),
        None => Err(Refusal::system_error(format!("the producer group[{group}] not exist"))),
    }
}

/// GET_ALL_PRODUCER_INFO.
pub(super) fn get_all_producer_info(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    _: &RemotingCommand,
) -> Answer {
    answer_body(&broker.producers.table_info())
}

/// QUERY_SUBSCRIPTION_BY_CONSUMER: what a group subscribes to in a topic now.
pub(super) fn query_subscription(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let group = request.text("group")?;
    let topic = request.field("topic").unwrap_or_default();
    answer_body(&QuerySubscriptionResponseBody {
        group: group.to_owned(),
        subscription_data: broker.consumers.subscription(group, topic).map(Arc::unwrap_or_clone),
        topic: topic.to_owned(),
    })
}
