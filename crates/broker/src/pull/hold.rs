//! Long polling: pulls that wait for a message (`docs/spec/03-broker.md` 3.8).
//!
//! A held pull is a task that sleeps until its time is up, its connection ends, or the dispatcher reports a message of
//! its queue that passes its filter. It then runs the pull again, which always answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_remoting::Connection;
use ferromq_store::{Arrival, ArrivalListener, ConsumeQueue, MessageFilter, Residency};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::filter::TagFilter;
use super::{Asked, Checked, Pass, answer_later};
use crate::broker::Broker;

/// Longest time that a client can have a pull held.
const HOLD_MAX: Duration = Duration::from_secs(30 * 60);

/// All pulls that wait, by queue.
#[derive(Debug, Default)]
pub(crate) struct HeldPulls {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next_id: u64,
    queues: HashMap<QueueKey, Vec<Waiter>>,
}

/// A queue has one handle for the life of the store, so its address names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QueueKey(usize);

impl From<&Arc<ConsumeQueue>> for QueueKey {
    fn from(queue: &Arc<ConsumeQueue>) -> Self {
        Self(Arc::as_ptr(queue) as usize)
    }
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    offset: i64,
    filter: TagFilter,
    wake: oneshot::Sender<()>,
}

impl HeldPulls {
    /// How many pulls wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().queues.values().map(Vec::len).sum()
    }

    fn register(self: &Arc<Self>, queue: &Arc<ConsumeQueue>, offset: i64, filter: TagFilter) -> Registered {
        let (wake, woken) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let id = waiting.next_id;
        waiting.next_id += 1;
        let key = QueueKey::from(queue);
        waiting.queues.entry(key).or_default().push(Waiter { id, offset, filter, wake });
        Registered { held: self.clone(), key, id, woken }
    }

    /// Wakes all pulls that wait for this queue: its topic was deleted, or its offsets were moved.
    pub(crate) fn wake_queue(&self, queue: &Arc<ConsumeQueue>) {
        // Dropping a waiter wakes it.
        drop(self.waiting.lock().queues.remove(&QueueKey::from(queue)));
    }
}

impl ArrivalListener for HeldPulls {
    fn arrived(&self, arrivals: &[Arrival]) {
        let mut waiting = self.waiting.lock();
        for arrival in arrivals {
            let key = QueueKey::from(&arrival.queue);
            let Some(waiters) = waiting.queues.get_mut(&key) else { continue };
            let wanted = |waiter: &mut Waiter| {
                arrival.queue_offset >= waiter.offset
                    && waiter.filter.matches_unit(arrival.tags_code)
                    && waiter.filter.matches_record(&arrival.record)
            };
            for waiter in waiters.extract_if(.., wanted) {
                // Nobody listens any more if its time was up in this very moment.
                let _ = waiter.wake.send(());
            }
            if waiters.is_empty() {
                waiting.queues.remove(&key);
            }
        }
    }
}

/// A pull's place among those that wait; given up when dropped.
struct Registered {
    held: Arc<HeldPulls>,
    key: QueueKey,
    id: u64,
    woken: oneshot::Receiver<()>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut waiting = self.held.waiting.lock();
        if let Some(waiters) = waiting.queues.get_mut(&self.key) {
            waiters.retain(|waiter| waiter.id != self.id);
            if waiters.is_empty() {
                waiting.queues.remove(&self.key);
            }
        }
    }
}

/// Holds a pull that found nothing.
pub(super) fn hold(broker: &Arc<Broker>, connection: &Arc<Connection>, asked: Asked<'_>, checked: &Checked) {
    let config = broker.config();
    let millis = if config.long_polling_enable {
        asked.header.suspend_timeout_millis
    } else {
        i64::try_from(config.short_polling_time_mills).unwrap_or(i64::MAX)
    };
    let timeout = Duration::from_millis(u64::try_from(millis).unwrap_or_default()).min(HOLD_MAX);
    let (broker, connection, asked) = (broker.clone(), connection.clone(), asked.into_owned());
    let (queue, offset) = (checked.queue.clone(), asked.header.queue_offset);
    let mut registered = broker.held_pulls.register(&queue, offset, checked.filter.clone());
    let watch = queue.watch();
    tokio::spawn(async move {
        // Whatever came between the read and the watch is not reported.
        if watch.queue().max_offset() <= offset {
            tokio::select! {
                _ = &mut registered.woken => {}
                () = connection.closed() => return,
                () = tokio::time::sleep(timeout) => {}
            }
        }
        drop((registered, watch));
        answer_later(&broker, &connection, asked, Pass::Again, Residency::HotOnly);
    });
}
