//! Laying queues anew: each unit goes to the place that its record names, if the queue's next record bears that out.
//!
//! Queue offsets have no checksum. One that is not the next in its queue, because messages are lost or because a bit is, waits for the
//! queue's next record: an offset behind it confirms it, one before it shows that it is damaged.

use std::collections::HashMap;

use super::{Rebuild, Retry};
use crate::dispatch::{Placement, Projector};

/// The queues that are being laid.
pub(super) struct Laying<'r, 'a> {
    rebuild: &'r Rebuild<'a>,
    /// By the number of the queue.
    queues: HashMap<u32, Queue>,
    /// Records whose offset another one had before.
    repeated: u64,
}

#[derive(Default)]
struct Queue {
    /// The offset behind the last unit laid; none when the queue begins.
    next: Option<i64>,
    doubtful: Option<Placement>,
}

impl<'r, 'a> Laying<'r, 'a> {
    pub(super) fn new(rebuild: &'r Rebuild<'a>) -> Self {
        Laying { rebuild, queues: HashMap::new(), repeated: 0 }
    }

    /// Takes the next unit of the log.
    pub(super) fn put(&mut self, placement: &Placement, projector: &Projector) -> Result<(), Retry> {
        let queue = self.queues.entry(placement.queue).or_default();
        // Or once more: the topic was deleted and made anew by a broker that left no note of it.
        let begins = placement.queue_offset == 0;
        if let Some(doubtful) = queue.doubtful.take() {
            if begins || placement.queue_offset > doubtful.queue_offset {
                queue.lay(&doubtful, self.rebuild, projector, &mut self.repeated)?;
            } else {
                projector.report_implausible(&doubtful);
            }
        }
        if begins {
            queue.next = None;
        }
        if begins || queue.next.is_some_and(|next| placement.queue_offset <= next) {
            return queue.lay(placement, self.rebuild, projector, &mut self.repeated);
        }
        queue.doubtful = Some(*placement);
        Ok(())
    }

    /// Lays what nothing follows that could bear it out. Call once, at the log's end.
    pub(super) fn finish(&mut self, projector: &Projector) -> Result<(), Retry> {
        for queue in self.queues.values_mut() {
            if let Some(doubtful) = queue.doubtful.take() {
                queue.lay(&doubtful, self.rebuild, projector, &mut self.repeated)?;
            }
        }
        if self.repeated > 0 {
            tracing::error!(
                records = self.repeated,
                "records repeat a queue offset that another one has: they can't be reached by offset"
            );
        }
        Ok(())
    }

    /// Whether the log has messages of the queue with this number.
    pub(super) fn has(&self, number: u32) -> bool {
        self.queues.contains_key(&number)
    }
}

impl Queue {
    fn lay(
        &mut self,
        placement: &Placement,
        rebuild: &Rebuild<'_>,
        projector: &Projector,
        repeated: &mut u64,
    ) -> Result<(), Retry> {
        let queue = projector.handle(placement.queue);
        if self.next.is_none() {
            queue.restart_at(placement.queue_offset).map_err(rebuild.queue_error("cut"))?;
        }
        let pushed = projector.push(placement);
        if pushed.known {
            *repeated += 1;
        }
        if pushed.implausible {
            projector.report_implausible(placement);
        }
        if pushed.holes > 0 {
            tracing::error!(
                topic = queue.topic(),
                queue = queue.queue_id(),
                from = placement.queue_offset - pushed.holes,
                to = placement.queue_offset,
                "messages are lost: holes in the queue"
            );
        }
        self.next = Some(queue.max_offset());
        rebuild.was_given(queue, queue.max_offset());
        Ok(())
    }
}
