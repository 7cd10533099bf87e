//! Random operations against a model: whatever happens in between, every acknowledged message is there, at its offset, in order.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ferromq_store::*;
use proptest::prelude::*;
use support::*;

#[derive(Debug, Clone)]
enum Operation {
    /// Appends a batch of messages: topic, queue, length of the body.
    Send(Vec<(u8, u8, u16)>),
    DeleteTopic(u8),
    CleanRestart,
    /// Everything in the process's memory is lost.
    Crash,
    /// A crash, and the process's own notes are lost too.
    CrashWithoutMarks,
    /// A clean stop, after which queue files get lost.
    LoseQueue(u8, u8),
    /// A crash in the middle of an append: bytes behind the log's end.
    TornTail(Vec<u8>),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let send = prop::collection::vec((0..3u8, 0..3u8, 0..600u16), 1..40).prop_map(Operation::Send);
    let operation = prop_oneof![
        12 => send,
        1 => (0..3u8).prop_map(Operation::DeleteTopic),
        1 => Just(Operation::CleanRestart),
        2 => Just(Operation::Crash),
        1 => Just(Operation::CrashWithoutMarks),
        1 => (0..3u8, 0..3u8).prop_map(|(topic, queue)| Operation::LoseQueue(topic, queue)),
        1 => prop::collection::vec(any::<u8>(), 1..300).prop_map(Operation::TornTail),
    ];
    prop::collection::vec(operation, 1..25)
}

/// What must be in each queue.
type Model = BTreeMap<(String, i32), Vec<Vec<u8>>>;

fn options(root: &Path) -> StoreOptions {
    StoreOptions { commit_log_file_size: 16 << 10, ..small(root) }
}

fn topic(number: u8) -> String {
    format!("Topic{number}")
}

fn apply(store: &mut Arc<Store>, root: &Path, model: &mut Model, operation: &Operation, serial: &mut u32) {
    match operation {
        Operation::Send(messages) => {
            let mut batch = store.new_batch();
            let mut sent = Vec::new();
            for (number, queue_id, len) in messages {
                *serial += 1;
                let mut body = serial.to_be_bytes().to_vec();
                body.resize(4 + usize::from(*len), *len as u8);
                let message = Message::new(&topic(*number), i32::from(*queue_id), body)
                    .with("KEYS", &format!("key{serial}"))
                    .with("TAGS", "t");
                batch.push(&store.queue(&message.topic, message.queue_id), &message.fields()).unwrap();
                sent.push(message);
            }
            store.append(&mut batch).unwrap();
            for (message, outcome) in sent.into_iter().zip(batch.outcomes()) {
                let queue = model.entry((message.topic, message.queue_id)).or_default();
                assert_eq!(outcome.queue_offset, queue.len() as i64);
                queue.push(message.body);
            }
        }
        Operation::DeleteTopic(number) => {
            store.delete_topic(&topic(*number)).unwrap();
            model.retain(|(name, _), _| *name != topic(*number));
        }
        _ => restart(store, root, operation),
    }
}

fn restart(store: &mut Arc<Store>, root: &Path, operation: &Operation) {
    let end = store.appended().get();
    if matches!(operation, Operation::CleanRestart | Operation::LoseQueue(..)) {
        store.shutdown();
    }
    // The old one must be gone before the new one opens.
    let spare = tempfile::tempdir().unwrap();
    *store = Store::open(options(spare.path())).unwrap();
    match operation {
        Operation::CrashWithoutMarks => std::fs::remove_file(root.join("ferromq.marks")).unwrap(),
        Operation::LoseQueue(number, queue_id) => {
            let _ = std::fs::remove_dir_all(
                root.join("consumequeue").join(topic(*number)).join(queue_id.to_string()),
            );
        }
        Operation::TornTail(bytes) => {
            use std::os::unix::fs::FileExt;
            let size = u64::from(options(root).commit_log_file_size);
            let path = root.join("commitlog").join(format!("{:020}", end / size * size));
            let file = std::fs::File::options().write(true).open(path).unwrap();
            let rest = (size - end % size) as usize;
            file.write_all_at(&bytes[..bytes.len().min(rest)], end % size).unwrap();
        }
        _ => {}
    }
    *store = Store::open(options(root)).unwrap();
}

fn check(store: &Store, model: &Model) {
    for ((topic, queue_id), bodies) in model {
        let queue = store.queue(topic, *queue_id);
        let found = drain(store, &queue);
        let expected: Vec<_> =
            bodies.iter().enumerate().map(|(offset, body)| (offset as i64, body.clone())).collect();
        assert_eq!(found, expected, "{topic}-{queue_id}");
        assert_eq!(queue.next_offset(), bodies.len() as i64);
        if let Some(last) = bodies.last() {
            let serial = u32::from_be_bytes(last[..4].try_into().unwrap());
            assert_eq!(store.query(topic, &format!("key{serial}"), 32, 0, i64::MAX, false).records.len(), 1);
        }
    }
    let known: Vec<_> = model.keys().map(|(topic, _)| topic.as_str()).collect();
    for topic in store.topics() {
        assert!(known.contains(&&*topic), "{topic} came back");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_acknowledged_is_lost(operations in operations()) {
        let root = tempfile::tempdir().unwrap();
        let mut store = Store::open(options(root.path())).unwrap();
        let (mut model, mut serial) = (Model::new(), 0);
        for operation in &operations {
            apply(&mut store, root.path(), &mut model, operation, &mut serial);
            if !matches!(operation, Operation::Send(_)) {
                check(&store, &model);
            }
        }
        check(&store, &model);
        restart(&mut store, root.path(), &Operation::Crash);
        check(&store, &model);
    }
}
