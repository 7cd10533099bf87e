//! Reading some of a store's messages.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use ferromq_protocol::message::{RecordView, java_string_hash_onto};

use crate::commit_log::{Entry, entry_at};
use crate::error::{FileError, OpenError};
use crate::index::{IndexFile, index_files, key_hash, topic_hash};
use crate::log::Segment;
use crate::lookup::has_key;
use crate::queue::ConsumeQueues;
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
            && self.queue_offsets.contains(&record.queue_offset())
            && self.key.as_deref().is_none_or(|key| has_key(record, key, false))
    }
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
                let directory = self.options.root.join("consumequeue");
                if directory.join(topic).join(queue_id.to_string()).is_dir() {
                    return self.messages_of_queue(selection, topic, queue_id, take);
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
        topic: &str,
        queue_id: i32,
        take: &mut dyn FnMut(Selected<'_>) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        let directory = self.options.root.join("consumequeue");
        let units = self.options.consume_queue_file_units();
        let queue = ConsumeQueues::new(&self.options).get_or_create(topic, queue_id);
        let mut files = QueueFiles::new(directory.clone(), units);
        let failed = || FileError::at("read", &directory);
        // Where the log files begin that the times and offsets allow.
        let of_interest = self.files_of_interest(selection)?;
        let first_physical = self.files.get(of_interest.start).map_or(u64::MAX, |file| file.base);
        let first_physical = first_physical.max(selection.physical.start);
        let end_physical = self.files.get(of_interest.end).map_or(u64::MAX, |file| file.base);
        let end_physical = end_physical.min(selection.physical.end);
        // The queue says which messages are in it: those of a light queue have another topic.
        let wanted =
            Selection { topic: None, queue_id: None, queue_offsets: i64::MIN..i64::MAX, ..selection.clone() };
        let mut reader = Reader::new(self);
        for (base, _) in files.list(&queue).map_err(failed())? {
            if !base.is_multiple_of(files.file_bytes()) {
                continue;
            }
            let first = (base / files.unit_bytes()) as i64;
            let end = first.saturating_add(files.units_per_file()).min(selection.queue_offsets.end);
            let mut offset = first.max(selection.queue_offsets.start);
            // Units ascend along the log: a file whose last one lies before it has none.
            let last = files.unit(&queue, end - 1).map_err(failed())?;
            if last.is_message() && last.physical_offset < first_physical {
                continue;
            }
            while offset < end {
                let unit = files.unit(&queue, offset).map_err(failed())?;
                if !unit.is_written() {
                    offset = files.skip_unwritten(&queue, offset, end).map_err(failed())?;
                    continue;
                }
                offset += 1;
                if !unit.is_message() || unit.physical_offset < first_physical {
                    continue;
                }
                if unit.physical_offset >= end_physical {
                    return Ok(());
                }
                let flow = reader.with(unit.physical_offset, |found| match found {
                    Ok(record) if wanted.means(record) => take(Selected::Message(record)),
                    Ok(_) => ControlFlow::Continue(()),
                    Err(reason) => take(Selected::Damage { offset: unit.physical_offset, reason }),
                })?;
                if flow.is_break() {
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
