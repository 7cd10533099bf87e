//! Properties of messages: names, rules and the list on the wire (`docs/spec/07-client.md` 7.2).

use std::collections::BTreeMap;

use ferromq_protocol::message::properties;

use crate::error::Error;

pub(crate) use ferromq_protocol::message::properties::{DELAY, KEYS, TAGS, UNIQ_KEY, WAIT};
pub(crate) const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
pub(crate) const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
pub(crate) const SHARDING_KEY: &str = "__SHARDINGKEY";
pub(crate) const RETRY_TOPIC: &str = "RETRY_TOPIC";
pub(crate) const RECONSUME_TIME: &str = "RECONSUME_TIME";
pub(crate) const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
pub(crate) const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
pub(crate) const MIN_OFFSET: &str = "MIN_OFFSET";
pub(crate) const MAX_OFFSET: &str = "MAX_OFFSET";
pub(crate) const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
pub(crate) const TRAN_MSG: &str = "TRAN_MSG";
pub(crate) const PRODUCER_GROUP: &str = "PGROUP";
pub(crate) const CORRELATION_ID: &str = "CORRELATION_ID";
pub(crate) const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
pub(crate) const TTL: &str = "TTL";
pub(crate) const ARRIVE_TIME: &str = "ARRIVE_TIME";
pub(crate) const CLUSTER: &str = "CLUSTER";
pub(crate) const MESSAGE_TYPE: &str = "MSG_TYPE";
pub(crate) const POP_CK: &str = "POP_CK";
pub(crate) const FIRST_POP_TIME: &str = "1ST_POP_TIME";

/// Names that applications can't use.
const SYSTEM_NAMES: [&str; 54] = [
    "TRACE_ON",
    "MSG_REGION",
    KEYS,
    TAGS,
    WAIT,
    DELAY,
    RETRY_TOPIC,
    "REAL_TOPIC",
    "REAL_QID",
    TRAN_MSG,
    PRODUCER_GROUP,
    MIN_OFFSET,
    MAX_OFFSET,
    "BUYER_ID",
    ORIGIN_MESSAGE_ID,
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    RECONSUME_TIME,
    UNIQ_KEY,
    "EXTEND_UNIQ_INFO",
    MAX_RECONSUME_TIMES,
    CONSUME_START_TIME,
    "TRAN_PREPARED_QUEUE_OFFSET",
    "TRANSACTION_CHECK_TIMES",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "__transactionId__",
    SHARDING_KEY,
    "INSTANCE_ID",
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    ARRIVE_TIME,
    "PUSH_REPLY_TIME",
    CLUSTER,
    MESSAGE_TYPE,
    POP_CK,
    "POP_CK_OFFSET",
    FIRST_POP_TIME,
    "__STARTDELIVERTIME",
    "DLQ_ORIGIN_TOPIC",
    "DLQ_ORIGIN_MESSAGE_ID",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "INNER_NUM",
    "INNER_BASE",
    TIMER_DELAY_MS,
    "TIMER_DELAY_SEC",
    TIMER_DELIVER_MS,
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
    "TIMER_OUT_MS",
    "TIMER_DEL_UNIQKEY",
];

/// Whether an application may set the property; if not, why.
pub(crate) fn check_user(name: &str, value: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() || value.trim().is_empty() {
        Err("name and value must not be blank")
    } else if SYSTEM_NAMES.contains(&name) {
        Err("the name is used by the system, choose another one")
    } else {
        Ok(())
    }
}

/// Whether all properties can stand in a list on the wire.
pub(crate) fn check_values(list: &BTreeMap<String, String>) -> Result<(), Error> {
    const MARKS: [char; 2] = ['\u{1}', '\u{2}'];
    match list.iter().find(|(name, value)| name.contains(MARKS) || value.contains('\u{2}')) {
        Some((name, _)) => Err(Error::invalid(
            format!("property `{}`", name.escape_debug()),
            "the characters 1 and 2 end names and values on the wire",
        )),
        None => Ok(()),
    }
}

/// Length of the list as it is sent, bytes.
pub(crate) fn encoded_len(list: &BTreeMap<String, String>) -> usize {
    list.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
}

/// The list as it is sent.
pub(crate) fn encode(list: &BTreeMap<String, String>) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(encoded_len(list));
    for (name, value) in list {
        properties::append(&mut encoded, name, value);
    }
    encoded
}

/// The list as it is sent in a header, which is text.
pub(crate) fn encode_text(list: &BTreeMap<String, String>) -> String {
    // Names and values are text and so are the marks between them.
    String::from_utf8(encode(list)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_spec_25_4() {
        let list = BTreeMap::from([
            (KEYS.to_owned(), "k1 k2".to_owned()),
            (TAGS.to_owned(), "tagA".to_owned()),
            (WAIT.to_owned(), "true".to_owned()),
        ]);
        assert_eq!(encoded_len(&list), encode(&list).len());
        assert_eq!(encode(&list), b"KEYS\x01k1 k2\x02TAGS\x01tagA\x02WAIT\x01true\x02");
    }

    #[test]
    fn applications_can_t_use_the_system_s_names() {
        assert!(check_user("colour", "red").is_ok());
        assert!(check_user(UNIQ_KEY, "x").is_err());
        assert!(check_user("colour", " ").is_err());
        let marked = BTreeMap::from([("a".to_owned(), "x\u{2}y".to_owned())]);
        assert!(check_values(&marked).is_err());
    }
}
