//! The properties of a message on its way into the log (`docs/spec/03-broker.md` 2.3, 2.6).

use std::net::IpAddr;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use ferromq_protocol::message::{id::UniqueIds, properties};
use ferromq_store::is_light_queue;
use jiff::Zoned;
use parking_lot::RwLock;

use crate::answer::Refusal;
use crate::config::BrokerConfig;
use crate::send::illegal;

/// The parts of a message's properties that decide what is done with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    /// `DELAY`, 0 without.
    pub(crate) delay_level: i32,
    /// `WAIT` is `false`: the answer waits for neither flush nor replicas.
    pub(crate) no_wait: bool,
    /// `TRAN_MSG` is `true`: a half message.
    pub(crate) transactional: bool,
    /// One of the timer properties is there and counts.
    pub(crate) timer: bool,
    /// `INNER_NUM` is there: the message claims to be a batch in one record.
    pub(crate) inner_batch: bool,
    /// `INNER_MULTI_DISPATCH` names something else than light queues.
    pub(crate) no_light_queue: bool,
    /// There are `KEYS` that are not blank.
    pub(crate) has_keys: bool,
    /// Where the value of `UNIQ_KEY` stands in the list that was written; empty without.
    pub(crate) unique_id: Range<usize>,
}

/// Copies a client's list to `out` without what clients don't decide, and reads its directives on the way.
///
/// # Errors
/// MESSAGE_ILLEGAL for a number that is none, and for a zero byte: after a crash a record with one could not be told
/// from a torn one.
pub(crate) fn take_in(client: &[u8], out: &mut Vec<u8>) -> Result<Directives, Refusal> {
    if memchr::memchr(0, client).is_some() {
        return Err(illegal("the message properties contain a zero byte"));
    }
    let mut found = Directives::default();
    let mut timer_out = false;
    // One look at the whole list; bytes that are no UTF-8 become U+FFFD, as in Java.
    let client = String::from_utf8_lossy(client);
    for (name, value) in properties::iter_bytes(client.as_bytes()) {
        let start = out.len();
        out.extend_from_slice(name);
        out.push(1);
        let value_start = out.len();
        out.extend_from_slice(value);
        out.push(2);
        match name {
            b"DELAY" => found.delay_level = number(name, value)?,
            b"WAIT" => found.no_wait = value.eq_ignore_ascii_case(b"false"),
            b"TRAN_MSG" => found.transactional = value.eq_ignore_ascii_case(b"true"),
            b"TIMER_DELAY_SEC" | b"TIMER_DELAY_MS" | b"TIMER_DELIVER_MS" => {
                number::<i64>(name, value)?;
                found.timer = true;
            }
            b"TIMER_OUT_MS" => timer_out = true,
            b"INNER_NUM" => found.inner_batch = true,
            b"INNER_MULTI_DISPATCH" => {
                let names = std::str::from_utf8(value).unwrap_or_default();
                found.no_light_queue = !names.split(',').all(is_light_queue);
            }
            b"KEYS" => found.has_keys = !value.trim_ascii().is_empty(),
            b"UNIQ_KEY" => found.unique_id = value_start..out.len() - 1,
            // Only the broker sets the first five; the others are of no use behind this point.
            b"MSG_REGION"
            | b"TRACE_ON"
            | b"CLUSTER"
            | b"INNER_MULTI_QUEUE_OFFSET"
            | b"INNER_BASE"
            | b"POP_CK"
            | b"__CRC32#" => out.truncate(start),
            _ => {}
        }
    }
    // A level wins over a time, and a time that was already turned into an instant is none (02-store 14.1).
    found.timer &= found.delay_level <= 0 && !timer_out;
    Ok(found)
}

fn number<N: FromStr>(name: &[u8], value: &[u8]) -> Result<N, Refusal> {
    let text = String::from_utf8_lossy(value);
    text.trim().parse().map_err(|_| {
        let (name, value) = (String::from_utf8_lossy(name), text.chars().take(64).collect::<String>());
        illegal(format!("the message property {name} is not a number: `{value}`"))
    })
}

/// What this broker writes into the properties of every message.
#[derive(Debug)]
pub(crate) struct BrokerProperties {
    /// `MSG_REGION`, `TRACE_ON` and `CLUSTER`, encoded; follows the settings.
    own: RwLock<Arc<[u8]>>,
    ids: UniqueIds,
}

impl BrokerProperties {
    pub(crate) fn new(config: &BrokerConfig, address: IpAddr) -> Self {
        Self { own: RwLock::new(encode_own(config)), ids: UniqueIds::new(address, std::process::id(), 0) }
    }

    /// Takes over settings that changed.
    pub(crate) fn reconfigure(&self, config: &BrokerConfig) {
        *self.own.write() = encode_own(config);
    }

    /// The encoded list that is appended to every message's own.
    pub(crate) fn own(&self) -> Arc<[u8]> {
        self.own.read().clone()
    }

    /// Appends a new unique id to the list and returns where it stands.
    pub(crate) fn append_unique_id(&self, out: &mut Vec<u8>) -> Range<usize> {
        let mut id = String::with_capacity(32);
        self.ids.write_next(&mut id, millis_of_month());
        properties::append(out, properties::UNIQ_KEY, &id);
        out.len() - 1 - id.len()..out.len() - 1
    }
}

fn encode_own(config: &BrokerConfig) -> Arc<[u8]> {
    let mut encoded = Vec::new();
    properties::append(&mut encoded, "MSG_REGION", &config.region_id);
    properties::append(&mut encoded, "TRACE_ON", if config.trace_on { "true" } else { "false" });
    properties::append(&mut encoded, "CLUSTER", &config.broker_cluster_name);
    encoded.into()
}

/// Milliseconds since the current month began, local time: what unique ids carry (`docs/spec/01-remoting.md` 6.4).
fn millis_of_month() -> u32 {
    let now = Zoned::now();
    let begin = now.first_of_month().and_then(|first| first.start_of_day()).unwrap_or_else(|_| now.clone());
    let millis = now.timestamp().as_millisecond() - begin.timestamp().as_millisecond();
    u32::try_from(millis).unwrap_or_default()
}

/// The same list with some properties replaced: those of `set` are dropped where they stand and appended, unless their
/// new value is empty.
pub(crate) fn replaced(encoded: &[u8], set: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded.len() + 64);
    properties::copy_without(encoded, &mut out, |name| set.iter().any(|(replaced, _)| *replaced == name));
    for (name, value) in set {
        properties::append(&mut out, name, value);
    }
    out
}

/// What changes in a message's properties when it goes to the queue of a delay level (6.2), for [`replaced`].
pub(crate) fn delay_changes<'a>(
    level: &'a str,
    topic: &'a str,
    queue_id: &'a str,
) -> [(&'static str, &'a str); 6] {
    [
        ("DELAY", level),
        ("REAL_TOPIC", topic),
        ("REAL_QID", queue_id),
        // A level wins over a time (02-store 14.1).
        ("TIMER_DELIVER_MS", ""),
        ("TIMER_DELAY_SEC", ""),
        ("TIMER_DELAY_MS", ""),
    ]
}

/// Where the value of `UNIQ_KEY` stands in an encoded list; empty without.
pub(crate) fn unique_id(encoded: &[u8]) -> Range<usize> {
    let value = properties::find(encoded, properties::UNIQ_KEY).unwrap_or_default();
    let start = if value.is_empty() { 0 } else { value.as_ptr() as usize - encoded.as_ptr() as usize };
    start..start + value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_in(list: &[u8]) -> (Directives, Vec<u8>) {
        let mut out = Vec::new();
        (take_in(list, &mut out).unwrap(), out)
    }

    #[test]
    fn directives_are_found() {
        let list = b"DELAY\x013\x02WAIT\x01false\x02KEYS\x01 \x02TIMER_DELAY_MS\x015\x02";
        let (found, copy) = taken_in(list);
        assert_eq!(found, Directives { delay_level: 3, no_wait: true, ..Directives::default() });
        assert_eq!(copy, list);
        assert!(taken_in(b"TIMER_DELAY_MS\x015\x02").0.timer);
        assert!(!taken_in(b"TIMER_DELAY_MS\x015\x02TIMER_OUT_MS\x015\x02").0.timer);
        assert!(taken_in(b"TRAN_MSG\x01TRUE\x02").0.transactional);
        let (found, copy) = taken_in(b"UNIQ_KEY\x01ID7\x02a\x01b");
        assert_eq!(&copy[found.unique_id], b"ID7");
    }

    #[test]
    fn a_number_that_is_none_is_named() {
        let refusal = take_in(b"DELAY\x01abc\x02", &mut Vec::new()).unwrap_err();
        assert_eq!(refusal.code, 13);
        assert!(refusal.remark.contains("DELAY") && refusal.remark.contains("abc"));
        let refusal = take_in(b"TIMER_DELIVER_MS\x01soon\x02", &mut Vec::new()).unwrap_err();
        assert!(refusal.remark.contains("TIMER_DELIVER_MS"));
    }

    #[test]
    fn what_is_the_brokers_is_taken_from_clients() {
        assert_eq!(taken_in(b"POP_CK\x01x\x02a\x01b\x02CLUSTER\x01c\x02").1, b"a\x01b\x02");
        assert!(take_in(b"a\x01b\0\x02", &mut Vec::new()).is_err());
    }

    #[test]
    fn replaced_properties_stand_once() {
        assert_eq!(replaced(b"a\x011\x02b\x012\x02a\x013\x02", &[("a", "4")]), b"b\x012\x02a\x014\x02");
    }
}
