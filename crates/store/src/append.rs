//! Records on their way into the log: what one socket read brought, appended under one lock acquisition.

use std::sync::Arc;

use ferromq_protocol::message::{RecordFields, sysflag};

use crate::error::PushError;
use crate::late::Late;
use crate::queue::{ConsumeQueue, ConsumeQueues};

/// Records that are appended together. One per connection, reused: after the first few rounds nothing allocates.
///
/// ```no_run
/// # use ferromq_store::*; use ferromq_protocol::message::RecordFields;
/// # fn f(store: &Store, record: RecordFields<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = store.queue("TopicTest", 3);
/// let mut batch = store.new_batch();
/// batch.push(&queue, &record)?;
/// let result = store.append(&mut batch);
/// for outcome in batch.outcomes() { /* answer the first `outcomes().len()` requests: stored */ }
/// if let Err(error) = result { /* answer the rest: refused */ }
/// batch.clear();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct AppendBatch {
    /// Encoded records, back to back.
    pub(crate) scratch: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    /// All queues of the store.
    pub(crate) queues: Arc<ConsumeQueues>,
    pub(crate) outcomes: Vec<Outcome>,
    /// The record that is just being completed, see [`Late`].
    pub(crate) completed: Vec<u8>,
    pub(crate) crc_property: bool,
    light_queues_enabled: bool,
    record_len_max: usize,
}

#[derive(Debug)]
pub(crate) struct Entry {
    /// The queue's number. A reference for each record would be counted up and down, and the count lies where the dispatcher works.
    pub(crate) queue: u32,
    pub(crate) size: u32,
    /// Queue offsets that it takes.
    pub(crate) messages: u32,
    /// Bytes of this record and the ones of its group behind it: they must end up in one file.
    pub(crate) group_size: u32,
    pub(crate) takes_queue_offset: bool,
    pub(crate) late: Option<Box<Late>>,
}

/// What became of an appended record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Its offset in its queue, of a batch in one record the first (0 for prepared and rolled back transactional messages).
    pub queue_offset: i64,
    /// Where it begins in the log.
    pub physical_offset: u64,
    /// Its length in the log, bytes.
    pub size: u32,
    /// The broker's clock at the append, milliseconds since 1970.
    pub store_timestamp: i64,
}

impl Outcome {
    /// Where the record ends in the log: what a waterline must reach.
    pub fn end(&self) -> u64 {
        self.physical_offset + u64::from(self.size)
    }
}

impl AppendBatch {
    /// `light_queues_enabled`: messages may go to light queues.
    pub(crate) fn new(
        record_len_max: usize,
        crc_property: bool,
        queues: Arc<ConsumeQueues>,
        light_queues_enabled: bool,
    ) -> Self {
        AppendBatch {
            scratch: Vec::new(),
            entries: Vec::new(),
            queues,
            outcomes: Vec::new(),
            completed: Vec::new(),
            crc_property,
            light_queues_enabled,
            record_len_max,
        }
    }

    /// Adds one message. On an error the batch is unchanged.
    #[inline]
    pub fn push(&mut self, queue: &Arc<ConsumeQueue>, record: &RecordFields<'_>) -> Result<(), PushError> {
        let mut group_size = 0;
        let before = self.scratch.len();
        self.encode(queue, record, &mut group_size)
            .inspect_err(|_| self.scratch.truncate(before))
            .map(|entry| self.entries.push(Entry { group_size, ..entry }))
    }

    /// Adds the messages of a traditional batch: consecutive queue offsets, one log file
    /// (`docs/spec/02-store.md` §4.7). Returns how many there were; on an error the batch is unchanged.
    pub fn push_group<'a>(
        &mut self,
        queue: &Arc<ConsumeQueue>,
        records: impl IntoIterator<Item = RecordFields<'a>>,
    ) -> Result<usize, PushError> {
        let (scratch_before, entries_before) = (self.scratch.len(), self.entries.len());
        let mut group_size = 0;
        for record in records {
            match self.encode(queue, &record, &mut group_size) {
                Ok(entry) => self.entries.push(entry),
                Err(error) => {
                    self.scratch.truncate(scratch_before);
                    self.entries.truncate(entries_before);
                    return Err(error);
                }
            }
        }
        let group = &mut self.entries[entries_before..];
        for entry in group.iter_mut() {
            let behind = entry.group_size;
            entry.group_size = group_size - behind;
        }
        Ok(group.len())
    }

    /// Encodes one more message of a group. `group_size` is the size of those before it, and then includes it; the entry has the
    /// former.
    #[inline]
    fn encode(
        &mut self,
        queue: &ConsumeQueue,
        record: &RecordFields<'_>,
        group_size: &mut u32,
    ) -> Result<Entry, PushError> {
        debug_assert_eq!((record.topic, record.queue_id), (queue.topic(), queue.queue_id()));
        let light_queues = self.light_queues_enabled.then_some(&self.queues);
        let late = Late::of(record, light_queues, self.crc_property)?;
        let size = if self.crc_property && late.is_none() {
            record.encode_with_crc_property_into(&mut self.scratch)?
        } else {
            record.encode_into(&mut self.scratch)?
        };
        let before = *group_size;
        let len = before as usize + size + late.as_ref().map_or(0, |late| late.growth_max());
        if len > self.record_len_max {
            return Err(PushError::LargerThanFile { len, max: self.record_len_max });
        }
        *group_size = len as u32;
        Ok(Entry {
            queue: queue.number(),
            size: size as u32,
            messages: late.as_ref().map_or(1, |late| late.messages()),
            group_size: before,
            takes_queue_offset: sysflag::takes_queue_offset(record.sys_flag),
            late,
        })
    }

    /// Number of records pushed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all records pushed.
    pub fn bytes(&self) -> usize {
        self.scratch.len()
    }

    /// What became of the records, in the order in which they were pushed, after
    /// [`Store::append`](crate::Store::append). When it failed, only the records that were appended before the failure
    /// have an outcome (a group entirely or not at all).
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Forgets everything, keeps the memory (up to 1 MiB of it).
    pub fn clear(&mut self) {
        const KEPT: usize = 1 << 20;
        self.scratch.clear();
        self.scratch.shrink_to(KEPT);
        self.entries.clear();
        self.outcomes.clear();
        self.completed.clear();
        self.completed.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreOptions};

    #[test]
    fn each_record_gets_an_offset_of_its_own_queue_however_many_there_are() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions {
            commit_log_file_size: 1 << 20,
            index_enabled: false,
            ..StoreOptions::new(directory.path())
        })
        .unwrap();
        let queues: Vec<_> = (0..100).map(|queue| store.queue("T", queue)).collect();
        let mut batch = store.new_batch();
        for (round, used) in
            [&queues[..5], &queues[..], &queues[37..39], &queues[..5]].into_iter().enumerate()
        {
            for _ in 0..2 {
                for queue in used {
                    let host = "127.0.0.1:1".parse().unwrap();
                    let body = queue.queue_id().to_string();
                    batch
                        .push(queue, &RecordFields::new("T", queue.queue_id(), host, body.as_bytes()))
                        .unwrap();
                }
            }
            let before: Vec<i64> = used.iter().map(|queue| queue.next_offset()).collect();
            store.append(&mut batch).unwrap();
            for (number, outcome) in batch.outcomes().iter().enumerate() {
                let (at, second) = (number % used.len(), number / used.len());
                assert_eq!(
                    outcome.queue_offset,
                    before[at] + second as i64,
                    "record {number} of round {round}"
                );
                let record = store.record_at(outcome.physical_offset).unwrap().unwrap();
                let view =
                    ferromq_protocol::message::RecordView::whole(&record, outcome.physical_offset).unwrap();
                assert_eq!(view.queue_id(), used[at].queue_id());
            }
            batch.clear();
        }
        store.shutdown();
    }
}
