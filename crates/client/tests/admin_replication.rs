//! What administrators see and do of replication: a slave of a master, and brokers under a controller.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::TcpListener;

use ferromq_client::admin::Brokers;
use ferromq_client::protocol::code::response;
use ferromq_client::{Error, Message};
use ferromq_controller::{Controller, ControllerConfig};
use support::{Cluster, eventually};

#[tokio::test]
async fn a_master_tells_of_its_slave() {
    let cluster = Cluster::start(1).await;
    let slave = cluster.start_slave().await;
    let client = cluster.client().start().unwrap();
    let (admin, all) = (client.admin(), Brokers::all_of("DefaultCluster"));
    eventually("both are registered", async || admin.addresses(&all).await.unwrap().len() == 2).await;
    let addresses = admin.addresses(&all).await.unwrap();
    let producer = client.producer("p").start().await.unwrap();
    producer.send(Message::new("T", "x")).await.unwrap();
    eventually("the slave has followed", async || {
        let status = admin.ha_status(&addresses[0]).await.unwrap();
        status.ha_connection_info.iter().any(|slave| slave.slave_ack_offset > 0 && slave.diff == 0)
    })
    .await;
    let status = admin.ha_status(&addresses[1]).await.unwrap();
    assert!(!status.master);
    assert!(status.ha_client_runtime_info.max_offset > 0, "{status:?}");
    client.shutdown().await;
    slave.shutdown().await;
    cluster.shutdown().await;
}

/// A controller that is alone in its group.
async fn start_controller(folder: &tempfile::TempDir) -> Controller {
    // Its own address is among its settings, so the system can't choose it while the controller binds.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let config = ControllerConfig {
        controller_dleger_group: Some("group1".to_owned()),
        controller_dleger_peers: Some(format!("n0-127.0.0.1:{port}")),
        controller_dleger_self_id: Some("n0".to_owned()),
        controller_store_path: path("store"),
        config_store_path: path("controller.conf"),
        bind_address: "127.0.0.1".to_owned(),
        ..ControllerConfig::default()
    };
    Controller::start(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_tells_of_its_brokers_and_elects_the_one_it_is_told_to() {
    let (cluster, folder) = (Cluster::start(0).await, tempfile::tempdir().unwrap());
    let controller = start_controller(&folder).await;
    let address = controller.address().to_string();
    let client = cluster.client().start().unwrap();
    let admin = client.admin();
    eventually("it leads", async || admin.controller_metadata(&address).await.unwrap().is_leader).await;
    let metadata = admin.controller_metadata(&address).await.unwrap();
    assert_eq!((&*metadata.group, metadata.leader_address.as_ref()), ("group1", Some(&address)));
    assert_eq!(admin.controller_config(&address).await.unwrap()["controllerDLegerGroup"], "group1");
    admin.update_controller_config(&address, &[("scanNotActiveBrokerInterval", "4000")]).await.unwrap();

    let settings = [("enableControllerMode", "true"), ("controllerAddr", &*address)];
    let first = cluster.start_replica("first", &settings).await;
    let set = async || admin.sync_state_sets(&address, &["broker-a", "nobody"]).await.unwrap();
    eventually("the first is master", async || {
        set().await.get("broker-a").is_some_and(|set| set.master_broker_id == Some(1))
    })
    .await;
    let second = cluster.start_replica("second", &settings).await;
    eventually("the second has followed", async || set().await["broker-a"].in_sync_replicas.len() == 2).await;
    assert!(!set().await.contains_key("nobody"));
    let master = set().await["broker-a"].master_address.clone().unwrap();
    let epochs = admin.broker_epochs(&master).await.unwrap();
    assert_eq!((&*epochs.broker_name, epochs.epoch_list.len()), ("broker-a", 1));

    let elect = async |id| admin.elect_master(&address, "DefaultCluster", "broker-a", id).await;
    let refused = elect(1).await.unwrap_err();
    assert_eq!(refused.response_code(), Some(response::CONTROLLER_MASTER_STILL_EXIST), "{refused}");
    let elected = elect(2).await.unwrap();
    assert_eq!((elected.broker_id, elected.master_epoch), (Some(2), 2));
    assert_eq!(elected.members.broker_addrs.len(), 2);
    assert_eq!(set().await["broker-a"].master_broker_id, Some(2));

    let clean = async |ids, alive| {
        admin.clean_broker_metadata(&address, "DefaultCluster", "broker-a", ids, alive).await
    };
    assert!(matches!(clean(Some(&[1][..]), false).await, Err(Error::Refused { .. })));
    first.shutdown().await;
    clean(Some(&[1]), true).await.unwrap();
    let known = &set().await["broker-a"];
    assert!(known.not_in_sync_replicas.is_empty() && known.in_sync_replicas.len() == 1, "{known:?}");

    client.shutdown().await;
    second.shutdown().await;
    controller.shutdown().await;
    cluster.shutdown().await;
}
