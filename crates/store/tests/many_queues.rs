//! A store with more queues than a start looks at.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ferromq_store::*;
use support::*;

const PER_TOPIC: i32 = 8;

fn options(root: &Path) -> StoreOptions {
    StoreOptions { commit_log_file_size: 4 << 20, index_slots: 1000, index_units: 100_000, ..small(root) }
}

fn name(queue: i32) -> (String, i32) {
    (format!("Topic{}", queue / PER_TOPIC), queue % PER_TOPIC)
}

fn handle(store: &Store, queue: i32) -> Arc<ConsumeQueue> {
    let (topic, queue_id) = name(queue);
    store.queue(&topic, queue_id)
}

fn directory(root: &Path, queue: i32) -> std::path::PathBuf {
    let (topic, queue_id) = name(queue);
    root.join("consumequeue").join(topic).join(queue_id.to_string())
}

fn body(queue: i32, round: i64) -> Vec<u8> {
    format!("{queue}/{round}").into_bytes()
}

/// Appends message `round` to queues; each must get that offset.
fn send_round(store: &Store, queues: impl Iterator<Item = i32>, round: i64) {
    let mut batch = store.new_batch();
    for queue in queues {
        let (topic, queue_id) = name(queue);
        let message = Message::new(&topic, queue_id, body(queue, round));
        let queue = store.queue(&topic, queue_id);
        assert_eq!(
            queue.next_offset(),
            round,
            "the next offset is right before anything is done with {topic}"
        );
        batch.push(&queue, &message.fields()).unwrap();
        if batch.len() == 64 {
            store.append(&mut batch).unwrap();
            assert!(batch.outcomes().iter().all(|outcome| outcome.queue_offset == round));
            batch.clear();
        }
    }
    store.append(&mut batch).unwrap();
}

fn expect(store: &Store, queue: i32, rounds: i64) {
    let found = drain(store, &handle(store, queue));
    let expected: Vec<_> = (0..rounds).map(|round| (round, body(queue, round))).collect();
    assert_eq!(found, expected, "queue {queue}");
}

/// The store as it is when its process was killed.
fn kill_and_open(store: Arc<Store>, root: &Path) -> Arc<Store> {
    drop(store);
    Store::open(options(root)).unwrap()
}

fn stop_and_open(store: Arc<Store>, root: &Path) -> Arc<Store> {
    store.shutdown();
    drop(store);
    Store::open(options(root)).unwrap()
}

#[test]
fn twenty_thousand_queues_are_written_read_stopped_and_killed() {
    const QUEUES: i32 = 20_000;
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(options(root.path())).unwrap();
    send_round(&store, 0..QUEUES, 0);
    let store = stop_and_open(store, root.path());
    assert_eq!(store.topics().len(), (QUEUES / PER_TOPIC) as usize);
    (0..QUEUES).step_by(7).for_each(|queue| expect(&store, queue, 1));
    send_round(&store, 0..QUEUES, 1);
    let store = kill_and_open(store, root.path());
    (0..QUEUES).step_by(7).for_each(|queue| expect(&store, queue, 2));
    // Some new ones, some old ones, killed at once and once more.
    send_round(&store, QUEUES..QUEUES + 100, 0);
    send_round(&store, (0..QUEUES).step_by(3), 2);
    let store = kill_and_open(kill_and_open(store, root.path()), root.path());
    send_round(&store, QUEUES..QUEUES + 100, 1);
    let store = stop_and_open(store, root.path());
    for queue in 0..QUEUES + 100 {
        let rounds = if queue < QUEUES && queue % 3 == 0 { 3 } else { 2 };
        expect(&store, queue, rounds);
        assert_eq!(handle(&store, queue).next_offset(), rounds);
    }
}

/// More queues than a start looks at (it takes every third); what is done to another one shows only when it is used.
const SOME: i32 = 520;
const DAMAGED: i32 = 301;
const DAMAGED_TOO: i32 = 304;
const WHOLE: i32 = 302;

fn closed_store(root: &Path) {
    let store = Store::open(options(root)).unwrap();
    (0..30).for_each(|round| send_round(&store, 0..SOME, round));
    store.shutdown();
}

/// The modification time of one queue's file shows whether all queues were laid anew.
fn untouched(root: &Path) -> std::time::SystemTime {
    fs::metadata(directory(root, 3).join("00000000000000000000")).unwrap().modified().unwrap()
}

fn damage_is_found_on_first_use(damage: impl Fn(&Path), use_it: impl Fn(&Store)) {
    let root = tempfile::tempdir().unwrap();
    closed_store(root.path());
    let before = untouched(root.path());
    damage(&directory(root.path(), DAMAGED));
    damage(&directory(root.path(), DAMAGED_TOO));
    let store = Store::open(options(root.path())).unwrap();
    use_it(&store);
    store.dispatch_to_confirmed();
    let rounds = handle(&store, DAMAGED).max_offset();
    expect(&store, DAMAGED, rounds);
    expect(&store, DAMAGED_TOO, 30);
    expect(&store, WHOLE, 30);
    assert_eq!(untouched(root.path()), before, "the other queues' files are left alone");
    let store = stop_and_open(store, root.path());
    expect(&store, DAMAGED, rounds);
    expect(&store, DAMAGED_TOO, 30);
}

fn pull(store: &Store) {
    expect(store, DAMAGED, 30);
}

fn append(store: &Store) {
    send_round(store, std::iter::once(DAMAGED), 30);
}

#[test]
fn a_lost_directory_comes_back_when_its_queue_is_read() {
    damage_is_found_on_first_use(|directory| fs::remove_dir_all(directory).unwrap(), pull);
}

#[test]
fn a_lost_directory_comes_back_when_its_queue_is_written() {
    damage_is_found_on_first_use(|directory| fs::remove_dir_all(directory).unwrap(), append);
}

#[test]
fn a_lost_file_comes_back() {
    // 20 units are in a file.
    let first = |directory: &Path| fs::remove_file(directory.join("00000000000000000000")).unwrap();
    damage_is_found_on_first_use(first, pull);
    let last = |directory: &Path| fs::remove_file(directory.join("00000000000000000400")).unwrap();
    damage_is_found_on_first_use(last, append);
}

#[test]
fn a_cut_file_is_completed() {
    let cut = |name: &'static str, len| {
        move |directory: &Path| {
            fs::File::options().write(true).open(directory.join(name)).unwrap().set_len(len).unwrap()
        }
    };
    damage_is_found_on_first_use(cut("00000000000000000000", 100), pull);
    damage_is_found_on_first_use(cut("00000000000000000400", 0), pull);
}

#[test]
fn another_queues_files_are_not_believed() {
    let exchange = |directory: &Path| {
        let other = directory.parent().unwrap().join("2").join("00000000000000000400");
        fs::copy(other, directory.join("00000000000000000400")).unwrap();
    };
    damage_is_found_on_first_use(exchange, pull);
}

#[test]
fn a_pull_that_must_not_wait_leaves_the_check_to_one_that_may() {
    let root = tempfile::tempdir().unwrap();
    closed_store(root.path());
    let store = Store::open(options(root.path())).unwrap();
    let queue = handle(&store, DAMAGED);
    let hot = ReadRequest { residency: Residency::HotOnly, ..request(0) };
    let mut records: Vec<RecordSlice> = Vec::new();
    assert_eq!(store.read(&queue, hot, &AcceptAll, &mut records).status, ReadStatus::Cold);
    assert_eq!(store.read(&queue, request(0), &AcceptAll, &mut records).status, ReadStatus::Found);
    assert_eq!(store.read(&queue, hot, &AcceptAll, &mut records).status, ReadStatus::Found);
}

#[test]
fn a_deleted_topic_is_not_brought_back_by_the_list() {
    let root = tempfile::tempdir().unwrap();
    closed_store(root.path());
    let store = Store::open(options(root.path())).unwrap();
    let (topic, _) = name(DAMAGED);
    store.delete_topic(&topic).unwrap();
    let store = kill_and_open(store, root.path());
    assert!(store.queues_of(&topic).iter().all(|queue| queue.next_offset() == 0));
    send_round(&store, std::iter::once(DAMAGED), 0);
    let store = kill_and_open(store, root.path());
    expect(&store, DAMAGED, 1);
    let store = stop_and_open(store, root.path());
    expect(&store, DAMAGED, 1);
    assert_eq!(handle(&store, DAMAGED + 1).max_offset(), 0);
}

#[test]
fn without_the_list_or_with_a_damaged_one_the_log_is_read() {
    let root = tempfile::tempdir().unwrap();
    closed_store(root.path());
    let list = root.path().join("ferromq.queues");
    for kill in [false, true] {
        let text = fs::read_to_string(&list).unwrap();
        fs::write(&list, text.replacen("= 6 Topic0\n0 0 30", "= 6 Topic0\n0 0 29", 1)).unwrap();
        let store = Store::open(options(root.path())).unwrap();
        expect(&store, 0, 30);
        if kill {
            drop(store);
        } else {
            store.shutdown();
        }
        fs::remove_file(&list).unwrap();
        let store = Store::open(options(root.path())).unwrap();
        expect(&store, DAMAGED, 30);
        store.shutdown();
    }
}
