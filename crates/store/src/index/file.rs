//! One index file (`docs/spec/02-store.md` §8.1): header, hash slots, units in chains.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::disk;
use crate::log::reserve_blocks;
use crate::mapped::MappedFile;

const HEADER: usize = 40;
const SLOT: usize = 4;
const UNIT: usize = 20;

const BEGIN_TIMESTAMP: usize = 0;
const END_TIMESTAMP: usize = 8;
const BEGIN_OFFSET: usize = 16;
const END_OFFSET: usize = 24;
const SLOT_COUNT: usize = 32;
const INDEX_COUNT: usize = 36;

/// A mapped index file. Written by the dispatcher only, read by anybody at the same time.
#[derive(Debug)]
pub(crate) struct IndexFile {
    mapped: MappedFile,
    slots: u32,
    units: u32,
    /// Written since the last flush, as far as is known.
    is_dirty: AtomicBool,
}

/// A unit that a look-up found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) physical_offset: u64,
}

/// A unit as it is in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IndexUnit {
    pub(crate) hash: u32,
    pub(crate) physical_offset: u64,
    /// The unit before it in its slot's chain; 0 for the oldest.
    pub(crate) previous: u32,
}

impl IndexFile {
    pub(crate) fn size(slots: u32, units: u32) -> io::Result<u32> {
        let size = HEADER as u64 + SLOT as u64 * u64::from(slots) + UNIT as u64 * u64::from(units);
        u32::try_from(size).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "maxHashSlotNum and maxIndexNum make a file above 4 GiB",
            )
        })
    }

    /// Creates a file that goes on where one with these end values stopped.
    pub(super) fn create(
        path: &Path,
        slots: u32,
        units: u32,
        end_timestamp: i64,
        end_offset: u64,
    ) -> io::Result<Self> {
        let file = disk::create_new(path)?;
        if let Err(error) = reserve_blocks(&file, 0, u64::from(Self::size(slots, units)?)) {
            let _ = disk::remove_file(path);
            return Err(error);
        }
        let file = IndexFile {
            mapped: MappedFile::map(path, file, Self::size(slots, units)?)?,
            slots,
            units,
            is_dirty: AtomicBool::new(true),
        };
        file.store_u64(BEGIN_TIMESTAMP, end_timestamp as u64);
        file.store_u64(END_TIMESTAMP, end_timestamp as u64);
        file.store_u64(BEGIN_OFFSET, end_offset);
        file.store_u64(END_OFFSET, end_offset);
        file.mapped.store(INDEX_COUNT, 1);
        Ok(file)
    }

    /// Opens a file. One that was sparse gets its blocks when it is to be written.
    pub(super) fn open(path: &Path, slots: u32, units: u32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(IndexFile {
            mapped: MappedFile::map(path, file, Self::size(slots, units)?)?,
            slots,
            units,
            is_dirty: AtomicBool::new(true),
        })
    }

    /// Opens a file to look into it.
    pub(crate) fn open_read_only(path: &Path, slots: u32, units: u32) -> io::Result<Self> {
        let file = File::open(path)?;
        let mapped = MappedFile::map_read_only(path, file, Self::size(slots, units)?)?;
        Ok(IndexFile { mapped, slots, units, is_dirty: AtomicBool::new(false) })
    }

    /// With how many slots and units a file was made. Its length allows many pairs; only with the right one the first units
    /// lie in the chains of their hashes, and units begin and end where they should. `None` if several fit, or none.
    pub(crate) fn infer_counts(path: &Path) -> Option<(u32, u32)> {
        /// Units that must fit.
        const TRIED: u32 = 64;
        let len = u32::try_from(std::fs::metadata(path).ok()?.len()).ok()?;
        let default = crate::StoreOptions::new("");
        if Self::size(default.index_slots, default.index_units).ok() == Some(len) {
            return Some((default.index_slots, default.index_units));
        }
        let body = len.checked_sub(HEADER as u32).filter(|body| body.is_multiple_of(SLOT as u32))?;
        let mut file = Self::open_read_only(path, body / SLOT as u32, 0).ok()?;
        let mut found = None;
        for slots in 1..=body / SLOT as u32 {
            let rest = body - slots * SLOT as u32;
            (file.slots, file.units) = (slots, rest / UNIT as u32);
            if !rest.is_multiple_of(UNIT as u32) || !file.is_plausible() || file.is_empty() {
                continue;
            }
            let count = file.index_count();
            // Keys that are counted up have hashes that are, so neighbours look much alike. Hence the ends: unit 0 is never
            // used, and those behind the count were not yet.
            let is_unused = |number: u32| file.unit(number) == IndexUnit::default();
            let mut heads = HashMap::new();
            let mut is_linked = |number: u32| {
                let unit = file.unit(number);
                let slot = unit.hash % slots;
                unit.previous == heads.insert(slot, number).unwrap_or(0)
                    && (number..count).contains(&file.chain(slot))
                    && (file.begin_offset()..=file.end_offset()).contains(&unit.physical_offset)
            };
            let fits = is_unused(0)
                && (count == file.units || is_unused(count))
                && (1..count.min(TRIED)).all(&mut is_linked);
            if fits && found.replace((slots, file.units)).is_some() {
                return None;
            }
        }
        found
    }

    /// Hash slots.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The newest unit of a slot's chain; 0 when it is empty. The slot must be below [`slots`](Self::slots).
    pub(crate) fn chain(&self, slot: u32) -> u32 {
        self.mapped.load(HEADER + SLOT * slot as usize)
    }

    /// Where a unit begins in the file.
    pub(crate) fn unit_position(&self, number: u32) -> u64 {
        self.unit_at(number) as u64
    }

    /// A unit, by its number: from 1 to [`index_count`](Self::index_count) - 1 of a file that [is plausible](Self::is_plausible).
    pub(crate) fn unit(&self, number: u32) -> IndexUnit {
        let unit = self.unit_at(number);
        IndexUnit {
            hash: self.mapped.load(unit),
            physical_offset: self.load_u64(unit + 4),
            previous: self.mapped.load(unit + 16),
        }
    }

    /// Gives a sparse file real blocks.
    pub(super) fn reserve(&self) -> io::Result<()> {
        reserve_blocks(self.mapped.file(), 0, self.mapped.len() as u64)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.mapped.path().to_path_buf()
    }

    fn load_u64(&self, at: usize) -> u64 {
        u64::from(self.mapped.load(at)) << 32 | u64::from(self.mapped.load(at + 4))
    }

    fn store_u64(&self, at: usize, value: u64) {
        self.mapped.store(at, (value >> 32) as u32);
        self.mapped.store(at + 4, value as u32);
    }

    pub(crate) fn begin_timestamp(&self) -> i64 {
        self.load_u64(BEGIN_TIMESTAMP) as i64
    }

    pub(crate) fn end_timestamp(&self) -> i64 {
        self.load_u64(END_TIMESTAMP) as i64
    }

    pub(crate) fn begin_offset(&self) -> u64 {
        self.load_u64(BEGIN_OFFSET)
    }

    pub(crate) fn end_offset(&self) -> u64 {
        self.load_u64(END_OFFSET)
    }

    /// Number of the next unit; the first one is 1.
    pub(crate) fn index_count(&self) -> u32 {
        self.mapped.load(INDEX_COUNT)
    }

    pub(crate) fn is_full(&self) -> bool {
        !self.has_room_for(1)
    }

    /// Whether so many keys fit.
    pub(crate) fn has_room_for(&self, keys: usize) -> bool {
        (self.index_count() as usize).saturating_add(keys) <= self.units as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index_count() <= 1
    }

    /// Whether the header can be that of a file that was written to its end by somebody.
    pub(crate) fn is_plausible(&self) -> bool {
        let count = self.index_count();
        (1..=self.units).contains(&count)
            && self.mapped.load(SLOT_COUNT) < count
            && self.begin_offset() <= self.end_offset()
            && self.end_offset() <= i64::MAX as u64
    }

    fn slot_at(&self, hash: u32) -> usize {
        HEADER + SLOT * (hash % self.slots) as usize
    }

    fn unit_at(&self, number: u32) -> usize {
        HEADER + SLOT * self.slots as usize + UNIT * number as usize
    }

    /// Adds a key. The file must not be full.
    pub(super) fn put(&self, hash: u32, physical_offset: u64, store_timestamp: i64) {
        debug_assert!(!self.is_full());
        let number = self.index_count();
        let slot = self.slot_at(hash);
        let old = match self.mapped.load(slot) {
            old if old > number => 0,
            old => old,
        };
        let begin = self.begin_timestamp();
        let seconds =
            if begin <= 0 { 0 } else { ((store_timestamp - begin) / 1000).clamp(0, i64::from(i32::MAX)) };
        let unit = self.unit_at(number);
        self.mapped.store(unit, hash);
        self.store_u64(unit + 4, physical_offset);
        self.mapped.store(unit + 12, seconds as u32);
        self.mapped.store(unit + 16, old);
        // The chain's head is the last to change: readers never see a unit that is not there.
        self.mapped.store(slot, number);
        if number <= 1 {
            self.store_u64(BEGIN_OFFSET, physical_offset);
            self.store_u64(BEGIN_TIMESTAMP, store_timestamp as u64);
        }
        if old == 0 {
            self.mapped.store(SLOT_COUNT, self.mapped.load(SLOT_COUNT) + 1);
        }
        self.store_u64(END_OFFSET, physical_offset);
        self.store_u64(END_TIMESTAMP, store_timestamp as u64);
        self.mapped.store(INDEX_COUNT, number + 1);
        // Last, so that a flush at the same time can't take what is half written for done.
        self.is_dirty.store(true, Ordering::Release);
    }

    /// The units of a key hash, newest first, until `take` says no.
    pub(crate) fn walk(&self, hash: u32, mut take: impl FnMut(Hit) -> bool) {
        let mut number = self.mapped.load(self.slot_at(hash));
        let count = self.index_count();
        while (1..=count).contains(&number) && number < self.units {
            let unit = self.unit_at(number);
            if self.mapped.load(unit) == hash && !take(Hit { physical_offset: self.load_u64(unit + 4) }) {
                return;
            }
            let previous = self.mapped.load(unit + 16);
            // Chains lead to older units only; anything else is damage, and could be a circle.
            if previous >= number {
                return;
            }
            number = previous;
        }
    }

    /// Forces the file to the device, unless it was not written since it last was.
    pub(super) fn flush(&self) -> io::Result<()> {
        if !self.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let flushed = self.mapped.flush();
        if flushed.is_err() {
            self.is_dirty.store(true, Ordering::Release);
        }
        flushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_the_reference() {
        // docs/spec/02-store.md §18.3 I1: 5 slots, 20 units.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("20240101000000000");
        let file = IndexFile::create(&path, 5, 20, 0, 0).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[..40], [[0; 36].as_slice(), &[0, 0, 0, 1]].concat()[..]);
        let (first, second) = (1_700_000_001_234, 1_700_000_004_234);
        for (key, offset, time) in [
            ("TopicTest#AC11000100002A9F0000000000000001", 0, first),
            ("TopicTest#k1", 0, first),
            ("TopicTest#k2", 0, first),
            ("TopicTest#kt", 4096, second),
            ("TopicTest#k1", 4218, second),
        ] {
            file.put(super::super::key_hash(ferromq_protocol::message::java_string_hash(key)), offset, time);
        }
        let expected = concat!(
            "0000018bcfe56cd20000018bcfe5788a0000000000000000000000000000107a0000000300000006",
            "0000000300000004000000000000000000000005",
            "0000000000000000000000000000000000000000",
            "6b1fac7e00000000000000000000000000000000",
            "0029e6a800000000000000000000000000000000",
            "0029e6a900000000000000000000000000000000",
            "0029e6eb00000000000010000000000300000001",
            "0029e6a8000000000000107a0000000300000002",
        );
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 460);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(&hex[..expected.len()], expected);
        let mut found = Vec::new();
        file.walk(2_746_024, |hit| {
            found.push(hit.physical_offset);
            true
        });
        assert_eq!(found, [4218, 0]);
        assert!(file.is_plausible() && !file.is_empty() && !file.is_full());
    }

    #[test]
    fn a_circle_in_a_damaged_chain_ends() {
        let directory = tempfile::tempdir().unwrap();
        let file = IndexFile::create(&directory.path().join("1"), 1, 8, 0, 0).unwrap();
        file.put(7, 100, 5);
        file.put(7, 200, 5);
        file.mapped.store(file.unit_at(1) + 16, 2);
        let mut count = 0;
        file.walk(7, |_| {
            count += 1;
            true
        });
        assert_eq!(count, 2);
    }
}
