//! A commit log in memory, that can lose what was not flushed.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use ferromq_store::ReplicaError;
use parking_lot::Mutex;

use crate::log::{LogBounds, ReplicaLog};

/// A record is its own length (4 bytes) and a payload; files end with a record of zeros.
pub(super) struct MemoryLog {
    file_size: u64,
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    begin: u64,
    /// From `begin` on.
    bytes: Vec<u8>,
    flushed: u64,
    confirmed: u64,
    leading: bool,
    /// How often it began to lead.
    reign: u64,
    waiting: Vec<(u64, Waker)>,
}

impl State {
    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    fn grow(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let end = self.end();
        self.waiting.retain(|(target, waker)| {
            if *target <= end {
                waker.wake_by_ref();
            }
            *target > end
        });
    }
}

impl MemoryLog {
    pub(super) fn new(file_size: u64) -> Arc<MemoryLog> {
        Arc::new(MemoryLog { file_size, state: Mutex::default() })
    }

    /// The log after the process was killed: everything is there, nothing is known to be confirmed.
    pub(super) fn after_kill(&self) -> Arc<MemoryLog> {
        let state = self.state.lock();
        let state = State {
            begin: state.begin,
            bytes: state.bytes.clone(),
            flushed: state.flushed,
            confirmed: state.begin,
            ..State::default()
        };
        Arc::new(MemoryLog { file_size: self.file_size, state: Mutex::new(state) })
    }

    /// The log after the power failed: what was not flushed is gone.
    pub(super) fn after_power_loss(&self) -> Arc<MemoryLog> {
        let log = self.after_kill();
        {
            let mut state = log.state.lock();
            let flushed = state.flushed.max(state.begin);
            let len = flushed - state.begin;
            state.bytes.truncate(len as usize);
        }
        log
    }

    /// What the broker does with a message: appends it as a record, and answers where it ends; `None` while this replica follows.
    pub(super) fn send(&self, payload: &[u8]) -> Option<u64> {
        self.send_in_reign(payload).map(|(_, end)| end)
    }

    /// Also tells in which reign it was, for [`is_acknowledged`](Self::is_acknowledged).
    pub(super) fn send_in_reign(&self, payload: &[u8]) -> Option<(u64, u64)> {
        let mut state = self.state.lock();
        if !state.leading {
            return None;
        }
        let len = 4 + payload.len() as u64;
        let left = self.file_size - state.end() % self.file_size;
        if len + 8 > left {
            let mut blank = vec![0; left as usize];
            blank[..4].copy_from_slice(&(left as u32).to_be_bytes());
            state.grow(&blank);
        }
        let mut record = (len as u32).to_be_bytes().to_vec();
        record.extend_from_slice(payload);
        state.grow(&record);
        Some((state.reign, state.end()))
    }

    /// Whether the broker would have answered that the message is stored: it is confirmed, and the replica has led ever since.
    pub(super) fn is_acknowledged(&self, reign: u64, end: u64) -> bool {
        let state = self.state.lock();
        state.leading && state.reign == reign && state.confirmed >= end
    }

    /// Whether the record that ends at `end` holds `payload`.
    pub(super) fn holds(&self, end: u64, payload: &[u8]) -> bool {
        let state = self.state.lock();
        let Some(from) = end.checked_sub(payload.len() as u64 + state.begin) else { return true };
        state.bytes.get(from as usize..(end - state.begin) as usize) == Some(payload)
    }

    /// Whether both logs have the same confirmed bytes, as far as both have them.
    pub(super) fn agrees_with(&self, other: &MemoryLog) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        let (ours, theirs) = (self.state.lock(), other.state.lock());
        let from = ours.begin.max(theirs.begin);
        let to = ours.confirmed.min(ours.end()).min(theirs.confirmed.min(theirs.end()));
        let part = |state: &State| {
            (from < to)
                .then(|| state.bytes[(from - state.begin) as usize..(to - state.begin) as usize].to_vec())
        };
        part(&ours) == part(&theirs)
    }

    /// Payloads of the whole records up to `end`.
    pub(super) fn payloads(&self, end: u64) -> Vec<Vec<u8>> {
        let state = self.state.lock();
        let mut payloads = Vec::new();
        let mut at = 0;
        while state.begin + (at as u64) < end.min(state.end()) {
            let len =
                u32::from_be_bytes(*state.bytes[at..].first_chunk().expect("a record's length")) as usize;
            let payload = state.bytes.get(at + 4..at + len).expect("a whole record");
            if payload.iter().any(|byte| *byte != 0) {
                payloads.push(payload.to_vec());
            }
            at += len;
        }
        payloads
    }

    pub(super) fn confirmed_payloads(&self) -> Vec<Vec<u8>> {
        self.payloads(self.bounds().confirmed)
    }

    pub(super) fn is_leading(&self) -> bool {
        self.state.lock().leading
    }

    /// Deletes the oldest files, as retention does, up to the one that holds `offset`.
    pub(super) fn delete_below(&self, offset: u64) {
        let mut state = self.state.lock();
        let begin = offset / self.file_size * self.file_size;
        if begin > state.begin {
            let count = (begin - state.begin) as usize;
            state.bytes.drain(..count);
            state.begin = begin;
        }
    }
}

impl ReplicaLog for MemoryLog {
    fn bounds(&self) -> LogBounds {
        let state = self.state.lock();
        let end = state.end();
        LogBounds { begin: state.begin, confirmed: state.confirmed.min(end), flushed: state.flushed, end }
    }

    fn file_size(&self) -> u64 {
        self.file_size
    }

    fn wake_at_end(&self, target: u64, waker: Waker) {
        let mut state = self.state.lock();
        if state.end() >= target {
            waker.wake();
        } else {
            state.waiting.push((target, waker));
        }
    }

    fn read(&self, offset: u64, len_max: usize) -> Result<Bytes, ReplicaError> {
        let state = self.state.lock();
        if offset < state.begin || offset > state.end() {
            return Err(ReplicaError::Outside { offset, begin: state.begin, end: state.end() });
        }
        let file_end = (offset / self.file_size + 1) * self.file_size;
        let to = (offset + len_max as u64).min(file_end).min(state.end());
        Ok(Bytes::copy_from_slice(&state.bytes[(offset - state.begin) as usize..(to - state.begin) as usize]))
    }

    fn append(&self, offset: u64, bytes: &[u8]) -> Result<(), ReplicaError> {
        let mut state = self.state.lock();
        if state.leading {
            return Err(ReplicaError::Leading);
        }
        if state.bytes.is_empty() && offset.is_multiple_of(self.file_size) {
            state.begin = offset;
        }
        if offset != state.end() {
            return Err(ReplicaError::NotAtEnd { offset, end: state.end() });
        }
        if offset % self.file_size + bytes.len() as u64 > self.file_size {
            let file_size = self.file_size;
            return Err(ReplicaError::OverFileEnd { offset, len: bytes.len(), file_size });
        }
        state.grow(bytes);
        Ok(())
    }

    fn flush_to(&self, offset: u64) -> Result<(), ReplicaError> {
        let mut state = self.state.lock();
        state.flushed = state.flushed.max(offset.min(state.end()));
        Ok(())
    }

    fn truncate(&self, offset: u64) -> Result<(), ReplicaError> {
        let mut state = self.state.lock();
        if offset < state.confirmed.min(state.end()) {
            return Err(ReplicaError::Confirmed { offset, confirmed: state.confirmed });
        }
        if offset < state.end() {
            let len = offset.saturating_sub(state.begin) as usize;
            state.bytes.truncate(len);
            state.flushed = state.flushed.min(offset);
        }
        Ok(())
    }

    fn confirm(&self, offset: u64) {
        let mut state = self.state.lock();
        state.confirmed = state.confirmed.max(offset);
    }

    fn lead(&self) -> Result<(), ReplicaError> {
        let mut state = self.state.lock();
        state.leading = true;
        state.reign += 1;
        Ok(())
    }

    fn follow(&self) {
        self.state.lock().leading = false;
    }
}
