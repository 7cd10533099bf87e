//! The dispatcher: reads the log in order and feeds every projection.
//!
//! There is one [`Dispatcher`] per store, behind a mutex: its own thread runs it when there is something new, and a pull that
//! finds its queue's end runs it on its own thread up to what is confirmed. [`Projector`] does the work for one record; recovery
//! uses it too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::time::{Duration, Instant};

use ferromq_protocol::message::{
    RecordError, RecordView, java_string_hash, java_string_hash_onto, properties, sysflag,
};
use ferromq_protocol::names::{LMQ_PREFIX, SCHEDULE_TOPIC};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::commit_log::{CommitLog, Entry, entry_at};
use crate::deleted::DeletedTopics;
use crate::index::{KeyIndex, key_hash, topic_hash};
use crate::late::{inner_num, may_go_to_light_queues};
use crate::log::{RecordSlice, Segment};
use crate::options::StoreOptions;
use crate::queue::{BatchUnit, ConsumeQueue, ConsumeQueues, Extent, Pushed, Unit, is_plausible};

/// Bytes of the log that one round takes at most: how long others wait for the dispatcher.
const ROUND_BYTES: u64 = 1 << 20;
/// Queues that a round writes when too many units wait in memory.
const QUEUES_WHEN_OVERFULL: usize = 64;
/// Records whose units are pushed together: what their queues have in memory is fetched all at once.
const GROUP: usize = 32;
/// How many records in front the memory of one is fetched, if all are of one length.
const RECORDS_AHEAD: u64 = 4;

/// A message that has just become readable in a watched queue ([`ConsumeQueue::watch`]).
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The queue.
    pub queue: Arc<ConsumeQueue>,
    /// Its offset in the queue; readers can read up to and including it.
    pub queue_offset: i64,
    /// Tags code of its unit.
    pub tags_code: i64,
    /// Store time, milliseconds.
    pub store_timestamp: i64,
    /// The record, for properties ([`RecordView`]).
    pub record: RecordSlice,
}

/// Told by the dispatcher about new messages.
pub trait ArrivalListener: Send + Sync {
    /// New messages of watched queues, in the order of the log, at most one dispatch round of them. Called on whatever
    /// thread dispatches: must be quick and must not call back into the store's dispatch.
    fn arrived(&self, arrivals: &[Arrival]);
}

/// Turns one record into units and index entries.
pub(crate) struct Projector {
    queues: Arc<ConsumeQueues>,
    index: Option<Arc<KeyIndex>>,
    /// Whether keys are hashed at all.
    hashes_keys: bool,
    deleted: Arc<DeletedTopics>,
    delay_levels_ms: Vec<i64>,
    multi_dispatch: bool,
    /// Where else the last record goes: light queues, further messages of a batch.
    further: Vec<Placement>,
    /// The unit that other brokers need, if the last record belongs to a topic of batches.
    batch_unit: Option<BatchUnit>,
    /// Handles by their number, as far as they were needed.
    handles: Vec<Arc<ConsumeQueue>>,
    key_hashes: Vec<u32>,
    /// The last topic and the hash of `topic#`.
    topic: (String, i32),
}

/// What the properties say that dispatch needs.
#[derive(Default)]
struct Facts<'a> {
    tags: Option<&'a str>,
    keys: Option<&'a str>,
    unique_key: Option<&'a str>,
    delay: Option<&'a str>,
    multi_dispatch: Option<&'a str>,
    multi_offsets: Option<&'a str>,
}

/// Where a record's message belongs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    /// The queue's number: see [`Projector::handle`]. A reference for each record would be counted up and down, and of the many queues that
    /// there may be, the memory of a count costs more than all the rest.
    pub(crate) queue: u32,
    pub(crate) queue_offset: i64,
    pub(crate) unit: Unit,
}

impl Projector {
    pub(crate) fn new(
        queues: Arc<ConsumeQueues>,
        index: Option<Arc<KeyIndex>>,
        deleted: Arc<DeletedTopics>,
        options: &StoreOptions,
    ) -> Self {
        Projector {
            queues,
            hashes_keys: index.is_some(),
            index,
            deleted,
            delay_levels_ms: options.delay_levels_ms.clone(),
            multi_dispatch: options.multi_dispatch_enabled,
            further: Vec::new(),
            batch_unit: None,
            handles: Vec::new(),
            key_hashes: Vec::new(),
            topic: (String::new(), 0),
        }
    }

    /// Looks up the queues of records, for [`place_in`](Self::place_in): all at once, because the memory of one name need not be there
    /// before the next one is asked for.
    fn find(&self, records: &[RecordView<'_>], found: &mut Vec<Option<u32>>) {
        found.clear();
        let names = records.iter().map(|record| (record.topic_bytes(), record.queue_id()));
        self.queues.find_each(names, found);
    }

    fn queue(&mut self, found: Option<u32>, topic: &str, queue_id: i32) -> u32 {
        let number = found.unwrap_or_else(|| self.queues.get_or_create(topic, queue_id).number());
        if self.handles.len() <= number as usize {
            self.handles.extend_from_slice(&self.queues.handles()[self.handles.len()..]);
        }
        number
    }

    /// The handle of a queue that a record was [placed](Self::place) in.
    pub(crate) fn handle(&self, number: u32) -> &Arc<ConsumeQueue> {
        &self.handles[number as usize]
    }

    /// Works out where a record goes, and remembers its keys for [`index`](Self::index). `None`: not into a queue of its topic,
    /// but maybe into [others](Self::further_placements).
    pub(crate) fn place(&mut self, record: &RecordView<'_>) -> Option<Placement> {
        self.place_in(record, None)
    }

    /// As [`place`](Self::place), when the number of the record's queue may be known.
    fn place_in(&mut self, record: &RecordView<'_>, found: Option<u32>) -> Option<Placement> {
        self.key_hashes.clear();
        self.further.clear();
        self.batch_unit = None;
        let topic = record.topic()?;
        let physical_offset = record.physical_offset();
        let is_deleted = self.deleted.covers(topic, physical_offset);
        // What was deleted with its topic stays in the light queues: they gave it an offset, and are deleted by themselves.
        if (is_deleted && !self.multi_dispatch) || !is_directory_name(topic) {
            return None;
        }
        let facts = Facts::of(record.properties());
        let transaction = sysflag::transaction_type(record.sys_flag());
        if self.hashes_keys && !is_deleted && transaction != sysflag::TRANSACTION_ROLLBACK {
            self.hash_keys(topic, &facts);
        }
        if !sysflag::takes_queue_offset(record.sys_flag()) {
            return None;
        }
        let tags_code = match self.delivery_time(topic, &facts, record.store_timestamp()) {
            Some(time) => time,
            None => facts.tags.map_or(0, |tags| i64::from(java_string_hash(tags))),
        };
        let unit = Unit { physical_offset, size: record.size() as u32, tags_code };
        if self.multi_dispatch {
            self.place_in_light_queues(topic, record.queue_id(), &facts, unit);
            if is_deleted {
                return None;
            }
        }
        if !is_plausible(record.queue_offset(), physical_offset) {
            report_implausible(topic, record.queue_id(), record.queue_offset(), physical_offset);
            return None;
        }
        if record.sys_flag() & sysflag::INNER_BATCH != 0 && !self.queues.batch().contains(topic) {
            // Nothing else says so any more.
            self.queues.batch().declare(topic);
        }
        let queue = self.queue(found, topic, record.queue_id());
        if self.queues.batch().contains(topic) {
            self.place_batch(record, queue, unit);
        }
        Some(Placement { queue, queue_offset: record.queue_offset(), unit })
    }

    /// A batch in one record has a place for each of its messages (`docs/spec/02-store.md` §4.8).
    fn place_batch(&mut self, record: &RecordView<'_>, queue: u32, unit: Unit) {
        let base = record.queue_offset();
        let messages = match record.sys_flag() & sysflag::INNER_BATCH {
            0 => 1,
            _ => inner_num(record.properties()).unwrap_or(1),
        };
        let place = |number| Placement { queue, queue_offset: base + i64::from(number), unit };
        self.further.extend((1..messages).map(place));
        let (store_timestamp, messages) = (record.store_timestamp(), messages as u16);
        self.batch_unit = Some(BatchUnit { unit, store_timestamp, base, messages });
    }

    /// What other brokers need of the record last given to [`place`](Self::place), if it belongs to a topic of batches.
    pub(crate) fn batch_unit(&self) -> Option<BatchUnit> {
        self.batch_unit
    }

    /// Adds what other brokers need of the record last given to [`place`](Self::place), if that is something else.
    pub(crate) fn push_for_others(&self, placement: &Placement) -> io::Result<()> {
        let queue = self.handle(placement.queue);
        match self.batch_unit {
            Some(unit) => self.queues.batch().push(queue.topic(), queue.queue_id(), unit),
            None => Ok(()),
        }
    }

    /// The queues that `INNER_MULTI_DISPATCH` names (`docs/spec/02-store.md` §4.9, §7.3).
    fn place_in_light_queues(&mut self, topic: &str, queue_id: i32, facts: &Facts<'_>, unit: Unit) {
        let (Some(names), Some(offsets)) = (facts.multi_dispatch, facts.multi_offsets) else { return };
        if !may_go_to_light_queues(topic) || names.split(',').count() != offsets.split(',').count() {
            return;
        }
        for (name, offset) in names.split(',').zip(offsets.split(',')) {
            if let Ok(queue_offset) = offset.parse()
                && is_plausible(queue_offset, unit.physical_offset)
                && is_directory_name(name)
                && !self.deleted.covers(name, unit.physical_offset)
            {
                let queue_id = if name.starts_with(LMQ_PREFIX) { 0 } else { queue_id };
                let queue = self.queue(None, name, queue_id);
                self.further.push(Placement { queue, queue_offset, unit });
            }
        }
    }

    /// Where the record last given to [`place`](Self::place) goes as well.
    pub(crate) fn further_placements(&self) -> &[Placement] {
        &self.further
    }

    fn hash_keys(&mut self, topic: &str, facts: &Facts<'_>) {
        if facts.unique_key.is_none() && facts.keys.is_none() {
            return;
        }
        if self.topic.0 != topic {
            self.topic = (topic.to_owned(), topic_hash(topic));
        }
        let hash = |key: &str| key_hash(java_string_hash_onto(self.topic.1, key));
        self.key_hashes.extend(facts.unique_key.map(hash));
        let keys = facts.keys.unwrap_or_default().split(' ').filter(|key| !key.is_empty());
        self.key_hashes.extend(keys.map(hash));
    }

    /// The tags code of a delayed message (`docs/spec/02-store.md` §6.2).
    fn delivery_time(&self, topic: &str, facts: &Facts<'_>, store_timestamp: i64) -> Option<i64> {
        if topic != SCHEDULE_TOPIC {
            return None;
        }
        let level: usize = facts.delay?.parse().ok().filter(|level| *level > 0)?;
        let level = level.min(self.delay_levels_ms.len());
        let delay = level.checked_sub(1).and_then(|at| self.delay_levels_ms.get(at)).copied().unwrap_or(1000);
        Some(store_timestamp + delay)
    }

    /// Adds the keys of the record last given to [`place`](Self::place) to the index.
    pub(crate) fn index(&self, record: &RecordView<'_>) -> io::Result<()> {
        match &self.index {
            Some(index) => index.put(&self.key_hashes, record.physical_offset(), record.store_timestamp()),
            None => Ok(()),
        }
    }

    /// Hashes the keys although there is no index to write to.
    pub(crate) fn hashing_keys(mut self) -> Self {
        self.hashes_keys = true;
        self
    }

    /// The hashes of the keys of the record last given to [`place`](Self::place).
    pub(crate) fn key_hashes(&self) -> &[u32] {
        &self.key_hashes
    }

    /// Whether the record last given to [`place`](Self::place) has keys to index.
    pub(crate) fn has_keys(&self) -> bool {
        !self.key_hashes.is_empty()
    }

    /// Another broker gave the first offset of a queue again: there, its topic was deleted, and one of the same name has this message.
    /// Whatever the queue has had is gone.
    fn begin_anew(&self, placement: &Placement) -> io::Result<()> {
        let queue = self.handle(placement.queue);
        let last = queue.unit_at(queue.max_offset() - 1)?.map_or(0, |last| last.not_behind());
        tracing::info!(
            topic = queue.topic(),
            queue = queue.queue_id(),
            "the topic was deleted and made again"
        );
        // Below this offset, and before the deletion, lies all that the queue has had.
        if !self.deleted.covers(queue.topic(), last) {
            self.deleted.add(std::iter::once((queue.topic(), last + 1))).map_err(io::Error::other)?;
        }
        self.queues.without_writing(|| {
            queue.cut(0)?;
            queue.reset();
            Ok(())
        })
    }

    /// Adds a unit to its queue.
    pub(crate) fn push(&self, placement: &Placement) -> Pushed {
        let queue = self.handle(placement.queue);
        let pushed = queue.push(placement.queue_offset, placement.unit);
        if pushed.list {
            self.queues.list(queue, placement.unit.physical_offset);
        }
        pushed
    }

    /// Says that its queue did not take a message, because of its queue offset.
    pub(crate) fn report_implausible(&self, placement: &Placement) {
        let queue = self.handle(placement.queue);
        let Placement { queue_offset, unit, .. } = placement;
        report_implausible(queue.topic(), queue.queue_id(), *queue_offset, unit.physical_offset);
    }
}

/// The record's message can be found by its place in the log and its keys, but not by its queue offset.
fn report_implausible(topic: &str, queue: i32, queue_offset: i64, physical_offset: u64) {
    tracing::error!(
        topic,
        queue,
        queue_offset,
        physical_offset,
        "the record's queue offset is damaged: it is left out of its queue"
    );
}

/// Whether a topic can have a directory of its name. The broker checks topics before it stores anything; a log from elsewhere
/// may hold whatever it likes.
fn is_directory_name(topic: &str) -> bool {
    !matches!(topic, "" | "." | "..") && !topic.contains(['/', '\0']) && topic.len() <= 255
}

impl<'a> Facts<'a> {
    fn of(encoded: &'a [u8]) -> Facts<'a> {
        let mut facts = Facts::default();
        for (name, value) in properties::iter_bytes(encoded) {
            let fact = match name {
                b"TAGS" => &mut facts.tags,
                b"KEYS" => &mut facts.keys,
                b"UNIQ_KEY" => &mut facts.unique_key,
                b"DELAY" => &mut facts.delay,
                b"INNER_MULTI_DISPATCH" => &mut facts.multi_dispatch,
                b"INNER_MULTI_QUEUE_OFFSET" => &mut facts.multi_offsets,
                _ => continue,
            };
            *fact = std::str::from_utf8(value).ok().or(*fact);
        }
        facts
    }
}

/// A message on its way to its queue.
#[derive(Debug, Clone, Copy)]
struct Placed {
    placement: Placement,
    store_timestamp: i64,
}

/// The state of dispatching.
pub(crate) struct Dispatcher {
    projector: Projector,
    /// How far it got.
    position: u64,
    /// The file at `position`.
    segment: Option<Arc<Segment>>,
    /// Store time of the last record dispatched.
    last_timestamp: i64,
    listener: Option<Arc<dyn ArrivalListener>>,
    /// The queues of the records that are being dispatched, as far as they are known.
    found: Vec<Option<u32>>,
    /// Messages on their way to their queues.
    placed: Vec<Placed>,
    arrivals: Vec<Arrival>,
    /// Units pushed in this round.
    units: usize,
    /// Where indexing stands still because no index file could be created, and when to try again.
    index_stalled: Option<(u64, Instant)>,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Dispatcher {
    pub(crate) fn new(projector: Projector, position: u64, last_timestamp: i64) -> Self {
        Dispatcher {
            projector,
            position,
            segment: None,
            last_timestamp,
            listener: None,
            found: Vec::new(),
            placed: Vec::new(),
            arrivals: Vec::new(),
            units: 0,
            index_stalled: None,
        }
    }

    pub(crate) fn set_listener(&mut self, listener: Arc<dyn ArrivalListener>) {
        self.listener = Some(listener);
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn last_timestamp(&self) -> i64 {
        self.last_timestamp
    }

    /// Below this offset everything is in the index.
    pub(crate) fn indexed(&self) -> u64 {
        self.index_stalled.map_or(self.position, |(from, _)| from)
    }

    /// Dispatches records up to `target`, at most one round of them. The caller publishes [`position`](Self::position).
    ///
    /// `partly` says that the last record below `target` may be there in part only: then it stays until the rest comes.
    pub(crate) fn round(&mut self, log: &CommitLog, target: u64, partly: bool) {
        let following = log.is_following();
        let stop = target.min(self.position.saturating_add(ROUND_BYTES));
        self.try_index_again(log);
        while self.position < stop
            && let Some(segment) = self.segment_at(log)
        {
            let before = self.position;
            let mut group: SmallVec<[_; GROUP]> = SmallVec::new();
            while let Some(record) = self.next_record(&segment, stop, target, partly) {
                group.push(record);
                if group.len() == GROUP {
                    self.dispatch(&group, &segment, following);
                    group.clear();
                }
            }
            self.dispatch(&group, &segment, following);
            if self.position == before {
                break;
            }
        }
        if following {
            log.set_last_timestamp(self.last_timestamp);
        }
        self.write_if_overfull();
        if !self.arrivals.is_empty() {
            if let Some(listener) = &self.listener {
                listener.arrived(&self.arrivals);
            }
            self.arrivals.clear();
        }
    }

    /// The record at the position, which then is behind it; `None` at `stop`, at the file's end, and where the rest of a record is yet to come.
    fn next_record<'s>(
        &mut self,
        segment: &'s Segment,
        stop: u64,
        target: u64,
        partly: bool,
    ) -> Option<RecordView<'s>> {
        while self.position < stop.min(segment.end()) {
            let position = self.position;
            match entry_at(segment, position, target) {
                Entry::Record(record) if record.physical_offset() == position => {
                    let size = record.size();
                    self.position = position + size as u64;
                    // Records that follow each other are often of one length, and it is the memory that this waits for most.
                    segment.prefetch_record(position + RECORDS_AHEAD * size as u64, size);
                    return Some(record);
                }
                Entry::Blank if segment.end() <= target => self.position = segment.end(),
                Entry::Blank => return None,
                Entry::Bad(error) if partly && is_begin(&error, segment, position) => return None,
                entry => {
                    // We wrote these bytes; if they are wrong now, the memory or the file was tampered with.
                    let reason = match entry {
                        Entry::Bad(error) => error.to_string(),
                        _ => "it says that it lies elsewhere".to_owned(),
                    };
                    let next =
                        crate::recovery::find_whole(segment, position + 1, target).unwrap_or(segment.end());
                    tracing::error!(file = %segment.path().display(), offset = position, next, reason, "damaged record skipped in dispatch");
                    self.position = next.min(target);
                }
            }
        }
        None
    }

    /// The thread that writes the queues can't keep up: no more is taken into memory than goes to the files.
    fn write_if_overfull(&mut self) {
        let queues = &self.projector.queues;
        queues.pushed(std::mem::take(&mut self.units));
        if queues.is_overfull()
            && let Err(error) = queues.write_out(self.position, Extent::Oldest(QUEUES_WHEN_OVERFULL))
        {
            tracing::error!(%error, "can't write the consume queues");
        }
    }

    fn segment_at(&mut self, log: &CommitLog) -> Option<Arc<Segment>> {
        let holds = |segment: &Arc<Segment>| segment.base() <= self.position && self.position < segment.end();
        if !self.segment.as_ref().is_some_and(holds) {
            self.segment = log.files.segment_at(self.position);
            if self.segment.is_none() {
                // A file is missing here: go on where the log does.
                self.segment = log.files.segment_from(self.position);
                self.position = self.segment.as_ref()?.base();
            }
        }
        self.segment.clone()
    }

    /// Dispatches records that follow each other in the file. Each step is taken for all of them, while the processor fetches what the
    /// next step needs: of many queues none is in its caches.
    fn dispatch(&mut self, records: &[RecordView<'_>], segment: &Arc<Segment>, following: bool) {
        let mut found = std::mem::take(&mut self.found);
        self.projector.find(records, &mut found);
        for (record, found) in records.iter().zip(&found) {
            self.place(record, *found);
            if self.placed.len() >= GROUP {
                // A record may be a whole batch.
                self.push_placed(segment, following);
            }
        }
        self.found = found;
        self.push_placed(segment, following);
    }

    /// Indexes a record, and takes note of where it goes.
    fn place(&mut self, record: &RecordView<'_>, found: Option<u32>) {
        let store_timestamp = record.store_timestamp();
        let placed = self.placed.len();
        if let Some(placement) = self.projector.place_in(record, found) {
            if let Err(error) = self.projector.push_for_others(&placement) {
                let topic = self.projector.handle(placement.queue).topic();
                tracing::error!(topic, %error, "can't read the batch consume queue");
            }
            self.placed.push(Placed { placement, store_timestamp });
        }
        let further = self.projector.further_placements().iter();
        self.placed.extend(further.map(|placement| Placed { placement: *placement, store_timestamp }));
        for placed in &self.placed[placed..] {
            self.projector.handle(placed.placement.queue).prefetch();
        }
        self.last_timestamp = store_timestamp;
        if self.index_stalled.is_none()
            && let Err(error) = self.projector.index(record)
        {
            tracing::error!(%error, from = record.physical_offset(), "can't create an index file: messages are not found by key until that works again");
            self.index_stalled = Some((record.physical_offset(), Instant::now()));
        }
    }

    /// Gives the queues what was [placed](Self::place); `segment` is the file with all of it.
    fn push_placed(&mut self, segment: &Arc<Segment>, following: bool) {
        for placed in &self.placed {
            self.projector.handle(placed.placement.queue).prefetch_next_unit();
        }
        for placed in &self.placed {
            self.push(&placed.placement, following);
        }
        self.units += self.placed.len();
        // Pairs with `ConsumeQueue::watch`: either we see the watcher, or the watcher sees the message.
        fence(Ordering::SeqCst);
        for Placed { placement, store_timestamp } in self.placed.drain(..) {
            let queue = self.projector.handle(placement.queue);
            if self.listener.is_some() && queue.is_arrival_watched() {
                let Placement { queue_offset, unit, .. } = placement;
                let position = (unit.physical_offset - segment.base()) as u32;
                self.arrivals.push(Arrival {
                    record: RecordSlice::new(segment, position, unit.size),
                    queue: Arc::clone(queue),
                    queue_offset,
                    tags_code: unit.tags_code,
                    store_timestamp,
                });
            }
        }
    }

    fn push(&self, placement: &Placement, following: bool) {
        let queue = self.projector.handle(placement.queue);
        let mut pushed = self.projector.push(placement);
        if following && pushed.known && placement.queue_offset == 0 {
            match self.projector.begin_anew(placement) {
                Ok(()) => pushed = self.projector.push(placement),
                Err(error) => {
                    tracing::error!(topic = queue.topic(), %error, "can't delete the files of a queue whose topic was deleted");
                }
            }
        }
        if following && !pushed.implausible {
            queue.raise_next_offset(placement.queue_offset + 1);
        }
        if pushed.implausible {
            self.projector.report_implausible(placement);
        }
        if pushed.holes > 0 {
            tracing::warn!(
                topic = queue.topic(),
                queue = queue.queue_id(),
                queue_offset = placement.queue_offset,
                missing = pushed.holes,
                "messages are missing in front of this one"
            );
        }
        if pushed.overdue
            && let Err(error) = self.projector.queues.write_queue(queue)
        {
            tracing::error!(topic = queue.topic(), %error, "can't write the consume queue");
        }
    }

    /// Looks at everything behind what was dispatched, up to `end`: the queues' offsets go on behind it, confirmed or not. Returns the
    /// end of the last whole record.
    ///
    /// Only when nobody appends.
    pub(crate) fn look_ahead(&mut self, log: &CommitLog, end: u64) -> u64 {
        self.walk_on(log, end, |queue, placement| {
            queue.raise_next_offset(placement.queue_offset + 1);
        })
    }

    /// As [`look_ahead`](Self::look_ahead), when everything from `from` on is about to be erased: its queue offsets can be given again.
    pub(crate) fn forget_offsets(&mut self, log: &CommitLog, from: u64, end: u64) {
        self.walk_on(log, end, |queue, placement| {
            if placement.unit.physical_offset >= from {
                queue.lower_next_offset(placement.queue_offset);
            }
        });
    }

    fn walk_on(&mut self, log: &CommitLog, end: u64, see: impl Fn(&ConsumeQueue, &Placement)) -> u64 {
        // What is cut may be a whole file.
        self.segment = None;
        let mut whole = self.position;
        let mut at = self.position;
        while at < end {
            let Some(segment) = log.files.segment_at(at).or_else(|| log.files.segment_from(at)) else {
                break;
            };
            at = at.max(segment.base());
            match entry_at(&segment, at, end) {
                Entry::Record(record) if record.physical_offset() == at => {
                    let placement = self.projector.place(&record);
                    for placement in placement.iter().chain(self.projector.further_placements()) {
                        see(self.projector.handle(placement.queue), placement);
                    }
                    log.set_last_timestamp(record.store_timestamp());
                    at += record.size() as u64;
                    whole = at;
                }
                Entry::Blank if segment.end() <= end => {
                    at = segment.end();
                    whole = at;
                }
                _ => {
                    let next = crate::recovery::find_whole(&segment, at + 1, end.min(segment.end()));
                    at = next.unwrap_or(segment.end());
                }
            }
        }
        whole
    }

    /// Catches up with indexing, if it stood still.
    fn try_index_again(&mut self, log: &CommitLog) {
        let Some((mut from, tried)) = self.index_stalled else { return };
        if tried.elapsed() < Duration::from_secs(1) {
            return;
        }
        while from < self.position {
            let Some(segment) = log.files.segment_at(from).or_else(|| log.files.segment_from(from)) else {
                break;
            };
            from = from.max(segment.base());
            match entry_at(&segment, from, self.position) {
                Entry::Record(record) => {
                    self.projector.place(&record);
                    if self.projector.index(&record).is_err() {
                        self.index_stalled = Some((from, Instant::now()));
                        return;
                    }
                    from += record.size() as u64;
                }
                Entry::Blank => from = segment.end(),
                Entry::Bad(_) => {
                    from = crate::recovery::find_whole(&segment, from + 1, self.position)
                        .unwrap_or(segment.end());
                }
            }
        }
        tracing::info!("indexing has caught up");
        self.index_stalled = None;
    }
}

/// Whether what is at `position` looks like the front of a record that ends in this file.
fn is_begin(error: &RecordError, segment: &Segment, position: u64) -> bool {
    match error {
        RecordError::Short { needed, .. } => *needed as u64 <= segment.end() - position,
        _ => false,
    }
}

/// Lets the dispatcher's thread sleep without being woken for every append.
///
/// While something happens it naps for a millisecond at a time and needs no wake-up, except for an urgent one (a message for
/// a queue that somebody watches). Only after some time without work does it sleep until woken.
#[derive(Debug)]
pub(crate) struct DispatchBell {
    state: AtomicU8,
    thread: Mutex<Option<std::thread::Thread>>,
}

const AWAKE: u8 = 0;
const NAPPING: u8 = 1;
const ASLEEP: u8 = 2;
const NAP: Duration = Duration::from_millis(1);
const NAPS: u32 = 50;

impl DispatchBell {
    pub(crate) fn new() -> Self {
        DispatchBell { state: AtomicU8::new(AWAKE), thread: Mutex::new(None) }
    }

    /// To be called after the confirmed offset rose.
    #[inline]
    pub(crate) fn ring(&self, urgent: bool) {
        // Pairs with the fence in `rest`: either we see that it sleeps, or it sees the new offset.
        fence(Ordering::SeqCst);
        let state = self.state.load(Ordering::Relaxed);
        if state == ASLEEP || (urgent && state == NAPPING) {
            self.wake();
        }
    }

    #[cold]
    pub(crate) fn wake(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }

    /// Called by the dispatcher's thread when it found nothing to do, the `idle_rounds`th time in a row. `is_idle` is asked
    /// once more before sleeping.
    pub(crate) fn rest(&self, idle_rounds: u32, is_idle: impl Fn() -> bool) {
        if self.thread.lock().is_none() {
            *self.thread.lock() = Some(std::thread::current());
        }
        let asleep = idle_rounds > NAPS;
        self.state.store(if asleep { ASLEEP } else { NAPPING }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if is_idle() {
            if asleep {
                std::thread::park();
            } else {
                std::thread::park_timeout(NAP);
            }
        }
        self.state.store(AWAKE, Ordering::Relaxed);
    }
}
