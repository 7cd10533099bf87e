//! How fast a connection is, and how fast it may be (`docs/spec/05-ha.md` §2.5).

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const SECOND: Duration = Duration::from_secs(1);

/// Counts bytes by seconds.
#[derive(Debug)]
pub(crate) struct Pace {
    seconds: Mutex<Seconds>,
}

#[derive(Debug)]
struct Seconds {
    /// When the present second began.
    since: Instant,
    bytes: u64,
    /// Bytes in the second before.
    bytes_before: u64,
}

impl Seconds {
    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= SECOND {
            self.bytes_before = if passed < 2 * SECOND { self.bytes } else { 0 };
            self.bytes = 0;
            self.since += SECOND * passed.as_secs().try_into().unwrap_or(u32::MAX);
        }
    }
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Pace { seconds: Mutex::new(Seconds { since: now, bytes: 0, bytes_before: 0 }) }
    }

    /// Takes note of bytes that were transferred.
    pub(crate) fn add(&self, now: Instant, bytes: u64) {
        let mut seconds = self.seconds.lock();
        seconds.turn(now);
        seconds.bytes += bytes;
    }

    /// Bytes in the last full second.
    pub(crate) fn per_second(&self, now: Instant) -> u64 {
        let mut seconds = self.seconds.lock();
        seconds.turn(now);
        seconds.bytes_before
    }

    /// How many more bytes the present second may have, when a second may have `limit`; if none, how long until the next one.
    pub(crate) fn allowance(&self, now: Instant, limit: u64) -> Result<u64, Duration> {
        let mut seconds = self.seconds.lock();
        seconds.turn(now);
        match limit.saturating_sub(seconds.bytes) {
            0 => Err(SECOND.saturating_sub(now.saturating_duration_since(seconds.since))),
            rest => Ok(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_what_it_may_have() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let pace = Pace::new(begin);
        assert_eq!(pace.allowance(at(0), 100), Ok(100));
        pace.add(at(100), 60);
        assert_eq!(pace.allowance(at(200), 100), Ok(40));
        pace.add(at(300), 60);
        assert_eq!(pace.allowance(at(400), 100), Err(Duration::from_millis(600)));
        assert_eq!(pace.per_second(at(900)), 0);
        assert_eq!(pace.allowance(at(1000), 100), Ok(100));
        assert_eq!(pace.per_second(at(1500)), 120);
        assert_eq!(pace.per_second(at(2000)), 0);
        pace.add(at(2100), 7);
        assert_eq!((pace.per_second(at(3999)), pace.per_second(at(9000))), (7, 0));
    }
}
