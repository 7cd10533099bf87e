//! Lines of JSON with a checksum, so that damage is never taken for state.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Eight hex digits and a blank.
const SEAL_BYTES: usize = 9;

/// A file that a controller can't go on from.
#[derive(Debug, Error)]
#[error(
    "{}, line {line}: {reason}. Other controllers of the group have the same state: stop this one, move its folder away, \
     and start it again",
    file.display()
)]
pub(crate) struct DamagedFile {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

impl DamagedFile {
    pub(super) fn new(file: &Path, line: usize, reason: impl ToString) -> Self {
        Self { file: file.to_owned(), line, reason: reason.to_string() }
    }
}

/// Appends `value` as one sealed line.
pub(super) fn seal<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let json = serde_json::to_vec(value)?;
    out.extend_from_slice(format!("{:08x} ", crc32fast::hash(&json)).as_bytes());
    out.extend_from_slice(&json);
    out.push(b'\n');
    Ok(())
}

/// Reads a sealed line, without its end.
pub(super) fn open<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    let Some((seal, json)) = line.split_at_checked(SEAL_BYTES) else {
        return Err("the line is too short".to_owned());
    };
    let crc = std::str::from_utf8(&seal[..SEAL_BYTES - 1]).ok();
    if crc.and_then(|crc| u32::from_str_radix(crc, 16).ok()) != Some(crc32fast::hash(json)) {
        return Err("the checksum does not fit".to_owned());
    }
    serde_json::from_slice(json).map_err(|error| error.to_string())
}
