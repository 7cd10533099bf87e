//! Thread pools of the Java broker and their queues. FerroMQ has neither; its pressure on senders is a slower read.

macro_rules! thread_settings {
    ([$next:ident $($rest:ident)*] $($done:tt)*) => { $next! { [$($rest)*] $($done)*

"Threads and flow control" {
    /// Refuse requests that waited too long. FerroMQ answers them late rather than never.
    broker_fast_failure_enable: bool = true; unused "brokerFastFailureEnable";
    /// Milliseconds that a send may wait. FerroMQ queues bursts as long as the client waits for its answer.
    wait_time_mills_in_send_queue: u64 = 200; unused "waitTimeMillsInSendQueue";
    /// Milliseconds that a pull may wait.
    wait_time_mills_in_pull_queue: u64 = 5000; unused "waitTimeMillsInPullQueue";
    /// Milliseconds that a lite pull may wait.
    wait_time_mills_in_lite_pull_queue: u64 = 5000; unused "waitTimeMillsInLitePullQueue";
    /// Milliseconds that a heartbeat may wait.
    wait_time_mills_in_heartbeat_queue: u64 = 31_000; unused "waitTimeMillsInHeartbeatQueue";
    /// Milliseconds that the end of a transaction may wait.
    wait_time_mills_in_transaction_queue: u64 = 3000; unused "waitTimeMillsInTransactionQueue";
    /// Milliseconds that an acknowledgement may wait.
    wait_time_mills_in_ack_queue: u64 = 3000; unused "waitTimeMillsInAckQueue";
    /// Milliseconds that an admin request may wait.
    wait_time_mills_in_admin_broker_queue: u64 = 5000; unused "waitTimeMillsInAdminBrokerQueue";
    /// Threads for sends.
    send_message_thread_pool_nums: u32 = processors().min(4); unused "sendMessageThreadPoolNums";
    /// Threads that wait for sends to be on the disk.
    put_message_future_thread_pool_nums: u32 = processors().min(4); unused "putMessageFutureThreadPoolNums";
    /// Threads for pulls.
    pull_message_thread_pool_nums: u32 = 16 + 2 * processors(); unused "pullMessageThreadPoolNums";
    /// Threads for lite pulls.
    lite_pull_message_thread_pool_nums: u32 = 16 + 2 * processors(); unused "litePullMessageThreadPoolNums";
    /// Threads for replies.
    process_reply_message_thread_pool_nums: u32 = 16 + 2 * processors(); unused "processReplyMessageThreadPoolNums";
    /// Threads for acknowledgements.
    ack_message_thread_pool_nums: u32 = 16; unused "ackMessageThreadPoolNums";
    /// Threads for admin requests.
    admin_broker_thread_pool_nums: u32 = 16; unused "adminBrokerThreadPoolNums";
    /// Threads for look-ups.
    query_message_thread_pool_nums: u32 = 8 + processors(); unused "queryMessageThreadPoolNums";
    /// Threads for clients that come and go.
    client_manage_thread_pool_nums: u32 = 32; unused "clientManageThreadPoolNums";
    /// Threads for consumers' progress.
    consumer_manage_thread_pool_nums: u32 = 32; unused "consumerManageThreadPoolNums";
    /// Threads for the distribution of queues.
    load_balance_processor_thread_pool_nums: u32 = 32; unused "loadBalanceProcessorThreadPoolNums";
    /// Threads for heartbeats.
    heartbeat_thread_pool_nums: u32 = processors().min(32); unused "heartbeatThreadPoolNums";
    /// Threads for the end of transactions.
    end_transaction_thread_pool_nums: u32 = (8 + 2 * processors()).max(4 * processors().min(4)); unused "endTransactionThreadPoolNums";
    /// Recover consume queues in parallel. FerroMQ has nothing to do for each queue.
    recover_concurrently: bool = false; unused "recoverConcurrently" [important];
    /// Threads for it.
    recover_thread_pool_nums: u32 = 32; unused "recoverThreadPoolNums";
    /// Sends that may wait.
    send_thread_pool_queue_capacity: u32 = 10_000; unused "sendThreadPoolQueueCapacity";
    /// Sends that may wait for the disk.
    put_thread_pool_queue_capacity: u32 = 10_000; unused "putThreadPoolQueueCapacity";
    /// Pulls that may wait for a thread.
    pull_thread_pool_queue_capacity: u32 = 100_000; unused "pullThreadPoolQueueCapacity";
    /// Lite pulls that may wait for a thread.
    lite_pull_thread_pool_queue_capacity: u32 = 100_000; unused "litePullThreadPoolQueueCapacity";
    /// Acknowledgements that may wait.
    ack_thread_pool_queue_capacity: u32 = 100_000; unused "ackThreadPoolQueueCapacity";
    /// Replies that may wait.
    reply_thread_pool_queue_capacity: u32 = 10_000; unused "replyThreadPoolQueueCapacity";
    /// Look-ups that may wait.
    query_thread_pool_queue_capacity: u32 = 20_000; unused "queryThreadPoolQueueCapacity";
    /// Requests of clients that come and go that may wait.
    client_manager_thread_pool_queue_capacity: u32 = 1_000_000; unused "clientManagerThreadPoolQueueCapacity";
    /// Requests about progress that may wait.
    consumer_manager_thread_pool_queue_capacity: u32 = 1_000_000; unused "consumerManagerThreadPoolQueueCapacity";
    /// Heartbeats that may wait.
    heartbeat_thread_pool_queue_capacity: u32 = 50_000; unused "heartbeatThreadPoolQueueCapacity";
    /// Ends of transactions that may wait.
    end_transaction_pool_queue_capacity: u32 = 100_000; unused "endTransactionPoolQueueCapacity";
    /// Admin requests that may wait.
    admin_broker_thread_pool_queue_capacity: u32 = 10_000; unused "adminBrokerThreadPoolQueueCapacity";
    /// Questions for queues that may wait.
    load_balance_thread_pool_queue_capacity: u32 = 100_000; unused "loadBalanceThreadPoolQueueCapacity";
}
    } };
}
