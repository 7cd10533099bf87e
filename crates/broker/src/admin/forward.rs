//! Questions that only a consumer can answer: the broker passes them on (`docs/spec/01-remoting.md` 3.3).

use std::sync::Arc;

use bytes::Bytes;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::id::parse_offset_id;
use ferromq_remoting::Connection;

use crate::answer::Refusal;
use crate::broker::Broker;
use crate::client::calls;
use crate::query::{message_at, missing};
use crate::service::PendingAnswer;

/// GET_CONSUMER_RUNNING_INFO: what a consumer says about itself.
pub(super) fn get_consumer_running_info(
    broker: Arc<Broker>,
    _: Arc<Connection>,
    request: RemotingCommand,
) -> PendingAnswer {
    Box::pin(async move {
        let (group, client_id) = (request.text("consumerGroup")?, request.text("clientId")?);
        let (fields, body) = (request.fields.clone(), request.body.clone());
        calls::call_consumer(&broker, group, client_id, request.code, fields, body).await
    })
}

/// CONSUME_MESSAGE_DIRECTLY: has a consumer consume one message, named by its offset id.
pub(super) fn consume_message_directly(
    broker: Arc<Broker>,
    _: Arc<Connection>,
    request: RemotingCommand,
) -> PendingAnswer {
    Box::pin(async move {
        let group = request.text("consumerGroup")?;
        let client_id = request.field("clientId").unwrap_or_default();
        // Nobody to consume it: that comes before a message that is not there.
        let message = match broker.consumers.find(group, client_id) {
            Some(_) => message_with_id(&broker, request.text("msgId")?.to_owned()).await?,
            None => Bytes::new(),
        };
        let mut call = request.clone().with("brokerName", &broker.config().broker_name);
        if let Some(topic) = request.field("topic").and_then(|topic| broker.topics.get(topic)) {
            call = call.with("topicSysFlag", topic.topic_sys_flag);
        }
        if let Some(settings) = broker.groups.get(group) {
            call = call.with("groupSysFlag", settings.group_sys_flag);
        }
        calls::call_consumer(&broker, group, client_id, request.code, call.fields, message).await
    })
}

async fn message_with_id(broker: &Arc<Broker>, id: String) -> Result<Bytes, Refusal> {
    let Some((_, offset)) = parse_offset_id(&id) else {
        return Err(Refusal::system_error(format!("msgId[{id}] is not the offset id of a message")));
    };
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let broker = broker.clone();
    let read = move || message_at(&broker, offset).map(|record| Bytes::copy_from_slice(&record));
    match tokio::task::spawn_blocking(read).await {
        Ok(found) => found.ok_or_else(|| missing(offset)),
        Err(error) => Err(Refusal::system_error(format!("can not read message {id}: {error}"))),
    }
}

/// INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the offsets of a group's consumers, or of one of them, as they see them.
pub(super) fn get_consumer_status(
    broker: Arc<Broker>,
    _: Arc<Connection>,
    request: RemotingCommand,
) -> PendingAnswer {
    Box::pin(async move {
        let (topic, group) = (request.text("topic")?, request.text("group")?);
        calls::consumer_status(&broker, topic, group, request.field("clientAddr")).await
    })
}
