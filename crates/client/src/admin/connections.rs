//! Clients that are connected, and what consumers say of themselves (`docs/spec/10-admin.md` 6).

use std::collections::BTreeMap;

use ferromq_protocol::body::{
    ConsumerConnection, ConsumerRunningInfo, GetConsumerStatusBody, MessageQueue, ProducerConnection,
    ProducerTableInfo, QuerySubscriptionResponseBody, SubscriptionData,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::names::retry_topic;

use super::{Admin, NO_TOPIC, Place, at};
use crate::error::Error;

impl Admin {
    /// The consumers of a group and their subscriptions, as all brokers of its retry topic know them together.
    ///
    /// # Errors
    /// [`Error::Refused`] with code CONSUMER_NOT_ONLINE if there is none, and with TOPIC_NOT_EXIST if there never was one.
    pub async fn consumer_connection(&self, group: &str) -> Result<ConsumerConnection, Error> {
        let (mut all, mut offline): (Option<ConsumerConnection>, _) = (None, None);
        for place in self.places_of_topic(&retry_topic(group)).await? {
            match self.consumer_connection_at(&place, group).await {
                Ok(known) => match &mut all {
                    Some(all) => {
                        let others = known.connection_set.into_iter();
                        let new = others.filter(|one| {
                            !all.connection_set.iter().any(|other| other.client_id == one.client_id)
                        });
                        let new: Vec<_> = new.collect();
                        all.connection_set.extend(new);
                        for (topic, subscription) in known.subscription_table {
                            all.subscription_table.entry(topic).or_insert(subscription);
                        }
                    }
                    None => all = Some(known),
                },
                Err(error) if error.response_code() == Some(response::CONSUMER_NOT_ONLINE) => {
                    offline = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let nobody = || Error::NoRoute { topic: retry_topic(group) };
        all.ok_or_else(|| offline.unwrap_or_else(nobody))
    }

    async fn consumer_connection_at(&self, place: &Place, group: &str) -> Result<ConsumerConnection, Error> {
        let query =
            RemotingCommand::request(request::GET_CONSUMER_CONNECTION_LIST).with("consumerGroup", group);
        self.get(place.about(NO_TOPIC), query).await
    }

    /// The producers of a group, as all brokers of a topic know them together. Brokers know producers by their heartbeats,
    /// which go to the brokers of the topics that they send to.
    ///
    /// # Errors
    /// [`Error::Refused`] if no broker of the topic knows one.
    pub async fn producer_connection(&self, group: &str, topic: &str) -> Result<ProducerConnection, Error> {
        let (mut all, mut unknown): (Option<ProducerConnection>, _) = (None, None);
        for place in self.places_of_topic(topic).await? {
            let query =
                RemotingCommand::request(request::GET_PRODUCER_CONNECTION_LIST).with("producerGroup", group);
            match self.get::<ProducerConnection>(place.about(topic), query).await {
                Ok(known) => {
                    let all = all.get_or_insert_default();
                    for one in known.connection_set {
                        if !all.connection_set.iter().any(|other| other.client_id == one.client_id) {
                            all.connection_set.push(one);
                        }
                    }
                }
                Err(error @ Error::Refused { .. }) => unknown = Some(error),
                Err(error) => return Err(error),
            }
        }
        let nobody = || Error::NoRoute { topic: topic.to_owned() };
        all.ok_or_else(|| unknown.unwrap_or_else(nobody))
    }

    /// All producers of a broker, by group. Groups that begin with `CLIENT_INNER_PRODUCER` are those of consumers.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn producers(&self, address: &str) -> Result<ProducerTableInfo, Error> {
        self.get(at(address, NO_TOPIC), RemotingCommand::request(request::GET_ALL_PRODUCER_INFO)).await
    }

    /// What a group that is online subscribes to in a topic; `None` if nothing.
    ///
    /// # Errors
    /// If no broker of the topic answers.
    pub async fn subscription_of_group(
        &self,
        group: &str,
        topic: &str,
    ) -> Result<Option<SubscriptionData>, Error> {
        for place in self.places_of_topic(topic).await? {
            let query = RemotingCommand::request(request::QUERY_SUBSCRIPTION_BY_CONSUMER)
                .with("group", group)
                .with("topic", topic);
            let known: QuerySubscriptionResponseBody = self.get(place.about(topic), query).await?;
            if known.subscription_data.is_some() {
                return Ok(known.subscription_data);
            }
        }
        Ok(None)
    }

    /// What a consumer says about itself: settings, queues, speed, and the stacks of its threads if `jstack` and if it has
    /// them. A broker that it is connected to asks it.
    ///
    /// # Errors
    /// [`Error::Refused`] if no broker of the group's retry topic knows the client, or the client does not answer.
    pub async fn consumer_running_info(
        &self,
        group: &str,
        client_id: &str,
        jstack: bool,
    ) -> Result<ConsumerRunningInfo, Error> {
        let query = RemotingCommand::request(request::GET_CONSUMER_RUNNING_INFO)
            .with("consumerGroup", group)
            .with("clientId", client_id)
            .with("jstackEnable", jstack);
        let retry = retry_topic(group);
        let mut refused = Error::NoRoute { topic: retry.clone() };
        for place in self.places_of_topic(&retry).await? {
            match self.get(place.about(NO_TOPIC), query.clone()).await {
                Ok(info) => return Ok(info),
                // Another broker may know it.
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// The offsets of a topic's queues in the memory of a group's consumers, by client id: of all of them, or of one.
    ///
    /// # Errors
    /// If a broker of the topic refuses, as it does if no consumer is online.
    pub async fn consumer_offsets(
        &self,
        topic: &str,
        group: &str,
        client_id: Option<&str>,
    ) -> Result<BTreeMap<String, BTreeMap<MessageQueue, i64>>, Error> {
        let mut all: BTreeMap<String, BTreeMap<MessageQueue, i64>> = BTreeMap::new();
        for place in self.places_of_topic(topic).await? {
            let query = RemotingCommand::request(request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
                .with("topic", topic)
                .with("group", group)
                .with_some("clientAddr", client_id);
            let known: GetConsumerStatusBody = self.get(place.about(topic), query).await?;
            for (client, offsets) in known.consumer_table {
                all.entry(client).or_default().extend(offsets);
            }
        }
        Ok(all)
    }
}
