//! The state on the disk.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::sealed::{self, DamagedFile};
use super::{LogId, StoredMembership};
use crate::state::BrokerSets;

/// The state after some entry of the log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct StateAt {
    /// The last entry that was applied.
    pub(super) applied: Option<LogId>,
    pub(super) membership: StoredMembership,
    pub(super) sets: BrokerSets,
}

/// The file that a state is kept in.
#[derive(Clone, Debug)]
pub(super) struct SnapshotFile {
    path: PathBuf,
}

impl SnapshotFile {
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join("snapshot") }
    }

    /// What was saved last, if anything was.
    pub(super) fn read(&self) -> Result<Option<StateAt>, DamagedFile> {
        let damaged = |reason: String| DamagedFile::new(&self.path, 1, reason);
        let bytes = match std::fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| damaged(error.to_string()))?,
        };
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        sealed::open(line).map(Some).map_err(damaged)
    }

    pub(super) fn save(&self, state: &StateAt) -> io::Result<()> {
        let mut bytes = Vec::new();
        sealed::seal(state, &mut bytes)?;
        ferromq_settings::replace(&self.path, &bytes)
    }
}
