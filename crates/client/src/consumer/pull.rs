//! Pulling messages from a queue (`docs/spec/07-client.md` 12.2, 12.3, 18).

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::names::RETRY_PREFIX;
use ferromq_protocol::pull::{FLAG_COMMIT_OFFSET, FLAG_LITE_PULL, FLAG_SUBSCRIPTION, FLAG_SUSPEND};

use tokio::time::Instant;

use super::pop::Origin;
use super::process_queue::ProcessQueue;
use super::subscriber::Subscriber;
use super::subscription::accepts;
use crate::error::{Destination, Error};
use crate::instance::route::MASTER_ID;
use crate::message::{MessageExt, Properties, decode_pulled, properties as names};

/// How long a pull may take, held or not.
const PULL_TIMEOUT: Duration = Duration::from_secs(30);

/// A broker that is flooded: it says so and wants to be asked again soon.
const FLOW_CONTROL: i32 = 215;
/// How soon.
const FLOW_CONTROL_DELAY: Duration = Duration::from_millis(20);

/// What a consumer asks for, beside queue and offset.
#[derive(Clone, Debug)]
pub(crate) struct PullOptions {
    /// A lite pull consumer asks.
    pub(crate) is_lite: bool,
    pub(crate) messages_max: usize,
    pub(crate) bytes_max: i32,
    /// How long the broker may hold the request until messages come.
    pub(crate) suspend: Duration,
    /// Send the filter with each pull, instead of relying on heartbeats.
    pub(crate) with_subscription: bool,
}

/// Whether there were messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullStatus {
    /// Yes.
    Found,
    /// No: nothing new, or nothing that matches.
    NotFound,
    /// The queue does not have the offset that was asked for.
    OffsetIllegal,
}

/// What a pull brought.
#[derive(Debug)]
pub(crate) struct Pulled {
    pub(crate) status: PullStatus,
    /// Where to go on.
    pub(crate) next_offset: i64,
    pub(crate) messages: Vec<Arc<MessageExt>>,
}

impl Subscriber {
    /// Pulls once from the broker that the last answer suggested.
    pub(crate) async fn pull(
        &self,
        queue: &ProcessQueue,
        offset: i64,
        options: &PullOptions,
    ) -> Result<Pulled, Error> {
        let mq = &queue.queue;
        let started = Instant::now();
        let found = self.instance.broker_of(mq, queue.pull_from(), false).await;
        let (broker, broker_id, address) = found?;
        let to = Destination { broker: &broker, address: &address, topic: &mq.topic };
        let request = self.pull_request(queue, offset, options, broker_id);
        let name = request::name(request.code);
        let answer = match self.instance.transport.call(to, request, PULL_TIMEOUT).await {
            Ok(answer) => answer,
            Err(error) => {
                // Perhaps there is a new master, and if not, a replica can do.
                self.instance.doubt_route(&mq.topic);
                if let Some(other) = self.instance.routes.other_replica(&broker, broker_id) {
                    tracing::info!(queue = %mq, from = other, %error, "pulls from another replica");
                    queue.set_pull_from(other);
                }
                return Err(error);
            }
        };
        let status = match answer.code {
            response::SUCCESS => PullStatus::Found,
            response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY => PullStatus::NotFound,
            response::PULL_OFFSET_MOVED => PullStatus::OffsetIllegal,
            code => {
                if matches!(code, response::NOT_LEADER_FOR_QUEUE | response::TOPIC_NOT_EXIST) {
                    self.instance.doubt_route(&mq.topic);
                }
                if broker_id != MASTER_ID {
                    // A replica that refuses (it may not serve reads) is no help: back to the master.
                    queue.set_pull_from(MASTER_ID);
                }
                return Err(to.refused(name, &answer));
            }
        };
        let number = |field| answer.number::<i64>(field).map_err(|error| to.malformed(name, error));
        queue.set_pull_from(answer.number_or_none("suggestWhichBrokerId").unwrap_or(None).unwrap_or(0));
        let mut messages = Vec::new();
        if status == PullStatus::Found {
            messages = self.messages(queue, &answer);
            queue.stats.pulled(started.elapsed(), messages.len());
        }
        Ok(Pulled { status, next_offset: number("nextBeginOffset")?, messages })
    }

    fn pull_request(
        &self,
        queue: &ProcessQueue,
        offset: i64,
        options: &PullOptions,
        broker_id: i64,
    ) -> RemotingCommand {
        let mq = &queue.queue;
        let subscription = self.subscription(&mq.topic);
        // Progress travels with pulls too, to the master only. Lite pull consumers commit when they are told to.
        let progress = queue.progress.offset().filter(|_| self.is_clustering() && !options.is_lite);
        let mut sys_flag = FLAG_SUSPEND;
        if progress.is_some_and(|offset| offset > 0) && broker_id == MASTER_ID {
            sys_flag |= FLAG_COMMIT_OFFSET;
        }
        if options.is_lite {
            sys_flag |= FLAG_LITE_PULL;
        }
        if options.with_subscription {
            sys_flag |= FLAG_SUBSCRIPTION;
        }
        let is_tag = subscription.expression_type == ferromq_protocol::body::EXPRESSION_TYPE_TAG;
        // The version says whether the broker has heard of the filter; one that comes along needs none.
        let sub_version = if options.is_lite && is_tag { 0 } else { subscription.sub_version };
        let without_progress = if self.is_clustering() && !options.is_lite { -1 } else { 0 };
        let code = if options.is_lite { request::LITE_PULL_MESSAGE } else { request::PULL_MESSAGE };
        RemotingCommand::request(code)
            .with("consumerGroup", &self.group)
            .with("topic", &mq.topic)
            .with("queueId", mq.queue_id)
            .with("queueOffset", offset)
            .with("maxMsgNums", options.messages_max)
            .with("sysFlag", sys_flag)
            .with("commitOffset", progress.unwrap_or(without_progress))
            .with("suspendTimeoutMillis", options.suspend.as_millis())
            .with_some("subscription", options.with_subscription.then_some(&subscription.sub_string))
            .with("subVersion", sub_version)
            .with("maxMsgBytes", options.bytes_max)
            .with("expressionType", &subscription.expression_type)
            .with("bname", &mq.broker_name)
    }

    /// The messages of an answer that this consumer wants.
    fn messages(&self, queue: &ProcessQueue, answer: &RemotingCommand) -> Vec<Arc<MessageExt>> {
        let subscription = self.subscription(&queue.queue.topic);
        let is_retry = queue.queue.topic.starts_with(RETRY_PREFIX);
        let mut ends = Properties::default();
        for (name, field) in [(names::MIN_OFFSET, "minOffset"), (names::MAX_OFFSET, "maxOffset")] {
            ends.insert(name, answer.field(field).unwrap_or_default());
        }
        let delta = answer.number_or_none::<i64>("offsetDelta").unwrap_or(None).unwrap_or(0);
        let mut wanted = Vec::new();
        decode_pulled(&answer.body, &queue.queue, &ends, |mut message| {
            if !accepts(&subscription, &message) {
                return;
            }
            message.queue_offset += delta;
            if is_retry {
                self.restore_topic(&mut message);
            }
            wanted.push(Arc::new(message));
        });
        wanted
    }

    /// A retried message has the topic again that it was sent to at first.
    fn restore_topic(&self, message: &mut MessageExt) {
        let topic = message.property(names::RETRY_TOPIC).unwrap_or(message.topic());
        // It may have been popped before the group began to pull.
        let topic = Origin::normal_topic(topic, &self.group).unwrap_or(topic).to_owned();
        message.set_topic(&topic);
    }

    /// How long to wait after a pull that failed.
    pub(crate) fn delay_after(&self, error: &Error) -> Duration {
        match error {
            Error::Refused { code: FLOW_CONTROL, .. } => FLOW_CONTROL_DELAY,
            _ => self.instance.settings.pull_delay_when_exception,
        }
    }
}
