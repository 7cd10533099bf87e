//! Bringing messages into memory that a reader needs now, together with those that it will ask for next.
//!
//! The system's own read-ahead knows files, not queues: it reads around the page that is missing, which is too little for a
//! reader of most of the log and far too much for a reader of a small topic. The queue's units tell exactly which parts of the
//! log its messages are in.
//!
//! What was brought in is given up later, see [`cold_pages`](crate::cold_pages).

use std::io;
use std::sync::Arc;

use crate::cold_pages::ColdPages;
use crate::commit_log::CommitLog;
use crate::log::Segment;
use crate::queue::{ConsumeQueue, UNIT, Unit};
use crate::read::MessageFilter;
use crate::residency::ResidentBlocks;

/// Messages are brought in for so many reads like the one that found them missing.
const READS: usize = 32;
/// But no more bytes than this, so that everybody else gets at the disk soon.
const BYTES_MAX: u64 = 2 << 20;
/// And from no more places.
const EXTENTS_MAX: usize = 64;
/// Units looked at, most of which may not pass the filter.
const UNITS_MAX: usize = 4096;
/// Units fetched at a time.
const UNITS: usize = 64;
/// What lies between two messages is read with them if it is not more: another request to the disk takes longer.
const GAP_MAX: u64 = 64 << 10;

/// A part of the log that is read in one go.
struct Extent {
    segment: Arc<Segment>,
    from: u64,
    to: u64,
}

impl Extent {
    /// Takes a message in that lies in it or a little behind. Returns by how much that made it longer.
    fn extend(&mut self, unit: Unit) -> Option<u64> {
        let end = unit.physical_offset + u64::from(unit.size);
        let fits =
            (self.from..=self.to + GAP_MAX).contains(&unit.physical_offset) && end <= self.segment.end();
        let longer = end.saturating_sub(self.to);
        fits.then(|| self.to += longer).map(|()| longer)
    }

    fn position(&self) -> u32 {
        (self.from - self.segment.base()) as u32
    }

    fn len(&self) -> u32 {
        (self.to - self.from) as u32
    }

    fn is_resident(&self) -> bool {
        self.segment.mapped().resident_bytes(self.position(), self.len()) == self.len()
    }
}

/// What is known of the log's pages in memory.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) blocks: &'a ResidentBlocks,
    pub(crate) pages: &'a ColdPages,
}

/// Brings the messages of `queue` from `offset` on into memory, `messages` for each read, and waits until they are there. Returns
/// the queue offset behind the last of them.
pub(crate) fn bring_in<F: MessageFilter + ?Sized>(
    log: &CommitLog,
    queue: &ConsumeQueue,
    offset: i64,
    messages: usize,
    filter: &F,
    memory: Memory<'_>,
) -> io::Result<i64> {
    let (mut extents, end) = plan(log, queue, offset, messages, filter)?;
    // What others have in memory stays there.
    extents.retain(|extent| !extent.is_resident());
    // First everything is asked for, so that the disk has it all at once.
    for extent in &extents {
        extent.segment.mapped().will_need(extent.position(), extent.len());
    }
    for extent in &extents {
        extent.segment.mapped().populate_for_read(extent.position(), extent.len());
        memory.pages.brought_in(&extent.segment, extent.position(), extent.len(), memory.blocks);
    }
    Ok(end)
}

fn plan<F: MessageFilter + ?Sized>(
    log: &CommitLog,
    queue: &ConsumeQueue,
    offset: i64,
    messages: usize,
    filter: &F,
) -> io::Result<(Vec<Extent>, i64)> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut messages = messages.max(1).saturating_mul(READS);
    let mut bytes = 0;
    let mut end = offset;
    let mut units = [[0; UNIT]; UNITS];
    while end < offset + UNITS_MAX as i64 {
        let count = queue.read_units(end, &mut units, false)?;
        for unit in units[..count].iter().map(Unit::decode) {
            if !unit.is_message() || !filter.matches_unit(unit.tags_code) {
                end += 1;
                continue;
            }
            if messages == 0 || bytes >= BYTES_MAX {
                return Ok((extents, end));
            }
            match extents.last_mut().and_then(|extent| extent.extend(unit)) {
                Some(longer) => bytes += longer,
                None if extents.len() == EXTENTS_MAX => return Ok((extents, end)),
                None => {
                    if let Some(segment) = log.locate(unit.physical_offset, unit.size) {
                        let from = unit.physical_offset;
                        extents.push(Extent { segment, from, to: from + u64::from(unit.size) });
                        bytes += u64::from(unit.size);
                    }
                }
            }
            messages -= 1;
            end += 1;
        }
        if count == 0 {
            break;
        }
    }
    Ok((extents, end))
}
