//! Bodies and files made of JSON, compressed registrations, Java properties, message ids.

#![no_main]

use ferromq_protocol::body::{HeartbeatData, RegisterBrokerBody, TopicConfigSerializeWrapper};
use ferromq_protocol::java_properties;
use ferromq_protocol::json;
use ferromq_protocol::message::id;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = RegisterBrokerBody::decode_compressed(bytes, false);
    let _ = RegisterBrokerBody::decode_compressed(bytes, true);
    let _ = RegisterBrokerBody::decode(bytes);
    let _ = java_properties::parse(bytes);
    if let Ok(heartbeat) = json::from_slice::<HeartbeatData>(bytes) {
        let _ = heartbeat.compute_fingerprint();
    }
    if let Ok(topics) = json::from_slice::<TopicConfigSerializeWrapper>(bytes) {
        let again = json::from_slice::<TopicConfigSerializeWrapper>(&json::to_vec(&topics));
        assert_eq!(again.expect("our own JSON"), topics);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = json::parse(text);
        let _ = id::parse_offset_id(text);
    }
});
