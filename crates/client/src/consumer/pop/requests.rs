//! The requests of POP (`docs/spec/04-pop-timer.md` 2, 7, 8, 14).

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferromq_protocol::body::{BatchAck, BatchAckMessageRequestBody, MessageQueue, MessageRequestMode};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use tokio::time::Instant;

use super::handle::{MalformedHandle, OffsetLists, Origin, ReceiptHandle, Source};
use crate::consumer::subscriber::{ConsumeFrom, Subscriber};
use crate::consumer::subscription::{accepts, now_ms};
use crate::error::{Destination, Error};
use crate::instance::route::MASTER_ID;
use crate::message::{MessageExt, decode_stored, properties as names};

/// How much longer than the broker may hold it a pop may take.
const POP_GRACE: Duration = Duration::from_secs(10);
/// Time-out of requests about messages that were popped.
const ACK_TIMEOUT: Duration = Duration::from_secs(3);
/// Messages of one pop that are further apart than this are not acknowledged in one bit set.
const BITS_MAX: i64 = 4096;
/// Delay level that makes a message a dead letter.
const DEAD_LETTER: i32 = -1;

/// What a consumer asks for, beside the queue.
#[derive(Clone, Debug)]
pub(crate) struct PopOptions {
    pub(crate) messages_max: usize,
    pub(crate) invisible_time: Duration,
    /// How long the broker may hold the request until messages come.
    pub(crate) poll: Duration,
    /// Messages in the order of their queue, and none behind one that is not acknowledged: the name of this attempt.
    pub(crate) attempt: Option<String>,
}

/// What a pop brought.
#[derive(Debug)]
pub(crate) enum Popped {
    /// Messages, perhaps with some that the filter leaves out, which brokers know by a hash only.
    Found(Vec<MessageExt>),
    /// None in the time that the broker may wait.
    Nothing,
    /// The broker holds too many requests already, and did not wait.
    Full,
}

/// Queue number that stands for all queues of a broker.
const ALL_QUEUES: i32 = -1;

/// The popped message's receipt.
fn receipt(message: &MessageExt) -> Result<ReceiptHandle, Error> {
    let what = || format!("message {}", message.msg_id());
    let handle = message.receipt_handle().ok_or_else(|| Error::invalid(what(), "it was not popped"))?;
    handle.parse().map_err(|error: MalformedHandle| Error::invalid(what(), error.to_string()))
}

impl Subscriber {
    /// What this consumer pops from: the queues that a broker assigns to it if the group is set up for POP, else all
    /// queues of every broker.
    pub(super) async fn pop_targets(&self, topic: &str) -> Result<Vec<MessageQueue>, Error> {
        let route = match self.instance.routes.get(topic) {
            Some(route) => route,
            None => self.instance.refresh_route(topic).await?,
        };
        let assigned = self.query_assignment(topic).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the broker assigns nothing");
            None
        });
        let assigned = assigned.unwrap_or_default().into_iter();
        let popped = assigned.filter(|assignment| assignment.mode == MessageRequestMode::Pop);
        let popped: Vec<_> = popped.map(|assignment| assignment.message_queue).collect();
        if !popped.is_empty() {
            return Ok(popped);
        }
        let brokers: BTreeSet<_> = route.subscribe.iter().map(|queue| route.real_broker(queue)).collect();
        Ok(brokers.into_iter().map(|broker| MessageQueue::new(topic, broker, ALL_QUEUES)).collect())
    }

    /// Pops once.
    pub(crate) async fn pop(&self, target: &MessageQueue, options: &PopOptions) -> Result<Popped, Error> {
        let started = Instant::now();
        let (broker, address) = self.instance.master_of(target).await?;
        let to = Destination { broker: &broker, address: &address, topic: &target.topic };
        let subscription = self.subscription(&target.topic);
        let from_the_beginning = self.settings.consume_from == ConsumeFrom::FirstOffset;
        let command = RemotingCommand::request(request::POP_MESSAGE)
            .with("consumerGroup", &self.group)
            .with("topic", &target.topic)
            .with("queueId", target.queue_id)
            .with("maxMsgNums", options.messages_max)
            .with("invisibleTime", options.invisible_time.as_millis())
            .with("pollTime", options.poll.as_millis())
            .with("bornTime", now_ms())
            .with("initMode", if from_the_beginning { 0 } else { 1 })
            .with("expType", &subscription.expression_type)
            .with("exp", &subscription.sub_string)
            .with("order", options.attempt.is_some())
            .with_some("attemptId", options.attempt.as_ref())
            .with("bname", &broker);
        let answer = self.instance.transport.call(to, command, options.poll + POP_GRACE).await;
        let answer = answer.inspect_err(|_| self.instance.doubt_route(&target.topic))?;
        match answer.code {
            response::SUCCESS => {
                let messages = self.popped(&broker, target, &answer, options.attempt.is_some());
                let messages = messages.map_err(|error| to.malformed("POP_MESSAGE", error))?;
                self.stats.topic(&target.topic).pulled(started.elapsed(), messages.len());
                Ok(Popped::Found(messages))
            }
            response::POLLING_FULL => Ok(Popped::Full),
            response::POLLING_TIMEOUT | response::PULL_NOT_FOUND => Ok(Popped::Nothing),
            code => {
                if code == response::TOPIC_NOT_EXIST {
                    self.instance.doubt_route(&target.topic);
                }
                Err(to.refused("POP_MESSAGE", &answer))
            }
        }
    }

    /// The messages of an answer, with their receipts.
    fn popped(
        &self,
        broker: &str,
        target: &MessageQueue,
        answer: &RemotingCommand,
        in_order: bool,
    ) -> Result<Vec<MessageExt>, MalformedHandle> {
        let list = |field| answer.field(field).unwrap_or_default();
        let lists =
            OffsetLists::parse(list("startOffsetInfo"), list("msgOffsetInfo"), list("orderCountInfo"))?;
        let number = |field| answer.number::<i64>(field).map_err(|error| MalformedHandle(error.to_string()));
        let (pop_time, invisible_time) = (number("popTime")?, number("invisibleTime")?);
        let revive_queue = answer.number("reviveQid").map_err(|error| MalformedHandle(error.to_string()))?;
        // Of each queue: how many messages came, and the offset of the first.
        let mut seen: BTreeMap<Source, (usize, i64)> = BTreeMap::new();
        let mut messages = decode_stored(&answer.body, broker);
        for message in &mut messages {
            let given: Option<ReceiptHandle> = message.receipt_handle().map(str::parse).transpose()?;
            let source = match &given {
                // A retried message comes under its first topic, with a receipt for the retry topic.
                Some(handle) => (handle.origin, handle.queue_id),
                None => (Origin::of_topic(message.topic()), message.queue.queue_id),
            };
            let (position, first) = seen.entry(source).or_insert((0, message.queue_offset));
            let handle = given.unwrap_or_else(|| ReceiptHandle {
                start_offset: lists.start(source).unwrap_or(*first),
                pop_time,
                invisible_time,
                revive_queue,
                origin: source.0,
                broker: broker.to_owned(),
                queue_id: source.1,
                queue_offset: lists.offset(source, *position).unwrap_or(message.queue_offset),
            });
            *position += 1;
            if let Some(count) =
                lists.count(source, handle.queue_offset).filter(|count| in_order && *count > 0)
            {
                message.reconsume_times = count;
            }
            Arc::make_mut(&mut message.queue).topic = handle.origin.real_topic(&target.topic, &self.group);
            message.set_topic(&target.topic);
            if message.property(names::FIRST_POP_TIME).is_none() {
                message.properties.insert(names::FIRST_POP_TIME, &pop_time.to_string());
            }
            message.properties.insert(names::POP_CK, &handle.to_string());
        }
        Ok(messages)
    }

    /// Name and address of the broker that a message was popped from.
    async fn broker_of_popped(
        &self,
        message: &MessageExt,
        handle: &ReceiptHandle,
    ) -> Result<(String, String), Error> {
        let queue = MessageQueue::new(message.topic(), &*handle.broker, handle.queue_id);
        let found = self.instance.broker_of(&queue, MASTER_ID, true).await?;
        Ok((found.0, found.2))
    }

    fn about_popped(&self, code: i32, message: &MessageExt, handle: &ReceiptHandle) -> RemotingCommand {
        RemotingCommand::request(code)
            .with("consumerGroup", &self.group)
            .with("topic", handle.origin.real_topic(message.topic(), &self.group))
            .with("queueId", handle.queue_id)
            .with("offset", handle.queue_offset)
            .with("extraInfo", handle.to_string())
            .with("bname", &handle.broker)
    }

    /// Acknowledges one message.
    pub(crate) async fn ack(&self, message: &MessageExt) -> Result<(), Error> {
        let handle = receipt(message)?;
        let (broker, address) = self.broker_of_popped(message, &handle).await?;
        let to = Destination { broker: &broker, address: &address, topic: message.topic() };
        let command = self.about_popped(request::ACK_MESSAGE, message, &handle);
        self.instance.transport.done(to, command, ACK_TIMEOUT).await.map(drop)
    }

    /// Acknowledges messages with one request to each broker. All are tried; the first failure is returned.
    pub(crate) async fn ack_all<M: Borrow<MessageExt>>(&self, messages: &[M]) -> Result<(), Error> {
        let mut by_broker: BTreeMap<String, Vec<(&MessageExt, ReceiptHandle)>> = BTreeMap::new();
        for message in messages.iter().map(Borrow::borrow) {
            let handle = receipt(message)?;
            by_broker.entry(handle.broker.clone()).or_default().push((message, handle));
        }
        let mut failed = None;
        for messages in by_broker.into_values() {
            let acknowledged = match self.ack_batch(&messages).await {
                // Older brokers take them one by one.
                Err(Error::Refused { code: response::REQUEST_CODE_NOT_SUPPORTED, .. }) => {
                    let mut each = Ok(());
                    for (message, _) in &messages {
                        each = each.and(self.ack(message).await);
                    }
                    each
                }
                other => other,
            };
            failed = failed.or(acknowledged.err());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Acknowledges messages of one broker.
    async fn ack_batch(&self, messages: &[(&MessageExt, ReceiptHandle)]) -> Result<(), Error> {
        let Some((first, handle)) = messages.first() else { return Ok(()) };
        let (broker, address) = self.broker_of_popped(first, handle).await?;
        let to = Destination { broker: &broker, address: &address, topic: first.topic() };
        let body = BatchAckMessageRequestBody {
            acks: batch_acks(&self.group, messages),
            broker_name: handle.broker.clone(),
        };
        let command = RemotingCommand::request(request::BATCH_ACK_MESSAGE).with_body(json::to_vec(&body));
        self.instance.transport.done(to, command, ACK_TIMEOUT).await.map(drop)
    }

    /// Makes a message invisible for this time from now on, and gives it its new receipt.
    pub(crate) async fn change_invisible_time(
        &self,
        message: &mut MessageExt,
        invisible_time: Duration,
    ) -> Result<(), Error> {
        let mut handle = receipt(message)?;
        let (broker, address) = self.broker_of_popped(message, &handle).await?;
        let to = Destination { broker: &broker, address: &address, topic: message.topic() };
        let command = self.about_popped(request::CHANGE_MESSAGE_INVISIBLETIME, message, &handle);
        let command = command.with("invisibleTime", invisible_time.as_millis());
        let answer = self.instance.transport.done(to, command, ACK_TIMEOUT).await?;
        let number = |field| {
            let number = answer.number::<i64>(field);
            number.map_err(|error| to.malformed("CHANGE_MESSAGE_INVISIBLETIME", error))
        };
        handle.start_offset = handle.queue_offset;
        handle.pop_time = number("popTime")?;
        handle.invisible_time = number("invisibleTime")?;
        handle.revive_queue =
            answer.number_or_none("reviveQid").unwrap_or(None).unwrap_or(handle.revive_queue);
        message.properties.insert(names::POP_CK, &handle.to_string());
        Ok(())
    }

    /// The messages that the application wants. The others are done, or dead letters.
    pub(crate) async fn sort_out(
        &self,
        messages: Vec<MessageExt>,
        reconsume_times_max: i32,
    ) -> Vec<MessageExt> {
        let mut wanted = Vec::with_capacity(messages.len());
        for message in messages {
            let put_away = if !accepts(&self.subscription(message.topic()), &message) {
                self.ack(&message).await
            } else if message.reconsume_times > reconsume_times_max {
                self.bury(&message).await
            } else {
                wanted.push(message);
                continue;
            };
            if let Err(error) = put_away {
                tracing::warn!(id = %message.msg_id(), %error, "a message that is not wanted comes again");
            }
        }
        wanted
    }

    /// Makes a message a dead letter of the group, and acknowledges it.
    pub(crate) async fn bury(&self, message: &MessageExt) -> Result<(), Error> {
        let handle = receipt(message)?;
        let (broker, address) = self.broker_of_popped(message, &handle).await?;
        let to = Destination { broker: &broker, address: &address, topic: message.topic() };
        let command = RemotingCommand::request(request::CONSUMER_SEND_MSG_BACK)
            .with("group", &self.group)
            .with("originTopic", handle.origin.real_topic(message.topic(), &self.group))
            .with("offset", message.commit_log_offset)
            .with("delayLevel", DEAD_LETTER)
            .with("originMsgId", message.msg_id())
            .with("unitMode", false)
            .with("maxReconsumeTimes", 0)
            .with("bname", &handle.broker);
        self.instance.transport.done(to, command, ACK_TIMEOUT).await?;
        self.ack(message).await
    }
}

/// The messages as bit sets, one for each pop of a queue.
fn batch_acks(group: &str, messages: &[(&MessageExt, ReceiptHandle)]) -> Vec<BatchAck> {
    let mut pops: BTreeMap<(&str, ReceiptHandle), Vec<u8>> = BTreeMap::new();
    for (message, handle) in messages {
        let mut pop = ReceiptHandle { queue_offset: 0, ..handle.clone() };
        let mut bit = handle.queue_offset - handle.start_offset;
        if !(0..BITS_MAX).contains(&bit) {
            // The broker finds the offset all the same; only the set would be too large.
            (pop.start_offset, bit) = (handle.queue_offset, 0);
        }
        let bits = pops.entry((message.topic(), pop)).or_default();
        let byte = bit as usize / 8;
        bits.resize(bits.len().max(byte + 1), 0);
        bits[byte] |= 1 << (bit % 8);
    }
    let acks = pops.into_iter().map(|((topic, pop), bits)| BatchAck {
        bit_set: STANDARD.encode(bits),
        consumer_group: group.to_owned(),
        invisible_time: pop.invisible_time,
        pop_time: pop.pop_time,
        queue_id: pop.queue_id,
        retry: pop.origin.on_wire().to_owned(),
        revive_queue_id: pop.revive_queue,
        start_offset: pop.start_offset,
        topic: topic.to_owned(),
    });
    acks.collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::message;
    use super::*;

    #[test]
    fn messages_of_one_pop_are_acknowledged_in_one_set() {
        let popped = |text: &str| {
            let mut message = message("T", 0);
            message.properties.insert(names::POP_CK, text);
            message
        };
        let messages = [
            popped("100 7 60000 3 0 broker-a 2 100"),
            popped("100 7 60000 3 0 broker-a 2 109"),
            popped("5 7 60000 3 1 broker-a 0 5"),
        ];
        let with_receipts: Vec<_> =
            messages.iter().map(|message| (message, receipt(message).unwrap())).collect();
        let acks = batch_acks("g", &with_receipts);
        let seen: Vec<_> =
            acks.iter().map(|ack| (ack.start_offset, &*ack.retry, ack.queue_id, &*ack.bit_set)).collect();
        assert_eq!(seen, [(5, "1", 0, "AQ=="), (100, "0", 2, "AQI=")]);
        assert!(receipt(&message("T", 0)).is_err());
    }
}
