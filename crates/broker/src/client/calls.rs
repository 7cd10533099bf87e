//! Requests from us to clients (`docs/spec/01-remoting.md` 3.3).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::body::{GetConsumerStatusBody, MessageModel, ResetOffsetBody, ResetOffsetBodyForC};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::{FieldList, RemotingCommand};
use ferromq_protocol::json;
use ferromq_protocol::version;
use ferromq_remoting::InvokeError;

use super::Client;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// How long a consumer may take to tell its offsets (221).
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a consumer may take to answer an administrator (307, 309).
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells all consumers of a group that one of them came or went, so that they share out the queues anew (code 40), if the
/// broker and the group want that. Broadcasting consumers have nothing to share out.
pub(crate) fn notify_consumer_ids_changed(broker: &Broker, group: &str) {
    let wanted = broker.config().notify_consumer_ids_changed_enable
        && broker.groups.get(group).is_none_or(|group| group.notify_consumer_ids_changed_enable)
        && broker.consumers.model(group).is_some_and(|(_, model)| model != Some(MessageModel::Broadcasting));
    if wanted {
        let command =
            RemotingCommand::request(request::NOTIFY_CONSUMER_IDS_CHANGED).with("consumerGroup", group);
        for client in broker.consumers.clients(group) {
            client.connection.oneway(command.clone());
        }
    }
}

/// A reset of offsets that consumers do by themselves (code 220).
pub(crate) struct ClientReset<'r> {
    pub(crate) group: &'r str,
    pub(crate) topic: &'r str,
    pub(crate) timestamp: i64,
    pub(crate) is_force: bool,
    pub(crate) offsets: &'r ResetOffsetBody,
    /// The administrator's tool is written in C++, and so are the consumers then, as Java sees it.
    pub(crate) for_cpp: bool,
}

/// Tells all consumers of a group to move to other offsets.
pub(crate) fn reset_offsets(broker: &Broker, reset: &ClientReset<'_>) -> Result<(), Refusal> {
    let ClientReset { group, topic, timestamp, .. } = *reset;
    let clients = broker.consumers.clients(group);
    if clients.is_empty() {
        let remark = format!(
            "Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}"
        );
        return Err(Refusal::new(response::CONSUMER_NOT_ONLINE, remark));
    }
    for client in &clients {
        check_version(client, version::V3_0_7_SNAPSHOT)?;
    }
    let body = if reset.for_cpp {
        json::to_vec(&ResetOffsetBodyForC::from(reset.offsets))
    } else {
        json::to_vec(reset.offsets)
    };
    let command = RemotingCommand::request(request::RESET_CONSUMER_CLIENT_OFFSET)
        .with("topic", topic)
        .with("group", group)
        .with("timestamp", timestamp)
        .with("isForce", reset.is_force)
        .with_body(body);
    for client in clients {
        client.connection.oneway(command.clone());
    }
    Ok(())
}

/// Asks consumers of a group for their offsets (code 221, for 223): all of them, or only the one that `client_id` names.
pub(crate) async fn consumer_status(
    broker: &Broker,
    topic: &str,
    group: &str,
    client_id: Option<&str>,
) -> Answer {
    let client_id = client_id.filter(|client_id| !client_id.trim().is_empty());
    let clients = broker.consumers.clients(group);
    let asked = clients.iter().filter(|client| client_id.is_none_or(|wanted| wanted == &*client.client_id));
    let mut consumer_table = BTreeMap::new();
    for client in asked {
        check_version(client, version::V3_0_7_SNAPSHOT)?;
        let question = RemotingCommand::request(request::GET_CONSUMER_STATUS_FROM_CLIENT)
            .with("topic", topic)
            .with("group", group);
        match client.connection.invoke(question, STATUS_TIMEOUT).await {
            Ok(answer) if answer.code == response::SUCCESS => {
                let status: GetConsumerStatusBody = json::from_slice(&answer.body)?;
                consumer_table.insert(client.client_id.to_string(), status.message_queue_table);
            }
            Ok(answer) => {
                let remark = answer.remark.unwrap_or_default();
                tracing::warn!(
                    group,
                    client_id = &*client.client_id,
                    answer.code,
                    remark,
                    "consumer tells no offsets"
                );
            }
            Err(error) => {
                tracing::warn!(group, client_id = &*client.client_id, %error, "consumer tells no offsets")
            }
        }
    }
    if consumer_table.is_empty() {
        return Err(Refusal::system_error(match client_id {
            Some(client_id) => format!("The Consumer <{group}> <{client_id}> not online"),
            None => format!("no consumer for this group, {group}"),
        }));
    }
    let body = GetConsumerStatusBody { consumer_table, ..GetConsumerStatusBody::default() };
    Ok(RemotingCommand::success().with_body(json::to_vec(&body)))
}

/// Lets a consumer answer an administrator: GET_CONSUMER_RUNNING_INFO (307) as it came, CONSUME_MESSAGE_DIRECTLY (309) with
/// the message as `body` and more fields. The consumer's answer is the answer.
pub(crate) async fn call_consumer(
    broker: &Arc<Broker>,
    group: &str,
    client_id: &str,
    code: i32,
    fields: Option<FieldList>,
    body: Bytes,
) -> Answer {
    let Some(client) = broker.consumers.find(group, client_id) else {
        return Err(Refusal::system_error(format!("The Consumer <{group}> <{client_id}> not online")));
    };
    check_version(&client, version::V3_1_8_SNAPSHOT)?;
    let mut question = RemotingCommand::request(code).with_body(body);
    question.fields = fields;
    client.connection.invoke(question, CALL_TIMEOUT).await.map_err(|error| match error {
        InvokeError::Timeout { .. } => {
            let remark = format!("consumer <{group}> <{client_id}> Timeout: {error}");
            Refusal::new(response::CONSUME_MSG_TIMEOUT, remark)
        }
        error => Refusal::system_error(format!("invoke consumer <{group}> <{client_id}> failed: {error}")),
    })
}

fn check_version(client: &Client, oldest: i32) -> Result<(), Refusal> {
    if client.version >= oldest {
        return Ok(());
    }
    Err(Refusal::system_error(format!(
        "The Consumer <{}> Version <{}> too low to finish, please upgrade it to {}",
        client.client_id,
        version::name(client.version),
        version::name(oldest)
    )))
}
