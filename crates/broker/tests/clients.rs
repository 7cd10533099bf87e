//! Groups and their members, seen by clients on sockets.

mod support;

use std::time::Duration;

use ferromq_protocol::body::{
    ConsumeFromWhere, ConsumeType, ConsumerData, GetConsumerListByGroupResponseBody, HeartbeatData,
    LockBatchRequestBody, LockBatchResponseBody, MessageModel, MessageQueue, ProducerData,
    QueryAssignmentRequestBody, QueryAssignmentResponseBody, SubscriptionData,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::message::RecordView;
use support::{Peer, start};

/// A heartbeat of a push consumer.
fn heartbeat(client_id: &str, group: &str, subscriptions: &[(&str, &str)]) -> HeartbeatData {
    let subscriptions = subscriptions.iter().map(|(topic, expression)| SubscriptionData {
        topic: (*topic).into(),
        sub_string: (*expression).into(),
        tags_set: [(*expression).to_owned()].into_iter().filter(|tag| tag != "*").collect(),
        code_set: [*expression].iter().filter(|tag| **tag != "*").map(|tag| hash(tag)).collect(),
        sub_version: 1,
        ..SubscriptionData::default()
    });
    HeartbeatData {
        client_id: client_id.into(),
        consumer_data_set: vec![ConsumerData {
            consume_from_where: Some(ConsumeFromWhere::ConsumeFromLastOffset),
            consume_type: Some(ConsumeType::ConsumePassively),
            group_name: group.into(),
            message_model: Some(MessageModel::Clustering),
            subscription_data_set: subscriptions.collect(),
            unit_mode: false,
        }],
        ..HeartbeatData::default()
    }
}

fn hash(tag: &str) -> i32 {
    ferromq_protocol::message::java_string_hash(tag)
}

async fn beat(peer: &Peer, beat: &HeartbeatData) -> bool {
    let answer = peer.done(RemotingCommand::request(request::HEART_BEAT).with_body(json::to_vec(beat))).await;
    assert_eq!(answer.field("IS_SUPPORT_HEART_BEAT_V2"), Some("true"));
    answer.boolean("IS_SUB_CHANGE")
}

async fn members(peer: &Peer, group: &str) -> Option<Vec<String>> {
    let question = RemotingCommand::request(request::GET_CONSUMER_LIST_BY_GROUP).with("consumerGroup", group);
    let answer = peer.call(question).await;
    assert!(answer.fields.is_some(), "the answer has a field map, whatever it says");
    if answer.code != response::SUCCESS {
        assert_eq!(answer.remark, Some(format!("no consumer for this group, {group}")));
        return None;
    }
    let body: GetConsumerListByGroupResponseBody = json::from_slice(&answer.body).expect("a list");
    Some(body.consumer_id_list)
}

async fn assert_notified(peer: &mut Peer, group: &str) {
    let notice = peer.asked().await;
    assert_eq!((notice.code, notice.is_oneway()), (request::NOTIFY_CONSUMER_IDS_CHANGED, true));
    assert_eq!(notice.field("consumerGroup"), Some(group));
}

#[tokio::test]
async fn members_are_told_when_one_comes_or_goes() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path(), &[]).await;
    let (mut a, mut b) = (Peer::connect(&broker).await, Peer::connect(&broker).await);
    assert_eq!(members(&a, "G").await, None);
    assert!(beat(&a, &heartbeat("a", "G", &[("T", "*")])).await, "true for every classic heartbeat");
    assert_notified(&mut a, "G").await;
    beat(&b, &heartbeat("b", "G", &[("T", "*")])).await;
    assert_notified(&mut a, "G").await;
    assert_notified(&mut b, "G").await;
    assert_eq!(members(&a, "G").await, Some(vec!["a".into(), "b".into()]));

    beat(&b, &heartbeat("b", "G", &[("T", "*")])).await;
    let stranger = Peer::connect(&broker).await;
    let leave = RemotingCommand::request(request::UNREGISTER_CLIENT)
        .with("clientID", "b")
        .with("consumerGroup", "G")
        .with("producerGroup", "PG");
    assert!(stranger.done(leave.clone()).await.fields.is_some());
    assert_eq!(members(&a, "G").await.map(|members| members.len()), Some(2));
    assert!(a.asked_already().is_none(), "neither a known member nor a stranger is a change");

    b.done(leave).await;
    assert_notified(&mut a, "G").await;
    assert_eq!(members(&b, "G").await, Some(vec!["a".into()]));
    beat(&b, &heartbeat("b", "G", &[("T", "*")])).await;
    assert_notified(&mut a, "G").await;
    b.connection.close();
    assert_notified(&mut a, "G").await;
    assert_eq!(members(&a, "G").await, Some(vec!["a".into()]));
    broker.shutdown().await;
}

#[tokio::test]
async fn nobody_is_told_if_nobody_wants_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path(), &[]).await;
    let mut peer = Peer::connect(&broker).await;
    let silent = br#"{"groupName":"Silent","notifyConsumerIdsChangedEnable":false}"#;
    peer.done(RemotingCommand::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(&silent[..]))
        .await;
    beat(&peer, &heartbeat("a", "Silent", &[("T", "*")])).await;
    let mut broadcasting = heartbeat("a", "Broadcasting", &[("T", "*")]);
    broadcasting.consumer_data_set[0].message_model = Some(MessageModel::Broadcasting);
    beat(&peer, &broadcasting).await;
    beat(&peer, &heartbeat("a", "G", &[("T", "*")])).await;
    assert_notified(&mut peer, "G").await;
    broker.shutdown().await;
}

#[tokio::test]
async fn short_heartbeats_of_unknown_clients_ask_for_more() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path(), &[]).await;
    let peer = Peer::connect(&broker).await;
    let full = HeartbeatData { heartbeat_fingerprint: 7, ..heartbeat("a", "G", &[("T", "*")]) };
    let mut short = HeartbeatData { without_sub: true, ..full.clone() };
    short.consumer_data_set[0].subscription_data_set.clear();
    assert!(beat(&peer, &short).await);
    assert!(!beat(&peer, &full).await);
    assert!(!beat(&peer, &short).await);
    // A new connection, as after a restart of the broker.
    let peer = Peer::connect(&broker).await;
    assert!(beat(&peer, &short).await);
    broker.shutdown().await;
}

#[tokio::test]
async fn groups_that_can_not_be_are_passed_over_by_heartbeats() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path(), &[("autoCreateSubscriptionGroup", "false")]).await;
    let peer = Peer::connect(&broker).await;
    let mut data = heartbeat("a", "unknown", &[("T", "*")]);
    data.producer_data_set.push(ProducerData { group_name: "PG".into() });
    beat(&peer, &data).await;
    beat(&peer, &heartbeat("a", "bad group", &[("T", "*")])).await;
    beat(&peer, &HeartbeatData::default()).await;
    assert_eq!(members(&peer, "unknown").await, None);
    assert_eq!(members(&peer, "bad group").await, None);
    let producers =
        RemotingCommand::request(request::GET_PRODUCER_CONNECTION_LIST).with("producerGroup", "PG");
    peer.done(producers).await;
    broker.shutdown().await;
}

/// RocketMQ judges both members by the subscription that was told last, and one of them loses its messages.
#[tokio::test]
async fn each_member_gets_what_it_subscribes_to() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path(), &[]).await;
    let (a, b) = (Peer::connect(&broker).await, Peer::connect(&broker).await);
    for tag in ["TagA", "TagB"] {
        let send = RemotingCommand::request(request::SEND_MESSAGE_V2)
            .with("a", "PG")
            .with("b", "T")
            .with("c", "TBW102")
            .with("d", 4)
            .with("e", 0)
            .with("f", 0)
            .with("g", 1_700_000_000_000_i64)
            .with("h", 0)
            .with("i", format!("TAGS\u{1}{tag}\u{2}"))
            .with_body(tag);
        a.done(send).await;
    }
    beat(&a, &heartbeat("a", "G", &[("T", "TagA")])).await;
    beat(&b, &heartbeat("b", "G", &[("T", "TagB")])).await;
    for (peer, tag) in [(&a, "TagA"), (&b, "TagB"), (&a, "TagA")] {
        let pull = RemotingCommand::request(request::PULL_MESSAGE)
            .with("consumerGroup", "G")
            .with("topic", "T")
            .with("queueId", 0)
            .with("queueOffset", 0)
            .with("maxMsgNums", 32)
            .with("sysFlag", 0)
            .with("commitOffset", 0)
            .with("suspendTimeoutMillis", 0)
            .with("subVersion", 1);
        let answer = peer.done(pull).await;
        let record = RecordView::parse(&answer.body).expect("exactly one message");
        assert_eq!(record.body(), tag.as_bytes());
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn administrators_get_the_answer_of_a_consumer() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path(), &[]).await;
    let (mut consumer, admin) = (Peer::connect(&broker).await, Peer::connect(&broker).await);
    let question = RemotingCommand::request(request::GET_CONSUMER_RUNNING_INFO)
        .with("consumerGroup", "G")
        .with("clientId", "a")
        .with("jstackEnable", "true");
    let answer = admin.call(question.clone()).await;
    assert_eq!(answer.code, response::SYSTEM_ERROR);
    assert_eq!(answer.remark.as_deref(), Some("The Consumer <G> <a> not online"));

    beat(&consumer, &heartbeat("a", "G", &[("T", "*")])).await;
    let answer = admin.done(question).await;
    assert_eq!((&answer.body[..], answer.field("jstackEnable")), (&b"asked"[..], Some("true")));
    assert_notified(&mut consumer, "G").await;
    assert_eq!(consumer.asked().await.field("clientId"), Some("a"));
    broker.shutdown().await;
}

#[tokio::test]
async fn the_broker_shares_out_queues() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path(), &[]).await;
    let (a, b) = (Peer::connect(&broker).await, Peer::connect(&broker).await);
    let assigned = async |client_id: &str, topic: &str, strategy: &str| {
        let question = QueryAssignmentRequestBody {
            client_id: client_id.into(),
            consumer_group: "G".into(),
            message_model: Some(MessageModel::Clustering),
            strategy_name: strategy.into(),
            topic: topic.into(),
        };
        let answer: QueryAssignmentResponseBody = a.ask(request::QUERY_ASSIGNMENT, &question).await;
        let queues = answer.message_queue_assignments?.into_iter();
        Some(queues.map(|assignment| assignment.message_queue.queue_id).collect::<Vec<_>>())
    };
    let topic = RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
        .with("topic", "T")
        .with("defaultTopic", "TBW102")
        .with("readQueueNums", 4)
        .with("writeQueueNums", 4)
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG");
    a.done(topic).await;
    assert_eq!(assigned("a", "T", "AVG").await, None, "nobody is online");
    beat(&a, &heartbeat("a", "G", &[("T", "*")])).await;
    assert_eq!(assigned("a", "T", "AVG").await, Some(vec![0, 1, 2, 3]));
    beat(&b, &heartbeat("b", "G", &[("T", "*")])).await;
    assert_eq!(assigned("a", "T", "AVG").await, Some(vec![0, 1]));
    assert_eq!(assigned("b", "T", "AVG_BY_CIRCLE").await, Some(vec![1, 3]));
    assert_eq!(assigned("stranger", "T", "AVG").await, Some(vec![]));
    assert_eq!(assigned("a", "T", "OTHER").await, None);
    assert_eq!(assigned("a", "unknown", "AVG").await, None);

    let pop = br#"{"consumerGroup":"G","mode":"POP","popShareQueueNum":0,"topic":"T"}"#;
    a.done(RemotingCommand::request(request::SET_MESSAGE_REQUEST_MODE).with_body(&pop[..])).await;
    assert_eq!(assigned("a", "T", "AVG").await, Some(vec![-1]));
    broker.shutdown().await;
    let broker = start(directory.path(), &[]).await;
    let peer = Peer::connect(&broker).await;
    let modes = peer.done(RemotingCommand::request(request::GET_ALL_MESSAGE_REQUEST_MODE)).await;
    let expected = r#"{"messageRequestModeMap":{"T":{"G":{"consumerGroup":"G","mode":"POP","popShareQueueNum":0,"topic":"T"}}}}"#;
    assert_eq!(modes.body, expected.as_bytes());
    broker.shutdown().await;
}

#[tokio::test]
async fn locks_end_with_their_owners_connection() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path(), &[]).await;
    let (a, b) = (Peer::connect(&broker).await, Peer::connect(&broker).await);
    beat(&a, &heartbeat("a", "G", &[("T", "*")])).await;
    let lock = async |peer: &Peer, client_id: &str| {
        let question = LockBatchRequestBody {
            client_id: client_id.into(),
            consumer_group: "G".into(),
            mq_set: [MessageQueue::new("T", "broker-a", 0)].into(),
            only_this_broker: false,
        };
        let answer: LockBatchResponseBody = peer.ask(request::LOCK_BATCH_MQ, &question).await;
        !answer.lock_ok_mq_set.is_empty()
    };
    assert!(lock(&a, "a").await);
    assert!(!lock(&b, "b").await);
    a.connection.close();
    while members(&b, "G").await.is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!lock(&b, "b").await, "its owner may come back");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !lock(&b, "b").await {
        assert!(tokio::time::Instant::now() < deadline, "half of its regular life is over");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    broker.shutdown().await;
}
