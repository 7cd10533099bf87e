//! GET_CONSUMER_LIST_BY_GROUP (38) and CHECK_CLIENT_CONFIG (46) (`docs/spec/03-broker.md` 4.4).

use std::sync::Arc;

use ferromq_protocol::body::{
    CheckClientRequestBody, EXPRESSION_TYPE_TAG, GetConsumerListByGroupResponseBody,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Connection;

use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::service::Handler;

pub(super) fn route(code: i32) -> Option<Handler> {
    Some(match code {
        request::GET_CONSUMER_LIST_BY_GROUP => Handler::Inline(get_consumer_list_by_group),
        request::CHECK_CLIENT_CONFIG => Handler::Inline(check_client_config),
        _ => return None,
    })
}

fn get_consumer_list_by_group(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let group = request.text("consumerGroup")?;
    let clients = broker.consumers.clients(group);
    if clients.is_empty() {
        return Err(Refusal::system_error(format!("no consumer for this group, {group}")).with_field_map());
    }
    let consumer_id_list = clients.iter().map(|client| client.client_id.to_string()).collect();
    let body = json::to_vec(&GetConsumerListByGroupResponseBody { consumer_id_list });
    Ok(RemotingCommand::success().with_field_map().with_body(body))
}

fn check_client_config(_: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let body: CheckClientRequestBody = if request.body.is_empty() {
        CheckClientRequestBody::default()
    } else {
        json::from_slice(&request.body)?
    };
    let expression_type = body.subscription_data.map_or_else(String::new, |data| data.expression_type);
    if expression_type.is_empty() || expression_type == EXPRESSION_TYPE_TAG {
        return Ok(RemotingCommand::success());
    }
    // There are no filters but tags yet, whatever `enablePropertyFilter` says.
    Err(Refusal::system_error(format!(
        "The broker does not support consumer to filter message by {expression_type}"
    )))
}
