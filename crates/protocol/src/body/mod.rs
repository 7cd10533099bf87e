//! Bodies of requests and answers that are JSON (`docs/spec/01-remoting.md` 5.3), and the files under `config/` that
//! have the same shapes (`docs/spec/02-store.md` 3).
//!
//! Structs bear the names of their Java classes, members those of Java's fields in snake case. Their order is the
//! alphabetical one of the Java names, because that is how they are written. What is absent in a text has the default
//! of the Java class. Write them with [`crate::json::to_vec`] unless the struct says otherwise, read them with
//! [`crate::json::from_slice`].
//!
//! One file per theme; read first: [`TopicConfig`], [`MessageQueue`], [`DataVersion`], which the others are made of.

mod data_version;
mod group;
mod heartbeat;
mod kv;
mod message_queue;
mod registration;
mod route;
mod static_topic;
mod subscription;
mod topic;

#[cfg(test)]
mod sample;

pub use data_version::DataVersion;
pub use group::{
    CustomizedRetryPolicy, ExponentialRetryPolicy, GroupForbidden, GroupList, GroupRetryPolicy,
    GroupRetryPolicyType, SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupWrapper,
};
pub use heartbeat::{ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, MessageModel, ProducerData};
pub use kv::{KVConfigSerializeWrapper, KVTable};
pub use message_queue::MessageQueue;
pub use registration::{INFLATED_MAX, RegisterBrokerBody, RegistrationError};
pub use route::{
    BrokerData, BrokerMemberGroup, ClusterInfo, GetBrokerMemberGroupResponseBody, QueueData, TopicRouteData,
};
pub use static_topic::{
    LogicQueueMappingItem, SCOPE_GLOBAL, TopicConfigAndMappingSerializeWrapper, TopicQueueMappingDetail,
    TopicQueueMappingInfo, TopicQueueMappingSerializeWrapper,
};
pub use subscription::{
    CheckClientRequestBody, EXPRESSION_TYPE_SQL92, EXPRESSION_TYPE_TAG, QuerySubscriptionResponseBody,
    SUB_ALL, SimpleSubscriptionData, SubscriptionData,
};
pub use topic::{
    CreateTopicListRequestBody, TopicConfig, TopicConfigAndQueueMapping, TopicConfigSerializeWrapper,
    TopicFilterType, TopicList,
};
