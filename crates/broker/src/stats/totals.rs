//! How many messages came and went today and yesterday.

use std::sync::atomic::{AtomicU64, Ordering};

/// A total that only grows, remembered at the last two midnights.
///
/// The totals are those since the start of the broker, so "today" is the difference of `now` and `today_morning`; before
/// the first midnight both mornings are 0.
#[derive(Debug, Default)]
pub(crate) struct MorningTotals {
    today: AtomicU64,
    yesterday: AtomicU64,
}

impl MorningTotals {
    /// It is midnight, and this is the total.
    pub(super) fn roll(&self, now: u64) {
        self.yesterday.store(self.today.swap(now, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The total at the midnight before the last.
    pub(crate) fn yesterday_morning(&self) -> u64 {
        self.yesterday.load(Ordering::Relaxed)
    }

    /// The total at the last midnight.
    pub(crate) fn today_morning(&self) -> u64 {
        self.today.load(Ordering::Relaxed)
    }
}
