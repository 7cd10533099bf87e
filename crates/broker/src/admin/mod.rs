//! What `mqadmin`, the dashboard and the exporter ask a broker (`docs/spec/10-admin.md`).
//!
//! One file per theme. A handler reads its fields, does one thing and answers; [`route`] says who handles what. Requests
//! about topics, groups and offsets that change the tables are handled by those tables.

mod clean;
mod cold_data;
mod config;
mod connections;
mod consume_queue;
mod consume_stats;
mod correction;
mod forward;
mod replication;
mod rocksdb;
mod runtime_info;
mod time_span;
mod topic;

pub(crate) use config::ConfigVersion;
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use serde::Serialize;

use crate::answer::Answer;
use crate::service::Handler::{self, Async, Blocking, Inline};

/// Remark of answers whose handler in RocketMQ forgets to set a code; clients see it as code 0.
const NO_CODE_SET: &str = "not set any response code";

pub(crate) fn route(code: i32) -> Option<Handler> {
    Some(match code {
        request::GET_ALL_TOPIC_CONFIG => Blocking(topic::get_all_topic_config),
        request::GET_TOPIC_CONFIG => Inline(topic::get_topic_config),
        request::GET_TOPIC_STATS_INFO => Blocking(topic::get_topic_stats_info),
        request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER => Inline(topic::get_system_topic_list),
        request::QUERY_TOPIC_CONSUME_BY_WHO => Inline(topic::query_topic_consume_by_who),
        request::QUERY_TOPICS_BY_CONSUMER => Inline(topic::query_topics_by_consumer),

        request::GET_CONSUME_STATS => Blocking(consume_stats::get_consume_stats),
        request::GET_BROKER_CONSUME_STATS => Blocking(consume_stats::get_broker_consume_stats),
        request::QUERY_CONSUME_TIME_SPAN => Blocking(time_span::query_consume_time_span),
        request::QUERY_CORRECTION_OFFSET => Inline(correction::query_correction_offset),
        request::QUERY_CONSUME_QUEUE => Blocking(consume_queue::query_consume_queue),

        request::GET_CONSUMER_CONNECTION_LIST => Inline(connections::get_consumer_connections),
        request::GET_PRODUCER_CONNECTION_LIST => Inline(connections::get_producer_connections),
        request::GET_ALL_PRODUCER_INFO => Inline(connections::get_all_producer_info),
        request::QUERY_SUBSCRIPTION_BY_CONSUMER => Inline(connections::query_subscription),
        request::GET_CONSUMER_RUNNING_INFO => Async(forward::get_consumer_running_info),
        request::CONSUME_MESSAGE_DIRECTLY => Async(forward::consume_message_directly),
        request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS => Async(forward::get_consumer_status),

        request::UPDATE_BROKER_CONFIG => Blocking(config::update_broker_config),
        request::GET_BROKER_CONFIG => Inline(config::get_broker_config),
        request::GET_BROKER_RUNTIME_INFO => Blocking(runtime_info::get_broker_runtime_info),

        request::CLEAN_EXPIRED_CONSUMEQUEUE => Blocking(clean::clean_expired_consume_queue),
        request::CLEAN_UNUSED_TOPIC => Blocking(clean::clean_unused_topic),
        request::DELETE_EXPIRED_COMMITLOG => Blocking(clean::delete_expired_commit_log),

        request::GET_BROKER_HA_STATUS => Inline(replication::get_broker_ha_status),
        request::RESET_MASTER_FLUSH_OFFSET => Inline(replication::reset_master_flush_offset),
        request::GET_BROKER_EPOCH_CACHE => Inline(replication::get_broker_epoch_cache),
        request::NOTIFY_BROKER_ROLE_CHANGED => Inline(replication::notify_broker_role_changed),

        request::UPDATE_COLD_DATA_FLOW_CTR_CONFIG => Inline(cold_data::update_config),
        request::REMOVE_COLD_DATA_FLOW_CTR_CONFIG => Inline(cold_data::remove_config),
        request::GET_COLD_DATA_FLOW_CTR_INFO => Inline(cold_data::get_info),
        request::SET_COMMITLOG_READ_MODE => Inline(cold_data::set_commit_log_read_mode),

        request::CHECK_ROCKSDB_CQ_WRITE_PROGRESS => Inline(rocksdb::check_cq_write_progress),
        request::EXPORT_ROCKSDB_CONFIG_TO_JSON => Inline(rocksdb::export_config_to_json),
        _ => return None,
    })
}

/// Success with a body.
fn answer_body<B: Serialize + ?Sized>(body: &B) -> Answer {
    Ok(RemotingCommand::success().with_body(json::to_vec(body)))
}
