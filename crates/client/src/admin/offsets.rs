//! Offsets of queues, and consume queues from inside.

use ferromq_protocol::body::{MessageQueue, QueryConsumeQueueResponseBody};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;

use super::{Admin, at};
use crate::error::{Destination, Error};
use crate::instance::QueueEnd;

impl Admin {
    /// The offset that the next message of a queue will have.
    ///
    /// # Errors
    /// If the queue's master does not answer or does not have the topic.
    pub async fn max_offset(&self, queue: &MessageQueue) -> Result<i64, Error> {
        self.instance().queue_end(queue, QueueEnd::Max).await
    }

    /// Offset of the oldest message of a queue.
    ///
    /// # Errors
    /// If the queue's master does not answer or does not have the topic.
    pub async fn min_offset(&self, queue: &MessageQueue) -> Result<i64, Error> {
        self.instance().queue_end(queue, QueueEnd::Min).await
    }

    /// Offset of the first message of a queue that was stored at a time, ms since the epoch, or later; behind the last one
    /// if there is none.
    ///
    /// # Errors
    /// If the queue's master does not answer or does not have the topic.
    pub async fn search_offset(&self, queue: &MessageQueue, time_ms: i64) -> Result<i64, Error> {
        self.instance().offset_at(queue, time_ms).await
    }

    /// When the oldest message of a queue was stored, ms since the epoch; -1 if the queue is empty.
    ///
    /// # Errors
    /// If the queue's master does not answer or does not have the topic.
    pub async fn earliest_msg_store_time(&self, queue: &MessageQueue) -> Result<i64, Error> {
        let (broker, address) = self.instance().master_of(queue).await?;
        let to = Destination { broker: &broker, address: &address, topic: &queue.topic };
        let query = RemotingCommand::request(request::GET_EARLIEST_MSG_STORETIME)
            .with("topic", &queue.topic)
            .with("queueId", queue.queue_id)
            .with("bname", &queue.broker_name);
        let answer = self.done(to, query).await?;
        answer.number("timestamp").map_err(|error| to.malformed("GET_EARLIEST_MSG_STORETIME", error))
    }

    /// `count` units of a consume queue from `index` on. If a group is named, also its filter, and whether the messages pass
    /// it.
    ///
    /// # Errors
    /// If the broker does not have the queue.
    pub async fn query_consume_queue(
        &self,
        address: &str,
        topic: &str,
        queue_id: i32,
        index: i64,
        count: i32,
        group: Option<&str>,
    ) -> Result<QueryConsumeQueueResponseBody, Error> {
        let query = RemotingCommand::request(request::QUERY_CONSUME_QUEUE)
            .with("topic", topic)
            .with("queueId", queue_id)
            .with("index", index)
            .with("count", count)
            .with_some("consumerGroup", group);
        self.get(at(address, topic), query).await
    }
}
