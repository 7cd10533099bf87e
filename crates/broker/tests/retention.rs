//! What consumers and administrators see of the deletion of old messages.

mod support;

use std::fs::File;
use std::time::{Duration, SystemTime};

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use support::{Peer, pull_request, start};

const FILE: usize = 65_536;

fn send_request() -> RemotingCommand {
    RemotingCommand::request(request::SEND_MESSAGE_V2)
        .with("a", "producers")
        .with("b", "T")
        .with("c", "TBW102")
        .with("d", 1)
        .with("e", 0)
        .with("f", 0)
        .with("g", 1_700_000_000_000_i64)
        .with("h", 0)
        .with("i", "")
        // No two fit into one log file.
        .with_body(vec![b'x'; FILE / 2])
}

#[tokio::test]
async fn a_consumer_whose_messages_are_gone_is_led_to_the_first_that_is_there() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = [
        ("mappedFileSizeCommitLog", "65536"),
        ("fileReservedTime", "10"),
        ("deleteCommitLogFilesInterval", "0"),
        // The disk of whoever runs this may be as full as it likes.
        ("diskMaxUsedSpaceRatio", "95"),
        ("diskSpaceCleanForciblyRatio", "99"),
        ("diskSpaceWarningLevelRatio", "99"),
        ("flushDiskType", "SYNC_FLUSH"),
    ];
    let broker = start(directory.path(), &settings).await;
    let peer = Peer::connect(&broker).await;
    for _ in 0..6 {
        peer.done(send_request()).await;
    }
    let delete = || RemotingCommand::request(request::DELETE_EXPIRED_COMMITLOG);
    peer.done(delete()).await;
    assert_eq!(
        peer.done(pull_request(0, 0)).await.number::<i64>("minOffset").expect("a number"),
        0,
        "all are young"
    );

    let mut files: Vec<_> = std::fs::read_dir(directory.path().join("store/commitlog"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let old = SystemTime::now() - Duration::from_secs(11 * 3600);
    for file in &files[..4] {
        File::options().write(true).open(file).expect("a file").set_modified(old).expect("a time");
    }
    peer.done(delete()).await;
    let moved = peer.call(pull_request(0, 1)).await;
    let number = |field| moved.number::<i64>(field).expect("a number");
    assert_eq!((moved.code, number("nextBeginOffset")), (response::PULL_OFFSET_MOVED, 4));
    assert_eq!((number("minOffset"), number("maxOffset")), (4, 6));
    let rest = peer.done(pull_request(0, 4)).await;
    assert_eq!(rest.number::<i64>("nextBeginOffset").expect("a number"), 6);
    assert!(files[..4].iter().all(|file| !file.exists()) && files[4].exists());
    broker.shutdown().await;
}
