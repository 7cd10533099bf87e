//! One mapped file of the log. The only place of this crate with `unsafe` code.
//!
//! A segment is written by whoever holds the log's append lock, only behind everything it has published, and read by
//! anybody, only below what has been published (the `appended` waterline). The two never touch the same byte, and the
//! waterline's release/acquire pair orders the writes before the reads. That is the contract of every function here.

#![allow(unsafe_code, reason = "shared memory mappings have no safe interface in std")]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw};

/// Memory page; residency and faults are counted in it.
pub(crate) const PAGE: usize = 4096;

/// A mapped log file. Kept alive by readers, so that a deleted file goes away only when the last read is done.
#[derive(Debug)]
pub struct Segment {
    base: u64,
    path: PathBuf,
    file: File,
    map: MmapRaw,
}

impl Segment {
    /// Maps `file`, whose first byte is offset `base` of the log. The file must not be shortened while it is mapped.
    pub(crate) fn map(base: u64, path: &Path, file: File, size: u32) -> io::Result<Segment> {
        let map = MmapOptions::new().len(size as usize).map_raw(&file)?;
        Ok(Segment { base, path: path.to_path_buf(), file, map })
    }

    /// Offset of the first byte in the log.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.base + self.map.len() as u64
    }

    /// Length of the file.
    pub fn size(&self) -> u32 {
        self.map.len() as u32
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, for calls that need a descriptor.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Bytes `position..position + len`.
    ///
    /// The caller asks only for bytes below the `appended` waterline (or, in recovery, before anything is appended).
    ///
    /// # Panics
    /// If the range is not inside of the file.
    #[inline]
    pub(crate) fn bytes(&self, position: u32, len: u32) -> &[u8] {
        let (position, len) = (position as usize, len as usize);
        assert!(position <= self.map.len() && len <= self.map.len() - position, "range outside of the file");
        // SAFETY: the range is inside of the mapping, which lives as long as `self`. Published bytes are never written
        // again (see the module's contract), so no write aliases this shared slice. The file is exclusively ours (lock
        // file) and is not shortened, so every page of the mapping exists.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(position), len) }
    }

    /// Copies `bytes` to `position`. Only for the holder of the append lock, and only behind what is published.
    ///
    /// # Panics
    /// If the range is not inside of the file.
    #[inline]
    pub(crate) fn write(&self, position: u32, bytes: &[u8]) {
        let position = position as usize;
        assert!(position <= self.map.len() && bytes.len() <= self.map.len() - position, "range outside of the file");
        // SAFETY: the range is inside of the mapping; `bytes` is a live shared slice and can't overlap with it, because
        // nobody holds a slice of unpublished bytes of the mapping; the append lock makes this the only writer.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(position), bytes.len());
        }
    }

    /// Faults the pages of `position..position + len` in for writing, so that an append there finds them.
    pub(crate) fn populate(&self, position: u32, len: u32) {
        let end = (position as usize).saturating_add(len as usize).min(self.map.len());
        let start = position as usize / PAGE * PAGE;
        if start >= end {
            return;
        }
        if self.map.advise_range(Advice::PopulateWrite, start, end - start).is_ok() {
            return;
        }
        // Kernels before 5.14 do not know that advice. Adding zero to one byte of each page faults it in without
        // changing anything, whoever else writes there.
        for page in (start..end).step_by(PAGE) {
            // SAFETY: `page` is inside of the mapping, whose start is page-aligned; other threads may write the same
            // byte, hence the atomic operation, which stores what it found.
            unsafe {
                let byte = self.map.as_mut_ptr().add(page).cast::<std::sync::atomic::AtomicU8>();
                (*byte).fetch_or(0, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }

    /// Whether every page of `position..position + len` is in memory.
    pub(crate) fn is_resident(&self, position: u32, len: u32) -> bool {
        const PAGES_PER_CALL: usize = 256;
        let end = (position as usize).saturating_add(len as usize).min(self.map.len());
        let mut start = position as usize / PAGE * PAGE;
        let mut resident = [0u8; PAGES_PER_CALL];
        while start < end {
            let pages = (end - start).div_ceil(PAGE).min(PAGES_PER_CALL);
            // SAFETY: the range begins at a page of the mapping and ends inside of it (rounded up to a page);
            // `resident` has a byte for each page.
            let result =
                unsafe { libc::mincore(self.map.as_mut_ptr().add(start).cast(), pages * PAGE, resident.as_mut_ptr()) };
            if result != 0 || resident[..pages].iter().any(|page| page & 1 == 0) {
                return false;
            }
            start += pages * PAGE;
        }
        true
    }

    /// Starts writing dirty pages of the range to the disk, without waiting for it.
    pub(crate) fn start_write_back(&self, position: u32, len: u32) {
        use std::os::fd::AsRawFd as _;
        // SAFETY: no memory is passed; the descriptor is open as long as `self.file`.
        // A failure shows up again in the fdatasync that follows.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                i64::from(position),
                i64::from(len),
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
    }

    /// Forces everything that was written to the device.
    pub(crate) fn flush(&self) -> io::Result<()> {
        rustix::fs::fdatasync(&self.file).map_err(io::Error::from)
    }

    /// Tells the kernel that the range will be read in order soon.
    pub(crate) fn will_need(&self, position: u32, len: u32) {
        let start = position as usize / PAGE * PAGE;
        let end = (position as usize).saturating_add(len as usize).min(self.map.len());
        if start < end {
            // Advice only: failing changes nothing but speed.
            let _ = self.map.advise_range(Advice::WillNeed, start, end - start);
        }
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
