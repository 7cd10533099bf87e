//! Messages for tests.

use bytes::Bytes;
use ferromq_protocol::message::{RecordFields, set_log_fields};

use crate::message::{MessageExt, Properties, decode_stored};

/// A message of one byte at this place of queue 0.
pub(crate) fn message(topic: &str, queue_offset: i64) -> MessageExt {
    let host = "127.0.0.1:10911".parse().unwrap();
    let mut bytes = Vec::new();
    RecordFields::new(topic, 0, host, b"x").encode_into(&mut bytes).unwrap();
    set_log_fields(&mut bytes, queue_offset, 0, 0);
    let mut messages = decode_stored(&Bytes::from(bytes), "a");
    messages[0].properties = Properties::default();
    messages.remove(0)
}
