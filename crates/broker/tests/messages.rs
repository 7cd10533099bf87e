//! A message's way through a running broker, seen by a client on a socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_broker::RunningBroker;
use ferromq_broker::config::BrokerConfig;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_protocol::message::{RecordView, batch};
use ferromq_remoting::{Client, Connection, Limits, NoRequests};

const TIMEOUT: Duration = Duration::from_secs(20);

struct Fixture {
    broker: RunningBroker,
    connection: Arc<Connection>,
    _directory: tempfile::TempDir,
}

/// A message as a consumer sees it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    queue_offset: i64,
    body: Vec<u8>,
    properties: Vec<u8>,
    reconsume_times: i32,
}

impl Fixture {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let broker = start_broker(directory.path(), settings).await;
        let connection = connect(&broker).await;
        Self { broker, connection, _directory: directory }
    }

    async fn call(&self, command: RemotingCommand) -> RemotingCommand {
        self.connection.invoke(command, TIMEOUT).await.expect("an answer")
    }

    async fn send(&self, topic: &str, queue_id: i32, properties: &str, body: &str) -> RemotingCommand {
        self.call(send_request(topic, queue_id, properties, body)).await
    }

    async fn pull(
        &self,
        topic: &str,
        queue_id: i32,
        offset: i64,
        expression: &str,
    ) -> (RemotingCommand, Vec<Seen>) {
        let answer = self.call(pull_request(topic, queue_id, offset, expression, 0)).await;
        let messages = messages(&answer.body);
        (answer, messages)
    }
}

async fn start_broker(directory: &Path, settings: &[(&str, &str)]) -> RunningBroker {
    let mut config = BrokerConfig::default();
    let root = directory.join("store").display().to_string();
    let own = [
        ("storePathRootDir", root.as_str()),
        ("listenPort", "0"),
        ("brokerIP1", "127.0.0.1"),
        ("brokerName", "b"),
    ];
    // Small files, so that many tests can run side by side.
    let small =
        [("mappedFileSizeCommitLog", "16777216"), ("maxHashSlotNum", "1000"), ("maxIndexNum", "4000")];
    for (key, value) in own.iter().chain(&small).chain(settings) {
        assert!(config.set(key, value).expect("a valid setting"), "{key} is a setting");
    }
    RunningBroker::start(config).await.expect("the broker starts")
}

async fn connect(broker: &RunningBroker) -> Arc<Connection> {
    let client = Client::with_service(Arc::new(NoRequests), HeaderEncoding::Binary, Limits::default());
    client.connection(&format!("127.0.0.1:{}", broker.address().port())).await.expect("a connection")
}

fn send_request(topic: &str, queue_id: i32, properties: &str, body: &str) -> RemotingCommand {
    RemotingCommand::request(request::SEND_MESSAGE_V2)
        .with("a", "producers")
        .with("b", topic)
        .with("c", "TBW102")
        .with("d", 4)
        .with("e", queue_id)
        .with("f", 0)
        .with("g", 1_700_000_000_000_i64)
        .with("h", 0)
        .with("i", properties)
        .with_body(body.to_owned())
}

fn pull_request(
    topic: &str,
    queue_id: i32,
    offset: i64,
    expression: &str,
    suspend_ms: i64,
) -> RemotingCommand {
    const SUSPEND: i32 = 2;
    const SUBSCRIPTION: i32 = 4;
    RemotingCommand::request(request::PULL_MESSAGE)
        .with("consumerGroup", "consumers")
        .with("topic", topic)
        .with("queueId", queue_id)
        .with("queueOffset", offset)
        .with("maxMsgNums", 32)
        .with("sysFlag", SUBSCRIPTION | if suspend_ms > 0 { SUSPEND } else { 0 })
        .with("commitOffset", 0)
        .with("suspendTimeoutMillis", suspend_ms)
        .with("subscription", expression)
        .with("subVersion", 1)
}

fn messages(mut body: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    while !body.is_empty() {
        let size = u32::from_be_bytes(body[..4].try_into().expect("four bytes")) as usize;
        let record = RecordView::parse(&body[..size]).expect("a whole record");
        seen.push(Seen {
            queue_offset: record.queue_offset(),
            body: record.body().to_vec(),
            properties: record.properties().to_vec(),
            reconsume_times: record.reconsume_times(),
        });
        body = &body[size..];
    }
    seen
}

fn number(answer: &RemotingCommand, field: &'static str) -> i64 {
    answer.number(field).unwrap_or_else(|error| panic!("{error} in {answer:?}"))
}

#[tokio::test]
async fn a_pull_after_an_answered_send_sees_the_message() {
    let fixture = Fixture::start(&[]).await;
    for turn in 0..200 {
        let sent = fixture.send("T", 0, "", &turn.to_string()).await;
        assert_eq!((sent.code, number(&sent, "queueOffset")), (response::SUCCESS, turn));
        let (answer, messages) = fixture.pull("T", 0, turn, "*").await;
        assert_eq!((answer.code, messages.len()), (response::SUCCESS, 1), "{answer:?}");
        assert_eq!(messages[0].body, turn.to_string().into_bytes());
        assert_eq!(number(&answer, "nextBeginOffset"), turn + 1);
    }
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn pipelined_sends_keep_their_order() {
    let fixture = Fixture::start(&[]).await;
    let calls = (0..500).map(|turn| {
        let connection = fixture.connection.clone();
        let request = send_request("T", turn % 2, "", &turn.to_string());
        async move { connection.invoke(request, TIMEOUT).await.expect("an answer") }
    });
    let mut tasks: Vec<_> = calls.map(Box::pin).collect();
    for (turn, task) in tasks.iter_mut().enumerate() {
        // The first poll of each writes its request; the answers are awaited afterwards.
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(task.as_mut().poll(context).is_ready()))
                .await;
        assert!(!polled, "request {turn} can't be answered yet");
    }
    for (turn, task) in tasks.into_iter().enumerate() {
        assert_eq!(number(&task.await, "queueOffset"), turn as i64 / 2);
    }
    let (_, messages) = fixture.pull("T", 1, 100, "*").await;
    assert_eq!(messages[0].body, b"201");
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn a_held_pull_is_answered_by_the_message_it_waits_for() {
    let fixture = Fixture::start(&[]).await;
    fixture.send("T", 0, "", "first").await;
    let other = connect(&fixture.broker).await;
    let held =
        tokio::spawn(async move { other.invoke(pull_request("T", 0, 1, "TagB", 60_000), TIMEOUT).await });
    // Another tag does not wake it, and does not move its offset.
    while fixture.broker.held_pulls() == 0 {
        tokio::task::yield_now().await;
    }
    fixture.send("T", 0, "TAGS\u{1}TagA\u{2}", "not wanted").await;
    fixture.send("T", 0, "TAGS\u{1}TagB\u{2}", "wanted").await;
    let answer = held.await.expect("the task ends").expect("an answer");
    let found = messages(&answer.body);
    assert_eq!((answer.code, found.len(), &found[0].body[..]), (response::SUCCESS, 1, &b"wanted"[..]));
    assert_eq!(number(&answer, "nextBeginOffset"), 3);
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn a_held_pull_is_answered_when_its_time_is_up() {
    let fixture = Fixture::start(&[]).await;
    fixture.send("T", 0, "", "first").await;
    let answer = fixture.call(pull_request("T", 0, 1, "*", 50)).await;
    assert_eq!((answer.code, number(&answer, "nextBeginOffset")), (response::PULL_NOT_FOUND, 1));
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn offsets_out_of_range_are_corrected() {
    // docs/spec/03-broker.md 20.7, 3
    let fixture = Fixture::start(&[]).await;
    for turn in 0..10 {
        fixture.send("T", 0, "", &turn.to_string()).await;
    }
    for (queue, offset, code, next) in [
        (0, 10, response::PULL_NOT_FOUND, 10),
        (0, 11, response::PULL_OFFSET_MOVED, 10),
        (0, -1, response::PULL_OFFSET_MOVED, 0),
        (1, 5, response::PULL_OFFSET_MOVED, 0),
        (1, 0, response::PULL_NOT_FOUND, 0),
    ] {
        let (answer, _) = fixture.pull("T", queue, offset, "*").await;
        assert_eq!(
            (answer.code, number(&answer, "nextBeginOffset")),
            (code, next),
            "queue {queue}, offset {offset}"
        );
    }
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn tags_with_equal_hashes_are_told_apart() {
    let fixture = Fixture::start(&[]).await;
    fixture.send("T", 0, "TAGS\u{1}BB\u{2}", "the other one").await;
    fixture.send("T", 0, "TAGS\u{1}Aa\u{2}", "wanted").await;
    let (_, messages) = fixture.pull("T", 0, 0, "Aa").await;
    assert_eq!(messages.iter().map(|message| &message.body[..]).collect::<Vec<_>>(), [b"wanted"]);
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn a_batch_is_stored_whole_or_not_at_all() {
    let fixture = Fixture::start(&[]).await;
    let body = |messages: &[(&[u8], &[u8])]| {
        let mut bytes = Vec::new();
        for (body, properties) in messages {
            assert!(batch::append(&mut bytes, &batch::BatchMessage { flag: 0, body, properties }));
        }
        bytes
    };
    let request = |body: Vec<u8>| {
        let mut request = send_request("T", 0, "WAIT\u{1}true\u{2}", "").with("m", true);
        request.code = request::SEND_BATCH_MESSAGE;
        request.with_body(body)
    };
    let answer = fixture.call(request(body(&[(b"one", b"TAGS\x01A\x02"), (b"two", b"")]))).await;
    assert_eq!((answer.code, number(&answer, "queueOffset")), (response::SUCCESS, 0));
    assert_eq!(answer.text("msgId").expect("ids").split(',').count(), 2);
    let refused = fixture.call(request(body(&[(b"one", b""), (b"two", b"DELAY\x013\x02")]))).await;
    assert_eq!(refused.code, response::MESSAGE_ILLEGAL);
    let (_, messages) = fixture.pull("T", 0, 0, "*").await;
    assert_eq!(messages.iter().map(|message| &message.body[..]).collect::<Vec<_>>(), [b"one", b"two"]);
    fixture.broker.shutdown().await;
}

/// In a topic with `queue.type=BatchCQ` a batch that has an id is one record.
#[tokio::test]
async fn a_batch_to_a_batch_topic_is_one_record() {
    let fixture = Fixture::start(&[]).await;
    let mut topic = RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
        .with("topic", "B")
        .with("defaultTopic", "TBW102")
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG")
        .with("attributes", "+queue.type=BatchCQ");
    for queues in ["readQueueNums", "writeQueueNums"] {
        topic = topic.with(queues, 1);
    }
    assert_eq!(fixture.call(topic).await.code, response::SUCCESS);
    let mut body = Vec::new();
    for text in [&b"one"[..], b"two", b"three"] {
        assert!(batch::append(&mut body, &batch::BatchMessage { flag: 0, body: text, properties: b"" }));
    }
    let send_batch = |properties: &str| {
        let mut request = send_request("B", 0, properties, "").with("m", true);
        request.code = request::SEND_BATCH_MESSAGE;
        request.with_body(body.clone())
    };
    for (offset, properties) in [(0, "UNIQ_KEY\u{1}id0\u{2}TAGS\u{1}A\u{2}"), (3, "UNIQ_KEY\u{1}id1\u{2}")] {
        let answer = fixture.call(send_batch(properties)).await;
        assert_eq!((answer.code, number(&answer, "queueOffset")), (response::SUCCESS, offset));
        assert_eq!(answer.text("batchUniqId").ok(), Some(&*format!("id{}", offset / 3)));
    }
    // Without an id of its own each message is a record.
    let answer = fixture.call(send_batch("WAIT\u{1}true\u{2}")).await;
    assert_eq!((answer.code, number(&answer, "queueOffset")), (response::SUCCESS, 6));
    assert_eq!(answer.text("batchUniqId").ok(), None);
    let (answer, messages) = fixture.pull("B", 0, 1, "*").await;
    assert_eq!(number(&answer, "nextBeginOffset"), 9);
    let offsets: Vec<i64> = messages.iter().map(|message| message.queue_offset).collect();
    assert_eq!(offsets, [0, 3, 6, 7, 8]);
    assert_eq!(messages[1].body, body);
    let properties = String::from_utf8_lossy(&messages[1].properties).into_owned();
    assert!(properties.contains("INNER_NUM\u{1}3\u{2}INNER_BASE\u{1}3\u{2}"), "{properties}");
    // Whoever claims to have built such a record is believed in such a topic only, and when it says how many it holds.
    for (topic, sys_flag, properties, expected) in [
        ("B", 0xC0, "INNER_NUM\u{1}3\u{2}", response::SUCCESS),
        ("B", 0xC0, "", response::MESSAGE_ILLEGAL),
        ("B", 0, "INNER_NUM\u{1}3\u{2}", response::MESSAGE_ILLEGAL),
        ("B", 0xC0, "INNER_NUM\u{1}3\u{2}DELAY\u{1}3\u{2}", response::MESSAGE_ILLEGAL),
        ("T", 0xC0, "INNER_NUM\u{1}3\u{2}", response::MESSAGE_ILLEGAL),
    ] {
        let sent = send_request(topic, 0, properties, &"x".repeat(3 * 22)).with("f", sys_flag);
        assert_eq!(fixture.call(sent).await.code, expected, "{topic} {sys_flag} {properties}");
    }
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn a_delayed_message_arrives_after_its_time_and_not_before() {
    let fixture = Fixture::start(&[("messageDelayLevel", "1s 2s")]).await;
    let sent_at = std::time::Instant::now();
    fixture.send("T", 0, "", "makes the topic").await;
    let sent = fixture.send("T", 0, "DELAY\u{1}1\u{2}", "later").await;
    assert_eq!(sent.code, response::SUCCESS);
    let answer = fixture.call(pull_request("T", 0, 1, "*", 15_000)).await;
    assert_eq!((answer.code, &messages(&answer.body)[0].body[..]), (response::SUCCESS, &b"later"[..]));
    assert!(sent_at.elapsed() >= Duration::from_secs(1));
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn a_message_that_is_sent_back_comes_again_and_ends_as_dead_letter() {
    let fixture = Fixture::start(&[("messageDelayLevel", "1s 1s 1s 1s")]).await;
    let sent = fixture.send("T", 0, "TAGS\u{1}A\u{2}", "failing").await;
    let id = sent.text("msgId").expect("an id").to_owned();
    let physical = i64::from_str_radix(&id[16..], 16).expect("hex digits");
    let send_back = |offset: i64| {
        RemotingCommand::request(request::CONSUMER_SEND_MSG_BACK)
            .with("offset", offset)
            .with("group", "consumers")
            .with("delayLevel", 0)
            .with("originMsgId", &id)
            .with("originTopic", "T")
            .with("unitMode", false)
            .with("maxReconsumeTimes", 1)
    };
    assert_eq!(fixture.call(send_back(physical)).await.code, response::SUCCESS);
    let again = fixture.call(pull_request("%RETRY%consumers", 0, 0, "*", 15_000)).await;
    let retried = messages(&again.body);
    assert_eq!((again.code, retried[0].reconsume_times), (response::SUCCESS, 1));
    let record = RecordView::parse(&again.body).expect("a record");
    assert_eq!((record.property("RETRY_TOPIC"), record.property("TAGS")), (Some("T"), Some("A")));
    assert_eq!(record.property("ORIGIN_MESSAGE_ID"), Some(id.as_str()));

    let offset = i64::try_from(record.physical_offset()).expect("an offset");
    assert_eq!(fixture.call(send_back(offset)).await.code, response::SUCCESS);
    let (dead, letters) = fixture.pull("%DLQ%consumers", 0, 0, "*").await;
    assert_eq!((dead.code, letters.len()), (response::SUCCESS, 1), "{dead:?}");
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn under_sync_flush_an_answered_message_is_on_the_disk() {
    let fixture = Fixture::start(&[("flushDiskType", "SYNC_FLUSH")]).await;
    for turn in 0..20 {
        let sent = fixture.send("T", 0, "", "x").await;
        assert_eq!((sent.code, number(&sent, "queueOffset")), (response::SUCCESS, turn));
    }
    let (answer, messages) = fixture.pull("T", 0, 19, "*").await;
    assert_eq!((messages.len(), number(&answer, "maxOffset")), (1, 20));
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let broker = start_broker(directory.path(), &[]).await;
    let connection = connect(&broker).await;
    for turn in 0..10 {
        connection.invoke(send_request("T", 1, "", &turn.to_string()), TIMEOUT).await.expect("an answer");
    }
    broker.shutdown().await;
    let broker = start_broker(directory.path(), &[]).await;
    let connection = connect(&broker).await;
    let answer = connection.invoke(pull_request("T", 1, 0, "*", 0), TIMEOUT).await.expect("an answer");
    assert_eq!(messages(&answer.body).len(), 10);
    let sent = connection.invoke(send_request("T", 1, "", "next"), TIMEOUT).await.expect("an answer");
    assert_eq!(number(&sent, "queueOffset"), 10);
    broker.shutdown().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_send_is_named() {
    let fixture = Fixture::start(&[]).await;
    let without_queue = RemotingCommand::request(request::SEND_MESSAGE_V2).with("b", "T").with_body("x");
    let answer = fixture.call(without_queue).await;
    assert_eq!((answer.code, answer.fields.clone()), (response::SYSTEM_ERROR, None));
    assert_eq!(answer.remark.as_deref(), Some("SEND_MESSAGE_V2 needs header field `e`"));
    let delay = fixture.send("T", 0, "DELAY\u{1}abc\u{2}", "x").await;
    assert_eq!(delay.code, response::MESSAGE_ILLEGAL);
    assert!(delay.remark.expect("a remark").contains("DELAY"));
    let transaction = fixture.send("T", 0, "TRAN_MSG\u{1}true\u{2}", "x").await;
    assert_eq!(transaction.code, response::NO_PERMISSION);
    let unknown = fixture.call(RemotingCommand::request(9999)).await;
    assert_eq!(unknown.code, response::REQUEST_CODE_NOT_SUPPORTED);
    assert_eq!(unknown.remark.as_deref(), Some(" request type 9999 not supported"));
    fixture.broker.shutdown().await;
}

#[tokio::test]
async fn a_retry_that_was_tried_too_often_is_a_dead_letter_at_once() {
    let fixture = Fixture::start(&[]).await;
    let request =
        send_request("%RETRY%consumers", 0, "DELAY\u{1}3\u{2}", "failing").with("j", 17).with("l", 16);
    assert_eq!(fixture.call(request).await.code, response::SUCCESS);
    let (dead, letters) = fixture.pull("%DLQ%consumers", 0, 0, "*").await;
    assert_eq!((dead.code, letters.len()), (response::SUCCESS, 1), "{dead:?}");
    fixture.broker.shutdown().await;
}
