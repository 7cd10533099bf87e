//! What administrators ask of topics: codes 17, 18 and 215 (`docs/spec/03-broker.md` 12.3, 12.4).

use std::sync::Arc;

use ferromq_protocol::body::{CreateTopicListRequestBody, TopicConfig, TopicFilterType};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::{RETRY_PREFIX, check_topic};
use ferromq_remoting::Connection;

use super::attributes::parse_modifications;
use super::{PERM_INHERIT, PERM_READ, PERM_WRITE};
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::service::Handler;

/// Most queues that a topic may have on one broker: administrators' tools ask for each of them in one request.
const QUEUES_MAX: i32 = 65_536;

pub(crate) fn route(code: i32) -> Option<Handler> {
    Some(match code {
        request::UPDATE_AND_CREATE_TOPIC => Handler::Blocking(update_and_create_topic),
        request::UPDATE_AND_CREATE_TOPIC_LIST => Handler::Blocking(update_and_create_topic_list),
        request::DELETE_TOPIC_IN_BROKER => Handler::Blocking(delete_topic_in_broker),
        _ => return None,
    })
}

fn update_and_create_topic(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let topic_filter_type = match request.text("topicFilterType")? {
        "SINGLE_TAG" => TopicFilterType::SingleTag,
        "MULTI_TAG" => TopicFilterType::MultiTag,
        other => return Err(Refusal::system_error(format!("topicFilterType = [{other}] value invalid"))),
    };
    let topic_name = request.field("topic").unwrap_or_default().to_owned();
    check_name(broker, &topic_name)?;
    let attributes = parse_modifications(request.field("attributes").unwrap_or_default());
    let wanted = TopicConfig {
        attributes: attributes.map_err(|error| Refusal::system_error(error.to_string()))?,
        order: request.boolean("order"),
        perm: request.number("perm")?,
        read_queue_nums: request.number("readQueueNums")?,
        topic_filter_type,
        topic_name,
        topic_sys_flag: request.number_or_none("topicSysFlag")?.unwrap_or(0),
        write_queue_nums: request.number("writeQueueNums")?,
    };
    update(broker, vec![wanted])
}

fn update_and_create_topic_list(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let body: CreateTopicListRequestBody = json::from_slice(&request.body)?;
    for topic in &body.topic_config_list {
        check_name(broker, &topic.topic_name)?;
    }
    update(broker, body.topic_config_list)
}

/// Other than in Java, a list is applied as a whole even if one of its topics is already as wanted.
fn update(broker: &Broker, wanted: Vec<TopicConfig>) -> Answer {
    let config = broker.config();
    for topic in &wanted {
        check_values(&config, topic).map_err(|rule| Refusal::new(response::INVALID_PARAMETER, rule))?;
    }
    let changed = broker.topics.update(wanted).map_err(|error| Refusal::system_error(error.to_string()))?;
    if let Some(revision) = changed {
        broker.topics.wait_saved(revision).map_err(|error| Refusal::system_error(error.to_string()))?;
    }
    // Java leaves the default remark of an answer without code, and tools have got used to it.
    Ok(RemotingCommand::success().with_remark("not set any response code"))
}

fn check_name(broker: &Broker, topic: &str) -> Result<(), Refusal> {
    let rule = match check_topic(topic) {
        Err(rule) => rule.to_string(),
        Ok(()) => match conflict_with_system(broker, topic) {
            Some(rule) => rule,
            None => return Ok(()),
        },
    };
    Err(Refusal::new(response::INVALID_PARAMETER, rule))
}

fn conflict_with_system(broker: &Broker, topic: &str) -> Option<String> {
    let protected = broker.config().validate_system_topic_when_update_topic && broker.topics.is_system(topic);
    protected.then(|| format!("The topic[{topic}] is conflict with system topic."))
}

/// Which rule the values break. Java takes any number for `perm` and for the queues.
fn check_values(config: &BrokerConfig, topic: &TopicConfig) -> Result<(), String> {
    const PERM_ALL: i32 = PERM_READ | PERM_WRITE | PERM_INHERIT;
    if topic.attributes.get("+message.type").is_some_and(|kind| kind == "MIXED")
        && !config.enable_mixed_message_type
    {
        return Err("MIXED message type is not supported.".to_owned());
    }
    let (name, perm) = (&topic.topic_name, topic.perm);
    if perm & !PERM_ALL != 0 {
        return Err(format!(
            "perm[{perm}] of topic[{name}] is illegal, it is the sum of {PERM_READ} (read), {PERM_WRITE} (write) and \
             {PERM_INHERIT} (inherit)"
        ));
    }
    for (field, number) in
        [("readQueueNums", topic.read_queue_nums), ("writeQueueNums", topic.write_queue_nums)]
    {
        if !(0..=QUEUES_MAX).contains(&number) {
            return Err(format!(
                "{field}[{number}] of topic[{name}] is illegal, it must be 0 to {QUEUES_MAX}"
            ));
        }
    }
    Ok(())
}

fn delete_topic_in_broker(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let topic = request.field("topic").unwrap_or_default();
    let refuse = |rule: String| Err(Refusal::new(response::INVALID_PARAMETER, rule));
    if topic.trim().is_empty() {
        return refuse("The specified topic is blank.".to_owned());
    }
    if let Some(rule) = conflict_with_system(broker, topic) {
        return refuse(rule);
    }
    let mut doomed = vec![topic.to_owned()];
    if broker.config().clear_retry_topic_when_delete_topic {
        for group in broker.offsets.groups_of(topic) {
            let of_pop = ['+', '_'].map(|separator| format!("{RETRY_PREFIX}{group}{separator}{topic}"));
            doomed.extend(of_pop.into_iter().filter(|retry_topic| broker.topics.contains(retry_topic)));
        }
    }
    for topic in doomed {
        delete(broker, &topic)?;
    }
    Ok(RemotingCommand::success())
}

/// Deletes one topic. First of all nobody can use it any more; at the end nothing old is left for a topic of the same
/// name, also after a crash.
fn delete(broker: &Broker, topic: &str) -> Result<(), Refusal> {
    if let Some(revision) = broker.topics.remove(topic) {
        broker.topics.wait_saved(revision).map_err(|error| Refusal::system_error(error.to_string()))?;
    }
    let revision = broker.offsets.remove_topic(topic);
    broker.offsets.save_now(revision).map_err(|error| Refusal::system_error(error.to_string()))?;
    broker.store.delete_topic(topic).map_err(|error| Refusal::system_error(error.to_string()))?;
    if broker.config().auto_delete_unused_stats {
        broker.stats.remove_topic(topic);
    }
    tracing::info!(topic, "topic deleted");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        let config = BrokerConfig::default();
        let check = |topic: TopicConfig| check_values(&config, &topic);
        let topic = |perm| TopicConfig { perm, ..TopicConfig::new("T", 4) };
        for perm in 0..8 {
            assert_eq!(check(topic(perm)), Ok(()));
        }
        assert_eq!(
            check(topic(9)),
            Err("perm[9] of topic[T] is illegal, it is the sum of 4 (read), 2 (write) and 1 (inherit)".into())
        );
        assert!(check(topic(-1)).is_err());
        assert_eq!(check(TopicConfig::new("T", 0)), Ok(()));
        assert_eq!(
            check(TopicConfig::new("T", -1)),
            Err("readQueueNums[-1] of topic[T] is illegal, it must be 0 to 65536".into())
        );
        let mut mixed = topic(6);
        mixed.attributes.insert("+message.type".into(), "MIXED".into());
        assert_eq!(check(mixed.clone()), Err("MIXED message type is not supported.".into()));
        let enabled = BrokerConfig { enable_mixed_message_type: true, ..BrokerConfig::default() };
        assert_eq!(check_values(&enabled, &mixed), Ok(()));
    }
}
