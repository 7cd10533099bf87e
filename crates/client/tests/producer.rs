//! Producers: every kind of send, retries, and which broker gets a message.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferromq_client::{
    Client, Error, LocalTransactionState, Message, MessageQueue, SendStatus, select_by_hash,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::message::RecordFields;
use support::fake::{self, FakeServer, Reply, stored};
use support::{Cluster, eventually};

#[tokio::test]
async fn messages_are_stored_in_turn_on_the_queues_of_all_brokers() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    let mut queues = BTreeMap::new();
    for number in 0..16 {
        let result = producer.send(Message::new("Orders", format!("order {number}")).tag("A")).await.unwrap();
        assert_eq!(result.status, SendStatus::SendOk);
        assert!(matches!(result.msg_id.len(), 32 | 56) && result.offset_msg_id.len() == 32, "{result:?}");
        *queues.entry(result.queue).or_insert(0) += 1;
    }
    // The topic was created by the first message, with four queues on each broker.
    assert_eq!(queues.len(), 8);
    assert!(queues.values().all(|count| *count == 2), "{queues:?}");
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn every_kind_of_send() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    producer.send(Message::new("T", "creates the topic")).await.unwrap();
    let queues = producer.fetch_publish_message_queues("T").await.unwrap();
    assert_eq!(queues.len(), 4);

    let chosen = producer.send_to_queue(Message::new("T", "there"), &queues[3]).await.unwrap();
    assert_eq!(chosen.queue, queues[3]);
    let selected = producer.send_with_selector(Message::new("T", "x"), |all| all.last().cloned()).await;
    assert_eq!(selected.unwrap().queue_offset, chosen.queue_offset + 1);
    for key in ["order-1", "order-2"] {
        let sharded = producer.send(Message::new("T", "x").sharding_key(key)).await.unwrap();
        assert_eq!(Some(&sharded.queue), select_by_hash(&queues, key));
    }

    let batch = (0..3).map(|number| Message::new("B", format!("message {number}"))).collect();
    let batch = producer.send_batch(batch).await.unwrap();
    assert_eq!((batch.msg_id.split(',').count(), batch.offset_msg_id.split(',').count()), (3, 3));

    let large = vec![b'x'; 1_000_000];
    let large = producer.send(Message::new("T", large).delay_level(2).keys(["k"])).await.unwrap();
    assert_eq!(large.status, SendStatus::SendOk);
    producer.send_oneway(Message::new("T", "without a promise")).await.unwrap();
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn sends_of_one_task_are_pipelined_and_keep_their_order() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    producer.send(Message::new("T", "first")).await.unwrap();
    let queue = MessageQueue::new("T", "broker-a", 0);
    let first = producer.send_to_queue(Message::new("T", "x"), &queue).await.unwrap().queue_offset;
    let mut sends = tokio::task::JoinSet::new();
    for number in 0..500 {
        let (producer, queue) = (producer.clone(), queue.clone());
        sends.spawn(async move {
            producer.send_to_queue(Message::new("T", format!("{number}")), &queue).await.unwrap().queue_offset
        });
    }
    let mut offsets = sends.join_all().await;
    offsets.sort_unstable();
    assert_eq!(offsets, (first + 1..=first + 500).collect::<Vec<_>>());
    client.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn what_no_broker_would_take_is_refused_here() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    for (message, reason) in [
        (Message::new("T", ""), "empty"),
        (Message::new("bad topic", "x"), "illegal characters"),
        (Message::new("T", vec![0; 4 * 1024 * 1024 + 1]), "limit"),
        (Message::new("T", "x").property("DELAY", "1"), "used by the system"),
    ] {
        let error = producer.send(message).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { .. }) && error.to_string().contains(reason), "{error}");
    }
    let again = client.producer("pg").start().await;
    assert!(matches!(again, Err(Error::GroupInUse { kind: "producer", .. })), "{again:?}");
    assert!(client.producer("bad group").start().await.is_err());
    drop(producer);
    client.producer("pg").start().await.unwrap();
    client.shutdown().await;
    assert!(matches!(client.producer("late").start().await, Err(Error::Closed { .. })));
    cluster.shutdown().await;
}

/// Two brokers; the first does `script` with messages, the second stores them.
fn two_brokers(
    script: impl Fn(&RemotingCommand) -> Reply + Send + Sync + 'static,
) -> (FakeServer, FakeServer, FakeServer) {
    let bad = fake::broker(script);
    let good = fake::broker(|_| Reply::Answer(stored(0)));
    let route = fake::route(&[("bad", &bad.address), ("good", &good.address)]);
    let name_server = fake::name_server(move || route.clone());
    (name_server, bad, good)
}

#[tokio::test]
async fn a_refused_message_goes_to_another_broker_if_the_code_says_so() {
    for (code, retried) in [
        (response::SYSTEM_BUSY, true),
        (response::SYSTEM_ERROR, true),
        (response::TOPIC_NOT_EXIST, true),
        (response::SERVICE_NOT_AVAILABLE, true),
        (response::NO_PERMISSION, true),
        (response::MESSAGE_ILLEGAL, false),
        (response::FLUSH_DISK_TIMEOUT, false),
    ] {
        let (name_server, mut bad, mut good) = two_brokers(move |_| {
            let is_stored = code == response::FLUSH_DISK_TIMEOUT;
            Reply::Answer(if is_stored { stored(code) } else { RemotingCommand::error(code, "so it is") })
        });
        let client = fake::client(&name_server).start().unwrap();
        let producer = client.producer("pg").start().await.unwrap();
        // Round robin: at least one of two first attempts goes to each broker.
        let results =
            [producer.send(Message::new("T", "x")).await, producer.send(Message::new("T", "y")).await];
        let to_bad = bad.count(request::SEND_MESSAGE_V2);
        assert!((1..=2).contains(&to_bad), "code {code}: {to_bad} attempts");
        let expected = if retried { 2 } else { 2 - to_bad };
        assert_eq!(good.count(request::SEND_MESSAGE_V2), expected, "code {code}");
        let failed = results.iter().find_map(|result| result.as_ref().err());
        assert_eq!(failed.is_some(), code == response::MESSAGE_ILLEGAL);
        if let Some(error) = failed {
            assert_eq!((error.response_code(), error.remark()), (Some(code), Some("so it is")));
            assert_eq!((error.broker(), error.topic()), (Some("bad"), Some("T")));
        }
        client.shutdown().await;
    }
}

#[tokio::test]
async fn a_message_that_is_not_safe_enough_goes_to_another_broker_if_wanted() {
    let (name_server, mut bad, mut good) =
        two_brokers(|_| Reply::Answer(stored(response::SLAVE_NOT_AVAILABLE)));
    let client = fake::client(&name_server).start().unwrap();
    let producer = client.producer("pg").retry_another_broker_when_not_store_ok(true).start().await.unwrap();
    for _ in 0..2 {
        let result = producer.send(Message::new("T", "x")).await.unwrap();
        assert_eq!((result.status, &*result.queue.broker_name), (SendStatus::SendOk, "good"));
    }
    assert!(bad.count(request::SEND_MESSAGE_V2) > 0);
    assert_eq!(good.count(request::SEND_MESSAGE_V2), 2);
    client.shutdown().await;
}

#[tokio::test]
async fn all_attempts_fail_with_the_last_reason() {
    let (name_server, bad, good) = two_brokers(|_| Reply::Silence);
    bad.stop();
    good.stop();
    let client = fake::client(&name_server).start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    let error = producer.send(Message::new("T", "x")).await.unwrap_err();
    let Error::SendFailed { attempts: 3, brokers, .. } = &error else { panic!("{error}") };
    assert!(brokers[0] != brokers[1] && brokers[0] == brokers[2], "{brokers:?}");
    assert_eq!(error.response_code(), Some(ferromq_client::client_code::CONNECT_BROKER_EXCEPTION));
    client.shutdown().await;
}

#[tokio::test]
async fn an_attempt_can_be_given_up_before_the_call() {
    let (name_server, mut bad, _good) = two_brokers(|_| Reply::Silence);
    let client = fake::client(&name_server).start().unwrap();
    let producer = client
        .producer("pg")
        .send_msg_timeout(Duration::from_secs(50))
        .send_msg_max_timeout_per_request(Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(producer.send(Message::new("T", "x")).await.unwrap().queue.broker_name, "good");
    }
    assert!(bad.count(request::SEND_MESSAGE_V2) > 0);
    client.shutdown().await;
}

#[tokio::test]
async fn a_new_master_is_found_within_one_call() {
    let old = fake::broker(|_| Reply::Silence);
    old.stop();
    let new = fake::broker(|_| Reply::Answer(stored(0)));
    let elected = Arc::new(AtomicBool::new(false));
    let (old_route, new_route) = (fake::route(&[("a", &old.address)]), fake::route(&[("a", &new.address)]));
    let name_server = fake::name_server({
        let elected = elected.clone();
        move || if elected.load(Ordering::SeqCst) { new_route.clone() } else { old_route.clone() }
    });
    let client = fake::client(&name_server).start().unwrap();
    let producer = client.producer("pg").topics(["T"]).start().await.unwrap();
    elected.store(true, Ordering::SeqCst);
    producer.send(Message::new("T", "x")).await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn a_slow_broker_is_avoided_and_used_again_later() {
    const SLOW: Duration = Duration::from_millis(600);
    let is_slow = Arc::new(AtomicBool::new(true));
    let (name_server, mut slow, mut healthy) = two_brokers({
        let is_slow = is_slow.clone();
        move |_| {
            if is_slow.load(Ordering::SeqCst) {
                Reply::After(SLOW, stored(0))
            } else {
                Reply::Answer(stored(0))
            }
        }
    });
    let client = fake::client(&name_server).start().unwrap();
    let producer = client.producer("pg").send_latency_fault_enable(true).start().await.unwrap();
    for _ in 0..20 {
        producer.send(Message::new("T", "x")).await.unwrap();
    }
    assert_eq!(slow.count(request::SEND_MESSAGE_V2), 1, "after its first late answer it is left alone");
    assert_eq!(healthy.count(request::SEND_MESSAGE_V2), 19);
    is_slow.store(false, Ordering::SeqCst);
    eventually("it gets messages again after two seconds", async || {
        producer.send(Message::new("T", "x")).await.unwrap();
        slow.count(request::SEND_MESSAGE_V2) > 0
    })
    .await;
    client.shutdown().await;
}

#[tokio::test]
async fn the_detector_makes_a_broker_reachable_again() {
    let (name_server, mut bad, _good) = two_brokers(|_| Reply::Answer(RemotingCommand::error(2, "busy")));
    let client = fake::client(&name_server).start().unwrap();
    let producer = client
        .producer("pg")
        .send_latency_fault_enable(true)
        .start_detector_enable(true)
        .detector(Duration::from_secs(5), Duration::from_millis(10))
        .start()
        .await
        .unwrap();
    for _ in 0..2 {
        producer.send(Message::new("T", "x")).await.unwrap();
    }
    bad.asked(request::GET_MAX_OFFSET).await;
    client.shutdown().await;
}

#[tokio::test]
async fn the_next_name_server_is_asked_when_one_is_gone() {
    let broker = fake::broker(|_| Reply::Answer(stored(0)));
    let route = fake::route(&[("a", &broker.address)]);
    let (gone, here) = (fake::name_server(Default::default), fake::name_server(move || route.clone()));
    gone.stop();
    let client = Client::builder(format!("{};{}", gone.address, here.address)).start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    producer.send(Message::new("T", "x")).await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn a_server_that_goes_away_gets_the_request_again_on_a_new_connection() {
    let sent_away = AtomicBool::new(false);
    let mut broker = fake::broker(move |_| {
        let first = !sent_away.swap(true, Ordering::SeqCst);
        Reply::Answer(if first { RemotingCommand::response(response::GO_AWAY) } else { stored(0) })
    });
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let client = fake::client(&name_server).start().unwrap();
    let producer = client.producer("pg").retry_times_when_send_failed(0).start().await.unwrap();
    producer.send(Message::new("T", "x")).await.unwrap();
    let (first, second) = (broker.connection().await, broker.connection().await);
    assert_ne!(first.id(), second.id());
    first.closed().await;
    client.shutdown().await;
}

#[tokio::test]
async fn a_dropped_send_leaves_the_connection_as_it_is() {
    let mut broker = fake::broker(|_| Reply::After(Duration::from_millis(5), stored(0)));
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let client = fake::client(&name_server).start().unwrap();
    let producer = client.producer("pg").topics(["T"]).start().await.unwrap();
    for number in 0..200u64 {
        // Dropped at every stage: before it was polled, after it was queued, while the answer is on its way.
        let send = producer.send(Message::new("T", vec![b'x'; 2000]));
        let _ = tokio::time::timeout(Duration::from_micros(number * 50), send).await;
    }
    producer.send(Message::new("T", "still works")).await.unwrap();
    broker.connection().await;
    assert!(broker.count(request::SEND_MESSAGE_V2) <= 201);
    client.shutdown().await;
}

#[tokio::test]
async fn nothing_is_left_of_a_client_that_was_shut_down_or_dropped() {
    let cluster = Cluster::start(1).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for orderly in [true, false] {
        let client = cluster.client().start().unwrap();
        let producer = client
            .producer("pg")
            .send_latency_fault_enable(true)
            .start_detector_enable(true)
            .auto_batch(true)
            .enable_trace(true)
            .start()
            .await
            .unwrap();
        producer.send(Message::new("T", "x")).await.unwrap();
        producer.send_oneway(Message::new("T", "x")).await.unwrap();
        assert!(tasks() > before);
        if orderly {
            client.shutdown().await;
            let late = producer.send(Message::new("T", "x")).await;
            assert!(matches!(late, Err(Error::Closed { .. })), "{late:?}");
        }
        drop((client, producer));
        // The server's own ends of the connections go with them.
        eventually("all tasks have ended", async || tasks() <= before).await;
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn brokers_hear_of_a_producer_when_it_connects_and_when_it_leaves() {
    let mut broker = fake::broker(|_| Reply::Answer(stored(0)));
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let client = fake::client(&name_server).instance_name("me").start().unwrap();
    let producer = client.producer("pg").start().await.unwrap();
    producer.send(Message::new("T", "x")).await.unwrap();
    let beat = broker.asked(request::HEART_BEAT).await;
    let beat: ferromq_protocol::body::HeartbeatData = json::from_slice(&beat.body).unwrap();
    let groups: Vec<_> = beat.producer_data_set.iter().map(|data| &*data.group_name).collect();
    assert_eq!((&*beat.client_id, groups), ("127.0.0.1@me", vec!["pg", "CLIENT_INNER_PRODUCER"]));
    producer.shutdown().await;
    let goodbye = broker.asked(request::UNREGISTER_CLIENT).await;
    assert_eq!(
        (goodbye.field("clientID"), goodbye.field("producerGroup")),
        (Some("127.0.0.1@me"), Some("pg"))
    );
    client.shutdown().await;
}

#[tokio::test]
async fn a_transaction_is_ended_once_and_a_broker_that_asks_is_told() {
    let mut broker = fake::broker(|_| Reply::Answer(stored(0).with("transactionId", "transaction")));
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let client = fake::client(&name_server).start().unwrap();
    let check = |_| async { LocalTransactionState::RollbackMessage };
    let producer = client.producer("pg").start_transactional(check).await.unwrap();
    let commit = |_| async { LocalTransactionState::CommitMessage };
    let result = producer.send_in_transaction(Message::new("T", "x"), commit).await.unwrap();
    let half = broker.asked(request::SEND_MESSAGE_V2).await;
    assert_eq!(half.field("f"), Some("4"), "a prepared message");
    let end = broker.asked(request::END_TRANSACTION).await;
    let field = |name| end.field(name);
    assert!(end.is_oneway());
    assert_eq!((field("commitOrRollback"), field("fromTransactionCheck")), (Some("8"), Some("false")));
    assert_eq!((field("tranStateTableOffset"), field("commitLogOffset")), (Some("7"), Some("123456")));
    assert_eq!((field("msgId"), field("transactionId")), (Some(&*result.sent.msg_id), Some("transaction")));

    let mut record = Vec::new();
    let properties = half.field("i").unwrap().as_bytes().to_vec();
    let mut fields = RecordFields::new("T", 0, "127.0.0.1:10911".parse().unwrap(), b"x");
    fields.properties = &properties;
    fields.encode_into(&mut record).unwrap();
    let question = RemotingCommand::request(request::CHECK_TRANSACTION_STATE)
        .with("topic", "RMQ_SYS_TRANS_HALF_TOPIC")
        .with("tranStateTableOffset", 9)
        .with("commitLogOffset", 99)
        .with_body(record);
    broker.connection().await.oneway(question);
    let end = broker.asked(request::END_TRANSACTION).await;
    let field = |name| end.field(name);
    assert_eq!((field("commitOrRollback"), field("fromTransactionCheck")), (Some("12"), Some("true")));
    assert_eq!((field("tranStateTableOffset"), field("commitLogOffset")), (Some("9"), Some("99")));
    assert_eq!(field("msgId"), Some(&*result.sent.msg_id));
    let delayed = producer.send_in_transaction(Message::new("T", "x").delay_level(1), commit).await;
    assert!(matches!(delayed, Err(Error::Invalid { .. })), "{delayed:?}");
    client.shutdown().await;
}
