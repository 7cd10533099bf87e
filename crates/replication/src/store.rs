//! The store as replication sees it.

use std::task::Waker;

use bytes::Bytes;
use ferromq_store::{ReplicaError, Store};

use crate::log::{LogBounds, ReplicaLog};

impl ReplicaLog for Store {
    fn bounds(&self) -> LogBounds {
        // In this order: all of them rise meanwhile.
        let (begin, confirmed) = (self.min_offset(), self.confirmed().get());
        LogBounds { begin, confirmed, flushed: self.flushed().get(), end: self.appended().get() }
    }

    fn file_size(&self) -> u64 {
        u64::from(self.options().commit_log_file_size)
    }

    fn wake_at_end(&self, target: u64, waker: Waker) {
        Store::wake_at_end(self, target, waker);
    }

    fn read(&self, offset: u64, len_max: usize) -> Result<Bytes, ReplicaError> {
        Ok(Bytes::from_owner(self.read_log(offset, len_max)?))
    }

    fn append(&self, offset: u64, bytes: &[u8]) -> Result<(), ReplicaError> {
        self.append_replica(offset, bytes)
    }

    fn flush_to(&self, offset: u64) -> Result<(), ReplicaError> {
        Store::flush_to(self, offset).map_err(ReplicaError::File)
    }

    fn truncate(&self, offset: u64) -> Result<(), ReplicaError> {
        self.truncate_to(offset)
    }

    fn confirm(&self, offset: u64) {
        Store::confirm(self, offset);
    }

    fn lead(&self) -> Result<(), ReplicaError> {
        Store::lead(self).map_err(ReplicaError::File)
    }

    fn follow(&self) {
        Store::follow(self);
    }
}
