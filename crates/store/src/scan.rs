//! The read of a queue: find units, filter, hand out records (`docs/spec/02-store.md` §13.1, §13.2).

use std::io;
use std::sync::Arc;

use ferromq_protocol::message::{RecordView, sysflag};
use ferromq_protocol::names::LMQ_PREFIX;

use crate::commit_log::CommitLog;
use crate::late::inner_num;
use crate::log::Segment;
use crate::options::StoreOptions;
use crate::queue::{ConsumeQueue, UNIT, Unit};
use crate::read::{MessageFilter, ReadOutcome, ReadRequest, ReadStatus, RecordRef, RecordSink, Residency};
use crate::read_ahead::{self, Memory};

/// Units fetched at a time.
const UNITS: usize = 64;
/// Where a record has its queue offset and its physical offset.
const QUEUE_OFFSET: std::ops::Range<usize> = 20..28;
const PHYSICAL_OFFSET: std::ops::Range<usize> = 28..36;
/// Where it has the lowest byte of its flags.
const SYS_FLAG_LOW: usize = 39;

/// Limits of one read, from the settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLimits {
    in_memory: (usize, usize),
    on_disk: (usize, usize),
    /// How far behind the log's end a message counts as in memory.
    memory_bytes: u64,
    scan_units: i64,
}

impl ReadLimits {
    pub(crate) fn new(options: &StoreOptions, physical_memory: u64) -> Self {
        ReadLimits {
            in_memory: (options.max_transfer_count_in_memory, options.max_transfer_bytes_in_memory),
            on_disk: (options.max_transfer_count_on_disk, options.max_transfer_bytes_on_disk),
            memory_bytes: physical_memory / 100 * u64::from(options.access_message_in_memory_max_ratio),
            scan_units: (options.max_filter_message_size / UNIT) as i64,
        }
    }

    /// The queue offset up to which a read may look.
    pub(crate) fn scan_end(&self, request: ReadRequest) -> i64 {
        request.offset.saturating_add(self.scan_units.max(request.max_messages as i64))
    }
}

/// One read under way.
struct Reader<'a> {
    log: &'a CommitLog,
    log_end: u64,
    /// The file of the record before: mostly the next one is in it too.
    segment: Option<Arc<Segment>>,
}

/// Reads a queue whose begin is up to date.
pub(crate) fn read<F: MessageFilter + ?Sized, S: RecordSink + ?Sized>(
    log: &CommitLog,
    limits: &ReadLimits,
    memory: Memory<'_>,
    queue: &ConsumeQueue,
    request: ReadRequest,
    filter: &F,
    out: &mut S,
) -> ReadOutcome {
    let mut outcome =
        ReadOutcome { status: ReadStatus::NoMatchedMessage, ..ReadOutcome::cold(queue, request.offset) };
    let (min, max) = (outcome.min_offset, outcome.max_offset);
    let off = match request.offset {
        _ if max == 0 => Some((ReadStatus::NoMessageInQueue, 0)),
        offset if offset < min => Some((ReadStatus::OffsetTooSmall, min)),
        offset if offset == max => Some((ReadStatus::OffsetOverflowOne, offset)),
        offset if offset > max => Some((ReadStatus::OffsetOverflowBadly, max)),
        _ => None,
    };
    if let Some((status, next_offset)) = off {
        return ReadOutcome { status, next_offset, ..outcome };
    }

    let log_end = log.appended.get();
    // Records in a light queue hold the offset that they have in their own queue.
    let light = queue.topic().starts_with(LMQ_PREFIX);
    let hot_only = request.residency == Residency::HotOnly;
    let mut reader = Reader { log, log_end, segment: None };
    let mut look = memory.blocks.look();
    let mut brought_in = request.offset;
    let mut last_pulled = 0;
    // A read ends with the queue's file, as in Java.
    let file_end = queue.next_file_start(request.offset).min(max);
    let scan_end = limits.scan_end(request);
    let mut units = [[0; UNIT]; UNITS];
    'scan: while outcome.next_offset < file_end && outcome.next_offset < scan_end {
        let first = outcome.next_offset;
        let wanted = (file_end.min(scan_end) - first).min(UNITS as i64) as usize;
        let count = match queue.read_units(first, &mut units[..wanted], hot_only) {
            Ok(0) => {
                if outcome.messages == 0 {
                    outcome.status = ReadStatus::OffsetFoundNull;
                    outcome.next_offset = queue.next_file_start(first).min(max);
                }
                break;
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                outcome.turn_cold();
                break;
            }
            Err(error) => {
                tracing::error!(topic = queue.topic(), queue = queue.queue_id(), offset = first, %error, "can't read the consume queue");
                break;
            }
        };
        for (index, unit) in units[..count].iter().enumerate() {
            let unit = Unit::decode(unit);
            let queue_offset = first + index as i64;
            if queue_offset < outcome.next_offset {
                // One more message of the batch that was handed out as a whole.
                continue;
            }
            if unit.is_message() && reader.is_full(limits, &request, &outcome, unit) {
                break 'scan;
            }
            if !unit.is_message() || !filter.matches_unit(unit.tags_code) {
                outcome.next_offset = queue_offset + 1;
                continue;
            }
            last_pulled = unit.physical_offset;
            let Some(record) = reader.locate(unit) else {
                outcome.next_offset = queue_offset + 1;
                if outcome.messages == 0 {
                    outcome.status = ReadStatus::MessageWasRemoving;
                }
                continue;
            };
            if queue_offset >= brought_in && !look.finds(record.segment, record.range()) {
                if hot_only {
                    outcome.turn_cold();
                    break 'scan;
                }
                // At the worst the record is waited for page by page.
                let messages = request.max_messages;
                let ahead = read_ahead::bring_in(log, queue, queue_offset, messages, filter, memory);
                brought_in = ahead.unwrap_or(queue_offset).max(queue_offset + 1);
            }
            let bytes = record.bytes();
            let Some(end) = end_of_record(bytes, unit, queue_offset, light) else {
                outcome.next_offset = queue_offset + 1;
                tracing::error!(
                    topic = queue.topic(),
                    queue = queue.queue_id(),
                    queue_offset,
                    physical_offset = unit.physical_offset,
                    "the queue points to something else than its message: skipped"
                );
                continue;
            };
            if end > max {
                // The rest of the batch becomes visible in this moment.
                break 'scan;
            }
            outcome.next_offset = end;
            if !filter.matches_record(bytes) {
                outcome.filtered += 1;
                continue;
            }
            outcome.messages += (end - queue_offset) as usize;
            outcome.bytes += bytes.len();
            outcome.status = ReadStatus::Found;
            out.push(queue_offset, record);
        }
    }
    outcome.suggest_slave = log_end.saturating_sub(last_pulled) > limits.memory_bytes;
    outcome
}

/// The queue offset behind the record's message, or behind the last one if it holds a batch. `None` if the bytes are not the
/// record that the unit means, by what its front says.
fn end_of_record(bytes: &[u8], unit: Unit, queue_offset: i64, light: bool) -> Option<i64> {
    let is_there = bytes.len() > SYS_FLAG_LOW
        && bytes[..4] == unit.size.to_be_bytes()
        && bytes[PHYSICAL_OFFSET] == unit.physical_offset.to_be_bytes();
    if !is_there {
        return None;
    }
    if i32::from(bytes[SYS_FLAG_LOW]) & sysflag::INNER_BATCH != 0 {
        let record = RecordView::parse(bytes).ok()?;
        let end = record.queue_offset() + i64::from(inner_num(record.properties())?);
        return (record.queue_offset()..end).contains(&queue_offset).then_some(end);
    }
    (light || bytes[QUEUE_OFFSET] == queue_offset.to_be_bytes()).then_some(queue_offset + 1)
}

impl Reader<'_> {
    fn locate(&mut self, unit: Unit) -> Option<RecordRef<'_>> {
        let end = unit.physical_offset + u64::from(unit.size);
        let holds = |segment: &Arc<Segment>| segment.base() <= unit.physical_offset && end <= segment.end();
        if end > self.log_end || !self.segment.as_ref().is_some_and(holds) {
            self.segment = self.log.locate(unit.physical_offset, unit.size);
        }
        let segment = self.segment.as_ref()?;
        Some(RecordRef { segment, position: (unit.physical_offset - segment.base()) as u32, size: unit.size })
    }

    fn is_full(&self, limits: &ReadLimits, request: &ReadRequest, outcome: &ReadOutcome, unit: Unit) -> bool {
        if outcome.messages == 0 {
            return false;
        }
        let in_memory = self.log_end.saturating_sub(unit.physical_offset) <= limits.memory_bytes;
        let (count_max, bytes_max) = if in_memory { limits.in_memory } else { limits.on_disk };
        outcome.messages >= request.max_messages.min(count_max)
            || outcome.bytes + unit.size as usize > request.max_bytes.min(bytes_max)
    }
}

impl ReadOutcome {
    /// Nothing was looked at, because that could mean to wait for the disk.
    pub(crate) fn cold(queue: &ConsumeQueue, offset: i64) -> ReadOutcome {
        Self::without_messages(queue, ReadStatus::Cold, offset)
    }

    /// The outcome of a read that looked at no message, for whatever reason `status` gives.
    pub fn without_messages(queue: &ConsumeQueue, status: ReadStatus, next_offset: i64) -> ReadOutcome {
        ReadOutcome {
            status,
            next_offset,
            min_offset: queue.min_offset(),
            max_offset: queue.max_offset(),
            messages: 0,
            bytes: 0,
            filtered: 0,
            suggest_slave: false,
        }
    }

    /// The next message is not in memory: what there is is handed out, or it is said so.
    fn turn_cold(&mut self) {
        if self.messages == 0 {
            self.status = ReadStatus::Cold;
        }
    }
}
