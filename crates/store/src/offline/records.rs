//! Reading some of a store's messages.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use ferromq_protocol::message::{RecordView, java_string_hash_onto, sysflag};

use crate::commit_log::{Entry, entry_at};
use crate::error::{FileError, OpenError};
use crate::index::{IndexFile, index_files, key_hash, topic_hash};
use crate::late::inner_num;
use crate::log::Segment;
use crate::lookup::has_key;
use crate::queue::{BatchUnit, ConsumeQueue, ConsumeQueues};
use crate::recovery::{Met, find_whole, walk};

use super::OfflineStore;
use super::queue_files::QueueFiles;

/// Log files that stay mapped while records are read out of order.
const SEGMENTS_HELD: usize = 8;

/// Which messages are meant: those for which everything holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Physical offsets at which they begin.
    pub physical: Range<u64>,
    /// Topic.
    pub topic: Option<String>,
    /// Queue of the topic.
    pub queue_id: Option<i32>,
    /// Queue offsets.
    pub queue_offsets: Range<i64>,
    /// Store times, ms, both included. As in any look-up by time they are taken to ascend from file to file of the log.
    pub store_times_ms: (i64, i64),
    /// One of the message's keys, or its unique key.
    pub key: Option<String>,
    /// Read the log even if queue or index could tell where the messages are.
    pub read_log: bool,
}

impl Default for Selection {
    /// All messages.
    fn default() -> Self {
        Selection {
            physical: 0..u64::MAX,
            topic: None,
            queue_id: None,
            queue_offsets: i64::MIN..i64::MAX,
            store_times_ms: (i64::MIN, i64::MAX),
            key: None,
            read_log: false,
        }
    }
}

impl Selection {
    /// Whether a message is meant.
    fn means(&self, record: &RecordView<'_>) -> bool {
        let (begin, end) = self.store_times_ms;
        self.physical.contains(&record.physical_offset())
            && (begin..=end).contains(&record.store_timestamp())
            && self.topic.as_deref().is_none_or(|topic| record.topic_bytes() == topic.as_bytes())
            && self.queue_id.is_none_or(|queue_id| record.queue_id() == queue_id)
            && overlap(&queue_offsets_of(record), &self.queue_offsets)
            && self.key.as_deref().is_none_or(|key| has_key(record, key, false))
    }
}

/// The queue offsets of a record: a batch in one record has several.
fn queue_offsets_of(record: &RecordView<'_>) -> Range<i64> {
    let messages = match record.sys_flag() & sysflag::INNER_BATCH {
        0 => 1,
        _ => inner_num(record.properties()).unwrap_or(1),
    };
    let base = record.queue_offset();
    base..base.saturating_add(i64::from(messages))
}

fn overlap(a: &Range<i64>, b: &Range<i64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// What a selection brings.
#[derive(Debug)]
pub enum Selected<'a> {
    /// A message, checked to be whole.
    Message(&'a RecordView<'a>),
    /// Nothing whole lies where one should be.
    Damage {
        /// Where it should begin.
        offset: u64,
        /// What is wrong.
        reason: &'a str,
    },
}

impl OfflineStore {
    /// Hands the messages of a selection to `take`, which may stop. If topic and queue are given, by queue offset as the queue's
    /// files have them; else in the order of the log: if topic and key are given, those that the index knows; else by reading
    /// the log.
    pub fn messages(
        &self,
        selection: &Selection,
        take: &mut dyn FnMut(Selected<'_>) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        if !selection.read_log {
            if let (Some(topic), Some(queue_id)) = (&selection.topic, selection.queue_id) {
                let queues = ConsumeQueues::new(&self.options);
                let queue = queues.get_or_create(topic, queue_id);
                // These every broker writes, and so they are never behind.
                if queues.batch().contains(topic) && queue.batch_directory().is_dir() {
                    return self.messages_of_batch_queue(selection, &queue, take);
                }
                if queue.directory().is_dir() {
                    return self.messages_of_queue(selection, &queue, take);
                }
            }
            if let (Some(topic), Some(key)) = (&selection.topic, &selection.key)
                && let Some(offsets) = self.look_up(topic, key)?
            {
                return self.messages_at(offsets, selection, take);
            }
        }
        self.messages_in_log(selection, take)
    }

    fn messages_in_log(
        &self,
        selection: &Selection,
        take: &mut dyn FnMut(Selected<'_>) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        let files = self.files_of_interest(selection)?;
        let mut from = selection.physical.start;
        if let Some(first) = files.clone().next() {
            let segment = self.segment(first)?;
            // Any offset may be given; a record begins at the next one that proves itself.
            from = match from > segment.base() && from < segment.end() {
                true => find_whole(&segment, from, segment.end()).unwrap_or(segment.end()),
                false => from.max(segment.base()),
            };
        }
        let segments = files.map(|number| self.segment(number));
        walk(segments, from, |met| {
            let flow = match met {
                Met::Record(record, _) if record.physical_offset() >= selection.physical.end => {
                    ControlFlow::Break(())
                }
                Met::Record(record, _) if selection.means(record) => take(Selected::Message(record)),
                Met::Record(..) | Met::EndMarkLost { .. } => ControlFlow::Continue(()),
                Met::Damage { at: offset, reason, .. } | Met::TornTail { at: offset, reason, .. } => {
                    take(Selected::Damage { offset, reason })
                }
                Met::FilesMissing { from: offset, .. } => {
                    take(Selected::Damage { offset, reason: "log files are missing" })
                }
            };
            Ok::<_, OpenError>(flow.is_continue())
        })?;
        Ok(())
    }

    /// Numbers of the log files that may hold messages of the selection, as far as their first records tell.
    fn files_of_interest(&self, selection: &Selection) -> Result<Range<usize>, OpenError> {
        let mut begin = self.files.partition_point(|file| file.base + file.len <= selection.physical.start);
        let mut end = self.files.partition_point(|file| file.base < selection.physical.end);
        if selection.store_times_ms != (i64::MIN, i64::MAX) {
            let (earliest, latest) = selection.store_times_ms;
            // What begins before a file whose first message is earlier than the time can't be late enough.
            while begin + 1 < end && self.first_time(begin + 1)?.is_some_and(|time| time < earliest) {
                begin += 1;
            }
            while begin + 1 < end && self.first_time(end - 1)?.is_some_and(|time| time > latest) {
                end -= 1;
            }
        }
        Ok(begin..end.max(begin))
    }

    /// Store time of the record at a file's begin.
    fn first_time(&self, number: usize) -> Result<Option<i64>, OpenError> {
        let segment = self.segment(number)?;
        match entry_at(&segment, segment.base(), segment.end()) {
            Entry::Record(record) if record.check(segment.base()).is_ok() => {
                Ok(Some(record.store_timestamp()))
            }
            _ => Ok(None),
        }
    }

    fn messages_of_queue(
        &self,
        selection: &Selection,
        queue: &ConsumeQueue,
        take: &mut dyn FnMut(Selected<'_>) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        let mut files = QueueFiles::of_queues(&self.options);
        let directory = files.directory(queue);
        let failed = || FileError::at("read", &directory);
        let mut walk = QueueWalk::new(self, selection)?;
        for range in files.ranges(queue).map_err(failed())? {
            let end = range.end.min(selection.queue_offsets.end);
            let mut offset = range.start.max(selection.queue_offsets.start);
            // Units ascend along the log: a file whose last one lies before it has none.
            let last = files.unit(queue, end - 1).map_err(failed())?;
            if last.is_message() && last.physical_offset < walk.physical.start {
                continue;
            }
            while offset < end {
                let unit = files.unit(queue, offset).map_err(failed())?;
                if !unit.is_written() {
                    offset = files.skip_unwritten(queue, offset, end).map_err(failed())?;
                    continue;
                }
                offset += 1;
                if unit.is_message() && walk.visit(unit.physical_offset, take)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn messages_of_batch_queue(
        &self,
        selection: &Selection,
        queue: &ConsumeQueue,
        take: &mut dyn FnMut(Selected<'_>) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        let mut files = QueueFiles::of_batch_queues(&self.options);
        let directory = files.directory(queue);
        let failed = || FileError::at("read", &directory);
        let mut walk = QueueWalk::new(self, selection)?;
        for range in files.ranges(queue).map_err(failed())? {
            let last = BatchUnit::decode(&files.bytes(queue, range.end - 1).map_err(failed())?);
            if last.is_some_and(|last| last.unit.physical_offset < walk.physical.start) {
                continue;
            }
            let mut index = range.start;
            while index < range.end {
                let Some(unit) = BatchUnit::decode(&files.bytes(queue, index).map_err(failed())?) else {
                    index = files.skip_unwritten(queue, index, range.end).map_err(failed())?;
                    continue;
                };
                index += 1;
                if overlap(&(unit.base..unit.end()), &selection.queue_offsets)
                    && walk.visit(unit.unit.physical_offset, take)?.is_break()
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Where messages with a key lie, by the index; `None` if there is none.
    fn look_up(&self, topic: &str, key: &str) -> Result<Option<Vec<u64>>, OpenError> {
        let directory = self.options.root.join("index");
        if !self.options.index_enabled || !directory.is_dir() {
            return Ok(None);
        }
        let hash = key_hash(java_string_hash_onto(topic_hash(topic), key));
        let mut offsets = Vec::new();
        for path in index_files(&directory)? {
            let file = IndexFile::open_read_only(&path, self.options.index_slots, self.options.index_units);
            let Some(file) = file.ok().filter(|file| file.is_plausible()) else { return Ok(None) };
            file.walk(hash, |hit| {
                offsets.push(hit.physical_offset);
                true
            });
        }
        offsets.sort_unstable();
        offsets.dedup();
        // Expired ones stay in the index for a while.
        offsets.retain(|offset| *offset >= self.min_offset());
        Ok(Some(offsets))
    }

    fn messages_at(
        &self,
        offsets: Vec<u64>,
        selection: &Selection,
        take: &mut dyn FnMut(Selected<'_>) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        let mut reader = Reader::new(self);
        for offset in offsets {
            let flow = reader.with(offset, |found| match found {
                Ok(record) if selection.means(record) => take(Selected::Message(record)),
                Ok(_) => ControlFlow::Continue(()),
                Err(reason) => take(Selected::Damage { offset, reason }),
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Reads the messages to which the units of a queue point.
struct QueueWalk<'a> {
    reader: Reader<'a>,
    wanted: Selection,
    /// Where in the log the selection may have messages, as far as times and offsets tell.
    physical: Range<u64>,
    /// The record read last: the units of a batch follow each other.
    last: Option<u64>,
}

impl<'a> QueueWalk<'a> {
    fn new(store: &'a OfflineStore, selection: &Selection) -> Result<Self, OpenError> {
        let of_interest = store.files_of_interest(selection)?;
        let base_of = |number: usize| store.files.get(number).map_or(u64::MAX, |file| file.base);
        let physical = base_of(of_interest.start).max(selection.physical.start)
            ..base_of(of_interest.end).min(selection.physical.end);
        // The queue says which messages are in it: those of a light queue have another topic.
        let wanted =
            Selection { topic: None, queue_id: None, queue_offsets: i64::MIN..i64::MAX, ..selection.clone() };
        Ok(QueueWalk { reader: Reader::new(store), wanted, physical, last: None })
    }

    /// The message of the next unit. Units ascend along the log.
    fn visit(
        &mut self,
        offset: u64,
        take: &mut dyn FnMut(Selected<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, OpenError> {
        if offset >= self.physical.end {
            return Ok(ControlFlow::Break(()));
        }
        if offset < self.physical.start || self.last.replace(offset) == Some(offset) {
            return Ok(ControlFlow::Continue(()));
        }
        let wanted = &self.wanted;
        self.reader.with(offset, |found| match found {
            Ok(record) if wanted.means(record) => take(Selected::Message(record)),
            Ok(_) => ControlFlow::Continue(()),
            Err(reason) => take(Selected::Damage { offset, reason }),
        })
    }
}

/// Reads records at any offsets, with a few log files mapped.
struct Reader<'a> {
    store: &'a OfflineStore,
    /// The one used last is the last.
    segments: Vec<Arc<Segment>>,
}

impl<'a> Reader<'a> {
    fn new(store: &'a OfflineStore) -> Self {
        Reader { store, segments: Vec::new() }
    }

    /// Hands the whole record at an offset to `take`, or why there is none.
    fn with<T>(
        &mut self,
        offset: u64,
        take: impl FnOnce(Result<&RecordView<'_>, &str>) -> T,
    ) -> Result<T, OpenError> {
        let Some(segment) = self.segment_at(offset)? else {
            return Ok(take(Err("the log has no file there")));
        };
        let found = match entry_at(&segment, offset, segment.end()) {
            Entry::Record(record) => record.check(offset).map(|()| record).map_err(|error| error.to_string()),
            Entry::Blank => Err("the end of a log file".to_owned()),
            Entry::Bad(error) => Err(error.to_string()),
        };
        Ok(take(found.as_ref().map_err(String::as_str)))
    }

    fn segment_at(&mut self, offset: u64) -> Result<Option<Arc<Segment>>, OpenError> {
        let holds = |segment: &Arc<Segment>| segment.base() <= offset && offset < segment.end();
        if let Some(at) = self.segments.iter().position(holds) {
            let segment = self.segments.remove(at);
            self.segments.push(Arc::clone(&segment));
            return Ok(Some(segment));
        }
        let behind = self.store.files.partition_point(|file| file.base <= offset);
        let Some(number) = behind.checked_sub(1) else { return Ok(None) };
        let segment = self.store.segment(number)?;
        if !holds(&segment) {
            return Ok(None);
        }
        if self.segments.len() >= SEGMENTS_HELD {
            self.segments.remove(0);
        }
        self.segments.push(Arc::clone(&segment));
        Ok(Some(segment))
    }
}
