//! The message trace: what producers and consumers write down, and what happens when they can't.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::admin::{Admin, ConsumeReturn, MessageType, TraceRecord};
use ferromq_client::{Client, ConsumeFrom, ConsumeResult, Delivery, Message, PushConsumer, SendResult};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::TRACE_TOPIC;
use support::fake::{FakeServer, Reply, broker, client, name_server, route, stored};
use support::{Cluster, eventually};

/// Everything that is written down about a message or key, when it is so many records.
async fn records(admin: &Admin, trace_topic: &str, id_or_key: &str, count: usize) -> Vec<TraceRecord> {
    let mut records = Vec::new();
    eventually("the trace", async || {
        let traces = admin.message_trace(trace_topic, id_or_key, 0..i64::MAX).await.unwrap_or_default();
        records = traces.into_iter().map(|trace| trace.record).collect();
        records.len() >= count
    })
    .await;
    assert_eq!(records.len(), count, "{records:?}");
    records
}

/// A consumer with a trace that fails `failures` times, and when it has succeeded.
async fn consumer(client: &Client, topic: &str, failures: usize) -> (PushConsumer, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let builder = client.push_consumer("g").enable_trace(true).subscribe(topic, "*");
    let consumer = builder
        .consume_from(ConsumeFrom::FirstOffset)
        .listener(move |_: Delivery| {
            let fails = counter.fetch_add(1, Ordering::Relaxed) < failures;
            async move { if fails { ConsumeResult::reconsume_later() } else { ConsumeResult::success() } }
        })
        .start()
        .await
        .unwrap();
    (consumer, calls)
}

#[tokio::test]
async fn a_message_s_way_can_be_followed() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("p").enable_trace(true).start().await.unwrap();
    let message = Message::new("T", "hello").tag("A").keys(["order-1", "table-3"]);
    let sent = producer.send(message).await.unwrap();
    let (consumer, calls) = consumer(&client, "T", 1).await;
    eventually("one failure and one success", async || calls.load(Ordering::Relaxed) == 2).await;
    // Nothing of it has to wait: an orderly end sends what is there.
    producer.shutdown().await;
    consumer.shutdown().await;

    let admin = client.admin();
    let mut records = records(&admin, TRACE_TOPIC, &sent.msg_id, 5).await;
    let TraceRecord::Pub {
        group, topic, tags, keys, body_length, message_type, offset_msg_id, success, ..
    } = records.remove(0)
    else {
        panic!("the send is first")
    };
    assert_eq!((&*group, &*topic, body_length, success), ("p", "T", 5, true));
    assert_eq!((tags.as_deref(), keys.as_deref()), (Some("A"), Some("order-1 table-3")));
    assert_eq!((message_type, offset_msg_id), (MessageType::Normal, Some(sent.offset_msg_id)));
    let mut begins = Vec::new();
    for record in &records {
        if let TraceRecord::SubBefore { request_id, group, region_id, retry_times, .. } = record {
            assert_eq!((&**group, &**region_id), ("g", "DefaultRegion"));
            begins.push((request_id.clone(), *retry_times));
        }
    }
    let mut ends = Vec::new();
    for record in &records {
        if let TraceRecord::SubAfter { request_id, success, returned, group, .. } = record {
            assert_eq!(group.as_deref(), Some("g"));
            ends.push((request_id.clone(), *success, *returned));
        }
    }
    let requests = (begins[0].0.clone(), begins[1].0.clone());
    assert_eq!((begins[0].1, begins[1].1), (0, 1));
    assert_eq!(
        ends,
        [(requests.0, false, Some(ConsumeReturn::Failed)), (requests.1, true, Some(ConsumeReturn::Success))]
    );
    let by_key = admin.message_trace(TRACE_TOPIC, "table-3", 0..i64::MAX).await.unwrap();
    assert_eq!(by_key.len(), 5, "{by_key:?}");
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn every_message_of_a_batch_is_found() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("p").enable_trace(true).trace_topic("Traces").start().await.unwrap();
    let messages = vec![Message::new("T", "one"), Message::new("T", "three").keys(["k"])];
    let sent = producer.send_batch(messages).await.unwrap();
    // The client's end is an orderly end of its producers.
    client.shutdown().await;

    let client = cluster.client().start().unwrap();
    let ids: Vec<&str> = sent.msg_id.split(',').collect();
    let offset_ids: Vec<&str> = sent.offset_msg_id.split(',').collect();
    for (position, length) in [3, 5].into_iter().enumerate() {
        let records = records(&client.admin(), "Traces", ids[position], 1).await;
        let [TraceRecord::Pub { body_length, offset_msg_id, .. }] = &records[..] else {
            panic!("{records:?}")
        };
        assert_eq!((*body_length, offset_msg_id.as_deref()), (length, Some(offset_ids[position])));
    }
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_lite_pull_consumer_traces_what_it_hands_out() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("p").start().await.unwrap();
    let sent = producer.send(Message::new("T", "x")).await.unwrap();
    let builder = client.lite_pull_consumer("g").subscribe("T", "*").consume_from(ConsumeFrom::FirstOffset);
    let consumer = builder.enable_trace(true).start().await.unwrap();
    eventually("the message", async || !consumer.poll(Duration::from_millis(200)).await.is_empty()).await;
    consumer.shutdown().await;
    let records = records(&client.admin(), TRACE_TOPIC, &sent.msg_id, 2).await;
    assert!(matches!(
        records[..],
        [TraceRecord::SubBefore { .. }, TraceRecord::SubAfter { success: true, .. }]
    ));
    client.shutdown().await;
    cluster.shutdown().await;
}

/// A name server that knows one broker for every topic but, if `without_trace`, that of the trace.
fn servers(answer: RemotingCommand, without_trace: bool) -> (FakeServer, FakeServer) {
    let broker = broker(move |_| Reply::Answer(answer.clone()));
    let address = broker.address.clone();
    let routes = move || route(&[("a", &address)]);
    if !without_trace {
        return (name_server(routes), broker);
    }
    let names = FakeServer::start(move |command| {
        let topic = command.field("topic").unwrap_or_default();
        Reply::Answer(if topic == "T" {
            RemotingCommand::success().with_body(json::to_vec_standard(&routes()))
        } else {
            RemotingCommand::error(response::TOPIC_NOT_EXIST, "no such topic")
        })
    });
    (names, broker)
}

async fn send_one(name_server: &FakeServer, topic: &str) -> SendResult {
    let client = client(name_server).start().unwrap();
    let producer = client.producer("p").enable_trace(true).start().await.unwrap();
    let sent = producer.send(Message::new(topic, "x")).await.unwrap();
    client.shutdown().await;
    sent
}

#[tokio::test]
async fn what_is_not_wanted_is_not_traced() {
    let wanted = stored(response::SUCCESS);
    let unwanted = stored(response::SUCCESS).with("TRACE_ON", false);
    // The message, and its trace unless the broker does not want it or it is a trace itself.
    for (answer, topic, sends) in [(&wanted, "T", 2), (&unwanted, "T", 1), (&wanted, TRACE_TOPIC, 1)] {
        let (names, mut broker) = servers(answer.clone(), false);
        send_one(&names, topic).await;
        assert_eq!(broker.count(request::SEND_MESSAGE_V2), sends, "{topic}, {answer:?}");
        broker.stop();
        names.stop();
    }
}

#[tokio::test]
async fn a_trace_that_can_t_be_written_costs_nothing_but_itself() {
    let (names, mut broker) = servers(stored(response::SUCCESS), true);
    let sent = send_one(&names, "T").await;
    assert_eq!(sent.queue_offset, 7);
    assert_eq!(broker.count(request::SEND_MESSAGE_V2), 1);
    broker.stop();
    names.stop();
}
