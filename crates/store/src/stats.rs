//! Runtime statistics of the store (`docs/spec/01-remoting.md` §5.5).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds, in milliseconds, of the buckets of [`StoreStats::put_latency_buckets`]; the last bucket has none.
pub const PUT_LATENCY_BOUNDS_MS: [u64; 12] = [1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000];

/// A snapshot of the store's counters since it was opened.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoreStats {
    /// When the store was opened, milliseconds since 1970.
    pub boot_timestamp_ms: i64,
    /// Records appended.
    pub put_total: u64,
    /// Bytes appended.
    pub put_bytes_total: u64,
    /// Records refused.
    pub put_failed_total: u64,
    /// Longest append call (lock included), microseconds.
    pub put_latency_max_us: u64,
    /// Append calls by duration, see [`PUT_LATENCY_BOUNDS_MS`].
    pub put_latency_buckets: [u64; 13],
    /// Reads that found something.
    pub get_found_total: u64,
    /// Reads that found nothing.
    pub get_miss_total: u64,
    /// Messages handed out by reads.
    pub get_messages_total: u64,
    /// Bytes handed out by reads.
    pub get_bytes_total: u64,
    /// First offset of the log.
    pub log_min_offset: u64,
    /// End of the log.
    pub log_max_offset: u64,
    /// How far the log's pages are faulted in for the next appends.
    pub log_warmed_offset: u64,
    /// Bytes appended and not yet on the disk (`remainHowManyDataToFlush`).
    pub flush_behind_bytes: u64,
    /// Bytes confirmed and not yet dispatched (`dispatchBehindBytes`).
    pub dispatch_behind_bytes: u64,
    /// How long the append lock has been held by its present holder, ms (`pageCacheLockTimeMills`).
    pub append_lock_held_ms: u64,
    /// Used part of the log's partition, 0 to 1; `None` if it can't be found out.
    pub commit_log_disk_ratio: Option<f64>,
    /// Used part of the consume queues' partition, 0 to 1.
    pub consume_queue_disk_ratio: Option<f64>,
    /// Size of the log's partition in bytes: total and available.
    pub commit_log_disk_capacity: Option<(u64, u64)>,
}

/// The counters themselves.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) boot_timestamp_ms: AtomicI64,
    put_total: AtomicU64,
    put_bytes_total: AtomicU64,
    put_failed_total: AtomicU64,
    put_latency_max_us: AtomicU64,
    put_latency_buckets: [AtomicU64; 13],
    get_found_total: AtomicU64,
    get_miss_total: AtomicU64,
    get_messages_total: AtomicU64,
    get_bytes_total: AtomicU64,
}

impl Counters {
    pub(crate) fn appended(&self, records: u64, bytes: u64, refused: u64, took: Duration) {
        self.put_total.fetch_add(records, Ordering::Relaxed);
        self.put_bytes_total.fetch_add(bytes, Ordering::Relaxed);
        if refused > 0 {
            self.put_failed_total.fetch_add(refused, Ordering::Relaxed);
        }
        let us = took.as_micros() as u64;
        if us > self.put_latency_max_us.load(Ordering::Relaxed) {
            self.put_latency_max_us.fetch_max(us, Ordering::Relaxed);
        }
        let bucket = PUT_LATENCY_BOUNDS_MS.iter().position(|bound| us < bound * 1000).unwrap_or(12);
        self.put_latency_buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, messages: usize, bytes: usize) {
        if messages == 0 {
            self.get_miss_total.fetch_add(1, Ordering::Relaxed);
        } else {
            self.get_found_total.fetch_add(1, Ordering::Relaxed);
            self.get_messages_total.fetch_add(messages as u64, Ordering::Relaxed);
            self.get_bytes_total.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// The counters; what is no counter is left at its default.
    pub(crate) fn snapshot(&self) -> StoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            boot_timestamp_ms: self.boot_timestamp_ms.load(Ordering::Relaxed),
            put_total: get(&self.put_total),
            put_bytes_total: get(&self.put_bytes_total),
            put_failed_total: get(&self.put_failed_total),
            put_latency_max_us: get(&self.put_latency_max_us),
            put_latency_buckets: std::array::from_fn(|bucket| get(&self.put_latency_buckets[bucket])),
            get_found_total: get(&self.get_found_total),
            get_miss_total: get(&self.get_miss_total),
            get_messages_total: get(&self.get_messages_total),
            get_bytes_total: get(&self.get_bytes_total),
            ..StoreStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_their_buckets() {
        let counters = Counters::default();
        for ms in [0, 1, 9, 10, 9_999, 10_000] {
            counters.appended(2, 200, 1, Duration::from_millis(ms));
        }
        let stats = counters.snapshot();
        assert_eq!(stats.put_latency_buckets, [1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((stats.put_total, stats.put_bytes_total, stats.put_failed_total), (12, 1200, 6));
        assert_eq!(stats.put_latency_max_us, 10_000_000);
    }
}
