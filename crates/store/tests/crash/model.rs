//! What must be true of the store, whatever happened to it.

use std::collections::BTreeMap;
use std::ops::Range;

/// A queue: topic and queue id.
pub(crate) type QueueKey = (String, i32);

/// What may be expected of a message, or of its place in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It is there, unless the crash that comes next may take it.
    There,
    /// A crash took it. It must never be seen again.
    Lost,
    /// Deleted with its topic.
    Deleted,
}

/// Where a record is in a queue.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) queue: QueueKey,
    /// Several if the record is a batch.
    pub(crate) offsets: Range<i64>,
    pub(crate) state: State,
}

/// A record that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    /// Its topic and queue id.
    pub(crate) queue: QueueKey,
    pub(crate) queue_offset: i64,
    /// Its queue and its light queues; none for a half message.
    pub(crate) places: Vec<Place>,
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
    /// `Deleted` with its topic: it may still be in light queues.
    pub(crate) state: State,
}

impl Sent {
    /// Its place in a queue, unless that was lost or deleted.
    pub(crate) fn place_in(&self, queue: &QueueKey) -> Option<&Place> {
        self.places.iter().find(|place| place.queue == *queue && place.state == State::There)
    }

    /// Whether it can be found in any way.
    pub(crate) fn is_there(&self) -> bool {
        self.state == State::There || self.places.iter().any(|place| place.state == State::There)
    }

    /// What can be found becomes something else.
    pub(crate) fn becomes(&mut self, state: State, which: impl Fn(&QueueKey) -> bool) {
        let whole = which(&self.queue).then_some(&mut self.state);
        let places = self.places.iter_mut().filter(|place| which(&place.queue)).map(|place| &mut place.state);
        places.chain(whole).filter(|old| **old == State::There).for_each(|old| *old = state);
    }
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
        sent.is_there() && was_promised && sent.physical_offset >= self.expired
    }

    /// The offset below which the queue gives none after such an end.
    pub(crate) fn given(&self, queue: &QueueKey, end: End) -> i64 {
        let kept = self.kept.get(queue).copied().unwrap_or(0);
        let promised = self.sent.iter().filter(|sent| match end {
            End::CleanStop | End::Kill => sent.acknowledged,
            End::PowerLoss => sent.end <= self.flushed,
        });
        let places = promised.filter_map(|sent| sent.place_in(queue));
        places.map(|place| place.offsets.end).fold(kept, i64::max)
    }

    pub(crate) fn topic_was_deleted(&mut self, topic: &str) {
        for sent in &mut self.sent {
            sent.becomes(State::Deleted, |queue| queue.0 == topic);
        }
        self.next.retain(|(name, _), _| name != topic);
        self.kept.retain(|(name, _), _| name != topic);
    }
}
