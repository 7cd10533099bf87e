//! Look-ups that are not a pull: by time, by key (`docs/spec/02-store.md` §13.5, §8.4).

use std::io;

use ferromq_protocol::message::{RecordView, java_string_hash_onto, properties};

use crate::commit_log::CommitLog;
use crate::deleted::DeletedTopics;
use crate::index::{KeyIndex, key_hash, topic_hash};
use crate::log::RecordSlice;
use crate::queue::{ConsumeQueue, Unit};
use crate::read::Boundary;

/// The record at a physical offset, if one of `size` bytes (or of the size it says) lies there as it says.
pub(crate) fn record_at(log: &CommitLog, offset: u64, size: Option<u32>) -> Option<RecordSlice> {
    let size = match size {
        Some(size) => size,
        None => {
            let segment = log.locate(offset, 4)?;
            let position = (offset - segment.base()) as u32;
            let declared = segment.bytes(position, 4);
            u32::from_be_bytes([declared[0], declared[1], declared[2], declared[3]])
        }
    };
    let segment = log.locate(offset, size)?;
    let slice = RecordSlice::new(&segment, (offset - segment.base()) as u32, size);
    let record = RecordView::parse(&slice).ok()?;
    (record.size() == size as usize && record.physical_offset() == offset).then_some(slice)
}

/// As [`record_at`], and every byte of it is as it was written: where the log is damaged, keys may still lead to what is left.
pub(crate) fn whole_record_at(log: &CommitLog, offset: u64) -> Option<RecordSlice> {
    record_at(log, offset, None).filter(|slice| RecordView::whole(slice, offset).is_ok())
}

/// Store time of the message that a unit points to.
pub(crate) fn store_time(log: &CommitLog, unit: Unit) -> Option<i64> {
    let record = record_at(log, unit.physical_offset, Some(unit.size))?;
    RecordView::parse(&record).ok().map(|record| record.store_timestamp())
}

/// Queue offset by store time. Relies on store times that do not fall along a queue.
pub(crate) fn offset_by_time(
    log: &CommitLog,
    queue: &ConsumeQueue,
    timestamp_ms: i64,
    boundary: Boundary,
) -> io::Result<i64> {
    let (min, max) = (queue.min_offset(), queue.max_offset());
    // First place whose message, or the next one if there is none in it, is late enough.
    let (mut low, mut high) = (min, max);
    while low < high {
        let middle = low + (high - low) / 2;
        let time = match queue.message_from(middle, high)? {
            Some((_, unit)) => store_time(log, unit).unwrap_or(i64::MIN),
            None => i64::MAX,
        };
        let behind = match boundary {
            Boundary::Lower => time >= timestamp_ms,
            Boundary::Upper => time > timestamp_ms,
        };
        if behind {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    match boundary {
        Boundary::Lower => Ok(queue.message_from(low, max)?.map_or(max, |(offset, _)| offset)),
        Boundary::Upper => {
            // The last message in front of that place.
            let mut offset = low;
            while offset > min {
                offset -= 1;
                if queue.unit_at(offset)?.is_some_and(Unit::is_message) {
                    return Ok(offset);
                }
            }
            Ok(min)
        }
    }
}

/// A look-up by key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyQuery<'a> {
    pub(crate) topic: &'a str,
    pub(crate) key: &'a str,
    pub(crate) max: usize,
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
    /// Only `UNIQ_KEY` counts.
    pub(crate) unique: bool,
}

/// The newest messages that the query means, by ascending physical offset.
pub(crate) fn query(
    log: &CommitLog,
    index: &KeyIndex,
    deleted: &DeletedTopics,
    query: KeyQuery<'_>,
) -> Vec<RecordSlice> {
    let hash = key_hash(java_string_hash_onto(topic_hash(query.topic), query.key));
    let mut found: Vec<RecordSlice> = Vec::new();
    if query.max == 0 {
        return found;
    }
    index.look_up(hash, query.begin_ms, |physical_offset| {
        if found.last().is_some_and(|last| last.physical_offset() <= physical_offset)
            || deleted.covers(query.topic, physical_offset)
        {
            return true;
        }
        // The index knows hashes only; the record knows what was meant.
        let Some(slice) = whole_record_at(log, physical_offset) else { return true };
        let Ok(record) = RecordView::parse(&slice) else { return true };
        if record.store_timestamp() < query.begin_ms {
            return false;
        }
        if record.store_timestamp() <= query.end_ms && query.matches(&record) {
            found.push(slice);
        }
        found.len() < query.max
    });
    found.reverse();
    found
}

impl KeyQuery<'_> {
    fn matches(&self, record: &RecordView<'_>) -> bool {
        record.topic() == Some(self.topic) && has_key(record, self.key, self.unique)
    }
}

/// Whether a message has a key, as `UNIQ_KEY` or, unless only that counts (`unique`), among its `KEYS`.
pub(crate) fn has_key(record: &RecordView<'_>, key: &str, unique: bool) -> bool {
    let keys = || record.property(properties::KEYS).is_some_and(|keys| keys.split(' ').any(|one| one == key));
    record.property(properties::UNIQ_KEY) == Some(key) || (!unique && keys())
}
