//! One random history of a store: it lives, ends one way or another, is opened again, and is checked.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ferromq_protocol::message::{RecordView, sysflag};
use ferromq_store::{AcceptAll, FlushDiskType, RecordSlice, Store, StoreOptions};
use tempfile::TempDir;

use super::batch_files::{self, Extent};
use super::check;
use super::image::Image;
use super::model::{End, Model, Place, QueueKey, Sent, State};
use super::world::Machine;
use crate::support::{Message, request, small};

/// Messages of one history; more make the checks slow and find nothing new.
const MESSAGES_MAX: usize = 500;

/// The topic whose batches are one record each.
pub(crate) const BATCH_TOPIC: &str = "Batches";
/// The topic of messages that no consumer may see yet.
const HALF_TOPIC: &str = "Half";
/// Length of a message in a batch; it is at least 22.
const BATCH_MESSAGE_LEN: usize = 30;

/// A record to be sent.
struct Draft {
    message: Message,
    /// How many offsets of its queue it takes.
    messages: u32,
    light_queues: Vec<String>,
}

/// Sizes that differ from history to history.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    log_file: u32,
    body_max: usize,
    /// A batch must not need more than one new log file.
    batch_bytes_max: usize,
}

/// Adds a line to the history's log.
macro_rules! note {
    ($history:expr, $($what:tt)*) => {
        writeln!($history.log, $($what)*).unwrap()
    };
}

pub(crate) struct History {
    rng: Rng,
    machine: Rc<Machine>,
    model: Model,
    sizes: Sizes,
    flush: FlushDiskType,
    /// Where the files are. A crash leaves an image, which is laid out in another directory.
    directory: TempDir,
    crashes: u32,
    /// What happened lately, for a failing test to print.
    pub(crate) log: String,
}

impl History {
    pub(crate) fn new(seed: u64) -> History {
        let mut rng = Rng::with_seed(seed);
        let sizes = match rng.u8(0..20) {
            0 => Sizes { log_file: 512 << 10, body_max: 50_000, batch_bytes_max: 200_000 },
            1..=4 => Sizes { log_file: 64 << 10, body_max: 6_000, batch_bytes_max: 20_000 },
            _ => Sizes { log_file: 16 << 10, body_max: 3_000, batch_bytes_max: 8_000 },
        };
        let directory = empty_directory();
        let machine = Rc::new(Machine::new(directory.path()));
        let flush = some_flush(&mut rng);
        History {
            rng,
            machine,
            model: Model::default(),
            sizes,
            flush,
            directory,
            crashes: 0,
            log: String::new(),
        }
    }

    /// Lives through that many crashes, and clean stops in between.
    pub(crate) fn run(&mut self, crashes: u32) {
        let _world = ferromq_store::simulation::enter(self.machine.clone());
        let mut end = End::CleanStop;
        while self.crashes < crashes {
            let crash_after = (self.rng.u8(0..4) == 0).then(|| self.rng.u32(0..40));
            let started = self.start(end, crash_after);
            if self.machine.has_crashed() {
                // A crash during recovery: what has been checked is what would have come of it.
                drop(started);
                let second = self.crash();
                end = if end == End::PowerLoss { end } else { second };
                continue;
            }
            let store = started.unwrap();
            end = self.live(store);
        }
        self.start(end, None).unwrap();
    }

    fn options(&self) -> StoreOptions {
        StoreOptions {
            commit_log_file_size: self.sizes.log_file,
            flush_disk_type: self.flush,
            file_reserved: Duration::ZERO,
            delete_file_batch_max: 1,
            delete_commit_log_files_interval: Duration::ZERO,
            light_queues_enabled: true,
            multi_dispatch_enabled: true,
            batch_topics: vec![BATCH_TOPIC.to_owned()],
            batch_consume_queue_file_size: 460,
            ..small(self.directory.path())
        }
    }

    // ---- begin and end ----

    /// Opens the store and checks it. When the crash comes meanwhile, the model stays as it was.
    fn start(&mut self, end: End, crash_after: Option<u32>) -> Option<Arc<Store>> {
        self.machine.pass_time(1);
        self.flush = some_flush(&mut self.rng);
        self.machine.crash_after(crash_after);
        note!(self, "start after {end:?}, {:?}, crash after {crash_after:?}", self.flush);
        let store = Store::open_stepwise(self.options()).unwrap();
        self.machine.crash_after(None);
        // Nothing is read then, and what happens next is the first to use the queues.
        let is_checked = end != End::CleanStop || self.rng.bool();
        if !is_checked && !self.machine.has_crashed() {
            note!(self, "  not checked");
            return Some(store);
        }
        let mut model = self.model.clone();
        check::after_start(&store, &mut model, end);
        if !self.machine.has_crashed() {
            let mut extent = Extent::Begin;
            if self.rng.bool() {
                note!(self, "  write queues");
                store.step_write_queues().unwrap();
                extent = Extent::All;
            }
            batch_files::check(self.directory.path(), &model, store.min_offset(), extent);
        }
        let (log_end, log_begin) = (store.appended().get(), store.min_offset());
        note!(self, "  log {log_begin}..{log_end}, next {:?}", model.next);
        if self.machine.has_crashed() {
            return None;
        }
        self.model = model;
        Some(store)
    }

    /// Does this and that until the end comes; says how it was.
    fn live(&mut self, store: Arc<Store>) -> End {
        self.log = self.log.split_off(self.log.len().saturating_sub(20_000));
        let steps = self.rng.u32(0..40);
        let crash_after = self.rng.bool().then(|| self.rng.u32(0..80));
        self.machine.crash_after(crash_after);
        for _ in 0..steps {
            self.step(&store);
            if self.machine.has_crashed() {
                drop(store);
                return self.crash();
            }
            self.model.flushed = store.flushed().get();
        }
        if self.rng.u8(0..3) == 0 {
            note!(self, "clean stop");
            let (log_min, log_end) = (store.min_offset(), store.appended().get());
            store.shutdown();
            drop(store);
            if !self.machine.has_crashed() {
                batch_files::check(self.directory.path(), &self.model, log_min, Extent::All);
                self.model.flushed = log_end;
                return match self.rng.u8(0..4) {
                    0 => self.crash(),
                    1 => self.damage_a_queue(),
                    _ => End::CleanStop,
                };
            }
        } else if self.rng.u8(0..3) == 0 && self.model.sent.len() < MESSAGES_MAX {
            self.machine.crash_after(None);
            return self.crash_while_appending(store);
        }
        self.crash()
    }

    /// The process is killed, or the power goes.
    fn crash(&mut self) -> End {
        let image = self.machine.take_crashed();
        self.crash_to(image)
    }

    /// A queue loses a file behind a clean stop: whoever uses the queue finds it, and the log gives it back.
    fn damage_a_queue(&mut self) -> End {
        let mut image = self.machine.take_crashed();
        let damaged = image.damage_a_queue(&mut self.rng);
        note!(self, "{damaged:?} is damaged");
        self.go_on_with(image);
        End::CleanStop
    }

    fn crash_to(&mut self, image: Image) -> End {
        let (image, end) = match self.rng.u8(0..3) {
            0 => (image, End::Kill),
            _ => (image.after_power_loss(&mut self.rng), End::PowerLoss),
        };
        note!(self, "{end:?}, {} changes of the disk", self.machine.changes());
        self.crashes += 1;
        if end == End::PowerLoss {
            self.machine.boot_again();
        }
        self.go_on_with(image);
        end
    }

    fn go_on_with(&mut self, mut image: Image) {
        self.directory = empty_directory();
        image.lay_out(self.directory.path());
        self.machine.exchange_disk(self.directory.path(), image);
    }

    /// A crash in the middle of an append that nobody was told of: of the batch's records, some are whole; of the next one
    /// anything may be there but its length, which is copied last.
    fn crash_while_appending(&mut self, store: Arc<Store>) -> End {
        store.step_ahead();
        let (first, begin) = (self.model.sent.len(), store.appended().get());
        let batch = self.random_batch();
        self.append(&store, batch);
        let mut image = self.machine.take_crashed();
        drop(store);
        let size = u64::from(self.sizes.log_file);
        let in_one_file =
            self.model.sent[first..].iter().all(|sent| sent.physical_offset / size == begin / size);
        for sent in &mut self.model.sent[first..] {
            sent.acknowledged = false;
        }
        if in_one_file {
            let torn = self.rng.usize(first..self.model.sent.len());
            let (at, end) =
                (self.model.sent[torn].physical_offset, self.model.sent[self.model.sent.len() - 1].end);
            let torn_end = self.model.sent[torn].end;
            let name = PathBuf::from(format!("commitlog/{:020}", begin / size * size));
            let bytes =
                &mut image.file_mut(&name)[(at % size) as usize..(end - begin / size * size) as usize];
            let kept = (torn_end - at) as usize;
            bytes[kept..].fill(0);
            bytes[..4].fill(0);
            let missing = self.rng.usize(4..=kept)..kept;
            bytes[missing].fill(0);
            note!(self, "torn append at {at}");
        }
        self.crash_to(image)
    }

    // ---- life ----

    fn step(&mut self, store: &Arc<Store>) {
        let pause = [0, 0, 1, 700, 3_000][self.rng.usize(0..5)];
        self.machine.pass_time(pause);
        match self.rng.u8(0..100) {
            0..45 if self.model.sent.len() < MESSAGES_MAX => {
                store.step_ahead();
                if !self.machine.has_crashed() {
                    let batch = self.random_batch();
                    self.append(store, batch);
                }
            }
            0..55 => {
                note!(self, "flush");
                store.step_flush().unwrap();
            }
            55..60 if self.flush == FlushDiskType::AsyncFlush => {
                note!(self, "flush finished pages");
                store.step_flush_finished_pages().unwrap();
            }
            60..66 => {
                note!(self, "dispatch");
                store.step_dispatch();
            }
            66..72 => {
                note!(self, "write queues");
                store.step_write_queues().unwrap();
            }
            72..74 => {
                note!(self, "list queues");
                store.step_list_queues().unwrap();
            }
            74..77 => {
                note!(self, "flush projections");
                store.step_flush_projections().unwrap();
            }
            77..84 => {
                note!(self, "write-back");
                let machine = Rc::clone(&self.machine);
                machine.disk().write_some_back(&mut self.rng);
            }
            84..92 => self.read(store),
            92..94 => {
                let deleted = store.delete_expired_files();
                self.model.expired = self.model.expired.max(store.min_offset());
                note!(self, "{deleted} log file deleted, log begins at {}", self.model.expired);
            }
            94..95 => {
                let cleaned = store.clean_expired_queues();
                note!(self, "{cleaned} empty queues cleaned");
            }
            95..97 => self.delete_topic(store),
            _ => {
                note!(self, "look ahead");
                store.step_ahead();
            }
        }
    }

    /// A queue that messages are sent to.
    fn random_queue(&mut self) -> QueueKey {
        let topic = match self.rng.u8(0..8) {
            0 => BATCH_TOPIC.to_owned(),
            1 => HALF_TOPIC.to_owned(),
            number => format!("Topic{}", number % 3),
        };
        (topic, i32::from(self.rng.u8(0..2)))
    }

    /// A queue that messages are read from.
    fn random_read_queue(&mut self) -> QueueKey {
        match self.rng.u8(0..4) {
            0 => (format!("%LMQ%{}", self.rng.u8(0..2)), 0),
            _ => self.random_queue(),
        }
    }

    fn random_batch(&mut self) -> Vec<Draft> {
        let mut drafts = Vec::new();
        let mut bytes = 0;
        for _ in 0..[1, 1, 2, 8][self.rng.usize(0..4)] {
            let queue = self.random_queue();
            let group = if self.rng.u8(0..4) == 0 { self.rng.u8(2..5) } else { 1 };
            for _ in 0..group {
                let serial = (self.model.sent.len() + drafts.len()) as u32;
                let len = if self.rng.u8(0..4) == 0 { self.sizes.body_max } else { self.sizes.body_max / 10 };
                let len = self.rng.usize(0..len);
                bytes += len + 500;
                if bytes > self.sizes.batch_bytes_max && !drafts.is_empty() {
                    return drafts;
                }
                drafts.push(self.random_draft(&queue, serial, len));
            }
        }
        drafts
    }

    /// A message with a body of about that length.
    fn random_draft(&mut self, (topic, queue_id): &QueueKey, serial: u32, len: usize) -> Draft {
        let mut draft = Draft {
            message: Message::new(topic, *queue_id, serial.to_be_bytes()).with("TAGS", "t"),
            messages: 1,
            light_queues: Vec::new(),
        };
        let mut len_min = 0;
        if topic == HALF_TOPIC {
            draft.message.sys_flag = sysflag::TRANSACTION_PREPARED;
            draft.messages = 0;
        } else if topic == BATCH_TOPIC && self.rng.u8(0..4) > 0 {
            draft.messages = self.rng.u32(1..9);
            draft.message.sys_flag = sysflag::NEED_UNWRAP | sysflag::INNER_BATCH;
            draft.message = draft.message.with("INNER_NUM", &draft.messages.to_string());
            len_min = draft.messages as usize * BATCH_MESSAGE_LEN;
        } else if self.rng.u8(0..3) == 0 {
            draft.light_queues = match self.rng.u8(0..4) {
                0 => vec!["%LMQ%1".to_owned(), "%LMQ%0".to_owned()],
                number => vec![format!("%LMQ%{}", number % 2)],
            };
            draft.message = draft.message.with("INNER_MULTI_DISPATCH", &draft.light_queues.join(","));
        }
        if self.rng.u8(0..4) > 0 {
            draft.message = draft.message.with("KEYS", &format!("k{serial} common{}", serial % 5));
        }
        draft.message.body.extend((0..len.max(len_min)).map(|at| (at as u32 * 31 + serial) as u8));
        draft
    }

    fn append(&mut self, store: &Store, drafts: Vec<Draft>) {
        let mut batch = store.new_batch();
        let queue_of = |draft: &Draft| (draft.message.topic.clone(), draft.message.queue_id);
        for group in drafts.chunk_by(|a, b| queue_of(a) == queue_of(b)) {
            let (topic, queue_id) = queue_of(&group[0]);
            if topic == BATCH_TOPIC {
                store.declare_batch_topic(&topic);
            }
            let queue = store.queue(&topic, queue_id);
            batch.push_group(&queue, group.iter().map(|draft| draft.message.fields())).unwrap();
        }
        let end = store.append(&mut batch).unwrap();
        note!(self, "{} messages from {} on, log ends at {end}", drafts.len(), self.model.sent.len());
        for (draft, outcome) in drafts.into_iter().zip(batch.outcomes()) {
            let serial = self.model.sent.len();
            let queue = queue_of(&draft);
            let mut places = Vec::new();
            if draft.messages > 0 {
                places.push(self.take_place(queue.clone(), draft.messages));
                let expected = places[0].offsets.start;
                assert_eq!(outcome.queue_offset, expected, "queue offset of message {serial} in {queue:?}");
            }
            places.extend(draft.light_queues.into_iter().map(|name| self.take_place((name, 0), 1)));
            let record = store.record_at(outcome.physical_offset).unwrap().unwrap();
            let view = RecordView::parse(&record).unwrap();
            if places.len() > 1 {
                let offsets: Vec<_> =
                    places[1..].iter().map(|place| place.offsets.start.to_string()).collect();
                let property = view.property("INNER_MULTI_QUEUE_OFFSET");
                assert_eq!(property, Some(&*offsets.join(",")), "offsets in light queues of {serial}");
            }
            let has_keys = draft.message.properties.windows(4).any(|name| name == b"KEYS");
            self.model.sent.push(Sent {
                queue,
                queue_offset: outcome.queue_offset,
                places,
                physical_offset: outcome.physical_offset,
                end: outcome.end(),
                store_timestamp: outcome.store_timestamp,
                body: draft.message.body,
                properties: view.properties().to_vec(),
                keys: if has_keys { vec![format!("k{serial}")] } else { Vec::new() },
                acknowledged: true,
                state: State::There,
            });
        }
    }

    /// The next offsets of a queue.
    fn take_place(&mut self, queue: QueueKey, messages: u32) -> Place {
        let next = self.model.next.entry(queue.clone()).or_insert(0);
        let offsets = *next..*next + i64::from(messages);
        *next = offsets.end;
        Place { queue, offsets, state: State::There }
    }

    /// Whoever reads sees every confirmed message of the queue, in order.
    fn read(&mut self, store: &Store) {
        let queue = self.random_read_queue();
        let handle = store.queue(&queue.0, queue.1);
        let offset = self.rng.i64(0..=handle.max_offset());
        let mut records: Vec<RecordSlice> = Vec::new();
        let outcome = store.read(&handle, request(offset), &AcceptAll, &mut records);
        note!(self, "read {queue:?} from {offset}: {:?}", outcome.status);
        if self.machine.has_crashed() {
            return;
        }
        let confirmed = store.confirmed().get();
        let expected = self.model.sent.iter().filter(|sent| {
            let is_read =
                |place: &Place| place.offsets.start < outcome.next_offset && offset < place.offsets.end;
            sent.place_in(&queue).is_some_and(is_read)
                && sent.end <= confirmed
                && sent.physical_offset >= self.model.expired
        });
        let expected: Vec<_> = expected.map(|sent| sent.physical_offset).collect();
        let found: Vec<_> =
            records.iter().map(RecordSlice::physical_offset).filter(|at| *at >= self.model.expired).collect();
        assert_eq!(found, expected, "read from {offset} to {}", outcome.next_offset);
    }

    fn delete_topic(&mut self, store: &Store) {
        let topic = self.random_read_queue().0;
        if topic == HALF_TOPIC {
            // It has no queues by whose offsets one could tell whether a crash came before or after.
            return;
        }
        note!(self, "delete {topic}");
        self.model.deleting = Some(topic.clone());
        store.delete_topic(&topic).unwrap();
        if !self.machine.has_crashed() {
            self.model.deleting = None;
            self.model.topic_was_deleted(&topic);
        }
    }
}

/// In memory if the system has a place there: what the disk forgets is up to this test, and waiting for it would only take time.
pub(crate) fn empty_directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn some_flush(rng: &mut Rng) -> FlushDiskType {
    if rng.bool() { FlushDiskType::SyncFlush } else { FlushDiskType::AsyncFlush }
}
