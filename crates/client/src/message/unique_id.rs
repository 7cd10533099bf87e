//! The id that a client gives to each message it sends (`docs/spec/07-client.md` 8.1).

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use ferromq_protocol::message::id::UniqueIds;
use jiff::{Timestamp, tz::TimeZone};
use parking_lot::Mutex;

use crate::identity;

/// A clock that jumps back by less than this is taken as standing still.
const BACKWARDS_MAX_MS: i64 = 1_000_000;

static IDS: LazyLock<UniqueIds> = LazyLock::new(|| {
    let address = choose_address(&identity::interface_addresses());
    UniqueIds::new(address, std::process::id(), fastrand::u32(..))
});

static MONTH: Mutex<Month> = Mutex::new(Month { begin_ms: 0, end_ms: 0 });

/// A new id, which no other message of any client has.
pub(crate) fn next_unique_id() -> String {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let mut id = String::with_capacity(56);
    IDS.write_next(&mut id, MONTH.lock().millis_since_begin(now_ms));
    id
}

/// The month that ids count their milliseconds from, in local time.
struct Month {
    begin_ms: i64,
    end_ms: i64,
}

impl Month {
    fn millis_since_begin(&mut self, now_ms: i64) -> u32 {
        if now_ms >= self.end_ms || now_ms <= self.begin_ms - BACKWARDS_MAX_MS {
            (self.begin_ms, self.end_ms) = month_around(now_ms);
        }
        u32::try_from(now_ms - self.begin_ms).unwrap_or(0)
    }
}

/// First millisecond of the month of a time, and of the month after it. Times that no calendar has count from themselves.
fn month_around(now_ms: i64) -> (i64, i64) {
    let month = || {
        let now = Timestamp::from_millisecond(now_ms).ok()?.to_zoned(TimeZone::system());
        let begin = now.first_of_month().ok()?.start_of_day().ok()?;
        let end = begin.checked_add(jiff::Span::new().months(1)).ok()?;
        Some((begin.timestamp().as_millisecond(), end.timestamp().as_millisecond()))
    };
    month().unwrap_or((now_ms, now_ms))
}

/// The first IPv4 address that is not private, or the first global IPv6 one before it; else a private IPv4 one, of this
/// machine only if there is no other; else four bytes of the clock.
fn choose_address(addresses: &[IpAddr]) -> IpAddr {
    let global = addresses.iter().find(|address| !identity::is_private(address));
    let private = || addresses.iter().find(|address| address.is_ipv4() && !address.is_loopback());
    let loopback = || addresses.iter().find(|address| address.is_ipv4());
    global.or_else(private).or_else(loopback).copied().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        IpAddr::from((now.as_millis() as u32).to_be_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_different_and_hold_the_time_of_the_month() {
        let (first, second) = (next_unique_id(), next_unique_id());
        assert_ne!(first, second);
        assert!(matches!(first.len(), 32 | 56));
        let millis = i64::from(u32::from_str_radix(&first[first.len() - 12..first.len() - 4], 16).unwrap());
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        let (begin_ms, end_ms) = month_around(now_ms);
        assert!((begin_ms..end_ms).contains(&now_ms));
        assert!((now_ms - begin_ms - millis).abs() < 60_000);
    }

    #[test]
    fn a_clock_that_steps_back_stands_still_and_a_new_month_begins_at_zero() {
        let (begin_ms, end_ms) = month_around(1_700_000_000_000);
        let mut month = Month { begin_ms, end_ms };
        assert_eq!(month.millis_since_begin(begin_ms + 5), 5);
        assert_eq!(month.millis_since_begin(begin_ms - 5), 0);
        assert_eq!(month.millis_since_begin(end_ms + 7), 7);
        assert_eq!(month.millis_since_begin(begin_ms + 9), 9, "more than a step: the clock was set");
    }

    #[test]
    fn global_addresses_go_first_in_the_system_s_order() {
        let choose = |list: &[&str]| {
            let list: Vec<IpAddr> = list.iter().map(|text| text.parse().unwrap()).collect();
            choose_address(&list).to_string()
        };
        assert_eq!(choose(&["127.0.0.1", "10.0.0.1", "2001:db8::1", "8.8.8.8"]), "2001:db8::1");
        assert_eq!(choose(&["127.0.0.1", "10.0.0.1"]), "10.0.0.1");
        assert_eq!(choose(&["127.0.0.1", "fe80::1"]), "127.0.0.1");
    }
}
