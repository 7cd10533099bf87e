//! Laying queues and index anew, without a broker.

use std::cell::Cell;

use ferromq_protocol::message::RecordView;

use crate::background;
use crate::checkpoint::read_abort;
use crate::error::OpenError;
use crate::open;
use crate::options::{DiskUsageSource, StoreOptions};
use crate::store::Store;

/// Bytes of the log between two reports of progress.
const PROGRESS_BYTES: u64 = 4 << 20;

/// What a rebuild has made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Records read.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// First offset of the log.
    pub log_min: u64,
    /// End of the log.
    pub log_end: u64,
    /// Topics with queues.
    pub topics: u64,
    /// Queues that have given an offset.
    pub queues: u64,
    /// Messages between the queues' begins and ends, holes included.
    pub units: u64,
}

/// Lays all queues and the index anew from the log: what a start does when it can believe nothing. Queue offsets stay what they
/// are, and what the log can't tell is kept: how far queues had got whose messages are gone, which topics were deleted.
///
/// Leaves the store as after a clean stop. If it is interrupted, the next start, or the next rebuild, begins anew. No log file is
/// deleted, whatever its age; a torn tail is cut as any start does. `progress` hears how many bytes of the log were read, every
/// few megabytes.
pub fn rebuild(options: &StoreOptions, progress: &dyn Fn(u64)) -> Result<Rebuilt, OpenError> {
    let options = StoreOptions {
        delete_when_hours: Vec::new(),
        clean_file_forcibly: false,
        disk_usage: DiskUsageSource::Fixed(|_| Some(0)),
        ..options.clone()
    };
    let counted = Cell::new(Rebuilt::default());
    let end = Cell::new(0);
    let reported = Cell::new(0);
    let seen = |record: &RecordView<'_>| {
        let at = record.physical_offset();
        let mut rebuilt = counted.get();
        if at < end.get() {
            // Once more from the begin.
            (rebuilt.records, rebuilt.record_bytes) = (0, 0);
            reported.set(0);
        }
        rebuilt.records += 1;
        rebuilt.record_bytes += record.size() as u64;
        counted.set(rebuilt);
        end.set(at + record.size() as u64);
        if rebuilt.record_bytes >= reported.get() + PROGRESS_BYTES {
            reported.set(rebuilt.record_bytes);
            progress(rebuilt.record_bytes);
        }
    };
    let opened = open::rebuild(&options, &seen)?;
    let store = Store::run(options.clone(), opened, background::start)?;
    let mut rebuilt = counted.get();
    rebuilt.log_min = store.min_offset();
    rebuilt.log_end = store.appended().get();
    for topic in store.topics() {
        rebuilt.topics += 1;
        for queue in store.queues_of(&topic) {
            rebuilt.queues += u64::from(queue.next_offset() > 0);
            rebuilt.units += queue.max_offset().saturating_sub(queue.min_offset()).max(0) as u64;
        }
    }
    store.shutdown();
    if read_abort(&options.root)?.is_some() {
        return Err(OpenError::NotWritten { root: options.root });
    }
    Ok(rebuilt)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use ferromq_protocol::message::RecordFields;

    use super::*;

    /// A process that is killed leaves its files as they are at that moment; so does a panic here.
    #[test]
    fn after_an_interruption_the_next_start_has_everything() {
        let root = tempfile::tempdir().unwrap();
        let options = || StoreOptions {
            commit_log_file_size: 64 << 10,
            consume_queue_file_size: 400,
            index_slots: 20,
            index_units: 40,
            ..StoreOptions::new(root.path())
        };
        let host = "10.0.0.1:1".parse().unwrap();
        let store = Store::open(options()).unwrap();
        for number in 0..300 {
            let properties = format!("KEYS\u{1}k{number}\u{2}");
            let fields = RecordFields {
                properties: properties.as_bytes(),
                ..RecordFields::new("T", number % 3, host, &[b'x'; 500])
            };
            let mut batch = store.new_batch();
            batch.push(&store.queue("T", number % 3), &fields).unwrap();
            store.append(&mut batch).unwrap();
        }
        store.shutdown();
        drop(store);
        for interrupted_at in [0, 1, 150, 299] {
            let seen = Cell::new(0);
            let interrupted = catch_unwind(AssertUnwindSafe(|| {
                open::rebuild(&options(), &|_| {
                    assert!(seen.get() < interrupted_at, "interrupted");
                    seen.set(seen.get() + 1);
                })
            }));
            assert!(interrupted.is_err());
            let store = Store::open(options()).unwrap();
            for queue_id in 0..3 {
                let queue = store.queue("T", queue_id);
                assert_eq!(store.consume_queue_units(&queue, 0, 1000).len(), 100, "{interrupted_at}");
                assert_eq!(queue.next_offset(), 100, "{interrupted_at}");
            }
            for number in 0..300 {
                let found = store.query("T", &format!("k{number}"), 9, 0, i64::MAX, false).records.len();
                assert_eq!(found, 1, "key {number}, interrupted at {interrupted_at}");
            }
            store.shutdown();
        }
    }
}
