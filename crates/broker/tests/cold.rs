//! Pulls of messages that are not in memory.

mod support;

use std::fs::File;
use std::path::Path;

use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::RecordView;
use rustix::fs::{Advice, fadvise};
use support::{Peer, pull_request, start};

const QUEUES: i32 = 8;
/// In each queue.
const MESSAGES: i64 = 60;
const BODY: usize = 16 << 10;

fn send_request(queue_id: i32) -> RemotingCommand {
    RemotingCommand::request(request::SEND_MESSAGE_V2)
        .with("a", "producers")
        .with("b", "T")
        .with("c", "TBW102")
        .with("d", QUEUES)
        .with("e", queue_id)
        .with("f", 0)
        .with("g", 1_700_000_000_000_i64)
        .with("h", 0)
        .with("i", "")
        .with_body(vec![b'x'; BODY])
}

/// Makes the system forget what is in the files of a directory. Nobody must have them open.
fn forget(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let file = File::open(entry.expect("an entry").path()).expect("a file");
        file.sync_all().expect("written");
        fadvise(&file, 0, None, Advice::DontNeed).expect("forgotten");
    }
}

/// Reads a queue from its begin to its end; answers with the number of messages.
async fn drain(peer: &Peer, queue_id: i32) -> i64 {
    let mut offset = 0;
    while offset < MESSAGES {
        let answer = peer.done(pull_request(queue_id, offset)).await;
        let mut records = &answer.body[..];
        while !records.is_empty() {
            let size = u32::from_be_bytes(records[..4].try_into().expect("four bytes")) as usize;
            let record = RecordView::parse(&records[..size]).expect("a whole record");
            assert_eq!((record.queue_id(), record.queue_offset()), (queue_id, offset));
            records = &records[size..];
            offset += 1;
        }
        assert_eq!(answer.number::<i64>("nextBeginOffset").expect("a number"), offset);
    }
    offset
}

#[tokio::test]
async fn cold_messages_are_read_aside_and_every_pull_is_answered() {
    // On a disk: what is in a file system in memory never gets cold.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let broker = start(directory.path(), &[("mappedFileSizeCommitLog", "4194304")]).await;
    let peer = Peer::connect(&broker).await;
    for number in 0..MESSAGES * i64::from(QUEUES) {
        peer.done(send_request(number as i32 % QUEUES)).await;
    }
    broker.shutdown().await;
    forget(&directory.path().join("store/commitlog"));

    let broker = start(directory.path(), &[("mappedFileSizeCommitLog", "4194304")]).await;
    let peer = Peer::connect(&broker).await;
    let mut consumers = tokio::task::JoinSet::new();
    for queue_id in 0..QUEUES {
        let peer = Peer::connect(&broker).await;
        consumers.spawn(async move { drain(&peer, queue_id).await });
    }
    while let Some(messages) = consumers.join_next().await {
        assert_eq!(messages.expect("the consumer ends"), MESSAGES);
    }
    assert!(broker.cold_reads() > 0, "somebody had to wait for the disk");
    // Everything is in memory now.
    let cold_reads = broker.cold_reads();
    for queue_id in 0..QUEUES {
        assert_eq!(drain(&peer, queue_id).await, MESSAGES);
    }
    assert_eq!(broker.cold_reads(), cold_reads, "nobody has to wait any more");
    broker.shutdown().await;
}
