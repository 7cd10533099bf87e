//! One counter with its history.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A running value and how many events made it.
///
/// Counting is two additions on a cache line of its own; everything else happens when a window is sampled or read.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct StatsItem {
    value: AtomicU64,
    times: AtomicU64,
    history: Mutex<History>,
}

/// Which of an item's histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// One minute, sampled every 10 s.
    Minute,
    /// One hour, sampled every 10 minutes.
    Hour,
    /// One day, sampled every hour.
    Day,
}

impl Window {
    pub(crate) const ALL: [Window; 3] = [Window::Minute, Window::Hour, Window::Day];

    /// Time between two samples, ms.
    pub(crate) const fn interval_ms(self) -> i64 {
        match self {
            Window::Minute => 10_000,
            Window::Hour => 600_000,
            Window::Day => 3_600_000,
        }
    }

    /// Samples kept: the window and its begin.
    const fn samples_max(self) -> usize {
        match self {
            Window::Minute | Window::Hour => 7,
            Window::Day => 25,
        }
    }
}

/// What happened within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// By how much the value grew.
    pub(crate) sum: u64,
    /// The same per second.
    pub(crate) tps: f64,
    /// The same per event.
    pub(crate) avgpt: f64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: i64,
    value: u64,
    times: u64,
}

#[derive(Debug, Default)]
struct History {
    windows: [VecDeque<Sample>; 3],
    /// The value when the hour window was last sampled, and since when it has been that.
    idle: Option<(u64, i64)>,
}

impl StatsItem {
    /// Counts `times` events that are worth `value` together.
    pub(crate) fn add(&self, value: u64, times: u64) {
        self.value.fetch_add(value, Ordering::Relaxed);
        self.times.fetch_add(times, Ordering::Relaxed);
    }

    /// Counts without an event. Totals of the broker do so, which is why their `avgpt` is 0.
    pub(crate) fn add_value(&self, value: u64) {
        self.value.fetch_add(value, Ordering::Relaxed);
    }

    /// Everything counted so far.
    pub(crate) fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Whether anything was ever counted. Handles are made ahead of the first event, and until then the item does not
    /// exist for those who ask.
    pub(crate) fn is_used(&self) -> bool {
        self.value() != 0 || self.times.load(Ordering::Relaxed) != 0
    }

    /// Notes the present value in a window.
    pub(crate) fn sample(&self, window: Window, at_ms: i64) {
        let sample = Sample { at_ms, value: self.value(), times: self.times.load(Ordering::Relaxed) };
        let mut history = self.history.lock();
        if window == Window::Hour && history.idle.is_none_or(|(value, _)| value != sample.value) {
            history.idle = Some((sample.value, at_ms));
        }
        let samples = &mut history.windows[window as usize];
        if samples.is_empty() {
            samples.push_back(Sample { at_ms: at_ms - window.interval_ms(), value: 0, times: 0 });
        }
        samples.push_back(sample);
        if samples.len() > window.samples_max() {
            samples.pop_front();
        }
    }

    /// What happened within a window, as of its last sample.
    pub(crate) fn snapshot(&self, window: Window) -> Snapshot {
        let history = self.history.lock();
        let samples = &history.windows[window as usize];
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else { return Snapshot::default() };
        let sum = last.value.saturating_sub(first.value);
        let duration_ms = last.at_ms - first.at_ms;
        let times = last.times.saturating_sub(first.times);
        Snapshot {
            sum,
            tps: if duration_ms > 0 { sum as f64 * 1000.0 / duration_ms as f64 } else { 0.0 },
            avgpt: if times > 0 { sum as f64 / times as f64 } else { 0.0 },
        }
    }

    /// Since when nothing was counted, ms; `None` if that is not known yet.
    pub(crate) fn idle_since_ms(&self) -> Option<i64> {
        let (value, since_ms) = self.history.lock().idle?;
        (value == self.value()).then_some(since_ms)
    }

    /// Forgets everything: what it counted is gone, but somebody may still hold it and count again.
    pub(crate) fn reset(&self) {
        self.value.store(0, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        *self.history.lock() = History::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_slides_over_seven_samples() {
        let item = StatsItem::default();
        let mut seen = Vec::new();
        for step in 0..8 {
            if step > 0 {
                item.add(50, 50);
            }
            item.sample(Window::Minute, step * 10_000);
            let snapshot = item.snapshot(Window::Minute);
            seen.push((snapshot.sum, (snapshot.tps * 100.0).round() / 100.0));
        }
        let expected =
            [(0, 0.0), (50, 2.5), (100, 3.33), (150, 3.75), (200, 4.0), (250, 4.17), (300, 5.0), (300, 5.0)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_first_sample_of_a_window_counts_against_nothing_one_interval_earlier() {
        let item = StatsItem::default();
        item.add(72, 4);
        for window in Window::ALL {
            item.sample(window, 1_000_000);
        }
        assert_eq!(item.snapshot(Window::Minute), Snapshot { sum: 72, tps: 7.2, avgpt: 18.0 });
        assert_eq!(item.snapshot(Window::Hour), Snapshot { sum: 72, tps: 0.12, avgpt: 18.0 });
        assert_eq!(item.snapshot(Window::Day), Snapshot { sum: 72, tps: 0.02, avgpt: 18.0 });
    }

    #[test]
    fn a_value_without_events_has_no_average() {
        let item = StatsItem::default();
        item.add_value(10);
        item.sample(Window::Minute, 0);
        assert_eq!(item.snapshot(Window::Minute), Snapshot { sum: 10, tps: 1.0, avgpt: 0.0 });
    }

    #[test]
    fn a_reset_item_is_as_new() {
        let item = StatsItem::default();
        item.add(5, 1);
        item.sample(Window::Minute, 0);
        item.reset();
        assert!(!item.is_used());
        assert_eq!(item.snapshot(Window::Minute), Snapshot::default());
    }

    #[test]
    fn idleness_begins_at_the_first_sample_without_change() {
        let item = StatsItem::default();
        assert_eq!(item.idle_since_ms(), None);
        item.add(1, 1);
        item.sample(Window::Hour, 1000);
        item.sample(Window::Hour, 2000);
        assert_eq!(item.idle_since_ms(), Some(1000));
        item.add(1, 1);
        assert_eq!(item.idle_since_ms(), None);
    }
}
