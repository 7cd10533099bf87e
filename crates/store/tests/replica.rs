//! A log that is a copy: bytes of another broker's log, cut anywhere, confirmed and truncated by replication.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ferromq_store::*;
use support::*;

fn follower(root: &Path) -> Arc<Store> {
    Store::open(StoreOptions { follower: true, ..small(root) }).unwrap()
}

fn replicated(root: &Path, known: u64) -> Arc<Store> {
    let confirmed_by = ConfirmedBy::Replication { known };
    Store::open(StoreOptions { follower: true, confirmed_by, ..small(root) }).unwrap()
}

/// The queue offsets of all messages, each of which has its own body.
fn messages(store: &Store) -> Vec<i64> {
    let messages = drain(store, &store.queue("T", 0));
    messages
        .into_iter()
        .map(|(number, found)| {
            assert_eq!(found, body(number));
            number
        })
        .collect()
}

fn numbered(range: std::ops::Range<i64>) -> Vec<i64> {
    range.collect()
}

fn body(number: i64) -> Vec<u8> {
    format!("m{number}-{}", "x".repeat(number as usize % 700)).into_bytes()
}

fn send_numbered(store: &Store, range: std::ops::Range<i64>) {
    for number in range {
        let message = Message::new("T", 0, body(number)).with("KEYS", &format!("k{number}"));
        assert_eq!(send(store, &message).queue_offset, number);
    }
}

/// The end of the message with queue offset `number` in the log.
fn end_of(store: &Store, number: i64) -> u64 {
    store.dispatch_to_confirmed();
    let units = store.consume_queue_units(&store.queue("T", 0), number, 1);
    units[0].physical_offset + u64::from(units[0].size)
}

/// Copies what `to` lacks, so many bytes at a time.
fn copy(from: &Store, to: &Store, step: usize) {
    while to.appended().get() < from.appended().get() {
        let offset = to.appended().get();
        let bytes = from.read_log(offset, step).unwrap();
        to.append_replica(offset, &bytes).unwrap();
    }
}

fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(root.join("commitlog"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0))
        .collect();
    files.sort();
    files
}

#[test]
fn a_copy_has_the_same_bytes_and_the_same_messages_however_it_was_cut() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    send_numbered(&master, 0..500);
    let slave = follower(root.path());
    copy(&master, &slave, 1000);
    assert_eq!(messages(&slave), numbered(0..500));
    for number in [0, 250, 499] {
        let found = slave.query("T", &format!("k{number}"), 9, 0, i64::MAX, false);
        assert_eq!(found.records.len(), 1, "the index has k{number}");
    }
    send_numbered(&master, 500..510);
    copy(&master, &slave, 1);
    assert_eq!(messages(&slave), numbered(0..510));
    assert_eq!(slave.queue("T", 0).next_offset(), 510);
    master.shutdown();
    slave.shutdown();
    assert_eq!(files(master_root.path()), files(root.path()));
    drop(slave);
    assert_eq!(messages(&follower(root.path())), numbered(0..510));
}

#[test]
fn a_record_is_shown_when_all_of_it_is_there() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    send_numbered(&master, 0..2);
    let slave = follower(root.path());
    let (first, end) = (end_of(&master, 0), master.appended().get());
    for offset in 0..end {
        slave.append_replica(offset, &master.read_log(offset, 1).unwrap()).unwrap();
        slave.dispatch_to_confirmed();
        let whole = i64::from(offset + 1 >= first) + i64::from(offset + 1 == end);
        assert_eq!(slave.queue("T", 0).max_offset(), whole, "{offset}");
    }
}

#[test]
fn bytes_that_do_not_continue_the_log_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let slave = follower(root.path());
    let file = 64 << 10;
    assert!(matches!(slave.append_replica(1, b"x"), Err(ReplicaError::NotAtEnd { offset: 1, end: 0 })));
    let over = slave.append_replica(0, &vec![1; file + 1]);
    assert!(matches!(over, Err(ReplicaError::OverFileEnd { offset: 0, .. })));
    slave.append_replica(0, b"x").unwrap();
    assert!(matches!(slave.append_replica(0, b"x"), Err(ReplicaError::NotAtEnd { offset: 0, end: 1 })));
    assert!(matches!(slave.append_replica(file as u64, b"x"), Err(ReplicaError::NotAtEnd { .. })));
    assert!(matches!(slave.append_replica(1, &vec![1; file]), Err(ReplicaError::OverFileEnd { .. })));
    assert!(matches!(slave.read_log(2, 9), Err(ReplicaError::Outside { offset: 2, begin: 0, end: 1 })));
    assert_eq!(slave.read_log(1, 9).unwrap().len(), 0);
    assert!(matches!(slave.truncate_to(0), Err(ReplicaError::Confirmed { offset: 0, confirmed: 1 })));
    slave.lead().unwrap();
    assert!(matches!(slave.append_replica(1, b"x"), Err(ReplicaError::Leading)));
}

#[test]
fn an_empty_copy_begins_at_any_file() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    send_numbered(&master, 0..1000);
    let file = u64::from(master.options().commit_log_file_size);
    for begin in [file, 3 * file] {
        let root = root.path().join(begin.to_string());
        let slave = follower(&root);
        slave.append_replica(begin, &master.read_log(begin, 5000).unwrap()).unwrap();
        assert_eq!((slave.min_offset(), slave.appended().get()), (begin, begin + 5000));
        copy(&master, &slave, 5000);
        let first = messages(&slave)[0];
        assert!(first > 0);
        assert_eq!(messages(&slave), numbered(first..1000));
        drop(slave);
        assert_eq!(files(&root)[..], files(master_root.path())[(begin / file) as usize..]);
        let slave = follower(&root);
        assert_eq!((slave.min_offset(), slave.appended().get()), (begin, master.appended().get()));
        assert_eq!(messages(&slave), numbered(first..1000));
    }
}

#[test]
fn a_partial_record_at_the_end_is_cut_by_a_restart_and_fetched_again() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    send_numbered(&master, 0..101);
    let (whole, end) = (end_of(&master, 99), master.appended().get());
    for (round, stop) in [whole + 1, whole + 50, end - 1].into_iter().enumerate() {
        for clean in [true, false] {
            let root = root.path().join(format!("{round}-{clean}"));
            let slave = follower(&root);
            while slave.appended().get() < stop {
                let offset = slave.appended().get();
                let bytes = master.read_log(offset, (stop - offset) as usize).unwrap();
                slave.append_replica(offset, &bytes).unwrap();
            }
            assert_eq!(messages(&slave), numbered(0..100));
            if clean {
                slave.shutdown();
            }
            drop(slave);
            let slave = follower(&root);
            assert_eq!(slave.appended().get(), whole);
            copy(&master, &slave, 77);
            assert_eq!(messages(&slave), numbered(0..101));
        }
    }
}

#[test]
fn who_takes_over_goes_on_behind_the_last_whole_record() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    send_numbered(&master, 0..100);
    let whole = end_of(&master, 98);
    let slave = follower(root.path());
    let mut batch = slave.new_batch();
    batch.push(&slave.queue("T", 0), &Message::new("T", 0, "no").fields()).unwrap();
    assert_eq!(slave.append(&mut batch), Err(AppendError::Follower));
    let stop = master.appended().get() - 1;
    while slave.appended().get() < stop {
        let offset = slave.appended().get();
        slave.append_replica(offset, &master.read_log(offset, (stop - offset) as usize).unwrap()).unwrap();
    }
    slave.lead().unwrap();
    assert_eq!((slave.appended().get(), slave.is_follower()), (whole, false));
    send_numbered(&slave, 99..300);
    assert_eq!(messages(&slave), numbered(0..300));
    drop(slave);
    assert_eq!(messages(&Store::open(small(root.path())).unwrap()), numbered(0..300));
}

#[test]
fn what_is_not_confirmed_is_not_shown_and_can_be_erased() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    send_numbered(&master, 0..600);
    let replica = replicated(root.path(), 0);
    copy(&master, &replica, 3000);
    assert_eq!(messages(&replica), []);
    replica.confirm(end_of(&master, 99) + 5);
    assert_eq!(messages(&replica), numbered(0..100), "the 101st is confirmed in part");
    let cut = end_of(&master, 199);
    assert!(matches!(replica.truncate_to(cut - cut), Err(ReplicaError::Confirmed { .. })));
    replica.truncate_to(cut).unwrap();
    assert_eq!((replica.appended().get(), replica.flushed().get() <= cut), (cut, true));
    let next = end_of(&master, 200);
    replica.confirm(next);
    assert_eq!(replica.confirmed().get(), cut, "what is behind the end is confirmed when it comes");
    assert_eq!(messages(&replica), numbered(0..200));
    replica.append_replica(cut, &master.read_log(cut, (next - cut) as usize).unwrap()).unwrap();
    assert_eq!(messages(&replica), numbered(0..201));
    replica.lead().unwrap();
    send_numbered(&replica, 201..210);
    assert_eq!(messages(&replica), numbered(0..201));
    drop(replica);
    // Nothing of what was erased is found behind the end, whatever reads the log.
    let store = Store::open(small(root.path())).unwrap();
    assert_eq!(messages(&store), numbered(0..210));
    send_numbered(&store, 210..800);
    assert_eq!(messages(&store), numbered(0..800));
}

#[test]
fn a_leader_that_is_deposed_gives_the_offsets_of_erased_messages_again() {
    let root = tempfile::tempdir().unwrap();
    let replica = replicated(root.path(), 0);
    replica.lead().unwrap();
    send_numbered(&replica, 0..50);
    let term = replica.term();
    let confirmed = replica.appended().get();
    replica.confirm(confirmed);
    send_numbered(&replica, 50..700);
    let end = replica.appended().get();
    let mut context = Context::from_waker(Waker::noop());
    let mut early = std::pin::pin!(replica.wait_confirmed(confirmed, term));
    let mut late = std::pin::pin!(replica.wait_confirmed(end, term));
    assert_eq!(early.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    assert!(late.as_mut().poll(&mut context).is_pending());
    replica.follow();
    assert_eq!(late.as_mut().poll(&mut context), Poll::Ready(Err(AppendError::Follower)));
    replica.truncate_to(confirmed).unwrap();
    replica.lead().unwrap();
    send_numbered(&replica, 50..60);
    replica.confirm(replica.appended().get());
    assert_eq!(messages(&replica), numbered(0..60));
}

#[test]
fn a_restart_shows_no_more_than_what_is_known_to_be_confirmed() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    send_numbered(&master, 0..600);
    let (shown, known, all) = (end_of(&master, 99), end_of(&master, 299), master.appended().get());
    let replica = replicated(root.path(), 0);
    copy(&master, &replica, 3000);
    replica.confirm(shown);
    assert_eq!(messages(&replica).len(), 100);
    replica.shutdown();
    drop(replica);
    let replica = replicated(root.path(), 0);
    assert_eq!((replica.appended().get(), replica.confirmed().get()), (all, shown));
    assert_eq!(messages(&replica).len(), 100);
    drop(replica);
    // Now the queues are laid anew, from what replication itself remembers.
    std::fs::remove_file(root.path().join("ferromq.marks")).unwrap();
    let replica = replicated(root.path(), known);
    assert_eq!((replica.appended().get(), replica.confirmed().get()), (all, known));
    assert_eq!(messages(&replica), numbered(0..300));
    replica.truncate_to(known).unwrap();
    copy(&master, &replica, 4000);
    replica.confirm(all);
    assert_eq!(messages(&replica), numbered(0..600));
    assert_eq!(replica.queue("T", 0).next_offset(), 600);
}

#[test]
fn a_topic_that_was_deleted_and_made_again_begins_anew_in_the_copy_too() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    let send_to = |queue: i32, body: &str| {
        send(&master, &Message::new("T", queue, body).with("KEYS", &body.replace(' ', "-"))).queue_offset
    };
    (0..60).for_each(|number| assert_eq!(send_to(0, &format!("old {number}")), number));
    assert_eq!(send_to(1, "old in 1"), 0);
    let slave = follower(root.path());
    copy(&master, &slave, 3000);
    assert_eq!(drain(&slave, &slave.queue("T", 0)).len(), 60);
    master.delete_topic("T").unwrap();
    // A queue that is new, one that has few messages again, and then one more.
    assert_eq!((send_to(2, "new in 2"), send_to(0, "new in 0"), send_to(1, "new in 1")), (0, 0, 0));
    copy(&master, &slave, 3000);
    let expect = |slave: &Store| {
        for queue in 0..3 {
            let messages = drain(slave, &slave.queue("T", queue));
            assert_eq!(messages, [(0, format!("new in {queue}").into_bytes())]);
        }
        assert!(slave.query("T", "old-5", 9, 0, i64::MAX, false).records.is_empty());
    };
    expect(&slave);
    drop(slave);
    let slave = follower(root.path());
    expect(&slave);
    slave.shutdown();
    drop(slave);
    std::fs::remove_file(root.path().join("ferromq.marks")).unwrap();
    expect(&follower(root.path()));
}

#[test]
fn topics_that_the_master_deleted_are_gone_from_the_copy_up_to_there_and_no_further() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    let send_to = |topic: &str, queue: i32, body: &str| {
        send(&master, &Message::new(topic, queue, body).with("KEYS", &body.replace(' ', "-"))).queue_offset
    };
    (0..60).for_each(|number| assert_eq!(send_to("T", 0, &format!("old {number}")), number));
    assert_eq!((send_to("T", 1, "old in 1"), send_to("U", 0, "kept")), (0, 0));
    let slave = follower(root.path());
    copy(&master, &slave, 3000);
    assert_eq!(drain(&slave, &slave.queue("T", 0)).len(), 60);
    // The slave has not got these yet when it learns of the deletion.
    (60..90).for_each(|number| assert_eq!(send_to("T", 0, &format!("old {number}")), number));
    master.delete_topic("T").unwrap();
    let deleted = master.deleted_topics();
    assert_eq!(deleted.iter().collect::<Vec<_>>(), [(&"T".to_owned(), &master.appended().get())]);
    assert_eq!(send_to("T", 1, "new in 1"), 0);

    assert_eq!(slave.delete_topics_below(&deleted).unwrap(), ["T"]);
    assert_eq!(slave.delete_topics_below(&deleted).unwrap(), [""; 0], "that was known");
    copy(&master, &slave, 3000);
    let expect = |store: &Store| {
        assert_eq!(drain(store, &store.queue("T", 0)), []);
        assert_eq!(drain(store, &store.queue("T", 1)), [(0, b"new in 1".to_vec())]);
        assert_eq!(drain(store, &store.queue("U", 0)), [(0, b"kept".to_vec())]);
        assert!(store.query("T", "old-5", 9, 0, i64::MAX, false).records.is_empty());
        assert_eq!(store.query("T", "new-in-1", 9, 0, i64::MAX, false).records.len(), 1);
    };
    expect(&slave);
    // It learns it again and late, with messages behind the deletion, and nothing more goes.
    assert_eq!(slave.delete_topics_below(&deleted).unwrap(), [""; 0]);
    drop(slave);
    let slave = follower(root.path());
    expect(&slave);
    slave.lead().unwrap();
    assert!(matches!(slave.delete_topics_below(&deleted), Err(ReplicaError::Leading)));
    let next_in = |queue: i32| send(&slave, &Message::new("T", queue, "by the slave")).queue_offset;
    assert_eq!((next_in(0), next_in(1)), (0, 1));
    slave.shutdown();
    drop(slave);
    std::fs::remove_file(root.path().join("ferromq.marks")).unwrap();
    let rebuilt = Store::open(small(root.path())).unwrap();
    let bodies = |queue: i32| drain(&rebuilt, &rebuilt.queue("T", queue)).into_iter().map(|(_, body)| body);
    assert_eq!(bodies(0).collect::<Vec<_>>(), [b"by the slave"]);
    assert_eq!(bodies(1).collect::<Vec<_>>(), [&b"new in 1"[..], b"by the slave"]);
}

/// A topic of the same name has messages in one of its queues only.
#[test]
fn a_deletion_that_is_learnt_late_spares_what_the_topics_successor_has() {
    let (master_root, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = Store::open(small(master_root.path())).unwrap();
    let send_to = |queue: i32, body: &str| send(&master, &Message::new("T", queue, body)).queue_offset;
    (0..60).for_each(|number| assert_eq!(send_to(number % 3, "old"), i64::from(number / 3)));
    let slave = follower(root.path());
    copy(&master, &slave, 3000);
    assert_eq!(drain(&slave, &slave.queue("T", 0)).len(), 20);
    master.delete_topic("T").unwrap();
    assert_eq!((send_to(1, "new"), send_to(1, "new"), send_to(3, "new")), (0, 1, 0));
    copy(&master, &slave, 3000);
    slave.dispatch_to_confirmed();
    assert_eq!(slave.delete_topics_below(&master.deleted_topics()).unwrap(), ["T"]);
    let expect = |slave: &Store| {
        let counts = [0, 1, 2, 3].map(|queue| drain(slave, &slave.queue("T", queue)).len());
        assert_eq!(counts, [0, 2, 0, 1]);
    };
    expect(&slave);
    drop(slave);
    let slave = follower(root.path());
    expect(&slave);
    slave.shutdown();
    drop(slave);
    expect(&follower(root.path()));
}

#[test]
fn a_deletion_behind_what_is_confirmed_is_not_told() {
    let root = tempfile::tempdir().unwrap();
    let leader = replicated(root.path(), 0);
    leader.lead().unwrap();
    send_numbered(&leader, 0..5);
    leader.delete_topic("T").unwrap();
    assert!(leader.deleted_topics().is_empty());
    let end = leader.appended().get();
    leader.confirm(end);
    assert_eq!(leader.deleted_topics()["T"], end);
}
