//! The dispatcher: reads the log in order and feeds every projection.

use std::sync::Arc;

use crate::log::RecordSlice;
use crate::queue::ConsumeQueue;

/// A message that has just become readable in a watched queue ([`ConsumeQueue::watch`]).
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The queue.
    pub queue: Arc<ConsumeQueue>,
    /// Its offset in the queue; readers can read up to and including it.
    pub queue_offset: i64,
    /// Tags code of its unit.
    pub tags_code: i64,
    /// Store time, milliseconds.
    pub store_timestamp: i64,
    /// The record, for properties ([`RecordView`](ferromq_protocol::message::RecordView)).
    pub record: RecordSlice,
}

/// Told by the dispatcher about new messages.
pub trait ArrivalListener: Send + Sync {
    /// New messages of watched queues, in the order of the log, at most one dispatch round of them. Called on whatever
    /// thread dispatches: must be quick and must not call back into the store's dispatch.
    fn arrived(&self, arrivals: &[Arrival]);
}
