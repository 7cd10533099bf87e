//! One file of the log, and slices of it.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use crate::mapped::MappedFile;

/// A mapped log file. Kept alive by readers, so that a deleted file goes away only when the last read is done.
#[derive(Debug)]
pub struct Segment {
    base: u64,
    mapped: MappedFile,
}

impl Segment {
    pub(crate) fn new(base: u64, mapped: MappedFile) -> Segment {
        Segment { base, mapped }
    }

    /// Offset of the first byte in the log.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.base + self.mapped.len() as u64
    }

    /// Length of the file.
    pub fn size(&self) -> u32 {
        self.mapped.len() as u32
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.mapped.path()
    }

    /// The mapped file, when nobody needs the segment any more.
    pub(crate) fn into_mapped(self) -> MappedFile {
        self.mapped
    }

    /// The mapped file.
    pub(crate) fn mapped(&self) -> &MappedFile {
        &self.mapped
    }

    /// Bytes `position..position + len` of the file, which must be below the `appended` waterline.
    #[inline]
    pub(crate) fn bytes(&self, position: u32, len: u32) -> &[u8] {
        self.mapped.bytes(position, len)
    }

    /// Lets the processor fetch what tells about a record at log offset `offset`, if it is `size` bytes long: all but most of its body.
    #[inline]
    pub(crate) fn prefetch_record(&self, offset: u64, size: usize) {
        /// Up to the body, and from its end to that of the properties, as records mostly are.
        const FRONT: usize = 128;
        const BACK: usize = 192;
        let position = (offset - self.base) as usize;
        self.mapped.prefetch(position, FRONT.min(size));
        self.mapped.prefetch(position + size.saturating_sub(BACK).max(FRONT), BACK);
    }

    /// Bytes from log offset `from` to log offset `to`, both inside of this file and published.
    pub(crate) fn range(&self, from: u64, to: u64) -> &[u8] {
        debug_assert!(self.base <= from && from <= to && to <= self.end());
        self.mapped.bytes((from - self.base) as u32, (to - from) as u32)
    }
}

/// Bytes of a record in a log file, which stays mapped as long as this lives (also after the file was deleted).
#[derive(Debug, Clone)]
pub struct RecordSlice {
    segment: Arc<Segment>,
    position: u32,
    size: u32,
}

impl RecordSlice {
    pub(crate) fn new(segment: &Arc<Segment>, position: u32, size: u32) -> Self {
        RecordSlice { segment: Arc::clone(segment), position, size }
    }

    /// Where the record lies in the log.
    pub fn physical_offset(&self) -> u64 {
        self.segment.base() + u64::from(self.position)
    }
}

impl Deref for RecordSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.segment.bytes(self.position, self.size)
    }
}

impl AsRef<[u8]> for RecordSlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
