//! What of the log is in memory: asked of the kernel, and remembered for a moment.
//!
//! A record must not be touched by a thread that must not wait unless its pages are there. The question costs a system call, and most
//! reads ask the same one: consumers at the log's end read what was appended just now. So the answer is remembered, for
//! all readers, by blocks. Pages that were there a second ago are there now, unless the system turned over all its unused
//! memory meanwhile; then one read waits for the disk, and that is all.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::log::Segment;

/// Answers are remembered for blocks of this size of the log.
const BLOCK: u64 = 256 << 10;
/// Blocks that are remembered at a time: those of 1 GiB.
const SLOTS: usize = 4096;
/// Time is counted in steps of this length, and an answer holds for so many steps.
const TICK_MS: u128 = 250;
const TRUSTED_TICKS: u64 = 4;
/// Low bits of a slot, for the time. They come round after 48 days.
const TICK_BITS: u32 = 24;
const TICK_MASK: u64 = (1 << TICK_BITS) - 1;

/// Blocks of the log that were found in memory lately. A slot holds the number of a block and the time of the answer.
#[derive(Debug)]
pub(crate) struct ResidentBlocks {
    begun: Instant,
    slots: Box<[AtomicU64]>,
}

impl ResidentBlocks {
    pub(crate) fn new() -> Self {
        // No block has that number.
        let slots = (0..SLOTS).map(|_| AtomicU64::new(u64::MAX)).collect();
        ResidentBlocks { begun: Instant::now(), slots }
    }

    /// For the records of one read.
    pub(crate) fn look(&self) -> Look<'_> {
        let now = (self.begun.elapsed().as_millis() / TICK_MS) as u64 & TICK_MASK;
        Look { blocks: self, now, found: 0..0 }
    }

    fn slot(&self, block: u64) -> &AtomicU64 {
        &self.slots[(block % SLOTS as u64) as usize]
    }

    fn remember(&self, block: u64, now: u64) {
        self.slot(block).store(block << TICK_BITS | now, Ordering::Relaxed);
    }

    /// What was found in `range` is not there any more.
    pub(crate) fn forget(&self, range: Range<u64>) {
        for block in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            let slot = self.slot(block);
            if slot.load(Ordering::Relaxed) >> TICK_BITS == block & (u64::MAX >> TICK_BITS) {
                slot.store(u64::MAX, Ordering::Relaxed);
            }
        }
    }

    fn is_known(&self, block: u64, now: u64) -> bool {
        let slot = self.slot(block).load(Ordering::Relaxed);
        let age = now.wrapping_sub(slot) & TICK_MASK;
        slot >> TICK_BITS == block & (u64::MAX >> TICK_BITS) && age <= TRUSTED_TICKS
    }
}

/// The questions of one read, which asks for ascending places of the log.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    blocks: &'a ResidentBlocks,
    now: u64,
    /// The part of the log that was found in memory last.
    found: Range<u64>,
}

impl Look<'_> {
    /// Whether `range` of the log, inside of `segment`, is in memory.
    pub(crate) fn finds(&mut self, segment: &Segment, range: Range<u64>) -> bool {
        if self.found.start <= range.start && range.end <= self.found.end {
            return true;
        }
        let block = range.start / BLOCK;
        let is_inside = (range.end - 1) / BLOCK == block;
        let whole = (block * BLOCK).max(segment.base())..((block + 1) * BLOCK).min(segment.end());
        if is_inside {
            if self.blocks.is_known(block, self.now) {
                self.found = whole;
                return true;
            }
            if resident_end(segment, &whole) == whole.end {
                self.blocks.remember(block, self.now);
                self.found = whole;
                return true;
            }
        }
        // A part of the block, or a record that goes on into the next one.
        let asked = range.start..whole.end.max(range.end);
        self.found = range.start..resident_end(segment, &asked);
        range.end <= self.found.end
    }
}

/// The end of what is in memory from `range.start` on.
fn resident_end(segment: &Segment, range: &Range<u64>) -> u64 {
    let len = (range.end - range.start) as u32;
    range.start + u64::from(segment.mapped().resident_bytes((range.start - segment.base()) as u32, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::MappedLog;

    #[test]
    fn an_answer_is_remembered_for_its_block_and_for_a_moment() {
        let blocks = ResidentBlocks::new();
        assert!(!blocks.is_known(0, 0), "nothing is known at first");
        blocks.remember(7, 10);
        assert!(blocks.is_known(7, 10) && blocks.is_known(7, 10 + TRUSTED_TICKS));
        assert!(!blocks.is_known(7, 11 + TRUSTED_TICKS), "not for long");
        assert!(!blocks.is_known(7 + SLOTS as u64, 10), "another block in the same slot");
        blocks.forget(7 * BLOCK + 5..8 * BLOCK);
        assert!(!blocks.is_known(7, 10), "nor when it was given up");
        blocks.remember(8, TICK_MASK);
        assert!(blocks.is_known(8, 1), "the time comes round");
    }

    #[test]
    fn what_is_in_memory_is_found_and_the_rest_is_not() {
        // Fresh files have no pages in memory until somebody touches them.
        let directory = tempfile::tempdir().unwrap();
        let segment = MappedLog::create(directory.path(), 4 << 20, 4 << 20).unwrap();
        segment.mapped().expect_order(false);
        let base = segment.base();
        segment.mapped().populate(0, BLOCK as u32);
        segment.mapped().populate(2 * BLOCK as u32 + 8192, 8192);
        let blocks = ResidentBlocks::new();
        let finds = |range: Range<u64>| blocks.look().finds(&segment, base + range.start..base + range.end);
        assert!(finds(100..200));
        assert!(blocks.is_known(base / BLOCK, blocks.look().now), "the whole block");
        assert!(!finds(BLOCK - 10..BLOCK + 10), "the second block is not there");
        let middle = 2 * BLOCK + 8192;
        assert!(finds(middle..middle + 100) && finds(middle + 8000..middle + 8192));
        assert!(!finds(middle - 1..middle + 100) && !finds(middle + 8000..middle + 8193));
        assert!(!blocks.is_known(base / BLOCK + 2, blocks.look().now), "a part of a block is not remembered");
    }
}
