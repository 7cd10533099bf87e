//! Messages with a delay level (`docs/spec/03-broker.md` 6).
//!
//! Such a message waits in the queue of its level, whose units carry the time of its delivery. One thread walks all
//! levels, ten times a second, and stores what is due in the message's own topic. How far it got is kept in
//! `delayOffset.json`.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{DataVersion, DelayOffsetSerializeWrapper};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::{RecordFields, RecordView};
use ferromq_protocol::{json, names};
use ferromq_remoting::Connection;
use ferromq_store::AppendError;
use parking_lot::{Condvar, Mutex};

use crate::answer::Answer;
use crate::broker::{Broker, PutError};
use crate::clock;
use crate::config_file::{ConfigFile, LoadError};
use crate::service::Handler;

/// Pause between two rounds: how late a message may be.
const TICK: Duration = Duration::from_millis(100);
/// Units of one level that are looked at before the next level has its turn.
const UNITS_PER_ROUND: usize = 1000;

/// The levels and how far each was delivered.
pub(crate) struct ScheduleService {
    file: ConfigFile,
    /// Next queue offset to deliver, by level - 1.
    offsets: Vec<AtomicI64>,
    data_version: Mutex<DataVersion>,
    changed: AtomicBool,
    stopping: Mutex<bool>,
    stop: Condvar,
}

impl ScheduleService {
    /// Loads how far each of the levels was delivered.
    pub(crate) fn load(config_directory: &Path, levels: usize) -> Result<Self, LoadError> {
        let (file, saved) = ConfigFile::load(config_directory.join("delayOffset.json"))?;
        let saved: DelayOffsetSerializeWrapper = saved.unwrap_or_default();
        let offset = |level: i32| AtomicI64::new(saved.offset_table.get(&level).copied().unwrap_or_default());
        Ok(Self {
            file,
            offsets: (1..=levels as i32).map(offset).collect(),
            data_version: Mutex::new(saved.data_version),
            changed: AtomicBool::new(false),
            stopping: Mutex::new(false),
            stop: Condvar::new(),
        })
    }

    /// The highest level.
    pub(crate) fn level_max(&self) -> i32 {
        self.offsets.len() as i32
    }

    /// Next offset to deliver of each level that has delivered anything, by level.
    pub(crate) fn offsets(&self) -> BTreeMap<i32, i64> {
        let offsets = self.offsets.iter().map(|offset| offset.load(Ordering::Acquire));
        (1..).zip(offsets).filter(|(_, offset)| *offset > 0).collect()
    }

    fn dump(&self) -> DelayOffsetSerializeWrapper {
        DelayOffsetSerializeWrapper { data_version: *self.data_version.lock(), offset_table: self.offsets() }
    }

    /// Takes over how far the master has come.
    pub(crate) fn merge(&self, theirs: &DelayOffsetSerializeWrapper) {
        for (level, theirs) in &theirs.offset_table {
            let ours = usize::try_from(*level - 1).ok().and_then(|index| self.offsets.get(index));
            if ours.is_some_and(|ours| ours.fetch_max(*theirs, Ordering::AcqRel) < *theirs) {
                self.changed.store(true, Ordering::Release);
            }
        }
    }

    /// Writes `delayOffset.json` if anything was delivered since the last time.
    pub(crate) fn persist(&self) {
        if !self.changed.swap(false, Ordering::AcqRel) {
            return;
        }
        self.data_version.lock().next_version(0, clock::now_ms());
        if let Err(error) = self.file.save(&json::to_string_pretty(&self.dump())) {
            tracing::error!(%error, "can't save the progress of delayed messages");
            self.changed.store(true, Ordering::Release);
        }
    }

    /// Ends [`run`] and saves the progress.
    pub(crate) fn stop(&self) {
        *self.stopping.lock() = true;
        self.stop.notify_all();
    }

    /// Waits for the next round; false when there is none.
    fn next_round(&self) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stop.wait_for(&mut stopping, TICK);
        }
        !*stopping
    }
}

/// Delivers until [`ScheduleService::stop`]. Runs on a thread of its own: it may wait for the disk.
pub(crate) fn run(broker: &Arc<Broker>) {
    let schedule = &broker.schedule;
    // Only a master delivers.
    let mut earlier = None;
    let mut since_save = Duration::ZERO;
    loop {
        if broker.store.is_follower() && !broker.replication.acting.acts() {
            earlier = None;
        } else {
            earlier.get_or_insert_with(|| EarlierDeliveries::before_now(broker));
        }
        if !schedule.next_round() {
            break;
        }
        if let Some(earlier) = &mut earlier {
            (1..=schedule.level_max()).for_each(|level| deliver_level(broker, level, earlier));
        }
        since_save += TICK;
        if since_save >= Duration::from_millis(broker.config().flush_delay_offset_interval) {
            schedule.persist();
            since_save = Duration::ZERO;
        }
    }
    schedule.persist();
}

/// What was delivered before this start and after the progress was saved for the last time: the log is the proof.
struct EarlierDeliveries {
    /// When this start was, ms since the epoch. What was not due then can't have been delivered.
    end_ms: i64,
    /// Physical offsets of deliveries that were found: each is the proof of one only.
    found: HashSet<u64>,
}

impl EarlierDeliveries {
    /// Begins to deliver where the queues are.
    fn before_now(broker: &Broker) -> Self {
        for (index, offset) in broker.schedule.offsets.iter().enumerate() {
            let queue = broker.store.queue(names::SCHEDULE_TOPIC, index as i32);
            let saved = offset.load(Ordering::Acquire);
            offset.store(saved.clamp(queue.min_offset(), queue.max_offset()), Ordering::Release);
        }
        Self { end_ms: clock::now_ms(), found: HashSet::new() }
    }

    /// Whether the log holds the delivered copy of a delayed message that was due at `due_ms`.
    fn contain(&mut self, broker: &Broker, topic: &str, delayed: &RecordView<'_>, due_ms: i64) -> bool {
        let Some(unique_key) = delayed.property("UNIQ_KEY").filter(|_| due_ms <= self.end_ms) else {
            return false;
        };
        let copies = broker.store.query(topic, unique_key, usize::MAX, due_ms, self.end_ms, true).records;
        copies.iter().filter_map(|copy| RecordView::parse(copy).ok()).any(|copy| {
            copy.physical_offset() > delayed.physical_offset()
                && copy.born_timestamp() == delayed.born_timestamp()
                && copy.reconsume_times() == delayed.reconsume_times()
                && copy.body() == delayed.body()
                && self.found.insert(copy.physical_offset())
        })
    }
}

/// Delivers what is due of one level.
fn deliver_level(broker: &Arc<Broker>, level: i32, earlier: &mut EarlierDeliveries) {
    let schedule = &broker.schedule;
    let position = &schedule.offsets[level as usize - 1];
    let Some(queue) = broker.store.find_queue(names::SCHEDULE_TOPIC, level - 1) else { return };
    let level_ms = broker.store.options().delay_levels_ms[level as usize - 1];
    let mut next = position.load(Ordering::Acquire);
    if next < queue.min_offset() {
        // The log was cut from its front: what was there is gone.
        next = queue.min_offset();
        position.store(next, Ordering::Release);
    }
    if next >= queue.max_offset() {
        return;
    }
    let now = clock::now_ms();
    let term = broker.store.term();
    let mut last_end = 0;
    for unit in broker.store.consume_queue_units(&queue, next, UNITS_PER_ROUND) {
        // A time beyond the level's length means that the clock went back or the level was shortened.
        let due = if unit.tags_code > now.saturating_add(level_ms) { now } else { unit.tags_code };
        if due > now {
            break;
        }
        match deliver(broker, unit.physical_offset, due, earlier) {
            Ok(end) => last_end = end.unwrap_or(last_end),
            Err(error) => {
                tracing::warn!(%error, level, queue_offset = unit.queue_offset, "can't deliver a delayed message, trying again");
                break;
            }
        }
        next = unit.queue_offset + 1;
    }
    // A delivery that the next leader of a Raft group does not have is none.
    while !broker.is_agreed(last_end, term) {
        if broker.store.term() != term || *schedule.stopping.lock() {
            return;
        }
    }
    if position.swap(next, Ordering::AcqRel) != next {
        schedule.changed.store(true, Ordering::Release);
    }
}

/// Stores a message that waited long enough in its own topic. Returns where it ends in the log, unless it is there already or can't
/// be delivered.
fn deliver(
    broker: &Arc<Broker>,
    physical_offset: u64,
    due_ms: i64,
    earlier: &mut EarlierDeliveries,
) -> Result<Option<u64>, PutError> {
    let record = match broker.store.record_at(physical_offset) {
        Ok(Some(record)) => record,
        Ok(None) | Err(_) => {
            tracing::warn!(physical_offset, "a delayed message is no longer in the log, leaving it out");
            return Ok(None);
        }
    };
    let Ok(message) = RecordView::parse(&record) else { return Ok(None) };
    let real_queue = message.property("REAL_QID").and_then(|id| id.parse().ok());
    let (Some(topic), Some(queue_id)) = (message.property("REAL_TOPIC"), real_queue) else {
        tracing::warn!(physical_offset, "a delayed message does not say where it belongs, leaving it out");
        return Ok(None);
    };
    if earlier.contain(broker, topic, &message, due_ms) {
        return Ok(None);
    }
    let message = RecordFields {
        topic,
        queue_id,
        flag: message.flag(),
        sys_flag: message.sys_flag(),
        born_timestamp: message.born_timestamp(),
        born_host: message.born_host(),
        store_host: message.store_host(),
        reconsume_times: message.reconsume_times(),
        prepared_transaction_offset: 0,
        body: message.body(),
        properties: message.properties(),
    };
    if broker.store.is_follower() {
        // Nothing is stored here: it goes to another set.
        if !broker.config().enable_remote_escape {
            return Err(AppendError::Follower.into());
        }
        broker.replication.acting.escape(broker, &message)?;
        return Ok(None);
    }
    Ok(Some(broker.put(&message)?.end()))
}

pub(crate) fn route(code: i32) -> Option<Handler> {
    (code == request::GET_ALL_DELAY_OFFSET).then_some(Handler::Inline(all_delay_offsets))
}

fn all_delay_offsets(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    Ok(RemotingCommand::success().with_body(json::to_vec(&broker.schedule.dump())))
}
