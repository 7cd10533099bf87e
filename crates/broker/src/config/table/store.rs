//! The store: files, flushing, look-ups, deletion, reads.

macro_rules! store_settings {
    ([$next:ident $($rest:ident)*] $($done:tt)*) => { $next! { [$($rest)*] $($done)*

"Store: paths and files" {
    /// Directory of everything. `ferromq standalone` uses `./ferromq-data`.
    store_path_root_dir: String = home_store(); sealed "storePathRootDir" [important];
    /// Directory of the log; `commitlog` in the root directory unless set.
    store_path_commit_log: Option<String> = None; sealed "storePathCommitLog" [important];
    /// Directories of log files that are only read.
    read_only_commit_log_store_paths: Option<String> = None; sealed "readOnlyCommitLogStorePaths";
    /// Directory of a DLedger log.
    store_path_d_ledger_commit_log: Option<String> = None; sealed "storePathDLedgerCommitLog" [important];
    /// The file of epochs.
    store_path_epoch_file: Option<String> = None; sealed "storePathEpochFile" [important];
    /// The file of the broker's identity.
    store_path_broker_identity: Option<String> = None; sealed "storePathBrokerIdentity" [important];
    /// Kind of the consume queues. Only `default` is there.
    store_type: String = "default".to_owned(); sealed "storeType";
    /// Class of a store plug-in. FerroMQ loads no classes.
    message_store_plug_in: String = "".to_owned(); sealed "messageStorePlugIn";
    /// Bytes of a log file.
    mapped_file_size_commit_log: u32 = 1_073_741_824; restart "mappedFileSizeCommitLog" in 4096..=2_147_483_647;
    /// Bytes of a consume queue file, rounded up to a multiple of 20.
    mapped_file_size_consume_queue: u32 = 6_000_000; restart "mappedFileSizeConsumeQueue" in 20..=2_147_483_627;
    /// Bytes of a batch consume queue file.
    mapper_file_size_batch_consume_queue: u32 = 13_800_000; restart "mapperFileSizeBatchConsumeQueue" in 46..=2_147_483_647;
    /// Write extended units with filter bits.
    enable_consume_queue_ext: bool = false; unused "enableConsumeQueueExt";
    /// Bytes of a file of extended units.
    mapped_file_size_consume_queue_ext: u32 = 50_331_648; unused "mappedFileSizeConsumeQueueExt";
    /// Filter bits in an extended unit.
    bit_map_length_consume_queue_ext: u32 = 112; unused "bitMapLengthConsumeQueueExt";
    /// Write consume queues without mapping them.
    put_consume_queue_data_by_file_channel: bool = true; unused "putConsumeQueueDataByFileChannel";
    /// Write the log without mapping it.
    write_without_mmap: bool = false; unused "writeWithoutMmap";
}

"Store: appending" {
    /// Bytes of a message's body at most.
    max_message_size: u32 = 4_194_304; live "maxMessageSize";
    /// Use the second record format for topics with more than 127 characters.
    auto_message_version_on_topic_len: bool = true; unused "autoMessageVersionOnTopicLen";
    /// Characters of a topic's name at most. Without effect in Apache's broker as well.
    max_topic_length: u32 = 127; unused "maxTopicLength";
    /// Every record gets a `__CRC32#` property.
    enabled_append_prop_crc: bool = false; restart "enabledAppendPropCRC";
    /// Recovery judges records by that property. FerroMQ judges by everything that is there.
    force_verify_prop_crc: bool = false; unused "forceVerifyPropCRC";
    /// Kind of the log's lock.
    use_reentrant_lock_when_put_message: bool = true; unused "useReentrantLockWhenPutMessage";
    /// Kind of the log's lock.
    use_abs_lock: bool = false; unused "useABSLock";
    /// Spins of that lock.
    spin_lock_collision_retreat_optimal_degree: u32 = 1000; unused "spinLockCollisionRetreatOptimalDegree";
    /// Locks that topics share.
    topic_queue_lock_num: u32 = 32; unused "topicQueueLockNum";
    /// Milliseconds of an append after which the broker counts as busy.
    os_page_cache_busy_time_out_mills: u64 = 1000; unused "osPageCacheBusyTimeOutMills";
    /// Without effect in Apache's broker as well.
    put_message_timeout: u32 = 8000; unused "putMessageTimeout";
    /// Without effect in Apache's broker as well.
    max_async_put_message_requests: u32 = 5000; unused "maxAsyncPutMessageRequests";
    /// Dump the threads when the log's lock is held for long.
    debug_lock_enable: bool = false; unused "debugLockEnable";
    /// The log is written from outside.
    duplication_enable: bool = false; unused "duplicationEnable";
}

"Store: flushing" {
    /// When a send is answered: `ASYNC_FLUSH` when it is in memory, `SYNC_FLUSH` when it is on the disk.
    flush_disk_type: FlushDiskType = FlushDiskType::AsyncFlush; restart "flushDiskType" [important];
    /// Milliseconds that a send waits for the disk under `SYNC_FLUSH`.
    sync_flush_timeout: u32 = 5000; live "syncFlushTimeout";
    /// Milliseconds between two flushes of the log under `ASYNC_FLUSH`.
    flush_interval_commit_log: u32 = 500; restart "flushIntervalCommitLog" [important];
    /// Sleep between two flushes even when there is much to write.
    flush_commit_log_timed: bool = true; unused "flushCommitLogTimed";
    /// Pages that make a flush of the log worthwhile.
    flush_commit_log_least_pages: u32 = 4; unused "flushCommitLogLeastPages";
    /// Milliseconds after which everything is flushed.
    flush_commit_log_thorough_interval: u32 = 10_000; unused "flushCommitLogThoroughInterval";
    /// An append wakes the flusher.
    wake_flush_when_put_message: bool = false; unused "wakeFlushWhenPutMessage";
    /// Append to buffers outside of the page cache. FerroMQ needs none: appends never wait for a page, and what is acknowledged
    /// survives a killed process, which with these buffers it does not.
    transient_store_pool_enable: bool = false; unused "transientStorePoolEnable";
    /// How many.
    transient_store_pool_size: u32 = 5; unused "transientStorePoolSize";
    /// Fail when there is none left.
    fast_fail_if_no_buffer_in_store_pool: bool = false; unused "fastFailIfNoBufferInStorePool";
    /// Milliseconds between two copies from these buffers to the page cache.
    commit_interval_commit_log: u32 = 200; unused "commitIntervalCommitLog" [important];
    /// Pages that make such a copy worthwhile.
    commit_commit_log_least_pages: u32 = 4; unused "commitCommitLogLeastPages";
    /// Milliseconds after which everything is copied.
    commit_commit_log_thorough_interval: u32 = 200; unused "commitCommitLogThoroughInterval";
    /// An append wakes the copying.
    wake_commit_when_put_message: bool = true; unused "wakeCommitWhenPutMessage";
    /// Milliseconds between two flushes of the consume queues.
    flush_interval_consume_queue: u32 = 1000; restart "flushIntervalConsumeQueue";
    /// Pages that make a flush of a consume queue worthwhile.
    flush_consume_queue_least_pages: u32 = 2; unused "flushConsumeQueueLeastPages";
    /// Milliseconds after which all consume queues are flushed.
    flush_consume_queue_thorough_interval: u32 = 60_000; unused "flushConsumeQueueThoroughInterval";
    /// Fault all pages of the present and the next log file in, and lock them into memory (as far as `ulimit -l` allows). Otherwise a
    /// window ahead of the writer is kept faulted in.
    warm_maped_file_enable: bool = false; restart "warmMapedFileEnable";
    /// Pages between two flushes while doing so.
    flush_least_pages_when_warm_maped_file: u32 = 4096; unused "flushLeastPagesWhenWarmMapedFile";
    /// An error of a flush makes the store read-only. It always does in FerroMQ.
    enable_running_flags_in_flush: bool = false; unused "enableRunningFlagsInFlush";
    /// Let the system read ahead in log files.
    data_read_ahead_enable: bool = true; unused "dataReadAheadEnable";
}

"Store: queues and index" {
    /// Messages can be looked up by key.
    message_index_enable: bool = true; restart "messageIndexEnable" [important];
    /// Recovery begins where the index was flushed too.
    message_index_safe: bool = false; unused "messageIndexSafe";
    /// Slots of an index file.
    max_hash_slot_num: u32 = 5_000_000; restart "maxHashSlotNum" in 1..=2_147_483_647;
    /// Entries of an index file.
    max_index_num: u32 = 20_000_000; restart "maxIndexNum" in 2..=2_147_483_647;
    /// Messages that a look-up by key returns at most.
    max_msgs_num_batch: u32 = 64; restart "maxMsgsNumBatch";
    /// Messages that a look-up by unique id returns at most.
    default_query_max_num: u32 = 32; live "defaultQueryMaxNum";
    /// Consumers see what is not confirmed.
    read_un_committed: bool = false; unused "readUnCommitted";
    /// Dispatching begins where the consume queues end. It always does in FerroMQ.
    recheck_reput_offset_from_cq: bool = false; unused "recheckReputOffsetFromCq";
    /// Dispatch with many threads.
    enable_build_consume_queue_concurrently: bool = false; unused "enableBuildConsumeQueueConcurrently";
    /// How many.
    batch_dispatch_request_thread_pool_nums: u32 = 16; unused "batchDispatchRequestThreadPoolNums";
    /// Log what is dispatched twice.
    enable_log_consume_queue_repeatedly_build_when_recover: bool = false; unused "enableLogConsumeQueueRepeatedlyBuildWhenRecover";
    /// Messages get an offset of each light queue that they name. Offsets of groups are then kept in `lmqConsumerOffset.json`.
    enable_lmq: bool = false; restart "enableLmq";
    /// Light queues are built from these offsets.
    enable_multi_dispatch: bool = false; restart "enableMultiDispatch";
    /// Without effect in Apache's broker as well.
    max_lmq_consume_queue_num: u32 = 20_000; unused "maxLmqConsumeQueueNum";
    /// Without effect in Apache's broker as well.
    dispatch_cq_threads: u32 = 10; unused "dispatchCqThreads";
    /// Without effect in Apache's broker as well.
    dispatch_cq_cache_num: u32 = 4096; unused "dispatchCqCacheNum";
    /// Without effect in Apache's broker as well.
    enable_async_reput: bool = true; unused "enableAsyncReput";
    /// Without effect in Apache's broker as well.
    dispatch_from_sender_thread: bool = false; unused "dispatchFromSenderThread";
    /// Without effect in Apache's broker as well.
    put_msg_index_hight_water: u32 = 600_000; unused "putMsgIndexHightWater";
    /// Cache for look-ups in batch consume queues.
    search_bcq_by_cache_enable: bool = true; unused "searchBcqByCacheEnable";
}

"Store: recovery" {
    /// Check bodies during recovery. FerroMQ always does.
    check_crc_on_recover: bool = true; unused "checkCRCOnRecover";
    /// Without effect in Apache's broker as well.
    max_recovery_commitlog_files: u32 = 30; unused "maxRecoveryCommitlogFiles";
    /// Faster recovery of RocksDB consume queues.
    enable_accelerated_recovery: bool = false; unused "enableAcceleratedRecovery";
}

"Store: deletion and disk space" {
    /// Hours of the day in which expired log files are deleted, separated by `;`.
    delete_when: HoursOfDay = HoursOfDay::default(); live "deleteWhen" [important];
    /// Hours that log files are kept.
    file_reserved_time: u32 = 72; live "fileReservedTime" [important];
    /// Above `diskSpaceCleanForciblyRatio` log files are deleted whatever their age.
    clean_file_forcibly_enable: bool = true; live "cleanFileForciblyEnable";
    /// Percent of the disk above which expired log files are deleted at any hour.
    disk_max_used_space_ratio: u32 = 75; live "diskMaxUsedSpaceRatio" in 10..=95;
    /// Percent of the disk above which log files are deleted whatever their age.
    disk_space_clean_forcibly_ratio: u32 = 85; live "diskSpaceCleanForciblyRatio" in 30..=99;
    /// Percent of the disk above which sends are refused. They are taken again as soon as it is below.
    disk_space_warning_level_ratio: u32 = 90; live "diskSpaceWarningLevelRatio" in 35..=99;
    /// Log files that one round deletes at most.
    delete_file_batch_max: u32 = 10; live "deleteFileBatchMax";
    /// Milliseconds between the deletion of two log files.
    delete_commit_log_files_interval: u32 = 100; live "deleteCommitLogFilesInterval";
    /// Milliseconds of a pause after a consume queue lost files.
    delete_consume_queue_files_interval: u32 = 100; unused "deleteConsumeQueueFilesInterval";
    /// Milliseconds after which a file is deleted even though somebody reads it. FerroMQ need not wait.
    destroy_maped_file_interval_forcibly: u32 = 120_000; unused "destroyMapedFileIntervalForcibly";
    /// Milliseconds between two attempts to delete it.
    redelete_hanged_file_interval: u32 = 120_000; unused "redeleteHangedFileInterval";
    /// Milliseconds between two rounds of deletion.
    clean_resource_interval: u32 = 10_000; restart "cleanResourceInterval";
    /// Stores that share the disk. With more than one, `diskMaxUsedSpaceRatio` is meant of the store's part of it.
    replicas_per_disk_partition: u32 = 1; live "replicasPerDiskPartition";
    /// Share of that part above which the store deletes log files whatever their age.
    logical_disk_space_clean_forcibly_threshold: f64 = 0.8; restart "logicalDiskSpaceCleanForciblyThreshold";
    /// Pause in the correction of batch consume queues.
    correct_logic_min_offset_sleep_interval: u32 = 1; unused "correctLogicMinOffsetSleepInterval";
    /// Milliseconds between two corrections of batch consume queues.
    correct_logic_min_offset_force_interval: u32 = 300_000; unused "correctLogicMinOffsetForceInterval";
    /// Without effect in Apache's broker as well.
    max_batch_delete_files_num: u32 = 50; unused "maxBatchDeleteFilesNum";
    /// Without effect in Apache's broker as well.
    enable_clean_expired_offset: bool = false; unused "enableCleanExpiredOffset";
}

"Store: reading" {
    /// Bytes that a pull of recent messages returns at most.
    max_transfer_bytes_on_message_in_memory: u32 = 262_144; restart "maxTransferBytesOnMessageInMemory" [important];
    /// Recent messages that a pull returns at most.
    max_transfer_count_on_message_in_memory: u32 = 32; restart "maxTransferCountOnMessageInMemory" [important];
    /// Bytes that a pull of old messages returns at most.
    max_transfer_bytes_on_message_in_disk: u32 = 65_536; restart "maxTransferBytesOnMessageInDisk" [important];
    /// Old messages that a pull returns at most.
    max_transfer_count_on_message_in_disk: u32 = 8; restart "maxTransferCountOnMessageInDisk" [important];
    /// Percent of the machine's memory: what lies further behind the log's end counts as old.
    access_message_in_memory_max_ratio: u32 = 40; restart "accessMessageInMemoryMaxRatio" [important] in 0..=100;
    /// Bytes of queue units that one pull looks at.
    max_filter_message_size: u32 = 16_000; restart "maxFilterMessageSize";
    /// Consume queue files that one pull looks at.
    travel_cq_file_num_when_get_message: u32 = 1; unused "travelCqFileNumWhenGetMessage";
    /// Record how far behind readers are. FerroMQ always does.
    disk_fall_recorded: bool = true; unused "diskFallRecorded";
    /// Slaves correct offsets as well.
    offset_check_in_slave: bool = false; live "offsetCheckInSlave";
    /// Queue units that an estimate looks at.
    max_consume_queue_scan: u32 = 20_000; unused "maxConsumeQueueScan";
    /// Matches after which an estimate extrapolates.
    sample_count_threshold: u32 = 5000; unused "sampleCountThreshold";
    /// Without effect in Apache's broker as well.
    pull_batch_max_message_count: u32 = 160; unused "pullBatchMaxMessageCount";
    /// Slow down readers of old messages.
    cold_data_flow_control_enable: bool = false; unused "coldDataFlowControlEnable";
    /// Find out what is in memory.
    cold_data_scan_enable: bool = false; unused "coldDataScanEnable";
    /// Milliseconds between two such looks.
    timer_cold_data_check_interval_ms: u32 = 60_000; unused "timerColdDataCheckIntervalMs";
    /// Every how many pages such a look samples.
    sample_steps: u32 = 32; unused "sampleSteps";
    /// Percent of the machine's memory outside of which data counts as cold.
    access_message_in_memory_hot_ratio: u32 = 26; unused "accessMessageInMemoryHotRatio";
    /// Adapt the slow-down to each group.
    cold_ctr_strategy_enable: bool = false; unused "coldCtrStrategyEnable";
    /// Kind of that adaptation.
    use_pid_cold_ctr_strategy: bool = true; unused "usePIDColdCtrStrategy";
    /// Bytes of old messages that a group may read.
    cg_cold_read_threshold: u64 = 3_145_728; unused "cgColdReadThreshold";
    /// Bytes of old messages that all groups may read.
    global_cold_read_threshold: u64 = 104_857_600; unused "globalColdReadThreshold";
    /// Bytes that a checksum covers at most.
    max_checksum_range: u64 = 1_073_741_824; unused "maxChecksumRange";
}
    } };
}
