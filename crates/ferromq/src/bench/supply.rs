//! When the next request is due.

use std::time::Duration;

/// Longest time to sleep without looking at the clock.
pub(super) const NAP_MAX: Duration = Duration::from_millis(100);

/// Says when messages are to be sent. Times are nanoseconds since the load began.
#[derive(Debug)]
pub(super) enum Supply {
    /// Whenever there is room.
    Unlimited(Unlimited),
    /// At a fixed rate.
    Paced(Paced),
}

/// As fast as the server answers.
#[derive(Debug)]
pub(super) struct Unlimited {
    /// When to stop.
    pub(super) until_ns: u64,
    /// From when on `left` counts.
    pub(super) from_ns: u64,
    /// Requests to send at most.
    pub(super) left: u64,
}

/// One thread's share of a fixed rate: of all requests those with the numbers `worker`, `worker + workers` …
#[derive(Debug)]
pub(super) struct Paced {
    /// Requests per second of all threads.
    pub(super) rate: f64,
    /// This thread.
    pub(super) worker: u32,
    /// All threads.
    pub(super) workers: u32,
    /// No request is due from here on.
    pub(super) until_ns: u64,
    /// No request is sent from here on, even if it was due long ago.
    pub(super) give_up_ns: u64,
    /// From when on `left` counts.
    pub(super) from_ns: u64,
    /// Requests to send at most.
    pub(super) left: u64,
    /// Requests handed out.
    pub(super) issued: u64,
}

impl Paced {
    /// When the next request is due, were there no end.
    fn due_ns(&self) -> u64 {
        let number = self.issued * u64::from(self.workers) + u64::from(self.worker);
        (number as f64 * 1e9 / self.rate) as u64
    }
}

impl Supply {
    /// The time at which a request should have been sent that can be sent now, if one can.
    ///
    /// That time lies in the past when the server (or this generator) is late, and latency counts from it: a server that
    /// stalls does not get fewer samples for it.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<u64> {
        if self.is_exhausted(now_ns) {
            return None;
        }
        let (due_ns, from_ns, left) = match self {
            Self::Unlimited(supply) => (now_ns, supply.from_ns, &mut supply.left),
            Self::Paced(supply) => {
                let due_ns = supply.due_ns();
                if due_ns > now_ns {
                    return None;
                }
                supply.issued += 1;
                (due_ns, supply.from_ns, &mut supply.left)
            }
        };
        if due_ns >= from_ns {
            *left -= 1;
        }
        Some(due_ns)
    }

    /// Whether there will be no more requests.
    pub(super) fn is_exhausted(&self, now_ns: u64) -> bool {
        match self {
            Self::Unlimited(supply) => supply.left == 0 || now_ns >= supply.until_ns,
            // What was due before the end is sent even if it is late.
            Self::Paced(supply) => {
                supply.left == 0 || supply.due_ns() >= supply.until_ns || now_ns >= supply.give_up_ns
            }
        }
    }

    /// How many requests were due before the end and never sent.
    pub(super) fn abandoned(&self) -> u64 {
        match self {
            Self::Paced(supply) if supply.until_ns != u64::MAX => {
                let all = (supply.until_ns as f64 * supply.rate / 1e9) as u64 / u64::from(supply.workers);
                all.saturating_sub(supply.issued).min(supply.left)
            }
            _ => 0,
        }
    }

    /// How long to wait for answers before it is time to send something.
    pub(super) fn nap(&self, now_ns: u64) -> Duration {
        match self {
            Self::Paced(supply) if !self.is_exhausted(now_ns) => {
                Duration::from_nanos(supply.due_ns().saturating_sub(now_ns)).min(NAP_MAX)
            }
            _ => NAP_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced(rate: f64, worker: u32, workers: u32, until_ns: u64) -> Supply {
        let (give_up_ns, left) = (until_ns.saturating_mul(10), u64::MAX);
        Supply::Paced(Paced { rate, worker, workers, until_ns, give_up_ns, from_ns: 0, left, issued: 0 })
    }

    fn drain(supply: &mut Supply, now_ns: u64) -> Vec<u64> {
        std::iter::from_fn(|| supply.next(now_ns)).collect()
    }

    #[test]
    fn paced_requests_are_due_at_even_intervals() {
        let mut supply = paced(1000.0, 0, 1, 10_000_000);
        assert_eq!(drain(&mut supply, 0), [0]);
        assert_eq!(supply.nap(400_000), Duration::from_micros(600));
        assert_eq!(supply.next(999_999), None);
        // After a stall everything that was due comes at once, with the times at which it was due.
        assert_eq!(drain(&mut supply, 3_500_000), [1_000_000, 2_000_000, 3_000_000]);
        assert_eq!(supply.nap(3_500_000), Duration::from_micros(500));
        // What was due before the end is sent after it.
        assert!(!supply.is_exhausted(20_000_000));
        assert_eq!(drain(&mut supply, 20_000_000).len(), 6);
        assert!(supply.is_exhausted(20_000_000));
    }

    #[test]
    fn what_a_server_can_not_take_is_abandoned_in_the_end() {
        let mut supply = paced(1000.0, 0, 1, 10_000_000);
        assert_eq!(supply.next(99_000_000), Some(0));
        assert_eq!(supply.next(100_000_000), None);
        assert!(supply.is_exhausted(100_000_000));
        assert_eq!(supply.abandoned(), 9);
    }

    #[test]
    fn threads_share_the_rate() {
        let mut due: Vec<u64> =
            (0..3).flat_map(|worker| drain(&mut paced(1000.0, worker, 3, 6_000_000), 9_000_000)).collect();
        due.sort_unstable();
        assert_eq!(due, [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000]);
    }

    #[test]
    fn a_rate_that_is_no_whole_interval_does_not_drift() {
        let mut supply = paced(30_000.0, 0, 1, 60_000_000_000);
        assert_eq!(drain(&mut supply, 61_000_000_000).len(), 1_800_000);
        assert_eq!(supply.abandoned(), 0);
    }

    #[test]
    fn unlimited_supply_ends_by_time_or_by_count() {
        let mut supply = Supply::Unlimited(Unlimited { until_ns: 100, from_ns: 10, left: 2 });
        // Warming up does not count.
        assert_eq!((0..5).filter_map(|_| supply.next(5)).count(), 5);
        assert_eq!(drain(&mut supply, 50), [50, 50]);
        let mut supply = Supply::Unlimited(Unlimited { until_ns: 100, from_ns: 0, left: u64::MAX });
        assert_eq!(supply.next(99), Some(99));
        assert_eq!(supply.next(100), None);
    }
}
