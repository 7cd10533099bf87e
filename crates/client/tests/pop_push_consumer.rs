//! Push consumers whose queues brokers assign, to be pulled or popped from, against brokers that follow a script.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::{
    AllocateStrategy, Client, ConsumeResult, Delivery, Error, MessageQueue, PushConsumerBuilder,
};
use ferromq_protocol::body::{BatchAckMessageRequestBody, HeartbeatData, MessageRequestMode};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use parking_lot::Mutex;
use support::eventually;
use support::fake::{self, FakeServer, Reply};
use support::inbox::Inbox;
use support::pops::{assigning, name_server, popped};
use tokio::sync::Semaphore;

/// A broker that has its queues popped from as a whole, and answers the first pop with these messages.
fn broker(messages: &[(i64, &str)]) -> FakeServer {
    let first = Mutex::new(Some(popped(messages)));
    FakeServer::start(move |command| match command.code {
        request::POP_MESSAGE => first.lock().take().map_or(Reply::Silence, Reply::Answer),
        request::QUERY_ASSIGNMENT => {
            let is_topic = String::from_utf8_lossy(&command.body).contains(r#""topic":"T""#);
            let nothing = || RemotingCommand::success().with_body("{}");
            Reply::Answer(if is_topic { assigning(MessageRequestMode::Pop, -1) } else { nothing() })
        }
        request::CHANGE_MESSAGE_INVISIBLETIME => {
            let changed = RemotingCommand::success().with("popTime", 8).with("invisibleTime", 5000);
            Reply::Answer(changed.with("reviveQid", 4))
        }
        _ => Reply::Answer(RemotingCommand::success()),
    })
}

fn consumer(client: &Client) -> PushConsumerBuilder {
    client.push_consumer("g").subscribe("T", "*").client_rebalance(false)
}

#[tokio::test]
async fn what_is_assigned_is_popped_from_and_acknowledged() {
    let mut broker = broker(&[(100, "A"), (101, "A"), (103, "A")]);
    let name_server = name_server(&broker);
    let (client, inbox) = (fake::client(&name_server).start().unwrap(), Inbox::default());
    let got = inbox.clone();
    let consumer = consumer(&client)
        .consume_message_batch_max_size(3)
        .listener(move |delivery: Delivery| {
            got.put("c", &delivery);
            async { ConsumeResult::success() }
        })
        .start()
        .await
        .unwrap();
    let asked = broker.asked(request::POP_MESSAGE).await;
    for (field, value) in [
        ("consumerGroup", "g"),
        ("topic", "T"),
        ("queueId", "-1"),
        ("maxMsgNums", "32"),
        ("invisibleTime", "60000"),
        ("pollTime", "15000"),
        ("initMode", "1"),
        ("exp", "*"),
        ("order", "false"),
    ] {
        assert_eq!(asked.field(field), Some(value), "{field}");
    }
    let asked = broker.asked(request::BATCH_ACK_MESSAGE).await;
    let body: BatchAckMessageRequestBody = json::from_slice(&asked.body).unwrap();
    assert_eq!((body.acks[0].start_offset, &*body.acks[0].bit_set), (100, "Cw=="), "bits 0, 1 and 3");
    assert_eq!(*inbox.messages()[0].queue, MessageQueue::new("T", "a", 2));
    assert_eq!(consumer.assigned_queues(), [MessageQueue::new("T", "a", -1)]);
    client.shutdown().await;
}

/// What a consumer does about messages with which its listener does this.
async fn after(
    messages: &[(i64, &str)],
    listener: impl Fn(Delivery) -> ConsumeResult + Send + Sync + 'static,
    code: i32,
) -> RemotingCommand {
    let mut broker = broker(messages);
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let listener = move |delivery| {
        let result = listener(delivery);
        async move { result }
    };
    let _consumer = consumer(&client).listener(listener).start().await.unwrap();
    let asked = broker.asked(code).await;
    client.shutdown().await;
    asked
}

#[tokio::test]
async fn what_fails_comes_again_later_each_time() {
    for (tries, seconds) in [("0", "10000"), ("1", "30000"), ("15", "7200000")] {
        let later = |_| ConsumeResult::reconsume_later();
        let asked = after(&[(100, tries)], later, request::CHANGE_MESSAGE_INVISIBLETIME).await;
        assert_eq!(asked.field("invisibleTime"), Some(seconds), "after {tries} tries");
        assert_eq!((asked.field("topic"), asked.field("offset")), (Some("T"), Some("100")));
    }
    let wanted = |_| ConsumeResult::reconsume_later().delay_level(2);
    let asked = after(&[(100, "0")], wanted, request::CHANGE_MESSAGE_INVISIBLETIME).await;
    assert_eq!(asked.field("invisibleTime"), Some("60000"), "as the listener wants");
    let panics = |_| panic!("the listener's mistake");
    let asked = after(&[(100, "0")], panics, request::CHANGE_MESSAGE_INVISIBLETIME).await;
    assert_eq!(asked.field("invisibleTime"), Some("10000"));
}

#[tokio::test]
async fn what_fails_for_good_becomes_a_dead_letter() {
    let at_once = |_| ConsumeResult::reconsume_later().dead_letter();
    let asked = after(&[(100, "0")], at_once, request::CONSUMER_SEND_MSG_BACK).await;
    assert_eq!((asked.field("delayLevel"), asked.field("originMsgId")), (Some("-1"), Some("id-100")));
    let last_try = |_| ConsumeResult::reconsume_later();
    let asked = after(&[(100, "16")], last_try, request::CONSUMER_SEND_MSG_BACK).await;
    assert_eq!(asked.field("delayLevel"), Some("-1"));
    // It was lent more often than it was given back: its consumers may have died of it.
    let not_called = |_| panic!("it does not reach the listener");
    let asked = after(&[(100, "17")], not_called, request::CONSUMER_SEND_MSG_BACK).await;
    assert_eq!(asked.field("delayLevel"), Some("-1"));
}

#[tokio::test]
async fn nothing_more_is_popped_while_too_many_messages_are_not_acknowledged() {
    let mut broker = broker(&[(100, "A"), (101, "A")]);
    let name_server = name_server(&broker);
    let (client, gate) = (fake::client(&name_server).start().unwrap(), Arc::new(Semaphore::new(0)));
    let passing = gate.clone();
    let _consumer = consumer(&client)
        .pop_threshold_for_queue(1)
        .listener(move |_| {
            let passing = passing.clone();
            async move {
                passing.acquire().await.unwrap().forget();
                ConsumeResult::success()
            }
        })
        .start()
        .await
        .unwrap();
    broker.asked(request::POP_MESSAGE).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(broker.count(request::POP_MESSAGE), 0, "two are more than one");
    gate.add_permits(1);
    broker.asked(request::POP_MESSAGE).await;
    gate.add_permits(1);
    client.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_finishes_what_the_listener_has_and_leaves_the_rest() {
    let mut broker = broker(&[(100, "A"), (101, "A")]);
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counter, passing) = (begun.clone(), gate.clone());
    let consumer = consumer(&client)
        .consume_concurrency(1)
        .listener(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            let passing = passing.clone();
            async move {
                passing.acquire().await.unwrap().forget();
                ConsumeResult::success()
            }
        })
        .start()
        .await
        .unwrap();
    eventually("the listener has one", async || begun.load(Ordering::SeqCst) == 1).await;
    tokio::join!(consumer.shutdown(), async { gate.add_permits(2) });
    assert_eq!(broker.asked(request::ACK_MESSAGE).await.field("offset"), Some("100"));
    assert_eq!((begun.load(Ordering::SeqCst), broker.count(request::ACK_MESSAGE)), (1, 0));
    client.shutdown().await;
}

#[tokio::test]
async fn a_group_changes_between_pop_and_pull() {
    let pops = Arc::new(AtomicBool::new(true));
    let mode = pops.clone();
    let mut broker = FakeServer::start(move |command| match command.code {
        request::QUERY_ASSIGNMENT if String::from_utf8_lossy(&command.body).contains(r#""topic":"T""#) => {
            Reply::Answer(match mode.load(Ordering::SeqCst) {
                true => assigning(MessageRequestMode::Pop, -1),
                false => assigning(MessageRequestMode::Pull, 2),
            })
        }
        request::QUERY_ASSIGNMENT => Reply::Answer(RemotingCommand::success().with_body("{}")),
        request::POP_MESSAGE | request::PULL_MESSAGE => Reply::Silence,
        request::QUERY_CONSUMER_OFFSET => Reply::Answer(RemotingCommand::success().with("offset", 7)),
        _ => Reply::Answer(RemotingCommand::success()),
    });
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let listener = |_| async { ConsumeResult::success() };
    let consumer = consumer(&client).listener(listener).start().await.unwrap();
    let subscribed_topics = |heartbeat: &RemotingCommand| {
        let body: HeartbeatData = json::from_slice(&heartbeat.body).unwrap();
        let subscriptions = body.consumer_data_set[0].subscription_data_set.iter();
        subscriptions.map(|data| data.topic.clone()).collect::<Vec<_>>()
    };
    for round in 0..2 {
        broker.asked(request::POP_MESSAGE).await;
        assert_eq!(consumer.assigned_queues(), [MessageQueue::new("T", "a", -1)], "round {round}");

        pops.store(false, Ordering::SeqCst);
        consumer.resume();
        let asked = broker.asked(request::PULL_MESSAGE).await;
        assert_eq!((asked.field("queueId"), asked.field("queueOffset")), (Some("2"), Some("7")));
        assert_eq!(consumer.assigned_queues(), [MessageQueue::new("T", "a", 2)]);
        // What was popped before and failed is pulled, too.
        let mut told = Vec::new();
        eventually("the retry topic is subscribed to", async || {
            told = subscribed_topics(&broker.asked(request::HEART_BEAT).await);
            told == ["%RETRY%g", "%RETRY%g_T", "T"]
        })
        .await;

        pops.store(true, Ordering::SeqCst);
        consumer.resume();
    }
    client.shutdown().await;
}

#[tokio::test]
async fn a_broker_that_can_t_say_leaves_everything_as_it_is() {
    let can_say = Arc::new(AtomicBool::new(true));
    let says = can_say.clone();
    let mut broker = FakeServer::start(move |command| match command.code {
        request::QUERY_ASSIGNMENT if says.load(Ordering::SeqCst) => {
            Reply::Answer(assigning(MessageRequestMode::Pop, 2))
        }
        request::QUERY_ASSIGNMENT => Reply::Answer(RemotingCommand::error(response::SYSTEM_ERROR, "busy")),
        request::POP_MESSAGE => Reply::Silence,
        _ => Reply::Answer(RemotingCommand::success()),
    });
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let listener = |_| async { ConsumeResult::success() };
    let consumer = consumer(&client).listener(listener).start().await.unwrap();
    broker.asked(request::POP_MESSAGE).await;
    can_say.store(false, Ordering::SeqCst);
    let _ = broker.count(request::QUERY_ASSIGNMENT);
    consumer.resume();
    broker.asked(request::QUERY_ASSIGNMENT).await;
    broker.asked(request::QUERY_ASSIGNMENT).await;
    assert_eq!(consumer.assigned_queues(), [MessageQueue::new("T", "a", 2)]);
    client.shutdown().await;
}

#[tokio::test]
async fn members_share_out_the_queues_themselves_if_brokers_can_t() {
    let me = Arc::new(Mutex::new(String::new()));
    let member = me.clone();
    let mut broker = FakeServer::start(move |command| match command.code {
        request::QUERY_ASSIGNMENT => Reply::Answer(RemotingCommand::not_supported(command.code)),
        request::GET_CONSUMER_LIST_BY_GROUP => {
            let body = format!(r#"{{"consumerIdList":["{}"]}}"#, member.lock());
            Reply::Answer(RemotingCommand::success().with_body(body))
        }
        request::QUERY_CONSUMER_OFFSET => Reply::Answer(RemotingCommand::success().with("offset", 7)),
        request::PULL_MESSAGE => Reply::Silence,
        _ => Reply::Answer(RemotingCommand::success()),
    });
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    client.id().clone_into(&mut me.lock());
    let listener = |_| async { ConsumeResult::success() };
    let _consumer = consumer(&client).listener(listener).start().await.unwrap();
    assert_eq!(broker.asked(request::PULL_MESSAGE).await.field("queueId"), Some("0"));
    client.shutdown().await;
}

#[tokio::test]
async fn settings_that_can_t_be_used_are_refused() {
    let broker = broker(&[]);
    let name_server = name_server(&broker);
    let client = fake::client(&name_server).start().unwrap();
    let listening = || consumer(&client).listener(|_| async { ConsumeResult::success() });
    for refused in [
        listening().pop_invisible_time(Duration::from_secs(4)),
        listening().pop_invisible_time(Duration::from_secs(301)),
        listening().pop_batch_nums(33),
        listening().pop_threshold_for_queue(0),
        listening().allocate_message_queue_strategy(AllocateStrategy::ConsistentHash { virtual_nodes: 10 }),
    ] {
        assert!(matches!(refused.start().await, Err(Error::Invalid { .. })));
    }
    client.shutdown().await;
}
