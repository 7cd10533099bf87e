//! What becomes of a progress that a client reports.

use std::fmt;

use ferromq_store::{ConsumeQueue, Store};

use super::ConsumerOffsets;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// It was recorded, in place of whatever was there.
    Done,
    /// It was beyond the queue's end, so the queue's end was recorded: a lag is never negative.
    Capped {
        /// The queue's end.
        end: i64,
    },
    /// It is negative; what was recorded before stays.
    Negative,
}

impl ConsumerOffsets {
    /// Records what `client` says that its group has consumed of `queue`.
    ///
    /// Nothing is refused: clients report in passing and do not look at the answer. What can't be is logged instead, a few
    /// lines a minute.
    pub(crate) fn commit(
        &self,
        store: &Store,
        client: &dyn fmt::Display,
        group: &str,
        queue: &ConsumeQueue,
        offset: i64,
    ) -> Commit {
        let end = || {
            if offset > queue.max_offset() {
                // What was acknowledged may not have been dispatched yet.
                store.dispatch_to_confirmed();
            }
            queue.max_offset()
        };
        self.commit_up_to(end, client, group, queue.topic(), queue.queue_id(), offset)
    }

    /// The same for a queue whose end is known otherwise.
    pub(super) fn commit_up_to(
        &self,
        end: impl FnOnce() -> i64,
        client: &dyn fmt::Display,
        group: &str,
        topic: &str,
        queue_id: i32,
        offset: i64,
    ) -> Commit {
        if offset < 0 {
            self.complain(|kept_quiet| {
                tracing::warn!(%client, group, topic, queue_id, offset, kept_quiet, "negative progress is ignored");
            });
            return Commit::Negative;
        }
        let end = end();
        self.set_committed(group, topic, queue_id, offset.min(end));
        if offset <= end {
            return Commit::Done;
        }
        self.complain(|kept_quiet| {
            tracing::warn!(
                %client, group, topic, queue_id, offset, end, kept_quiet,
                "progress beyond the queue's end is taken for the end"
            );
        });
        Commit::Capped { end }
    }

    /// Logs unless much was logged lately; the argument is how often it was not.
    pub(super) fn complain(&self, log: impl FnOnce(u64)) {
        if let Some(kept_quiet) = self.complaints.allow() {
            log(kept_quiet);
        }
    }
}
