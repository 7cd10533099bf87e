//! Replication, controller, DLedger.

macro_rules! replication_settings {
    ([$next:ident $($rest:ident)*] $($done:tt)*) => { $next! { [$($rest)*] $($done)*

"Replication" {
    /// `ASYNC_MASTER`, `SYNC_MASTER` or `SLAVE`.
    broker_role: BrokerRole = BrokerRole::AsyncMaster; restart "brokerRole" [important];
    /// Port for slaves; 0 is `listenPort` plus 1.
    ha_listen_port: u32 = 0; restart "haListenPort" in 0..=65535;
    /// Where a slave finds its master's HA port; unless set, name servers tell. Topics, groups and progress need a name server
    /// all the same.
    ha_master_address: Option<String> = None; restart "haMasterAddress" [important];
    /// Milliseconds without anything else after which master and slave send each other a heartbeat.
    ha_send_heartbeat_interval: u32 = 5000; live "haSendHeartbeatInterval";
    /// Milliseconds after which master and slave close a connection over which nothing came.
    ha_housekeeping_interval: u32 = 20_000; live "haHousekeepingInterval";
    /// Most bytes of the log in one frame to a slave.
    ha_transfer_batch_size: u32 = 32_768; live "haTransferBatchSize" in 1..=4_194_292;
    /// A slave that lacks so many bytes of the log is not in sync.
    ha_max_gap_not_in_sync: u32 = 268_435_456; live "haMaxGapNotInSync";
    /// Slaves that one address may stand for when replicas are counted: the HA protocol does not say who connects. More connections
    /// than that are taken for old ones of the same slave, and closed. Not a setting of RocketMQ's.
    ha_slaves_per_host: u32 = 1; live "haSlavesPerHost" in 1..=100;
    /// An empty slave copies the whole log of its master. RocketMQ's slaves begin with the master's last file, as this one does if
    /// this is `false`. Not a setting of RocketMQ's.
    ha_copy_whole_log: bool = true; restart "haCopyWholeLog";
    /// Under a controller: a slave that has not had everything for so many milliseconds leaves the SyncStateSet.
    ha_max_time_slave_not_catchup: u64 = 15_000; live "haMaxTimeSlaveNotCatchup";
    /// Send each slave no more than `maxHaTransferByteInSecond`.
    ha_flow_control_enable: bool = false; live "haFlowControlEnable";
    /// Most bytes that a slave is sent in a second; see `haFlowControlEnable`.
    max_ha_transfer_byte_in_second: u64 = 104_857_600; live "maxHaTransferByteInSecond";
    /// Milliseconds that a send to a `SYNC_MASTER` waits for replicas.
    slave_timeout: u32 = 3000; live "slaveTimeout";
    /// Members of the broker set.
    total_replicas: u32 = 1; live "totalReplicas";
    /// With `SYNC_MASTER`: replicas that must have a message before its send is answered, the master included. 1: one slave, if
    /// there is one, as in RocketMQ 4.
    in_sync_replicas: u32 = 1; live "inSyncReplicas";
    /// The least that `enableAutoInSyncReplicas` lowers `inSyncReplicas` to. Under a controller: sends are refused while the SyncStateSet
    /// has less members.
    min_in_sync_replicas: u32 = 1; live "minInSyncReplicas";
    /// Under a controller every member of the SyncStateSet must have a message, whatever this says: each may become master.
    all_ack_in_sync_state_set: bool = false; unused "allAckInSyncStateSet";
    /// With `enableSlaveActingMaster`: lower `inSyncReplicas` when replicas are gone. Without this, sends are refused then.
    enable_auto_in_sync_replicas: bool = false; live "enableAutoInSyncReplicas";
    /// Aid for an upgrade.
    sync_master_flush_offset_when_startup: bool = false; unused "syncMasterFlushOffsetWhenStartup";
    /// Under a controller: an empty slave begins at the master's last file.
    sync_from_last_file: bool = false; live "syncFromLastFile";
    /// Under a controller: never a member of the SyncStateSet.
    async_learner: bool = false; live "asyncLearner";
    /// Without effect in Apache's broker as well.
    max_slave_resend_length: u64 = 268_435_456; unused "maxSlaveResendLength";
    /// A slave acts for a master that is gone: name servers with `supportActingMaster` show it as the master, for reading. For every
    /// broker of the set.
    enable_slave_acting_master: bool = false; restart "enableSlaveActingMaster";
    /// It sends delayed messages that are due to other broker sets then.
    enable_remote_escape: bool = false; live "enableRemoteEscape";
    /// Register before the start is complete.
    skip_pre_online: bool = false; unused "skipPreOnline";
    /// Milliseconds between two looks at the broker set.
    sync_broker_member_group_period: u64 = 1000; live "syncBrokerMemberGroupPeriod";
    /// Milliseconds between two heartbeats to name servers and controllers.
    broker_heartbeat_interval: u64 = 1000; live "brokerHeartbeatInterval";
    /// Milliseconds that such a heartbeat may take.
    send_heartbeat_timeout_millis: u32 = 1000; unused "sendHeartbeatTimeoutMillis";
    /// Milliseconds without heartbeat after which the broker is gone.
    broker_not_active_timeout_millis: u64 = 10_000; live "brokerNotActiveTimeoutMillis";
}

"Controller" {
    /// A controller elects the master.
    enable_controller_mode: bool = false; restart "enableControllerMode";
    /// Controllers, `host:port` separated by `;`.
    controller_addr: String = "".to_owned(); restart "controllerAddr";
    /// `controllerAddr` is one `domain:port`.
    fetch_controller_addr_by_dns_lookup: bool = false; unused "fetchControllerAddrByDnsLookup";
    /// Milliseconds between two looks at the broker's role.
    sync_broker_metadata_period: u64 = 5000; live "syncBrokerMetadataPeriod";
    /// Milliseconds between two checks of who is in sync.
    check_sync_state_set_period: u64 = 5000; live "checkSyncStateSetPeriod";
    /// Milliseconds between two looks for the leading controller.
    sync_controller_metadata_period: u64 = 10_000; unused "syncControllerMetadataPeriod";
    /// Milliseconds without heartbeat after which the controller takes the broker for dead.
    controller_heart_beat_timeout_mills: u64 = 10_000; live "controllerHeartBeatTimeoutMills";
    /// The lowest number becomes master first.
    broker_election_priority: u32 = 2_147_483_647; live "brokerElectionPriority";
}

"DLedger" {
    /// The broker set is a Raft group: it elects its master itself, and acknowledges what a majority has.
    enable_d_leger_commit_log: bool = false; restart "enableDLegerCommitLog" [important];
    /// Its name; `brokerName` unless set.
    d_leger_group: Option<String> = None; restart "dLegerGroup";
    /// Its members when it begins, `n0-host:port;n1-host:port`. Changed at the leader while it runs, members are added and removed.
    d_leger_peers: Option<String> = None; live "dLegerPeers" [important];
    /// Which member this is: one letter and a number.
    d_leger_self_id: Option<String> = None; restart "dLegerSelfId" [important];
    /// Members that lead when they can, separated by `;`.
    preferred_leader_id: Option<String> = None; restart "preferredLeaderId";
    /// Send entries in batches. They always are.
    enable_batch_push: bool = false; unused "enableBatchPush";
}
    } };
}
