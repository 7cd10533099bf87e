//! Writing the log of the new store.

use std::fs::File;
use std::path::{Path, PathBuf};

use ferromq_protocol::message::{
    BLANK_LEN_MIN, CRC_PROPERTY_LEN, QUEUE_OFFSET_AT, RecordView, encode_blank, seal_crc_property,
    set_log_fields,
};

use crate::disk;
use crate::error::FileError;
use crate::log::file_name;

/// Bytes written at once.
const WRITTEN_AT_ONCE: usize = 4 << 20;

/// Where records lie in a log: one behind the other, none over the end of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    file_size: u64,
    end: u64,
}

impl Layout {
    /// A log that begins at the first file that begins at `from` or behind.
    pub(super) fn behind(from: u64, file_size: u32) -> Layout {
        let file_size = u64::from(file_size);
        Layout { file_size, end: from.div_ceil(file_size) * file_size }
    }

    /// The largest record that fits.
    pub(super) fn record_len_max(self) -> u64 {
        self.file_size - BLANK_LEN_MIN as u64
    }

    /// Where the next record goes, and how much of the file in front of it stays blank.
    pub(super) fn next(&mut self, len: usize) -> (u64, u64) {
        let rest = self.file_size - self.end % self.file_size;
        let blank = if (len + BLANK_LEN_MIN) as u64 > rest { rest } else { 0 };
        let offset = self.end + blank;
        self.end = offset + len as u64;
        (offset, blank)
    }
}

/// A record as it is in another log: the same but for the fields that the log gives. `into` is overwritten.
pub(super) fn moved(record: &RecordView<'_>, queue_offset: i64, physical_offset: u64, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(record.bytes());
    set_log_fields(into, queue_offset, physical_offset, record.store_timestamp());
    if has_crc_property(record) {
        seal_crc_property(into);
    }
}

/// Whether two records are the same but for the fields that the log gives, and what is computed from them.
pub(super) fn is_same(one: &RecordView<'_>, other: &RecordView<'_>) -> bool {
    /// QUEUEOFFSET and PHYSICALOFFSET.
    const GIVEN: std::ops::Range<usize> = QUEUE_OFFSET_AT..QUEUE_OFFSET_AT + 16;
    let end = one.size() - if has_crc_property(one) { CRC_PROPERTY_LEN } else { 0 };
    let (one, other) = (one.bytes(), other.bytes());
    one.len() == other.len()
        && one[..GIVEN.start] == other[..GIVEN.start]
        && one[GIVEN.end..end] == other[GIVEN.end..end]
}

fn has_crc_property(record: &RecordView<'_>) -> bool {
    record.properties().last_chunk::<CRC_PROPERTY_LEN>().is_some_and(|tail| tail.starts_with(b"__CRC32#\x01"))
}

/// Writes a log, file by file. What was written is on the disk when [`finish`](Self::finish) returns.
pub(super) struct LogWriter {
    directory: PathBuf,
    layout: Layout,
    file: File,
    path: PathBuf,
    /// Where in the file `buffer` belongs.
    position: u64,
    buffer: Vec<u8>,
    record: Vec<u8>,
}

impl LogWriter {
    pub(super) fn create(directory: &Path, layout: Layout) -> Result<LogWriter, FileError> {
        disk::create_dir_all(directory).map_err(FileError::at("create", directory))?;
        let (file, path) = create(directory, layout.end, layout.file_size)?;
        let directory = directory.to_owned();
        Ok(LogWriter { directory, layout, file, path, position: 0, buffer: Vec::new(), record: Vec::new() })
    }

    /// Appends a record, which fits into a file.
    pub(super) fn append(&mut self, record: &RecordView<'_>, queue_offset: i64) -> Result<(), FileError> {
        let (offset, blank) = self.layout.next(record.size());
        if blank > 0 {
            if blank >= BLANK_LEN_MIN as u64 {
                self.buffer.extend_from_slice(&encode_blank(blank as u32));
            }
            self.close()?;
            (self.file, self.path) = create(&self.directory, offset, self.layout.file_size)?;
            self.position = 0;
        }
        let mut moved_record = std::mem::take(&mut self.record);
        moved(record, queue_offset, offset, &mut moved_record);
        self.buffer.extend_from_slice(&moved_record);
        self.record = moved_record;
        match self.buffer.len() >= WRITTEN_AT_ONCE {
            true => self.write(),
            false => Ok(()),
        }
    }

    /// Where the log ends.
    pub(super) fn finish(mut self) -> Result<u64, FileError> {
        self.close()?;
        disk::sync_directory(&self.directory).map_err(FileError::at("flush", &self.directory))?;
        Ok(self.layout.end)
    }

    fn write(&mut self) -> Result<(), FileError> {
        disk::write_all_at(&self.file, &self.buffer, self.position)
            .map_err(FileError::at("write", &self.path))?;
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn close(&mut self) -> Result<(), FileError> {
        self.write()?;
        disk::sync_all(&self.file).map_err(FileError::at("flush", &self.path))
    }
}

fn create(directory: &Path, base: u64, len: u64) -> Result<(File, PathBuf), FileError> {
    let path = directory.join(file_name(base));
    let file = disk::create_new(&path).map_err(FileError::at("create", &path))?;
    disk::set_len(&file, len).map_err(FileError::at("lengthen", &path))?;
    Ok((file, path))
}
