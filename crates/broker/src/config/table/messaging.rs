//! Topics, sending, consuming, transactions.

macro_rules! messaging_settings {
    ([$next:ident $($rest:ident)*] $($done:tt)*) => { $next! { [$($rest)*] $($done)*

"Topics, groups, permissions" {
    /// What the broker is good for: 2 writing, 4 reading, 6 both. Set it to 4 to drain a broker.
    broker_permission: u32 = 6; live "brokerPermission" in 0..=7;
    /// The first message to an unknown topic creates it.
    auto_create_topic_enable: bool = true; live "autoCreateTopicEnable" [important];
    /// Queues of such a topic at most.
    default_topic_queue_nums: u32 = 8; live "defaultTopicQueueNums";
    /// The first pull of an unknown group creates it.
    auto_create_subscription_group: bool = true; live "autoCreateSubscriptionGroup" [important];
    /// Groups named `CID_RMQ_SYS_…` are created even if `autoCreateSubscriptionGroup` is off.
    enable_create_sys_group: bool = true; live "enableCreateSysGroup";
    /// There is a topic named like the cluster.
    cluster_topic_enable: bool = true; restart "clusterTopicEnable";
    /// There is a topic named like the broker.
    broker_topic_enable: bool = true; restart "brokerTopicEnable";
    /// There is a topic for message traces.
    trace_topic_enable: bool = false; restart "traceTopicEnable" [important];
    /// Its name.
    msg_trace_topic_name: String = "RMQ_SYS_TRACE_TOPIC".to_owned(); restart "msgTraceTopicName" [important];
    /// Whether clients are told to write traces (`TRACE_ON`).
    trace_on: bool = true; live "traceOn";
    /// Refuse to change system topics.
    validate_system_topic_when_update_topic: bool = true; live "validateSystemTopicWhenUpdateTopic";
    /// Topics may be of the message type MIXED.
    enable_mixed_message_type: bool = false; live "enableMixedMessageType";
    /// Deleting a topic deletes POP retry topics of its groups too.
    clear_retry_topic_when_delete_topic: bool = true; live "clearRetryTopicWhenDeleteTopic";
    /// Deleting a topic or group deletes its statistics.
    auto_delete_unused_stats: bool = true; live "autoDeleteUnusedStats";
    /// Lag metrics use the subscriptions of the group's configuration.
    use_static_subscription: bool = false; unused "useStaticSubscription";
    /// Format of the topic, group and offset files: `v1` (JSON), or `v2` (RocksDB).
    config_manager_version: String = "v1".to_owned(); unused "configManagerVersion";
    /// Milliseconds that forwarding a request for a static topic may take.
    forward_timeout: u64 = 3000; unused "forwardTimeout";
}

"Sending" {
    /// Sends are refused before this time, in milliseconds since 1970.
    start_accept_send_request_time_stamp: u64 = 0; live "startAcceptSendRequestTimeStamp";
    /// Refuse transactional messages.
    reject_transaction_message: bool = false; unused "rejectTransactionMessage" [important];
    /// Answer a send when it is done instead of blocking a thread. FerroMQ always does.
    async_send_enable: bool = true; unused "asyncSendEnable";
    /// Keep replies of the request-reply model in the reply topic.
    store_reply_message_enable: bool = true; unused "storeReplyMessageEnable";
    /// Delayed messages can be called back.
    recall_message_enable: bool = false; unused "recallMessageEnable";
    /// They can even when the broker is not writable.
    allow_recall_when_broker_not_writeable: bool = true; unused "allowRecallWhenBrokerNotWriteable";
    /// Without effect in Apache's broker as well.
    enable_register_producer: bool = true; unused "enableRegisterProducer";
    /// Statistics for plug-ins.
    commercial_base_count: u32 = 1; unused "commercialBaseCount";
    /// Statistics for plug-ins.
    commercial_size_per_msg: u32 = 4096; unused "commercialSizePerMsg";
}

"Consuming" {
    /// A pull that finds nothing waits for messages.
    long_polling_enable: bool = true; live "longPollingEnable";
    /// Milliseconds that it waits if `longPollingEnable` is off.
    short_polling_time_mills: u64 = 1000; live "shortPollingTimeMills";
    /// Tell clients to read from a slave when they are far behind.
    slave_read_enable: bool = false; live "slaveReadEnable";
    /// Serve lite pull requests.
    lite_pull_message_enable: bool = true; live "litePullMessageEnable";
    /// Refuse consumers that pull.
    reject_pull_consumer_enable: bool = false; live "rejectPullConsumerEnable";
    /// Copy messages before sending them.
    transfer_msg_by_heap: bool = true; unused "transferMsgByHeap";
    /// Limit the network traffic of pulls.
    enable_net_work_flow_control: bool = false; unused "enableNetWorkFlowControl";
    /// Tell a group's consumers when one comes or goes.
    notify_consumer_ids_changed_enable: bool = true; live "notifyConsumerIdsChangedEnable";
    /// Tell them at once.
    real_time_notify_consumer_change: bool = true; unused "realTimeNotifyConsumerChange";
    /// Milliseconds without a heartbeat after which a consumer is gone.
    channel_expired_timeout: u64 = 120_000; live "channelExpiredTimeout";
    /// Milliseconds without a heartbeat after which a group's subscription is forgotten.
    subscription_expired_timeout: u64 = 600_000; live "subscriptionExpiredTimeout";
    /// Milliseconds between two writes of consumers' progress.
    flush_consumer_offset_interval: u32 = 5000; restart "flushConsumerOffsetInterval";
    /// Commits after which the progress file gets a new version.
    consumer_offset_update_version_step: u64 = 500; restart "consumerOffsetUpdateVersionStep";
    /// Deliveries after which the file of delay levels gets a new version.
    delay_offset_update_version_step: u64 = 200; unused "delayOffsetUpdateVersionStep";
    /// Resetting a group's progress works on the broker, for groups without consumers too.
    use_server_side_reset_offset: bool = true; live "useServerSideResetOffset";
    /// Keep the progress of broadcasting consumers that POP through a proxy.
    enable_broadcast_offset_store: bool = true; unused "enableBroadcastOffsetStore";
    /// Seconds that it is kept.
    broadcast_offset_expire_second: u64 = 120; unused "broadcastOffsetExpireSecond";
    /// Seconds that it is kept at most.
    broadcast_offset_expire_max_second: u64 = 300; unused "broadcastOffsetExpireMaxSecond";
    /// Stop groups that are too far behind.
    disable_consume_if_consumer_read_slowly: bool = false; unused "disableConsumeIfConsumerReadSlowly";
    /// Bytes that are too far.
    consumer_fallbehind_threshold: u64 = 17_179_869_184; unused "consumerFallbehindThreshold";
    /// With `enableSlaveActingMaster`: queues of ordered consumers are locked by a majority of `totalReplicas`.
    lock_in_strict_mode: bool = false; live "lockInStrictMode";
    /// Take part in distributing queues to consumers (QUERY_ASSIGNMENT).
    server_load_balancer_enable: bool = true; unused "serverLoadBalancerEnable";
    /// How groups get messages when that is not set for them.
    default_message_request_mode: MessageRequestMode = MessageRequestMode::Pull; unused "defaultMessageRequestMode";
    /// Consumers that share a queue in POP mode; -1 is all.
    default_pop_share_queue_num: i32 = -1; unused "defaultPopShareQueueNum";
    /// Milliseconds between two looks at the routes of topics.
    load_balance_poll_name_server_interval: u32 = 30_000; unused "loadBalancePollNameServerInterval";
    /// React to a consumer's connection as soon as it changes.
    enable_fast_channel_event_process: bool = false; unused "enableFastChannelEventProcess";
    /// Log groups with many connections.
    print_channel_groups: bool = false; unused "printChannelGroups";
    /// How many are many.
    print_channel_groups_min_num: u32 = 5; unused "printChannelGroupsMinNum";
}

"Filters" {
    /// Serve SQL filters.
    enable_property_filter: bool = false; unused "enablePropertyFilter";
    /// Filter retry topics as well.
    filter_support_retry: bool = false; unused "filterSupportRetry";
    /// Compute filters when messages are stored.
    enable_calc_filter_bit_map: bool = false; unused "enableCalcFilterBitMap";
    /// Consumers that such a filter is made for.
    expect_consumer_num_use_filter: u32 = 32; unused "expectConsumerNumUseFilter";
    /// Percent of wrong answers that such a filter may give.
    max_error_rate_of_bloom_filter: u32 = 20; unused "maxErrorRateOfBloomFilter";
    /// Milliseconds after which filters without a consumer are forgotten.
    filter_data_clean_time_span: u64 = 86_400_000; unused "filterDataCleanTimeSpan";
}

"Transactions" {
    /// Milliseconds that a half message is left alone before its producer is asked.
    transaction_time_out: u64 = 6000; unused "transactionTimeOut" [important];
    /// Times that it is asked at most.
    transaction_check_max: u32 = 15; unused "transactionCheckMax" [important];
    /// Milliseconds between two rounds of asking.
    transaction_check_interval: u64 = 30_000; unused "transactionCheckInterval" [important];
    /// Milliseconds between two writes of the transaction metrics.
    transaction_metric_flush_interval: u64 = 3000; unused "transactionMetricFlushInterval";
    /// Bytes of a message that marks half messages as ended.
    transaction_op_msg_max_size: u32 = 4096; unused "transactionOpMsgMaxSize";
    /// Milliseconds that marks are collected.
    transaction_op_batch_interval: u32 = 3000; unused "transactionOpBatchInterval";
}
    } };
}
