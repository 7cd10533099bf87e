//! How far groups are, and moving them elsewhere (`docs/spec/10-admin.md` 2, 8).

use std::collections::BTreeMap;

use ferromq_protocol::body::{
    ConsumeStats, ConsumeStatsList, MessageQueue, OffsetWrapper, QueryConsumeTimeSpanBody, QueueTimeSpan,
    ResetOffsetBody, TopicStatsTable,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::names::retry_topic;

use super::{Admin, NO_TOPIC, Place, at, body};
use crate::error::Error;

/// A broker looks up the store time of a message for each queue of a group.
const CONSUME_STATS_TIMEOUT_FACTOR: u32 = 3;
/// The same for all groups of a broker.
const BROKER_CONSUME_STATS_TIMEOUT_FACTOR: u32 = 10;

/// The time that means the end of a queue.
const END: i64 = -1;

impl Admin {
    /// Where a group is in each queue: of all topics, or of one.
    ///
    /// The brokers asked are those of the group's retry topic, or of `topic` if that has no route.
    ///
    /// # Errors
    /// [`Error::Refused`] with code TOPIC_NOT_EXIST if the group never had a consumer.
    pub async fn consume_stats(&self, group: &str, topic: Option<&str>) -> Result<ConsumeStats, Error> {
        let places = match (self.places_of_topic(&retry_topic(group)).await, topic) {
            (Err(Error::Refused { .. }), Some(topic)) => self.places_of_topic(topic).await?,
            (places, _) => places?,
        };
        let mut all = ConsumeStats::default();
        for place in places {
            let known = self.consume_stats_at(&place, group, topic).await?;
            all.offset_table.extend(known.offset_table);
            all.consume_tps += known.consume_tps;
        }
        Ok(all)
    }

    async fn consume_stats_at(
        &self,
        place: &Place,
        group: &str,
        topic: Option<&str>,
    ) -> Result<ConsumeStats, Error> {
        let to = place.about(topic.unwrap_or(NO_TOPIC));
        let query = RemotingCommand::request(request::GET_CONSUME_STATS)
            .with("consumerGroup", group)
            .with_some("topic", topic);
        let timeout = self.timeout * CONSUME_STATS_TIMEOUT_FACTOR;
        let answer = self.instance().transport.done(to, query, timeout).await?;
        body(to, request::GET_CONSUME_STATS, &answer)
    }

    /// Where all groups of a broker are: those that consume in order, or the others.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn broker_consume_stats(
        &self,
        address: &str,
        in_order: bool,
    ) -> Result<ConsumeStatsList, Error> {
        let to = at(address, NO_TOPIC);
        let query = RemotingCommand::request(request::GET_BROKER_CONSUME_STATS).with("isOrder", in_order);
        let timeout = self.timeout * BROKER_CONSUME_STATS_TIMEOUT_FACTOR;
        let answer = self.instance().transport.done(to, query, timeout).await?;
        body(to, request::GET_BROKER_CONSUME_STATS, &answer)
    }

    /// When the messages of a topic were stored, and those up to which a group has consumed, for each queue.
    ///
    /// # Errors
    /// If a broker of the topic does not answer.
    pub async fn consume_time_span(&self, topic: &str, group: &str) -> Result<Vec<QueueTimeSpan>, Error> {
        let mut spans = Vec::new();
        for place in self.places_of_topic(topic).await? {
            let query = RemotingCommand::request(request::QUERY_CONSUME_TIME_SPAN)
                .with("topic", topic)
                .with("group", group);
            let known: QueryConsumeTimeSpanBody = self.get(place.about(topic), query).await?;
            spans.extend(known.consume_time_span_set);
        }
        Ok(spans)
    }

    /// Lets a group go on at the messages that were stored at a time, ms since the epoch, or later, and returns where that
    /// is. Consumers that are online are told.
    ///
    /// If nobody is online and the broker is an old one, that can only be done by writing the group's offsets here; then
    /// `force` is needed to go forward, too.
    ///
    /// # Errors
    /// [`Error::Refused`] with code SUBSCRIPTION_GROUP_NOT_EXIST if a broker does not know the group.
    pub async fn reset_offset_by_time(
        &self,
        group: &str,
        topic: &str,
        time_ms: i64,
        force: bool,
    ) -> Result<BTreeMap<MessageQueue, i64>, Error> {
        let mut all = BTreeMap::new();
        for place in self.places_of_topic(topic).await? {
            let reset = RemotingCommand::request(request::INVOKE_BROKER_TO_RESET_OFFSET)
                .with("topic", topic)
                .with("group", group)
                .with("queueId", -1)
                .with("offset", -1)
                .with("timestamp", time_ms)
                .with("isForce", force);
            match self.get::<ResetOffsetBody>(place.about(topic), reset).await {
                Ok(done) => all.extend(done.offset_table),
                Err(error) if error.response_code() == Some(response::CONSUMER_NOT_ONLINE) => {
                    all.extend(self.reset_offline(&place, group, topic, time_ms, force).await?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Lets a group go on behind the last message of each queue: what is there now is not consumed.
    ///
    /// # Errors
    /// As [`reset_offset_by_time`](Self::reset_offset_by_time).
    pub async fn skip_accumulated_messages(
        &self,
        group: &str,
        topic: &str,
    ) -> Result<BTreeMap<MessageQueue, i64>, Error> {
        self.reset_offset_by_time(group, topic, END, true).await
    }

    /// Writes the offsets of a group that is not online, at a broker that does not do it by itself.
    async fn reset_offline(
        &self,
        place: &Place,
        group: &str,
        topic: &str,
        time_ms: i64,
        force: bool,
    ) -> Result<BTreeMap<MessageQueue, i64>, Error> {
        let mut known = self.consume_stats_at(place, group, Some(topic)).await?.offset_table;
        known.retain(|queue, _| queue.topic == topic);
        if known.is_empty() {
            // The group was never here: every queue begins at its end.
            let to = place.about(topic);
            let query = RemotingCommand::request(request::GET_TOPIC_STATS_INFO).with("topic", topic);
            let table: TopicStatsTable = self.get(to, query).await?;
            known =
                table.offset_table.into_iter().map(|(queue, end)| (queue, at_end(end.max_offset))).collect();
        }
        let mut done = BTreeMap::new();
        for (queue, offsets) in known {
            let wanted = match time_ms {
                END => self.max_offset(&queue).await?,
                time => self.search_offset(&queue, time).await?,
            };
            let offset = if force { wanted } else { wanted.min(offsets.consumer_offset) };
            self.write_offset(place, group, &queue, offset).await?;
            done.insert(queue, offset);
        }
        Ok(done)
    }

    /// Lets a group go on at one offset of one queue.
    ///
    /// # Errors
    /// If the broker refuses: a group that it does not know, an offset that the queue does not have.
    pub async fn reset_queue_offset(
        &self,
        group: &str,
        queue: &MessageQueue,
        offset: i64,
    ) -> Result<(), Error> {
        let (broker, address) = self.instance().master_of(queue).await?;
        let place = Place { broker, address };
        // The first is for brokers that leave resetting to their consumers, and the second for all others.
        self.write_offset(&place, group, queue, offset).await?;
        let reset = RemotingCommand::request(request::INVOKE_BROKER_TO_RESET_OFFSET)
            .with("topic", &queue.topic)
            .with("group", group)
            .with("queueId", queue.queue_id)
            .with("offset", offset)
            .with("timestamp", 0)
            .with("isForce", false);
        match self.done(place.about(&queue.topic), reset).await {
            Err(error) if error.response_code() != Some(response::CONSUMER_NOT_ONLINE) => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives a group the progress that another one has in a topic. Neither should be online: consumers write their own.
    ///
    /// # Errors
    /// [`Error::Refused`] with code TOPIC_NOT_EXIST if `from` never had a consumer.
    pub async fn clone_group_offset(&self, from: &str, to: &str, topic: &str) -> Result<(), Error> {
        let places = self.places_of_topic(topic).await?;
        let stats = self.consume_stats(from, Some(topic)).await?;
        for (queue, offsets) in stats.offset_table.iter().filter(|(queue, _)| queue.topic == topic) {
            let place = places.iter().find(|place| place.broker == queue.broker_name);
            let place = place.ok_or_else(|| Error::BrokerNotExist {
                broker: queue.broker_name.clone(),
                topic: topic.to_owned(),
            })?;
            self.write_offset(place, to, queue, offsets.consumer_offset).await?;
        }
        Ok(())
    }

    async fn write_offset(
        &self,
        place: &Place,
        group: &str,
        queue: &MessageQueue,
        offset: i64,
    ) -> Result<(), Error> {
        let update = RemotingCommand::request(request::UPDATE_CONSUMER_OFFSET)
            .with("consumerGroup", group)
            .with("topic", &queue.topic)
            .with("queueId", queue.queue_id)
            .with("commitOffset", offset);
        self.done(place.about(&queue.topic), update).await.map(drop)
    }
}

fn at_end(offset: i64) -> OffsetWrapper {
    OffsetWrapper { broker_offset: offset, consumer_offset: offset, ..OffsetWrapper::default() }
}
