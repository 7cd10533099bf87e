//! Finding messages, and having them consumed (`docs/spec/10-admin.md` 7).

use std::ops::Range;

use ferromq_protocol::body::{ConsumeMessageDirectlyResult, MessageQueue, SUB_ALL};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::id::parse_offset_id;
use tokio::task::JoinSet;

use super::{Admin, at};
use crate::error::{Destination, Error};
use crate::message::{MessageExt, decode_stored};

/// The group in which administrators read messages; it has no offsets.
const TOOLS_CONSUMER: &str = "TOOLS_CONSUMER";

/// A key is searched in files of an index.
const QUERY_TIMEOUT_FACTOR: u32 = 3;

/// More messages can't have one unique id.
const UNIQUE_MAX: i32 = 32;

/// Most bytes that a pulled message may have; a broker gives one message in any case.
const PULL_BYTES_MAX: i32 = i32::MAX;

impl Admin {
    /// The messages of a topic that have a key, at most `max` of each broker, stored in a span of time, ms since the epoch;
    /// oldest first.
    ///
    /// # Errors
    /// If a broker of the topic does not answer, or none has it.
    pub async fn query_message_by_key(
        &self,
        topic: &str,
        key: &str,
        max: i32,
        stored: Range<i64>,
    ) -> Result<Vec<MessageExt>, Error> {
        let mut found = self.query_message(topic, key, max, stored, false).await?;
        // The index knows hashes of keys only.
        found.retain(|message| message.keys().any(|other| other == key));
        Ok(found)
    }

    /// The messages of a topic that have a unique id ([`SendResult::msg_id`](crate::SendResult::msg_id)); more than one if
    /// a producer has sent a message again that had been stored. Oldest first.
    ///
    /// # Errors
    /// If a broker of the topic does not answer, or none has it.
    pub async fn query_message_by_unique_key(
        &self,
        topic: &str,
        msg_id: &str,
    ) -> Result<Vec<MessageExt>, Error> {
        let mut found = self.query_message(topic, msg_id, UNIQUE_MAX, 0..i64::MAX, true).await?;
        found.retain(|message| message.msg_id() == msg_id);
        Ok(found)
    }

    async fn query_message(
        &self,
        topic: &str,
        key: &str,
        max: i32,
        stored: Range<i64>,
        is_unique: bool,
    ) -> Result<Vec<MessageExt>, Error> {
        let query = RemotingCommand::request(request::QUERY_MESSAGE)
            .with("topic", topic)
            .with("key", key)
            .with("maxNum", max)
            .with("beginTimestamp", stored.start)
            .with("endTimestamp", stored.end)
            .with("_UNIQUE_KEY_QUERY", is_unique);
        let timeout = self.timeout * QUERY_TIMEOUT_FACTOR;
        let mut queries = JoinSet::new();
        for place in self.places_of_topic(topic).await? {
            let (instance, query, topic) = (self.instance().clone(), query.clone(), topic.to_owned());
            queries.spawn(async move {
                let to = place.about(&topic);
                let answer = instance.transport.call(to, query, timeout).await?;
                match answer.code {
                    response::SUCCESS => Ok(decode_stored(&answer.body, &place.broker)),
                    response::QUERY_NOT_FOUND => Ok(Vec::new()),
                    _ => Err(to.refused("QUERY_MESSAGE", &answer)),
                }
            });
        }
        let mut found = Vec::new();
        while let Some(messages) = queries.join_next().await {
            let stopped = |_| Error::Closed { what: "the Tokio runtime".to_owned() };
            found.extend(messages.map_err(stopped)??);
        }
        found.sort_by_key(|message| message.store_timestamp);
        Ok(found)
    }

    /// The message with an offset id ([`MessageExt::offset_msg_id`]), which names a broker's address and a place in its
    /// log.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the id is not one, [`Error::Refused`] if no message of the topic is there.
    pub async fn view_message(&self, topic: &str, offset_msg_id: &str) -> Result<MessageExt, Error> {
        let (address, offset) = parse_offset_id(offset_msg_id).ok_or_else(|| {
            Error::invalid(format!("message id `{offset_msg_id}`"), "it is not the offset id of a message")
        })?;
        let address = address.to_string();
        let to = at(&address, topic);
        let query =
            RemotingCommand::request(request::VIEW_MESSAGE_BY_ID).with("topic", topic).with("offset", offset);
        let answer = self.done(to, query).await?;
        let broker = self.broker_name(topic, &address).await;
        let message = decode_stored(&answer.body, &broker).into_iter().next();
        message.ok_or_else(|| to.malformed("VIEW_MESSAGE_BY_ID", "it holds no message"))
    }

    /// Name of the broker of a topic with this address; empty if name servers don't know it (any more).
    async fn broker_name(&self, topic: &str, address: &str) -> String {
        let route = self.topic_route(topic).await.unwrap_or_default();
        let mut brokers = route.broker_datas.into_iter();
        let found = brokers.find(|broker| broker.broker_addrs.values().any(|other| other == address));
        found.map_or_else(String::new, |broker| broker.broker_name)
    }

    /// The message of a queue with this offset; `None` if there is none (any more).
    ///
    /// # Errors
    /// If no broker that has the queue answers.
    pub async fn message_at(&self, queue: &MessageQueue, offset: i64) -> Result<Option<MessageExt>, Error> {
        let (broker, address) = self.instance().master_of(queue).await?;
        let to = Destination { broker: &broker, address: &address, topic: &queue.topic };
        let pull = RemotingCommand::request(request::PULL_MESSAGE)
            .with("consumerGroup", TOOLS_CONSUMER)
            .with("topic", &queue.topic)
            .with("queueId", queue.queue_id)
            .with("queueOffset", offset)
            .with("maxMsgNums", 1)
            .with("sysFlag", ferromq_protocol::pull::FLAG_SUBSCRIPTION)
            .with("commitOffset", 0)
            .with("suspendTimeoutMillis", 0)
            .with("subscription", SUB_ALL)
            .with("subVersion", 0)
            .with("maxMsgBytes", PULL_BYTES_MAX)
            .with("expressionType", ferromq_protocol::body::EXPRESSION_TYPE_TAG)
            .with("bname", &queue.broker_name);
        let answer = self.instance().transport.call(to, pull, self.timeout).await?;
        match answer.code {
            response::SUCCESS => {
                let messages = decode_stored(&answer.body, &queue.broker_name).into_iter();
                Ok(messages.into_iter().find(|message| message.queue_offset == offset))
            }
            response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED => {
                Ok(None)
            }
            _ => Err(to.refused("PULL_MESSAGE", &answer)),
        }
    }

    /// Has one consumer of a group consume one message, whatever the group's progress is. The broker that stores the message
    /// hands it over.
    ///
    /// # Errors
    /// [`Error::Refused`] if the client is not connected to that broker, or not a push consumer.
    pub async fn consume_message_directly(
        &self,
        group: &str,
        client_id: &str,
        message: &MessageExt,
    ) -> Result<ConsumeMessageDirectlyResult, Error> {
        let consume = RemotingCommand::request(request::CONSUME_MESSAGE_DIRECTLY)
            .with("consumerGroup", group)
            .with("clientId", client_id)
            .with("msgId", message.offset_msg_id())
            .with("topic", message.topic());
        self.get(at(&message.store_host.to_string(), message.topic()), consume).await
    }

    /// Has the broker ask anew what became of a transaction whose half message it has given up. The id is the offset id of
    /// the half message.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the id is not one, [`Error::Refused`] if no such message is there.
    pub async fn resume_check_half_message(&self, topic: &str, offset_msg_id: &str) -> Result<(), Error> {
        let (address, _) = parse_offset_id(offset_msg_id).ok_or_else(|| {
            Error::invalid(format!("message id `{offset_msg_id}`"), "it is not the offset id of a message")
        })?;
        let resume = RemotingCommand::request(request::RESUME_CHECK_HALF_MESSAGE)
            .with("topic", topic)
            .with("msgId", offset_msg_id);
        self.done(at(&address.to_string(), topic), resume).await.map(drop)
    }
}
