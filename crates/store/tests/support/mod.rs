//! What the tests of the store share.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "every test program uses a part of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::message::{RecordFields, RecordView};
use ferromq_store::{
    AcceptAll, ConsumeQueue, DiskUsageSource, Outcome, ReadOutcome, ReadRequest, ReadStatus, RecordSlice,
    Residency, Store, StoreOptions,
};

/// Options with small files, and a disk that is never full.
pub fn small(root: &Path) -> StoreOptions {
    StoreOptions {
        commit_log_file_size: 64 << 10,
        consume_queue_file_size: 400,
        index_slots: 20,
        index_units: 40,
        disk_usage: DiskUsageSource::Fixed(|_| Some(10)),
        delete_when_hours: Vec::new(),
        ..StoreOptions::new(root)
    }
}

pub fn host() -> SocketAddr {
    "10.0.0.1:54321".parse().unwrap()
}

/// A message as a test wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    pub queue_id: i32,
    pub body: Vec<u8>,
    pub properties: Vec<u8>,
    pub sys_flag: i32,
}

impl Message {
    pub fn new(topic: &str, queue_id: i32, body: impl Into<Vec<u8>>) -> Self {
        Message { topic: topic.into(), queue_id, body: body.into(), properties: Vec::new(), sys_flag: 0 }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        assert!(ferromq_protocol::message::properties::append(&mut self.properties, name, value));
        self
    }

    pub fn fields(&self) -> RecordFields<'_> {
        RecordFields {
            topic: &self.topic,
            queue_id: self.queue_id,
            flag: 0,
            sys_flag: self.sys_flag,
            born_timestamp: 1_700_000_000_000,
            born_host: host(),
            store_host: "192.168.1.2:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &self.body,
            properties: &self.properties,
        }
    }
}

/// Appends one message.
pub fn send(store: &Store, message: &Message) -> Outcome {
    let mut batch = store.new_batch();
    batch.push(&store.queue(&message.topic, message.queue_id), &message.fields()).unwrap();
    store.append(&mut batch).unwrap();
    batch.outcomes()[0]
}

pub fn request(offset: i64) -> ReadRequest {
    ReadRequest { offset, max_messages: 32, max_bytes: usize::MAX, residency: Residency::Any }
}

/// Reads a queue from its begin to its end: queue offset and body of each message.
pub fn drain(store: &Store, queue: &ConsumeQueue) -> Vec<(i64, Vec<u8>)> {
    drain_records(store, queue)
        .iter()
        .map(|record| {
            let view = RecordView::parse(record).unwrap();
            view.check(record.physical_offset()).unwrap();
            assert_eq!((view.topic(), view.queue_id()), (Some(queue.topic()), queue.queue_id()));
            (view.queue_offset(), view.body().to_vec())
        })
        .collect()
}

pub fn drain_records(store: &Store, queue: &ConsumeQueue) -> Vec<RecordSlice> {
    store.dispatch_to_confirmed();
    let mut records: Vec<RecordSlice> = Vec::new();
    let mut offset = queue.min_offset();
    loop {
        let outcome = store.read(queue, request(offset), &AcceptAll, &mut records);
        match outcome.status {
            ReadStatus::NoMessageInQueue | ReadStatus::OffsetOverflowOne => return records,
            ReadStatus::OffsetOverflowBadly => panic!("beyond the end at {offset}"),
            _ => assert!(outcome.next_offset > offset, "no progress at {offset}: {outcome:?}"),
        }
        offset = outcome.next_offset;
    }
}
