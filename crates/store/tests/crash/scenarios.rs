//! Sequences of crashes that once broke a promise, each in its shortest form.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use ferromq_protocol::message::RecordView;
use ferromq_store::simulation::{Entered, enter};
use ferromq_store::{FlushDiskType, Store, StoreOptions};
use tempfile::TempDir;

use super::history::empty_directory;
use super::image::Image;
use super::world::Machine;
use crate::support::{Message, drain, drain_records, send, small};

const LOG_FILE: u32 = 16 << 10;

/// A store on a machine that can be switched off.
struct Scenario {
    machine: Rc<Machine>,
    directory: TempDir,
    flush: FlushDiskType,
    store: Option<Arc<Store>>,
    _world: Entered,
}

impl Scenario {
    fn begin(flush: FlushDiskType) -> Scenario {
        let directory = empty_directory();
        let machine = Rc::new(Machine::new(directory.path()));
        let world = enter(machine.clone());
        let mut scenario = Scenario { machine, directory, flush, store: None, _world: world };
        scenario.start();
        scenario
    }

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().unwrap()
    }

    fn start(&mut self) {
        self.machine.pass_time(1);
        let options = StoreOptions {
            commit_log_file_size: LOG_FILE,
            flush_disk_type: self.flush,
            file_reserved: std::time::Duration::ZERO,
            delete_file_batch_max: 1,
            delete_commit_log_files_interval: std::time::Duration::ZERO,
            light_queues_enabled: true,
            multi_dispatch_enabled: true,
            batch_topics: vec!["Batches".to_owned()],
            batch_consume_queue_file_size: 460,
            ..small(self.directory.path())
        };
        self.store = Some(Store::open_stepwise(options).unwrap());
    }

    fn stop(&mut self) {
        self.store().shutdown();
        self.store = None;
    }

    /// The process dies; what it wrote stays in the system's memory. Starts again.
    fn kill(&mut self) {
        let image = self.machine.take_crashed();
        self.go_on_with(image);
    }

    /// Everything is gone that was not forced to the device; but the marks are there, and the abort file is as it was. Starts
    /// again.
    fn cut_power(&mut self) {
        self.cut_power_after(|_| {});
    }

    /// The same, after the system has written something more by itself.
    fn cut_power_after(&mut self, write: impl FnOnce(&mut Image)) {
        let mut image = self.machine.take_crashed();
        image.write_name(Path::new("ferromq.marks"));
        image.write_name(Path::new("abort"));
        image.write_pages(Path::new("abort"), |_| true);
        write(&mut image);
        self.machine.boot_again();
        self.go_on_with(image.only_durable());
    }

    fn go_on_with(&mut self, mut image: Image) {
        self.store = None;
        self.directory = empty_directory();
        image.lay_out(self.directory.path());
        self.machine.exchange_disk(self.directory.path(), image);
        self.start();
    }

    /// Sends messages with these bodies and keys; returns their queue offsets.
    fn send(&self, topic: &str, bodies: &[&str]) -> Vec<i64> {
        let one = |body: &&str| {
            self.store().step_ahead();
            send(self.store(), &Message::new(topic, 0, body.as_bytes()).with("KEYS", body)).queue_offset
        };
        bodies.iter().map(one).collect()
    }

    /// Sends a message to T and to a light queue; returns the offset that the light queue gave it.
    fn send_to_light_queue(&self, light_queue: &str, body: &str) -> i64 {
        self.store().step_ahead();
        let given = self.store().queue(light_queue, 0).next_offset();
        send(self.store(), &Message::new("T", 0, body).with("INNER_MULTI_DISPATCH", light_queue));
        assert_eq!(self.store().queue(light_queue, 0).next_offset(), given + 1);
        given
    }

    /// Sends to another topic until the log has this many files.
    fn fill_log_files(&self, files: u64) {
        while self.store().appended().get() < (files - 1) * u64::from(LOG_FILE) {
            self.send("Filler", &["x".repeat(1000).as_str()]);
        }
    }

    fn flush(&self) {
        self.store().step_flush().unwrap();
    }

    /// Bodies of the messages of a topic.
    fn bodies(&self, topic: &str) -> Vec<String> {
        let messages = drain(self.store(), &self.store().queue(topic, 0));
        messages.into_iter().map(|(_, body)| String::from_utf8(body).unwrap()).collect()
    }
}

/// Bodies of the messages of a light queue.
fn light_bodies(store: &Store, light_queue: &str) -> Vec<Vec<u8>> {
    let records = drain_records(store, &store.queue(light_queue, 0));
    records.iter().map(|record| RecordView::parse(record).unwrap().body().to_vec()).collect()
}

#[test]
fn what_a_start_found_after_a_kill_survives_a_power_cut() {
    for queues_written in [false, true] {
        let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
        scenario.send("T", &["a", "b"]);
        scenario.store().step_dispatch();
        if queues_written {
            scenario.store().step_write_queues().unwrap();
        }
        scenario.kill();
        assert_eq!(scenario.bodies("T"), ["a", "b"]);
        assert_eq!(scenario.store().flushed().get(), scenario.store().appended().get());
        scenario.cut_power();
        assert_eq!(scenario.bodies("T"), ["a", "b"]);
        assert_eq!(scenario.send("T", &["c"]), [2]);
    }
}

#[test]
fn a_clean_stop_survives_a_power_cut() {
    let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
    for body in ["a", "b", "c"] {
        scenario.send("T", &[body]);
        scenario.stop();
        if body != "c" {
            scenario.machine.disk().write_everything();
            scenario.start();
        }
    }
    scenario.cut_power();
    assert_eq!(scenario.bodies("T"), ["a", "b", "c"]);
}

#[test]
fn a_deletion_behind_what_is_left_of_the_log_does_not_take_new_messages() {
    let mut scenario = Scenario::begin(FlushDiskType::SyncFlush);
    scenario.send("T", &["kept in the log"]);
    scenario.flush();
    scenario.send("T", &["lost", "lost", "lost"]);
    scenario.store().delete_topic("T").unwrap();
    scenario.cut_power();
    assert_eq!(scenario.send("T", &["new"]), [0]);
    scenario.flush();
    scenario.kill();
    assert_eq!(scenario.bodies("T"), ["new"]);
}

#[test]
fn a_deleted_topic_does_not_come_back_with_an_expired_log_file() {
    let mut scenario = Scenario::begin(FlushDiskType::SyncFlush);
    scenario.send("T", &["old"]);
    scenario.store().delete_topic("T").unwrap();
    scenario.fill_log_files(3);
    scenario.flush();
    scenario.store().dispatch_to_confirmed();
    while scenario.store().delete_expired_files() > 0 {}
    scenario.cut_power();
    assert!(scenario.bodies("T").is_empty());
    assert_eq!(scenario.send("T", &["new"]), [0]);
}

#[test]
fn an_expired_log_file_does_not_take_the_queues_offsets_with_it() {
    let mut scenario = Scenario::begin(FlushDiskType::SyncFlush);
    scenario.send("T", &["a", "b"]);
    scenario.fill_log_files(2);
    scenario.flush();
    scenario.store().dispatch_to_confirmed();
    assert_eq!(scenario.store().delete_expired_files(), 1);
    scenario.cut_power_after(|image| image.write_name(Path::new("commitlog/00000000000000000000")));
    assert_eq!(scenario.send("T", &["c"]), [2]);
}

#[test]
fn offsets_of_lost_messages_are_not_given_by_later_starts_either() {
    let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
    for topic in ["T", "U"] {
        scenario.send(topic, &["kept"]);
    }
    scenario.flush();
    for topic in ["T", "U"] {
        scenario.send(topic, &["lost", "lost"]);
    }
    scenario.store().step_dispatch();
    scenario.store().step_write_queues().unwrap();
    for next in [3, 4, 5] {
        scenario.cut_power_after(|image| image.write_below(Path::new("consumequeue")));
        assert_eq!(scenario.store().queue("T", 0).next_offset(), 3);
        assert_eq!(scenario.send("U", &["new"]), [next]);
        scenario.flush();
    }
    scenario.stop();
    scenario.start();
    assert_eq!(scenario.bodies("T"), ["kept"]);
    assert_eq!(scenario.send("T", &["new"]), [3]);
}

#[test]
fn offsets_that_only_queue_files_prove_survive_a_crash_of_the_recovery() {
    for changes in 1..120 {
        let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
        scenario.send("T", &["kept"]);
        scenario.flush();
        scenario.send("T", &["lost", "lost"]);
        scenario.store().step_dispatch();
        scenario.store().step_write_queues().unwrap();
        // The marks did not survive: the whole log is read. That is cut short, with what it did to the queues on the disk.
        let mut image = scenario.machine.take_crashed();
        image.write_below(Path::new("consumequeue"));
        image.write_name(Path::new("abort"));
        image.write_pages(Path::new("abort"), |_| true);
        scenario.machine.boot_again();
        scenario.machine.crash_after(Some(changes));
        scenario.go_on_with(image.only_durable());
        let is_over = !scenario.machine.has_crashed();
        scenario.cut_power_after(|image| image.write_below(Path::new("consumequeue")));
        assert_eq!(scenario.store().queue("T", 0).next_offset(), 3, "cut short after {changes} changes");
        if is_over {
            return;
        }
    }
    panic!("a recovery ends");
}

#[test]
fn a_queue_that_was_durable_before_its_messages_does_not_lead_to_damage() {
    let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
    let bodies = ["a", "b", "c"].map(|body| body.repeat(2000));
    scenario.send("T", &bodies.each_ref().map(String::as_str));
    scenario.store().step_dispatch();
    scenario.store().step_write_queues().unwrap();
    // Of the log, the system has written everything but the end of "a" and the front of "b".
    scenario.cut_power_after(|image| {
        image.write_below(Path::new("consumequeue"));
        image.write_pages(Path::new("commitlog/00000000000000000000"), |page| page != 1);
    });
    assert!(scenario.bodies("T") == bodies[2..]);
    assert_eq!(scenario.send("T", &["d"]), [3]);
}

#[test]
fn a_topic_that_is_deleted_after_a_power_cut_begins_anew() {
    let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
    scenario.send("Filler", &["kept"]);
    scenario.flush();
    scenario.send("T", &["lost", "lost"]);
    scenario.store().step_dispatch();
    scenario.store().step_write_queues().unwrap();
    scenario.cut_power_after(|image| image.write_below(Path::new("consumequeue")));
    assert_eq!(scenario.store().queue("T", 0).next_offset(), 2);
    scenario.store().delete_topic("T").unwrap();
    scenario.kill();
    assert_eq!(scenario.send("T", &["new"]), [0]);
}

#[test]
fn a_deletion_that_a_start_has_seen_survives_a_power_cut() {
    let mut scenario = Scenario::begin(FlushDiskType::SyncFlush);
    scenario.send("T", &["old"]);
    scenario.flush();
    scenario.store().step_dispatch();
    // The process dies when the deletion is noted down, before it is forced to the disk.
    scenario.machine.crash_after(Some(1));
    scenario.store().delete_topic("T").unwrap();
    scenario.kill();
    assert!(scenario.bodies("T").is_empty());
    scenario.cut_power();
    assert!(scenario.bodies("T").is_empty());
}

#[test]
fn messages_stay_in_light_queues_when_their_topic_is_deleted() {
    for dispatched in [false, true] {
        let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
        assert_eq!(scenario.send_to_light_queue("%LMQ%a", "old"), 0);
        if dispatched {
            scenario.store().step_dispatch();
        }
        scenario.store().delete_topic("T").unwrap();
        assert_eq!(light_bodies(scenario.store(), "%LMQ%a"), [b"old"]);
        scenario.kill();
        assert!(scenario.bodies("T").is_empty());
        assert_eq!(light_bodies(scenario.store(), "%LMQ%a"), [b"old"]);
        assert_eq!(scenario.send_to_light_queue("%LMQ%a", "new"), 1);
    }
}

#[test]
fn a_deleted_light_queue_does_not_come_back() {
    let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
    scenario.send_to_light_queue("%LMQ%a", "old");
    scenario.store().step_dispatch();
    scenario.store().delete_topic("%LMQ%a").unwrap();
    scenario.send("Filler", &["later"]);
    scenario.kill();
    assert!(light_bodies(scenario.store(), "%LMQ%a").is_empty());
    assert_eq!(scenario.bodies("T"), ["old"]);
    assert_eq!(scenario.send_to_light_queue("%LMQ%a", "new"), 0);
    assert_eq!(light_bodies(scenario.store(), "%LMQ%a"), [b"new"]);
}

#[test]
fn a_deleted_topic_of_batches_does_not_come_back_with_an_expired_log_file() {
    let mut scenario = Scenario::begin(FlushDiskType::SyncFlush);
    scenario.send("Batches", &["old", "old"]);
    scenario.flush();
    scenario.store().step_dispatch();
    scenario.store().step_write_queues().unwrap();
    scenario.store().step_flush_projections().unwrap();
    scenario.store().delete_topic("Batches").unwrap();
    scenario.fill_log_files(3);
    scenario.flush();
    scenario.store().dispatch_to_confirmed();
    while scenario.store().delete_expired_files() > 0 {}
    scenario.cut_power_after(|image| image.write_name(Path::new("commitlog/00000000000000000000")));
    assert_eq!(scenario.send("Batches", &["new"]), [0]);
}

#[test]
fn a_start_that_writes_all_queues_copes_with_a_damaged_one() {
    let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
    for topic in ["First", "T", "U"] {
        scenario.send(topic, &["kept"]);
    }
    scenario.stop();
    scenario.start();
    scenario.send("T", &["new"]);
    scenario.flush();
    scenario.send("U", &["lost"]);
    scenario.store().step_dispatch();
    scenario.store().step_write_queues().unwrap();
    scenario.cut_power_after(|image| {
        image.file_mut(Path::new("consumequeue/T/0/00000000000000000000")).fill(0);
        image.write_below(Path::new("consumequeue"));
    });
    assert_eq!(scenario.bodies("T"), ["kept", "new"]);
    assert_eq!(scenario.bodies("U"), ["kept"]);
    assert_eq!(scenario.send("U", &["new"]), [2]);
}

#[test]
fn a_queue_that_was_laid_anew_is_flushed_with_the_others() {
    let units = Path::new("consumequeue/T/0/00000000000000000000");
    let mut scenario = Scenario::begin(FlushDiskType::AsyncFlush);
    for topic in ["First", "T"] {
        scenario.send(topic, &["kept"]);
    }
    scenario.stop();
    let mut image = scenario.machine.take_crashed();
    image.file_mut(units).fill(0);
    image.write_everything();
    scenario.go_on_with(image);
    assert_eq!(scenario.bodies("T"), ["kept"]);
    scenario.store().step_flush_projections().unwrap();
    scenario.cut_power();
    let laid = std::fs::read(scenario.directory.path().join(units)).unwrap();
    assert!(laid[..20].iter().any(|byte| *byte != 0));
}
