//! The log as a row of mapped files: allocate ahead, append, read, flush, truncate, delete.
//!
//! [`MappedLog`] knows which files there are, [`Ahead`] is the thread that creates the next one and faults pages in before
//! an append needs them.

mod ahead;
mod allocate;
mod journal;
mod leaving;
mod mapped_log;
mod segment;

pub(crate) use ahead::{Ahead, Demand, Warmth};
pub(crate) use allocate::reserve_blocks;
pub(crate) use journal::Journal;
pub(crate) use leaving::Leaving;
pub(crate) use mapped_log::{LoadedFile, MappedLog, load_files};
pub use segment::{RecordSlice, Segment};

/// Name of the file that begins at `offset`, everywhere in a store: 20 digits.
pub(crate) fn file_name(offset: u64) -> String {
    format!("{offset:020}")
}

/// Offset in a file's name; `None` if the name is not one.
pub(crate) fn parse_file_name(name: &std::ffi::OsStr) -> Option<u64> {
    let name = name.to_str()?;
    (name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit())).then(|| name.parse().ok())?
}
