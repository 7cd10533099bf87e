//! Whoever can reach the port of a controller can't take part in its group, stop it or fill it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ferromq_protocol::code::request::{
    CLEAN_BROKER_DATA, CONTROLLER_ALTER_SYNC_STATE_SET, CONTROLLER_ELECT_MASTER,
    CONTROLLER_GET_SYNC_STATE_DATA,
};
use ferromq_protocol::command::RemotingCommand;
use serde_json::{Value, json};
use support::{CLUSTER, Controllers, SET, apply_id, elect};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// Code of the messages between controllers.
const PEER_MESSAGE: i32 = 1_090_000;

/// What controller 1 would send to controller 0 to have its log overwritten.
fn take_over() -> Value {
    let vote = json!({ "leader_id": { "term": 1_000_000, "node_id": 1 }, "committed": true });
    let entry = json!({
        "log_id": { "leader_id": { "term": 1_000_000, "node_id": 1 }, "index": 0 },
        "payload": { "Membership": { "configs": [[1]], "nodes": { "1": {} } } },
    });
    json!({
        "protocol": "ferromq-controller/1", "group": "group1", "from": 1, "to": 0,
        "message": { "Append": { "vote": vote, "prev_log_id": null, "entries": [entry], "leader_commit": null } },
    })
}

fn with(mut message: Value, path: &str, value: Value) -> Value {
    *message.pointer_mut(path).unwrap() = value;
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_no_controller_of_the_group_sends_are_refused() {
    let controllers = Controllers::start(3).await;
    controllers.succeed(apply_id(1, "10.0.0.1:10911;1")).await;
    controllers.succeed(elect(1, false)).await;
    let refused = async |message: Value, why: &str| {
        let request = RemotingCommand::request(PEER_MESSAGE).with_body(message.to_string().into_bytes());
        let answer = controllers.ask_one(0, request).await;
        let remark = answer.remark.unwrap_or_default();
        assert!(answer.code != 0 && remark.contains(why), "{why}: {} {remark}", answer.code);
    };
    refused(json!({}), "not a message between controllers").await;
    refused(json!([[[[]]]]), "not a message between controllers").await;
    refused(with(take_over(), "/protocol", json!("ferromq-controller/9")), "the peer speaks").await;
    refused(with(take_over(), "/group", json!("group2")), "the peer is of group `group2`").await;
    refused(with(take_over(), "/to", json!(2)), "the message is for controller 2").await;
    refused(with(take_over(), "/from", json!(7)), "controller 7 is not of this group").await;
    refused(with(take_over(), "/from", json!(0)), "controller 0 is not of this group").await;
    refused(with(take_over(), "/from", json!(2)), "it votes for somebody else").await;
    refused(take_over(), "it names other controllers than the settings do").await;
    let append = "/message/Append";
    let gap = with(take_over(), &format!("{append}/entries/0/log_id/index"), json!(5));
    refused(gap, "its entries do not follow each other").await;
    let not_elected = with(take_over(), &format!("{append}/entries"), json!([]));
    let not_elected = with(not_elected, &format!("{append}/vote/committed"), json!(false));
    refused(not_elected, "it was not elected").await;

    assert_eq!(controllers.replica_info().await.0, Some(1));
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_on_the_port_disturbs_nobody_else() {
    let controllers = Controllers::start(1).await;
    controllers.succeed(apply_id(1, "10.0.0.1:10911;1")).await;
    let mut strangers = Vec::new();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1]] {
        let mut stream = TcpStream::connect(controllers.address(0)).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        strangers.push(stream);
    }
    controllers.succeed(elect(1, false)).await;
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_sense_are_refused_and_change_nothing() {
    let controllers = Controllers::start(1).await;
    controllers.succeed(apply_id(1, "10.0.0.1:10911;1")).await;
    controllers.succeed(elect(1, false)).await;
    let before = controllers.replica_info().await;
    let long = "x".repeat(256);
    let many: Vec<i64> = (0..100_000).collect();
    let requests = [
        RemotingCommand::request(CONTROLLER_ELECT_MASTER),
        RemotingCommand::request(CONTROLLER_ELECT_MASTER).with("brokerName", SET).with("brokerId", "one"),
        RemotingCommand::request(CONTROLLER_ELECT_MASTER).with("brokerName", &long),
        apply_id(i64::MIN, "10.0.0.1:10911;2"),
        apply_id(2, &long),
        RemotingCommand::request(CONTROLLER_ALTER_SYNC_STATE_SET)
            .with("brokerName", SET)
            .with_body(&b"{"[..]),
        RemotingCommand::request(CONTROLLER_ALTER_SYNC_STATE_SET)
            .with("brokerName", SET)
            .with("masterBrokerId", 1)
            .with("masterEpoch", 1)
            .with_body(json!({ "syncStateSet": many, "syncStateSetEpoch": 1 }).to_string().into_bytes()),
        RemotingCommand::request(CONTROLLER_GET_SYNC_STATE_DATA).with_body(&b"\"broker-a\""[..]),
        RemotingCommand::request(CLEAN_BROKER_DATA)
            .with("clusterName", CLUSTER)
            .with("brokerName", SET)
            .with("brokerControllerIdsToClean", "1;;x"),
        RemotingCommand::request(i32::MAX),
    ];
    for request in requests {
        let answer = controllers.ask(request.clone()).await;
        assert_ne!(answer.code, 0, "{request:?}");
        assert!(answer.remark.is_some_and(|remark| !remark.is_empty()), "{request:?}");
    }
    assert_eq!(controllers.replica_info().await, before);
    controllers.stop().await;
}
