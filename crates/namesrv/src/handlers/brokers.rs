//! Brokers come, stay and go: 103, 104, 322, 904.

use std::sync::Arc;

use ferromq_protocol::body::{
    DataVersion, RegisterBrokerBody, RegistrationError, TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
};
use ferromq_protocol::command::{FieldError, RemotingCommand};
use ferromq_protocol::{json, version};

use super::lookups::ZONE_NAME;
use crate::kv::ORDER_TOPIC_CONFIG;
use crate::refusal::Refusal;
use crate::routes::{BrokerAddrInfo, Completeness, Link, Registration, Unregistration};
use crate::state::State;

/// Header field of FerroMQ's brokers: whether the registration names all topics. RocketMQ ignores it.
const COMPLETE: &str = "ferromqComplete";

/// Most brokers that are remembered as registered over one connection; the others leave only by silence. A container
/// of brokers shares a connection, but not among that many.
const REGISTERED_MAX: usize = 1024;

/// First byte of a zlib stream; no JSON text begins with it.
const ZLIB_MARK: u8 = 0x78;

pub(super) fn register(
    state: &State,
    command: &RemotingCommand,
    link: Arc<dyn Link>,
    registered: &mut Vec<BrokerAddrInfo>,
) -> Result<RemotingCommand, Refusal> {
    let expected_crc = command.number_or_none::<i32>("bodyCrc32").unwrap_or(None).unwrap_or(0);
    let crc = (crc32fast::hash(&command.body) & 0x7fff_ffff) as i32;
    if expected_crc != 0 && expected_crc != crc {
        return Err(Refusal::CrcMismatch);
    }
    let (topics, filter_servers) = decode(command)?;
    let broker_id = command.number("brokerId")?;

    let mut answer = RemotingCommand::success().with_field_map();
    if let (Ok(broker), Some(broker_name)) = (broker_addr(command), command.field("brokerName")) {
        if !registered.contains(&broker) && registered.len() < REGISTERED_MAX {
            registered.push(broker.clone());
        }
        let registration = Registration {
            broker,
            broker_name: broker_name.to_owned(),
            broker_id,
            ha_server_addr: command.field("haServerAddr").map(str::to_owned),
            heartbeat_timeout_ms: command.number_or_none("heartbeatTimeoutMillis").unwrap_or(None),
            enable_acting_master: command
                .field("enableActingMaster")
                .map(|_| command.boolean("enableActingMaster")),
            zone_name: command.field(ZONE_NAME).map(str::to_owned),
            completeness: match command.field(COMPLETE) {
                None => Completeness::Unstated,
                Some(_) if command.boolean(COMPLETE) => Completeness::Complete,
                Some(_) => Completeness::Incremental,
            },
            topics,
            filter_servers,
            link,
        };
        let config = state.config.load();
        let registered = state.routes.write().register(registration, &config, state.now_ms())?;
        answer = answer.with_some("haServerAddr", registered.ha_server_addr);
        answer = answer.with_some("masterAddr", registered.master_addr);
        if let Some(notice) = registered.notice {
            state.notify(notice);
        }
    } else {
        warn_now_and_then!("registration without the names or the address of the broker is ignored");
    }
    if state.config.load().return_order_topic_config_to_broker
        && let Some(table) = state.kv.list(ORDER_TOPIC_CONFIG)
    {
        answer = answer.with_body(json::to_vec(&table));
    }
    Ok(answer)
}

type Topics = (TopicConfigAndMappingSerializeWrapper, Option<Vec<String>>);

/// The topics and filter servers of a registration's body (3.2).
fn decode(command: &RemotingCommand) -> Result<Topics, RegistrationError> {
    let body = &command.body[..];
    if command.version < version::V3_0_11 {
        let topics: TopicConfigSerializeWrapper =
            if body.is_empty() { TopicConfigSerializeWrapper::default() } else { json::from_slice(body)? };
        let TopicConfigSerializeWrapper { data_version, topic_config_table } = topics;
        let topics =
            TopicConfigAndMappingSerializeWrapper { data_version, topic_config_table, ..Default::default() };
        return Ok((topics, None));
    }
    // Brokers with `compressedRegister=true` compress the body and say that it is not (15.14).
    let is_compressed = command.boolean("compressed") && !body.is_empty() || body.first() == Some(&ZLIB_MARK);
    let body = if is_compressed {
        RegisterBrokerBody::decode_compressed(body, command.version >= version::V5_0_0)?
    } else {
        RegisterBrokerBody::decode(body)?
    };
    Ok((body.topic_config_serialize_wrapper, Some(body.filter_server_list)))
}

pub(super) fn unregister(state: &State, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    if let (Ok(broker), Some(broker_name)) = (broker_addr(command), command.field("brokerName")) {
        state.remove(Unregistration {
            broker,
            broker_name: broker_name.to_owned(),
            broker_id: command.number_or_none("brokerId").unwrap_or(None),
            link: None,
        })?;
    }
    Ok(RemotingCommand::success())
}

pub(super) fn heartbeat(state: &State, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
    state.routes.read().heartbeat(&broker_addr(command)?, state.now_ms());
    Ok(RemotingCommand::success())
}

pub(super) fn query_data_version(
    state: &State,
    command: &RemotingCommand,
) -> Result<RemotingCommand, Refusal> {
    let asked: Option<DataVersion> =
        if command.body.is_empty() { None } else { Some(json::from_slice(&command.body)?) };
    let broker = broker_addr(command)?;
    let known = {
        let routes = state.routes.read();
        routes.heartbeat(&broker, state.now_ms());
        routes.data_version(&broker)
    };
    let changed = known.is_none() || known != asked;
    let answer = RemotingCommand::success().with("changed", changed);
    Ok(match known {
        Some(known) => answer.with_body(json::to_vec(&known)),
        None => answer,
    })
}

fn broker_addr(command: &RemotingCommand) -> Result<BrokerAddrInfo, FieldError> {
    Ok(BrokerAddrInfo {
        cluster_name: command.text("clusterName")?.to_owned(),
        broker_addr: command.text("brokerAddr")?.to_owned(),
    })
}
