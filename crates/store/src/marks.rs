//! What recovery may believe: how far the projections had got when the store was last open.
//!
//! `ferromq.marks` is a small file beside the ones of RocketMQ, which ignores it, rewritten about every second, in two slots so that
//! a torn write loses nothing. Without it and the list of queues ([`QueueList`](crate::queue::QueueList)), as in a store that
//! the Java broker wrote, or when they do not fit what is found, recovery reads the whole log instead.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ferromq_protocol::message::crc32;

use crate::disk;
use crate::error::FileError;

const SLOT: usize = 512;

/// The marks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Rises with every write.
    pub(crate) sequence: u64,
    /// The machine's boot: what was written to files but not forced is there as long as the machine has not rebooted.
    pub(crate) boot: String,
    /// The abort file's content while the store is open: another content means that another broker was here.
    pub(crate) abort: String,
    /// The store was stopped cleanly, and nothing is missing anywhere.
    pub(crate) clean: bool,
    /// End of the log at a clean stop.
    pub(crate) log_end: u64,
    /// Units and index entries of everything below were written to the files.
    pub(crate) written: u64,
    /// Everything below was forced to the disk: log and units.
    pub(crate) synced: u64,
    /// Everything below was forced to the disk: log and index entries.
    pub(crate) index_synced: u64,
    /// One more than the physical offset of the last index entry; 0 without any.
    pub(crate) index_end: u64,
    /// Store time of the last record, ms.
    pub(crate) last_timestamp: i64,
    /// When the checkpoint file was last changed, s, at a clean stop.
    pub(crate) checkpoint_modified_s: i64,
}

impl Marks {
    fn encode(&self) -> [u8; SLOT] {
        let Marks {
            sequence,
            boot,
            abort,
            clean,
            log_end,
            written,
            synced,
            index_synced,
            index_end,
            last_timestamp,
            checkpoint_modified_s,
        } = self;
        let mut text = format!(
            "ferromq marks 1\nsequence {sequence}\nboot {boot}\nabort {abort}\nclean {clean}\nlog-end {log_end}\nwritten {written}\n\
             synced {synced}\nindex-synced {index_synced}\nindex-end {index_end}\nlast-timestamp {last_timestamp}\ncheckpoint-modified {checkpoint_modified_s}\n"
        );
        text.push_str(&format!("crc {:08x}\n", crc32(text.as_bytes())));
        let mut slot = [b'\n'; SLOT];
        slot[..text.len().min(SLOT)].copy_from_slice(&text.as_bytes()[..text.len().min(SLOT)]);
        slot
    }

    /// The newest marks in the bytes of their file.
    pub(crate) fn newest(bytes: &[u8]) -> Option<Marks> {
        bytes.chunks(SLOT).filter_map(Marks::decode).max_by_key(|marks| marks.sequence)
    }

    fn decode(slot: &[u8]) -> Option<Marks> {
        let text = std::str::from_utf8(slot).ok()?;
        let (body, crc) = text.split_once("crc ")?;
        if u32::from_str_radix(crc.trim_end(), 16).ok()? != crc32(body.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != "ferromq marks 1" {
            return None;
        }
        let mut marks = Marks::default();
        for line in lines {
            let (name, value) = line.split_once(' ')?;
            match name {
                "sequence" => marks.sequence = value.parse().ok()?,
                "boot" => marks.boot = value.to_owned(),
                "abort" => marks.abort = value.to_owned(),
                "clean" => marks.clean = value.parse().ok()?,
                "log-end" => marks.log_end = value.parse().ok()?,
                "written" => marks.written = value.parse().ok()?,
                "synced" => marks.synced = value.parse().ok()?,
                "index-synced" => marks.index_synced = value.parse().ok()?,
                "index-end" => marks.index_end = value.parse().ok()?,
                "last-timestamp" => marks.last_timestamp = value.parse().ok()?,
                "checkpoint-modified" => marks.checkpoint_modified_s = value.parse().ok()?,
                _ => return None,
            }
        }
        Some(marks)
    }
}

/// The file of the [`Marks`].
#[derive(Debug)]
pub(crate) struct MarksFile {
    path: PathBuf,
    file: File,
    pub(crate) sequence: u64,
}

impl MarksFile {
    /// Opens the file and reads the newest marks that are whole.
    pub(crate) fn open(root: &Path) -> Result<(MarksFile, Option<Marks>), FileError> {
        let path = root.join("ferromq.marks");
        let file = disk::open_or_create(&path).map_err(FileError::at("open", &path))?;
        let bytes = fs::read(&path).map_err(FileError::at("read", &path))?;
        let marks = Marks::newest(&bytes);
        let sequence = marks.as_ref().map_or(0, |marks| marks.sequence);
        Ok((MarksFile { path, file, sequence }, marks))
    }

    /// Writes the marks; `sync` forces them to the disk.
    pub(crate) fn write(&mut self, marks: &mut Marks, sync: bool) -> Result<(), FileError> {
        self.sequence += 1;
        marks.sequence = self.sequence;
        let at = self.sequence % 2 * SLOT as u64;
        disk::write_all_at(&self.file, &marks.encode(), at).map_err(FileError::at("write", &self.path))?;
        if sync {
            disk::sync_data(&self.file).map_err(FileError::at("flush", &self.path))?;
        }
        Ok(())
    }
}

/// An identification of the machine's present boot; empty if there is none.
pub(crate) fn boot_id() -> String {
    #[cfg(feature = "simulation")]
    if let Some(boot) = crate::simulation::boot_id() {
        return boot;
    }
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_marks_count() {
        let root = tempfile::tempdir().unwrap();
        let (mut file, none) = MarksFile::open(root.path()).unwrap();
        assert_eq!(none, None);
        let mut marks = Marks { boot: "b".into(), abort: "17 x y".into(), written: 5, ..Marks::default() };
        file.write(&mut marks, false).unwrap();
        marks.written = 9;
        file.write(&mut marks, true).unwrap();
        let (_, read) = MarksFile::open(root.path()).unwrap();
        assert_eq!(read, Some(marks.clone()));
        // The newer slot torn: the older one is there.
        let path = root.path().join("ferromq.marks");
        let mut bytes = fs::read(&path).unwrap();
        bytes[40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(MarksFile::open(root.path()).unwrap().1.unwrap().written, 5);
        fs::write(&path, b"rubbish").unwrap();
        assert_eq!(MarksFile::open(root.path()).unwrap().1, None);
    }
}
