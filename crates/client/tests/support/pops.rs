//! What brokers say that lend messages.

use std::time::Duration;

use ferromq_protocol::body::{
    MessageQueue, MessageQueueAssignment, MessageRequestMode, QueryAssignmentResponseBody,
};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::message::{RecordFields, set_log_fields};

use super::fake::{self, FakeServer};

/// For how long messages are lent.
pub(crate) const INVISIBLE: Duration = Duration::from_secs(30);

/// A stored message at this offset of queue 2 of the topic `T`. A number as its tag is how often it was tried before.
pub(crate) fn record(offset: i64, tag: &str) -> Vec<u8> {
    let host = "127.0.0.1:10911".parse().unwrap();
    let properties = format!("TAGS\u{1}{tag}\u{2}UNIQ_KEY\u{1}id-{offset}\u{2}");
    let fields = RecordFields {
        properties: properties.as_bytes(),
        reconsume_times: tag.parse().unwrap_or(0),
        ..RecordFields::new("T", 2, host, b"x")
    };
    let mut bytes = Vec::new();
    fields.encode_into(&mut bytes).unwrap();
    set_log_fields(&mut bytes, offset, 4096, 0);
    bytes
}

/// An answer to a pop that brings these messages of queue 2.
pub(crate) fn popped(messages: &[(i64, &str)]) -> RemotingCommand {
    let offsets: Vec<_> = messages.iter().map(|(offset, _)| offset.to_string()).collect();
    RemotingCommand::success()
        .with("popTime", 1_700_000_000_000_i64)
        .with("invisibleTime", INVISIBLE.as_millis())
        .with("reviveQid", 3)
        .with("restNum", 0)
        .with("startOffsetInfo", "0 2 100")
        .with("msgOffsetInfo", format!("0 2 {}", offsets.join(",")))
        .with_body(messages.iter().flat_map(|(offset, tag)| record(*offset, tag)).collect::<Vec<u8>>())
}

/// An answer that assigns a queue of the topic `T`, to be pulled or popped from.
pub(crate) fn assigning(mode: MessageRequestMode, queue_id: i32) -> RemotingCommand {
    let message_queue = MessageQueue::new("T", "a", queue_id);
    let assigned = MessageQueueAssignment { message_queue, mode, ..MessageQueueAssignment::default() };
    let body = QueryAssignmentResponseBody { message_queue_assignments: Some(vec![assigned]) };
    RemotingCommand::success().with_body(json::to_vec(&body))
}

pub(crate) fn name_server(broker: &FakeServer) -> FakeServer {
    let address = broker.address.clone();
    fake::name_server(move || fake::route(&[("a", &address)]))
}
