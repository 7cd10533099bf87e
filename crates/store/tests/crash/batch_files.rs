//! What other brokers read of the topic of batches (`docs/spec/02-store.md` §6.6) against the model: one unit for each record, in the
//! order of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::check::queues;
use super::history::BATCH_TOPIC;
use super::model::{Model, Place, QueueKey, Sent};

const UNIT: usize = 46;

/// A unit, or what a unit should be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BatchUnit {
    physical_offset: u64,
    bytes: Vec<u8>,
}

/// How much the files must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Of each queue the first records that are in the log, if any: the others are in memory.
    Begin,
    /// Every record that is in the log.
    All,
}

/// The files of a store whose log begins at `log_min` hold what the model says, and nothing else but units of expired records.
pub(crate) fn check(root: &Path, model: &Model, log_min: u64, extent: Extent) {
    for queue in queues(model).into_iter().filter(|(topic, _)| topic == BATCH_TOPIC) {
        let expected = expected(model, &queue);
        let found = found(root, &queue);
        for unit in &found {
            let known = expected.get(&unit.physical_offset);
            assert_eq!(Some(unit), known, "a batch unit of {queue:?} and its record");
        }
        let found: Vec<_> = found.iter().map(|unit| unit.physical_offset).collect();
        assert!(found.is_sorted(), "batch units of {queue:?} in the order of the log: {found:?}");
        let is_in_log = |offset: &u64| *offset >= log_min;
        let found: Vec<_> = found.into_iter().filter(is_in_log).collect();
        let expected: Vec<_> = expected.into_keys().filter(is_in_log).collect();
        match extent {
            Extent::Begin => {
                assert!(expected.starts_with(&found), "batch units of {queue:?}: {found:?} of {expected:?}")
            }
            Extent::All => assert_eq!(found, expected, "batch units of {queue:?}"),
        }
    }
}

/// The unit of each record of a queue, by physical offset.
fn expected(model: &Model, queue: &QueueKey) -> BTreeMap<u64, BatchUnit> {
    let records = model.sent.iter().filter_map(|sent| Some((sent, sent.place_in(queue)?)));
    let unit = |(sent, place): (&Sent, &Place)| {
        let mut bytes = Vec::with_capacity(UNIT);
        bytes.extend(sent.physical_offset.to_be_bytes());
        bytes.extend(((sent.end - sent.physical_offset) as u32).to_be_bytes());
        // The hash of its tag "t".
        bytes.extend(i64::from(b't').to_be_bytes());
        bytes.extend(sent.store_timestamp.to_be_bytes());
        bytes.extend(place.offsets.start.to_be_bytes());
        bytes.extend((place.offsets.clone().count() as u16).to_be_bytes());
        bytes.extend((-1i32).to_be_bytes());
        bytes.extend([0; 4]);
        (sent.physical_offset, BatchUnit { physical_offset: sent.physical_offset, bytes })
    };
    records.map(unit).collect()
}

/// The units in the files of a queue. Behind the last one there are only zeros.
fn found(root: &Path, (topic, queue_id): &QueueKey) -> Vec<BatchUnit> {
    let directory = root.join("batchconsumequeue").join(topic).join(queue_id.to_string());
    let files = fs::read_dir(directory).into_iter().flatten().map(|file| file.unwrap().path());
    let files: BTreeSet<_> = files.collect();
    let bytes: Vec<u8> = files.iter().flat_map(|file| fs::read(file).unwrap()).collect();
    let unit = |bytes: &[u8]| BatchUnit {
        physical_offset: u64::from_be_bytes(bytes[..8].try_into().unwrap()),
        bytes: bytes.to_vec(),
    };
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last / UNIT + 1) * UNIT);
    bytes[..end].chunks(UNIT).map(unit).collect()
}
