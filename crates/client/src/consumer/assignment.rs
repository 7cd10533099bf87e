//! Queues that brokers share out among the members of a group (`docs/spec/07-client.md` 14.7).

use std::collections::BTreeSet;
use std::sync::Arc;

use ferromq_protocol::body::{
    MessageModel, MessageQueue, MessageQueueAssignment, MessageRequestMode, QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::RETRY_PREFIX;

use super::pop::{Origin, PopQueue};
use super::subscriber::Subscriber;
use crate::error::{Destination, Error};

/// What a consumer shall have of a topic.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) pulled: BTreeSet<MessageQueue>,
    pub(super) popped: BTreeSet<MessageQueue>,
}

impl Share {
    /// Of queues that are all pulled.
    pub(super) fn pulled(queues: impl IntoIterator<Item = MessageQueue>) -> Self {
        Self { pulled: queues.into_iter().collect(), popped: BTreeSet::new() }
    }
}

impl Subscriber {
    /// What one broker of the topic assigns to this consumer. `None`: it can't say, and everything stays as it is.
    pub(super) async fn query_assignment(
        &self,
        topic: &str,
    ) -> Result<Option<Vec<MessageQueueAssignment>>, Error> {
        let no_route = || Error::NoRoute { topic: topic.to_owned() };
        let (broker, address) = self.instance.routes.any_broker(topic).ok_or_else(no_route)?;
        let to = Destination { broker: &broker, address: &address, topic };
        let body = QueryAssignmentRequestBody {
            client_id: self.instance.identity.client_id.clone(),
            consumer_group: self.group.clone(),
            message_model: Some(MessageModel::Clustering),
            strategy_name: self.settings.strategy.name(),
            topic: topic.to_owned(),
        };
        let command = RemotingCommand::request(request::QUERY_ASSIGNMENT).with_body(json::to_vec(&body));
        let answer = self.instance.transport.done(to, command, self.instance.settings.api_timeout).await?;
        let body: QueryAssignmentResponseBody =
            json::from_slice(&answer.body).map_err(|error| to.malformed("QUERY_ASSIGNMENT", error))?;
        Ok(body.message_queue_assignments)
    }

    /// What a broker has assigned of a topic.
    pub(super) fn assigned_share(&self, topic: &str, assigned: Vec<MessageQueueAssignment>) -> Share {
        let mut share = Share::default();
        for assignment in assigned {
            let queues = match assignment.mode {
                MessageRequestMode::Pull => &mut share.pulled,
                MessageRequestMode::Pop => &mut share.popped,
            };
            queues.insert(assignment.message_queue);
        }
        self.follow_retries(topic, &share);
        share
    }

    /// Messages of a topic that were not finished when it was popped from are in a retry topic of their own. Pops bring them;
    /// who pulls the topic has to pull that one, too.
    fn follow_retries(&self, topic: &str, share: &Share) {
        if topic.starts_with(RETRY_PREFIX) {
            return;
        }
        let retries = Origin::RetryV1.real_topic(topic, &self.group);
        match (share.pulled.is_empty(), share.popped.is_empty()) {
            (false, true) if !self.is_subscribed(&retries) => {
                self.subscribe_to_all_of(&retries);
                self.rebalance_now.notify_one();
            }
            (true, false) => self.unsubscribe(&retries),
            _ => {}
        }
    }

    /// Pops from what is assigned and from nothing else of the topic. Returns what is new, and whether anything changed.
    pub(super) fn apply_popped(
        &self,
        topic: &str,
        target: &BTreeSet<MessageQueue>,
    ) -> (Vec<Arc<PopQueue>>, bool) {
        let mut queues = self.pop_queues.lock();
        let before = queues.len();
        queues.retain(|queue, popped| {
            let stays = queue.topic != topic
                || (target.contains(queue) && !popped.is_dropped() && !popped.is_pop_expired());
            if !stays {
                popped.dropped.cancel();
                tracing::info!(group = self.group, %queue, "no longer pops from it");
            }
            stays
        });
        let mut changed = queues.len() != before;
        let mut new = Vec::new();
        for queue in target {
            if !queues.contains_key(queue) {
                let (stats, dropped) = (self.stats.topic(topic), self.instance.stop.child_token());
                let popped = Arc::new(PopQueue::new(queue.clone(), stats, dropped));
                queues.insert(queue.clone(), popped.clone());
                tracing::info!(group = self.group, %queue, "pops from it");
                new.push(popped);
                changed = true;
            }
        }
        (new, changed)
    }
}
