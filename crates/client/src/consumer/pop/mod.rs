//! Consumers that are lent messages (`docs/spec/04-pop-timer.md`, `docs/spec/07-client.md` 17).

mod core;
mod handle;
mod loans;
mod queue;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::ConsumeType;

use self::core::{PopCore, PopSettings};
pub(super) use self::handle::Origin;
pub(super) use self::queue::PopQueue;
pub(super) use self::requests::{PopOptions, Popped};
use super::subscriber::{ConsumeFrom, Subscriber, SubscriberSettings};
use super::subscription::Filter;
use crate::client::Client;
use crate::error::Error;
use crate::instance::Round;
use crate::message::MessageExt;
use crate::validate;

/// Most messages that brokers give at once.
const MESSAGES_MAX: usize = 32;

/// A consumer that is lent messages, one by one, by brokers that keep book of them (POP, RocketMQ 5).
///
/// No queue belongs to a member of the group: any number of them receive from the same queues, and a slow one holds up
/// nobody. What was [received](Self::receive) is invisible to the others for a time. [Acknowledged](Self::ack) messages are
/// done. Others become visible when their time is over, and come again with a higher
/// [`reconsume_times`](MessageExt::reconsume_times).
///
/// Calls may be made from any number of tasks at the same time.
#[derive(Debug)]
pub struct PopConsumer {
    core: Arc<PopCore>,
    /// Keeps the client alive.
    _client: Client,
}

impl Drop for PopConsumer {
    fn drop(&mut self) {
        self.core.subscriber.abandon();
    }
}

impl PopConsumer {
    /// Subscribes to a topic, or to other messages of it.
    ///
    /// # Errors
    /// If the topic's name or the filter can't be used.
    pub async fn subscribe(&self, topic: &str, filter: impl Into<Filter>) -> Result<(), Error> {
        self.core.subscriber.subscribe(topic, &filter.into())?;
        self.core.subscriber.instance.heartbeat(Round::Changed).await;
        Ok(())
    }

    /// Ends the subscription to a topic.
    pub fn unsubscribe(&self, topic: &str) {
        self.core.unsubscribe(topic);
    }

    /// Waits for messages of one of the topics, at most `messages_max` (up to 32), and makes them invisible to others for
    /// `invisible_time`. None if none came within the builder's
    /// [`await_duration`](PopConsumerBuilder::await_duration).
    ///
    /// # Errors
    /// [`Error::Invalid`] without a subscription or with a number out of range; the last error if no broker answered.
    ///
    /// # Cancellation
    /// If the future is dropped, messages that a broker has handed out for it come again when their time is over.
    pub async fn receive(
        &self,
        messages_max: usize,
        invisible_time: Duration,
    ) -> Result<Vec<MessageExt>, Error> {
        if !(1..=MESSAGES_MAX).contains(&messages_max) {
            let reason = format!("{messages_max} is out of range [1, {MESSAGES_MAX}]");
            return Err(Error::invalid("messages_max", reason));
        }
        if invisible_time.as_millis() == 0 {
            return Err(Error::invalid("invisible_time", "it must be 1 ms or more"));
        }
        self.core.receive(messages_max, invisible_time).await
    }

    /// Acknowledges a message: it is done. Brokers accept it also when the message's time is over, and deliver it again
    /// all the same.
    ///
    /// # Errors
    /// If the message was not received by a POP consumer, or its broker can't be reached or refuses.
    pub async fn ack(&self, message: &MessageExt) -> Result<(), Error> {
        self.core.ack(message).await
    }

    /// Acknowledges several messages, with one request to each broker.
    ///
    /// # Errors
    /// As [`ack`](Self::ack). All brokers are asked, and the first failure is returned.
    pub async fn ack_all(&self, messages: &[MessageExt]) -> Result<(), Error> {
        self.core.ack_all(messages).await
    }

    /// Makes a message visible after this time from now on: a longer one for a consumer that is not done yet, a shorter one
    /// to have the message again soon. The message gets a new receipt; copies that were made before can't be acknowledged any
    /// more.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn change_invisible_time(
        &self,
        message: &mut MessageExt,
        invisible_time: Duration,
    ) -> Result<(), Error> {
        self.core.change_invisible_time(message, invisible_time).await
    }

    /// Makes a message a dead letter: it goes to the topic `%DLQ%group` and does not come again.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn forward_to_dead_letter_queue(&self, message: &MessageExt) -> Result<(), Error> {
        self.core.bury(message).await
    }

    /// Tells the brokers that the consumer leaves. Messages that were received can still be acknowledged as long as the
    /// client runs.
    pub async fn shutdown(&self) {
        self.core.shutdown_now().await;
    }
}

/// Settings of a [`PopConsumer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PopConsumerBuilder {
    client: Client,
    group: String,
    subscriptions: Vec<(String, Filter)>,
    subscriber: SubscriberSettings,
    settings: PopSettings,
}

impl PopConsumerBuilder {
    pub(crate) fn new(client: Client, group: String) -> Self {
        Self {
            client,
            group,
            subscriptions: Vec::new(),
            subscriber: SubscriberSettings::default(),
            settings: PopSettings::default(),
        }
    }

    /// Subscribes to a topic; may be called several times.
    pub fn subscribe(mut self, topic: impl Into<String>, filter: impl Into<Filter>) -> Self {
        self.subscriptions.push((topic.into(), filter.into()));
        self
    }

    /// Where the group begins in queues that it has no progress in: [`ConsumeFrom::FirstOffset`], or else near the newest
    /// message.
    pub fn consume_from(mut self, from: ConsumeFrom) -> Self {
        self.subscriber.consume_from = from;
        self
    }

    /// How long [`PopConsumer::receive`] waits for messages; default 15 s.
    pub fn await_duration(mut self, duration: Duration) -> Self {
        self.settings.await_duration = duration;
        self
    }

    /// Receive the messages of each queue in their order, and none behind one that is not acknowledged, in the whole group
    /// (FIFO); default false.
    pub fn fifo(mut self, on: bool) -> Self {
        self.settings.fifo = on;
        self
    }

    /// How often a message may come again; beyond that it becomes a dead letter and is not received. Default 16.
    pub fn max_reconsume_times(mut self, times: u16) -> Self {
        self.settings.reconsume_times_max = i32::from(times);
        self
    }

    /// Starts the consumer.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the group's name or a subscription can't be used, [`Error::GroupInUse`], [`Error::Closed`];
    /// [`Error::Refused`] if a broker does not take a filter. A topic without route is no error.
    pub async fn start(self) -> Result<PopConsumer, Error> {
        validate::group(&self.group)?;
        let instance = self.client.instance().clone();
        let kind = ConsumeType::ConsumePop;
        let subscriber = Subscriber::new(instance.clone(), self.group, kind, false, self.subscriber);
        for (topic, filter) in &self.subscriptions {
            subscriber.subscribe(topic, filter)?;
        }
        let core = Arc::new(PopCore::new(Arc::new(subscriber), self.settings));
        instance.join_consumer(&core.subscriber.group, core.clone())?;
        // From here on a drop undoes the registration, also when this future is dropped.
        let consumer = PopConsumer { core, _client: self.client };
        if let Err(error) = consumer.core.subscriber.introduce().await {
            consumer.shutdown().await;
            return Err(error);
        }
        consumer.core.run();
        Ok(consumer)
    }
}
