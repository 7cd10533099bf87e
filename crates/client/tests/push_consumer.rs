//! Push consumers against a real broker: delivery, sharing, retries, order, and the end.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::{
    Client, ConsumeFrom, ConsumeOrderlyResult, ConsumeResult, Delivery, Error, Filter, Message, PushConsumer,
    PushConsumerBuilder,
};
use support::inbox::Inbox;
use support::{Cluster, eventually};
use tokio::sync::Semaphore;

/// A consumer that begins with the oldest message of topic `T` and puts everything into the inbox under this name.
fn collecting(client: &Client, group: &str, name: &str, inbox: &Inbox) -> PushConsumerBuilder {
    let (name, inbox) = (name.to_owned(), inbox.clone());
    client.push_consumer(group).subscribe("T", "*").consume_from(ConsumeFrom::FirstOffset).listener(
        move |delivery: Delivery| {
            inbox.put(&name, &delivery);
            async { ConsumeResult::success() }
        },
    )
}

async fn send(client: &Client, topic: &str, bodies: impl IntoIterator<Item = String>) {
    let producer = client.producer("pg").start().await.unwrap();
    for body in bodies {
        producer.send(Message::new(topic, body)).await.unwrap();
    }
}

fn each_once(count: usize) -> BTreeMap<String, usize> {
    (0..count).map(|number| (number.to_string(), 1)).collect()
}

#[tokio::test]
async fn every_message_comes_once_and_progress_outlives_the_consumer() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 40).await;
    let inbox = Inbox::default();
    let client = cluster.client().start().unwrap();
    let consumer = collecting(&client, "g", "first", &inbox).start().await.unwrap();
    eventually("all messages", async || inbox.len() >= 40).await;
    assert_eq!(inbox.bodies(), each_once(40));
    consumer.shutdown().await;

    inbox.clear();
    send(&client, "T", ["new".to_owned()]).await;
    let _consumer = collecting(&client, "g", "second", &inbox).start().await.unwrap();
    eventually("the new message", async || inbox.len() > 0).await;
    assert_eq!(inbox.bodies(), BTreeMap::from([("new".to_owned(), 1)]), "nothing comes again");
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn only_wanted_tags_come() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    // `Aa` and `BB` have the same hash, which is all that brokers of RocketMQ compare.
    for tag in ["Aa", "BB", "C"] {
        producer.send(Message::new("T", tag).tag(tag)).await.unwrap();
    }
    let inbox = Inbox::default();
    let consumer =
        collecting(&client, "g", "c", &inbox).subscribe("T", Filter::tags("Aa || C")).start().await.unwrap();
    eventually("two messages", async || inbox.len() >= 2).await;
    producer.send(Message::new("T", "last").tag("C")).await.unwrap();
    eventually("the last message", async || inbox.len() >= 3).await;
    let expected = ["Aa", "C", "last"].map(|body| (body.to_owned(), 1));
    assert_eq!(inbox.bodies(), BTreeMap::from(expected));
    drop(consumer);
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn failed_messages_come_again_until_they_are_dead_letters() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 2).await;
    let client = cluster.client().start().unwrap();
    let inbox = Inbox::default();
    let consumer = client
        .push_consumer("g")
        .subscribe("T", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .max_reconsume_times(2)
        .listener({
            let inbox = inbox.clone();
            move |delivery: Delivery| {
                inbox.put("c", &delivery);
                async move { if &delivery[0].body[..] == b"0" { Err("not yet") } else { Ok(()) } }
            }
        })
        .start()
        .await
        .unwrap();
    eventually("three tries of one and one of the other", async || inbox.len() >= 4).await;
    let mut tries: Vec<_> = inbox.messages();
    tries.retain(|message| &message.body[..] == b"0");
    let counts: Vec<i32> = tries.iter().map(|message| message.reconsume_times).collect();
    assert_eq!(counts, [0, 1, 2]);
    assert!(tries.iter().all(|message| message.topic() == "T" && message.msg_id() == tries[0].msg_id()));

    let dead = Inbox::default();
    let grave_digger = client
        .push_consumer("undertakers")
        .subscribe("%DLQ%g", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .listener({
            let dead = dead.clone();
            move |delivery: Delivery| {
                dead.put("u", &delivery);
                async { ConsumeResult::success() }
            }
        })
        .start()
        .await
        .unwrap();
    eventually("a dead letter", async || dead.len() > 0).await;
    assert_eq!(dead.messages()[0].msg_id(), tries[0].msg_id());
    consumer.shutdown().await;
    grave_digger.shutdown().await;
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_listener_that_panics_costs_one_try() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 1).await;
    let client = cluster.client().start().unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let consumer = client
        .push_consumer("g")
        .subscribe("T", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .listener({
            let tries = tries.clone();
            move |_| {
                let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    assert!(!first, "the first try fails");
                    ConsumeResult::success()
                }
            }
        })
        .start()
        .await
        .unwrap();
    eventually("a second try", async || tries.load(Ordering::SeqCst) == 2).await;
    consumer.shutdown().await;
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn orderly_messages_keep_their_order_through_failures() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 60).await;
    let client = cluster.client().start().unwrap();
    let (inbox, failures) = (Inbox::default(), Arc::new(AtomicUsize::new(0)));
    let consumer = client
        .push_consumer("g")
        .subscribe("T", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .suspend_current_queue_time(Duration::from_millis(10))
        .orderly_listener({
            let (inbox, failures) = (inbox.clone(), failures.clone());
            move |delivery: Delivery| {
                let fails = delivery[0].queue_offset % 5 == 0 && delivery[0].reconsume_times == 0;
                if fails {
                    failures.fetch_add(1, Ordering::SeqCst);
                } else {
                    inbox.put("c", &delivery);
                }
                async move {
                    if fails {
                        ConsumeOrderlyResult::SuspendCurrentQueue(None)
                    } else {
                        ConsumeOrderlyResult::Success
                    }
                }
            }
        })
        .start()
        .await
        .unwrap();
    eventually("all messages", async || inbox.len() >= 60).await;
    for (queue, offsets) in inbox.by_queue() {
        let expected: Vec<i64> = (0..offsets.len() as i64).collect();
        assert_eq!(offsets, expected, "{queue}");
    }
    assert_eq!(failures.load(Ordering::SeqCst), 12, "every fifth message of four queues with fifteen each");
    consumer.shutdown().await;
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn without_automatic_commit_a_rollback_repeats_everything_since_the_last_commit() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    for number in 0..4 {
        producer.send(Message::new("T", number.to_string()).sharding_key("one queue")).await.unwrap();
    }
    let (inbox, rolled_back) = (Inbox::default(), Arc::new(AtomicBool::new(false)));
    let consumer = client
        .push_consumer("g")
        .subscribe("T", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .auto_commit(false)
        .suspend_current_queue_time(Duration::from_millis(10))
        .orderly_listener({
            let (inbox, rolled_back) = (inbox.clone(), rolled_back.clone());
            move |delivery: Delivery| {
                inbox.put("c", &delivery);
                let result = match &delivery[0].body[..] {
                    b"0" => ConsumeOrderlyResult::Commit,
                    b"2" if !rolled_back.swap(true, Ordering::SeqCst) => ConsumeOrderlyResult::Rollback,
                    b"3" => ConsumeOrderlyResult::Commit,
                    _ => ConsumeOrderlyResult::Success,
                };
                async move { result }
            }
        })
        .start()
        .await
        .unwrap();
    eventually("the last message", async || inbox.bodies().contains_key("3")).await;
    let bodies: Vec<_> =
        inbox.messages().iter().map(|m| String::from_utf8_lossy(&m.body).into_owned()).collect();
    assert_eq!(bodies, ["0", "1", "2", "1", "2", "3"]);
    consumer.shutdown().await;
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn broadcast_messages_reach_every_consumer_and_progress_is_kept_in_a_file() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 8).await;
    let directory = tempfile::tempdir().unwrap();
    let inbox = Inbox::default();
    for round in 0..2 {
        let mut consumers: Vec<(Client, PushConsumer)> = Vec::new();
        for name in ["first", "second"] {
            let client = cluster.client().instance_name(name).start().unwrap();
            let consumer = collecting(&client, "g", name, &inbox)
                .broadcasting()
                .local_offset_store_dir(directory.path())
                .start()
                .await
                .unwrap();
            consumers.push((client, consumer));
        }
        if round == 0 {
            eventually("everything for everybody", async || inbox.len() >= 16).await;
        } else {
            send(&consumers[0].0, "T", ["new".to_owned()]).await;
            eventually("the new message for both", async || inbox.bodies().get("new") == Some(&2)).await;
        }
        for (client, _) in &consumers {
            client.shutdown().await;
        }
        assert!(directory.path().join("127.0.0.1@first/g/offsets.json").exists());
    }
    let counts = inbox.by_consumer();
    assert_eq!(counts, BTreeMap::from([("first".to_owned(), 9), ("second".to_owned(), 9)]));
    cluster.shutdown().await;
}

/// Consumers of group `g` with clients of their own, and the queues that each has.
struct Group {
    members: Vec<(Client, PushConsumer)>,
    inbox: Inbox,
}

impl Group {
    async fn join(&mut self, cluster: &Cluster, name: &str) {
        let client = cluster.client().instance_name(name).start().unwrap();
        let consumer = collecting(&client, "g", name, &self.inbox).start().await.unwrap();
        self.members.push((client, consumer));
    }

    /// Waits until the members have all queues of the topic between them, these many each.
    async fn share(&self, expected: &[usize]) {
        eventually("everybody has their share", async || {
            let queues = |(_, consumer): &(Client, PushConsumer)| {
                consumer.assigned_queues().into_iter().filter(|queue| queue.topic == "T").collect::<Vec<_>>()
            };
            let shares: Vec<_> = self.members.iter().map(queues).collect();
            let all: BTreeSet<_> = shares.iter().flatten().collect();
            shares.iter().map(Vec::len).eq(expected.iter().copied()) && all.len() == 8
        })
        .await;
    }
}

#[tokio::test]
async fn queues_are_shared_out_again_when_consumers_join_leave_and_crash() {
    let cluster = Cluster::start(2).await;
    cluster.fill("T", 16).await;
    let mut group = Group { members: Vec::new(), inbox: Inbox::default() };
    group.join(&cluster, "a").await;
    group.share(&[8]).await;
    group.join(&cluster, "b").await;
    group.share(&[4, 4]).await;
    group.join(&cluster, "c").await;
    group.share(&[3, 3, 2]).await;

    let (leaving, consumer) = group.members.remove(0);
    consumer.shutdown().await;
    leaving.shutdown().await;
    group.share(&[4, 4]).await;

    // Without a word: the brokers see its connections end.
    drop(group.members.remove(0));
    group.share(&[8]).await;

    let client = &group.members[0].0;
    send(client, "T", (100..140).map(|number| number.to_string())).await;
    eventually("messages for whoever is left", async || {
        (100..140).all(|number| group.inbox.bodies().contains_key(&number.to_string()))
    })
    .await;
    for (client, _) in &group.members {
        client.shutdown().await;
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_locked_queue_goes_to_the_next_member_without_overlap() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 40).await;
    let inbox = Inbox::default();
    let orderly = |client: &Client, name: &'static str| {
        let inbox = inbox.clone();
        client.push_consumer("g").subscribe("T", "*").consume_from(ConsumeFrom::FirstOffset).orderly_listener(
            move |delivery: Delivery| {
                inbox.put(name, &delivery);
                async { ConsumeOrderlyResult::Success }
            },
        )
    };
    let first = cluster.client().instance_name("a").start().unwrap();
    let consumer = orderly(&first, "a").start().await.unwrap();
    eventually("all messages", async || inbox.len() >= 40).await;
    let second = cluster.client().instance_name("b").start().unwrap();
    let other = orderly(&second, "b").start().await.unwrap();
    let of_t = |consumer: &PushConsumer| {
        consumer.assigned_queues().iter().filter(|queue| queue.topic == "T").count()
    };
    eventually("two queues each", async || (of_t(&consumer), of_t(&other)) == (2, 2)).await;
    send(&first, "T", (100..120).map(|number| number.to_string())).await;
    eventually("twenty more", async || inbox.len() >= 60).await;
    for (queue, offsets) in inbox.by_queue() {
        let expected: Vec<i64> = (0..offsets.len() as i64).collect();
        assert_eq!(offsets, expected, "{queue} was consumed once, in order");
    }
    assert_eq!(inbox.by_consumer().len(), 2);
    first.shutdown().await;
    second.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_waits_for_the_listener_and_commits_what_it_did() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 1).await;
    let client = cluster.client().start().unwrap();
    let (begun, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Semaphore::new(0)));
    let consumer = client
        .push_consumer("g")
        .subscribe("T", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .listener({
            let (begun, gate) = (begun.clone(), gate.clone());
            move |_| {
                begun.store(true, Ordering::SeqCst);
                let gate = gate.clone();
                async move {
                    gate.acquire().await.unwrap().forget();
                    ConsumeResult::success()
                }
            }
        })
        .start()
        .await
        .unwrap();
    eventually("the listener has it", async || begun.load(Ordering::SeqCst)).await;
    let shutdown = consumer.shutdown();
    let (_, ()) = tokio::join!(shutdown, async { gate.add_permits(1) });

    let inbox = Inbox::default();
    send(&client, "T", ["next".to_owned()]).await;
    let next = collecting(&client, "g", "next", &inbox).start().await.unwrap();
    eventually("the next message", async || inbox.len() > 0).await;
    assert_eq!(inbox.bodies(), BTreeMap::from([("next".to_owned(), 1)]));
    next.shutdown().await;
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn messages_flow_again_when_a_broker_has_been_away() {
    let mut cluster = Cluster::start(2).await;
    cluster.fill("T", 16).await;
    let (client, inbox) = (cluster.client().start().unwrap(), Inbox::default());
    let _consumer = collecting(&client, "g", "c", &inbox).start().await.unwrap();
    let producer = client.producer("pg").send_latency_fault_enable(true).start().await.unwrap();
    eventually("all messages", async || inbox.len() >= 16).await;

    cluster.stop_broker().await;
    for number in 100..120 {
        // The other broker takes them all.
        producer.send(Message::new("T", number.to_string())).await.unwrap();
    }
    eventually("what the other broker has", async || inbox.len() >= 36).await;

    cluster.start_again().await;
    let mut number = 200;
    eventually("a message on the broker that was away", async || {
        let result = producer.send(Message::new("T", number.to_string())).await.unwrap();
        number += 1;
        result.queue.broker_name == "broker-b"
    })
    .await;
    eventually("every message", async || inbox.bodies().len() >= 36 + (number - 200)).await;
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn nothing_is_left_of_a_consumer_that_was_shut_down_or_dropped() {
    let cluster = Cluster::start(1).await;
    cluster.fill("T", 8).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for (round, orderly_end) in [true, false].into_iter().enumerate() {
        let client = cluster.client().start().unwrap();
        let inbox = Inbox::default();
        let concurrent = collecting(&client, &format!("g{round}"), "c", &inbox).start().await.unwrap();
        let orderly = client
            .push_consumer(format!("o{round}"))
            .subscribe("T", "*")
            .consume_from(ConsumeFrom::FirstOffset)
            .orderly_listener(|_| async { ConsumeOrderlyResult::Success })
            .start()
            .await
            .unwrap();
        eventually("messages", async || inbox.len() >= 8).await;
        if orderly_end {
            client.shutdown().await;
        }
        drop((client, concurrent, orderly));
        eventually("all tasks have ended", async || tasks() <= before).await;
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn settings_that_can_t_be_used_are_refused() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let refused = |builder: PushConsumerBuilder| async { builder.start().await.unwrap_err() };
    let inbox = Inbox::default();
    let error = refused(client.push_consumer("g").subscribe("T", "*")).await;
    assert!(error.to_string().contains("no listener"), "{error}");
    let error = refused(collecting(&client, "g", "c", &inbox).consume_message_batch_max_size(0)).await;
    assert!(error.to_string().contains("out of range [1, 1024]"), "{error}");
    let error = refused(collecting(&client, "DEFAULT_CONSUMER", "c", &inbox)).await;
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let consumer = collecting(&client, "g", "c", &inbox).start().await.unwrap();
    let error = refused(collecting(&client, "g", "c", &inbox)).await;
    assert!(matches!(error, Error::GroupInUse { kind: "consumer", .. }), "{error}");
    consumer.shutdown().await;
    let again = collecting(&client, "g", "c", &inbox).start().await.unwrap();
    drop(consumer);
    // The old handle has nothing to do with the new consumer.
    let error = refused(collecting(&client, "g", "c", &inbox)).await;
    assert!(matches!(error, Error::GroupInUse { .. }), "{error}");
    again.shutdown().await;
    client.shutdown().await;
    cluster.shutdown().await;
}
