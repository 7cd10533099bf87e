//! Consumer groups as brokers are configured for them (`docs/spec/10-admin.md` 6).

use std::collections::BTreeSet;

use ferromq_protocol::body::{
    GroupForbidden, MessageRequestMode, SetMessageRequestModeRequestBody, SubscriptionGroupConfig,
    SubscriptionGroupList, SubscriptionGroupWrapper, TopicList,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::{dlq_topic, retry_topic};

use super::{Admin, Brokers, NO_TOPIC, at};
use crate::error::Error;

impl Admin {
    /// Creates a consumer group, or replaces its configuration.
    ///
    /// As with topics, the attributes of `config` are changes: `+name` sets one, `-name` removes one.
    ///
    /// # Errors
    /// A broker refuses unknown attributes.
    pub async fn update_group(
        &self,
        brokers: &Brokers,
        config: &SubscriptionGroupConfig,
    ) -> Result<(), Error> {
        let update = RemotingCommand::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
            .with_body(json::to_vec(config));
        self.done_at(brokers, NO_TOPIC, update).await
    }

    /// Creates or changes many groups at once, as [`update_group`](Self::update_group) does one.
    ///
    /// # Errors
    /// A broker refuses unknown attributes.
    pub async fn update_groups(
        &self,
        brokers: &Brokers,
        configs: &[SubscriptionGroupConfig],
    ) -> Result<(), Error> {
        let list = SubscriptionGroupList { group_config_list: configs.to_vec() };
        let update = RemotingCommand::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
            .with_body(json::to_vec(&list));
        self.done_at(brokers, NO_TOPIC, update).await
    }

    /// Deletes a group at the masters of a cluster, with its retry and dead letter topics there, and its progress if
    /// `clean_offset`. A group that is not there is deleted with success.
    ///
    /// # Errors
    /// If a broker or a name server does not answer.
    pub async fn delete_group(&self, cluster: &str, group: &str, clean_offset: bool) -> Result<(), Error> {
        self.delete_group_in_brokers(&Brokers::masters_of(cluster), group, clean_offset).await?;
        self.delete_topic(cluster, &retry_topic(group)).await?;
        self.delete_topic(cluster, &dlq_topic(group)).await
    }

    /// Deletes the configuration of a group at brokers, and its progress if `clean_offset`.
    ///
    /// # Errors
    /// If a broker does not answer.
    pub async fn delete_group_in_brokers(
        &self,
        brokers: &Brokers,
        group: &str,
        clean_offset: bool,
    ) -> Result<(), Error> {
        let delete = RemotingCommand::request(request::DELETE_SUBSCRIPTIONGROUP)
            .with("groupName", group)
            .with("cleanOffset", clean_offset);
        self.done_at(brokers, NO_TOPIC, delete).await
    }

    /// The configuration that one broker has of a group.
    ///
    /// # Errors
    /// [`Error::Refused`] if it has none, with code SUBSCRIPTION_GROUP_NOT_EXIST.
    pub async fn group_config(&self, address: &str, group: &str) -> Result<SubscriptionGroupConfig, Error> {
        let query = RemotingCommand::request(request::GET_SUBSCRIPTIONGROUP_CONFIG).with("group", group);
        self.get(at(address, NO_TOPIC), query).await
    }

    /// The configurations of all groups of a broker.
    ///
    /// # Errors
    /// If the broker does not answer, or if its groups change whenever they are read and they fill several answers.
    pub async fn group_configs(&self, address: &str) -> Result<SubscriptionGroupWrapper, Error> {
        self.whole_table(address).await
    }

    /// The topics in which a group has offsets, as the brokers of its retry topic know them.
    ///
    /// # Errors
    /// [`Error::Refused`] with code TOPIC_NOT_EXIST if it never had a consumer.
    pub async fn topics_of_group(&self, group: &str) -> Result<BTreeSet<String>, Error> {
        let mut topics = BTreeSet::new();
        for place in self.places_of_topic(&retry_topic(group)).await? {
            let query = RemotingCommand::request(request::QUERY_TOPICS_BY_CONSUMER).with("group", group);
            let list: TopicList = self.get(place.about(NO_TOPIC), query).await?;
            topics.extend(list.topic_list);
        }
        Ok(topics)
    }

    /// Lets a group's consumers pull or pop from a topic. With POP, `pop_share_queue_num` is how many queues beyond its own
    /// ones each consumer may use, 0 for all.
    ///
    /// # Errors
    /// If a broker does not answer.
    pub async fn set_consume_mode(
        &self,
        brokers: &Brokers,
        topic: &str,
        group: &str,
        mode: MessageRequestMode,
        pop_share_queue_num: i32,
    ) -> Result<(), Error> {
        let body = SetMessageRequestModeRequestBody {
            consumer_group: group.to_owned(),
            mode,
            pop_share_queue_num,
            topic: topic.to_owned(),
        };
        let set = RemotingCommand::request(request::SET_MESSAGE_REQUEST_MODE).with_body(json::to_vec(&body));
        self.done_at(brokers, topic, set).await
    }

    /// Whether a group may read a topic at a broker; changes it first if `readable` is given.
    ///
    /// # Errors
    /// If the broker does not know the group.
    pub async fn group_forbidden(
        &self,
        address: &str,
        group: &str,
        topic: &str,
        readable: Option<bool>,
    ) -> Result<GroupForbidden, Error> {
        let query = RemotingCommand::request(request::UPDATE_AND_GET_GROUP_FORBIDDEN)
            .with("group", group)
            .with("topic", topic)
            .with_some("readable", readable);
        self.get(at(address, topic), query).await
    }
}
