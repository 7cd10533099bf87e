//! The store from outside: append, read, restart, crash, delete.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use ferromq_protocol::message::{RecordView, sysflag};
use ferromq_store::*;
use parking_lot::Mutex;
use support::*;

fn bodies(store: &Store, topic: &str, queue_id: i32) -> Vec<(i64, String)> {
    let queue = store.queue(topic, queue_id);
    drain(store, &queue)
        .into_iter()
        .map(|(offset, body)| (offset, String::from_utf8(body).unwrap()))
        .collect()
}

fn expected(range: std::ops::Range<i64>) -> Vec<(i64, String)> {
    range.map(|offset| (offset, format!("m{offset}"))).collect()
}

fn send_numbered(store: &Store, topic: &str, range: std::ops::Range<i64>) {
    for number in range {
        let outcome =
            send(store, &Message::new(topic, 0, format!("m{number}")).with("KEYS", &format!("k{number}")));
        assert_eq!(outcome.queue_offset, number);
    }
}

#[test]
fn what_was_sent_is_read_at_once_and_after_every_kind_of_restart() {
    let root = tempfile::tempdir().unwrap();
    let mut sent = 0;
    for round in 0..6 {
        let store = Store::open(small(root.path())).unwrap();
        assert_eq!(bodies(&store, "T", 0), expected(0..sent), "round {round}");
        send_numbered(&store, "T", sent..sent + 300);
        sent += 300;
        assert_eq!(bodies(&store, "T", 0), expected(0..sent), "round {round}");
        if round % 2 == 0 {
            store.shutdown();
            assert!(!root.path().join("abort").exists());
        } else {
            assert!(root.path().join("abort").exists());
        }
        drop(store);
    }
}

#[test]
fn a_batch_keeps_its_order_and_says_what_became_of_each() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    let (a, b) = (store.queue("A", 0), store.queue("B", 3));
    let mut batch = store.new_batch();
    let half = Message { sys_flag: sysflag::TRANSACTION_PREPARED, ..Message::new("A", 0, "half") };
    batch.push(&a, &Message::new("A", 0, "a0").fields()).unwrap();
    batch.push(&b, &Message::new("B", 3, "b0").fields()).unwrap();
    batch.push(&a, &half.fields()).unwrap();
    let group = [Message::new("A", 0, "a1"), Message::new("A", 0, "a2")];
    assert_eq!(batch.push_group(&a, group.iter().map(Message::fields)).unwrap(), 2);
    let end = store.append(&mut batch).unwrap();
    let outcomes = batch.outcomes();
    assert_eq!(outcomes.iter().map(|outcome| outcome.queue_offset).collect::<Vec<_>>(), [0, 0, 0, 1, 2]);
    assert!(outcomes.windows(2).all(|pair| pair[0].end() == pair[1].physical_offset));
    assert_eq!(outcomes[4].end(), end);
    assert_eq!(store.appended().get(), end);
    assert_eq!(drain(&store, &a), [(0, b"a0".to_vec()), (1, b"a1".to_vec()), (2, b"a2".to_vec())]);
    assert_eq!(drain(&store, &b), [(0, b"b0".to_vec())]);
    let half = store.record_at(outcomes[2].physical_offset).unwrap().unwrap();
    assert_eq!(RecordView::parse(&half).unwrap().body(), b"half");
    let misaligned = outcomes[2].physical_offset + 1;
    assert_eq!(store.record_at(misaligned).unwrap_err(), ReadError::NoRecord { offset: misaligned });
    assert!(store.record_at(end).unwrap().is_none());
    batch.clear();
    assert!(batch.is_empty() && batch.outcomes().is_empty());
}

#[test]
fn files_are_filled_to_the_last_byte_and_groups_are_not_split() {
    // docs/spec/02-store.md §18.6: a record of 4087 or 4088 bytes fits into a file of 4096, one of 4089 does not.
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions { commit_log_file_size: 4096, ..small(root.path()) }).unwrap();
    let queue = store.queue("TopicTes", 0);
    let sized = |size: usize| Message::new("TopicTes", 0, vec![b'x'; size - 99]);
    assert_eq!(send(&store, &sized(4088)).physical_offset, 0);
    assert_eq!(send(&store, &sized(4087)).physical_offset, 4096);
    let mut batch = store.new_batch();
    assert_eq!(
        batch.push(&queue, &sized(4089).fields()),
        Err(PushError::LargerThanFile { len: 4089, max: 4088 })
    );
    assert!(batch.is_empty());
    assert_eq!(send(&store, &sized(2000)).physical_offset, 8192);
    let group = [sized(1500), sized(1500)];
    batch.push_group(&queue, group.iter().map(Message::fields)).unwrap();
    store.append(&mut batch).unwrap();
    assert_eq!(batch.outcomes().iter().map(|o| o.physical_offset).collect::<Vec<_>>(), [12288, 13788]);
    assert_eq!(drain(&store, &queue).len(), 5);
    store.shutdown();
    let file = fs::read(root.path().join("commitlog/00000000000000000000")).unwrap();
    assert_eq!(file[4088..], [0, 0, 0, 8, 0xcb, 0xd4, 0x31, 0x94]);
    let store = Store::open(StoreOptions { commit_log_file_size: 4096, ..small(root.path()) }).unwrap();
    assert_eq!(drain(&store, &store.queue("TopicTes", 0)).len(), 5);
}

#[test]
fn reads_end_as_the_reference_says() {
    // docs/spec/02-store.md §18.7, files of 10 units
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions { consume_queue_file_size: 200, ..small(root.path()) }).unwrap();
    let queue = store.queue("TopicA", 0);
    send_numbered(&store, "TopicA", 0..40);
    store.dispatch_to_confirmed();
    let read = |offset, max| {
        let mut out: Vec<RecordSlice> = Vec::new();
        let request = ReadRequest { max_messages: max, ..request(offset) };
        let outcome = store.read(&queue, request, &AcceptAll, &mut out);
        assert_eq!(out.len(), outcome.messages);
        (outcome.status, outcome.next_offset, outcome.messages)
    };
    assert_eq!(read(-1, 32), (ReadStatus::OffsetTooSmall, 0, 0));
    assert_eq!(read(0, 32), (ReadStatus::Found, 10, 10));
    assert_eq!(read(5, 3), (ReadStatus::Found, 8, 3));
    assert_eq!(read(39, 32), (ReadStatus::Found, 40, 1));
    assert_eq!(read(40, 32), (ReadStatus::OffsetOverflowOne, 40, 0));
    assert_eq!(read(41, 32), (ReadStatus::OffsetOverflowBadly, 40, 0));
    let nothing = store.queue("Other", 0);
    let outcome = store.read(&nothing, request(7), &AcceptAll, &mut Vec::<u8>::new());
    assert_eq!((outcome.status, outcome.next_offset), (ReadStatus::NoMessageInQueue, 0));
}

#[test]
fn batch_limits_and_filters_are_those_of_the_reference() {
    let root = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        commit_log_file_size: 8 << 20,
        consume_queue_file_size: 6_000_000,
        ..small(root.path())
    };
    let store = Store::open(options).unwrap();
    for number in 0..100 {
        send(
            &store,
            &Message::new("small", 0, vec![0; 10]).with("TAGS", if number % 2 == 0 { "even" } else { "odd" }),
        );
        send(&store, &Message::new("hundred", 0, vec![0; 102_400 / 10]));
    }
    for _ in 0..3 {
        send(&store, &Message::new("big", 0, vec![0; 307_200]));
    }
    let read = |topic: &str, max, filter: &dyn MessageFilter| {
        let request = ReadRequest { max_messages: max, ..request(0) };
        let outcome = store.read(&store.queue(topic, 0), request, filter, &mut Vec::<u8>::new());
        (outcome.status, outcome.messages, outcome.next_offset, outcome.filtered)
    };
    assert_eq!(read("small", 100, &AcceptAll), (ReadStatus::Found, 32, 32, 0));
    assert_eq!(read("small", 10, &AcceptAll), (ReadStatus::Found, 10, 10, 0));
    assert_eq!(read("hundred", 100, &AcceptAll), (ReadStatus::Found, 25, 25, 0), "262144 bytes");
    assert_eq!(read("big", 100, &AcceptAll), (ReadStatus::Found, 1, 1, 0));

    struct Nothing;
    impl MessageFilter for Nothing {
        fn matches_unit(&self, _: i64) -> bool {
            false
        }
    }
    assert_eq!(read("small", 32, &Nothing), (ReadStatus::NoMatchedMessage, 0, 100, 0));
    struct Even;
    impl MessageFilter for Even {
        fn matches_record(&self, record: &[u8]) -> bool {
            RecordView::parse(record).unwrap().queue_offset() % 2 == 0
        }
    }
    assert_eq!(read("small", 5, &Even), (ReadStatus::Found, 5, 9, 4));
    struct Tag(i64);
    impl MessageFilter for Tag {
        fn matches_unit(&self, tags_code: i64) -> bool {
            tags_code == self.0
        }
    }
    let odd = Tag(ferromq_protocol::message::tags_code(Some("odd")));
    assert_eq!(read("small", 5, &odd), (ReadStatus::Found, 5, 10, 0));
}

#[test]
fn hot_reads_of_what_was_just_written_never_say_cold() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    send_numbered(&store, "T", 0..100);
    let mut out: Vec<RecordSlice> = Vec::new();
    let request = ReadRequest { residency: Residency::HotOnly, ..request(0) };
    let outcome = store.read(&store.queue("T", 0), request, &AcceptAll, &mut out);
    assert_eq!(outcome.status, ReadStatus::Found);
}

#[test]
fn sync_flush_shows_consumers_only_what_is_flushed() {
    let root = tempfile::tempdir().unwrap();
    let options = StoreOptions { flush_disk_type: FlushDiskType::SyncFlush, ..small(root.path()) };
    let store = Store::open(options).unwrap();
    std::thread::scope(|scope| {
        for queue_id in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..200 {
                    let outcome = send(store, &Message::new("T", queue_id, format!("m{number}")));
                    assert!(store.flushed().wait_blocking(outcome.end(), Duration::from_secs(10)));
                    assert!(store.confirmed().get() >= outcome.end());
                }
                assert_eq!(bodies(store, "T", queue_id), expected(0..200));
            });
        }
    });
    assert!(store.dispatched().get() <= store.flushed().get());
}

#[test]
fn watched_queues_report_their_arrivals() {
    #[derive(Default)]
    struct Listener(Mutex<Vec<(i64, i64)>>, AtomicUsize);
    impl ArrivalListener for Listener {
        fn arrived(&self, arrivals: &[Arrival]) {
            for arrival in arrivals {
                assert!(arrival.queue.max_offset() > arrival.queue_offset);
                assert_eq!(RecordView::parse(&arrival.record).unwrap().queue_offset(), arrival.queue_offset);
                self.0.lock().push((arrival.queue_offset, arrival.tags_code));
            }
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    let listener = Arc::new(Listener::default());
    store.set_arrival_listener(Arc::clone(&listener) as _);
    send(&store, &Message::new("T", 0, "unwatched"));
    store.dispatch_to_confirmed();
    let watch = store.queue("T", 0).watch();
    assert_eq!(watch.queue().max_offset(), 1);
    // The dispatcher's thread does it without being asked.
    let outcome = send(&store, &Message::new("T", 0, "watched").with("TAGS", "TagA"));
    assert!(store.dispatched().wait_blocking(outcome.end(), Duration::from_secs(10)));
    drop(watch);
    send(&store, &Message::new("T", 0, "unwatched"));
    store.dispatch_to_confirmed();
    store.shutdown();
    assert_eq!(*listener.0.lock(), [(1, 2_598_919)]);
}

#[test]
fn offsets_by_time_are_those_of_the_reference() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions { consume_queue_file_size: 200, ..small(root.path()) }).unwrap();
    let queue = store.queue("T", 0);
    let mut times = Vec::new();
    for number in 0..40 {
        times.push(send(&store, &Message::new("T", 0, format!("m{number}"))).store_timestamp);
        if number % 7 == 0 {
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    for time in times[0] - 2..=times[39] + 2 {
        let lower = times.iter().position(|stored| *stored >= time).unwrap_or(40) as i64;
        let upper = times.iter().rposition(|stored| *stored <= time).unwrap_or(0) as i64;
        assert_eq!(store.offset_by_time(&queue, time, Boundary::Lower), lower);
        assert_eq!(store.offset_by_time(&queue, time, Boundary::Upper), upper);
    }
    assert_eq!(store.earliest_time(&queue), Some(times[0]));
    assert_eq!(store.earliest_time_of_log(), Some(times[0]));
    assert_eq!(store.store_time_at(&queue, 39), Some(times[39]));
    assert_eq!(store.store_time_at(&queue, 40), None);
    assert_eq!(store.physical_offset_at(&queue, 0), Some(0));
    let units = store.consume_queue_units(&queue, 35, 100);
    assert_eq!(units.iter().map(|unit| unit.queue_offset).collect::<Vec<_>>(), [35, 36, 37, 38, 39]);
    let empty = store.queue("E", 0);
    assert_eq!((store.offset_by_time(&empty, 5, Boundary::Lower), store.earliest_time(&empty)), (0, None));
}

#[test]
fn messages_are_found_by_exactly_their_key_and_once() {
    let root = tempfile::tempdir().unwrap();
    for restart in ["none", "clean", "crash"] {
        let store = Store::open(small(root.path())).unwrap();
        if restart == "none" {
            send(&store, &Message::new("AaTop", 0, "1").with("KEYS", "BB x BB"));
            send(&store, &Message::new("BBTop", 0, "2").with("KEYS", "Aa BB"));
            for number in 0..100 {
                send(
                    &store,
                    &Message::new("AaTop", 0, "3")
                        .with("UNIQ_KEY", &format!("u{number}"))
                        .with("KEYS", "many"),
                );
            }
            for _ in 0..2 {
                send(&store, &Message::new("AaTop", 0, "copy").with("UNIQ_KEY", "twice"));
            }
        }
        let find = |topic: &str, key: &str, max, unique| {
            let found = store.query(topic, key, max, 0, i64::MAX, unique).records;
            assert!(found.is_sorted_by_key(|record| record.physical_offset()));
            found.iter().map(|record| RecordView::parse(record).unwrap().queue_offset()).collect::<Vec<_>>()
        };
        // `Aa` and `BB` have the same hash.
        assert_eq!(find("AaTop", "BB", 32, false), [0], "{restart}");
        assert_eq!(find("BBTop", "BB", 32, false), [0]);
        assert_eq!(find("AaTop", "Aa", 32, false), [] as [i64; 0]);
        assert_eq!(find("AaTop", "u7", 32, false), [8]);
        assert_eq!(find("AaTop", "u7", 32, true), [8]);
        assert_eq!(find("AaTop", "many", 32, true), [] as [i64; 0]);
        assert_eq!(find("AaTop", "twice", 32, true), [101, 102]);
        assert_eq!(find("AaTop", "many", 32, false), (69..101).collect::<Vec<_>>(), "the newest ones");
        assert_eq!(find("AaTop", "many", 1000, false).len(), 64, "maxMsgsNumBatch");
        assert!(store.query("AaTop", "many", 32, i64::MAX - 1, i64::MAX, false).records.is_empty());
        if restart == "none" {
            store.shutdown();
        }
    }
}

#[test]
fn a_deleted_topic_stays_deleted_and_starts_at_0() {
    for crash in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(small(root.path())).unwrap();
        send_numbered(&store, "T", 0..100);
        send_numbered(&store, "Kept", 0..100);
        let handle = store.queue("T", 0);
        store.delete_topic("T").unwrap();
        assert_eq!((handle.min_offset(), handle.max_offset(), handle.next_offset()), (0, 0, 0));
        assert!(store.query("T", "k5", 32, 0, i64::MAX, false).records.is_empty());
        assert!(!root.path().join("consumequeue/T").exists());
        let reopen = |store: Arc<Store>| {
            if !crash {
                store.shutdown();
            }
            drop(store);
            Store::open(small(root.path())).unwrap()
        };
        let store = reopen(store);
        assert_eq!(bodies(&store, "T", 0), []);
        assert_eq!(bodies(&store, "Kept", 0), expected(0..100));
        send_numbered(&store, "T", 0..30);
        assert_eq!(bodies(&store, "T", 0), expected(0..30));
        let store = reopen(store);
        assert_eq!(bodies(&store, "T", 0), expected(0..30));
        assert_eq!(store.query("T", "k5", 32, 0, i64::MAX, false).records.len(), 1);
        send_numbered(&store, "T", 30..40);
        // Also when everything is rebuilt from the log.
        drop(store);
        fs::remove_dir_all(root.path().join("consumequeue")).unwrap();
        fs::remove_file(root.path().join("ferromq.marks")).unwrap();
        let store = Store::open(small(root.path())).unwrap();
        assert_eq!(bodies(&store, "T", 0), expected(0..40));
        assert_eq!(bodies(&store, "Kept", 0), expected(0..100));
        assert_eq!(store.clean_unused_topics(&|topic| topic == "T").unwrap(), 1);
        assert_eq!(store.topics().iter().map(|topic| &**topic).collect::<Vec<_>>(), ["T"]);
    }
}

#[test]
fn queue_files_that_are_gone_or_cut_come_back_from_the_log() {
    for crash in [false, true] {
        for damage in 0..5 {
            let root = tempfile::tempdir().unwrap();
            let store = Store::open(small(root.path())).unwrap();
            send_numbered(&store, "T", 0..100);
            send_numbered(&store, "U", 0..100);
            if crash {
                store.shutdown();
                drop(store);
                let store = Store::open(small(root.path())).unwrap();
                send_numbered(&store, "U", 100..120);
                drop(store);
            } else {
                send_numbered(&store, "U", 100..120);
                store.shutdown();
                drop(store);
            }
            let queue = root.path().join("consumequeue/T/0");
            match damage {
                0 => fs::remove_dir_all(queue).unwrap(),
                1 => fs::remove_file(queue.join("00000000000000001600")).unwrap(),
                2 => fs::write(queue.join("00000000000000001600"), [0; 400]).unwrap(),
                3 => fs::write(queue.join("00000000000000001600"), [0; 17]).unwrap(),
                _ => fs::remove_dir_all(root.path().join("consumequeue")).unwrap(),
            }
            let store = Store::open(small(root.path())).unwrap();
            assert_eq!(bodies(&store, "T", 0), expected(0..100), "crash {crash} damage {damage}");
            assert_eq!(bodies(&store, "U", 0), expected(0..120), "crash {crash} damage {damage}");
            send_numbered(&store, "T", 100..101);
        }
    }
}

#[test]
fn expired_files_go_and_queues_and_index_follow() {
    let root = tempfile::tempdir().unwrap();
    let options = || StoreOptions {
        commit_log_file_size: 4096,
        clean_resource_interval: Duration::from_secs(3600),
        delete_file_batch_max: 1000,
        delete_commit_log_files_interval: Duration::ZERO,
        ..small(root.path())
    };
    let store = Store::open(options()).unwrap();
    send_numbered(&store, "Old", 0..50);
    send_numbered(&store, "T", 0..200);
    store.dispatch_to_confirmed();
    let held = store.record_at(0).unwrap().unwrap();
    let held_bytes = held.to_vec();
    assert_eq!(store.delete_expired_files(), 0, "nothing is old enough");
    let mut files: Vec<_> =
        fs::read_dir(root.path().join("commitlog")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let old = SystemTime::now() - Duration::from_secs(73 * 3600);
    for file in &files[..6] {
        fs::File::options().write(true).open(file).unwrap().set_modified(old).unwrap();
    }
    while store.flushed().get() < store.appended().get() {
        std::thread::sleep(Duration::from_millis(10));
    }
    for file in &files[..6] {
        fs::File::options().write(true).open(file).unwrap().set_modified(old).unwrap();
    }
    assert_eq!(store.delete_expired_files(), 6);
    assert_eq!(store.min_offset(), 6 * 4096);
    assert_eq!(&*held, &held_bytes[..], "a read that is under way keeps its file");
    assert!(store.record_at(0).unwrap().is_none());
    let check = |store: &Store| {
        let queue = store.queue("T", 0);
        let min = queue.min_offset();
        assert!(min > 0 && min < 200);
        assert_eq!(bodies(store, "T", 0), expected(min..200));
        let outcome = store.read(&queue, request(0), &AcceptAll, &mut Vec::<u8>::new());
        assert_eq!((outcome.status, outcome.next_offset), (ReadStatus::OffsetTooSmall, min));
        let old = store.queue("Old", 0);
        assert_eq!((old.min_offset(), old.max_offset(), old.next_offset()), (50, 50, 50));
        assert!(store.query("T", "k0", 32, 0, i64::MAX, false).records.is_empty());
        assert_eq!(store.query("T", "k199", 32, 0, i64::MAX, false).records.len(), 1);
    };
    check(&store);
    assert_eq!(store.clean_expired_queues(), 1);
    assert_eq!(store.clean_expired_queues(), 0);
    check(&store);
    drop(store);
    let store = Store::open(options()).unwrap();
    check(&store);
    assert_eq!(send(&store, &Message::new("Old", 0, "m")).queue_offset, 50);
    store.shutdown();
    drop(store);
    fs::remove_file(root.path().join("ferromq.marks")).unwrap();
    let store = Store::open(options()).unwrap();
    assert_eq!(bodies(&store, "Old", 0), [(50, "m".to_owned())]);
}

#[test]
fn a_full_disk_refuses_writes_and_recovers_by_itself() {
    static USED: AtomicUsize = AtomicUsize::new(10);
    let root = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        disk_usage: DiskUsageSource::Fixed(|_| Some(USED.load(Ordering::SeqCst) as u8)),
        clean_resource_interval: Duration::from_millis(5),
        ..small(root.path())
    };
    let store = Store::open(options).unwrap();
    send_numbered(&store, "T", 0..10);
    let until = |full: bool| {
        for _ in 0..2_000 {
            if store.disk_full().is_some() == full {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("full never became {full}");
    };
    USED.store(95, Ordering::SeqCst);
    until(true);
    let mut batch = store.new_batch();
    batch.push(&store.queue("T", 0), &Message::new("T", 0, "refused").fields()).unwrap();
    let error = store.append(&mut batch).unwrap_err();
    assert!(batch.outcomes().is_empty());
    let message = error.to_string();
    for part in ["commitlog", "95 percent", "limit is 90", "diskSpaceWarningLevelRatio"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(bodies(&store, "T", 0), expected(0..10), "reads go on");
    let patient = StoreOptions { disk_warning_ratio: 99, ..store.options().clone() };
    store.set_retention(&patient);
    until(false);
    store.set_retention(&store.options().clone());
    until(true);
    assert_eq!(store.stats().put_failed_total, 1);
    USED.store(50, Ordering::SeqCst);
    until(false);
    send_numbered(&store, "T", 10..11);
}

#[test]
fn the_second_opener_is_refused_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    send_numbered(&store, "T", 0..10);
    assert!(matches!(Store::open(small(root.path())), Err(OpenError::Locked { .. })));
    send_numbered(&store, "T", 10..20);
    drop(store);
    let store = Store::open(small(root.path())).unwrap();
    assert_eq!(bodies(&store, "T", 0), expected(0..20));
}

#[test]
fn stores_that_do_not_fit_are_refused_and_not_changed() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    send_numbered(&store, "T", 0..1200);
    store.shutdown();
    drop(store);
    let open = |options| match Store::open(options) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("opened"),
    };
    let message = open(StoreOptions { commit_log_file_size: 1 << 20, ..small(root.path()) });
    assert!(message.contains("mappedFileSizeCommitLog"), "{message}");
    let message = open(StoreOptions { commit_log_file_size: 8192, ..small(root.path()) });
    assert!(message.contains("mappedFileSizeCommitLog"), "{message}");
    let message = open(StoreOptions { disk_warning_ratio: 0, ..small(root.path()) });
    assert!(message.contains("diskSpaceWarningLevelRatio"), "{message}");
    fs::rename(root.path().join("commitlog"), root.path().join("moved")).unwrap();
    let message = open(small(root.path()));
    assert!(message.contains("no log file"), "{message}");
    fs::remove_dir_all(root.path().join("commitlog")).unwrap();
    fs::rename(root.path().join("moved"), root.path().join("commitlog")).unwrap();
    let store = Store::open(small(root.path())).unwrap();
    assert_eq!(bodies(&store, "T", 0), expected(0..1200));
}

#[test]
fn a_crc_property_can_be_appended() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions { append_crc_property: true, ..small(root.path()) }).unwrap();
    send(&store, &Message::new("T", 0, "hello").with("TAGS", "TagA"));
    send(&store, &Message::new("T", 0, "hello"));
    for record in drain_records(&store, &store.queue("T", 0)) {
        let view = RecordView::whole(&record, record.physical_offset()).unwrap();
        assert_eq!(view.property("__CRC32#").unwrap().len(), 10);
        let mut damaged = record.to_vec();
        damaged[12] ^= 1;
        assert!(RecordView::whole(&damaged, record.physical_offset()).is_err());
    }
}

#[test]
fn delayed_messages_carry_their_delivery_time() {
    // docs/spec/02-store.md §18.2 Q2
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    let topic = "SCHEDULE_TOPIC_XXXX";
    for (queue_id, level, delay) in [(2, "3", 10_000), (17, "99", 7_200_000)] {
        let outcome =
            send(&store, &Message::new(topic, queue_id, "x").with("DELAY", level).with("TAGS", "TagA"));
        let units = store.consume_queue_units(&store.queue(topic, queue_id), 0, 10);
        assert_eq!(units[0].tags_code, outcome.store_timestamp + delay);
    }
}

#[test]
fn look_ups_by_key_and_by_id_hand_out_no_damaged_record() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    send_numbered(&store, "T", 0..3);
    let damaged = drain_records(&store, &store.queue("T", 0))[1].physical_offset();
    store.shutdown();
    drop(store);
    let log = root.path().join("commitlog").join(format!("{:020}", 0));
    let mut bytes = fs::read(&log).unwrap();
    let body = bytes.windows(2).position(|window| window == b"m1").unwrap();
    bytes[body] = b'x';
    fs::write(&log, bytes).unwrap();

    let store = Store::open(small(root.path())).unwrap();
    let found = |key: &str| store.query("T", key, 9, 0, i64::MAX, false).records.len();
    assert_eq!([found("k0"), found("k1"), found("k2")], [1, 0, 1]);
    assert!(matches!(store.record_at(damaged), Err(ReadError::NoRecord { .. })));
}

#[test]
fn a_damaged_queue_offset_costs_its_own_message_and_no_memory() {
    let bytes_of_the_offset = 20..28;
    for (number, at) in
        [0, 5].into_iter().flat_map(|number| bytes_of_the_offset.clone().map(move |at| (number, at)))
    {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(small(root.path())).unwrap();
        send_numbered(&store, "T", 0..number);
        let damaged = store.appended().get();
        send_numbered(&store, "T", number..10);
        store.shutdown();
        drop(store);
        let log = root.path().join("commitlog/00000000000000000000");
        let mut bytes = fs::read(&log).unwrap();
        bytes[damaged as usize + at] ^= 0x40;
        fs::write(&log, bytes).unwrap();
        fs::remove_file(root.path().join("ferromq.marks")).unwrap();

        let store = Store::open(small(root.path())).unwrap();
        let rest: Vec<_> = expected(0..10).into_iter().filter(|(offset, _)| *offset != number).collect();
        assert_eq!(bodies(&store, "T", 0), rest, "message {number}, byte {at}");
        assert_eq!(
            send(&store, &Message::new("T", 0, "next")).queue_offset,
            10,
            "message {number}, byte {at}"
        );
        assert!(store.record_at(damaged).unwrap().is_some(), "it is still found where it lies");
    }
}

#[test]
fn a_queue_file_from_nowhere_costs_no_memory() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    send_numbered(&store, "T", 0..10);
    store.shutdown();
    drop(store);
    let mut unit = 7u64.to_be_bytes().to_vec();
    unit.extend_from_slice(&100u32.to_be_bytes());
    unit.resize(400, 0);
    fs::write(root.path().join("consumequeue/T/0/00004000000000000000"), unit).unwrap();
    fs::remove_file(root.path().join("ferromq.marks")).unwrap();
    let store = Store::open(small(root.path())).unwrap();
    assert_eq!(bodies(&store, "T", 0), expected(0..10));
    send_numbered(&store, "T", 10..12);
}

#[test]
fn a_log_of_a_later_version_is_refused_and_left_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(small(root.path())).unwrap();
    send_numbered(&store, "T", 0..3);
    let end = store.appended().get();
    drop(store);
    let log = root.path().join("commitlog/00000000000000000000");
    let mut bytes = fs::read(&log).unwrap();
    let mut record = vec![7; 200];
    record[..4].copy_from_slice(&200u32.to_be_bytes());
    record[4..8].copy_from_slice(&0xDAA3_20AFu32.to_be_bytes());
    record[28..36].copy_from_slice(&end.to_be_bytes());
    bytes[end as usize..end as usize + 200].copy_from_slice(&record);
    fs::write(&log, &bytes).unwrap();
    for marks_are_there in [true, false] {
        if !marks_are_there {
            fs::remove_file(root.path().join("ferromq.marks")).unwrap();
        }
        let error = Store::open(small(root.path())).unwrap_err().to_string();
        assert!(error.contains(&format!("offset {end}")) && error.contains("0xdaa320af"), "{error}");
        assert_eq!(fs::read(&log).unwrap(), bytes);
    }
}

#[test]
fn a_root_that_is_a_file_is_named_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("notes");
    fs::write(&root, "mine").unwrap();
    let error = Store::open(small(&root)).unwrap_err().to_string();
    assert!(error.contains("notes") && error.contains("a file is where a directory should be"), "{error}");
    assert_eq!(fs::read_to_string(&root).unwrap(), "mine");
}
