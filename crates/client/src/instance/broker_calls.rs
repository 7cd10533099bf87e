//! The requests that producers and consumers make to brokers beside sends and pulls.

use std::collections::BTreeSet;
use std::time::Duration;

use ferromq_protocol::body::{
    CheckClientRequestBody, GetConsumerListByGroupResponseBody, LockBatchRequestBody, LockBatchResponseBody,
    MessageQueue, SubscriptionData,
};

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;

use super::Instance;
use super::route::MASTER_ID;
use crate::error::{Destination, Error};
use crate::message::MessageExt;

/// Time-out of queries about offsets.
const OFFSET_TIMEOUT: Duration = Duration::from_secs(5);
/// Time-out of queue locks: whoever holds a queue must not wait long for it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time-out of send-backs.
const SEND_BACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Where to look for a time in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    /// The oldest message.
    Min,
    /// Behind the newest one.
    Max,
}

impl Instance {
    /// Name and address of the master that has a queue; the route is asked for once if it is not known.
    pub(crate) async fn master_of(&self, queue: &MessageQueue) -> Result<(String, String), Error> {
        self.broker_of(queue, MASTER_ID, true).await.map(|(broker, _, address)| (broker, address))
    }

    /// Name, id and address of a broker that has a queue: the one with this id, else one that can stand in for it, unless
    /// it must be this one.
    pub(crate) async fn broker_of(
        &self,
        queue: &MessageQueue,
        id: i64,
        only_this: bool,
    ) -> Result<(String, i64, String), Error> {
        let find = || {
            let route = self.routes.get(&queue.topic)?;
            let broker = route.real_broker(queue);
            let (found, address) = self.routes.replica(broker, id)?;
            (!only_this || found == id).then(|| (broker.to_owned(), found, address))
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        self.refresh_route(&queue.topic).await?;
        find().ok_or_else(|| Error::BrokerNotExist {
            broker: queue.broker_name.clone(),
            topic: queue.topic.clone(),
        })
    }

    /// Ids of the members of a consumer group, as one broker of the topic knows them.
    pub(crate) async fn consumer_ids(&self, topic: &str, group: &str) -> Result<Vec<String>, Error> {
        let no_route = || Error::NoRoute { topic: topic.to_owned() };
        let (broker, address) = self.routes.any_broker(topic).ok_or_else(no_route)?;
        let to = Destination { broker: &broker, address: &address, topic };
        let request =
            RemotingCommand::request(request::GET_CONSUMER_LIST_BY_GROUP).with("consumerGroup", group);
        let answer = self.transport.done(to, request, self.settings.api_timeout).await?;
        let body: GetConsumerListByGroupResponseBody = json::from_slice(&answer.body)
            .map_err(|error| to.malformed("GET_CONSUMER_LIST_BY_GROUP", error))?;
        Ok(body.consumer_id_list)
    }

    /// Asks a broker whether it takes a subscription that is not by tags.
    pub(crate) async fn check_subscription(
        &self,
        group: &str,
        subscription: &SubscriptionData,
    ) -> Result<(), Error> {
        let topic = &subscription.topic;
        let Some((broker, address)) = self.routes.any_broker(topic) else { return Ok(()) };
        let body = CheckClientRequestBody {
            client_id: self.identity.client_id.clone(),
            group: group.to_owned(),
            namespace: None,
            subscription_data: Some(subscription.clone()),
        };
        let request = RemotingCommand::request(request::CHECK_CLIENT_CONFIG).with_body(json::to_vec(&body));
        let to = Destination { broker: &broker, address: &address, topic };
        self.transport.done(to, request, self.settings.api_timeout).await.map(drop)
    }

    /// A group's progress in a queue as its broker knows it; `None` if there is none.
    pub(crate) async fn query_offset(&self, group: &str, queue: &MessageQueue) -> Result<Option<i64>, Error> {
        let (broker, _, address) = self.broker_of(queue, MASTER_ID, false).await?;
        let to = Destination { broker: &broker, address: &address, topic: &queue.topic };
        let request = about(request::QUERY_CONSUMER_OFFSET, queue).with("consumerGroup", group);
        let answer = self.transport.call(to, request, OFFSET_TIMEOUT).await?;
        match answer.code {
            response::SUCCESS => number(&to, "QUERY_CONSUMER_OFFSET", &answer, "offset").map(Some),
            response::QUERY_NOT_FOUND => Ok(None),
            _ => Err(to.refused("QUERY_CONSUMER_OFFSET", &answer)),
        }
    }

    /// Tells a broker a group's progress in a queue. Nothing is answered.
    pub(crate) async fn update_offset(
        &self,
        group: &str,
        queue: &MessageQueue,
        offset: i64,
    ) -> Result<(), Error> {
        let (broker, _, address) = self.broker_of(queue, MASTER_ID, false).await?;
        let to = Destination { broker: &broker, address: &address, topic: &queue.topic };
        let request = about(request::UPDATE_CONSUMER_OFFSET, queue)
            .with("consumerGroup", group)
            .with("commitOffset", offset);
        self.transport.oneway(to, request, OFFSET_TIMEOUT).await
    }

    /// The first or the next offset of a queue.
    pub(crate) async fn queue_end(&self, queue: &MessageQueue, end: QueueEnd) -> Result<i64, Error> {
        let (code, name) = match end {
            QueueEnd::Min => (request::GET_MIN_OFFSET, "GET_MIN_OFFSET"),
            QueueEnd::Max => (request::GET_MAX_OFFSET, "GET_MAX_OFFSET"),
        };
        let (broker, address) = self.master_of(queue).await?;
        let to = Destination { broker: &broker, address: &address, topic: &queue.topic };
        let answer = self.transport.done(to, about(code, queue), OFFSET_TIMEOUT).await?;
        number(&to, name, &answer, "offset")
    }

    /// Offset of the first message that was stored at this time or later.
    pub(crate) async fn offset_at(&self, queue: &MessageQueue, time_ms: i64) -> Result<i64, Error> {
        let (broker, address) = self.master_of(queue).await?;
        let to = Destination { broker: &broker, address: &address, topic: &queue.topic };
        let request = about(request::SEARCH_OFFSET_BY_TIMESTAMP, queue)
            .with("timestamp", time_ms)
            .with("boundaryType", "LOWER");
        let answer = self.transport.done(to, request, OFFSET_TIMEOUT).await?;
        number(&to, "SEARCH_OFFSET_BY_TIMESTAMP", &answer, "offset")
    }

    /// Locks queues of one broker for this client, and returns those that it got.
    pub(crate) async fn lock_queues(
        &self,
        group: &str,
        queues: BTreeSet<MessageQueue>,
    ) -> Result<BTreeSet<MessageQueue>, Error> {
        let Some(first) = queues.first().cloned() else { return Ok(queues) };
        let (broker, address) = self.master_of(&first).await?;
        let to = Destination { broker: &broker, address: &address, topic: &first.topic };
        let request = self.lock_request(request::LOCK_BATCH_MQ, group, queues);
        let answer = self.transport.done(to, request, LOCK_TIMEOUT).await?;
        let body: LockBatchResponseBody =
            json::from_slice(&answer.body).map_err(|error| to.malformed("LOCK_BATCH_MQ", error))?;
        Ok(body.lock_ok_mq_set)
    }

    /// Unlocks queues of one broker and waits until it is done.
    pub(crate) async fn unlock_queues(
        &self,
        group: &str,
        queues: BTreeSet<MessageQueue>,
    ) -> Result<(), Error> {
        let Some(first) = queues.first().cloned() else { return Ok(()) };
        let (broker, address) = self.master_of(&first).await?;
        let to = Destination { broker: &broker, address: &address, topic: &first.topic };
        let request = self.lock_request(request::UNLOCK_BATCH_MQ, group, queues);
        self.transport.done(to, request, LOCK_TIMEOUT).await.map(drop)
    }

    fn lock_request(&self, code: i32, group: &str, mq_set: BTreeSet<MessageQueue>) -> RemotingCommand {
        let body = LockBatchRequestBody {
            client_id: self.identity.client_id.clone(),
            consumer_group: group.to_owned(),
            mq_set,
            only_this_broker: false,
        };
        RemotingCommand::request(code).with_body(json::to_vec(&body))
    }

    /// Gives a message back to its broker, to be delivered again later or to become a dead letter.
    pub(crate) async fn send_back(
        &self,
        group: &str,
        message: &MessageExt,
        delay_level: i32,
        reconsume_times_max: i32,
    ) -> Result<(), Error> {
        let (broker, address) = self.master_of(&message.queue).await?;
        let to = Destination { broker: &broker, address: &address, topic: &message.queue.topic };
        let request = RemotingCommand::request(request::CONSUMER_SEND_MSG_BACK)
            .with("group", group)
            .with("originTopic", message.topic())
            .with("offset", message.commit_log_offset)
            .with("delayLevel", delay_level)
            .with("originMsgId", message.msg_id())
            .with("unitMode", false)
            .with("maxReconsumeTimes", reconsume_times_max)
            .with("bname", &message.queue.broker_name);
        self.transport.done(to, request, SEND_BACK_TIMEOUT).await.map(drop)
    }

    /// Tells all brokers that a group is no longer here.
    pub(super) async fn unregister(&self, kind: &'static str, group: &str) {
        let request = RemotingCommand::request(request::UNREGISTER_CLIENT)
            .with("clientID", &self.identity.client_id)
            .with(kind, group);
        // Only where there is a connection: others don't know this client.
        let mut known = Vec::new();
        for (broker, _, address) in self.routes.brokers() {
            if self.transport.connected(&address).is_some() {
                known.push((broker, address));
            }
        }
        let goodbyes = known.iter().map(|(broker, address)| {
            let to = Destination { broker, address, topic: "-" };
            self.transport.done(to, request.clone(), self.settings.api_timeout)
        });
        for goodbye in goodbyes {
            if let Err(error) = goodbye.await {
                tracing::debug!(%error, "a broker was not told that {group} leaves");
            }
        }
    }
}

/// A request about one queue.
fn about(code: i32, queue: &MessageQueue) -> RemotingCommand {
    RemotingCommand::request(code)
        .with("topic", &queue.topic)
        .with("queueId", queue.queue_id)
        .with("bname", &queue.broker_name)
}

fn number(
    to: &Destination<'_>,
    request: &'static str,
    answer: &RemotingCommand,
    field: &'static str,
) -> Result<i64, Error> {
    answer.number(field).map_err(|error| to.malformed(request, error))
}
