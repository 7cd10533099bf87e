//! Runtime statistics of the store (`docs/spec/01-remoting.md` §5.5).

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
    /// Appends refused.
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
    /// Longest read, microseconds.
    pub get_latency_max_us: u64,
    /// First offset of the log.
    pub log_min_offset: u64,
    /// End of the log.
    pub log_max_offset: u64,
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
