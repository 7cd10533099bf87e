//! Routes and lists: 105, 106, 206, 224, 304, 311 to 313, 901.

use ferromq_protocol::body::{GetBrokerMemberGroupResponseBody, TopicList};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::header::{Fields, HeaderError, Request};
use ferromq_protocol::{json, version};

use crate::kv::ORDER_TOPIC_CONFIG;
use crate::refusal::Refusal;
use crate::routes::{Tables, keep_zone};
use crate::state::State;

/// Header field of any request: the sender's zone.
pub(super) const ZONE_NAME: &str = "__ZONE_NAME";
/// Header field of any request: whether the sender wants brokers of its own zone only.
const ZONE_MODE: &str = "__ZONE_MODE";

/// What a request for a route (105) says.
pub(crate) struct RouteRequest {
    topic: Option<String>,
    /// Strict JSON, for clients that say so or are new enough.
    standard_json: bool,
    /// The only zone that is wanted.
    zone: Option<String>,
}

impl RouteRequest {
    /// Reads the header without making a map of it.
    pub(crate) fn parse(request: &Request<'_>) -> Result<Self, HeaderError> {
        let is_set = |name| request.fields.get(name).is_some_and(|value| value.boolean());
        let zone = if is_set(ZONE_MODE) { text(&request.fields, ZONE_NAME)? } else { None };
        Ok(Self {
            topic: text(&request.fields, "topic")?,
            standard_json: request.version >= version::V4_9_4 || is_set("acceptStandardJsonOnly"),
            zone: zone.filter(|zone| !zone.trim().is_empty()),
        })
    }
}

fn text(fields: &Fields<'_>, name: &str) -> Result<Option<String>, HeaderError> {
    fields.get(name).map(|value| value.text().map(|text| text.into_owned())).transpose()
}

/// The route of a topic, as JSON.
pub(crate) fn route(state: &State, request: RouteRequest) -> Result<Vec<u8>, Refusal> {
    if state.is_waiting_for_brokers() {
        return Err(Refusal::NotReady);
    }
    let config = state.config.load();
    let no_route = || Refusal::NoRoute { topic: request.topic.clone() };
    let topic = request.topic.as_deref().ok_or_else(no_route)?;
    let mut route = state.routes.read().route(topic, config.support_acting_master).ok_or_else(no_route)?;
    if config.order_message_enable {
        route.order_topic_conf = state.kv.get(ORDER_TOPIC_CONFIG, topic);
    }
    Ok(match &request.zone {
        Some(zone) => {
            keep_zone(&mut route, zone);
            // RocketMQ's filter writes the legacy form to everybody.
            json::to_vec(&route)
        }
        None if request.standard_json => json::to_vec_standard(&route),
        None => json::to_vec(&route),
    })
}

pub(super) fn cluster_info(state: &State) -> RemotingCommand {
    let info = state.routes.read().cluster_info();
    RemotingCommand::success().with_body(json::to_vec(&info))
}

pub(super) fn broker_member_group(state: &State, command: &RemotingCommand) -> RemotingCommand {
    let field = |name| command.field(name).unwrap_or_default();
    let group = state.routes.read().broker_member_group(field("clusterName"), field("brokerName"));
    let body = GetBrokerMemberGroupResponseBody { broker_member_group: Some(group) };
    // RocketMQ never replaces the remark that answers begin with.
    RemotingCommand::success().with_remark("not set any response code").with_body(json::to_vec(&body))
}

pub(super) fn all_topics(state: &State) -> Result<RemotingCommand, Refusal> {
    list(state, state.config.load().enable_all_topic_list, Tables::all_topics)
}

pub(super) fn system_topics(state: &State) -> RemotingCommand {
    let topics = state.routes.read().system_topics();
    RemotingCommand::success().with_body(json::to_vec(&topics))
}

/// The lists that one setting turns on.
pub(super) fn some_topics(state: &State, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    list(state, state.config.load().enable_topic_list, |tables| match command.code {
        request::GET_TOPICS_BY_CLUSTER => {
            tables.topics_of_cluster(command.field("cluster").unwrap_or_default())
        }
        request::GET_UNIT_TOPIC_LIST => tables.unit_topics(),
        request::GET_HAS_UNIT_SUB_TOPIC_LIST => tables.unit_sub_topics(),
        _ => tables.unit_sub_ununit_topics(),
    })
}

fn list(
    state: &State,
    is_enabled: bool,
    topics: impl FnOnce(&Tables) -> TopicList,
) -> Result<RemotingCommand, Refusal> {
    if !is_enabled {
        return Err(Refusal::ListDisabled);
    }
    let topics = topics(&state.routes.read());
    Ok(RemotingCommand::success().with_body(json::to_vec(&topics)))
}
