//! Groups of controllers in one process: leaders that go, files that stay, brokers that die.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use ferromq_controller::Controller;
use ferromq_protocol::code::request::{
    CLEAN_BROKER_DATA, CONTROLLER_GET_METADATA_INFO, CONTROLLER_GET_NEXT_BROKER_ID,
    CONTROLLER_GET_SYNC_STATE_DATA, GET_CONTROLLER_CONFIG, UPDATE_CONTROLLER_CONFIG,
};
use ferromq_protocol::code::response::{CONTROLLER_MASTER_STILL_EXIST, CONTROLLER_NOT_LEADER};
use ferromq_protocol::command::RemotingCommand;
use support::{CLUSTER, Controllers, FakeBroker, PATIENCE, SET, apply_id, elect, replica_info};
use tokio::time::timeout;

fn next_id() -> RemotingCommand {
    RemotingCommand::request(CONTROLLER_GET_NEXT_BROKER_ID)
        .with("clusterName", CLUSTER)
        .with("brokerName", SET)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_survives_the_leader_and_a_restart_of_all() {
    let mut controllers = Controllers::start(3).await;
    controllers.succeed(apply_id(1, "10.0.0.1:10911;1")).await;
    controllers.succeed(elect(1, false)).await;
    let before = controllers.replica_info().await;
    assert_eq!((before.0, before.1), (Some(1), 1));

    let leader = controllers.leader().await;
    controllers.stop_one(leader).await;
    assert_eq!(controllers.replica_info().await, before);
    controllers.succeed(apply_id(2, "10.0.0.2:10911;1")).await;
    controllers.start_one(leader).await;

    for id in 0..3 {
        controllers.stop_one(id).await;
    }
    for id in 0..3 {
        controllers.start_one(id).await;
    }
    assert_eq!(controllers.replica_info().await, before);
    assert_eq!(controllers.succeed(next_id()).await.field("nextBrokerId"), Some("3"));
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_majority_nothing_is_answered_with_success() {
    let mut controllers = Controllers::start(3).await;
    controllers.succeed(apply_id(1, "10.0.0.1:10911;1")).await;
    let leader = controllers.leader().await;
    for id in (0..3).filter(|id| *id != leader) {
        controllers.stop_one(id).await;
    }
    let answer = controllers.ask_one(leader, apply_id(2, "10.0.0.2:10911;1")).await;
    assert_ne!(answer.code, 0, "{answer:?}");
    let answer = controllers.ask_one(leader, replica_info()).await;
    assert_ne!(answer.code, 0, "{answer:?}");
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_one_needs_nobody() {
    let mut controllers = Controllers::start(1).await;
    // More than fits between two snapshots.
    for id in 1..=1500 {
        controllers.succeed(apply_id(id, &format!("10.0.0.1:{id};1"))).await;
    }
    assert!(controllers.path(0).join("store/ferromq-n0/snapshot").exists());
    controllers.stop_one(0).await;
    controllers.start_one(0).await;
    assert_eq!(controllers.succeed(next_id()).await.field("nextBrokerId"), Some("1501"));
    controllers.stop().await;
}

/// The others have forgotten the entries that it missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_was_away_for_long_gets_the_state_as_a_whole() {
    let mut controllers = Controllers::start(3).await;
    let away = (controllers.leader().await + 1) % 3;
    controllers.stop_one(away).await;
    for id in 1..=1500 {
        controllers.succeed(apply_id(id, &format!("10.0.0.1:{id};1"))).await;
    }
    controllers.start_one(away).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !controllers.path(away).join(format!("store/ferromq-n{away}/snapshot")).exists() {
        assert!(tokio::time::Instant::now() < deadline, "no snapshot came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Now it is needed for the majority.
    let leader = controllers.leader().await;
    controllers.stop_one((0..3).find(|id| *id != leader && *id != away).unwrap()).await;
    assert_eq!(controllers.succeed(next_id()).await.field("nextBrokerId"), Some("1501"));
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_know_their_leader_and_answer_nothing_else() {
    let controllers = Controllers::start(3).await;
    controllers.succeed(apply_id(1, "10.0.0.1:10911;1")).await;
    let leader = controllers.leader().await;
    let follower = (leader + 1) % 3;
    let answer = controllers.ask_one(follower, replica_info()).await;
    assert_eq!(answer.code, CONTROLLER_NOT_LEADER);
    assert_eq!(answer.remark.as_deref(), Some("The controller is not in leader state"));
    let answer = controllers.ask_one(follower, RemotingCommand::request(CONTROLLER_GET_METADATA_INFO)).await;
    assert_eq!(answer.field("controllerLeaderAddress"), Some(&*controllers.address(leader)));
    assert_eq!(answer.field("isLeader"), Some("false"));
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_killed_is_replaced_at_once_by_the_longest_log_in_the_set() {
    let controllers = Controllers::start(3).await;
    let master = FakeBroker::start(&controllers, 1).await;
    let shorter = FakeBroker::start(&controllers, 2).await;
    let mut longer = FakeBroker::start(&controllers, 3).await;
    let outside = FakeBroker::start(&controllers, 4).await;
    controllers.succeed(elect(1, false)).await;
    controllers.alter(1, &[1, 2, 3]).await;
    shorter.heartbeat(&controllers, 1, 5_000_000_000).await;
    longer.heartbeat(&controllers, 1, 10_000_000_000).await;
    outside.heartbeat(&controllers, 1, 20_000_000_000).await;
    let answer = controllers.ask(elect(2, false)).await;
    assert_eq!(answer.code, CONTROLLER_MASTER_STILL_EXIST);

    master.die().await;
    controllers.until_master(3).await;
    let notice = loop {
        let notice = timeout(PATIENCE, longer.told.recv()).await.unwrap().unwrap();
        if notice.field("masterEpoch") == Some("2") {
            break notice;
        }
    };
    assert_eq!(notice.field("masterAddress"), Some(&*longer.address));
    assert_eq!(&notice.body[..], br#"{"syncStateSet":[3],"syncStateSetEpoch":3}"#);
    controllers.stop().await;
}

/// The system needs a while to close all that a large process had open.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_whose_port_closes_after_its_connections_is_replaced_at_once() {
    let controllers = Controllers::start(1).await;
    let master = FakeBroker::start(&controllers, 1).await;
    let _other = FakeBroker::start(&controllers, 2).await;
    controllers.succeed(elect(1, false)).await;
    controllers.alter(1, &[1, 2]).await;
    master.die_slowly().await;
    controllers.until_master(2).await;
    controllers.stop().await;
}

/// A broker on a busy machine closes and opens its connections. That is no failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_only_closes_its_connections_stays() {
    let controllers = Controllers::start(1).await;
    let master = FakeBroker::start(&controllers, 1).await;
    let _other = FakeBroker::start(&controllers, 2).await;
    controllers.succeed(elect(1, false)).await;
    controllers.alter(1, &[1, 2]).await;
    master.client.close().await;
    // Longer than somebody knocks at its port.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let (id, epoch, _) = controllers.replica_info().await;
    assert_eq!((id, epoch), (Some(1), 1));
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_shown_and_cleaned() {
    let controllers = Controllers::start(1).await;
    let _master = FakeBroker::start(&controllers, 1).await;
    controllers.succeed(apply_id(2, "10.0.0.2:10911;1")).await;
    controllers.succeed(elect(1, false)).await;
    let ask = RemotingCommand::request(CONTROLLER_GET_SYNC_STATE_DATA).with_body(&br#"["broker-a"]"#[..]);
    let shown = String::from_utf8(controllers.succeed(ask.clone()).await.body.to_vec()).unwrap();
    let dead = r#""notInSyncReplicas":[{"alive":false,"brokerAddress":"10.0.0.2:10911","brokerId":2,"brokerName":"broker-a"}]"#;
    assert!(shown.contains(dead), "{shown}");
    let clean = RemotingCommand::request(CLEAN_BROKER_DATA)
        .with("clusterName", CLUSTER)
        .with("brokerName", SET)
        .with("brokerControllerIdsToClean", "2")
        .with("isCleanLivingBroker", false);
    controllers.succeed(clean).await;
    let shown = String::from_utf8(controllers.succeed(ask).await.body.to_vec()).unwrap();
    assert!(shown.contains(r#""notInSyncReplicas":[]"#), "{shown}");
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_shown_changed_and_kept() {
    let controllers = Controllers::start(1).await;
    let update =
        |text: &'static str| RemotingCommand::request(UPDATE_CONTROLLER_CONFIG).with_body(text.as_bytes());
    controllers.succeed(update("enableElectUncleanMaster=true")).await;
    let shown = controllers.succeed(RemotingCommand::request(GET_CONTROLLER_CONFIG)).await;
    assert!(String::from_utf8_lossy(&shown.body).contains("enableElectUncleanMaster=true\n"));
    let file = std::fs::read_to_string(controllers.path(0).join("controller.conf")).unwrap();
    assert!(file.contains("enableElectUncleanMaster=true\n"), "{file}");
    let refused = controllers.ask(update("controllerDLegerPeers=n0-h:1")).await;
    assert_eq!(
        refused.remark.as_deref(),
        Some(
            "controllerDLegerPeers can't be changed while the controller runs, only in its configuration file"
        )
    );
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_another_group_are_not_taken() {
    let mut controllers = Controllers::start(1).await;
    controllers.succeed(apply_id(1, "10.0.0.1:10911;1")).await;
    controllers.stop_one(0).await;
    let mut config = controllers.config(0);
    let peers = config.controller_dleger_peers.take().unwrap();
    config.controller_dleger_peers = Some(format!("{peers};n1-127.0.0.1:1;n2-127.0.0.1:2"));
    let error = Controller::start(config).await.err().unwrap().to_string();
    assert!(error.contains("is of the group of controllers {0}, the settings name {0, 1, 2}"), "{error}");
    controllers.stop().await;
}
