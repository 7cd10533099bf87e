//! What was read from the disk for lagging consumers is given up again behind them.
//!
//! Left alone, a consumer that reads gigabytes of old messages fills the memory with pages that nobody needs again, and the kernel has to
//! find others to give up: mapped ones, page by page, on a processor that sends wait for. So a part of the log that was not in
//! memory before a reader came is given up once that much has been read since. Until then groups that read the same old messages
//! a little behind each other need the disk only once; and the next reads get the pages that were just given up.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::log::Segment;
use crate::residency::ResidentBlocks;

/// Of the machine's memory, for old messages.
const MEMORY_PART: u64 = 32;
const BYTES_MIN: u64 = 64 << 20;
/// What a part of the log takes at least.
const PAGE: u64 = 4096;

/// Parts of the log that were brought into memory for lagging consumers, the oldest first.
#[derive(Debug)]
pub(crate) struct ColdPages {
    bytes_max: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    parts: VecDeque<Part>,
    bytes: u64,
}

#[derive(Debug)]
struct Part {
    /// A deleted file must not be kept for this.
    segment: Weak<Segment>,
    position: u32,
    len: u32,
}

impl Part {
    fn bytes(&self) -> u64 {
        u64::from(self.len).max(PAGE)
    }
}

impl ColdPages {
    pub(crate) fn new(physical_memory: u64) -> Self {
        Self::with_bytes_max((physical_memory / MEMORY_PART).max(BYTES_MIN))
    }

    fn with_bytes_max(bytes_max: u64) -> Self {
        ColdPages { bytes_max, kept: Mutex::default() }
    }

    /// Takes note of a part that was brought in, and gives up the oldest ones if it is too much now. May take a while: for threads
    /// that may wait for the disk.
    pub(crate) fn brought_in(
        &self,
        segment: &Arc<Segment>,
        position: u32,
        len: u32,
        blocks: &ResidentBlocks,
    ) {
        let mut part = Part { segment: Arc::downgrade(segment), position, len };
        let mut kept = self.kept.lock();
        kept.bytes += part.bytes();
        kept.parts.push_back(part);
        while kept.bytes > self.bytes_max {
            let Some(oldest) = kept.parts.pop_front() else { return };
            part = oldest;
            kept.bytes -= part.bytes();
            if let Some(segment) = part.segment.upgrade() {
                let from = segment.base() + u64::from(part.position);
                blocks.forget(from..from + u64::from(part.len));
                segment.mapped().give_up(part.position, part.len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::MappedLog;

    const LEN: u32 = 1 << 20;

    #[test]
    fn the_oldest_parts_are_given_up_for_new_ones() {
        // A directory on a disk: what is in a file system in memory can't be given up.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let segment = MappedLog::create(directory.path(), 0, 4 << 20).unwrap();
        let mapped = segment.mapped();
        mapped.write(LEN, b"still there");
        mapped.flush().unwrap();
        let (pages, blocks) = (ColdPages::with_bytes_max(2 * u64::from(LEN)), ResidentBlocks::new());
        for part in 0..3 {
            mapped.populate_for_read(part * LEN, LEN);
            assert!(blocks.look().finds(&segment, u64::from(part * LEN)..u64::from(part * LEN) + 10));
            pages.brought_in(&segment, part * LEN, LEN, &blocks);
        }
        assert!(!mapped.is_resident(0, 1) && !mapped.is_resident(LEN - 1, 1));
        assert!(!blocks.look().finds(&segment, 0..10), "nor is it remembered");
        assert!(mapped.is_resident(LEN, 2 * LEN));
        mapped.populate_for_read(3 * LEN, LEN);
        pages.brought_in(&segment, 3 * LEN, LEN, &blocks);
        assert!(!mapped.is_resident(LEN, 1));
        assert_eq!(mapped.bytes(LEN, 11), b"still there");
    }

    #[test]
    fn a_file_that_is_gone_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let segment = MappedLog::create(directory.path(), 0, 4 << 20).unwrap();
        let (pages, blocks) = (ColdPages::with_bytes_max(u64::from(LEN)), ResidentBlocks::new());
        pages.brought_in(&segment, 0, LEN, &blocks);
        assert_eq!(Arc::strong_count(&segment), 1);
        drop(segment);
        let other = MappedLog::create(directory.path(), 4 << 20, 4 << 20).unwrap();
        pages.brought_in(&other, 0, LEN, &blocks);
        assert_eq!(pages.kept.lock().parts.len(), 1);
    }
}
