//! Keeps what hostile or broken peers cause out of the way of everything else in the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Allows so many events per interval and counts the others.
#[derive(Debug)]
pub struct RateLimit {
    per_interval: u32,
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    allowed: u32,
    suppressed: u64,
}

impl RateLimit {
    /// At most `per_interval` events in each `interval`.
    pub fn new(per_interval: u32, interval: Duration) -> Self {
        Self {
            per_interval,
            interval,
            state: Mutex::new(State { since: Instant::now(), allowed: 0, suppressed: 0 }),
        }
    }

    /// Whether this event may be told, and if so how many were kept quiet since the last one that was.
    pub fn allow(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if now.duration_since(state.since) >= self.interval {
            state.since = now;
            state.allowed = 0;
        }
        if state.allowed == self.per_interval {
            state.suppressed += 1;
            return None;
        }
        state.allowed += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_quiet_is_counted() {
        let limit = RateLimit::new(2, Duration::from_secs(3600));
        assert_eq!(limit.allow(), Some(0));
        assert_eq!(limit.allow(), Some(0));
        assert_eq!(limit.allow(), None);
        assert_eq!(limit.allow(), None);
        limit.state.lock().since -= Duration::from_secs(3600);
        assert_eq!(limit.allow(), Some(2));
    }
}
