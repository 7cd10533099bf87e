//! Statistics, metrics, access control, and what only RocksDB or old versions know.

macro_rules! operations_settings {
    ([$next:ident $($rest:ident)*] $($done:tt)*) => { $next! { [$($rest)*] $($done)*

"Statistics and metrics" {
    /// Statistics of each queue.
    enable_detail_stat: bool = true; unused "enableDetailStat";
    /// Minutes after which statistics that nobody adds to are dropped; -1 is never.
    max_stats_idle_time_in_minutes: i32 = -1; restart "maxStatsIdleTimeInMinutes";
    /// Statistics of light queues.
    enable_lmq_stats: bool = false; unused "enableLmqStats";
    /// Statistics of accounts.
    account_stats_enable: bool = true; unused "accountStatsEnable";
    /// Log them even if they are 0.
    account_stats_print_zero_values: bool = true; unused "accountStatsPrintZeroValues";
    /// Estimate the lag of groups that filter.
    estimate_accumulation: bool = true; unused "estimateAccumulation";
    /// How metrics are exported.
    metrics_exporter_type: MetricsExporterType = MetricsExporterType::Disable; unused "metricsExporterType";
    /// Port for Prometheus.
    metrics_prom_exporter_port: u32 = 5557; unused "metricsPromExporterPort";
    /// Address for Prometheus; empty is every address.
    metrics_prom_exporter_host: String = "".to_owned(); unused "metricsPromExporterHost";
    /// Label combinations of a metric at most.
    metrics_otel_cardinality_limit: u32 = 50_000; unused "metricsOtelCardinalityLimit";
    /// Where an OpenTelemetry collector listens.
    metrics_grpc_exporter_target: String = "".to_owned(); unused "metricsGrpcExporterTarget";
    /// Headers for it, `key:value` separated by `,`.
    metrics_grpc_exporter_header: Secret = Secret::new(""); sealed "metricsGrpcExporterHeader";
    /// Milliseconds that it may take.
    metric_grpc_exporter_time_out_in_mills: u64 = 3000; unused "metricGrpcExporterTimeOutInMills";
    /// Milliseconds between two exports to it.
    metric_grpc_exporter_interval_in_mills: u64 = 60_000; unused "metricGrpcExporterIntervalInMills";
    /// Milliseconds between two exports to the log.
    metric_logging_exporter_interval_in_mills: u64 = 10_000; unused "metricLoggingExporterIntervalInMills";
    /// Labels of every metric, `key:value` separated by `,`.
    metrics_label: String = "".to_owned(); unused "metricsLabel";
    /// Export differences instead of sums.
    metrics_in_delta: bool = false; unused "metricsInDelta";
    /// Metrics of requests' transport.
    enable_remoting_metrics: bool = true; unused "enableRemotingMetrics";
    /// Metrics of the store.
    enable_message_store_metrics: bool = true; unused "enableMessageStoreMetrics";
    /// Metrics of POP.
    enable_pop_metrics: bool = true; unused "enablePopMetrics";
    /// Metrics of connections.
    enable_connection_metrics: bool = true; unused "enableConnectionMetrics";
    /// Metrics of transactions.
    enable_transaction_metrics: bool = true; unused "enableTransactionMetrics";
    /// Metrics from the statistics.
    enable_stats_metrics: bool = true; unused "enableStatsMetrics";
    /// Metrics of requests.
    enable_request_metrics: bool = true; unused "enableRequestMetrics";
    /// Metrics of lag and dead letters.
    enable_lag_and_dlq_metrics: bool = true; unused "enableLagAndDlqMetrics";
}

"Access control" {
    /// Access control of 4.x.
    acl_enable: bool = false; restart "aclEnable" [important];
    /// Find out who sends a request.
    authentication_enabled: bool = false; sealed "authenticationEnabled";
    /// Check what they may do.
    authorization_enabled: bool = false; sealed "authorizationEnabled";
    /// Class that finds out.
    authentication_provider: String = "".to_owned(); sealed "authenticationProvider";
    /// Class that checks.
    authorization_provider: String = "".to_owned(); sealed "authorizationProvider";
    /// Class that keeps the users.
    authentication_metadata_provider: String = "".to_owned(); sealed "authenticationMetadataProvider";
    /// Class that keeps the rules.
    authorization_metadata_provider: String = "".to_owned(); sealed "authorizationMetadataProvider";
    /// Class that says how often users are looked at.
    authentication_strategy: String = "".to_owned(); sealed "authenticationStrategy";
    /// Class that says how often rules are looked at.
    authorization_strategy: String = "".to_owned(); sealed "authorizationStrategy";
    /// Request codes that need no user, separated by `,`.
    authentication_whitelist: String = "".to_owned(); sealed "authenticationWhitelist";
    /// Request codes that need no permission, separated by `,`.
    authorization_whitelist: String = "".to_owned(); sealed "authorizationWhitelist";
    /// The first user, as JSON.
    init_authentication_user: Secret = Secret::new(""); sealed "initAuthenticationUser";
    /// What brokers and proxies call each other with, as JSON.
    inner_client_authentication_credentials: Secret = Secret::new(""); sealed "innerClientAuthenticationCredentials";
    /// Take over the rules of 4.x.
    migrate_auth_from_v1_enabled: bool = false; sealed "migrateAuthFromV1Enabled";
    /// Directory of users and rules.
    auth_config_path: Option<String> = None; sealed "authConfigPath";
    /// Users in memory.
    user_cache_max_num: u32 = 1000; unused "userCacheMaxNum";
    /// Seconds that they stay.
    user_cache_expired_second: u32 = 600; unused "userCacheExpiredSecond";
    /// Seconds after which they are looked up again.
    user_cache_refresh_second: u32 = 60; unused "userCacheRefreshSecond";
    /// Rules in memory.
    acl_cache_max_num: u32 = 1000; unused "aclCacheMaxNum";
    /// Seconds that they stay.
    acl_cache_expired_second: u32 = 600; unused "aclCacheExpiredSecond";
    /// Seconds after which they are looked up again.
    acl_cache_refresh_second: u32 = 60; unused "aclCacheRefreshSecond";
    /// Remembered connections.
    stateful_authentication_cache_max_num: u32 = 10_000; unused "statefulAuthenticationCacheMaxNum";
    /// Seconds that they are remembered.
    stateful_authentication_cache_expired_second: u32 = 60; unused "statefulAuthenticationCacheExpiredSecond";
    /// Remembered decisions.
    stateful_authorization_cache_max_num: u32 = 10_000; unused "statefulAuthorizationCacheMaxNum";
    /// Seconds that they are remembered.
    stateful_authorization_cache_expired_second: u32 = 60; unused "statefulAuthorizationCacheExpiredSecond";
}

"RocksDB" {
    /// Minutes between two removals of queues of unknown topics.
    clean_rocks_db_dirty_cq_interval_min: u64 = 60; unused "cleanRocksDBDirtyCQIntervalMin";
    /// Seconds between two statistics.
    stat_rocks_db_cq_interval_sec: u64 = 10; unused "statRocksDBCQIntervalSec";
    /// Milliseconds between two flushes of the configuration.
    mem_table_flush_interval_ms: u64 = 3_600_000; unused "memTableFlushIntervalMs";
    /// Flush every change of the configuration.
    real_time_persist_rocks_db_config: bool = true; unused "realTimePersistRocksDBConfig";
    /// Log much.
    enable_rocks_db_log: bool = false; unused "enableRocksDBLog";
    /// Keep both kinds of consume queues.
    rocksdb_cq_double_write_enable: bool = false; unused "rocksdbCQDoubleWriteEnable";
    /// Kinds that are loaded.
    combine_cq_loading_cq_types: String = "default;defaultRocksDB".to_owned(); unused "combineCQLoadingCQTypes";
    /// Kind that is read.
    combine_cq_prefer_cq_type: String = "default".to_owned(); unused "combineCQPreferCQType";
    /// Kind that gives offsets.
    combine_assign_offset_cq_type: String = "default".to_owned(); unused "combineAssignOffsetCQType";
    /// Compare both kinds.
    combine_cq_enable_check_self: bool = false; unused "combineCQEnableCheckSelf";
    /// Log files that are searched for the other kind.
    combine_cq_max_extra_search_commit_log_files: u32 = 3; unused "combineCQMaxExtraSearchCommitLogFiles";
    /// Compression.
    bottom_most_compression_type_for_consume_queue_store: String = "zstd".to_owned(); unused "bottomMostCompressionTypeForConsumeQueueStore";
    /// Compression.
    rocksdb_compression_type: String = "lz4".to_owned(); unused "rocksdbCompressionType";
    /// Writes between two flushes of the write-ahead log.
    rocksdb_flush_wal_frequency: u32 = 1024; unused "rocksdbFlushWalFrequency";
    /// Bytes of a write-ahead log.
    rocksdb_wal_file_rolling_threshold: u64 = 1_073_741_824; unused "rocksdbWalFileRollingThreshold";
}

"Without effect in Apache's broker as well" {
    /// Without effect.
    high_speed_mode: bool = false; unused "highSpeedMode";
    /// Without effect.
    flush_consumer_offset_history_interval: u32 = 60_000; unused "flushConsumerOffsetHistoryInterval";
    /// Without effect.
    clean_offline_broker_interval: u64 = 30_000; unused "cleanOfflineBrokerInterval";
    /// Without effect.
    mapped_file_swap_enable: bool = true; unused "mappedFileSwapEnable";
    /// Without effect.
    commit_log_force_swap_map_interval: u64 = 43_200_000; unused "commitLogForceSwapMapInterval";
    /// Without effect.
    commit_log_swap_map_interval: u64 = 3_600_000; unused "commitLogSwapMapInterval";
    /// Without effect.
    commit_log_swap_map_reserve_file_num: u32 = 100; unused "commitLogSwapMapReserveFileNum";
    /// Without effect.
    logic_queue_force_swap_map_interval: u64 = 43_200_000; unused "logicQueueForceSwapMapInterval";
    /// Without effect.
    logic_queue_swap_map_interval: u64 = 3_600_000; unused "logicQueueSwapMapInterval";
    /// Without effect.
    logic_queue_swap_map_reserve_file_num: u32 = 20; unused "logicQueueSwapMapReserveFileNum";
    /// Without effect.
    clean_swaped_map_interval: u64 = 300_000; unused "cleanSwapedMapInterval";
}
    } };
}
