//! The message store: one log, and what is derived from it.

mod append;
mod background;
mod checkpoint;
mod clock;
mod commit_log;
mod deleted;
mod dispatch;
mod error;
mod index;
mod lock_file;
mod log;
mod lookup;
mod mapped;
mod marks;
mod open;
mod options;
mod queue;
mod read;
mod rebuild;
mod recovery;
mod retention;
mod scan;
mod shared;
mod stats;
mod store;
mod waterline;

pub use append::{AppendBatch, Outcome};
pub use dispatch::{Arrival, ArrivalListener};
pub use error::{AppendError, DiskFull, FileError, OpenError, PushError, ReadError};
pub use log::{RecordSlice, Segment};
pub use options::{DiskUsageSource, FlushDiskType, StoreOptions};
pub use queue::{ConsumeQueue, QueueWatch};
pub use read::{
    AcceptAll, Boundary, MessageFilter, QueueUnit, ReadOutcome, ReadRequest, ReadStatus, RecordRef, RecordSink, Residency,
};
pub use stats::{PUT_LATENCY_BOUNDS_MS, StoreStats};
pub use store::{QueryResult, Store};
pub use waterline::{Waterline, WaterlineWait};
