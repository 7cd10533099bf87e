//! Replies as brokers push them: a message whose parts stand in the header (`docs/spec/07-client.md` 10).

use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::command::{FieldError, RemotingCommand};
use ferromq_protocol::message::sysflag;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::compression::decompress;
use super::{MessageExt, Properties, properties as names};

/// The message in a PUSH_REPLY_MESSAGE_TO_CLIENT. A body that can't be decompressed stays as it is.
pub(crate) fn pushed_reply(command: &RemotingCommand, now_ms: i64) -> Result<MessageExt, FieldError> {
    let address = |field| {
        let address = command.field(field).and_then(|text| text.trim_start_matches('/').parse().ok());
        address.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    };
    let encoded = command.field("properties").unwrap_or_default().as_bytes();
    let mut list = Properties::decode(encoded);
    list.insert(names::ARRIVE_TIME, &now_ms.to_string());
    let mut sys_flag: i32 = command.number("sysFlag")?;
    let mut body = command.body.clone();
    if sys_flag & sysflag::COMPRESSED != 0 {
        match decompress(&body, sys_flag) {
            Ok(plain) => (body, sys_flag) = (plain, sys_flag & !sysflag::COMPRESSED),
            Err(reason) => tracing::warn!(%reason, "the body of a reply can't be decompressed"),
        }
    }
    let topic = command.text("topic")?;
    Ok(MessageExt {
        other_topic: None,
        flag: command.number("flag")?,
        properties: list,
        queue: Arc::new(MessageQueue::new(topic, "", command.number("queueId")?)),
        queue_offset: 0,
        commit_log_offset: 0,
        sys_flag,
        born_timestamp: command.number("bornTimestamp")?,
        born_host: address("bornHost"),
        store_timestamp: command.number("storeTimestamp")?,
        store_host: address("storeHost"),
        reconsume_times: command.number_or_none("reconsumeTimes")?.unwrap_or(0),
        prepared_transaction_offset: 0,
        store_size: body.len(),
        body,
    })
}
