//! What replication does with the log: copies of another broker's bytes, confirmation, truncation, change of roles.
//!
//! A *follower* takes the bytes of its master or leader as they come, cut anywhere, and appends nothing itself. Its dispatcher stops
//! in front of a record that is not all there and goes on when it is. What is not confirmed is in no queue and no index, so
//! that erasing it from the log erases it altogether.

use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};
use std::{future, ops::Deref};

use crate::error::{AppendError, FileError, ReplicaError};
use crate::log::RecordSlice;
use crate::options::ConfirmedBy;
use crate::shared::Shared;
use crate::store::Store;

/// Bytes of the log.
#[derive(Debug)]
pub enum LogBytes {
    /// Where they lie. They are in memory, and stay as they are.
    Mapped(RecordSlice),
    /// A copy.
    Copied(Vec<u8>),
}

impl Deref for LogBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            LogBytes::Mapped(slice) => slice,
            LogBytes::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for LogBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Store {
    /// Up to `len_max` bytes of the log from `offset` on, as many as lie in one file; none at the log's end. Waits for the disk if
    /// they are not in memory.
    pub fn read_log(&self, offset: u64, len_max: usize) -> Result<LogBytes, ReplicaError> {
        let log = &self.shared.log;
        let (begin, end) = (log.files.min_offset(), log.appended.get());
        if offset < begin || offset > end {
            return Err(ReplicaError::Outside { offset, begin, end });
        }
        let stop = end.min(offset.saturating_add(len_max as u64));
        if let Some(segment) = log.files.segment_at(offset).filter(|_| self.is_settled(stop)) {
            let (position, len) =
                ((offset - segment.base()) as u32, (stop.min(segment.end()) - offset) as u32);
            if segment.mapped().resident_bytes(position, len) == len {
                return Ok(LogBytes::Mapped(RecordSlice::new(&segment, position, len)));
            }
        }
        // `None` when it was truncated, or the file deleted, a moment ago.
        Ok(LogBytes::Copied(log.copy(offset, stop).unwrap_or_default()))
    }

    /// Whether nothing below `end` can be erased any more.
    fn is_settled(&self, end: u64) -> bool {
        !self.shared.log.is_following() && end <= self.shared.confirmed().get()
    }

    /// Appends another broker's bytes at the log's end, which must be `offset`: parts of records too, but never over the end of a
    /// file. An empty log may begin at any file's start. Only on a [follower](Self::follow). Waits for the disk only when that
    /// can't keep up with creating files.
    pub fn append_replica(&self, offset: u64, bytes: &[u8]) -> Result<(), ReplicaError> {
        let shared = &*self.shared;
        let was_empty = shared.log.files.min_offset() == shared.log.appended.get();
        shared.log.append_copy(offset, bytes)?;
        if was_empty {
            shared.queues.set_log_min(shared.log.files.min_offset());
        }
        shared.urgent.store(true, Ordering::Release);
        shared.raise_replicated();
        shared.bell.ring(true);
        Ok(())
    }

    /// Waits until everything below `offset` is on the device. After an error nothing is appended any more: what the system
    /// did with the pages is not known.
    pub fn flush_to(&self, offset: u64) -> Result<(), FileError> {
        if self.shared.log.flushed.get() >= offset {
            return Ok(());
        }
        self.shared.flush_log_to(offset).inspect_err(|_| self.shared.log.close())
    }

    /// Erases everything from `offset` on, which must not be confirmed, so that it never comes back. Only on a
    /// [follower](Self::follow). Waits for the disk.
    pub fn truncate_to(&self, offset: u64) -> Result<(), ReplicaError> {
        let shared = &*self.shared;
        if !shared.log.is_following() {
            return Err(ReplicaError::Leading);
        }
        let _cleaning = shared.cleaning.lock();
        let mut dispatcher = shared.dispatcher.lock();
        let _flushing = shared.flushing.lock();
        let (begin, end) = (shared.log.files.min_offset(), shared.log.appended.get());
        if offset < begin || offset > end {
            return Err(ReplicaError::Outside { offset, begin, end });
        }
        let confirmed = shared.confirmed().get();
        if offset < confirmed {
            return Err(ReplicaError::Confirmed { offset, confirmed });
        }
        if offset < end {
            shared.log.cut(offset, || dispatcher.forget_offsets(&shared.log, offset, end))?;
            tracing::info!(offset, end, "the log was truncated");
        }
        Ok(())
    }

    /// Says that everything below `offset` is confirmed ([`ConfirmedBy::Replication`]). A lower offset changes nothing; one behind
    /// the log's end takes effect as the log grows. Without effect where the store itself confirms.
    pub fn confirm(&self, offset: u64) {
        if self.shared.options.confirmed_by == ConfirmedBy::Store {
            return;
        }
        self.shared.promised.fetch_max(offset, Ordering::AcqRel);
        self.shared.raise_replicated();
        self.shared.bell.ring(true);
    }

    /// From now on the broker appends. Queue offsets go on behind what the log holds, confirmed or not; a record at its end that is
    /// there in part only is cut. Waits for the dispatcher and the disk.
    pub fn lead(&self) -> Result<(), FileError> {
        let shared = &*self.shared;
        shared.dispatch_to(shared.confirmed().get());
        let _cleaning = shared.cleaning.lock();
        let mut dispatcher = shared.dispatcher.lock();
        let _flushing = shared.flushing.lock();
        if !shared.log.is_following() {
            return Ok(());
        }
        let end = shared.log.appended.get();
        let whole = dispatcher.look_ahead(&shared.log, end);
        if whole < end {
            tracing::warn!(offset = whole, end, "the last record is there in part only: cut");
            shared.log.cut(whole, || {})?;
            shared.looked_at.store(0, Ordering::Relaxed);
        }
        shared.term.fetch_add(1, Ordering::AcqRel);
        shared.log.set_following(false);
        Ok(())
    }

    /// From now on appends of the broker are refused, and whoever [waits](Self::wait_confirmed) for a confirmation is told that it
    /// won't come. Returns when no append is under way.
    pub fn follow(&self) {
        let shared = &*self.shared;
        shared.log.set_following(true);
        shared.term.fetch_add(1, Ordering::AcqRel);
        shared.confirmed().wake_all();
    }

    /// Whether another broker appends.
    pub fn is_follower(&self) -> bool {
        self.shared.log.is_following()
    }

    /// Counts changes of roles. To be read before an append whose confirmation is awaited.
    pub fn term(&self) -> u64 {
        self.shared.term.load(Ordering::Acquire)
    }

    /// Waits until what ends at `offset`, appended in `term`, is confirmed. [`AppendError::Follower`] when the store ceased to lead
    /// before: then it may be confirmed by the next leader, or be erased.
    pub async fn wait_confirmed(&self, offset: u64, term: u64) -> Result<(), AppendError> {
        let confirmed = self.shared.confirmed();
        let look = |context: &mut Context<'_>| {
            if confirmed.get() < offset {
                // `follow` raises the term before it wakes.
                confirmed.register(offset, context.waker().clone());
            }
            let is_confirmed = confirmed.get() >= offset;
            if self.term() != term {
                Poll::Ready(Err(AppendError::Follower))
            } else if is_confirmed {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        };
        future::poll_fn(look).await
    }

    /// How far the master has flushed, as this slave was told; 0 if it was not.
    pub fn master_flushed_offset(&self) -> i64 {
        self.shared.keeper.lock().master_flushed_offset
    }

    /// Keeps what this slave was told of how far its master has flushed. It is in the checkpoint file after the next flush.
    pub fn set_master_flushed_offset(&self, offset: i64) {
        self.shared.keeper.lock().master_flushed_offset = offset;
    }

    /// Wakes `waker` once the log's end is at or above `target`; at once if it is.
    pub fn wake_at_end(&self, target: u64, waker: Waker) {
        self.shared.log.appended.register(target, waker);
    }
}

impl Shared {
    /// What is promised and in the log is confirmed.
    fn raise_replicated(&self) {
        // Of two who raise end and promise at the same time, one at least sees both.
        fence(Ordering::SeqCst);
        let promised = self.promised.load(Ordering::Acquire);
        self.replicated.advance(promised.min(self.log.appended.get()));
    }
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::message::RecordFields;

    use super::*;
    use crate::{AcceptAll, ReadRequest, Residency, StoreOptions};

    fn messages(store: &Store) -> Vec<i64> {
        let queue = store.queue("T", 0);
        let mut records: Vec<RecordSlice> = Vec::new();
        let mut offset = 0;
        loop {
            let request =
                ReadRequest { offset, max_messages: 32, max_bytes: usize::MAX, residency: Residency::Any };
            let next = store.read(&queue, request, &AcceptAll, &mut records).next_offset;
            if next <= offset {
                let view = |record: &RecordSlice| {
                    ferromq_protocol::message::RecordView::parse(record).unwrap().queue_offset()
                };
                return records.iter().map(view).collect();
            }
            offset = next;
        }
    }

    /// The queues are on the disk, the log's end is not, and pages before it are not either.
    #[test]
    fn after_a_power_cut_a_follower_is_cut_at_the_first_damage_and_shows_what_comes_again() {
        let roots = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let options = |root: usize| StoreOptions {
            commit_log_file_size: 64 << 10,
            follower: root == 1,
            ..StoreOptions::new(roots[root].path())
        };
        let master = Store::open(options(0)).unwrap();
        let queue = master.queue("T", 0);
        let mut batch = master.new_batch();
        let host = "10.0.0.1:1".parse().unwrap();
        (0..1000).for_each(|_| batch.push(&queue, &RecordFields::new("T", 0, host, &[b'x'; 100])).unwrap());
        master.append(&mut batch).unwrap();
        let copy = |slave: &Store| {
            while slave.appended().get() < master.appended().get() {
                let offset = slave.appended().get();
                slave.append_replica(offset, &master.read_log(offset, 5000).unwrap()).unwrap();
            }
        };
        let all: Vec<i64> = (0..1000).collect();

        let slave = Store::open(options(1)).unwrap();
        copy(&slave);
        assert_eq!(messages(&slave), all);
        slave.write_queues_for_test();
        drop(slave);
        let lost = batch.outcomes()[200].physical_offset;
        let file = std::fs::File::options()
            .write(true)
            .open(roots[1].path().join("commitlog/00000000000000000000"))
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], lost).unwrap();
        let (mut file, marks) = crate::marks::MarksFile::open(roots[1].path()).unwrap();
        let mut marks = crate::marks::Marks { boot: "another".into(), ..marks.unwrap() };
        file.write(&mut marks, false).unwrap();

        let slave = Store::open(options(1)).unwrap();
        assert_eq!(slave.appended().get(), lost);
        assert_eq!(messages(&slave), all[..200]);
        copy(&slave);
        assert_eq!(messages(&slave), all);
    }
}
