//! Files mapped into memory. The only place of this crate with `unsafe` code.
//!
//! The kernel shares the mapping with other processes and with this one's threads, so the rules are kept by contract:
//!
//! * The store's lock file makes this process the only user of its files, and no file is shortened while it is mapped. So every
//!   page of a mapping exists (files get real blocks before they are written: no SIGBUS for want of space).
//! * **Plain bytes** ([`bytes`](MappedFile::bytes), [`write`](MappedFile::write)): written once, by the holder of the log's append
//!   lock, behind everything published; read only below what is published (the `appended` waterline, whose
//!   release/acquire pair orders the two).
//! * **Words** ([`load`](MappedFile::load), [`store`](MappedFile::store)): always accessed atomically. A file uses either plain bytes or
//!   words, not both.

#![allow(unsafe_code, reason = "shared memory mappings have no safe interface in std")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering, compiler_fence};

use memmap2::{Advice, MmapOptions, MmapRaw};

/// Memory page; residency and faults are counted in it.
pub(crate) const PAGE: usize = 4096;
/// What the processor maps at once, if the system brings in that much at once.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// A file of fixed length, mapped for reading and writing.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    file: File,
    map: MmapRaw,
    /// Some of its pages may be huge.
    has_huge_pages: AtomicBool,
}

impl MappedFile {
    /// Maps the first `size` bytes of `file`, which must be that long.
    pub(crate) fn map(path: &Path, file: File, size: u32) -> io::Result<MappedFile> {
        if file.metadata()?.len() < u64::from(size) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its mapping"));
        }
        let map = MmapOptions::new().len(size as usize).map_raw(&file)?;
        Ok(MappedFile { path: path.to_path_buf(), file, map, has_huge_pages: AtomicBool::new(false) })
    }

    /// Maps the first `size` bytes of `file` for reading only: nothing must be written to the mapping. For a store that is
    /// looked into, not opened.
    pub(crate) fn map_read_only(path: &Path, file: File, size: u32) -> io::Result<MappedFile> {
        if file.metadata()?.len() < u64::from(size) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its mapping"));
        }
        let map = MmapOptions::new().len(size as usize).map_raw_read_only(&file)?;
        Ok(MappedFile { path: path.to_path_buf(), file, map, has_huge_pages: AtomicBool::new(false) })
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Bytes `position..position + len`, which must be published.
    ///
    /// # Panics
    /// If the range is not inside of the file.
    #[inline]
    pub(crate) fn bytes(&self, position: u32, len: u32) -> &[u8] {
        let (position, len) = (position as usize, len as usize);
        assert!(position <= self.map.len() && len <= self.map.len() - position, "range outside of the file");
        // SAFETY: the range is inside of the mapping, which lives as long as `self`, and its pages exist. Published bytes
        // are not written again (the module's contract), so no write aliases this shared slice.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(position), len) }
    }

    /// Copies `bytes` to `position`. Only for the holder of the append lock, and only behind what is published.
    ///
    /// # Panics
    /// If the range is not inside of the file.
    #[inline]
    pub(crate) fn write(&self, position: u32, bytes: &[u8]) {
        let position = position as usize;
        assert!(
            position <= self.map.len() && bytes.len() <= self.map.len() - position,
            "range outside of the file"
        );
        // SAFETY: the range is inside of the mapping; `bytes` can't overlap with it, because nobody holds a slice of
        // unpublished bytes of the mapping; the append lock makes this the only writer.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(position), bytes.len());
        }
    }

    /// As [`write`](Self::write), for things that lie back to back, each of which begins with its length in four bytes. All else is
    /// copied first, then the lengths one after the other. A copy goes in no particular order, and the process may be
    /// killed in the middle of it: what then has a length is whole, and nothing lies behind what has none. The lengths in
    /// `bytes` are gone afterwards.
    #[inline]
    pub(crate) fn write_sizes_last(
        &self,
        position: u32,
        bytes: &mut [u8],
        sizes: impl Iterator<Item = u32> + Clone,
    ) {
        let mut at = 0;
        for size in sizes.clone() {
            bytes[at..at + 4].fill(0);
            at += size as usize;
        }
        debug_assert_eq!(at, bytes.len());
        self.write(position, bytes);
        let mut at = position;
        for size in sizes {
            compiler_fence(Ordering::SeqCst);
            self.write(at, &size.to_be_bytes());
            at += size;
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// Lets the processor begin to fetch bytes that are read soon. Whatever is not in the file is left out.
    #[inline]
    pub(crate) fn prefetch(&self, position: usize, len: usize) {
        const LINE: usize = 64;
        let end = position.saturating_add(len).min(self.map.len());
        for line in (position..end).step_by(LINE) {
            prefetch(self.map.as_ptr().wrapping_add(line));
        }
    }

    #[inline]
    fn word(&self, position: usize) -> &AtomicU32 {
        assert!(position.is_multiple_of(4) && position + 4 <= self.map.len(), "word outside of the file");
        // SAFETY: inside of the mapping and aligned (mappings begin at a page); words are only accessed atomically.
        unsafe { &*self.map.as_mut_ptr().add(position).cast::<AtomicU32>() }
    }

    /// The big-endian word at `position`, a multiple of 4.
    #[inline]
    pub(crate) fn load(&self, position: usize) -> u32 {
        u32::from_be(self.word(position).load(Ordering::Acquire))
    }

    /// Sets the big-endian word at `position`, a multiple of 4.
    #[inline]
    pub(crate) fn store(&self, position: usize, value: u32) {
        self.word(position).store(value.to_be(), Ordering::Release);
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
                let byte = self.map.as_mut_ptr().add(page).cast::<AtomicU8>();
                (*byte).fetch_or(0, Ordering::Relaxed);
            }
        }
    }

    /// Keeps the pages of the file in memory, those that are there and those that will be.
    pub(crate) fn lock(&self) -> io::Result<()> {
        // SAFETY: exactly the mapping, which lives as long as `self`; locking changes no memory.
        let result =
            unsafe { libc::mlock2(self.map.as_ptr().cast(), self.map.len(), libc::MLOCK_ONFAULT as _) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Undoes [`lock`](Self::lock).
    pub(crate) fn unlock(&self) {
        // Fails only where nothing is mapped.
        // SAFETY: as in `lock`.
        unsafe { libc::munlock(self.map.as_ptr().cast(), self.map.len()) };
    }

    /// How far from `position` on, and up to `position + len`, every page is in memory: the number of bytes.
    pub(crate) fn resident_bytes(&self, position: u32, len: u32) -> u32 {
        const PAGES_PER_CALL: usize = 256;
        let end = (position as usize).saturating_add(len as usize).min(self.map.len());
        let mut start = position as usize / PAGE * PAGE;
        let mut resident = [0u8; PAGES_PER_CALL];
        while start < end {
            let pages = (end - start).div_ceil(PAGE).min(PAGES_PER_CALL);
            // SAFETY: the range begins at a page of the mapping and ends inside of it (rounded up to a page);
            // `resident` has a byte for each page.
            let result = unsafe {
                libc::mincore(self.map.as_mut_ptr().add(start).cast(), pages * PAGE, resident.as_mut_ptr())
            };
            let absent =
                if result == 0 { resident[..pages].iter().position(|page| page & 1 == 0) } else { Some(0) };
            if let Some(absent) = absent {
                return ((start + absent * PAGE).min(end)).saturating_sub(position as usize) as u32;
            }
            start += pages * PAGE;
        }
        end.saturating_sub(position as usize) as u32
    }

    /// Whether every page of `position..position + len` is in memory.
    #[cfg(test)]
    pub(crate) fn is_resident(&self, position: u32, len: u32) -> bool {
        self.resident_bytes(position, len) == len
    }

    /// Starts writing dirty pages of the range to the disk, without waiting for it.
    pub(crate) fn start_write_back(&self, position: u32, len: u32) {
        self.unmap_pages(position, len);
        // A failure shows up again in the flush that follows.
        let _ = self.sync_range(position, len, libc::SYNC_FILE_RANGE_WRITE);
    }

    /// Takes whole pages of the range out of this process's page table, all at once; who reads them next maps them again. The system
    /// protects each page that it writes, and would interrupt every processor for each one that is mapped.
    pub(crate) fn unmap_pages(&self, position: u32, len: u32) {
        let start = (position as usize).next_multiple_of(PAGE);
        let end = (position as usize).saturating_add(len as usize).min(self.map.len()) / PAGE * PAGE;
        if start < end {
            let forget = |advice| {
                // SAFETY: inside of the mapping, at page bounds. The mapping is shared, so its bytes are those of the file's pages, which
                // stay as they are: this forgets only where they are mapped.
                unsafe { libc::madvise(self.map.as_mut_ptr().add(start).cast(), end - start, advice) }
            };
            if forget(libc::MADV_DONTNEED) != 0 {
                // What is locked into memory has an advice of its own, since Linux 5.18.
                forget(libc::MADV_DONTNEED_LOCKED);
            }
        }
    }

    /// Writes dirty pages of the range to the disk. What the file system has to note about them may not be durable yet.
    pub(crate) fn write_back(&self, position: u32, len: u32) -> io::Result<()> {
        self.unmap_pages(position, len);
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        self.sync_range(position, len, flags)?;
        crate::disk::wrote_back(&self.file, position, len);
        Ok(())
    }

    fn sync_range(&self, position: u32, len: u32, flags: libc::c_uint) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;
        // SAFETY: no memory is passed; the descriptor is open as long as `self.file`.
        let result = unsafe {
            libc::sync_file_range(self.file.as_raw_fd(), i64::from(position), i64::from(len), flags)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Tells the kernel whether faults come in order. If they do, it brings in what follows the faulting page too, up to
    /// megabytes at once; for pages that are about to be written for the first time that is a long and useless pause.
    pub(crate) fn expect_order(&self, in_order: bool) {
        // Advice only: failing changes nothing but speed.
        let _ = self.map.advise(if in_order { Advice::Normal } else { Advice::Random });
    }

    /// Asks the system to bring in [huge pages](HUGE_PAGE) from `position` on, or (`None`) no longer. One takes as long as a few small
    /// ones, to fault in as well as to write, but one changed byte makes all of it dirty. Systems that have none for the
    /// log's file system go on with small ones.
    pub(crate) fn expect_huge_pages(&self, position: Option<u32>) {
        // Advice only: failing changes nothing but speed.
        let _ = match position {
            Some(position) => {
                self.has_huge_pages.store(true, Ordering::Relaxed);
                let start = (position as usize).min(self.map.len()) / HUGE_PAGE * HUGE_PAGE;
                self.map.advise_range(Advice::HugePage, start, self.map.len() - start)
            }
            None => self.map.advise(Advice::NoHugePage),
        };
    }

    /// Largest unit in which the system takes pages of this file to write them (and protects them meanwhile).
    pub(crate) fn page_group(&self) -> u64 {
        /// What the system makes of small pages that follow each other.
        const FOLIO: u64 = 256 << 10;
        if self.has_huge_pages.load(Ordering::Relaxed) { HUGE_PAGE as u64 } else { FOLIO }
    }

    /// Brings the pages of the range into memory for reading, without making them dirty.
    pub(crate) fn populate_for_read(&self, position: u32, len: u32) {
        const AT_ONCE: usize = 64 << 10;
        let start = position as usize / PAGE * PAGE;
        let end = (position as usize).saturating_add(len as usize).min(self.map.len());
        for start in (start..end).step_by(AT_ONCE) {
            // Advice only: failing changes nothing but speed.
            let _ = self.map.advise_range(Advice::PopulateRead, start, AT_ONCE.min(end - start));
            let_others_go_first();
        }
    }

    /// Gives up the memory of whole pages of the range that are on the disk as they are; who reads them next waits for the disk.
    pub(crate) fn give_up(&self, position: u32, len: u32) {
        use std::os::fd::AsRawFd as _;
        const AT_ONCE: u32 = 64 << 10;
        let end = position.saturating_add(len);
        for start in (position..end).step_by(AT_ONCE as usize) {
            let len = AT_ONCE.min(end - start);
            // What is mapped can't be given up.
            self.unmap_pages(start, len);
            // Advice only: failing changes nothing but speed.
            // SAFETY: no memory is passed; the descriptor is open as long as `self.file`.
            unsafe {
                libc::posix_fadvise(
                    self.file.as_raw_fd(),
                    i64::from(start),
                    i64::from(len),
                    libc::POSIX_FADV_DONTNEED,
                );
            }
            let_others_go_first();
        }
    }

    /// Unmaps the file and gives its space back piece by piece, with a pause behind each, in which others get at the disk. Only for a
    /// file that no longer has a name: nobody can find it shorter than it should be.
    pub(crate) fn free_in_steps(self, step: u64, mut pause: impl FnMut()) {
        let MappedFile { file, map, .. } = self;
        let mut len = map.len() as u64;
        drop(map);
        while len > step {
            len -= step;
            // What can't be given back now is when the file is closed.
            if file.set_len(len).is_err() {
                return;
            }
            pause();
        }
    }

    /// Forces everything that was written to the device.
    pub(crate) fn flush(&self) -> io::Result<()> {
        crate::disk::sync_data(&self.file)
    }

    /// Lets the disk begin to read what is not in memory of the range, without waiting for it. Nothing outside of the range is
    /// read, whatever read-ahead the system is set to.
    pub(crate) fn will_need(&self, position: u32, len: u32) {
        /// The kernel cuts what it is asked for down to what the device takes at once, which is hardly ever less than this.
        const AT_ONCE: usize = 128 << 10;
        let start = position as usize / PAGE * PAGE;
        let end = (position as usize).saturating_add(len as usize).min(self.map.len());
        for start in (start..end).step_by(AT_ONCE) {
            // Advice only: failing changes nothing but speed.
            let _ = self.map.advise_range(Advice::WillNeed, start, AT_ONCE.min(end - start));
            let_others_go_first();
        }
    }
}

/// Between two pieces of long work for somebody who is not in a hurry. A kernel may leave a thread on its processor for a
/// millisecond or more, whoever waits, if it is not asked.
fn let_others_go_first() {
    std::thread::yield_now();
}

/// Lets the processor begin to fetch the cache line of an address.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, of any address: as far as the program can tell nothing is read, and no page is faulted in.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(len: u64) -> (tempfile::TempDir, MappedFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(len).unwrap();
        let mapped = MappedFile::map(&path, file, len as u32).unwrap();
        (directory, mapped)
    }

    #[test]
    fn what_is_written_is_read_here_and_in_the_file() {
        let (_directory, mapped) = file(10_000);
        mapped.write(4_090, b"over a page");
        assert_eq!(mapped.bytes(4_090, 11), b"over a page");
        assert_eq!(mapped.bytes(10_000, 0), b"");
        mapped.flush().unwrap();
        mapped.start_write_back(0, 10_000);
        mapped.will_need(0, 10_000);
        assert_eq!(&std::fs::read(mapped.path()).unwrap()[4_090..4_101], b"over a page");
        assert_eq!(mapped.len(), 10_000);
        assert_eq!(mapped.file().metadata().unwrap().len(), 10_000);
    }

    #[test]
    fn words_are_big_endian() {
        let (_directory, mapped) = file(8_192);
        mapped.store(40, 0x0102_0304);
        assert_eq!(mapped.load(40), 0x0102_0304);
        assert_eq!(std::fs::read(mapped.path()).unwrap()[40..44], [1, 2, 3, 4]);
    }

    #[test]
    fn populated_pages_are_resident_and_unchanged() {
        let (_directory, mapped) = file(3 << 20);
        mapped.write(5_000, b"kept");
        mapped.populate(4_500, 2 << 20);
        assert!(mapped.is_resident(4_500, 2 << 20));
        assert_eq!(mapped.bytes(5_000, 4), b"kept");
        mapped.populate_for_read(0, 3 << 20);
        assert!(mapped.is_resident(0, 3 << 20));
        mapped.populate(3 << 20, 100);
    }

    #[test]
    fn huge_pages_change_nothing_but_the_unit_of_writing() {
        let (_directory, mapped) = file(5 << 20);
        assert_eq!(mapped.page_group(), 256 << 10);
        mapped.write(1_000, b"before");
        mapped.write(3 << 20, b"in the middle");
        mapped.expect_huge_pages(Some(2_500_000));
        mapped.populate(2_500_000, 5 << 20);
        assert!(mapped.is_resident(2_500_000, (5 << 20) - 2_500_000));
        mapped.write(4_500_000, b"behind");
        mapped.start_write_back(0, 4 << 20);
        mapped.flush().unwrap();
        mapped.expect_huge_pages(None);
        let content = std::fs::read(mapped.path()).unwrap();
        for (position, text) in [(1_000, "before"), (3 << 20, "in the middle"), (4_500_000, "behind")] {
            assert_eq!(mapped.bytes(position, text.len() as u32), text.as_bytes());
            assert_eq!(&content[position as usize..][..text.len()], text.as_bytes());
        }
        assert_eq!(content.iter().filter(|byte| **byte != 0).count(), 6 + 13 + 6);
        // Some pages may still be huge.
        assert_eq!(mapped.page_group(), 2 << 20);
        mapped.expect_huge_pages(Some(u32::MAX));
    }

    #[test]
    fn sizes_come_last_and_each_to_its_place() {
        let (_directory, mapped) = file(4_096);
        let mut records = b"\0\0\0\x06ab\0\0\0\x05c\0\0\0\x04".to_vec();
        let whole = records.clone();
        mapped.write_sizes_last(4_096 - 15, &mut records, [6, 5, 4].into_iter());
        assert_eq!(mapped.bytes(4_096 - 15, 15), whole);
        assert_eq!(records, b"\0\0\0\0ab\0\0\0\0c\0\0\0\0");
        mapped.write_sizes_last(0, &mut [], std::iter::empty());
    }

    #[test]
    fn fetching_ahead_stays_in_the_file() {
        let (_directory, mapped) = file(4_096);
        mapped.prefetch(0, 4_096);
        mapped.prefetch(4_095, usize::MAX);
        mapped.prefetch(usize::MAX, 100);
    }

    #[test]
    fn a_file_without_a_name_is_freed_piece_by_piece() {
        let (directory, mapped) = file(10 << 20);
        mapped.populate(0, 10 << 20);
        let other = mapped.file().try_clone().unwrap();
        std::fs::remove_file(mapped.path()).unwrap();
        let mut lens = Vec::new();
        mapped.free_in_steps(4 << 20, || lens.push(other.metadata().unwrap().len()));
        assert_eq!(lens, [6 << 20, 2 << 20]);
        drop(directory);
    }

    #[test]
    #[should_panic(expected = "outside of the file")]
    fn reading_behind_the_end_panics() {
        let (_directory, mapped) = file(4_096);
        mapped.bytes(4_000, 97);
    }

    #[test]
    #[should_panic(expected = "outside of the file")]
    fn writing_behind_the_end_panics() {
        let (_directory, mapped) = file(4_096);
        mapped.write(4_090, &[1; 7]);
    }

    #[test]
    fn a_short_file_is_not_mapped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        assert!(MappedFile::map(&path, file, 10).is_err());
    }
}
