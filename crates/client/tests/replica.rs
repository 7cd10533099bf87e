//! A master and its slave: what happens to clients when the master is away.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::SocketAddr;

use ferromq_client::admin::Brokers;
use ferromq_client::{ConsumeFrom, ConsumeResult, Delivery, Message, MessageQueue};
use ferromq_protocol::body::SubscriptionGroupConfig;
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use support::inbox::Inbox;
use support::{Cluster, PATIENCE, eventually};

/// Messages that a broker has of topic `T`.
async fn stored(address: SocketAddr) -> i64 {
    let remoting = ferromq_remoting::Client::new();
    let mut stored = 0;
    for queue in 0..4 {
        let question =
            RemotingCommand::request(request::GET_MAX_OFFSET).with("topic", "T").with("queueId", queue);
        let address = format!("127.0.0.1:{}", address.port());
        let answer = remoting.invoke(&address, question, PATIENCE).await.unwrap();
        stored += answer.number_or_none("offset").unwrap().unwrap_or(0);
    }
    remoting.close().await;
    stored
}

/// Whether a broker knows topic `T` and the progress of group `g` in it: a slave copies the messages at once and its
/// master's tables from time to time.
async fn knows_progress(address: SocketAddr) -> bool {
    let remoting = ferromq_remoting::Client::new();
    let address = format!("127.0.0.1:{}", address.port());
    let mut questions = vec![RemotingCommand::request(request::GET_TOPIC_CONFIG).with("topic", "T")];
    for queue in 0..4 {
        let question = RemotingCommand::request(request::QUERY_CONSUMER_OFFSET).with("consumerGroup", "g");
        questions.push(question.with("topic", "T").with("queueId", queue));
    }
    let mut all = true;
    for question in questions {
        all &= remoting.invoke(&address, question, PATIENCE).await.unwrap().code == 0;
    }
    remoting.close().await;
    all
}

#[tokio::test]
async fn consumers_read_from_the_slave_while_the_master_is_away() {
    let mut cluster = Cluster::start(1).await;
    cluster.fill("T", 40).await;
    let (client, inbox) = (cluster.client().start().unwrap(), Inbox::default());
    // A slave does not guess where a group begins that it has not heard of.
    let admin = client.admin();
    let masters = Brokers::masters_of("DefaultCluster");
    admin.update_group(&masters, &SubscriptionGroupConfig::new("g")).await.unwrap();
    for queue in 0..4 {
        admin.reset_queue_offset("g", &MessageQueue::new("T", "broker-a", queue), 0).await.unwrap();
    }
    let slave = cluster.start_slave().await;
    eventually("the slave has everything", async || {
        stored(slave.address()).await == 40 && knows_progress(slave.address()).await
    })
    .await;
    let producer = client.producer("pg").start().await.unwrap();
    cluster.stop_broker().await;

    let got = inbox.clone();
    let _consumer = client
        .push_consumer("g")
        .subscribe("T", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .listener(move |delivery: Delivery| {
            got.put("c", &delivery);
            async { ConsumeResult::success() }
        })
        .start()
        .await
        .unwrap();
    eventually("everything, from the slave", async || inbox.bodies().len() >= 40).await;
    assert!(producer.send(Message::new("T", "nobody takes it")).await.is_err());

    cluster.start_again().await;
    eventually("the master takes messages again", async || {
        producer.send(Message::new("T", "after")).await.is_ok()
    })
    .await;
    eventually("and consumers get them", async || inbox.bodies().contains_key("after")).await;
    client.shutdown().await;
    slave.shutdown().await;
    cluster.shutdown().await;
}
