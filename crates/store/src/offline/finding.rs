//! What a check can find.

use std::fmt;
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

/// Neighbouring places of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRange {
    /// Topic.
    pub topic: String,
    /// Queue of the topic.
    pub queue_id: i32,
    /// First queue offset.
    pub from: i64,
    /// Queue offset behind the last.
    pub to: i64,
    /// Where in the log the first message lies, or should lie.
    pub physical_offset: u64,
}

impl fmt::Display for QueueRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueueRange { topic, queue_id, from, to, physical_offset: _ } = self;
        write!(f, "{from}..{to} of queue {topic}-{queue_id}")
    }
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
    /// A file of a queue has another length than the setting says.
    #[error("the queue file has {len} bytes, {setting} is {expected}")]
    QueueFileLength {
        /// Bytes it has.
        len: u64,
        /// `mappedFileSizeConsumeQueue`, or that of batch consume queues.
        setting: &'static str,
        /// Bytes it should have.
        expected: u64,
    },
    /// A queue file's name is no multiple of the setting for its length.
    #[error("the queue file's name is no multiple of {setting} ({expected})")]
    QueueFileName {
        /// `mappedFileSizeConsumeQueue`, or that of batch consume queues.
        setting: &'static str,
        /// The size of queue files.
        expected: u64,
    },
    /// Messages are in the log, and their units are not in their queue.
    #[error("units {0} are missing; the first message lies at offset {at}", at = .0.physical_offset)]
    UnitsMissing(QueueRange),
    /// Units are not those of their messages.
    #[error("units {0} are wrong; the first message lies at offset {at}", at = .0.physical_offset)]
    UnitsWrong(QueueRange),
    /// Units point to where no message of their queue begins.
    #[error("units {0} belong to no message; the first points to offset {at}", at = .0.physical_offset)]
    UnitsWithoutMessage(QueueRange),
    /// Units point to the log's end or behind it: their messages are gone, if they ever were there.
    #[error("units {0} point behind the log's end; the first to offset {at}", at = .0.physical_offset)]
    UnitsBehindEnd(QueueRange),
    /// Units point to what is damaged or missing in the log: which messages were lost.
    #[error("messages {0} are lost with the damaged log; the first lay at offset {at}", at = .0.physical_offset)]
    MessagesLost(QueueRange),
    /// Queue offsets between two messages have neither a message nor a unit. The range's physical offset is that of the message
    /// behind them.
    #[error("there are neither messages nor units {0}; the next message lies at offset {at}", at = .0.physical_offset)]
    OffsetsEmpty(QueueRange),
    /// Records have queue offsets that earlier ones have.
    #[error("messages {0} repeat offsets of earlier ones; the first lies at offset {at}", at = .0.physical_offset)]
    OffsetsRepeated(QueueRange),
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
            Problem::UnitsMissing(_) => "units-missing",
            Problem::UnitsWrong(_) => "units-wrong",
            Problem::UnitsWithoutMessage(_) => "units-without-message",
            Problem::UnitsBehindEnd(_) => "units-behind-end",
            Problem::MessagesLost(_) => "messages-lost",
            Problem::OffsetsEmpty(_) => "offsets-empty",
            Problem::OffsetsRepeated(_) => "offset-repeated",
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
            | Problem::UnitsBehindEnd(_)
            | Problem::MessagesLost(_)
            | Problem::OffsetsEmpty(_)
            | Problem::OffsetsRepeated(_) => Severity::Damage,
            Problem::NotClosed
            | Problem::ForeignFile
            | Problem::EmptyLogFile
            | Problem::DeletedTopic { .. } => Severity::Note,
            _ => Severity::Repairable,
        }
    }
}
