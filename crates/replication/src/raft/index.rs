//! The side index: which Raft entry is which range of the commit log. One file that is only appended to, `raft/index` in the store
//! directory.
//!
//! ```text
//! file:    "FMQRAFTI" version(4)=1 zeros(4) record...
//! record:  length of the payload(4)  CRC-32 of the payload(4)  payload
//! payload: kind(1) ...
//!   1 base        log id(24)  end offset(8)  id of the membership(1 or 25)  length(4)  membership as JSON
//!   2 blank       log id(24)  offset(8)
//!   3 range       log id(24)  offset(8)  length(4)
//!   4 membership  log id(24)  offset(8)  length(4)  membership as JSON
//! ```
//!
//! A base says: everything up to this entry is in the log up to this offset, its own records are gone. It is appended too; once
//! more of the file is dead than alive, the file is written anew.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use openraft::StoredMembership;

use super::codec::{self, Decoder};
use super::types::{EntryKind, IndexEntry, LogId, Members};

const MAGIC: &[u8; 8] = b"FMQRAFTI";
const VERSION: u32 = 1;
const HEADER_LEN: u64 = 16;
const RECORD_HEAD_LEN: usize = 8;
/// A record's payload is never longer: a membership and some numbers.
const PAYLOAD_LEN_MAX: usize = codec::MEMBERSHIP_LEN_MAX + 256;
/// A file below this size is not written anew.
const COMPACT_LEN_MIN: u64 = 4 << 20;

const BASE: u8 = 1;
const BLANK: u8 = 2;
const RANGE: u8 = 3;
const MEMBERS: u8 = 4;

/// Everything up to an entry, of which the index no longer has records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) id: LogId,
    /// Where that entry ends in the commit log.
    pub(crate) end: u64,
    /// The group as of that entry.
    pub(crate) members: Members,
}

/// What opening found that an orderly end does not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    None,
    /// The last record was not written whole, as after a crash.
    TornTail,
    /// A damaged record with sound ones behind it.
    Middle,
}

#[derive(Debug)]
pub(crate) struct SideIndex {
    path: PathBuf,
    file: Arc<File>,
    base: Option<Base>,
    /// In order of their indexes, which are consecutive in practice.
    entries: VecDeque<Placed>,
    /// Where the next record goes.
    len: u64,
}

#[derive(Debug)]
struct Placed {
    entry: IndexEntry,
    /// Where its record begins in the file.
    at: u64,
}

impl SideIndex {
    /// Opens or creates `index` in `dir`, and cuts off what is not whole at its end.
    pub(crate) fn open(dir: &Path) -> io::Result<(SideIndex, Damage)> {
        let path = dir.join("index");
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        let content = Bytes::from(fs::read(&path)?);
        let mut index =
            SideIndex { path, file: Arc::new(file), base: None, entries: VecDeque::new(), len: HEADER_LEN };
        // Shorter than a header: its creation was interrupted.
        if content.len() < HEADER_LEN as usize {
            index.file.set_len(0)?;
            index.file.write_all_at(&header(), 0)?;
            index.file.sync_all()?;
            File::open(dir)?.sync_all()?;
            return Ok((index, Damage::None));
        }
        if content[..HEADER_LEN as usize] != header() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no Raft index of this version"));
        }
        while let Some((record, next)) = parse_record(&content, index.len) {
            if !index.accept(record, index.len) {
                break;
            }
            index.len = next;
        }
        if index.len == content.len() as u64 {
            return Ok((index, Damage::None));
        }
        let damage = damage_at(&content, index.len);
        index.file.set_len(index.len)?;
        index.file.sync_all()?;
        Ok((index, damage))
    }

    /// Takes a record that was read; `false` if it does not follow from those before.
    fn accept(&mut self, record: Record, at: u64) -> bool {
        match record {
            Record::Base(base) => self.move_base(base),
            Record::Entry(entry) => {
                if self.last_id().is_some_and(|last| entry.id <= last || entry.id.index <= last.index)
                    || self.end().is_some_and(|end| entry.offset != end)
                {
                    return false;
                }
                self.entries.push_back(Placed { entry, at });
            }
        }
        true
    }

    fn move_base(&mut self, base: Base) {
        while self.entries.front().is_some_and(|first| first.entry.id.index <= base.id.index) {
            self.entries.pop_front();
        }
        // What follows must follow this very entry.
        if self.entries.front().is_some_and(|first| first.entry.offset != base.end) {
            self.entries.clear();
        }
        self.base = Some(base);
    }

    pub(crate) fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    pub(crate) fn last_id(&self) -> Option<LogId> {
        self.entries.back().map(|last| last.entry.id).or(self.base.as_ref().map(|base| base.id))
    }

    /// Where the last entry ends in the commit log; `None` in an index that has neither entries nor a base.
    pub(crate) fn end(&self) -> Option<u64> {
        self.entries.back().map(|last| last.entry.end()).or(self.base.as_ref().map(|base| base.end))
    }

    pub(crate) fn get(&self, index: u64) -> Option<&IndexEntry> {
        let found = self.entries.get(self.position(index))?;
        (found.entry.id.index == index).then_some(&found.entry)
    }

    /// Where the entry with that id ends, if it is the base or still has a record.
    pub(crate) fn end_of(&self, id: LogId) -> Option<u64> {
        match &self.base {
            Some(base) if base.id == id => Some(base.end),
            _ => self.get(id.index).filter(|entry| entry.id == id).map(IndexEntry::end),
        }
    }

    /// Entries with indexes from `from` to below `to`.
    pub(crate) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &IndexEntry> {
        let begin = self.position(from);
        self.entries.range(begin..).map(|placed| &placed.entry).take_while(move |entry| entry.id.index < to)
    }

    /// The last entry that ends at or below `offset` in the commit log.
    pub(crate) fn last_until(&self, offset: u64) -> Option<LogId> {
        let count = self.entries.partition_point(|placed| placed.entry.end() <= offset);
        Some(self.entries.get(count.checked_sub(1)?)?.entry.id)
    }

    /// How many entries are at hand whose index is at least `index`.
    fn position(&self, index: u64) -> usize {
        // Indexes are consecutive but for tests, so this nearly always hits at once.
        if let Some(first) = self.entries.front()
            && let Some(guess) =
                index.checked_sub(first.entry.id.index).and_then(|at| usize::try_from(at).ok())
            && self.entries.get(guess).is_some_and(|placed| placed.entry.id.index == index)
        {
            return guess;
        }
        self.entries.partition_point(|placed| placed.entry.id.index < index)
    }

    /// Adds entries in one write. They are in the page cache when this returns, see [`file`](Self::file).
    pub(crate) fn append(&mut self, entries: Vec<IndexEntry>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(entries.len() * 64);
        let mut ats = Vec::with_capacity(entries.len());
        for entry in &entries {
            ats.push(self.len + bytes.len() as u64);
            put_record(&mut bytes, |to| put_entry(to, entry))?;
        }
        self.file.write_all_at(&bytes, self.len)?;
        self.len += bytes.len() as u64;
        self.entries.extend(entries.into_iter().zip(ats).map(|(entry, at)| Placed { entry, at }));
        Ok(())
    }

    /// The present file, for flushing it without holding a lock.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Drops the entries from `index` on, for good: it is on the device when this returns.
    pub(crate) fn truncate(&mut self, index: u64) -> io::Result<()> {
        let keep = self.position(index);
        let Some(first) = self.entries.get(keep) else { return Ok(()) };
        let at = first.at;
        // A base may have been appended behind entries that are dropped now.
        let base_lost = self.base.is_some() && at < self.len;
        self.entries.truncate(keep);
        self.file.set_len(at)?;
        self.len = at;
        if base_lost {
            let mut bytes = Vec::new();
            if let Some(base) = &self.base {
                put_record(&mut bytes, |to| put_base(to, base))?;
            }
            self.file.write_all_at(&bytes, self.len)?;
            self.len += bytes.len() as u64;
        }
        self.file.sync_data()
    }

    /// Forgets the records of the entries up to `base`, which becomes what the index begins behind. Entries behind it stay if they
    /// follow from it.
    pub(crate) fn rebase(&mut self, base: Base) -> io::Result<()> {
        let mut bytes = Vec::new();
        put_record(&mut bytes, |to| put_base(to, &base))?;
        self.file.write_all_at(&bytes, self.len)?;
        self.file.sync_data()?;
        self.len += bytes.len() as u64;
        self.move_base(base);
        let live = self.entries.front().map_or(0, |first| self.len - first.at);
        if self.len > COMPACT_LEN_MIN && live < self.len / 2 { self.compact() } else { Ok(()) }
    }

    /// Begins anew with nothing but `base`, or with nothing at all.
    pub(crate) fn reset(&mut self, base: Option<Base>) -> io::Result<()> {
        self.entries.clear();
        self.base = base;
        self.compact()
    }

    /// The group as of the newest entry up to `index`.
    pub(crate) fn members_at(&self, index: u64) -> Members {
        self.entries
            .iter()
            .rev()
            .map(|placed| &placed.entry)
            .filter(|entry| entry.id.index <= index)
            .find_map(|entry| match &entry.kind {
                EntryKind::Members(members) => {
                    Some(StoredMembership::new(Some(entry.id), members.as_ref().clone()))
                }
                EntryKind::Blank | EntryKind::Range(_) => None,
            })
            .or_else(|| self.base.as_ref().map(|base| base.members.clone()))
            .unwrap_or_default()
    }

    /// Writes what is alive to a new file, which takes the old one's name.
    fn compact(&mut self) -> io::Result<()> {
        let mut bytes = header().to_vec();
        if let Some(base) = &self.base {
            put_record(&mut bytes, |to| put_base(to, base))?;
        }
        let mut ats = Vec::with_capacity(self.entries.len());
        for placed in &self.entries {
            ats.push(bytes.len() as u64);
            put_record(&mut bytes, |to| put_entry(to, &placed.entry))?;
        }
        let new_path = self.path.with_extension("new");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&new_path)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        fs::rename(&new_path, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        self.file = Arc::new(file);
        self.len = bytes.len() as u64;
        for (placed, at) in self.entries.iter_mut().zip(ats) {
            placed.at = at;
        }
        Ok(())
    }
}

enum Record {
    Base(Base),
    Entry(IndexEntry),
}

fn header() -> [u8; HEADER_LEN as usize] {
    let mut bytes = [0; HEADER_LEN as usize];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_be_bytes());
    bytes
}

fn put_record(to: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
    let begin = to.len();
    to.put_bytes(0, RECORD_HEAD_LEN);
    payload(to);
    let len = to.len() - begin - RECORD_HEAD_LEN;
    if len > PAYLOAD_LEN_MAX {
        let reason = format!("a membership of {len} bytes is too long for the Raft index");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let crc = crc32fast::hash(&to[begin + RECORD_HEAD_LEN..]);
    to[begin..begin + 4].copy_from_slice(&(len as u32).to_be_bytes());
    to[begin + 4..begin + RECORD_HEAD_LEN].copy_from_slice(&crc.to_be_bytes());
    Ok(())
}

fn put_base(to: &mut Vec<u8>, base: &Base) {
    to.put_u8(BASE);
    codec::put_log_id(to, base.id);
    to.put_u64(base.end);
    codec::put_members(to, &base.members);
}

fn put_entry(to: &mut Vec<u8>, entry: &IndexEntry) {
    to.put_u8(match entry.kind {
        EntryKind::Blank => BLANK,
        EntryKind::Range(_) => RANGE,
        EntryKind::Members(_) => MEMBERS,
    });
    codec::put_log_id(to, entry.id);
    to.put_u64(entry.offset);
    match &entry.kind {
        EntryKind::Blank => {}
        EntryKind::Range(len) => to.put_u32(*len),
        EntryKind::Members(members) => codec::put_membership(to, members),
    }
}

/// The record at `at` and where the next one begins; `None` if it is not whole.
fn parse_record(content: &Bytes, at: u64) -> Option<(Record, u64)> {
    let rest = content.get(usize::try_from(at).ok()?..)?;
    let (len, after) = rest.split_first_chunk::<4>()?;
    let (crc, after) = after.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes(*len) as usize;
    if len > PAYLOAD_LEN_MAX {
        return None;
    }
    let payload = after.get(..len)?;
    if crc32fast::hash(payload) != u32::from_be_bytes(*crc) {
        return None;
    }
    let record = decode(content.slice_ref(payload))?;
    Some((record, at + (RECORD_HEAD_LEN + len) as u64))
}

fn decode(payload: Bytes) -> Option<Record> {
    let mut from = Decoder(payload);
    let kind = from.u8()?;
    let id = from.log_id()?;
    let offset = from.u64()?;
    let record = match kind {
        BASE => Record::Base(Base { id, end: offset, members: from.members()? }),
        BLANK => Record::Entry(IndexEntry { id, kind: EntryKind::Blank, offset }),
        RANGE => Record::Entry(IndexEntry { id, kind: EntryKind::Range(from.u32()?), offset }),
        MEMBERS => {
            let members = Arc::new(from.membership()?);
            Record::Entry(IndexEntry { id, kind: EntryKind::Members(members), offset })
        }
        _ => return None,
    };
    from.end()?;
    Some(record)
}

/// Whether a sound record follows the one at `at`, which is not.
fn damage_at(content: &Bytes, at: u64) -> Damage {
    let len = content
        .get(at as usize..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map(|len| u32::from_be_bytes(*len));
    match len {
        Some(len @ 1..) if (len as usize) <= PAYLOAD_LEN_MAX => {
            let next = at + RECORD_HEAD_LEN as u64 + u64::from(len);
            if parse_record(content, next).is_some() { Damage::Middle } else { Damage::TornTail }
        }
        _ => Damage::TornTail,
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
