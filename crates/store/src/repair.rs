//! Queues whose files turn out to be damaged while the store is open.
//!
//! A start takes the offsets of all queues from a list and looks at the files of a few. Whoever is the first to use the files of
//! another queue checks them; if they are not what they were, they are laid anew from the log. The queue's offsets come from
//! the list and stay what they are.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::dispatch::Projector;
use crate::error::FileError;
use crate::queue::{ConsumeQueue, UNIT, Unit};
use crate::recovery::scan;
use crate::shared::Shared;

/// Bytes of units gathered for one write to a queue's file.
const WRITE_BYTES: usize = 64 << 10;

/// A queue whose files are laid anew.
#[derive(Debug)]
struct Laying {
    queue: Arc<ConsumeQueue>,
    /// Queue offset of the next unit.
    next: i64,
    end: i64,
    /// Physical offset in the last unit.
    last_physical: u64,
    /// Units in front of `next` that are not yet in the file.
    units: Vec<u8>,
    /// Places for which the log has no message.
    holes: i64,
}

impl Shared {
    /// Makes sure that the queue's files hold what they should. To be called before they are read. May take long: the first
    /// damaged queue makes that all others are looked at, and the log is read.
    #[inline]
    pub(crate) fn ensure_checked(&self, queue: &ConsumeQueue) -> Result<(), FileError> {
        if queue.is_checked() { Ok(()) } else { self.check(queue) }
    }

    /// The same for readers, who read what there is when it fails.
    #[inline]
    pub(crate) fn check_or_report(&self, queue: &ConsumeQueue) {
        if let Err(error) = self.ensure_checked(queue) {
            tracing::error!(topic = queue.topic(), queue = queue.queue_id(), %error, "can't check the consume queue");
        }
    }

    #[cold]
    fn check(&self, queue: &ConsumeQueue) -> Result<(), FileError> {
        let failed = |action| FileError::at(action, self.queues.directory());
        if !queue.is_to_be_checked() || queue.check().map_err(failed("read"))?.is_none() {
            return Ok(());
        }
        let _one_at_a_time = self.repairing.lock();
        if queue.is_checked() {
            return Ok(());
        }
        // If one is damaged others may be: one reading of the log serves all.
        let mut damaged = HashMap::new();
        for other in self.queues.iter().filter(|other| other.is_to_be_checked()) {
            let Some(doubt) = other.check().map_err(failed("read"))? else { continue };
            tracing::error!(
                topic = other.topic(),
                queue = other.queue_id(),
                %doubt,
                "the consume queue's files are damaged: they are laid anew from the log"
            );
            damaged.extend(self.begin_laying(other).map_err(failed("delete files in"))?);
        }
        self.lay(&mut damaged)
    }

    fn begin_laying(&self, queue: Arc<ConsumeQueue>) -> io::Result<Option<(u32, Laying)>> {
        let Some((offsets, last_physical)) = queue.extent_in_files()? else { return Ok(None) };
        let (next, end) = (offsets.start, offsets.end);
        self.queues.without_writing(|| if queue.is_checked() { Ok(0) } else { queue.remove_files() })?;
        let number = queue.number();
        Ok(Some((number, Laying { queue, next, end, last_physical, units: Vec::new(), holes: 0 })))
    }

    fn lay(&self, damaged: &mut HashMap<u32, Laying>) -> Result<(), FileError> {
        let failed = |error| FileError::at("write to", self.queues.directory())(error);
        let mut projector =
            Projector::new(Arc::clone(&self.queues), None, Arc::clone(&self.deleted), &self.options);
        let last = damaged.values().map(|laying| laying.last_physical).max();
        scan(&self.log.files, self.log.files.min_offset(), u64::MAX, |record, _| {
            if last.is_none_or(|last| record.physical_offset() > last) {
                return Ok(false);
            }
            let placement = projector.place(record);
            for placement in placement.iter().chain(projector.further_placements()) {
                if let Some(laying) = damaged.get_mut(&placement.queue) {
                    laying.put(placement.queue_offset, placement.unit);
                    if laying.units.len() >= WRITE_BYTES {
                        self.write_laid(laying).map_err(failed)?;
                    }
                }
            }
            Ok::<_, FileError>(true)
        })?;
        for laying in damaged.values_mut() {
            laying.fill_up_to(laying.end, laying.last_physical);
            self.write_laid(laying).map_err(failed)?;
            if laying.holes > 0 {
                tracing::error!(
                    topic = laying.queue.topic(),
                    queue = laying.queue.queue_id(),
                    holes = laying.holes,
                    "the log no longer has some of the queue's messages: holes in the queue"
                );
            }
            laying.queue.set_checked();
        }
        // What was laid has to be forced to the disk, as what is written in the ordinary way.
        self.queues.suspect_everything();
        tracing::info!(queues = damaged.len(), "damaged consume queues were laid anew");
        Ok(())
    }

    fn write_laid(&self, laying: &mut Laying) -> io::Result<()> {
        let from = laying.next - (laying.units.len() / UNIT) as i64;
        let units = std::mem::take(&mut laying.units);
        self.queues.without_writing(|| {
            // Unless the topic was deleted meanwhile.
            if laying.queue.is_checked() { Ok(()) } else { laying.queue.lay(from, &units) }
        })
    }
}

impl Laying {
    fn put(&mut self, offset: i64, unit: Unit) {
        if (self.next..self.end).contains(&offset) {
            self.fill_up_to(offset, unit.physical_offset);
            self.units.extend_from_slice(&unit.encode());
            self.next += 1;
        }
    }

    /// Puts holes where there is no message.
    fn fill_up_to(&mut self, offset: i64, next_physical_offset: u64) {
        for _ in self.next..offset {
            self.units.extend_from_slice(&Unit::hole(next_physical_offset).encode());
            self.holes += 1;
        }
        self.next = self.next.max(offset);
    }
}
