//! The clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    #[cfg(feature = "simulation")]
    if let Some(now) = crate::simulation::now_ms() {
        return now;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// A time as RocketMQ names index files by it: local, seventeen digits from the year to the millisecond.
pub(crate) fn local_time(ms: i64) -> u64 {
    let Ok(time) = jiff::Timestamp::from_millisecond(ms) else { return 0 };
    let local = time.to_zoned(jiff::tz::TimeZone::system());
    local.strftime("%Y%m%d%H%M%S%3f").to_string().parse().unwrap_or(0)
}
