//! Topics, groups and offsets, seen by administrators and consumers on sockets.

mod support;

use ferromq_broker::RunningBroker;
use ferromq_protocol::body::{ConsumerData, HeartbeatData, ResetOffsetBody};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use support::{Peer, start};

fn create_topic(topic: &str, queues: i32) -> RemotingCommand {
    RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
        .with("topic", topic)
        .with("defaultTopic", "TBW102")
        .with("readQueueNums", queues)
        .with("writeQueueNums", queues)
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG")
}

fn create_group(group: &str) -> RemotingCommand {
    RemotingCommand::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        .with_body(format!("{{\"groupName\":\"{group}\"}}"))
}

fn send(topic: &str) -> RemotingCommand {
    RemotingCommand::request(request::SEND_MESSAGE_V2)
        .with("a", "PG")
        .with("b", topic)
        .with("c", "TBW102")
        .with("d", 4)
        .with("e", 0)
        .with("f", 0)
        .with("g", 1_700_000_000_000_i64)
        .with("h", 0)
        .with_body("x")
}

fn pull(offset: i64, suspend_ms: i64) -> RemotingCommand {
    const SUSPEND: i32 = 2;
    const SUBSCRIPTION: i32 = 4;
    RemotingCommand::request(request::PULL_MESSAGE)
        .with("consumerGroup", "G")
        .with("topic", "T")
        .with("queueId", 0)
        .with("queueOffset", offset)
        .with("maxMsgNums", 32)
        .with("sysFlag", SUBSCRIPTION | SUSPEND)
        .with("commitOffset", 0)
        .with("suspendTimeoutMillis", suspend_ms)
        .with("subscription", "*")
        .with("subVersion", 1)
}

fn of_queue(code: i32, queue_id: i32) -> RemotingCommand {
    RemotingCommand::request(code).with("consumerGroup", "G").with("topic", "T").with("queueId", queue_id)
}

fn commit(offset: i64) -> RemotingCommand {
    of_queue(request::UPDATE_CONSUMER_OFFSET, 0).with("commitOffset", offset)
}

fn reset(timestamp: i64) -> RemotingCommand {
    RemotingCommand::request(request::INVOKE_BROKER_TO_RESET_OFFSET)
        .with("topic", "T")
        .with("group", "G")
        .with("timestamp", timestamp)
        .with("isForce", true)
}

async fn committed(peer: &Peer) -> Result<i64, i32> {
    let question = of_queue(request::QUERY_CONSUMER_OFFSET, 0).with("setZeroIfNotFound", false);
    let answer = peer.call(question).await;
    if answer.code == response::SUCCESS {
        Ok(answer.number("offset").expect("an offset"))
    } else {
        Err(answer.code)
    }
}

/// A broker with topic `T` of two queues, group `G`, and five messages in queue 0.
async fn prepared(directory: &tempfile::TempDir, settings: &[(&str, &str)]) -> (RunningBroker, Peer) {
    let broker = start(directory.path(), settings).await;
    let peer = Peer::connect(&broker).await;
    peer.done(create_topic("T", 2)).await;
    peer.done(create_group("G")).await;
    for _ in 0..5 {
        peer.done(send("T")).await;
    }
    (broker, peer)
}

#[tokio::test]
async fn progress_stays_within_the_queue() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(&directory, &[]).await;
    assert_eq!(committed(&peer).await, Err(response::QUERY_NOT_FOUND));
    for (offset, expected, remark) in [
        (3, 3, None),
        (1, 1, None),
        (5, 5, None),
        (1000, 5, Some("offset 1000 is beyond the queue's end, 5 is recorded")),
        (-5, 5, Some("offset -5 is negative, ignored")),
    ] {
        assert_eq!(peer.done(commit(offset)).await.remark.as_deref(), remark);
        assert_eq!(committed(&peer).await, Ok(expected));
    }
    let answer = peer.done(of_queue(request::UPDATE_CONSUMER_OFFSET, 99).with("commitOffset", 1)).await;
    assert_eq!(answer.remark.as_deref(), Some("queueId[99] is not a queue of topic[T], ignored"));
    assert_eq!(peer.call(of_queue(request::QUERY_CONSUMER_OFFSET, 99)).await.code, response::QUERY_NOT_FOUND);
    let answer = peer.done(of_queue(request::UPDATE_CONSUMER_OFFSET, 1).with("commitOffset", 7)).await;
    assert_eq!(answer.remark.as_deref(), Some("offset 7 is beyond the queue's end, 0 is recorded"));
    broker.shutdown().await;
}

#[tokio::test]
async fn topics_groups_and_progress_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(&directory, &[]).await;
    peer.done(commit(4)).await;
    peer.done(send("Auto")).await;
    broker.shutdown().await;
    let broker = start(directory.path(), &[("autoCreateTopicEnable", "false")]).await;
    let peer = Peer::connect(&broker).await;
    assert_eq!(committed(&peer).await, Ok(4));
    for topic in ["T", "Auto"] {
        peer.done(RemotingCommand::request(request::GET_TOPIC_CONFIG).with("topic", topic)).await;
    }
    peer.done(commit(5)).await;
    broker.shutdown().await;
}

#[tokio::test]
async fn nothing_old_is_in_sight_of_a_new_topic_with_an_old_name() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(&directory, &[]).await;
    peer.done(commit(4)).await;
    peer.done(reset(0)).await;
    peer.done(RemotingCommand::request(request::DELETE_TOPIC_IN_BROKER).with("topic", "T")).await;
    assert_eq!(peer.call(commit(4)).await.code, response::TOPIC_NOT_EXIST);
    peer.done(create_topic("T", 2)).await;
    assert_eq!(committed(&peer).await, Err(response::QUERY_NOT_FOUND));
    assert_eq!(peer.done(of_queue(request::GET_MAX_OFFSET, 0)).await.field("offset"), Some("0"));
    assert_eq!(peer.done(send("T")).await.field("queueOffset"), Some("0"));
    let answer = peer.done(pull(0, 0)).await;
    assert_eq!(answer.field("nextBeginOffset"), Some("1"), "the pending reset is gone");
    broker.shutdown().await;
}

#[tokio::test]
async fn a_reset_takes_effect_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(&directory, &[]).await;
    peer.done(commit(5)).await;
    let consumer = Peer::connect(&broker).await;
    let held = tokio::spawn(async move { (consumer.call(pull(5, 15_000)).await, consumer) });
    while broker.held_pulls() == 0 {
        tokio::task::yield_now().await;
    }
    let answer = peer.done(reset(0)).await;
    let moved: ResetOffsetBody = json::from_slice(&answer.body).unwrap();
    let moved: Vec<_> = moved.offset_table.iter().map(|(queue, offset)| (queue.queue_id, *offset)).collect();
    assert_eq!(moved, [(0, 0), (1, 0)]);
    let (answer, consumer) = held.await.unwrap();
    assert_eq!((answer.code, answer.remark.as_deref()), (response::PULL_OFFSET_MOVED, Some("OFFSET_RESET")));
    assert_eq!(answer.field("nextBeginOffset"), Some("0"));
    assert_eq!(committed(&peer).await, Ok(0));
    consumer.done(commit(2)).await;
    assert_eq!(committed(&peer).await, Ok(2), "the reset was taken, so commits count again");

    peer.done(reset(-1)).await;
    assert_eq!(consumer.done(commit(2)).await.remark.as_deref(), Some("Offset has been previously reset"));
    assert_eq!(committed(&peer).await, Ok(5));
    broker.shutdown().await;
}

#[tokio::test]
async fn one_queue_is_reset_to_an_exact_offset() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(&directory, &[]).await;
    let to = |offset| reset(0).with("queueId", 0).with("offset", offset);
    peer.done(to(2)).await;
    assert_eq!(committed(&peer).await, Ok(2));
    let answer = peer.call(to(7)).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    assert_eq!(answer.remark.as_deref(), Some("Target offset 7 not in consume queue range [0-5]"));
    // RocketMQ lets one go one beyond the end. A lag of -1 does not come of it.
    peer.done(to(6)).await;
    let dump = peer.done(RemotingCommand::request(request::GET_ALL_CONSUMER_OFFSET)).await;
    let dump = String::from_utf8(dump.body.to_vec()).unwrap();
    assert!(dump.contains(r#""offsetTable":{"T@G":{0:5}}"#), "{dump}");
    broker.shutdown().await;
}

#[tokio::test]
async fn consumers_can_be_told_to_reset_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, mut peer) = prepared(&directory, &[("useServerSideResetOffset", "false")]).await;
    let refused = async |peer: &Peer| {
        let answer = peer.call(reset(-1)).await;
        (answer.code, answer.remark.unwrap_or_default())
    };
    assert_eq!(refused(&peer).await, (1, "THe consumer group <G> not exist".into()));
    peer.done(commit(1)).await;
    peer.done(of_queue(request::UPDATE_CONSUMER_OFFSET, 1).with("commitOffset", 0)).await;
    let remark = "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: -1";
    assert_eq!(refused(&peer).await, (response::CONSUMER_NOT_ONLINE, remark.into()));

    let beat = HeartbeatData {
        client_id: "a".into(),
        consumer_data_set: vec![ConsumerData { group_name: "G".into(), ..ConsumerData::default() }],
        ..HeartbeatData::default()
    };
    peer.done(RemotingCommand::request(request::HEART_BEAT).with_body(json::to_vec(&beat))).await;
    assert_eq!(peer.asked().await.code, request::NOTIFY_CONSUMER_IDS_CHANGED);
    peer.done(reset(-1)).await;
    let told = peer.asked().await;
    assert_eq!((told.code, told.is_oneway()), (request::RESET_CONSUMER_CLIENT_OFFSET, true));
    assert_eq!((told.field("timestamp"), told.field("isForce")), (Some("-1"), Some("true")));
    let body = r#"{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5,{"brokerName":"broker-a","queueId":1,"topic":"T"}:0}}"#;
    assert_eq!(told.body, body.as_bytes());
    assert_eq!(committed(&peer).await, Ok(1), "the consumer will commit where it is then");
    broker.shutdown().await;
}

#[tokio::test]
async fn clones_without_a_topic_copy_all_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(&directory, &[]).await;
    peer.done(commit(3)).await;
    let clone = RemotingCommand::request(request::CLONE_GROUP_OFFSET)
        .with("srcGroup", "G")
        .with("destGroup", "H")
        .with("topic", "");
    peer.done(clone).await;
    let answer = peer.done(of_queue(request::QUERY_CONSUMER_OFFSET, 0).with("consumerGroup", "H")).await;
    assert_eq!(answer.field("offset"), Some("3"));
    broker.shutdown().await;
}

#[tokio::test]
async fn a_forbidden_topic_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(&directory, &[]).await;
    let set = |readable: Option<bool>| {
        RemotingCommand::request(request::UPDATE_AND_GET_GROUP_FORBIDDEN)
            .with("group", "G")
            .with("topic", "T")
            .with_some("readable", readable)
    };
    let answer = peer.done(set(None)).await;
    assert_eq!(
        (answer.remark.as_deref(), &answer.body[..]),
        (Some(""), &br#"{"group":"G","readable":true,"topic":"T"}"#[..])
    );
    let answer = peer.done(set(Some(false))).await;
    assert_eq!(answer.body, &br#"{"group":"G","readable":false,"topic":"T"}"#[..]);
    let beat = br#"{"clientID":"a","consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY",
        "messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":1}]}]}"#;
    peer.done(RemotingCommand::request(request::HEART_BEAT).with_body(&beat[..])).await;
    let by_heartbeat = pull(0, 0).with("sysFlag", 0);
    let answer = peer.call(by_heartbeat.clone()).await;
    assert_eq!((answer.code, answer.field("forbiddenType")), (response::NO_PERMISSION, Some("5")));
    peer.done(set(Some(true))).await;
    peer.done(by_heartbeat).await;
    broker.shutdown().await;
}

#[tokio::test]
async fn what_breaks_a_rule_is_told_by_the_rule() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(&directory, &[]).await;
    let remark = async |command: RemotingCommand| {
        let answer = peer.call(command).await;
        (answer.code, answer.remark.unwrap_or_default())
    };
    let illegal = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$";
    assert_eq!(remark(create_topic("a b", 1)).await, (29, illegal.into()));
    let conflict = "The topic[broker-a] is conflict with system topic.";
    assert_eq!(remark(create_topic("broker-a", 1)).await, (29, conflict.into()));
    let delete = RemotingCommand::request(request::DELETE_TOPIC_IN_BROKER);
    assert_eq!(remark(delete.clone()).await, (29, "The specified topic is blank.".into()));
    assert_eq!(remark(delete.with("topic", "broker-a")).await, (29, conflict.into()));
    let no_queues = RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
        .with("topic", "U")
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG");
    let missing = "UPDATE_AND_CREATE_TOPIC needs header field `readQueueNums`";
    assert_eq!(remark(no_queues).await, (1, missing.into()));
    let group = "The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$";
    assert_eq!(remark(create_group("a b")).await, (29, group.into()));
    let unknown = RemotingCommand::request(request::GET_SUBSCRIPTIONGROUP_CONFIG).with("group", "a b");
    let expected = format!("No group in this broker. group: a b: {group}");
    assert_eq!(remark(unknown).await, (response::SUBSCRIPTION_GROUP_NOT_EXIST, expected));
    broker.shutdown().await;
}
