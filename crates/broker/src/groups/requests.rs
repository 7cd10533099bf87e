//! What administrators ask of consumer groups (`docs/spec/03-broker.md` 4.7).

use std::sync::Arc;

use ferromq_protocol::body::{GroupForbidden, SubscriptionGroupConfig, SubscriptionGroupList};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Connection;

use super::check_group;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::config_file::Revision;
use crate::service::Handler;

pub(crate) fn route(code: i32) -> Option<Handler> {
    Some(match code {
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => Handler::Blocking(update_and_create),
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => Handler::Blocking(update_and_create_list),
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => Handler::Blocking(get_all),
        request::GET_SUBSCRIPTIONGROUP_CONFIG => Handler::Inline(get),
        request::DELETE_SUBSCRIPTIONGROUP => Handler::Blocking(delete),
        request::UPDATE_AND_GET_GROUP_FORBIDDEN => Handler::Blocking(update_and_get_forbidden),
        _ => return None,
    })
}

fn update_and_create(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let group: SubscriptionGroupConfig = json::from_slice(&request.body)?;
    // Java fails on a group without a name in its own way, and clients know that code.
    if group.group_name.is_empty() {
        return Err(Refusal::system_error(
            "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP needs `groupName` in its body",
        ));
    }
    update(broker, vec![group])
}

fn update_and_create_list(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let body: SubscriptionGroupList = json::from_slice(&request.body)?;
    update(broker, body.group_config_list)
}

fn update(broker: &Broker, groups: Vec<SubscriptionGroupConfig>) -> Answer {
    for group in &groups {
        check_group(&group.group_name)
            .map_err(|rule| Refusal::new(response::INVALID_PARAMETER, rule.to_string()))?;
    }
    if !groups.is_empty() {
        let revision =
            broker.groups.update(groups).map_err(|error| Refusal::system_error(error.to_string()))?;
        wait_saved(broker, revision)?;
    }
    Ok(RemotingCommand::success())
}

fn wait_saved(broker: &Broker, revision: Revision) -> Result<(), Refusal> {
    broker.groups.wait_saved(revision).map_err(|error| Refusal::system_error(error.to_string()))
}

fn get_all(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    Ok(RemotingCommand::success().with_body(json::to_vec(&broker.groups.snapshot())))
}

fn get(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let group = request.text("group")?;
    match broker.groups.get_or_create(&broker.config(), group) {
        Ok(config) => Ok(RemotingCommand::success().with_body(json::to_vec(&*config))),
        Err(reason) => {
            let remark = format!("No group in this broker. group: {group}: {reason}");
            Err(Refusal::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark))
        }
    }
}

fn delete(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let group = request.text("groupName")?;
    if let Some(revision) = broker.groups.remove(group) {
        wait_saved(broker, revision)?;
        tracing::info!(group, "consumer group deleted");
    }
    if request.boolean("cleanOffset") {
        let revision = broker.offsets.remove_group(group);
        broker.offsets.save_now(revision).map_err(|error| Refusal::system_error(error.to_string()))?;
    }
    if broker.config().auto_delete_unused_stats {
        broker.stats.remove_group(group);
    }
    Ok(RemotingCommand::success())
}

fn update_and_get_forbidden(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let (group, topic) = (request.text("group")?, request.text("topic")?);
    if request.field("readable").is_some() {
        let revision = broker.groups.forbid_read(group, topic, !request.boolean("readable"));
        wait_saved(broker, revision)?;
    }
    let body = GroupForbidden {
        group: group.to_owned(),
        readable: !broker.groups.is_read_forbidden(group, topic),
        topic: topic.to_owned(),
    };
    Ok(RemotingCommand::success().with_remark("").with_body(json::to_vec(&body)))
}
