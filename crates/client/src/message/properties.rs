//! Properties of messages: their names, and which ones applications can set (`docs/spec/07-client.md` 7.2).

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_can_t_use_the_system_s_names() {
        assert!(check_user("colour", "red").is_ok());
        assert!(check_user(UNIQ_KEY, "x").is_err());
        assert!(check_user("colour", " ").is_err());
    }
}
