//! Bodies of requests and answers that are JSON (`docs/spec/01-remoting.md` 5.3), and the files under `config/` that
//! have the same shapes (`docs/spec/02-store.md` 3).
//!
//! Structs bear the names of their Java classes, members those of Java's fields in snake case. Their order is the
//! alphabetical one of the Java names, because that is how they are written. What is absent in a text has the default
//! of the Java class. Write them with [`crate::json::to_vec`] unless the struct says otherwise, read them with
//! [`crate::json::from_slice`].
//!
//! One file per theme; read first: [`TopicConfig`], [`MessageQueue`], [`DataVersion`], which the others are made of.

mod assignment;
mod auth;
mod connection;
mod data_version;
mod group;
mod heartbeat;
mod inspection;
mod kv;
mod message_queue;
mod metrics;
mod offsets;
mod pop;
mod registration;
mod replication;
mod route;
mod running_info;
mod static_topic;
mod stats;
mod subscription;
mod topic;

#[cfg(test)]
mod sample;

pub use assignment::{
    LockBatchRequestBody, LockBatchResponseBody, MessageQueueAssignment, MessageRequestMode,
    MessageRequestModeSerializeWrapper, QueryAssignmentRequestBody, QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody, UnlockBatchRequestBody,
};
pub use auth::{AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo};
pub use connection::{
    Connection, ConsumerConnection, GetConsumerListByGroupResponseBody, ProducerConnection, ProducerInfo,
    ProducerTableInfo,
};
pub use data_version::DataVersion;
pub use group::{
    CustomizedRetryPolicy, ExponentialRetryPolicy, GroupForbidden, GroupList, GroupRetryPolicy,
    GroupRetryPolicyType, SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupWrapper,
};
pub use heartbeat::{ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, MessageModel, ProducerData};
pub use inspection::{CheckRocksdbCqWriteResult, ConsumeQueueData, QueryConsumeQueueResponseBody};
pub use kv::{KVConfigSerializeWrapper, KVTable};
pub use message_queue::MessageQueue;
pub use metrics::{Metric, TimerMetricsSerializeWrapper, TransactionMetricsSerializeWrapper};
pub use offsets::{
    ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper, MessageQueueForC, OffsetMovedEvent,
    QueryCorrectionOffsetBody, ResetOffsetBody, ResetOffsetBodyForC,
};
pub use pop::{BatchAck, BatchAckMessageRequestBody};
pub use registration::{INFLATED_MAX, RegisterBrokerBody, RegistrationError};
pub use replication::{
    BrokerReplicasInfo, ElectMasterResponseBody, EpochEntry, EpochEntryCache, HAClientRuntimeInfo,
    HAConnectionRuntimeInfo, HARuntimeInfo, ReplicaIdentity, ReplicasInfo, SyncStateSet,
};
pub use route::{
    BrokerData, BrokerMemberGroup, ClusterInfo, GetBrokerMemberGroupResponseBody, QueueData, TopicRouteData,
};
pub use running_info::{
    CMResult, ConsumeMessageDirectlyResult, ConsumeStatus, ConsumerRunningInfo, GetConsumerStatusBody,
    PopProcessQueueInfo, ProcessQueueInfo,
};
pub use static_topic::{
    LogicQueueMappingItem, SCOPE_GLOBAL, TopicConfigAndMappingSerializeWrapper, TopicQueueMappingDetail,
    TopicQueueMappingInfo, TopicQueueMappingSerializeWrapper,
};
pub use stats::{
    BrokerStatsData, BrokerStatsItem, ConsumeStats, ConsumeStatsList, OffsetWrapper,
    QueryConsumeTimeSpanBody, QueueTimeSpan, TopicOffset, TopicStatsTable,
};
pub use subscription::{
    CheckClientRequestBody, EXPRESSION_TYPE_SQL92, EXPRESSION_TYPE_TAG, QuerySubscriptionResponseBody,
    SUB_ALL, SimpleSubscriptionData, SubscriptionData,
};
pub use topic::{
    CreateTopicListRequestBody, TopicConfig, TopicConfigAndQueueMapping, TopicConfigSerializeWrapper,
    TopicFilterType, TopicList,
};
