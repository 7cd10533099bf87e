use std::fs;

use ferromq_protocol::json;
use proptest::prelude::*;

use super::super::Commit;
use super::*;

const HOUR: Duration = Duration::from_secs(3600);

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn load(&self) -> ConsumerOffsets {
        ConsumerOffsets::load(self.0.path(), false, HOUR, 500).unwrap()
    }

    fn write(&self, content: &str) {
        fs::write(self.0.path().join("consumerOffset.json"), content).unwrap();
    }
}

#[test]
fn commits_replace_each_other() {
    let offsets = Home::new().load();
    assert_eq!(offsets.committed("G", "T", 0), None);
    offsets.set_committed("G", "T", 0, 3);
    offsets.set_committed("G", "T", 0, 1);
    offsets.set_committed("G", "T", 7, 9);
    assert_eq!(offsets.committed("G", "T", 0), Some(1));
    assert_eq!(offsets.offsets_of("G", "T"), BTreeMap::from([(0, 1), (7, 9)]));
    assert!(offsets.offsets_of("G", "U").is_empty());
}

#[test]
fn what_a_client_reports_is_kept_within_the_queue() {
    let offsets = Home::new().load();
    let commit = |offset| offsets.commit_up_to(|| 5, &"client", "G", "T", 0, offset);
    assert_eq!(commit(5), Commit::Done);
    assert_eq!(commit(1000), Commit::Capped { end: 5 });
    assert_eq!(offsets.committed("G", "T", 0), Some(5));
    assert_eq!(commit(2), Commit::Done);
    assert_eq!(commit(-5), Commit::Negative);
    assert_eq!(offsets.committed("G", "T", 0), Some(2));
}

#[test]
fn pulled_offsets_fall_back_to_committed_ones() {
    let home = Home::new();
    let offsets = home.load();
    offsets.set_committed("G", "T", 0, 3);
    assert_eq!(offsets.pulled("G", "T", 0), Some(3));
    offsets.set_pulled("G", "T", 0, 8);
    offsets.set_pulled("G", "T", 1, 8);
    assert_eq!((offsets.pulled("G", "T", 0), offsets.committed("G", "T", 0)), (Some(8), Some(3)));
    assert_eq!(offsets.committed("G", "T", 1), None);
    drop(offsets);
    let offsets = home.load();
    assert_eq!((offsets.pulled("G", "T", 0), offsets.pulled("G", "T", 1)), (Some(3), None), "memory only");
}

#[test]
fn a_reset_waits_for_the_next_pull() {
    let offsets = Home::new().load();
    offsets.set_committed("G", "T", 0, 4);
    assert_eq!(offsets.take_reset("G", "T", 0), None);
    offsets.reset("G", "T", 0, 2, 2);
    offsets.reset("G", "T", 0, 1, 1);
    assert_eq!(offsets.pending_reset("G", "T", 0), Some(1));
    assert_eq!(offsets.pending_reset("G", "T", 1), None);
    assert_eq!(offsets.committed("G", "T", 0), Some(1));
    assert_eq!(offsets.take_reset("G", "T", 0), Some(1));
    assert_eq!((offsets.take_reset("G", "T", 0), offsets.pending_reset("G", "T", 0)), (None, None));
    assert_eq!(offsets.table.pending_resets.load(Ordering::Relaxed), 0);
}

#[test]
fn nothing_is_left_of_a_deleted_topic() {
    let home = Home::new();
    let offsets = home.load();
    for (group, topic) in [("G", "T"), ("H", "T"), ("G", "U"), ("G@broadcast", "T")] {
        offsets.set_committed(group, topic, 0, 3);
        offsets.set_pulled(group, topic, 0, 3);
        offsets.reset(group, topic, 0, 1, 1);
    }
    offsets.save_now(offsets.remove_topic("T")).unwrap();
    for group in ["G", "H", "G@broadcast"] {
        assert_eq!(offsets.committed(group, "T", 0), None);
        assert_eq!(offsets.pulled(group, "T", 0), None);
        assert_eq!(offsets.take_reset(group, "T", 0), None);
    }
    assert_eq!(offsets.table.pending_resets.load(Ordering::Relaxed), 1);
    assert_eq!(offsets.take_reset("G", "U", 0), Some(1));
    assert_eq!(home.load().snapshot().offset_table.into_keys().collect::<Vec<_>>(), ["U@G"]);
}

#[test]
fn nothing_is_left_of_a_deleted_group() {
    let offsets = Home::new().load();
    for (group, topic) in [("G", "T"), ("G", "U"), ("H", "T")] {
        offsets.reset(group, topic, 0, 1, 1);
    }
    offsets.remove_group("G");
    assert!(offsets.topics_of("G").is_empty());
    assert_eq!(offsets.table.pending_resets.load(Ordering::Relaxed), 1);
    assert_eq!(offsets.groups_of("T"), ["H"]);
}

#[test]
fn who_consumes_what() {
    let offsets = Home::new().load();
    for (group, topic) in [("H", "T"), ("G", "U"), ("G", "T"), ("G@broadcast", "T")] {
        offsets.set_committed(group, topic, 0, 3);
    }
    offsets.set_pulled("pulls only", "T", 0, 3);
    assert_eq!(offsets.topics_of("G"), ["T", "U"]);
    assert_eq!(offsets.groups_of("T"), ["G", "H"]);
    assert!(offsets.topics_of("pulls only").is_empty());
}

#[test]
fn clones_are_copies_of_one_topic_or_of_all() {
    let offsets = Home::new().load();
    for (topic, queue_id, offset) in [("T", 0, 3), ("T", 1, 4), ("U", 0, 5)] {
        offsets.set_committed("G", topic, queue_id, offset);
    }
    offsets.clone_group("G", "one", Some("T"));
    assert_eq!(offsets.offsets_of("one", "T"), BTreeMap::from([(0, 3), (1, 4)]));
    assert_eq!(offsets.topics_of("one"), ["T"]);
    offsets.clone_group("G", "all", None);
    assert_eq!(offsets.topics_of("all"), ["T", "U"]);
}

#[test]
fn every_so_many_commits_make_a_new_version() {
    let home = Home::new();
    let offsets = ConsumerOffsets::load(home.0.path(), false, HOUR, 3).unwrap();
    let counters: Vec<_> = (0..7)
        .map(|offset| {
            offsets.set_committed("G", "T", 0, offset);
            offsets.snapshot().data_version.counter
        })
        .collect();
    assert_eq!(counters, [0, 0, 1, 1, 1, 2, 2]);
}

#[test]
fn files_of_java_are_read() {
    let home = Home::new();
    home.write("{\n\t\"offsetTable\":{\n\t\t\"T@G\":{0:250,1:-1,\"2\":7\n\t\t},\"T@G@broadcast\":{0:1},\"odd\":{0:1}\n\t}\n}");
    let offsets = home.load();
    assert_eq!(offsets.offsets_of("G", "T"), BTreeMap::from([(0, 250), (2, 7)]));
    assert_eq!(offsets.committed("G@broadcast", "T", 0), Some(1));
    assert_eq!(offsets.groups_of("T"), ["G"]);
}

#[test]
fn a_damaged_file_stops_the_start() {
    let home = Home::new();
    home.write("{\"offsetTable\":{\"T@G\":{0:2");
    assert!(matches!(ConsumerOffsets::load(home.0.path(), false, HOUR, 500), Err(LoadError::Damaged { .. })));
}

#[derive(Clone, Debug)]
enum Step {
    Commit(u8, u8, i32, i64),
    Pulled(u8, u8, i32, i64),
    Reset(u8, u8, i32, i64),
    Take(u8, u8, i32),
    RemoveTopic(u8),
    RemoveGroup(u8),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let place = (0..3u8, 0..3u8, 0..3i32);
    prop_oneof![
        6 => (place.clone(), 0..i64::MAX).prop_map(|((g, t, q), offset)| Step::Commit(g, t, q, offset)),
        1 => (place.clone(), 0..9i64).prop_map(|((g, t, q), offset)| Step::Pulled(g, t, q, offset)),
        3 => (place.clone(), 0..9i64).prop_map(|((g, t, q), offset)| Step::Reset(g, t, q, offset)),
        3 => place.prop_map(|(g, t, q)| Step::Take(g, t, q)),
        1 => (0..3u8).prop_map(Step::RemoveTopic),
        1 => (0..3u8).prop_map(Step::RemoveGroup),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// The table does what a plain map does, over restarts.
    #[test]
    fn the_table_is_a_map_that_outlives_restarts(steps in prop::collection::vec(step(), 0..40)) {
        let home = Home::new();
        let mut offsets = home.load();
        let mut committed: BTreeMap<(u8, u8, i32), i64> = BTreeMap::new();
        let mut resets: BTreeMap<(u8, u8, i32), i64> = BTreeMap::new();
        let (group, topic) = (|g: u8| format!("G{g}"), |t: u8| format!("T{t}"));
        for step in steps {
            match step {
                Step::Commit(g, t, q, offset) => {
                    offsets.set_committed(&group(g), &topic(t), q, offset);
                    committed.insert((g, t, q), offset);
                }
                Step::Pulled(g, t, q, offset) => offsets.set_pulled(&group(g), &topic(t), q, offset),
                Step::Reset(g, t, q, offset) => {
                    offsets.reset(&group(g), &topic(t), q, offset, offset);
                    committed.insert((g, t, q), offset);
                    resets.insert((g, t, q), offset);
                }
                Step::Take(g, t, q) => {
                    prop_assert_eq!(offsets.take_reset(&group(g), &topic(t), q), resets.remove(&(g, t, q)));
                }
                Step::RemoveTopic(gone) => {
                    offsets.remove_topic(&topic(gone));
                    committed.retain(|(_, t, _), _| *t != gone);
                    resets.retain(|(_, t, _), _| *t != gone);
                }
                Step::RemoveGroup(gone) => {
                    offsets.remove_group(&group(gone));
                    committed.retain(|(g, _, _), _| *g != gone);
                    resets.retain(|(g, _, _), _| *g != gone);
                }
                Step::Restart => {
                    offsets.stop();
                    offsets = home.load();
                    resets.clear();
                }
            }
            prop_assert_eq!(offsets.table.pending_resets.load(Ordering::Relaxed), resets.len());
        }
        let mut expected: BTreeMap<String, BTreeMap<i32, i64>> = BTreeMap::new();
        for ((g, t, q), offset) in committed {
            expected.entry(format!("T{t}@G{g}")).or_default().insert(q, offset);
        }
        prop_assert_eq!(&offsets.snapshot().offset_table, &expected);
        offsets.stop();
        if !expected.is_empty() {
            let text = fs::read(home.0.path().join("consumerOffset.json")).unwrap();
            let saved: ConsumerOffsetSerializeWrapper = json::from_slice(&text).unwrap();
            prop_assert_eq!(saved.offset_table, expected);
        }
    }
}

#[test]
fn light_queues_have_a_file_and_a_part_of_their_own() {
    let home = Home::new();
    home.write(r#"{"offsetTable":{"T@g":{0:3,1:4}}}"#);
    let load = || ConsumerOffsets::load(home.0.path(), true, HOUR, 500).unwrap();
    let offsets = load();
    // From before the setting was changed.
    assert_eq!(offsets.committed("g", "T", 1), Some(4));
    offsets.set_committed("%LMQ%g", "%LMQ%a", 0, 7);
    offsets.stop();
    let text = fs::read_to_string(home.0.path().join("lmqConsumerOffset.json")).unwrap();
    assert!(text.contains("\t\"lmqOffsetTable\":{\n\t\t\"%LMQ%a@%LMQ%g\":7\n\t},\n"), "{text}");
    let offsets = load();
    assert_eq!(
        (offsets.committed("%LMQ%g", "%LMQ%a", 0), offsets.committed("g", "T", 0)),
        (Some(7), Some(3))
    );
}
