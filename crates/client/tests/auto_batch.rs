//! Automatic batching: which sends share a request, and what each of them learns.
//!
//! Messages are held back for half a minute here, so that it is the test that says when a batch ends: when it is full, or the
//! producer is shut down.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use ferromq_client::{
    Client, ConsumeFrom, Delivery, Error, Message, MessageQueue, Producer, ProducerBuilder, SendResult,
    select_by_hash,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::batch;
use support::fake::{self, FakeServer, Reply, stored};
use support::inbox::Inbox;
use support::{Cluster, PATIENCE, eventually};

/// A producer that sends a batch when it is full, and not before.
fn patient(client: &Client) -> ProducerBuilder {
    client.producer("pg").auto_batch(true).batch_max_delay(Duration::from_secs(30))
}

type Send<'a> = Pin<Box<dyn Future<Output = Result<SendResult, Error>> + 'a>>;

/// A send whose message is held back.
async fn held<'a>(send: impl Future<Output = Result<SendResult, Error>> + 'a) -> Send<'a> {
    let mut send: Send<'a> = Box::pin(send);
    poll_fn(|context| {
        let polled = send.as_mut().poll(context);
        assert!(polled.is_pending(), "{polled:?}");
        Poll::Ready(())
    })
    .await;
    send
}

async fn held_all<'a>(producer: &'a Producer, messages: impl IntoIterator<Item = Message>) -> Vec<Send<'a>> {
    let mut sends = Vec::new();
    for message in messages {
        sends.push(held(producer.send(message)).await);
    }
    sends
}

async fn results(sends: Vec<Send<'_>>) -> Vec<SendResult> {
    let mut results = Vec::new();
    for send in sends {
        results.push(send.await.unwrap());
    }
    results
}

fn offsets(results: &[SendResult]) -> Vec<i64> {
    results.iter().map(|result| result.queue_offset).collect()
}

/// Sends all messages to a topic with one queue on a broker that answers all sends in this way.
fn fakes(answer: RemotingCommand) -> (FakeServer, FakeServer, Client) {
    let broker = fake::broker(move |_| Reply::Answer(answer.clone()));
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let client = fake::client(&name_server).start().unwrap();
    (name_server, broker, client)
}

fn bodies(request: &RemotingCommand) -> Vec<String> {
    let messages = batch::iter(&request.body).map(|message| message.unwrap().body);
    messages.map(|body| String::from_utf8_lossy(body).into_owned()).collect()
}

#[tokio::test]
async fn sends_at_one_time_are_a_batch_and_each_has_its_own_result() {
    let cluster = Cluster::start(1).await;
    let (client, inbox) = (cluster.client().start().unwrap(), Inbox::default());
    cluster.fill("T", 1).await;
    let producer = patient(&client).topics(["T"]).start().await.unwrap();
    let sends = held_all(&producer, (0..100).map(|number| Message::new("T", number.to_string()))).await;
    producer.shutdown().await;
    let results = results(sends).await;
    let first = results[0].queue_offset;
    assert_eq!(offsets(&results), (first..first + 100).collect::<Vec<_>>());
    assert!(results.iter().all(|result| result.queue == results[0].queue), "a batch is in one queue");
    let ids: std::collections::BTreeSet<_> = results.iter().map(|result| &result.msg_id).collect();
    assert_eq!(ids.len(), 100);

    let got = inbox.clone();
    let consumer = client.push_consumer("g").subscribe("T", "*").consume_from(ConsumeFrom::FirstOffset);
    let _consumer = consumer
        .listener(move |delivery: Delivery| {
            got.put("c", &delivery);
            async { Ok::<(), Error>(()) }
        })
        .start()
        .await
        .unwrap();
    eventually("all messages", async || inbox.len() == 101).await;
    for (number, result) in results.iter().enumerate() {
        let messages = inbox.messages();
        let stored = messages.iter().find(|message| message.offset_msg_id() == result.offset_msg_id).unwrap();
        assert_eq!(
            (stored.body.to_vec(), stored.queue_offset),
            (number.to_string().into(), result.queue_offset)
        );
    }
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn sends_to_a_chosen_queue_share_a_batch_of_that_queue() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    cluster.fill("T", 1).await;
    let producer = patient(&client).topics(["T"]).start().await.unwrap();
    let queues = producer.fetch_publish_message_queues("T").await.unwrap();
    let of_key = select_by_hash(&queues, "key").unwrap();
    let other = queues.iter().find(|queue| *queue != of_key).unwrap();
    let mut sends = Vec::new();
    for _ in 0..3 {
        sends.push(held(producer.send(Message::new("T", "x").sharding_key("key"))).await);
        sends.push(held(producer.send_to_queue(Message::new("T", "x"), other)).await);
    }
    producer.shutdown().await;
    let results = results(sends).await;
    let of = |queue: &MessageQueue| -> Vec<i64> {
        let results = results.iter().filter(|result| result.queue == *queue);
        results.map(|result| result.queue_offset).collect()
    };
    for queue in [of_key, other] {
        let offsets = of(queue);
        assert_eq!(offsets, (offsets[0]..offsets[0] + 3).collect::<Vec<_>>(), "{queue}");
    }
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_batch_is_sent_when_it_is_full() {
    let (_names, mut broker, client) = fakes(stored(response::SUCCESS));
    let producer = patient(&client).topics(["T"]).batch_max_bytes(1000).start().await.unwrap();
    let body = |number: usize| format!("{number}{}", "x".repeat(200));
    let sends = held_all(&producer, (0..7).map(|number| Message::new("T", body(number)))).await;
    for batch in [0..3, 3..6] {
        let request = broker.asked(request::SEND_BATCH_MESSAGE).await;
        assert_eq!(bodies(&request), batch.map(body).collect::<Vec<_>>());
    }
    producer.shutdown().await;
    assert_eq!(offsets(&results(sends).await), [7, 8, 9, 7, 8, 9, 7], "each batch of the script begins at 7");
    assert_eq!(broker.count(request::SEND_MESSAGE_V2), 1, "the last one has nobody to share with");
    client.shutdown().await;
}

#[tokio::test]
async fn a_dropped_send_changes_nothing_for_the_others() {
    let (_names, mut broker, client) = fakes(stored(response::SUCCESS));
    let producer = patient(&client).topics(["T"]).start().await.unwrap();
    let mut sends = held_all(&producer, ["a", "b", "c"].map(|body| Message::new("T", body))).await;
    drop(sends.remove(1));
    producer.shutdown().await;
    assert_eq!(offsets(&results(sends).await), [7, 9]);
    assert_eq!(bodies(&broker.asked(request::SEND_BATCH_MESSAGE).await), ["a", "b", "c"]);
    client.shutdown().await;
}

#[tokio::test]
async fn messages_that_can_t_be_in_a_batch_do_not_wait() {
    let (_names, mut broker, client) = fakes(stored(response::SUCCESS));
    let producer = patient(&client).topics(["T"]).start().await.unwrap();
    let waiting = held(producer.send(Message::new("T", "waits"))).await;
    producer.send(Message::new("T", "delayed").delay_level(1)).await.unwrap();
    producer.send(Message::new("T", "timer").deliver_after(Duration::from_secs(1))).await.unwrap();
    producer.send(Message::new("T", vec![b'x'; 100_000])).await.unwrap();
    producer.send(Message::new("%RETRY%g", "retry")).await.unwrap();
    producer.send_with_timeout(Message::new("T", "hurries"), Duration::from_secs(3)).await.unwrap();
    let wrong = producer.send(Message::new("T", "")).await;
    assert!(matches!(wrong, Err(Error::Invalid { .. })), "{wrong:?}");
    assert_eq!(broker.count(request::SEND_MESSAGE_V2), 5);
    producer.shutdown().await;
    waiting.await.unwrap();
    let late = producer.send(Message::new("T", "late")).await;
    assert!(matches!(late, Err(Error::Closed { .. })), "{late:?}");
    client.shutdown().await;
}

#[tokio::test]
async fn too_much_that_is_held_back_makes_the_next_ones_go_alone() {
    let (_names, _broker, client) = fakes(stored(response::SUCCESS));
    let producer = patient(&client).topics(["T"]).total_batch_max_bytes(1).start().await.unwrap();
    let waiting = held(producer.send(Message::new("T", "waits"))).await;
    producer.send(Message::new("T", "is one too many")).await.unwrap();
    // The client's end is an orderly end of its producers, too.
    client.shutdown().await;
    waiting.await.unwrap();
}

#[tokio::test]
async fn two_ends_at_one_time_leave_nobody_waiting() {
    let (_names, _broker, client) = fakes(stored(response::SUCCESS));
    let producer = patient(&client).topics(["T"]).start().await.unwrap();
    let waiting = held(producer.send(Message::new("T", "waits"))).await;
    // The second one does not wait for the orderly end that the first one has begun.
    tokio::join!(client.shutdown(), client.shutdown());
    let answer = tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    assert!(matches!(answer, Ok(_) | Err(Error::Closed { .. })), "{answer:?}");
}

#[tokio::test]
async fn one_way_messages_are_batched_and_sent_before_the_end() {
    let (_names, mut broker, client) = fakes(stored(response::SUCCESS));
    let producer = patient(&client).topics(["T"]).start().await.unwrap();
    for number in 0..3 {
        producer.send_oneway(Message::new("T", number.to_string()).tag("A")).await.unwrap();
    }
    producer.shutdown().await;
    let request = broker.asked(request::SEND_BATCH_MESSAGE).await;
    assert!(request.is_oneway());
    assert_eq!(bodies(&request), ["0", "1", "2"]);
    client.shutdown().await;
}

#[tokio::test]
async fn a_refusal_is_told_to_everyone() {
    let refusal = RemotingCommand::error(response::MESSAGE_ILLEGAL, "not like this");
    let (_names, _broker, client) = fakes(refusal);
    let producer = patient(&client).topics(["T"]).start().await.unwrap();
    let sends = held_all(&producer, ["a", "b"].map(|body| Message::new("T", body))).await;
    producer.shutdown().await;
    for send in sends {
        let error = send.await.unwrap_err();
        assert_eq!((error.response_code(), error.remark()), (Some(13), Some("not like this")));
    }
    client.shutdown().await;
}

#[tokio::test]
async fn nobody_waits_longer_than_the_delay() {
    let (_names, mut broker, client) = fakes(stored(response::SUCCESS));
    let producer = client.producer("pg").auto_batch(true).topics(["T"]).start().await.unwrap();
    producer.send(Message::new("T", "alone")).await.unwrap();
    let sends = held_all(&producer, ["a", "b"].map(|body| Message::new("T", body))).await;
    results(sends).await;
    broker.asked(request::SEND_MESSAGE_V2).await;
    broker.asked(request::SEND_BATCH_MESSAGE).await;
    client.shutdown().await;
}
