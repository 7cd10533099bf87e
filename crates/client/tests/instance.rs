//! What a client does towards name servers and brokers, seen from their side.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferromq_client::{Client, ConsumeFrom, ConsumeResult, Delivery, PushConsumer};
use ferromq_protocol::body::{
    CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo, GetConsumerListByGroupResponseBody,
    GetConsumerStatusBody, HeartbeatData, MessageQueue, ResetOffsetBody, TopicRouteData,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::message::{RecordFields, set_log_fields};
use support::eventually;
use support::fake::{self, FakeServer, Reply};
use support::inbox::Inbox;

/// A stored message of topic `T` at this offset of queue 0.
fn record(queue_offset: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let body = queue_offset.to_string();
    let fields = RecordFields::new("T", 0, "127.0.0.1:10911".parse().unwrap(), body.as_bytes());
    fields.encode_into(&mut bytes).unwrap();
    set_log_fields(&mut bytes, queue_offset, 1000, 0);
    bytes
}

/// The answer to a pull that found one message, or none at the end of the queue.
fn pulled(command: &RemotingCommand, messages: i64, broker_id: i64) -> Reply {
    let offset: i64 = command.number("queueOffset").unwrap();
    let answer = |code| {
        RemotingCommand::response(code)
            .with("suggestWhichBrokerId", broker_id)
            .with("minOffset", 0)
            .with("maxOffset", messages)
    };
    if offset < messages {
        Reply::Answer(answer(0).with("nextBeginOffset", offset + 1).with_body(record(offset)))
    } else {
        let nothing = answer(response::PULL_NOT_FOUND).with("nextBeginOffset", offset);
        Reply::After(Duration::from_millis(20), nothing)
    }
}

/// A broker for one consumer, whose id is `127.0.0.1@me`. It does what the script says, and the usual where that says
/// nothing.
fn broker(script: impl Fn(&RemotingCommand) -> Option<Reply> + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(move |command| script(command).unwrap_or_else(|| usual(command)))
}

fn usual(command: &RemotingCommand) -> Reply {
    let success = RemotingCommand::success();
    Reply::Answer(match command.code {
        request::GET_CONSUMER_LIST_BY_GROUP => {
            let consumer_id_list = vec!["127.0.0.1@me".to_owned()];
            success.with_body(json::to_vec(&GetConsumerListByGroupResponseBody { consumer_id_list }))
        }
        request::QUERY_CONSUMER_OFFSET => success.with("offset", 0),
        request::HEART_BEAT => {
            let beat: HeartbeatData = json::from_slice(&command.body).unwrap();
            let is_classic = beat.heartbeat_fingerprint == 0;
            success.with("IS_SUPPORT_HEART_BEAT_V2", true).with("IS_SUB_CHANGE", is_classic)
        }
        request::SEND_MESSAGE_V2 => fake::stored(0),
        _ => success,
    })
}

/// A broker with this many messages in its queue, which suggests another broker to its readers.
fn broker_with(messages: i64, suggests: impl Fn() -> i64 + Send + Sync + 'static) -> FakeServer {
    broker(move |command| {
        (command.code == request::PULL_MESSAGE).then(|| pulled(command, messages, suggests()))
    })
}

/// As [`usual`], with progress that is kept.
#[derive(Default)]
struct Progress(AtomicI64);

impl Progress {
    fn answer(&self, command: &RemotingCommand) -> Option<Reply> {
        match command.code {
            request::UPDATE_CONSUMER_OFFSET => {
                self.0.store(command.number("commitOffset").unwrap(), Ordering::SeqCst);
                Some(Reply::Silence)
            }
            request::QUERY_CONSUMER_OFFSET => {
                let offset = self.0.load(Ordering::SeqCst);
                Some(Reply::Answer(RemotingCommand::success().with("offset", offset)))
            }
            _ => None,
        }
    }
}

async fn consume(client: &Client, inbox: &Inbox) -> PushConsumer {
    let inbox = inbox.clone();
    let builder = client.push_consumer("g").subscribe("T", "*").consume_from(ConsumeFrom::FirstOffset);
    let builder = builder.listener(move |delivery: Delivery| {
        inbox.put("me", &delivery);
        async { ConsumeResult::success() }
    });
    builder.start().await.unwrap()
}

fn client_of(name_server: &FakeServer) -> Client {
    let client = fake::client(name_server).instance_name("me");
    client.pull_delay_when_exception(Duration::from_millis(50)).start().unwrap()
}

#[tokio::test]
async fn a_broker_learns_what_a_consumer_does() {
    let mut broker = broker_with(3, || 0);
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let (client, inbox) = (client_of(&name_server), Inbox::default());
    let consumer = consume(&client, &inbox).await;
    eventually("three messages", async || inbox.len() >= 3).await;
    let connection = broker.connection().await;
    let ask = |command: RemotingCommand| connection.invoke(command, Duration::from_secs(10));

    let running = RemotingCommand::request(request::GET_CONSUMER_RUNNING_INFO).with("consumerGroup", "g");
    let answer = ask(running.clone()).await.unwrap();
    let info: ConsumerRunningInfo = json::from_slice(&answer.body).unwrap();
    let queue = MessageQueue::new("T", "a", 0);
    assert!(info.mq_table.contains_key(&queue), "{info:?}");
    assert_eq!(info.properties["PROP_CONSUME_TYPE"], "CONSUME_PASSIVELY");
    assert_eq!(info.properties["PROP_NAMESERVER_ADDR"], format!("{};", name_server.address));
    let unknown = RemotingCommand { fields: None, ..running }.with("consumerGroup", "x");
    let answer = ask(unknown).await.unwrap();
    let remark = "The Consumer Group <x> not exist in this consumer";
    assert_eq!((answer.code, answer.remark.as_deref()), (response::SYSTEM_ERROR, Some(remark)));

    let status = RemotingCommand::request(request::GET_CONSUMER_STATUS_FROM_CLIENT);
    let answer = ask(status.with("topic", "T").with("group", "g")).await.unwrap();
    let status: GetConsumerStatusBody = json::from_slice(&answer.body).unwrap();
    assert_eq!(status.message_queue_table, BTreeMap::from([(queue, 3)]));

    let direct = RemotingCommand::request(request::CONSUME_MESSAGE_DIRECTLY).with_body(record(99));
    let answer = ask(direct.with("consumerGroup", "g").with("brokerName", "a")).await.unwrap();
    let result: ConsumeMessageDirectlyResult = json::from_slice(&answer.body).unwrap();
    assert_eq!(result.consume_result, Some(CMResult::Success));
    assert_eq!(inbox.bodies()["99"], 1);

    let answer = ask(RemotingCommand::request(4711)).await.unwrap();
    assert_eq!(answer.code, response::REQUEST_CODE_NOT_SUPPORTED);
    consumer.shutdown().await;
    client.shutdown().await;
}

#[tokio::test]
async fn progress_is_reset_when_an_administrator_says_so() {
    let progress = Progress::default();
    let mut broker = broker(move |command| match command.code {
        request::PULL_MESSAGE => Some(pulled(command, 5, 0)),
        _ => progress.answer(command),
    });
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let (client, inbox) = (client_of(&name_server), Inbox::default());
    let _consumer = consume(&client, &inbox).await;
    eventually("five messages", async || inbox.len() >= 5).await;
    let body = ResetOffsetBody { offset_table: BTreeMap::from([(MessageQueue::new("T", "a", 0), 3)]) };
    let reset =
        RemotingCommand::request(request::RESET_CONSUMER_CLIENT_OFFSET).with_body(json::to_vec(&body));
    broker.connection().await.oneway(reset.with("topic", "T").with("group", "g"));
    eventually("two of them again", async || inbox.len() >= 7).await;
    let twice: Vec<_> =
        inbox.bodies().into_iter().filter(|(_, times)| *times == 2).map(|(body, _)| body).collect();
    assert_eq!(twice, ["3", "4"]);
    client.shutdown().await;
}

#[tokio::test]
async fn a_replica_is_read_when_the_broker_says_so_and_when_the_master_is_gone() {
    let suggestion = Arc::new(AtomicI64::new(1));
    let mut master = broker_with(1, {
        let suggestion = suggestion.clone();
        move || suggestion.load(Ordering::SeqCst)
    });
    let mut slave = broker_with(5, || 0);
    let mut route: TopicRouteData = fake::route(&[("a", &master.address)]);
    route.broker_datas[0].broker_addrs.insert(1, slave.address.clone());
    let name_server = fake::name_server(move || route.clone());
    let (client, inbox) = (client_of(&name_server), Inbox::default());
    let _consumer = consume(&client, &inbox).await;
    slave.asked(request::PULL_MESSAGE).await;
    // Back at the master, as the slave suggested, which has nothing more.
    suggestion.store(0, Ordering::SeqCst);
    master.asked(request::PULL_MESSAGE).await;
    eventually("what the slave gave", async || inbox.len() >= 2).await;
    master.stop();
    eventually("everything that the slave has", async || inbox.len() >= 5).await;
    assert!(inbox.bodies().values().all(|times| *times == 1), "{:?}", inbox.bodies());
    client.shutdown().await;
}

#[tokio::test]
async fn an_illegal_offset_is_replaced_by_what_the_broker_says() {
    let progress = Progress::default();
    let broker = broker(move |command| match command.code {
        request::PULL_MESSAGE if command.number::<i64>("queueOffset").unwrap() < 2 => {
            let moved = RemotingCommand::response(response::PULL_OFFSET_MOVED).with("nextBeginOffset", 2);
            Some(Reply::Answer(
                moved.with("suggestWhichBrokerId", 0).with("minOffset", 2).with("maxOffset", 4),
            ))
        }
        request::PULL_MESSAGE => Some(pulled(command, 4, 0)),
        _ => progress.answer(command),
    });
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let (client, inbox) = (client_of(&name_server), Inbox::default());
    let _consumer = consume(&client, &inbox).await;
    eventually("what is left", async || inbox.len() >= 2).await;
    assert_eq!(inbox.by_queue()[&MessageQueue::new("T", "a", 0)], [2, 3]);
    client.shutdown().await;
}

#[tokio::test]
async fn the_second_form_of_heartbeats_leaves_out_what_is_known() {
    let mut broker = broker_with(0, || 0);
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let client = fake::client(&name_server).instance_name("me").heartbeat_v2(true);
    let client = client.heartbeat_broker_interval(Duration::from_millis(50)).start().unwrap();
    let consumer = consume(&client, &Inbox::default()).await;
    let mut next = async || -> HeartbeatData {
        json::from_slice(&broker.asked(request::HEART_BEAT).await.body).unwrap()
    };
    let full = next().await;
    assert!(!full.without_sub && full.heartbeat_fingerprint != 0);
    assert!(!full.consumer_data_set[0].subscription_data_set.is_empty());
    let light = loop {
        let beat = next().await;
        if beat.without_sub {
            break beat;
        }
    };
    assert_eq!(light.heartbeat_fingerprint, full.heartbeat_fingerprint);
    assert!(light.consumer_data_set[0].subscription_data_set.is_empty());
    consumer.subscribe("T", "TagB").await.unwrap();
    eventually("the new subscription in full", async || {
        let beat = next().await;
        let mut subscriptions = beat.consumer_data_set.iter().flat_map(|data| &data.subscription_data_set);
        subscriptions.any(|data| data.sub_string == "TagB")
    })
    .await;
    client.shutdown().await;
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_the_broker_hears_of_the_consumer_at_once() {
    let mut broker = broker_with(0, || 0);
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let client = client_of(&name_server);
    let _consumer = consume(&client, &Inbox::default()).await;
    broker.asked(request::PULL_MESSAGE).await;
    broker.connection().await.close();
    // Long before the regular heartbeat.
    let second = broker.connection().await;
    eventually("a heartbeat over the new connection", async || {
        let _ = broker.asked(request::HEART_BEAT).await;
        !second.is_closed()
    })
    .await;
    broker.asked(request::PULL_MESSAGE).await;
    client.shutdown().await;
}

#[tokio::test]
async fn messages_that_no_broker_takes_back_are_sent_as_copies() {
    let mut broker = broker(|command| match command.code {
        request::PULL_MESSAGE => Some(pulled(command, 1, 0)),
        request::CONSUMER_SEND_MSG_BACK => {
            Some(Reply::Answer(RemotingCommand::error(response::SYSTEM_ERROR, "no")))
        }
        _ => None,
    });
    let route = fake::route(&[("a", &broker.address)]);
    let name_server = fake::name_server(move || route.clone());
    let client = client_of(&name_server);
    let builder = client.push_consumer("g").subscribe("T", "*").consume_from(ConsumeFrom::FirstOffset);
    let _consumer = builder.listener(|_| async { Err::<(), _>("later") }).start().await.unwrap();
    let back = broker.asked(request::CONSUMER_SEND_MSG_BACK).await;
    assert_eq!(
        (back.field("originTopic"), back.field("offset"), back.field("delayLevel")),
        (Some("T"), Some("1000"), Some("0"))
    );
    let copy = broker.asked(request::SEND_MESSAGE_V2).await;
    assert_eq!((copy.field("a"), copy.field("b")), (Some("CLIENT_INNER_PRODUCER"), Some("%RETRY%g")));
    assert_eq!((copy.field("j"), copy.field("l")), (Some("1"), Some("16")));
    assert!(copy.field("i").unwrap().contains("RETRY_TOPIC\u{1}T\u{2}"));
    client.shutdown().await;
}
