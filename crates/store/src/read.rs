//! Reading messages of a queue (`docs/spec/02-store.md` §13.1 to §13.3): the types; the scan itself is in `scan`.

use crate::log::RecordSlice;

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    /// First queue offset.
    pub offset: i64,
    /// Most messages.
    pub max_messages: usize,
    /// Most bytes (the first message is returned whatever its size); `usize::MAX` for the settings' limits.
    pub max_bytes: usize,
    /// Whether the read may wait for the disk.
    pub residency: Residency,
}

/// Whether a read may wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// Never touch a page that is not in memory: end with [`ReadStatus::Cold`] instead. For worker threads.
    HotOnly,
    /// Read whatever it takes. For threads that may block.
    Any,
}

/// How a read ended. Names as in RocketMQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStatus {
    /// At least one message was handed out.
    Found,
    /// There are messages, none of those looked at passed the filter.
    NoMatchedMessage,
    /// The messages looked at are no longer in the log.
    MessageWasRemoving,
    /// The queue has no entry at that offset although it should: go on at `next_offset`.
    OffsetFoundNull,
    /// The offset is beyond the queue's end.
    OffsetOverflowBadly,
    /// The offset is the queue's end: nothing yet.
    OffsetOverflowOne,
    /// The offset is before the queue's begin.
    OffsetTooSmall,
    /// The queue never had a message.
    NoMessageInQueue,
    /// Only with [`Residency::HotOnly`]: the first message is not in memory. Ask again with [`Residency::Any`] from a
    /// thread that may block.
    Cold,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOutcome {
    /// How it ended.
    pub status: ReadStatus,
    /// Where the next read should begin.
    pub next_offset: i64,
    /// First offset of the queue.
    pub min_offset: i64,
    /// Offset behind the queue's last message.
    pub max_offset: i64,
    /// Messages handed out.
    pub messages: usize,
    /// Bytes handed out.
    pub bytes: usize,
    /// Messages that were read and refused by [`MessageFilter::matches_record`].
    pub filtered: usize,
    /// The reader lags so far that a slave should serve it (`suggestPullingFromSlave`).
    pub suggest_slave: bool,
}

/// Decides which messages of a queue a reader gets.
pub trait MessageFilter {
    /// First test, by the unit's tags code alone. For `SCHEDULE_TOPIC_XXXX` that is the delivery time.
    fn matches_unit(&self, tags_code: i64) -> bool {
        let _ = tags_code;
        true
    }

    /// Second test, on the record's bytes ([`RecordView`](ferromq_protocol::message::RecordView) reads them).
    fn matches_record(&self, record: &[u8]) -> bool {
        let _ = record;
        true
    }
}

/// The filter that lets everything pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct AcceptAll;

impl MessageFilter for AcceptAll {}

/// Takes the messages that a read finds.
pub trait RecordSink {
    /// One message, in the order of the queue. `record` keeps the log file alive while it is held; who copies the
    /// bytes instead pays less for small messages.
    fn push(&mut self, queue_offset: i64, record: RecordRef<'_>);
}

/// Copies the bytes of every message.
impl RecordSink for Vec<u8> {
    fn push(&mut self, _queue_offset: i64, record: RecordRef<'_>) {
        self.extend_from_slice(record.bytes());
    }
}

/// Keeps every message in place.
impl RecordSink for Vec<RecordSlice> {
    fn push(&mut self, _queue_offset: i64, record: RecordRef<'_>) {
        self.push(record.to_slice());
    }
}

/// A message inside of a mapped log file, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct RecordRef<'a> {
    pub(crate) segment: &'a std::sync::Arc<crate::log::Segment>,
    pub(crate) position: u32,
    pub(crate) size: u32,
}

impl<'a> RecordRef<'a> {
    /// The record's bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.segment.bytes(self.position, self.size)
    }

    /// Where the record lies in the log.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        let begin = self.segment.base() + u64::from(self.position);
        begin..begin + u64::from(self.size)
    }

    /// A handle that keeps the record's file mapped.
    pub fn to_slice(&self) -> RecordSlice {
        RecordSlice::new(self.segment, self.position, self.size)
    }
}

/// A unit of a consume queue, for admin dumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueUnit {
    /// Its offset in the queue.
    pub queue_offset: i64,
    /// Where the record lies in the log.
    pub physical_offset: u64,
    /// Length of the record.
    pub size: u32,
    /// Tags code (`docs/spec/02-store.md` §6.2).
    pub tags_code: i64,
}

/// Which message a look-up by time means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The first message stored at or after the time; the queue's end if there is none.
    #[default]
    Lower,
    /// The last message stored at or before the time; the queue's first if there is none.
    Upper,
}
