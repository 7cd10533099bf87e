//! Points in time as an operator types them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Milliseconds since 1970 of such a number, of an RFC 3339 time, or of a local `yyyy-MM-dd HH:mm:ss`.
pub(super) fn parse_ms(text: &str) -> Result<i64, String> {
    if let Ok(ms) = text.parse() {
        return Ok(ms);
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let local = text.parse::<DateTime>().ok().and_then(|time| time.to_zoned(TimeZone::system()).ok());
    local.map(|time| time.timestamp().as_millisecond()).ok_or_else(|| {
        "neither milliseconds since 1970, nor RFC 3339 (2026-11-29T17:30:00Z), nor local time (2026-11-29 17:30:00)"
            .to_owned()
    })
}

/// A store time for people: local time.
pub(super) fn local(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(
        |_| format!("{ms} ms"),
        |time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_name_a_time() {
        assert_eq!(parse_ms("1700000000000"), Ok(1_700_000_000_000));
        assert_eq!(parse_ms("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000));
        assert_eq!(parse_ms("2023-11-14T23:13:20.5+01:00"), Ok(1_700_000_000_500));
        let local_time = local(1_700_000_000_000);
        assert_eq!(parse_ms(&local_time), Ok(1_700_000_000_000), "{local_time}");
        assert!(parse_ms("yesterday").is_err());
    }
}
