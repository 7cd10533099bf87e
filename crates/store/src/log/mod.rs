//! The log as a row of mapped files: allocate ahead, append, read, flush, truncate, delete.

mod segment;

pub use segment::{RecordSlice, Segment};
