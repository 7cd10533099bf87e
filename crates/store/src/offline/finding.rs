//! What a check can find.

use std::path::PathBuf;

/// Something in a store that is not as it should be, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// Byte in the file, if it is about one place.
    pub position: Option<u64>,
    /// What is wrong there.
    pub problem: Problem,
}

/// What a finding means for the owner of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong, but somebody may want to know.
    Note,
    /// Something that is derived from the log is missing or wrong. `ferromq store rebuild`, or the next start after an unclean
    /// stop, makes it anew; until then consumers may miss messages.
    Repairable,
    /// Bytes of the log are damaged or gone: what was in them is lost, unless there is a copy of the store.
    Damage,
}

/// What can be wrong. Offsets are physical offsets (in the log) unless they are called queue offsets; ranges are half-open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A log file has another length than `mappedFileSizeCommitLog`, or does not lie where one can.
    #[error("the log file has {len} bytes, mappedFileSizeCommitLog is {expected}")]
    LogFileLength {
        /// Bytes it has.
        len: u64,
        /// Bytes it should have.
        expected: u64,
    },
    /// A log file's name is no multiple of `mappedFileSizeCommitLog`.
    #[error("the log file's name is no multiple of mappedFileSizeCommitLog ({expected})")]
    LogFileName {
        /// The size of log files.
        expected: u64,
    },
    /// Log files are missing.
    #[error("log files are missing: nothing is there from offset {from} to {to}")]
    LogFilesMissing {
        /// First offset that is missing.
        from: u64,
        /// Offset behind the last one that is missing.
        to: u64,
    },
    /// Nothing whole begins here, and goes on behind it.
    #[error("damaged log at offset {offset}: {reason}; whole again at {whole_again_at}")]
    LogDamaged {
        /// Where a record should begin.
        offset: u64,
        /// Where the next whole record begins.
        whole_again_at: u64,
        /// What is wrong with the first damaged record.
        reason: String,
    },
    /// Zeros are where the BLANK record at the end of a log file should be.
    #[error("the mark of the file's end at offset {offset} is missing; nothing is lost")]
    EndMarkMissing {
        /// Where it should be.
        offset: u64,
    },
    /// The log ends with something that is no whole record.
    #[error("the log's tail at offset {offset} is not whole: {reason}; the next start cuts it")]
    TornTail {
        /// Where the next record goes.
        offset: u64,
        /// What is wrong with what lies there.
        reason: String,
    },
    /// A file of a consume queue has another length than `mappedFileSizeConsumeQueue`.
    #[error("the queue file has {len} bytes, mappedFileSizeConsumeQueue is {expected}")]
    QueueFileLength {
        /// Bytes it has.
        len: u64,
        /// Bytes it should have.
        expected: u64,
    },
    /// A queue file's name is no multiple of `mappedFileSizeConsumeQueue`.
    #[error("the queue file's name is no multiple of mappedFileSizeConsumeQueue ({expected})")]
    QueueFileName {
        /// The size of queue files.
        expected: u64,
    },
    /// Messages are in the log, and their units are not in their queue.
    #[error(
        "queue {topic}-{queue_id} lacks the units {from}..{to}; the first message lies at offset {physical_offset}"
    )]
    UnitsMissing {
        /// Topic.
        topic: String,
        /// Queue of the topic.
        queue_id: i32,
        /// First queue offset.
        from: i64,
        /// Queue offset behind the last.
        to: i64,
        /// Where the first of the messages lies.
        physical_offset: u64,
    },
    /// Units are not those of their messages.
    #[error(
        "queue {topic}-{queue_id} has wrong units {from}..{to}; the first message lies at offset {physical_offset}"
    )]
    UnitsWrong {
        /// Topic.
        topic: String,
        /// Queue of the topic.
        queue_id: i32,
        /// First queue offset.
        from: i64,
        /// Queue offset behind the last.
        to: i64,
        /// Where the first of the messages lies.
        physical_offset: u64,
    },
    /// Units point to where no message of their queue begins.
    #[error(
        "units {from}..{to} of queue {topic}-{queue_id} belong to no message; the first points to offset {physical_offset}"
    )]
    UnitsWithoutMessage {
        /// Topic.
        topic: String,
        /// Queue of the topic.
        queue_id: i32,
        /// First queue offset.
        from: i64,
        /// Queue offset behind the last.
        to: i64,
        /// Where the first of the units points to.
        physical_offset: u64,
    },
    /// Units point to the log's end or behind it: their messages are gone, if they ever were there.
    #[error(
        "units {from}..{to} of queue {topic}-{queue_id} point behind the log's end; the first to offset {physical_offset}"
    )]
    UnitsBehindEnd {
        /// Topic.
        topic: String,
        /// Queue of the topic.
        queue_id: i32,
        /// First queue offset.
        from: i64,
        /// Queue offset behind the last.
        to: i64,
        /// Where the first of the units points to.
        physical_offset: u64,
    },
    /// Units point to what is damaged or missing in the log: which messages were lost.
    #[error(
        "messages {from}..{to} of queue {topic}-{queue_id} are lost with the damaged log; the first lay at offset {physical_offset}"
    )]
    MessagesLost {
        /// Topic.
        topic: String,
        /// Queue of the topic.
        queue_id: i32,
        /// First queue offset.
        from: i64,
        /// Queue offset behind the last.
        to: i64,
        /// Where the first of the messages lay.
        physical_offset: u64,
    },
    /// Queue offsets between two messages have neither a message nor a unit.
    #[error(
        "queue {topic}-{queue_id} has neither messages nor units at {from}..{to}; the next message lies at offset {physical_offset}"
    )]
    OffsetsEmpty {
        /// Topic.
        topic: String,
        /// Queue of the topic.
        queue_id: i32,
        /// First queue offset.
        from: i64,
        /// Queue offset behind the last.
        to: i64,
        /// Where the message behind them lies.
        physical_offset: u64,
    },
    /// A record has a queue offset that an earlier one has.
    #[error(
        "the record at offset {physical_offset} repeats offset {queue_offset} of queue {topic}-{queue_id}"
    )]
    OffsetRepeated {
        /// Topic.
        topic: String,
        /// Queue of the topic.
        queue_id: i32,
        /// The queue offset.
        queue_offset: i64,
        /// Where the record lies.
        physical_offset: u64,
    },
    /// An index file can't be used.
    #[error("the index file can't be used: {reason}")]
    IndexFile {
        /// Why.
        reason: String,
    },
    /// Links between the units of an index file are wrong: keys are not found.
    #[error("{links} links of the index file are wrong, first that to unit {unit}: keys are not found")]
    IndexLinks {
        /// How many.
        links: u64,
        /// The unit that the first of them should lead to.
        unit: u32,
    },
    /// Units of an index file point to where no message with such a key begins.
    #[error(
        "{units} units of the index belong to no message, first unit {unit}, which points to offset {physical_offset}"
    )]
    IndexUnitsWithoutMessage {
        /// How many.
        units: u64,
        /// Number of the first in its file.
        unit: u32,
        /// Where it points to.
        physical_offset: u64,
    },
    /// Messages have keys by which the index does not find them.
    #[error("the index lacks keys of {messages} messages at offsets {from}..={to}")]
    KeysMissing {
        /// How many messages.
        messages: u64,
        /// The first of them.
        from: u64,
        /// The last of them.
        to: u64,
    },
    /// A file that says how the store was left, or a configuration file, can't be used or can't be right.
    #[error("{reason}")]
    StateFile {
        /// What is wrong with it.
        reason: String,
    },
    /// The store was not closed in an orderly way.
    #[error("the last stop was not clean: the next start recovers")]
    NotClosed,
    /// A file that does not belong here.
    #[error("not a file of a store: ignored")]
    ForeignFile,
    /// A log file without a byte.
    #[error("empty log file: the next start removes it")]
    EmptyLogFile,
    /// A topic that was deleted, as far as can be seen, has messages in the log.
    #[error(
        "topic {topic} has no queues and is no topic of the broker: it was deleted, its {records} messages expire with the log"
    )]
    DeletedTopic {
        /// Topic.
        topic: String,
        /// Its messages in the log.
        records: u64,
    },
}

impl Problem {
    /// A short name that does not change: what findings are counted by.
    pub fn kind(&self) -> &'static str {
        match self {
            Problem::LogFileLength { .. } => "log-file-length",
            Problem::LogFileName { .. } => "log-file-name",
            Problem::LogFilesMissing { .. } => "log-files-missing",
            Problem::LogDamaged { .. } => "log-damaged",
            Problem::EndMarkMissing { .. } => "end-mark-missing",
            Problem::TornTail { .. } => "torn-tail",
            Problem::QueueFileLength { .. } => "queue-file-length",
            Problem::QueueFileName { .. } => "queue-file-name",
            Problem::UnitsMissing { .. } => "units-missing",
            Problem::UnitsWrong { .. } => "units-wrong",
            Problem::UnitsWithoutMessage { .. } => "units-without-message",
            Problem::UnitsBehindEnd { .. } => "units-behind-end",
            Problem::MessagesLost { .. } => "messages-lost",
            Problem::OffsetsEmpty { .. } => "offsets-empty",
            Problem::OffsetRepeated { .. } => "offset-repeated",
            Problem::IndexFile { .. } => "index-file",
            Problem::IndexLinks { .. } => "index-links",
            Problem::IndexUnitsWithoutMessage { .. } => "index-units-without-message",
            Problem::KeysMissing { .. } => "keys-missing",
            Problem::StateFile { .. } => "state-file",
            Problem::NotClosed => "not-closed",
            Problem::ForeignFile => "foreign-file",
            Problem::EmptyLogFile => "empty-log-file",
            Problem::DeletedTopic { .. } => "deleted-topic",
        }
    }

    /// What it means.
    pub fn severity(&self) -> Severity {
        match self {
            Problem::LogFileLength { .. }
            | Problem::LogFileName { .. }
            | Problem::LogFilesMissing { .. }
            | Problem::LogDamaged { .. }
            | Problem::TornTail { .. }
            | Problem::UnitsBehindEnd { .. }
            | Problem::MessagesLost { .. }
            | Problem::OffsetsEmpty { .. }
            | Problem::OffsetRepeated { .. } => Severity::Damage,
            Problem::NotClosed
            | Problem::ForeignFile
            | Problem::EmptyLogFile
            | Problem::DeletedTopic { .. } => Severity::Note,
            _ => Severity::Repairable,
        }
    }
}
