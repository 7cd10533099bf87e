//! The handlers of the request codes (`docs/spec/06-namesrv.md` 1): each parses, checks, calls one operation of a
//! table and answers.

mod brokers;
mod configs;
mod lookups;
mod topics;

use std::sync::Arc;

use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;

use crate::refusal::Refusal;
use crate::routes::{BrokerAddrInfo, Link};
use crate::state::{Saving, State};

pub(crate) use lookups::{RouteRequest, route};

/// What comes of a request.
pub(crate) enum Outcome {
    /// Its answer.
    Answer(RemotingCommand),
    /// SUCCESS, as soon as this is on the disk.
    AfterSaving(Saving),
}

/// Handles every code but 105, which has a way of its own: [`route`].
///
/// `link` is the connection that the request came over. Brokers that register over it are added to `registered`.
pub(crate) fn handle(
    state: &State,
    command: &RemotingCommand,
    link: Arc<dyn Link>,
    registered: &mut Vec<BrokerAddrInfo>,
) -> Result<Outcome, Refusal> {
    let answer = match command.code {
        request::REGISTER_BROKER => brokers::register(state, command, link, registered)?,
        request::UNREGISTER_BROKER => brokers::unregister(state, command)?,
        request::BROKER_HEARTBEAT => brokers::heartbeat(state, command)?,
        request::QUERY_DATA_VERSION => brokers::query_data_version(state, command)?,

        request::GET_BROKER_CLUSTER_INFO => lookups::cluster_info(state),
        request::GET_BROKER_MEMBER_GROUP => lookups::broker_member_group(state, command),
        request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => lookups::all_topics(state)?,
        request::GET_SYSTEM_TOPIC_LIST_FROM_NS => lookups::system_topics(state),
        request::GET_TOPICS_BY_CLUSTER
        | request::GET_UNIT_TOPIC_LIST
        | request::GET_HAS_UNIT_SUB_TOPIC_LIST
        | request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => lookups::some_topics(state, command)?,

        request::REGISTER_TOPIC_IN_NAMESRV => topics::register(state, command)?,
        request::DELETE_TOPIC_IN_NAMESRV => topics::delete(state, command),
        request::WIPE_WRITE_PERM_OF_BROKER => topics::wipe_write_perm(state, command),
        request::ADD_WRITE_PERM_OF_BROKER => topics::add_write_perm(state, command),

        request::GET_KV_CONFIG => configs::get_kv(state, command)?,
        request::GET_KVLIST_BY_NAMESPACE => configs::list_kv(state, command)?,
        request::PUT_KV_CONFIG => return configs::put_kv(state, command),
        request::DELETE_KV_CONFIG => return Ok(configs::delete_kv(state, command)),
        request::GET_NAMESRV_CONFIG => configs::get_config(state),
        request::UPDATE_NAMESRV_CONFIG => return configs::update_config(state, command),

        code => return Err(Refusal::UnknownCode(code)),
    };
    Ok(Outcome::Answer(answer))
}
