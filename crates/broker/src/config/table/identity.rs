//! Who the broker is, and how it talks to name servers.

macro_rules! identity_settings {
    ([$next:ident $($rest:ident)*] $($done:tt)*) => { $next! { [$($rest)*] $($done)*

"Identity and addresses" {
    /// Name of the broker set; the host's name unless set. Master and slaves of a set share it.
    broker_name: String = host_name(); restart "brokerName" [important];
    /// Name of the cluster.
    broker_cluster_name: String = "DefaultCluster".to_owned(); restart "brokerClusterName" [important];
    /// 0 is the master, more than 0 a slave; what is set counts for a slave only.
    broker_id: i64 = 0; restart "brokerId" [important];
    /// Port for clients. The fast port is this minus 2, and the replication port this plus 1 unless it is set.
    listen_port: u32 = 10911; restart "listenPort" [important] in 0..=65535;
    /// Address to listen on.
    bind_address: String = "0.0.0.0".to_owned(); restart "bindAddress";
    /// Address that clients are told; found out from the network interfaces unless set.
    broker_ip1: String = local_address(); restart "brokerIP1" [important];
    /// Address that slaves are told.
    broker_ip2: String = local_address(); restart "brokerIP2";
    /// Installation directory of Apache RocketMQ. FerroMQ needs none.
    rocketmq_home: Option<String> = None; sealed "rocketmqHome";
    /// The file that configuration updates are written to: the one that was given with `-c`.
    broker_config_path: Option<String> = None; sealed "brokerConfigPath";
    /// Keys that clients may not change, separated by `;`.
    config_black_list: String = "configBlackList;brokerConfigPath".to_owned(); sealed "configBlackList";
    /// Sent with every message as `MSG_REGION`.
    region_id: String = "DefaultRegion".to_owned(); live "regionId";
    /// Whether the broker runs in a broker container.
    is_broker_container: bool = false; unused "isBrokerContainer";
    /// Whether the broker runs in a broker container.
    is_in_broker_container: bool = false; unused "isInBrokerContainer";
    /// Log files for each broker of a container.
    isolate_log_enable: bool = false; unused "isolateLogEnable";
}

"Name servers" {
    /// Name servers, `host:port` separated by `;`. Default: the environment variable `NAMESRV_ADDR`.
    namesrv_addr: Option<String> = None; live "namesrvAddr" [important];
    /// `namesrvAddr` is one `domain:port`, and every address that it resolves to is a name server.
    fetch_name_srv_addr_by_dns_lookup: bool = false; live "fetchNameSrvAddrByDnsLookup" [important];
    /// Ask an HTTP server for the name servers.
    fetch_namesrv_addr_by_address_server: bool = false; unused "fetchNamesrvAddrByAddressServer" [important];
    /// Milliseconds between two questions to that server.
    fetch_namesrv_addr_interval: u64 = 10_000; unused "fetchNamesrvAddrInterval";
    /// Domain of that server (`jmenv.tbsite.net`).
    rmq_address_server_domain: Option<String> = None; unused "rmqAddressServerDomain";
    /// Last part of the path on that server (`nsaddr`).
    rmq_address_server_sub_group: Option<String> = None; unused "rmqAddressServerSubGroup";
    /// Milliseconds after which `namesrvAddr` is applied, and resolved, again.
    update_name_server_addr_period: u64 = 120_000; live "updateNameServerAddrPeriod";
    /// Milliseconds between two full registrations; less than 10000 counts as 10000, more than 60000 as 60000.
    register_name_server_period: u32 = 30_000; live "registerNameServerPeriod";
    /// Milliseconds that a name server may take to answer a registration.
    register_broker_timeout_mills: u32 = 24_000; live "registerBrokerTimeoutMills";
    /// Register every time; otherwise only when a name server's topics are out of date.
    force_register: bool = true; live "forceRegister";
    /// Compress registrations. Apache's broker marks them wrongly; FerroMQ never compresses.
    compressed_register: bool = false; unused "compressedRegister";
    /// Announce a changed topic with request 217 instead of an incremental registration.
    enable_single_topic_register: bool = false; live "enableSingleTopicRegister";
    /// Register the topics in portions.
    enable_split_registration: bool = false; live "enableSplitRegistration";
    /// Topics in one portion.
    split_registration_size: u32 = 800; live "splitRegistrationSize" in 1..=2_147_483_647;
    /// Page the answers that list all topics or all groups when the caller asks for pages.
    enable_split_metadata: bool = true; unused "enableSplitMetadata";
    /// Entries of such a page.
    split_metadata_size: u32 = 2000; unused "splitMetadataSize";
    /// Name servers before 5.0 take part: ask for data versions instead of sending heartbeats.
    compatible_with_old_name_srv: bool = true; unused "compatibleWithOldNameSrv";
}

"Listening" {
    /// Seconds after which a connection that is silent is closed.
    server_channel_max_idle_time_seconds: u32 = 120; restart "serverChannelMaxIdleTimeSeconds" in 1..=2_147_483_647;
    /// Length of the queue of connections that wait to be accepted.
    server_socket_backlog: u32 = 1024; unused "serverSocketBacklog";
    /// Bytes of the socket's send buffer; 0 leaves it to the system.
    server_socket_snd_buf_size: u32 = 0; unused "serverSocketSndBufSize";
    /// Bytes of the socket's receive buffer; 0 leaves it to the system.
    server_socket_rcv_buf_size: u32 = 0; unused "serverSocketRcvBufSize";
    /// Netty's write buffer limits. FerroMQ stops reading from a client that does not read its answers.
    write_buffer_high_water_mark: u32 = 0; unused "writeBufferHighWaterMark";
    /// See `writeBufferHighWaterMark`.
    write_buffer_low_water_mark: u32 = 0; unused "writeBufferLowWaterMark";
    /// Threads of Netty. FerroMQ uses as many threads as there are processors.
    server_worker_threads: u32 = 8; unused "serverWorkerThreads";
    /// See `serverWorkerThreads`.
    server_callback_executor_threads: u32 = 0; unused "serverCallbackExecutorThreads";
    /// See `serverWorkerThreads`.
    server_selector_threads: u32 = 3; unused "serverSelectorThreads";
    /// One-way requests to clients under way at once.
    server_oneway_semaphore_value: u32 = 256; unused "serverOnewaySemaphoreValue";
    /// Requests to clients under way at once.
    server_async_semaphore_value: u32 = 64; unused "serverAsyncSemaphoreValue";
    /// Netty's.
    server_netty_worker_group_enable: bool = true; unused "serverNettyWorkerGroupEnable";
    /// Netty's.
    server_pooled_byte_buf_allocator_enable: bool = true; unused "serverPooledByteBufAllocatorEnable";
    /// Netty's.
    use_epoll_native_selector: bool = false; unused "useEpollNativeSelector";
    /// Tell 5.x clients to go away before the broker stops.
    enable_shutdown_gracefully: bool = false; unused "enableShutdownGracefully";
    /// Seconds that they get for it.
    shutdown_wait_time_seconds: u32 = 30; unused "shutdownWaitTimeSeconds";
}

"Connecting" {
    /// Milliseconds that a connection to a name server may take to be made.
    connect_timeout_millis: u32 = 3000; unused "connectTimeoutMillis";
    /// Seconds after which a connection that is silent is closed.
    client_channel_max_idle_time_seconds: u32 = 120; unused "clientChannelMaxIdleTimeSeconds";
    /// Milliseconds; without effect in Apache's broker as well.
    channel_not_active_interval: u64 = 60_000; unused "channelNotActiveInterval";
    /// Close the connection when an answer does not come in time.
    client_close_socket_if_timeout: bool = true; unused "clientCloseSocketIfTimeout";
    /// Bytes of the socket's send buffer; 0 leaves it to the system.
    client_socket_snd_buf_size: u32 = 0; unused "clientSocketSndBufSize";
    /// Bytes of the socket's receive buffer; 0 leaves it to the system.
    client_socket_rcv_buf_size: u32 = 0; unused "clientSocketRcvBufSize";
    /// Threads of Netty.
    client_worker_threads: u32 = 4; unused "clientWorkerThreads";
    /// Threads of Netty.
    client_callback_executor_threads: u32 = processors(); unused "clientCallbackExecutorThreads";
    /// One-way requests under way at once.
    client_oneway_semaphore_value: u32 = 65_535; unused "clientOnewaySemaphoreValue";
    /// Requests under way at once.
    client_async_semaphore_value: u32 = 65_535; unused "clientAsyncSemaphoreValue";
    /// Netty's.
    client_pooled_byte_buf_allocator_enable: bool = false; unused "clientPooledByteBufAllocatorEnable";
    /// Netty's.
    disable_callback_executor: bool = false; unused "disableCallbackExecutor";
    /// Netty's.
    disable_netty_worker_group: bool = false; unused "disableNettyWorkerGroup";
    /// Connect again when a peer answers that it goes away.
    enable_reconnect_for_go_away: bool = true; unused "enableReconnectForGoAway";
    /// Seconds between two attempts at most.
    max_reconnect_interval_time_seconds: u32 = 60; unused "maxReconnectIntervalTimeSeconds";
    /// Try every name server of the list now and then.
    is_scan_available_name_srv: bool = true; unused "isScanAvailableNameSrv";
    /// SOCKS proxies by address range, as JSON.
    socks_proxy_config: Secret = Secret::new("{}"); sealed "socksProxyConfig";
    /// Connect with TLS.
    use_tls: bool = false; unused "useTLS";
}
    } };
}
