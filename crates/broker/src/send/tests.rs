//! Sends that wait for the disk.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_remoting::{Client, Connection, Limits, NoRequests};

use crate::RunningBroker;
use crate::config::BrokerConfig;

async fn call(connection: &Connection, command: RemotingCommand) -> RemotingCommand {
    connection.invoke(command, Duration::from_secs(20)).await.unwrap()
}

fn send(properties: &str, body: &'static str) -> RemotingCommand {
    let fields = [
        ("a", "group"),
        ("b", "TopicTest"),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", "0"),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "0"),
        ("i", properties),
    ];
    let command = RemotingCommand::request(request::SEND_MESSAGE_V2).with_body(body);
    fields.iter().fold(command, |command, (name, value)| command.with(name, value))
}

fn max_offset() -> RemotingCommand {
    RemotingCommand::request(request::GET_MAX_OFFSET).with("topic", "TopicTest").with("queueId", 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_stands_still_is_told_to_the_producer_and_hides_the_message() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("store").display().to_string();
    let mut config = BrokerConfig::default();
    for (key, value) in [
        ("storePathRootDir", root.as_str()),
        ("listenPort", "0"),
        ("brokerIP1", "127.0.0.1"),
        ("mappedFileSizeCommitLog", "1048576"),
        ("flushDiskType", "SYNC_FLUSH"),
        ("syncFlushTimeout", "30"),
    ] {
        assert!(config.set(key, value).unwrap(), "{key}");
    }
    let running = RunningBroker::start(config).await.unwrap();
    let store = Arc::clone(&running.broker().store);
    let client = Client::with_service(Arc::new(NoRequests), HeaderEncoding::Json, Limits::default());
    let connection = client.connection(&format!("127.0.0.1:{}", running.address().port())).await.unwrap();
    assert_eq!(call(&connection, send("", "on the disk")).await.code, response::SUCCESS);

    let held = store.hold_flushes();
    let late = call(&connection, send("", "late")).await;
    assert_eq!((late.code, late.field("queueOffset")), (response::FLUSH_DISK_TIMEOUT, Some("1")));
    assert!(late.field("msgId").is_some(), "it is stored, and its producer may look it up");
    let unwaited = call(&connection, send("WAIT\u{1}false\u{2}", "does not wait")).await;
    assert_eq!((unwaited.code, unwaited.field("queueOffset")), (response::SUCCESS, Some("2")));
    assert_eq!(
        call(&connection, max_offset()).await.field("offset"),
        Some("1"),
        "only what a crash can't take"
    );

    drop(held);
    store.flushed().wait(store.appended().get()).await;
    assert_eq!(call(&connection, max_offset()).await.field("offset"), Some("3"));
    running.shutdown().await;
}
