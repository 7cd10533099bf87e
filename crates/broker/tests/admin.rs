//! What administrators' tools ask, on sockets.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use ferromq_broker::RunningBroker;
use ferromq_protocol::body::{
    BrokerStatsData, ConsumeStats, ConsumeStatsList, ConsumeType, ConsumerData, DataVersion, GroupList,
    HeartbeatData, KVTable, MessageModel, MessageQueue, OffsetWrapper, QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody, SubscriptionData, TopicList, TopicStatsTable,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::message::{RecordView, java_string_hash};
use serde::de::DeserializeOwned;
use support::{Peer, start};

const QUEUES: i32 = 2;

/// A broker with topic `T` and group `G`, and somebody to ask it.
async fn prepared(directory: &Path) -> (RunningBroker, Peer) {
    let broker = start(directory, &[]).await;
    let peer = Peer::connect(&broker).await;
    let topic = RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
        .with("topic", "T")
        .with("defaultTopic", "TBW102")
        .with("readQueueNums", QUEUES)
        .with("writeQueueNums", QUEUES)
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG");
    peer.done(topic).await;
    let group = RemotingCommand::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP);
    peer.done(group.with_body(r#"{"groupName":"G"}"#)).await;
    (broker, peer)
}

/// Sends to queue 0; the answer's offset id.
async fn send(peer: &Peer, properties: &str) -> String {
    let send = RemotingCommand::request(request::SEND_MESSAGE_V2)
        .with("a", "PG")
        .with("b", "T")
        .with("c", "TBW102")
        .with("d", 4)
        .with("e", 0)
        .with("f", 0)
        .with("g", 1_700_000_000_000_i64)
        .with("h", 0)
        .with("i", properties)
        .with_body("x");
    peer.done(send).await.text("msgId").expect("an id").to_owned()
}

async fn subscribe(peer: &Peer, client_id: &str, group: &str, tag: &str, model: MessageModel) {
    let subscription = SubscriptionData {
        topic: "T".into(),
        sub_string: tag.into(),
        tags_set: [tag.to_owned()].into(),
        code_set: [java_string_hash(tag)].into(),
        sub_version: 1,
        ..SubscriptionData::default()
    };
    let beat = HeartbeatData {
        client_id: client_id.into(),
        consumer_data_set: vec![ConsumerData {
            consume_type: Some(ConsumeType::ConsumePassively),
            group_name: group.into(),
            message_model: Some(model),
            subscription_data_set: vec![subscription],
            ..ConsumerData::default()
        }],
        ..HeartbeatData::default()
    };
    peer.done(RemotingCommand::request(request::HEART_BEAT).with_body(json::to_vec(&beat))).await;
}

async fn commit(peer: &Peer, offset: i64) {
    let commit = RemotingCommand::request(request::UPDATE_CONSUMER_OFFSET)
        .with("consumerGroup", "G")
        .with("topic", "T")
        .with("queueId", 0)
        .with("commitOffset", offset);
    peer.done(commit).await;
}

async fn body<A: DeserializeOwned>(peer: &Peer, question: RemotingCommand) -> A {
    json::from_slice(&peer.done(question).await.body).expect("the answer's body")
}

fn of_topic(code: i32) -> RemotingCommand {
    RemotingCommand::request(code).with("topic", "T")
}

async fn runtime_info(peer: &Peer) -> BTreeMap<String, String> {
    body::<KVTable>(peer, RemotingCommand::request(request::GET_BROKER_RUNTIME_INFO)).await.table
}

fn queue(queue_id: i32) -> MessageQueue {
    MessageQueue::new("T", "broker-a", queue_id)
}

#[tokio::test]
async fn a_backlog_is_what_a_group_has_yet_to_get() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(directory.path()).await;
    for _ in 0..5 {
        send(&peer, "").await;
    }
    commit(&peer, 3).await;
    let stats: ConsumeStats =
        body(&peer, RemotingCommand::request(request::GET_CONSUME_STATS).with("consumerGroup", "G")).await;
    let OffsetWrapper { broker_offset, consumer_offset, pull_offset, last_timestamp } =
        stats.offset_table[&queue(0)];
    assert_eq!((broker_offset, consumer_offset, pull_offset), (5, 3, 3));
    assert!(last_timestamp > 1_700_000_000_000, "{last_timestamp}");
    assert_eq!(stats.offset_table[&queue(1)], OffsetWrapper::default());

    let topic: TopicStatsTable = body(&peer, of_topic(request::GET_TOPIC_STATS_INFO)).await;
    let of_queue = topic.offset_table[&queue(0)];
    assert_eq!((of_queue.min_offset, of_queue.max_offset), (0, 5));
    assert!(of_queue.last_update_timestamp >= last_timestamp);
    assert_eq!(topic.offset_table.len(), 2);

    let span = of_topic(request::QUERY_CONSUME_TIME_SPAN).with("group", "G");
    let span: QueryConsumeTimeSpanBody = body(&peer, span).await;
    let [first, empty] = &span.consume_time_span_set[..] else { panic!("two queues: {span:?}") };
    assert_eq!(first.consume_time_stamp, last_timestamp);
    assert_eq!((empty.consume_time_stamp, empty.delay_time), (-1, 0));
    broker.shutdown().await;
}

#[tokio::test]
async fn progress_beyond_the_end_in_an_old_file_is_no_negative_backlog() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("store/config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("consumerOffset.json"), r#"{"offsetTable":{"T@G":{0:1000,1:2}}}"#).unwrap();
    let (broker, peer) = prepared(directory.path()).await;
    send(&peer, "").await;
    let all = RemotingCommand::request(request::GET_BROKER_CONSUME_STATS).with("isOrder", false);
    let all: ConsumeStatsList = body(&peer, all).await;
    assert_eq!((all.total_diff, all.total_inflight_diff), (0, 0));
    let of_group = all.consume_stats_list.iter().find_map(|group| group.get("G")).expect("the group");
    let offsets = of_group[0].offset_table[&queue(0)];
    assert_eq!((offsets.broker_offset, offsets.consumer_offset), (1, 1));
    broker.shutdown().await;
}

#[tokio::test]
async fn a_topic_s_groups_are_those_that_subscribe_and_those_with_progress() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(directory.path()).await;
    send(&peer, "").await;
    commit(&peer, 1).await;
    let everyone = Peer::connect(&broker).await;
    subscribe(&everyone, "c", "everyone", "*", MessageModel::Broadcasting).await;
    let groups: GroupList = body(&peer, of_topic(request::QUERY_TOPIC_CONSUME_BY_WHO)).await;
    assert_eq!(groups.group_list.into_iter().collect::<Vec<_>>(), ["G", "everyone"]);
    let topics = RemotingCommand::request(request::QUERY_TOPICS_BY_CONSUMER).with("group", "G");
    assert_eq!(body::<TopicList>(&peer, topics).await.topic_list, ["T"]);
    broker.shutdown().await;
}

#[tokio::test]
async fn differing_subscriptions_are_shown_with_the_clients_names() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(directory.path()).await;
    let other = Peer::connect(&broker).await;
    subscribe(&peer, "a", "G", "paid", MessageModel::Clustering).await;
    assert!(!runtime_info(&peer).await.contains_key("differingSubscriptions_G"));
    subscribe(&other, "b", "G", "cancelled", MessageModel::Clustering).await;
    assert_eq!(runtime_info(&peer).await["differingSubscriptions_G"], "a T `paid`, b T `cancelled`");
    broker.shutdown().await;
}

#[tokio::test]
async fn messages_are_found_by_exactly_their_topic_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(directory.path()).await;
    // These keys have the same hash.
    send(&peer, "KEYS\u{1}Aa\u{2}UNIQ_KEY\u{1}U1\u{2}").await;
    let id = send(&peer, "KEYS\u{1}BB BB\u{2}UNIQ_KEY\u{1}U2\u{2}").await;
    let query = |key: &str, unique: bool| {
        of_topic(request::QUERY_MESSAGE)
            .with("key", key)
            .with("maxNum", 32)
            .with("beginTimestamp", 0)
            .with("endTimestamp", i64::MAX)
            .with("_UNIQUE_KEY_QUERY", unique)
    };
    for (key, unique) in [("BB", false), ("U2", true), ("U2", false)] {
        let found = peer.done(query(key, unique)).await;
        let record = RecordView::parse(&found.body).expect("a record");
        assert_eq!(record.size(), found.body.len(), "one message, once");
        assert_eq!(record.property("UNIQ_KEY"), Some("U2"), "{key}");
    }
    for (key, unique) in [("C#", false), ("BB", true)] {
        assert_eq!(peer.call(query(key, unique)).await.code, response::QUERY_NOT_FOUND, "{key}");
    }

    let place = i64::from_str_radix(&id[16..], 16).expect("an offset");
    let view = |offset: i64| RemotingCommand::request(request::VIEW_MESSAGE_BY_ID).with("offset", offset);
    let viewed = peer.done(view(place)).await;
    assert_eq!(RecordView::parse(&viewed.body).expect("a record").property("UNIQ_KEY"), Some("U2"));
    for offset in [place + 1, -1, 1 << 40] {
        let remark = format!("can not find message by the offset, {offset}");
        assert_eq!(peer.call(view(offset)).await.remark, Some(remark));
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn units_of_a_queue_are_shown_and_judged() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(directory.path()).await;
    for tag in ["paid", "cancelled", "paid"] {
        send(&peer, &format!("TAGS\u{1}{tag}\u{2}")).await;
    }
    subscribe(&peer, "a", "G", "paid", MessageModel::Clustering).await;
    let dump = |queue_id: i32, count: i32| {
        of_topic(request::QUERY_CONSUME_QUEUE)
            .with("queueId", queue_id)
            .with("index", 1)
            .with("count", count)
            .with("consumerGroup", "G")
    };
    let answer: QueryConsumeQueueResponseBody = body(&peer, dump(0, 10)).await;
    assert_eq!((answer.min_queue_index, answer.max_queue_index), (0, 3));
    assert_eq!(answer.queue_data.iter().map(|unit| unit.eval).collect::<Vec<_>>(), [false, true]);
    assert_eq!(answer.subscription_data.expect("a subscription").sub_string, "paid");
    let answer: QueryConsumeQueueResponseBody = body(&peer, dump(0, -1)).await;
    assert!(answer.queue_data.is_empty());
    let remark = peer.call(dump(99, 1)).await.remark;
    assert_eq!(remark.as_deref(), Some("99@T is not exist!"));
    broker.shutdown().await;
}

#[tokio::test]
async fn counters_of_a_topic_go_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(directory.path()).await;
    let puts = || {
        let view = RemotingCommand::request(request::VIEW_BROKER_STATS_DATA);
        view.with("statsName", "TOPIC_PUT_NUMS").with("statsKey", "T")
    };
    let remark = peer.call(puts()).await.remark;
    assert_eq!(remark.as_deref(), Some("The stats <TOPIC_PUT_NUMS> <T> not exist"));
    send(&peer, "").await;
    let _: BrokerStatsData = body(&peer, puts()).await;
    assert_eq!(runtime_info(&peer).await["msgPutTotalTodayNow"], "1");
    peer.done(of_topic(request::DELETE_TOPIC_IN_BROKER)).await;
    assert_eq!(peer.call(puts()).await.code, response::SYSTEM_ERROR);
    assert_eq!(peer.call(of_topic(request::GET_TOPIC_STATS_INFO)).await.code, response::TOPIC_NOT_EXIST);
    broker.shutdown().await;
}

#[tokio::test]
async fn settings_change_as_a_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let (broker, peer) = prepared(directory.path()).await;
    let change =
        |text: &str| RemotingCommand::request(request::UPDATE_BROKER_CONFIG).with_body(text.to_owned());
    let shown = async || {
        let answer = peer.done(RemotingCommand::request(request::GET_BROKER_CONFIG)).await;
        let version: DataVersion = json::from_slice(answer.text("version").unwrap().as_bytes()).unwrap();
        (version.counter, String::from_utf8(answer.body.to_vec()).unwrap())
    };
    let (counter, before) = shown().await;
    assert!(before.contains("\nfileReservedTime=72\n"), "{before}");
    for (text, code) in [
        ("fileReservedTime=48\nbrokerConfigPath=/x", response::NO_PERMISSION),
        ("fileReservedTime=48\nstorePathRootDir=/x", response::NO_PERMISSION),
        ("fileReservedTime=48\nmaxMessageSize=abc", response::INVALID_PARAMETER),
        ("fileReservedTime=48\nmessageDelayLevel=1s", response::ILLEGAL_OPERATION),
    ] {
        assert_eq!(peer.call(change(text)).await.code, code, "{text}");
    }
    for text in ["", "noSuchKey=1", "fileReservedTime=72"] {
        peer.done(change(text)).await;
    }
    assert_eq!(shown().await, (counter, before));
    peer.done(change("fileReservedTime=48")).await;
    let (changed_counter, after) = shown().await;
    assert_eq!(changed_counter, counter + 1);
    assert!(after.contains("\nfileReservedTime=48\n"), "{after}");
    broker.shutdown().await;
}
