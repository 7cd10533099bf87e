//! POP consumers against brokers that follow a script.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use ferromq_client::{Client, Error, PopConsumerBuilder};
use ferromq_protocol::body::{
    BatchAckMessageRequestBody, ConsumerRunningInfo, MessageQueue, MessageRequestMode,
    QueryAssignmentRequestBody,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use support::fake::{self, FakeServer, Reply};
use support::pops::{INVISIBLE, assigning, name_server, popped};

/// A broker that gives these messages to the first pop, and does `other` with what is not a pop.
fn broker(
    messages: &'static [(i64, &str)],
    other: impl Fn(&RemotingCommand) -> Option<RemotingCommand> + Send + Sync + 'static,
) -> FakeServer {
    let given = std::sync::atomic::AtomicBool::new(false);
    FakeServer::start(move |command| match command.code {
        request::POP_MESSAGE if given.swap(true, std::sync::atomic::Ordering::SeqCst) => {
            Reply::Answer(RemotingCommand::error(response::POLLING_TIMEOUT, "nothing"))
        }
        request::POP_MESSAGE => Reply::Answer(popped(messages)),
        request::QUERY_ASSIGNMENT => {
            Reply::Answer(other(command).unwrap_or_else(|| RemotingCommand::success().with_body("{}")))
        }
        _ => Reply::Answer(other(command).unwrap_or_else(RemotingCommand::success)),
    })
}

fn consumer(client: &Client) -> PopConsumerBuilder {
    client.pop_consumer("g").subscribe("T", "A").await_duration(Duration::from_millis(300))
}

#[tokio::test]
async fn a_pop_asks_for_what_is_subscribed_to_and_gives_receipts() {
    let mut broker = broker(&[(100, "A"), (103, "A")], |_| None);
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let consumer = consumer(&client).start().await.unwrap();
    let heartbeat = broker.asked(request::HEART_BEAT).await;
    assert!(String::from_utf8_lossy(&heartbeat.body).contains("CONSUME_POP"));
    let messages = consumer.receive(16, INVISIBLE).await.unwrap();
    let asked = broker.asked(request::POP_MESSAGE).await;
    for (field, value) in [
        ("consumerGroup", "g"),
        ("topic", "T"),
        ("queueId", "-1"),
        ("maxMsgNums", "16"),
        ("invisibleTime", "30000"),
        ("initMode", "1"),
        ("expType", "TAG"),
        ("exp", "A"),
        ("order", "false"),
        ("bname", "a"),
    ] {
        assert_eq!(asked.field(field), Some(value), "{field}");
    }
    let receipts: Vec<_> = messages.iter().map(|message| message.receipt_handle().unwrap()).collect();
    assert_eq!(receipts, ["100 1700000000000 30000 3 0 a 2 100", "100 1700000000000 30000 3 0 a 2 103"]);
    assert_eq!(messages[0].property("1ST_POP_TIME"), Some("1700000000000"));
    assert_eq!(*messages[0].queue, MessageQueue::new("T", "a", 2));
    client.shutdown().await;
    assert!(matches!(consumer.receive(1, INVISIBLE).await, Err(Error::Closed { .. })));
}

#[tokio::test]
async fn acknowledgements_name_the_receipt() {
    let mut broker = broker(&[(100, "A"), (103, "A"), (104, "A")], |command| {
        let changed = RemotingCommand::success().with("popTime", 8).with("invisibleTime", 5000);
        (command.code == request::CHANGE_MESSAGE_INVISIBLETIME).then(|| changed.with("reviveQid", 4))
    });
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let consumer = consumer(&client).start().await.unwrap();
    let mut messages = consumer.receive(32, INVISIBLE).await.unwrap();

    consumer.change_invisible_time(&mut messages[2], Duration::from_secs(5)).await.unwrap();
    let asked = broker.asked(request::CHANGE_MESSAGE_INVISIBLETIME).await;
    assert_eq!((asked.field("offset"), asked.field("invisibleTime")), (Some("104"), Some("5000")));
    assert_eq!(messages[2].receipt_handle(), Some("104 8 5000 4 0 a 2 104"));

    consumer.ack(&messages[2]).await.unwrap();
    let asked = broker.asked(request::ACK_MESSAGE).await;
    assert_eq!(asked.field("extraInfo"), Some("104 8 5000 4 0 a 2 104"));
    assert_eq!((asked.field("topic"), asked.field("queueId")), (Some("T"), Some("2")));

    consumer.ack_all(&messages[..2]).await.unwrap();
    let asked = broker.asked(request::BATCH_ACK_MESSAGE).await;
    let body: BatchAckMessageRequestBody = json::from_slice(&asked.body).unwrap();
    assert_eq!((&*body.broker_name, body.acks.len()), ("a", 1));
    assert_eq!((body.acks[0].start_offset, &*body.acks[0].bit_set), (100, "CQ=="), "bits 0 and 3");

    messages[0].properties.remove("POP_CK");
    assert!(matches!(consumer.ack(&messages[0]).await, Err(Error::Invalid { .. })));
    client.shutdown().await;
}

#[tokio::test]
async fn a_broker_that_knows_no_batches_is_told_one_by_one() {
    let mut broker = broker(&[(100, "A"), (103, "A")], |command| {
        let code = command.code;
        (code == request::BATCH_ACK_MESSAGE).then(|| RemotingCommand::not_supported(code))
    });
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let consumer = consumer(&client).start().await.unwrap();
    let messages = consumer.receive(32, INVISIBLE).await.unwrap();
    consumer.ack_all(&messages).await.unwrap();
    assert_eq!(broker.asked(request::ACK_MESSAGE).await.field("offset"), Some("100"));
    assert_eq!(broker.asked(request::ACK_MESSAGE).await.field("offset"), Some("103"));
    client.shutdown().await;
}

#[tokio::test]
async fn a_message_whose_tag_only_has_the_same_hash_is_put_away() {
    // The Java hashes of both are 2112.
    let mut broker = broker(&[(100, "BB"), (101, "Aa")], |_| None);
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let consumer = client.pop_consumer("g").subscribe("T", "Aa").start().await.unwrap();
    let messages = consumer.receive(32, INVISIBLE).await.unwrap();
    assert_eq!(messages.iter().map(|message| message.queue_offset).collect::<Vec<_>>(), [101]);
    assert_eq!(broker.asked(request::ACK_MESSAGE).await.field("offset"), Some("100"));
    client.shutdown().await;
}

#[tokio::test]
async fn a_group_that_is_set_up_for_pop_pops_what_it_is_assigned() {
    let mut broker = broker(&[(100, "A")], |command| {
        (command.code == request::QUERY_ASSIGNMENT).then(|| assigning(MessageRequestMode::Pop, 2))
    });
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let consumer = consumer(&client).start().await.unwrap();
    assert_eq!(consumer.receive(1, INVISIBLE).await.unwrap().len(), 1);
    let asked = broker.asked(request::QUERY_ASSIGNMENT).await;
    let body: QueryAssignmentRequestBody = json::from_slice(&asked.body).unwrap();
    assert_eq!((&*body.client_id, &*body.strategy_name, &*body.topic), (client.id(), "AVG", "T"));
    assert_eq!(broker.asked(request::POP_MESSAGE).await.field("queueId"), Some("2"));
    client.shutdown().await;
}

#[tokio::test]
async fn administrators_see_what_the_application_has() {
    let mut broker = broker(&[(100, "A"), (103, "A"), (104, "A")], |_| None);
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let consumer = consumer(&client).start().await.unwrap();
    let connection = broker.connection().await;
    let running_info = async || {
        let asked = RemotingCommand::request(request::GET_CONSUMER_RUNNING_INFO).with("consumerGroup", "g");
        let answer = connection.invoke(asked, Duration::from_secs(5)).await.unwrap();
        json::from_slice::<ConsumerRunningInfo>(&answer.body).unwrap()
    };
    let messages = consumer.receive(32, INVISIBLE).await.unwrap();
    let popped_from = MessageQueue::new("T", "a", -1);
    let popped = running_info().await.mq_pop_table[&popped_from];
    assert_eq!((popped.wait_ack_count, popped.last_pop_timestamp > 0), (3, true));
    consumer.ack(&messages[0]).await.unwrap();
    consumer.forward_to_dead_letter_queue(&messages[1]).await.unwrap();
    let info = running_info().await;
    assert_eq!(info.mq_pop_table[&popped_from].wait_ack_count, 1);
    let status = info.status_table["T"];
    assert!(status.pull_tps > status.consume_ok_tps && status.consume_ok_tps > 0.0, "{status:?}");
    assert_eq!((status.consume_failed_msgs, status.consume_ok_tps), (1, status.consume_failed_tps));
    assert_eq!(info.properties["PROP_CONSUME_TYPE"], "CONSUME_POP");
    client.shutdown().await;
}

#[tokio::test]
async fn what_can_t_be_asked_for_is_refused() {
    let broker = broker(&[], |_| None);
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let nothing = client.pop_consumer("g").start().await.unwrap();
    assert!(matches!(nothing.receive(1, INVISIBLE).await, Err(Error::Invalid { .. })));
    nothing.subscribe("T", "A").await.unwrap();
    for (count, invisible) in [(0, INVISIBLE), (33, INVISIBLE), (1, Duration::ZERO)] {
        assert!(matches!(nothing.receive(count, invisible).await, Err(Error::Invalid { .. })));
    }
    client.shutdown().await;
}
