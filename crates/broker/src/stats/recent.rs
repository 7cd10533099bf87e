//! Recent rates of the store: messages per second over 10 s, 1 min and 10 min, and how long the last minute's appends
//! took (`docs/spec/03-broker.md` 10.2).

use std::collections::VecDeque;

use ferromq_store::{PUT_LATENCY_BOUNDS_MS, StoreStats};

/// Lengths of the windows, seconds. One sample a second is kept for the longest.
const WINDOWS_S: [usize; 3] = [10, 60, 600];

/// Seconds between two looks at the durations of appends.
const DISTRIBUTION_PERIOD_MS: i64 = 60_000;

/// Names of the classes of durations, as they are shown.
const DISTRIBUTION_CLASSES: [&str; 13] = [
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
];

/// Which of the store's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// Messages appended.
    Put,
    /// Reads that found something.
    GetFound,
    /// Reads that found nothing.
    GetMiss,
    /// Reads.
    GetTotal,
    /// Messages handed out.
    Transferred,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: i64,
    put: u64,
    found: u64,
    miss: u64,
    transferred: u64,
}

impl Sample {
    fn of(&self, rate: Rate) -> u64 {
        match rate {
            Rate::Put => self.put,
            Rate::GetFound => self.found,
            Rate::GetMiss => self.miss,
            Rate::GetTotal => self.found + self.miss,
            Rate::Transferred => self.transferred,
        }
    }
}

/// The store's counters, second by second.
#[derive(Debug, Default)]
pub(crate) struct RecentRates {
    samples: VecDeque<Sample>,
    /// Buckets at the begin of the present minute, and when that was.
    minute_begin: Option<(i64, [u64; 13])>,
    last_minute: Option<PutLatencies>,
}

/// Appends of one minute by duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PutLatencies([u64; 13]);

impl RecentRates {
    /// Notes the counters; to be called every second.
    pub(crate) fn sample(&mut self, at_ms: i64, store: &StoreStats) {
        self.samples.push_back(Sample {
            at_ms,
            put: store.put_total,
            found: store.get_found_total,
            miss: store.get_miss_total,
            transferred: store.get_messages_total,
        });
        if self.samples.len() > WINDOWS_S[2] + 1 {
            self.samples.pop_front();
        }
        match self.minute_begin {
            Some((begin_ms, _)) if at_ms - begin_ms < DISTRIBUTION_PERIOD_MS => {}
            earlier => {
                if let Some((_, before)) = earlier {
                    let now = store.put_latency_buckets;
                    let counts = std::array::from_fn(|class| now[class].saturating_sub(before[class]));
                    self.last_minute = Some(PutLatencies(counts));
                }
                self.minute_begin = Some((at_ms, store.put_latency_buckets));
            }
        }
    }

    /// Per second over the last so many seconds, or over what has passed since the start while that is less.
    fn per_second(&self, rate: Rate, window_s: usize) -> f64 {
        let first = self.samples.len().saturating_sub(window_s + 1);
        let (Some(first), Some(last)) = (self.samples.get(first), self.samples.back()) else { return 0.0 };
        let duration_ms = last.at_ms - first.at_ms;
        let grown = last.of(rate).saturating_sub(first.of(rate));
        if duration_ms > 0 { grown as f64 * 1000.0 / duration_ms as f64 } else { 0.0 }
    }

    /// The rates over the three windows, separated by blanks.
    ///
    /// RocketMQ leaves out a window that is not full yet, all three of them in the first ten seconds. Tools that want
    /// the third number fail on that for ten minutes, so there are always three here.
    pub(crate) fn text(&self, rate: Rate) -> String {
        WINDOWS_S
            .map(|window_s| ferromq_protocol::json::to_string(&self.per_second(rate, window_s)))
            .join(" ")
    }

    /// Appends of the last finished minute by duration.
    pub(crate) fn last_minute(&self) -> Option<&PutLatencies> {
        self.last_minute.as_ref()
    }
}

impl PutLatencies {
    /// `[<=0ms]:25 [0~10ms]:34 ` and so on, with a blank at the end.
    pub(crate) fn text(&self) -> String {
        let classes = DISTRIBUTION_CLASSES.iter().zip(self.0);
        classes.map(|(class, count)| format!("[{class}]:{count} ")).collect()
    }

    /// The duration, ms, below which this part of the appends stayed, read off the classes: within a class the
    /// durations count as evenly spread. 0 without appends.
    pub(crate) fn quantile_ms(&self, part: f64) -> f64 {
        let total: u64 = self.0.iter().sum();
        let wanted = total as f64 * part;
        let mut below = 0.0;
        for (class, count) in self.0.into_iter().enumerate() {
            let count = count as f64;
            if count > 0.0 && below + count >= wanted {
                let low_ms = class.checked_sub(1).map_or(0, |class| PUT_LATENCY_BOUNDS_MS[class]) as f64;
                let high_ms = PUT_LATENCY_BOUNDS_MS.get(class).map_or(low_ms, |bound| *bound as f64);
                return low_ms + (high_ms - low_ms) * (wanted - below) / count;
            }
            below += count;
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One put a second, two reads a second of which one finds three messages.
    fn running(seconds: i64) -> RecentRates {
        let mut rates = RecentRates::default();
        for second in 0..=seconds {
            let count = second as u64;
            let store = StoreStats {
                put_total: count,
                get_found_total: count,
                get_miss_total: count,
                get_messages_total: 3 * count,
                put_latency_buckets: std::array::from_fn(|class| if class == 0 { count } else { 0 }),
                ..StoreStats::default()
            };
            rates.sample(second * 1000, &store);
        }
        rates
    }

    #[test]
    fn there_are_three_rates_at_any_time() {
        assert_eq!(RecentRates::default().text(Rate::Put), "0.0 0.0 0.0");
        assert_eq!(running(0).text(Rate::Put), "0.0 0.0 0.0");
        assert_eq!(running(1).text(Rate::GetMiss), "1.0 1.0 1.0");
        assert_eq!(running(60).text(Rate::Transferred), "3.0 3.0 3.0");
        assert_eq!(running(700).text(Rate::GetTotal), "2.0 2.0 2.0");
    }

    #[test]
    fn each_window_looks_back_so_far() {
        let mut rates = running(600);
        let busy = |puts| StoreStats { put_total: 600 + puts, ..StoreStats::default() };
        for second in 1..=5 {
            rates.sample((600 + second) * 1000, &busy(20 * second as u64));
        }
        assert_eq!(rates.text(Rate::Put), "10.5 2.5833333333333335 1.1583333333333334");
    }

    #[test]
    fn only_the_longest_window_is_kept() {
        assert_eq!(running(5000).samples.len(), 601);
    }

    #[test]
    fn durations_are_those_of_the_last_full_minute() {
        assert_eq!(running(59).last_minute(), None);
        let text = running(60).last_minute().unwrap().text();
        assert!(text.starts_with("[<=0ms]:60 [0~10ms]:0 "), "{text}");
        assert!(text.ends_with("[5~10s]:0 [10s~]:0 "), "{text}");
        assert_eq!(running(130).last_minute(), running(60).last_minute());
    }

    #[test]
    fn quantiles_lie_within_their_class() {
        let latencies =
            PutLatencies(std::array::from_fn(|class| [98, 0, 2].get(class).copied().unwrap_or(0)));
        assert_eq!(latencies.quantile_ms(0.49), 0.5);
        assert_eq!(latencies.quantile_ms(0.99), 30.0);
        assert_eq!(latencies.quantile_ms(1.0), 50.0);
        assert_eq!(PutLatencies([0; 13]).quantile_ms(0.99), 0.0);
        let slowest = PutLatencies(std::array::from_fn(|class| u64::from(class == 12)));
        assert_eq!(slowest.quantile_ms(0.99), 10_000.0);
    }
}
