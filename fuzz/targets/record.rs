//! Stored messages, as a damaged log may hold them, and the bodies of batches.

#![no_main]

use ferromq_protocol::message::{RecordView, batch, crc32, properties};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, &[u8])| {
    let (offset, bytes) = input;
    for message in batch::iter(bytes) {
        if message.is_err() {
            break;
        }
    }
    let pairs = properties::iter_bytes(bytes).count();
    assert!(pairs <= bytes.len());
    let Ok(record) = RecordView::parse(bytes) else { return };
    assert!(record.size() <= bytes.len());
    let _ = (record.born_host(), record.store_host(), record.topic(), record.store_timestamp());
    assert!(record.body().len() + record.topic_bytes().len() + record.properties().len() < record.size());
    let _ = record.property("TAGS");
    if record.check(offset).is_ok() {
        assert_eq!(record.physical_offset(), offset);
        assert!(record.body().is_empty() || record.body_crc() == crc32(record.body()));
        assert!(record.topic().is_some() && properties::is_sound(record.properties()));
    }
});
