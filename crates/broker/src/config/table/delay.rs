//! Delayed messages, compaction, POP.

macro_rules! delay_settings {
    ([$next:ident $($rest:ident)*] $($done:tt)*) => { $next! { [$($rest)*] $($done)*

"Delay levels" {
    /// The delays that clients choose from by number, level 1 first; units `s`, `m`, `h`, `d`.
    message_delay_level: DelayLevels = DelayLevels::default(); restart "messageDelayLevel";
    /// Milliseconds between two writes of the progress of delay levels.
    flush_delay_offset_interval: u64 = 10_000; live "flushDelayOffsetInterval";
    /// Count delayed messages in the statistics.
    enable_schedule_message_stats: bool = true; unused "enableScheduleMessageStats";
    /// Deliver several delayed messages at once.
    enable_schedule_async_deliver: bool = false; unused "enableScheduleAsyncDeliver";
    /// How many at most.
    schedule_async_deliver_max_pending_limit: u32 = 2000; unused "scheduleAsyncDeliverMaxPendingLimit";
    /// Failed deliveries after which the others wait.
    schedule_async_deliver_max_resend_num2_blocked: u32 = 3; unused "scheduleAsyncDeliverMaxResendNum2Blocked";
}

"Timer messages" {
    /// There is a topic for timer messages. They are not served yet.
    timer_wheel_enable: bool = true; restart "timerWheelEnable";
    /// Seconds that a message can be delayed at most.
    timer_max_delay_sec: u32 = 259_200; unused "timerMaxDelaySec";
    /// Milliseconds of a slot of the wheel.
    timer_precision_ms: u32 = 1000; unused "timerPrecisionMs";
    /// Slots after which a message is put back.
    timer_roll_window_slot: u32 = 172_800; unused "timerRollWindowSlot";
    /// Milliseconds between two flushes.
    timer_flush_interval_ms: u32 = 1000; unused "timerFlushIntervalMs";
    /// Threads that read due messages.
    timer_get_message_thread_num: u32 = 3; unused "timerGetMessageThreadNum";
    /// Threads that deliver due messages.
    timer_put_message_thread_num: u32 = 3; unused "timerPutMessageThreadNum";
    /// Kind of the queues between them.
    timer_enable_disruptor: bool = false; unused "timerEnableDisruptor";
    /// Check the counters once a day.
    timer_enable_check_metrics: bool = true; unused "timerEnableCheckMetrics";
    /// Hour of it.
    timer_check_metrics_when: String = "05".to_owned(); unused "timerCheckMetricsWhen";
    /// Without effect in Apache's broker as well.
    timer_intercept_delay_level: bool = false; unused "timerInterceptDelayLevel";
    /// Stop taking messages into the wheel.
    timer_stop_enqueue: bool = false; unused "timerStopEnqueue";
    /// Stop delivering.
    timer_stop_dequeue: bool = false; unused "timerStopDequeue";
    /// Leave out messages that can't be delivered for unknown reasons.
    timer_skip_unknown_error: bool = false; unused "timerSkipUnknownError";
    /// Touch pages of the log ahead of time.
    timer_warm_enable: bool = false; unused "timerWarmEnable";
    /// Try to deliver for ever.
    timer_enable_retry_until_success: bool = false; unused "timerEnableRetryUntilSuccess";
    /// Messages of a slot above which senders are slowed down.
    timer_congest_num_each_slot: u32 = 2_147_483_647; unused "timerCongestNumEachSlot";
    /// Topics with fewer messages are counted one by one.
    timer_metric_small_threshold: u32 = 1_000_000; unused "timerMetricSmallThreshold";
    /// Milliseconds between two lines in the log.
    timer_progress_log_interval_ms: u32 = 10_000; unused "timerProgressLogIntervalMs";
    /// Bytes of a file of the timer log.
    mapped_file_size_timer_log: u32 = 104_857_600; unused "mappedFileSizeTimerLog";
    /// Milliseconds after the start in which the broker is not registered.
    disappear_time_after_start: i32 = -1; unused "disappearTimeAfterStart";
}

"Compaction" {
    /// Serve topics that keep the last message of each key.
    enable_compaction: bool = true; unused "enableCompaction";
    /// Bytes of a compacted log file.
    compaction_mapped_file_size: u32 = 104_857_600; unused "compactionMappedFileSize";
    /// Bytes of its queue file.
    compaction_cq_mapped_file_size: u32 = 10_485_760; unused "compactionCqMappedFileSize";
    /// Milliseconds between two rounds.
    compaction_schedule_internal: u32 = 900_000; unused "compactionScheduleInternal";
    /// Threads.
    compaction_thread_num: u32 = 6; unused "compactionThreadNum";
    /// Bytes that all threads use for keys.
    max_offset_map_size: u32 = 104_857_600; unused "maxOffsetMapSize";
}

"POP" {
    /// POP requests of one queue that may wait.
    pop_polling_size: u32 = 1024; unused "popPollingSize";
    /// Queues with waiting POP requests.
    pop_polling_map_size: u32 = 100_000; unused "popPollingMapSize";
    /// Seconds after which such a queue is forgotten.
    pop_polling_map_expire_time_seconds: u64 = 600; unused "popPollingMapExpireTimeSeconds";
    /// POP requests that may wait in all.
    max_pop_polling_size: u64 = 100_000; unused "maxPopPollingSize";
    /// Queues of the topic of check-points. POP is not served yet.
    revive_queue_num: u32 = 8; restart "reviveQueueNum";
    /// Milliseconds between two rounds of revival.
    revive_interval: u64 = 1000; unused "reviveInterval";
    /// Rounds that may be slow.
    revive_max_slow: u64 = 3; unused "reviveMaxSlow";
    /// Milliseconds that a round reads.
    revive_scan_time: u64 = 10_000; unused "reviveScanTime";
    /// Leave out what waits too long for its acknowledgement.
    enable_skip_long_awaiting_ack: bool = false; unused "enableSkipLongAwaitingAck";
    /// Milliseconds that are too long.
    revive_ack_wait_ms: u64 = 180_000; unused "reviveAckWaitMs";
    /// Log POP.
    enable_pop_log: bool = false; unused "enablePopLog";
    /// Keep check-points in memory first.
    enable_pop_buffer_merge: bool = false; unused "enablePopBufferMerge";
    /// Milliseconds that they stay there.
    pop_ck_stay_buffer_time: u32 = 10_000; unused "popCkStayBufferTime";
    /// Milliseconds before their time is over.
    pop_ck_stay_buffer_time_out: u32 = 3000; unused "popCkStayBufferTimeOut";
    /// Check-points in memory at most.
    pop_ck_max_buffer_size: u32 = 200_000; unused "popCkMaxBufferSize";
    /// Check-points of a queue in memory at most.
    pop_ck_offset_max_queue_size: u32 = 20_000; unused "popCkOffsetMaxQueueSize";
    /// Store acknowledgements in batches.
    enable_pop_batch_ack: bool = false; unused "enablePopBatchAck";
    /// Milliseconds after which waiting POP requests look again.
    pop_long_polling_force_notify_interval: u64 = 800; unused "popLongPollingForceNotifyInterval";
    /// Wake waiting requests before the lag is calculated.
    enable_notify_before_pop_calculate_lag: bool = true; unused "enableNotifyBeforePopCalculateLag";
    /// Wake waiting requests when an ordered queue is released.
    enable_notify_after_pop_order_lock_release: bool = true; unused "enableNotifyAfterPopOrderLockRelease";
    /// Where a group without progress begins depends on what is in memory.
    init_pop_offset_by_check_msg_in_mem: bool = true; unused "initPopOffsetByCheckMsgInMem";
    /// Read retry topics of the first naming as well.
    retrieve_message_from_pop_retry_topic_v1: bool = true; unused "retrieveMessageFromPopRetryTopicV1";
    /// Write retry topics of the second naming.
    enable_retry_topic_v2: bool = false; unused "enableRetryTopicV2";
    /// Percent of POP requests that look into the retry topic first.
    pop_from_retry_probability: u32 = 20; unused "popFromRetryProbability";
    /// Second implementation of POP.
    pop_consumer_fs_service_init: bool = true; unused "popConsumerFSServiceInit";
    /// Second implementation of POP.
    pop_consumer_kv_service_log: bool = false; unused "popConsumerKVServiceLog";
    /// Second implementation of POP.
    pop_consumer_kv_service_init: bool = false; unused "popConsumerKVServiceInit";
    /// Second implementation of POP.
    pop_consumer_kv_service_enable: bool = false; unused "popConsumerKVServiceEnable";
    /// Second implementation of POP.
    pop_revive_max_return_size_per_read: u32 = 16_384; unused "popReviveMaxReturnSizePerRead";
    /// Second implementation of POP.
    pop_revive_max_attempt_times: u32 = 16; unused "popReviveMaxAttemptTimes";
    /// Answers name the retry topic.
    pop_response_return_actual_retry_topic: bool = false; unused "popResponseReturnActualRetryTopic";
    /// Messages of a queue under way above which POP stops.
    pop_inflight_message_threshold: u64 = 10_000; unused "popInflightMessageThreshold";
    /// Apply that limit.
    enable_pop_message_threshold: bool = false; unused "enablePopMessageThreshold";
    /// Give up check-points that can't be stored.
    skip_when_ck_re_put_reach_max_times: bool = false; unused "skipWhenCKRePutReachMaxTimes";
    /// Store acknowledgements asynchronously.
    append_ack_async: bool = false; unused "appendAckAsync";
    /// Store check-points asynchronously.
    append_ck_async: bool = false; unused "appendCkAsync";
}
    } };
}
