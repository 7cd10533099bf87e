//! What must be true of the store, whatever happened to it.

use std::collections::BTreeMap;

/// A queue: topic and queue id.
pub(crate) type QueueKey = (String, i32);

/// What may be expected of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It is there, unless the crash that comes next may take it.
    There,
    /// A crash took it. It must never be seen again.
    Lost,
    /// Deleted with its topic.
    Deleted,
}

/// A message that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) queue: QueueKey,
    pub(crate) queue_offset: i64,
    pub(crate) physical_offset: u64,
    /// End in the log.
    pub(crate) end: u64,
    pub(crate) store_timestamp: i64,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: Vec<u8>,
    /// Keys that find it.
    pub(crate) keys: Vec<String>,
    /// Appending it succeeded, as far as anybody was told.
    pub(crate) acknowledged: bool,
    pub(crate) state: State,
}

/// How the store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    CleanStop,
    Kill,
    PowerLoss,
}

/// Everything that was sent, by serial number, and what the store has promised.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) sent: Vec<Sent>,
    /// The offset that the next message of each queue gets.
    pub(crate) next: BTreeMap<QueueKey, i64>,
    /// The offset below which none is given again, even when the power goes.
    pub(crate) kept: BTreeMap<QueueKey, i64>,
    /// The `flushed` waterline, as last seen.
    pub(crate) flushed: u64,
    /// Messages below this offset of the log may be deleted, or be back because the deletion was not durable.
    pub(crate) expired: u64,
    /// A topic whose deletion had begun when the crash came.
    pub(crate) deleting: Option<String>,
}

impl Model {
    /// Whether a message has to survive.
    pub(crate) fn must_survive(&self, sent: &Sent, end: End) -> bool {
        let was_promised = match end {
            End::CleanStop | End::Kill => sent.acknowledged,
            End::PowerLoss => sent.end <= self.flushed,
        };
        sent.state == State::There && was_promised && sent.physical_offset >= self.expired
    }

    /// The offset below which the queue gives none after such an end.
    pub(crate) fn given(&self, queue: &QueueKey, end: End) -> i64 {
        let kept = self.kept.get(queue).copied().unwrap_or(0);
        let survivors = self.sent.iter().filter(|sent| sent.queue == *queue && sent.state == State::There);
        let promised = survivors.filter(|sent| match end {
            End::CleanStop | End::Kill => sent.acknowledged,
            End::PowerLoss => sent.end <= self.flushed,
        });
        promised.map(|sent| sent.queue_offset + 1).fold(kept, i64::max)
    }

    pub(crate) fn topic_was_deleted(&mut self, topic: &str) {
        for sent in self.sent.iter_mut().filter(|sent| sent.queue.0 == topic && sent.state == State::There) {
            sent.state = State::Deleted;
        }
        self.next.retain(|(name, _), _| name != topic);
        self.kept.retain(|(name, _), _| name != topic);
    }
}
