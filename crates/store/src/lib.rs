//! The message store: one log, and what is derived from it.
//!
//! # What lives here
//!
//! Everything that is on the disk of a broker and about messages: the commit log, the consume queues, the key index, and the
//! files that tell a start how the last run ended. Formats are those of RocketMQ 4.9 and 5.3 (`docs/spec/02-store.md`): a
//! directory that the Java broker wrote opens here, and the other way round (`interop/` lets them take turns).
//!
//! **The log is the truth; everything else is a projection of it.** A message is acknowledged because of what is in the commit
//! log. One dispatcher (`dispatch`) reads the log in order and adds each message's unit to its consume queue and its keys to the
//! index. What is missing or wrong in a projection is laid anew from the log (`rebuild`, and `repair` while the store is open).
//!
//! **Waterlines** ([`Waterline`]) are offsets of the log that only rise and can be awaited: `appended` (in the mapped file: survives
//! the death of the process), `flushed` (on the disk), `confirmed` (may be shown to consumers), `dispatched` (in the queues).
//! An acknowledgement waits for the ones that its policy names.
//!
//! # Life of a message
//!
//! 1. The caller encodes every message that one socket read brought into an [`AppendBatch`].
//! 2. [`Store::append`] takes the log's lock once, fills in queue offsets, physical offsets and the store time, copies the bytes
//!    into the mapped file and raises `appended`. The file and its pages were made ready by a thread that works
//!    ahead (`log`): no system call, no page fault, no allocation.
//! 3. Another thread forces the log to the disk: a group commit under SYNC_FLUSH, every 500 ms else.
//! 4. The dispatcher adds units and keys up to `confirmed` and reports arrivals in [watched](ConsumeQueue::watch) queues. A
//!    [`Store::read`] that finds its queue's end dispatches itself, so a pull sees every message whose send was answered before.
//! 5. [`Store::read`] finds units by queue offset, filters, and hands out the records where they lie in the mapping
//!    ([`RecordSlice`] keeps the file alive). With [`Residency::HotOnly`] it touches no page that is not in memory.
//!
//! # Promises
//!
//! * Nothing acknowledged is lost when the process is killed; nothing that was flushed is lost when the machine is.
//! * A record counts only if it is whole: lengths, position, body CRC, topic, properties. A torn tail is cut and erased. Damage in the
//!   middle costs the damaged records, which are logged with file and offset, and nothing behind them.
//! * No queue offset is given twice. Where a message is gone, its place in the queue stays as a hole that readers skip.
//! * A deleted topic stays deleted, whatever is rebuilt; one of the same name begins at 0.
//! * A full disk refuses appends with an error that says what to do, never with a signal; reads go on.
//!
//! # Where to read
//!
//! [`Store`] (what there is to call), then `commit_log` (the append), `dispatch`, `queue/consume_queue` (tail in memory, rest in
//! files), `rebuild` (recovery). `mapped` is the only module with `unsafe` code, `disk` the only one that changes
//! files. `background` lists the threads.
//!
//! This crate knows nothing of the network, of request codes, of topics' settings, nor of any async runtime.

mod append;
mod background;
mod checkpoint;
mod clock;
mod cold_pages;
mod commit_log;
mod deleted;
mod deletion;
mod disk;
mod dispatch;
mod error;
mod index;
mod late;
mod lock_file;
mod log;
mod lookup;
mod mapped;
mod marks;
pub mod offline;
mod open;
mod options;
mod queue;
mod read;
mod read_ahead;
mod rebuild;
mod recovery;
mod repair;
mod replica;
mod residency;
mod retention;
mod scan;
mod shared;
#[cfg(feature = "simulation")]
pub mod simulation;
mod stats;
mod store;
mod waterline;

pub use append::{AppendBatch, Outcome};
pub use dispatch::{Arrival, ArrivalListener};
pub use error::{AppendError, DiskFull, FileError, OpenError, PushError, ReadError, ReplicaError};
pub use late::is_light_queue;
pub use log::{RecordSlice, Segment};
pub use options::{ConfirmedBy, DiskUsageSource, FlushDiskType, StoreOptions};
pub use queue::{ConsumeQueue, QueueWatch};
pub use read::{
    AcceptAll, Boundary, MessageFilter, QueueUnit, ReadOutcome, ReadRequest, ReadStatus, RecordRef,
    RecordSink, Residency,
};
pub use replica::LogBytes;
pub use stats::{PUT_LATENCY_BOUNDS_MS, StoreStats};
pub use store::{QueryResult, Store};
pub use waterline::{Waterline, WaterlineWait};
