//! What any broker of the protocol does for a client: run against ours, and against another cluster if
//! `FERROMQ_TEST_NAMESRV` names its name servers (`interop/peer/rocketmq` starts the real one).
//!
//! Topics and groups have new names in each run, so that the other cluster may have been used before.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::admin::{Brokers, TraceRecord};
use ferromq_client::{
    Client, Compression, ConsumeFrom, ConsumeOrderlyResult, Delivery, Error, LocalTransactionState, Message,
    PushConsumer,
};
use ferromq_protocol::body::MessageRequestMode;
use ferromq_protocol::names::TRACE_TOPIC;
use support::eventually;
use support::inbox::Inbox;
use support::stage::Stage;

#[tokio::test]
async fn whatever_is_sent_arrives_as_it_was() {
    let stage = Stage::set().await;
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let mut sent: BTreeMap<String, usize> = BTreeMap::new();
    let long = |name: &str| name.repeat(3000);
    for (position, kind) in [Compression::Zlib, Compression::Lz4, Compression::Zstd].into_iter().enumerate() {
        let producer = client.producer(stage.name(&format!("p{position}"))).compression(kind, 3);
        let producer = producer.start().await.unwrap();
        let body = long(&format!("compressed {position} "));
        let message =
            Message::new(&*topic, body.clone()).tag("A").keys(["k1", "k2"]).property("colour", "grün");
        producer.send(message).await.unwrap();
        sent.insert(body, 1);
    }
    let producer = client.producer(stage.name("p")).start().await.unwrap();
    let batch: Vec<Message> = (0..3).map(|n| Message::new(&*topic, format!("batch {n}")).tag("A")).collect();
    producer.send_batch(batch).await.unwrap();
    producer.send_oneway(Message::new(&*topic, "one-way")).await.unwrap();
    producer.send(Message::new(&*topic, "delayed").delay_level(1)).await.unwrap();
    for body in ["batch 0", "batch 1", "batch 2", "one-way", "delayed"] {
        sent.insert(body.to_owned(), 1);
    }
    let _consumer = stage.collect(&client, &topic, "g", &inbox).await;
    eventually("all messages", async || inbox.len() >= sent.len()).await;
    assert_eq!(inbox.bodies(), sent);
    let messages = inbox.messages();
    let first = messages.iter().find(|message| message.body.starts_with(b"compressed 0")).unwrap();
    assert_eq!((first.topic(), first.tags(), first.property("colour")), (&*topic, Some("A"), Some("grün")));
    assert_eq!(first.keys().collect::<Vec<_>>(), ["k1", "k2"]);
    stage.clear([client]).await;
}

#[tokio::test]
async fn a_message_is_tried_again_until_it_is_a_dead_letter() {
    let stage = Stage::set().await;
    let (client, topic, tries) = (stage.client(), stage.name("T"), Arc::new(AtomicUsize::new(0)));
    let producer = client.producer(stage.name("p")).start().await.unwrap();
    let sent = producer.send(Message::new(&*topic, "bad")).await.unwrap();
    let counter = tries.clone();
    let _consumer = client
        .push_consumer(stage.name("g"))
        .subscribe(&*topic, "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .max_reconsume_times(1)
        .listener(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { Err::<(), _>("never") }
        })
        .start()
        .await
        .unwrap();
    eventually("two tries", async || tries.load(Ordering::SeqCst) >= 2).await;
    let (dead, graveyard) = (Inbox::default(), format!("%DLQ%{}", stage.name("g")));
    // The topic of dead letters is made with the first of them.
    let mut attempt = 0;
    eventually("a dead letter", async || {
        attempt += 1;
        let name = format!("u{attempt}");
        let consumer = stage.collect(&client, &graveyard, &name, &dead).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        consumer.shutdown().await;
        dead.len() > 0
    })
    .await;
    assert_eq!(dead.messages()[0].msg_id(), sent.msg_id);
    stage.clear([client]).await;
}

#[tokio::test]
async fn an_orderly_queue_waits_for_the_message_that_failed() {
    let stage = Stage::set().await;
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let producer = client.producer(stage.name("p")).start().await.unwrap();
    for number in 0..10 {
        producer.send(Message::new(&*topic, number.to_string()).sharding_key("one queue")).await.unwrap();
    }
    let got = inbox.clone();
    let _consumer = client
        .push_consumer(stage.name("g"))
        .subscribe(&*topic, "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .suspend_current_queue_time(Duration::from_millis(50))
        .orderly_listener(move |delivery: Delivery| {
            let fails = &delivery[0].body[..] == b"3" && delivery[0].reconsume_times < 2;
            got.put("c", &delivery);
            async move { if fails { Err("not yet") } else { Ok(()) } }
        })
        .start()
        .await
        .unwrap();
    eventually("all messages", async || inbox.len() >= 12).await;
    let bodies: Vec<_> =
        inbox.messages().iter().map(|message| String::from_utf8_lossy(&message.body).into_owned()).collect();
    assert_eq!(bodies.concat(), "012333456789");
    stage.clear([client]).await;
}

#[tokio::test]
async fn members_share_queues_and_progress() {
    let stage = Stage::set().await;
    let (first, second, topic, inbox) = (stage.client(), stage.client(), stage.name("T"), Inbox::default());
    let producer = first.producer(stage.name("p")).start().await.unwrap();
    producer.send(Message::new(&*topic, "first")).await.unwrap();
    let mine = stage.collect(&first, &topic, "g", &inbox).await;
    eventually("one message", async || inbox.len() > 0).await;
    let other = stage.collect(&second, &topic, "g", &inbox).await;
    let count = |consumer: &PushConsumer| {
        consumer.assigned_queues().iter().filter(|queue| queue.topic == topic).count()
    };
    eventually("half of the queues each", async || {
        let shares = (count(&mine), count(&other));
        shares.0 == shares.1 && shares.0 > 0
    })
    .await;
    for number in 0..40 {
        producer.send(Message::new(&*topic, number.to_string())).await.unwrap();
    }
    eventually("all messages", async || inbox.bodies().len() >= 41).await;
    assert_eq!(inbox.by_consumer().len(), 2);
    mine.shutdown().await;
    other.shutdown().await;
    let seen = inbox.len();
    let again = stage.collect(&first, &topic, "g", &inbox).await;
    producer.send(Message::new(&*topic, "last")).await.unwrap();
    eventually("the last message", async || inbox.bodies().contains_key("last")).await;
    assert_eq!(inbox.len(), seen + 1, "everything before it was committed");
    drop(again);
    stage.clear([first, second]).await;
}

#[tokio::test]
async fn a_lite_pull_consumer_polls_seeks_and_commits() {
    let stage = Stage::set().await;
    let (client, topic) = (stage.client(), stage.name("T"));
    let producer = client.producer(stage.name("p")).start().await.unwrap();
    for number in 0..10 {
        producer.send(Message::new(&*topic, number.to_string()).sharding_key("one queue")).await.unwrap();
    }
    let builder = client.lite_pull_consumer(stage.name("g")).auto_commit(false);
    let consumer = builder.consume_from(ConsumeFrom::FirstOffset).start().await.unwrap();
    let queues = consumer.fetch_message_queues(&topic).await.unwrap();
    let queue = ferromq_client::select_by_hash(&queues, "one queue").unwrap().clone();
    consumer.assign([queue.clone()]).await.unwrap();
    let mut bodies = Vec::new();
    let mut poll = async |count| {
        bodies.clear();
        eventually("messages", async || {
            let messages = consumer.poll(Duration::from_millis(100)).await;
            bodies.extend(messages.iter().map(|message| message.queue_offset));
            bodies.len() >= count
        })
        .await;
        bodies.clone()
    };
    assert_eq!(poll(10).await, (0..10).collect::<Vec<_>>());
    consumer.seek(&queue, 6).await.unwrap();
    assert_eq!(poll(4).await, [6, 7, 8, 9]);
    consumer.commit();
    assert_eq!(consumer.committed(&queue).await.unwrap(), Some(10));
    stage.clear([client]).await;
}

#[tokio::test]
async fn popped_messages_are_acknowledged_or_come_again() {
    let stage = Stage::set().await;
    if stage.lacks("pop").await {
        return;
    }
    let (client, topic) = (stage.client(), stage.name("T"));
    let producer = client.producer(stage.name("p")).start().await.unwrap();
    for tag in ["A", "A", "A", "B"] {
        producer.send(Message::new(&*topic, tag).tag(tag)).await.unwrap();
    }
    let consumer = client
        .pop_consumer(stage.name("g"))
        .subscribe(&*topic, "A")
        .consume_from(ConsumeFrom::FirstOffset)
        .await_duration(Duration::from_secs(5))
        .start()
        .await
        .unwrap();
    let invisible = Duration::from_secs(6);
    let mut popped = Vec::new();
    eventually("three messages", async || {
        popped.extend(consumer.receive(32, invisible).await.unwrap());
        popped.len() >= 3
    })
    .await;
    assert!(popped.iter().all(|message| message.topic() == topic && message.tags() == Some("A")));
    assert!(popped.iter().all(|message| message.reconsume_times == 0));
    let waiting_for_ack = async || {
        let info = client.admin().consumer_running_info(&stage.name("g"), client.id(), false).await.unwrap();
        info.mq_pop_table.values().map(|popped| popped.wait_ack_count).sum::<i32>()
    };
    assert_eq!(waiting_for_ack().await, 3);
    // One is done, one may take longer, one is left to come again.
    let [done, slow, left] = &mut popped[..] else { panic!("three messages, not {popped:?}") };
    consumer.ack(done).await.unwrap();
    let receipt = slow.receipt_handle().unwrap().to_owned();
    consumer.change_invisible_time(slow, Duration::from_secs(40)).await.unwrap();
    assert_ne!(slow.receipt_handle().unwrap(), receipt);
    let mut again = Vec::new();
    eventually("the one that was left", async || {
        again.extend(consumer.receive(32, Duration::from_secs(60)).await.unwrap());
        !again.is_empty()
    })
    .await;
    let ids: Vec<_> = again.iter().map(|message| message.msg_id()).collect();
    assert_eq!(ids, [left.msg_id()], "and nothing else");
    assert_eq!((again[0].topic(), again[0].reconsume_times), (&*topic, 1));
    again.push(slow.clone());
    consumer.ack_all(&again).await.unwrap();
    let rest = consumer.receive(32, invisible).await.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(waiting_for_ack().await, 0);
    stage.clear([client]).await;
}

#[tokio::test]
async fn messages_that_are_popped_in_order_wait_for_the_one_before_them() {
    let stage = Stage::set().await;
    if stage.lacks("pop").await {
        return;
    }
    let (client, topic) = (stage.client(), stage.name("T"));
    let producer = client.producer(stage.name("p")).start().await.unwrap();
    for number in 0..6 {
        producer.send(Message::new(&*topic, number.to_string()).sharding_key("one queue")).await.unwrap();
    }
    let builder = client.pop_consumer(stage.name("g")).subscribe(&*topic, "*").fifo(true);
    let builder = builder.consume_from(ConsumeFrom::FirstOffset).await_duration(Duration::from_secs(1));
    let consumer = builder.start().await.unwrap();
    let invisible = Duration::from_secs(60);
    let first = consumer.receive(2, invisible).await.unwrap();
    assert_eq!(first.len(), 2);
    assert!(consumer.receive(2, invisible).await.unwrap().is_empty(), "the queue waits");
    let mut bodies = String::new();
    let mut next = first;
    while !next.is_empty() {
        bodies.extend(next.iter().map(|message| String::from_utf8_lossy(&message.body).into_owned()));
        consumer.ack_all(&next).await.unwrap();
        next = consumer.receive(2, invisible).await.unwrap();
    }
    assert_eq!(bodies, "012345");
    stage.clear([client]).await;
}

#[tokio::test]
async fn a_group_of_push_consumers_pops_and_goes_back_to_pulling() {
    let stage = Stage::set().await;
    if stage.lacks("pop").await {
        return;
    }
    let (first, second, topic, inbox) = (stage.client(), stage.client(), stage.name("T"), Inbox::default());
    let producer = first.producer(stage.name("p")).start().await.unwrap();
    for number in 0..20 {
        producer.send(Message::new(&*topic, number.to_string())).await.unwrap();
    }
    let (admin, group) = (first.admin(), stage.name("g"));
    let set_mode = async |mode| {
        let brokers = Brokers::masters_of("DefaultCluster");
        admin.set_consume_mode(&brokers, &topic, &group, mode, 0).await.unwrap();
    };
    set_mode(MessageRequestMode::Pop).await;
    let mut consumers = Vec::new();
    for client in [&first, &second] {
        let (name, got) = (client.id().to_owned(), inbox.clone());
        let consumer = client
            .push_consumer(&*group)
            .client_rebalance(false)
            .subscribe(&*topic, "*")
            .consume_from(ConsumeFrom::FirstOffset)
            .listener(move |delivery: Delivery| {
                got.put(&name, &delivery);
                let message = &delivery[0];
                let fails = &message.body[..] == b"3" && message.reconsume_times == 0;
                async move { if fails { Err("not yet") } else { Ok(()) } }
            })
            .start()
            .await
            .unwrap();
        consumers.push(consumer);
    }
    let of_topic = |consumer: &PushConsumer| {
        let queues = consumer.assigned_queues().into_iter().filter(|queue| queue.topic == topic);
        queues.map(|queue| queue.queue_id).collect::<Vec<_>>()
    };
    eventually("both pop from all queues", async || consumers.iter().all(|each| of_topic(each) == [-1]))
        .await;
    eventually("all messages, and one again", async || inbox.len() >= 21).await;
    let mut expected: BTreeMap<_, _> = (0..20).map(|number| (number.to_string(), 1)).collect();
    expected.insert("3".to_owned(), 2);
    assert_eq!(inbox.bodies(), expected);
    let tried_again = inbox.messages().into_iter().find(|message| message.reconsume_times == 1).unwrap();
    assert_eq!((tried_again.topic(), &tried_again.body[..]), (&*topic, &b"3"[..]));
    let info = async |client: &Client| {
        admin.consumer_running_info(&group, client.id(), false).await.unwrap().mq_pop_table
    };
    eventually("nothing waits for its acknowledgement", async || {
        let (mine, others) = (info(&first).await, info(&second).await);
        let popped = || mine.iter().chain(&others).filter(|(queue, _)| queue.topic == topic);
        popped().count() == 2 && popped().all(|(_, popped)| popped.wait_ack_count == 0)
    })
    .await;

    set_mode(MessageRequestMode::Pull).await;
    consumers.iter().for_each(PushConsumer::resume);
    eventually("the members share the queues", async || {
        let shares = (of_topic(&consumers[0]), of_topic(&consumers[1]));
        let ids = shares.0.iter().chain(&shares.1);
        shares.0.len() == shares.1.len() && !shares.0.is_empty() && ids.min() == Some(&0)
    })
    .await;
    for number in 20..40 {
        producer.send(Message::new(&*topic, number.to_string())).await.unwrap();
        expected.insert(number.to_string(), 1);
    }
    eventually("the other messages", async || inbox.len() >= 41).await;
    assert_eq!(inbox.bodies(), expected, "nothing that was acknowledged is pulled");
    stage.clear([first, second]).await;
}

#[tokio::test]
async fn nobody_gets_messages_that_the_filter_leaves_out() {
    let stage = Stage::set().await;
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let producer = client.producer(stage.name("p")).start().await.unwrap();
    for tag in ["Aa", "BB", "C", "Aa"] {
        producer.send(Message::new(&*topic, tag).tag(tag)).await.unwrap();
    }
    let got = inbox.clone();
    let consumer = client.push_consumer(stage.name("g")).subscribe(&*topic, "Aa || C");
    let _consumer = consumer
        .consume_from(ConsumeFrom::FirstOffset)
        .orderly_listener(move |delivery: Delivery| {
            got.put("c", &delivery);
            async { ConsumeOrderlyResult::Success }
        })
        .start()
        .await
        .unwrap();
    eventually("three messages", async || inbox.len() >= 3).await;
    assert_eq!(inbox.bodies(), BTreeMap::from([("Aa".to_owned(), 2), ("C".to_owned(), 1)]));
    stage.clear([client]).await;
}

#[tokio::test]
async fn a_transactional_message_is_seen_when_its_transaction_is_committed() {
    let stage = Stage::set().await;
    if stage.lacks("transactions").await {
        return;
    }
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let checked = Inbox::default();
    let asked = checked.clone();
    let producer = client
        .producer(stage.name("p"))
        .start_transactional(move |message| {
            let is_bad = &message.body[..] == b"rolled back";
            asked.put("check", &[Arc::new(message)]);
            async move {
                if is_bad {
                    LocalTransactionState::RollbackMessage
                } else {
                    LocalTransactionState::CommitMessage
                }
            }
        })
        .await
        .unwrap();
    for (body, state) in [
        ("committed", LocalTransactionState::CommitMessage),
        ("rolled back", LocalTransactionState::RollbackMessage),
        ("asked for", LocalTransactionState::Unknown),
    ] {
        let message = Message::new(&*topic, body);
        let result = producer.send_in_transaction(message, |_| async move { state }).await.unwrap();
        assert_eq!(result.state, state);
    }
    let _consumer = stage.collect(&client, &topic, "g", &inbox).await;
    eventually("two messages", async || inbox.bodies().len() >= 2).await;
    let copies = inbox.bodies();
    assert_eq!(copies.keys().collect::<Vec<_>>(), ["asked for", "committed"]);
    // RocketMQ notes outcomes late. If it asks before that, it stores a committed message once more for each answer.
    let checks = checked.bodies();
    assert!(copies["asked for"] <= checks["asked for"], "{copies:?} {checks:?}");
    let again = checks.get("committed").copied().unwrap_or_default();
    assert!(copies["committed"] <= 1 + again, "{copies:?} {checks:?}");
    assert!(inbox.messages().iter().all(|message| message.transaction_id() == Some(&*message.msg_id())));
    stage.clear([client]).await;
}

#[tokio::test]
async fn sends_that_share_a_request_have_results_of_their_own() {
    let stage = Stage::set().await;
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let producer = client.producer(stage.name("p")).auto_batch(true).start().await.unwrap();
    producer.send(Message::new(&*topic, "creates the topic")).await.unwrap();
    let mut sends = tokio::task::JoinSet::new();
    for number in 0..100 {
        let (producer, body) = (producer.clone(), number.to_string());
        let message = Message::new(&*topic, body.clone()).tag("A").keys([format!("key-{number}")]);
        sends.spawn(async move { (body, producer.send(message).await.unwrap()) });
    }
    let sent = sends.join_all().await;
    let _consumer = stage.collect(&client, &topic, "g", &inbox).await;
    eventually("all messages", async || inbox.len() >= 101).await;
    let messages = inbox.messages();
    for (body, result) in sent {
        let stored = messages.iter().find(|message| message.offset_msg_id() == result.offset_msg_id).unwrap();
        assert_eq!((&stored.body[..], stored.queue_offset), (body.as_bytes(), result.queue_offset));
        let keys: Vec<_> = stored.keys().collect();
        assert_eq!((stored.tags(), keys), (Some("A"), vec![&*format!("key-{body}")]));
    }
    stage.clear([client]).await;
}

#[tokio::test]
async fn a_trace_is_understood_by_mqadmin() {
    let stage = Stage::set().await;
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let (producers, consumers) = (stage.name("p"), stage.name("g"));
    let producer = client.producer(&*producers).enable_trace(true).start().await.unwrap();
    let sent = producer.send(Message::new(&*topic, "x").tag("A").keys(["k1", "k2"])).await.unwrap();
    let got = inbox.clone();
    let consumer = client.push_consumer(&*consumers).enable_trace(true).subscribe(&*topic, "*");
    let consumer = consumer
        .consume_from(ConsumeFrom::FirstOffset)
        .listener(move |delivery: Delivery| {
            got.put("c", &delivery);
            async { Ok::<(), Error>(()) }
        })
        .start()
        .await
        .unwrap();
    eventually("the message", async || inbox.len() == 1).await;
    consumer.shutdown().await;
    producer.shutdown().await;
    let admin = client.admin();
    let trace = async || admin.message_trace(TRACE_TOPIC, &sent.msg_id, 0..i64::MAX).await;
    eventually("the trace", async || trace().await.is_ok_and(|records| records.len() == 3)).await;
    // The tool gives up when a name server that a busy machine lets wait does not answer within 3 s.
    eventually("mqadmin shows it", async || {
        let Some(shown) = stage.mqadmin(&["queryMsgTraceById", "-i", &sent.msg_id]) else { return true };
        let row = |kind: &str, group: &str| {
            let lines = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines.filter(|words| words.starts_with(&[kind, group]) && words.ends_with(&["success"])).count()
        };
        let rows = (row("Pub", &producers), row("Sub", &consumers));
        assert!(rows == (1, 1) || shown.contains("RemotingTimeoutException"), "{rows:?} {shown}");
        rows == (1, 1)
    })
    .await;
    stage.clear([client]).await;
}

#[tokio::test]
async fn the_end_of_a_transaction_is_traced() {
    let stage = Stage::set().await;
    if stage.lacks("transactions").await {
        return;
    }
    let (client, topic) = (stage.client(), stage.name("T"));
    let producer = client.producer(stage.name("p")).enable_trace(true);
    let check = |_| async { LocalTransactionState::CommitMessage };
    let producer = producer.start_transactional(check).await.unwrap();
    let commit = |_| async { LocalTransactionState::CommitMessage };
    let sent = producer.send_in_transaction(Message::new(&*topic, "x"), commit).await.unwrap().sent;
    producer.shutdown().await;
    let mut traces = Vec::new();
    eventually("the trace", async || {
        let found = client.admin().message_trace(TRACE_TOPIC, &sent.msg_id, 0..i64::MAX).await;
        traces = found.unwrap_or_default();
        traces.len() == 2
    })
    .await;
    assert!(
        traces.iter().any(|trace| matches!(
            &trace.record,
            TraceRecord::EndTransaction { state, from_check: false, .. } if state == "COMMIT_MESSAGE"
        )),
        "{traces:?}"
    );
    stage.clear([client]).await;
}

#[tokio::test]
async fn a_timer_message_can_be_taken_back() {
    let stage = Stage::set().await;
    if stage.lacks("timers").await {
        return;
    }
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let producer = client.producer(stage.name("p")).start().await.unwrap();
    producer.send(Message::new(&*topic, "creates the topic")).await.unwrap();
    let soon =
        |body: &'static str, seconds| Message::new(&*topic, body).deliver_after(Duration::from_secs(seconds));
    let taken_back = producer.send(soon("taken back", 4)).await.unwrap();
    producer.send(soon("delivered", 6)).await.unwrap();
    let handle = taken_back.recall_handle.unwrap();
    let id = producer.recall_message(&topic, &handle).await.unwrap();
    assert_eq!(id, taken_back.msg_id);
    let _consumer = stage.collect(&client, &topic, "g", &inbox).await;
    eventually("the other one", async || inbox.bodies().contains_key("delivered")).await;
    assert!(!inbox.bodies().contains_key("taken back"));
    stage.clear([client]).await;
}

#[tokio::test]
async fn a_request_is_answered_by_its_consumer() {
    let stage = Stage::set().await;
    let (asking, answering, topic) = (stage.client(), stage.client(), stage.name("T"));
    let (asker, answerer) = (
        asking.producer(stage.name("p")).start().await.unwrap(),
        answering.producer(stage.name("q")).start().await.unwrap(),
    );
    asker.send(Message::new(&*topic, "creates the topic")).await.unwrap();
    let consumer = answering.push_consumer(stage.name("g")).subscribe(&*topic, "question");
    let _consumer = consumer
        .consume_from(ConsumeFrom::FirstOffset)
        .listener(move |delivery: Delivery| {
            let producer = answerer.clone();
            async move {
                let question = &delivery[0];
                producer.send(question.reply([&question.body[..], b"!"].concat())?).await.map(drop)
            }
        })
        .start()
        .await
        .unwrap();
    let question = Message::new(&*topic, "well").tag("question");
    let patience = if stage.is_ours() { Duration::from_secs(2) } else { Duration::from_secs(20) };
    match (asker.request(question, patience).await, stage.is_ours()) {
        (Ok(reply), _) => assert_eq!(&reply.body[..], b"well!"),
        // Our own broker does not push replies yet.
        (Err(Error::Timeout { .. }), true) => {}
        (Err(error), _) => panic!("{error}"),
    }
    stage.clear([asking, answering]).await;
}
