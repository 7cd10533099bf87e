//! Lite pull consumers against a real broker.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferromq_client::{Client, ConsumeFrom, LitePullConsumer, LitePullConsumerBuilder, Message, MessageQueue};
use support::{Cluster, eventually};

fn consumer(client: &Client) -> LitePullConsumerBuilder {
    client.lite_pull_consumer("g").consume_from(ConsumeFrom::FirstOffset)
}

/// Polls until `count` messages have come, and returns how often each body did.
async fn poll(consumer: &LitePullConsumer, count: usize) -> BTreeMap<String, usize> {
    let mut bodies: BTreeMap<String, usize> = BTreeMap::new();
    eventually("enough messages", async || {
        for message in consumer.poll(Duration::from_millis(50)).await {
            *bodies.entry(String::from_utf8_lossy(&message.body).into_owned()).or_default() += 1;
        }
        bodies.values().sum::<usize>() >= count
    })
    .await;
    bodies
}

fn each_once(numbers: std::ops::Range<usize>) -> BTreeMap<String, usize> {
    numbers.map(|number| (number.to_string(), 1)).collect()
}

#[tokio::test]
async fn polled_messages_are_committed_and_do_not_come_again() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 30).await;
    let client = cluster.client().start().unwrap();
    let first = consumer(&client).subscribe("T", "*").start().await.unwrap();
    assert_eq!(poll(&first, 30).await, each_once(0..30));
    assert!(first.poll(Duration::ZERO).await.is_empty());
    first.shutdown().await;

    let producer = client.producer("pg").start().await.unwrap();
    producer.send(Message::new("T", "30")).await.unwrap();
    let second = consumer(&client).subscribe("T", "*").start().await.unwrap();
    assert_eq!(poll(&second, 1).await, each_once(30..31));
    client.shutdown().await;
    assert!(second.poll(Duration::from_secs(60)).await.is_empty(), "a poll ends with its consumer");
    cluster.shutdown().await;
}

#[tokio::test]
async fn what_was_not_committed_comes_again() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 8).await;
    let client = cluster.client().start().unwrap();
    let first = consumer(&client).subscribe("T", "*").auto_commit(false).start().await.unwrap();
    poll(&first, 8).await;
    first.shutdown().await;
    let second = consumer(&client).subscribe("T", "*").auto_commit(false).start().await.unwrap();
    assert_eq!(poll(&second, 8).await, each_once(0..8));
    second.commit();
    second.shutdown().await;
    let third = consumer(&client).subscribe("T", "*").start().await.unwrap();
    for queue in third.fetch_message_queues("T").await.unwrap() {
        assert_eq!(third.committed(&queue).await.unwrap(), Some(2), "{queue}");
    }
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn assigned_queues_can_be_sought_and_paused() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 40).await;
    let client = cluster.client().start().unwrap();
    let consumer = consumer(&client).auto_commit(false).start().await.unwrap();
    let queues = consumer.fetch_message_queues("T").await.unwrap();
    let [first, second, ..] = &queues[..] else { panic!("four queues, not {queues:?}") };
    consumer.assign([first.clone()]).await.unwrap();
    assert_eq!(poll(&consumer, 10).await.len(), 10);
    assert_eq!(consumer.assignment(), std::slice::from_ref(first));

    consumer.seek(first, 7).await.unwrap();
    assert_eq!(poll(&consumer, 3).await.len(), 3);
    consumer.seek_to_begin(first).await.unwrap();
    assert_eq!(poll(&consumer, 10).await.len(), 10);
    assert!(consumer.seek(first, 11).await.is_err(), "behind the queue's end");
    assert!(consumer.seek(second, 0).await.is_err(), "not assigned");
    assert_eq!(consumer.offset_for_timestamp(first, std::time::UNIX_EPOCH).await.unwrap(), 0);

    consumer.pause([second.clone()]);
    consumer.assign([first.clone(), second.clone()]).await.unwrap();
    consumer.seek_to_end(first).await.unwrap();
    assert!(consumer.poll(Duration::from_millis(200)).await.is_empty());
    consumer.resume([second]);
    let messages = poll(&consumer, 10).await;
    assert_eq!(messages.len(), 10);

    let error = consumer.subscribe("T", "*").await.unwrap_err();
    assert!(error.to_string().contains("mutually exclusive"), "{error}");
    consumer.commit_offsets(&BTreeMap::from([(first.clone(), 4)]), true).await;
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn members_share_the_queues() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 8).await;
    let (first, second) = (cluster.client().start().unwrap(), cluster.client().start().unwrap());
    let mine = consumer(&first).subscribe("T", "*").start().await.unwrap();
    let other = consumer(&second).subscribe("T", "*").start().await.unwrap();
    eventually("two queues each", async || {
        let queues: BTreeSet<MessageQueue> =
            mine.assignment().into_iter().chain(other.assignment()).collect();
        (mine.assignment().len(), other.assignment().len(), queues.len()) == (2, 2, 4)
    })
    .await;
    let error = mine.assign([]).await.unwrap_err();
    assert!(error.to_string().contains("mutually exclusive"), "{error}");
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    first.shutdown().await;
    second.shutdown().await;
    assert!(tokio::runtime::Handle::current().metrics().num_alive_tasks() < before);
    cluster.shutdown().await;
}
