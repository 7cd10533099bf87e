//! The few requests that tests of a broker are made of.

use std::time::{SystemTime, UNIX_EPOCH};

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::RecordView;

use super::client::Client;

/// Subscription in the header (`docs/spec/03-broker.md` 3.1).
const PULL_FLAG_SUBSCRIPTION: i32 = 4;

/// A stored message as a consumer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) offset: i64,
    pub(crate) body: String,
}

/// Creates a topic.
pub(crate) fn create_topic(client: &mut Client, topic: &str, queues: i32) {
    create_topic_with(client, topic, queues, "");
}

/// Creates a topic with attributes, as in `+queue.type=BatchCQ`.
pub(crate) fn create_topic_with(client: &mut Client, topic: &str, queues: i32, attributes: &str) {
    let answer = client.call(
        RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
            .with("topic", topic)
            .with("defaultTopic", "TBW102")
            .with("readQueueNums", queues)
            .with("writeQueueNums", queues)
            .with("perm", 6)
            .with("topicFilterType", "SINGLE_TAG")
            .with("topicSysFlag", 0)
            .with("order", false)
            .with("attributes", attributes),
    );
    assert_eq!(answer.code, response::SUCCESS, "creating {topic}: {answer:?}");
}

/// A send (310) to one queue.
pub(crate) fn send(topic: &str, queue: i32, body: impl Into<Vec<u8>>) -> RemotingCommand {
    send_with("TAGS\u{1}A\u{2}WAIT\u{1}true\u{2}", topic, queue, body)
}

/// A send whose message is to be delivered after the time of a delay level.
pub(crate) fn send_delayed(topic: &str, queue: i32, level: i32, body: impl Into<Vec<u8>>) -> RemotingCommand {
    send_with(&format!("DELAY\u{1}{level}\u{2}"), topic, queue, body)
}

fn send_with(properties: &str, topic: &str, queue: i32, body: impl Into<Vec<u8>>) -> RemotingCommand {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    RemotingCommand::request(request::SEND_MESSAGE_V2)
        .with("a", "test-producer")
        .with("b", topic)
        .with("c", "TBW102")
        .with("d", 4)
        .with("e", queue)
        .with("f", 0)
        .with("g", now_ms)
        .with("h", 0)
        .with("i", properties)
        .with("j", 0)
        .with("k", false)
        .with("m", false)
        .with_body(body.into())
}

/// A pull (11) that does not wait.
pub(crate) fn pull(group: &str, topic: &str, queue: i32, offset: i64) -> RemotingCommand {
    RemotingCommand::request(request::PULL_MESSAGE)
        .with("consumerGroup", group)
        .with("topic", topic)
        .with("queueId", queue)
        .with("queueOffset", offset)
        .with("maxMsgNums", 32)
        .with("sysFlag", PULL_FLAG_SUBSCRIPTION)
        .with("commitOffset", 0)
        .with("suspendTimeoutMillis", 0)
        .with("subscription", "*")
        .with("subVersion", 1)
        .with("expressionType", "TAG")
}

/// Everything from `offset` to the queue's end, by pulling; the offsets are dense.
pub(crate) fn read_queue(client: &mut Client, topic: &str, queue: i32, mut offset: i64) -> Vec<Stored> {
    let mut messages = Vec::new();
    loop {
        let answer = client.call(pull("test-reader", topic, queue, offset));
        if answer.code == response::PULL_NOT_FOUND {
            let end: i64 = answer.number("maxOffset").expect("the queue's end");
            assert_eq!(offset, end, "{topic}/{queue}: all messages up to the end are found");
            return messages;
        }
        assert_eq!(answer.code, response::SUCCESS, "{topic}/{queue} at {offset}: {answer:?}");
        let mut rest = &answer.body[..];
        while !rest.is_empty() {
            let record = RecordView::parse(rest).expect("a stored message");
            rest = &rest[record.size()..];
            assert_eq!((record.queue_id(), record.queue_offset()), (queue, offset), "offsets are dense");
            let body = String::from_utf8(record.body().to_vec()).expect("a body that a test sent");
            messages.push(Stored { offset, body });
            offset += 1;
        }
    }
}
