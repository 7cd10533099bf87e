//! The small files that say how the store was left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::{CheckpointTimes, read_abort};
use crate::error::FileError;
use crate::marks::Marks;
use crate::queue::{Listing, QueueList};

use super::check::Checked;
use super::finding::{Finding, Problem};

/// What the state files say. Compared with the log when that has been read.
pub(super) struct StateFiles {
    root: PathBuf,
    checkpoint: Option<CheckpointTimes>,
    /// Seconds of the checkpoint file's last change.
    checkpoint_modified_s: i64,
    marks: Option<Marks>,
    /// What is in the abort file; `None` if there is none.
    abort: Option<String>,
}

impl StateFiles {
    /// Reads them; reports those that can't be what a broker wrote.
    pub(super) fn read(root: &Path, found: &mut dyn FnMut(Finding)) -> Result<StateFiles, FileError> {
        let mut wrong = |name: &str, reason: &str| found(finding(root, name, reason.to_owned()));
        let (mut checkpoint, mut checkpoint_modified_s) = (None, 0);
        match read(root, "checkpoint")? {
            Some(bytes) => {
                checkpoint = CheckpointTimes::decode(&bytes);
                if checkpoint.is_none() {
                    wrong(
                        "checkpoint",
                        "the checkpoint has not the length of one: recovery reads more of the log",
                    );
                }
                checkpoint_modified_s = modified_s(root).unwrap_or(0);
            }
            None => wrong("checkpoint", "the checkpoint is missing: recovery reads more of the log"),
        }
        let mut marks = None;
        if let Some(bytes) = read(root, "ferromq.marks")? {
            marks = Marks::newest(&bytes);
            if marks.is_none() {
                wrong("ferromq.marks", "the marks can't be read: the next start reads the whole log");
            }
        }
        if read(root, "ferromq.queues")?.is_some() && QueueList::load(root, Listing::Synced).is_none() {
            wrong("ferromq.queues", "the list of queues can't be read: the next start reads the whole log");
        }
        let abort = read_abort(root)?;
        if abort.is_some() {
            found(Finding { file: root.join("abort"), position: None, problem: Problem::NotClosed });
        }
        Ok(StateFiles { root: root.to_owned(), checkpoint, checkpoint_modified_s, marks, abort })
    }

    /// Up to which place of the log FerroMQ wrote it, as far as that is known. Behind it another broker did.
    pub(super) fn written_by_us(&self) -> u64 {
        match &self.marks {
            None => 0,
            Some(marks) if marks.clean => marks.log_end,
            Some(marks) if self.abort.as_ref() == Some(&marks.abort) => u64::MAX,
            Some(marks) => marks.written,
        }
    }

    /// Reports what does not go with the log.
    pub(super) fn compare(&self, log: &Checked, found: &mut dyn FnMut(Finding)) {
        let newest = log.newest_store_time_ms;
        if let Some(times) = self.checkpoint.filter(|_| log.records > 0) {
            let reason = if times == CheckpointTimes::default() {
                Some("the checkpoint holds no times: recovery reads the whole log".to_owned())
            } else if times.physic_ms > newest || times.logics_ms > newest {
                Some(format!(
                    "the checkpoint's times (log {}, queues {}) are later than the newest message's store time {newest}",
                    times.physic_ms, times.logics_ms
                ))
            } else {
                None
            };
            reason.into_iter().for_each(|reason| found(finding(&self.root, "checkpoint", reason)));
        }
        if let Some(marks) = &self.marks
            && marks.clean
            && self.abort.is_none()
            && marks.checkpoint_modified_s == self.checkpoint_modified_s
            && marks.log_end != log.log_end
        {
            let reason = format!(
                "the log ended at {} when the store was closed, now it ends at {}",
                marks.log_end, log.log_end
            );
            found(finding(&self.root, "ferromq.marks", reason));
        }
    }
}

fn finding(root: &Path, name: &str, reason: String) -> Finding {
    Finding { file: root.join(name), position: None, problem: Problem::StateFile { reason } }
}

/// Bytes of a file, if it is there.
fn read(root: &Path, name: &str) -> Result<Option<Vec<u8>>, FileError> {
    let path = root.join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::at("read", &path)(error)),
    }
}

fn modified_s(root: &Path) -> io::Result<i64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(root.join("checkpoint"))?.mtime())
}
