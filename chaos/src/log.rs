//! What is in the store of a broker that does not run.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferromq_store::StoreOptions;
use ferromq_store::offline::{OfflineStore, Selected, Selection};
use thiserror::Error;

use crate::history::{MessageId, Position};

/// A message in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the topic under test.
    pub position: Position,
    /// Where it begins, bytes.
    pub physical: u64,
    /// Who stored it.
    pub host: SocketAddr,
    /// What it is.
    pub message: MessageId,
}

/// The log of one replica.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Messages of the topic under test in the order of the log.
    pub records: Vec<Record>,
    /// Where the log begins, bytes.
    pub begin: u64,
    /// Where the last whole record ends, bytes.
    pub end: u64,
    /// What is damaged, in words.
    pub damages: Vec<String>,
}

impl Log {
    /// How often each message is there.
    pub fn counts(&self) -> HashMap<MessageId, usize> {
        let mut counts = HashMap::with_capacity(self.records.len());
        for record in &self.records {
            *counts.entry(record.message).or_default() += 1;
        }
        counts
    }
}

/// A store can't be read.
#[derive(Debug, Error)]
#[error("the store in {} can't be read: {reason}", path.display())]
pub struct Unreadable {
    path: PathBuf,
    reason: String,
}

/// Reads a store.
pub(crate) fn read(store: &Path, segment_bytes: u32, topic: &str) -> Result<Log, Unreadable> {
    let unreadable = |reason: String| Unreadable { path: store.to_owned(), reason };
    let mut options = StoreOptions::new(store);
    options.commit_log_file_size = segment_bytes;
    let offline = OfflineStore::open(options).map_err(|error| unreadable(error.to_string()))?;
    let mut log = Log { begin: offline.min_offset(), ..Log::default() };
    let everything = Selection { read_log: true, ..Selection::default() };
    let mut take = |selected: Selected<'_>| {
        match selected {
            Selected::Message(record) => {
                log.end = record.physical_offset() + record.size() as u64;
                if record.topic_bytes() == topic.as_bytes()
                    && let Some(message) = MessageId::parse(record.body())
                {
                    log.records.push(Record {
                        position: Position { queue: record.queue_id(), offset: record.queue_offset() },
                        physical: record.physical_offset(),
                        host: record.store_host(),
                        message,
                    });
                }
            }
            Selected::Damage { offset, reason } => log.damages.push(format!("at {offset}: {reason}")),
        }
        ControlFlow::Continue(())
    };
    offline.messages(&everything, &mut take).map_err(|error| unreadable(error.to_string()))?;
    Ok(log)
}

/// The first byte at which two logs differ between `begin` and `end`.
pub(crate) fn first_difference(
    stores: [&Path; 2],
    segment_bytes: u32,
    mut begin: u64,
    end: u64,
) -> io::Result<Option<u64>> {
    const CHUNK: u64 = 1 << 20;
    let segment_bytes = u64::from(segment_bytes);
    while begin < end {
        let base = begin - begin % segment_bytes;
        let len = (base + segment_bytes).min(end).min(begin + CHUNK) - begin;
        let mut chunks = [vec![0; len as usize], vec![0; len as usize]];
        for (store, chunk) in stores.iter().zip(&mut chunks) {
            File::open(store.join("commitlog").join(format!("{base:020}")))?
                .read_exact_at(chunk, begin - base)?;
        }
        let [one, other] = &chunks;
        if let Some(at) = one.iter().zip(other).position(|(one, other)| one != other) {
            return Ok(Some(begin + at as u64));
        }
        begin += len;
    }
    Ok(None)
}
