//! How replicas of a broker stand to each other.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::BrokerMemberGroup;

/// Answer to code 907: the state of replication as one broker sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HARuntimeInfo {
    /// Its connection to its master, if it is a slave.
    pub ha_client_runtime_info: HAClientRuntimeInfo,
    /// Its slaves, if it is a master.
    pub ha_connection_info: Vec<HAConnectionRuntimeInfo>,
    /// How many slaves have kept up.
    pub in_sync_slave_nums: i32,
    /// Whether it is a master.
    pub master: bool,
    /// End of the master's log.
    pub master_commit_log_max_offset: i64,
}

/// A slave's connection to its master.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HAClientRuntimeInfo {
    /// When something was read from it, ms since the epoch.
    pub last_read_timestamp: i64,
    /// When something was written to it, ms since the epoch.
    pub last_write_timestamp: i64,
    /// Replication address of the master.
    pub master_addr: Option<String>,
    /// Up to where the master has flushed.
    pub master_flush_offset: i64,
    /// End of the slave's log.
    pub max_offset: i64,
    /// Bytes per second.
    pub transferred_byte_in_second: i64,
}

/// A master's connection to one of its slaves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HAConnectionRuntimeInfo {
    /// Address of the slave.
    pub addr: Option<String>,
    /// By how many bytes it lags.
    pub diff: i64,
    /// Whether it has kept up.
    pub in_sync: bool,
    /// Up to where it has acknowledged.
    pub slave_ack_offset: i64,
    /// From where the transfer began.
    pub transfer_from_where: i64,
    /// Bytes per second.
    pub transferred_byte_in_second: i64,
}

/// Answer to code 1007: the epochs of a broker under a controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EpochEntryCache {
    /// Id of the broker in its set.
    pub broker_id: i64,
    /// Name of the set.
    pub broker_name: String,
    /// The cluster.
    pub cluster_name: String,
    /// The epochs, oldest first.
    pub epoch_list: Vec<EpochEntry>,
    /// End of the log.
    pub max_offset: i64,
}

/// Which part of the log was written under one master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EpochEntry {
    /// First offset behind it; `i64::MAX` while the epoch lasts.
    pub end_offset: i64,
    /// Number of the epoch.
    pub epoch: i32,
    /// Its first offset.
    pub start_offset: i64,
}

impl Default for EpochEntry {
    fn default() -> Self {
        EpochEntry { end_offset: i64::MAX, epoch: 0, start_offset: 0 }
    }
}

/// The replicas of a set that have kept up: body of codes 1001 and 1008, answer to codes 1001, 1003 and 1004.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncStateSet {
    /// Their ids.
    pub sync_state_set: BTreeSet<i64>,
    /// Rises with every change of the set.
    pub sync_state_set_epoch: i32,
}

/// Answer to code 1002.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ElectMasterResponseBody {
    /// The set, if a master was elected.
    pub broker_member_group: Option<BrokerMemberGroup>,
    /// Ids of the replicas that have kept up.
    pub sync_state_set: BTreeSet<i64>,
}

/// Answer to code 1006.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerReplicasInfo {
    /// By name of the broker set.
    pub replicas_info_table: BTreeMap<String, ReplicasInfo>,
}

/// The replicas of one broker set as the controller knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicasInfo {
    /// Those that have kept up.
    pub in_sync_replicas: Vec<ReplicaIdentity>,
    /// Address of the master, if there is one.
    pub master_address: Option<String>,
    /// Id of the master, if there is one.
    pub master_broker_id: Option<i64>,
    /// Rises with every election.
    pub master_epoch: i32,
    /// Those that lag.
    pub not_in_sync_replicas: Vec<ReplicaIdentity>,
    /// Rises with every change of the in-sync set.
    pub sync_state_set_epoch: i32,
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaIdentity {
    /// Whether the controller hears its heartbeats.
    pub alive: bool,
    /// Its address.
    pub broker_address: String,
    /// Its id.
    pub broker_id: i64,
    /// Name of the set.
    pub broker_name: String,
}

#[cfg(test)]
mod tests {
    use super::super::sample::assert_sample;
    use super::*;

    #[test]
    fn ha_runtime_info() {
        let info = HARuntimeInfo {
            ha_connection_info: vec![HAConnectionRuntimeInfo::default()],
            ..HARuntimeInfo::default()
        };
        assert_sample(
            &info,
            r#"{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[{"diff":0,"inSync":false,"slaveAckOffset":0,"transferFromWhere":0,"transferredByteInSecond":0}],"inSyncSlaveNums":0,"master":false,"masterCommitLogMaxOffset":0}"#,
        );
    }

    #[test]
    fn epochs() {
        let cache = EpochEntryCache {
            broker_id: 1,
            broker_name: "b0".to_owned(),
            cluster_name: "c".to_owned(),
            epoch_list: vec![EpochEntry { end_offset: 100, epoch: 1, start_offset: 0 }],
            max_offset: 100,
        };
        assert_sample(
            &cache,
            r#"{"brokerId":1,"brokerName":"b0","clusterName":"c","epochList":[{"endOffset":100,"epoch":1,"startOffset":0}],"maxOffset":100}"#,
        );
        assert_sample(
            &EpochEntry::default(),
            r#"{"endOffset":9223372036854775807,"epoch":0,"startOffset":0}"#,
        );
    }

    #[test]
    fn of_the_controller() {
        let in_sync = SyncStateSet { sync_state_set: BTreeSet::from([1, 2]), sync_state_set_epoch: 3 };
        assert_sample(&in_sync, r#"{"syncStateSet":[1,2],"syncStateSetEpoch":3}"#);
        let elected = ElectMasterResponseBody {
            broker_member_group: Some(BrokerMemberGroup {
                broker_addrs: BTreeMap::from([(0, "1.1.1.1:10911".to_owned())]),
                broker_name: "b0".to_owned(),
                cluster: "c".to_owned(),
            }),
            sync_state_set: BTreeSet::from([1]),
        };
        assert_sample(
            &elected,
            r#"{"brokerMemberGroup":{"brokerAddrs":{0:"1.1.1.1:10911"},"brokerName":"b0","cluster":"c"},"syncStateSet":[1]}"#,
        );
        let replica = ReplicaIdentity {
            alive: true,
            broker_address: "1.1.1.1:10911".to_owned(),
            broker_id: 1,
            broker_name: "b0".to_owned(),
        };
        let replicas = ReplicasInfo {
            in_sync_replicas: vec![replica],
            master_address: Some("1.1.1.1:10911".to_owned()),
            master_broker_id: Some(1),
            master_epoch: 2,
            not_in_sync_replicas: Vec::new(),
            sync_state_set_epoch: 3,
        };
        assert_sample(
            &BrokerReplicasInfo { replicas_info_table: BTreeMap::from([("b0".to_owned(), replicas)]) },
            r#"{"replicasInfoTable":{"b0":{"inSyncReplicas":[{"alive":true,"brokerAddress":"1.1.1.1:10911","brokerId":1,"brokerName":"b0"}],"masterAddress":"1.1.1.1:10911","masterBrokerId":1,"masterEpoch":2,"notInSyncReplicas":[],"syncStateSetEpoch":3}}}"#,
        );
    }
}
