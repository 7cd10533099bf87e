//! Settings of a store, named as in `broker.conf` (`docs/spec/02-store.md` §16).

use std::path::{Path, PathBuf};
use std::time::Duration;

/// When an appended message may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushDiskType {
    /// `ASYNC_FLUSH`: as soon as it is in the log's memory; the disk follows every
    /// [`flush_interval_commit_log`](StoreOptions::flush_interval_commit_log). Survives the death of the process.
    #[default]
    AsyncFlush,
    /// `SYNC_FLUSH`: when it is on the disk. Consumers see only flushed messages.
    SyncFlush,
}

/// Who says up to where the log is confirmed, that is, may be acknowledged and shown to consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConfirmedBy {
    /// The store itself: what is appended, under SYNC_FLUSH what is flushed.
    #[default]
    Store,
    /// Replication, with [`Store::confirm`](crate::Store::confirm). Nothing behind that goes into queues or index, so it can be
    /// [truncated](crate::Store::truncate_to).
    Replication {
        /// Everything below was confirmed before, as far as replication knows. What the store itself remembers may reach further.
        known: u64,
    },
}

/// Settings of a store. [`StoreOptions::new`] gives RocketMQ's defaults; ratios are percent, sizes bytes.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// `storePathRootDir`.
    pub root: PathBuf,
    /// `storePathCommitLog`; `None` is `root/commitlog`.
    pub commit_log_directory: Option<PathBuf>,
    /// `mappedFileSizeCommitLog` (1 GiB).
    pub commit_log_file_size: u32,
    /// `mappedFileSizeConsumeQueue` (6,000,000; rounded up to a multiple of 20).
    pub consume_queue_file_size: u32,
    /// `mapperFileSizeBatchConsumeQueue` (13,800,000).
    pub batch_consume_queue_file_size: u32,
    /// Topics with the attribute `queue.type=BatchCQ`. Later ones are [declared](crate::Store::declare_batch_topic).
    pub batch_topics: Vec<String>,
    /// `messageIndexEnable` (true).
    pub index_enabled: bool,
    /// `maxHashSlotNum` (5,000,000).
    pub index_slots: u32,
    /// `maxIndexNum` (20,000,000).
    pub index_units: u32,
    /// `maxMsgsNumBatch` (64): most messages that one look-up by key returns.
    pub query_max: usize,
    /// `flushDiskType`.
    pub flush_disk_type: FlushDiskType,
    /// Who confirms what is in the log.
    pub confirmed_by: ConfirmedBy,
    /// The store opens as a [follower](crate::Store::follow).
    pub follower: bool,
    /// `flushIntervalCommitLog` (500 ms), used under ASYNC_FLUSH.
    pub flush_interval_commit_log: Duration,
    /// `flushIntervalConsumeQueue` (1 s).
    pub flush_interval_consume_queue: Duration,
    /// `enabledAppendPropCRC` (false): every record gets a `__CRC32#` property.
    pub append_crc_property: bool,
    /// `enableLmq` (false): messages get an offset of each light queue that they name.
    pub light_queues_enabled: bool,
    /// `enableMultiDispatch` (false): build the light queues that messages name.
    pub multi_dispatch_enabled: bool,
    /// `messageDelayLevel` in milliseconds, level 1 first. Units of `SCHEDULE_TOPIC_XXXX` carry the delivery time.
    pub delay_levels_ms: Vec<i64>,
    /// `deleteWhen` (4): hours of the day, local time, in which expired files are deleted.
    pub delete_when_hours: Vec<u8>,
    /// `fileReservedTime` (72 h).
    pub file_reserved: Duration,
    /// `cleanFileForciblyEnable` (true).
    pub clean_file_forcibly: bool,
    /// `diskMaxUsedSpaceRatio` (75): expired files are deleted at any hour above it.
    pub disk_max_used_ratio: u8,
    /// `diskSpaceCleanForciblyRatio` (85): files are deleted whatever their age above it.
    pub disk_clean_forcibly_ratio: u8,
    /// `diskSpaceWarningLevelRatio` (90): writes are refused above it.
    pub disk_warning_ratio: u8,
    /// `replicasPerDiskPartition` (1): stores that share the partition. With more than one, a store deletes by what it uses of its
    /// part, and no longer by [`disk_max_used_ratio`](Self::disk_max_used_ratio) of the whole.
    pub replicas_per_disk_partition: u32,
    /// `logicalDiskSpaceCleanForciblyThreshold` (80): files are deleted whatever their age when the store uses more of its part.
    pub logical_disk_clean_forcibly_ratio: u8,
    /// `cleanResourceInterval` (10 s).
    pub clean_resource_interval: Duration,
    /// `deleteFileBatchMax` (10): most log files that one pass deletes.
    pub delete_file_batch_max: usize,
    /// `deleteCommitLogFilesInterval` (100 ms).
    pub delete_commit_log_files_interval: Duration,
    /// `maxTransferBytesOnMessageInMemory` (262144).
    pub max_transfer_bytes_in_memory: usize,
    /// `maxTransferCountOnMessageInMemory` (32).
    pub max_transfer_count_in_memory: usize,
    /// `maxTransferBytesOnMessageInDisk` (65536).
    pub max_transfer_bytes_on_disk: usize,
    /// `maxTransferCountOnMessageInDisk` (8).
    pub max_transfer_count_on_disk: usize,
    /// `accessMessageInMemoryMaxRatio` (40): percent of the machine's memory that counts as hot.
    pub access_message_in_memory_max_ratio: u8,
    /// `maxFilterMessageSize` (16000): bytes of queue units that one pull scans.
    pub max_filter_message_size: usize,
    /// Most bytes ahead of the write position that are kept faulted in.
    pub warm_window: u32,
    /// `warmMapedFileEnable` (false): instead of a window, all of the log file that is written to and of the next one is faulted in
    /// and locked into memory.
    pub warm_whole_files: bool,
    /// Where the share of used disk space comes from; tests put their own in.
    pub disk_usage: DiskUsageSource,
}

/// Where [`StoreOptions::disk_usage`] comes from.
#[derive(Debug, Clone, Copy, Default)]
pub enum DiskUsageSource {
    /// `statvfs` of the directory.
    #[default]
    FileSystem,
    /// A function: used percent of the partition of a directory, rounded up.
    Fixed(fn(&Path) -> Option<u8>),
}

impl StoreOptions {
    /// RocketMQ's defaults, with the files under `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        const SECOND: i64 = 1000;
        const MINUTE: i64 = 60 * SECOND;
        const HOUR: i64 = 60 * MINUTE;
        let mut delay_levels_ms = vec![SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND];
        delay_levels_ms.extend((1..=10).map(|minutes| minutes * MINUTE));
        delay_levels_ms.extend([20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR]);
        StoreOptions {
            root: root.into(),
            commit_log_directory: None,
            commit_log_file_size: 1 << 30,
            consume_queue_file_size: 6_000_000,
            batch_consume_queue_file_size: 13_800_000,
            batch_topics: Vec::new(),
            index_enabled: true,
            index_slots: 5_000_000,
            index_units: 20_000_000,
            query_max: 64,
            flush_disk_type: FlushDiskType::AsyncFlush,
            confirmed_by: ConfirmedBy::Store,
            follower: false,
            flush_interval_commit_log: Duration::from_millis(500),
            flush_interval_consume_queue: Duration::from_secs(1),
            append_crc_property: false,
            light_queues_enabled: false,
            multi_dispatch_enabled: false,
            delay_levels_ms,
            delete_when_hours: vec![4],
            file_reserved: Duration::from_secs(72 * 3600),
            clean_file_forcibly: true,
            disk_max_used_ratio: 75,
            disk_clean_forcibly_ratio: 85,
            disk_warning_ratio: 90,
            replicas_per_disk_partition: 1,
            logical_disk_clean_forcibly_ratio: 80,
            clean_resource_interval: Duration::from_secs(10),
            delete_file_batch_max: 10,
            delete_commit_log_files_interval: Duration::from_millis(100),
            max_transfer_bytes_in_memory: 262_144,
            max_transfer_count_in_memory: 32,
            max_transfer_bytes_on_disk: 65_536,
            max_transfer_count_on_disk: 8,
            access_message_in_memory_max_ratio: 40,
            max_filter_message_size: 16_000,
            warm_window: 64 << 20,
            warm_whole_files: false,
            disk_usage: DiskUsageSource::FileSystem,
        }
    }

    /// Directory of the log files.
    pub fn commit_log_directory(&self) -> PathBuf {
        self.commit_log_directory.clone().unwrap_or_else(|| self.root.join("commitlog"))
    }

    /// Whether another broker has, or may have, given the log's offsets.
    pub(crate) fn is_replica(&self) -> bool {
        self.follower || self.confirmed_by != ConfirmedBy::Store
    }

    /// Behind this offset nothing is known to be confirmed before somebody says so.
    pub(crate) fn known_confirmed(&self) -> u64 {
        match self.confirmed_by {
            ConfirmedBy::Store => u64::MAX,
            ConfirmedBy::Replication { known } => known,
        }
    }

    /// Units that one consume queue file holds.
    pub(crate) fn consume_queue_file_units(&self) -> u64 {
        u64::from(self.consume_queue_file_size).div_ceil(20).max(1)
    }

    /// Says which setting has a value that the store can't work with.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ratio = |name: &str, value: u8| {
            if (1..=100).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}, it must be 1 to 100"))
            }
        };
        ratio("diskMaxUsedSpaceRatio", self.disk_max_used_ratio)?;
        ratio("diskSpaceCleanForciblyRatio", self.disk_clean_forcibly_ratio)?;
        ratio("diskSpaceWarningLevelRatio", self.disk_warning_ratio)?;
        ratio("logicalDiskSpaceCleanForciblyThreshold (in percent)", self.logical_disk_clean_forcibly_ratio)?;
        ratio("accessMessageInMemoryMaxRatio", self.access_message_in_memory_max_ratio)?;
        if self.commit_log_file_size < 4096 || self.commit_log_file_size > i32::MAX as u32 {
            return Err(format!(
                "mappedFileSizeCommitLog is {}, it must be 4096 to 2147483647",
                self.commit_log_file_size
            ));
        }
        if self.consume_queue_file_size < 20 || self.consume_queue_file_size > i32::MAX as u32 - 20 {
            return Err(format!(
                "mappedFileSizeConsumeQueue is {}, it must be at least 20",
                self.consume_queue_file_size
            ));
        }
        if self.batch_consume_queue_file_size < 46 {
            return Err(format!(
                "mapperFileSizeBatchConsumeQueue is {}, it must be at least 46",
                self.batch_consume_queue_file_size
            ));
        }
        if self.index_slots == 0 || self.index_units < 2 || self.index_units > i32::MAX as u32 {
            return Err("maxHashSlotNum must be at least 1 and maxIndexNum at least 2".into());
        }
        if let Some(hour) = self.delete_when_hours.iter().find(|hour| **hour > 23) {
            return Err(format!("deleteWhen names hour {hour}, hours are 0 to 23"));
        }
        Ok(())
    }
}
