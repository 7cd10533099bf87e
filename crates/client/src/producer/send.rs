//! Attempts to send, and what follows when one fails (`docs/spec/07-client.md` 6.3).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::code::{request, response};
use tokio::time::{Instant, timeout_at};

use super::fault::Outcome;
use super::request::Outgoing;
use super::result::{SendResult, SendStatus};
use super::{ProducerCore, select};
use crate::error::{Destination, Error};
use crate::instance::route::Route;
use crate::message::properties as names;
use crate::meters::SendMeter;

/// Answers after which a route is doubted: another broker may have taken over.
const ROUTE_DOUBTFUL: [i32; 4] = [
    response::NOT_LEADER_FOR_QUEUE,
    response::TOPIC_NOT_EXIST,
    response::NO_PERMISSION,
    response::SERVICE_NOT_AVAILABLE,
];

/// One call of the application: how long it may take, and what happened so far.
struct Call<'a> {
    core: &'a ProducerCore,
    outgoing: &'a Outgoing,
    started: Instant,
    timeout: Duration,
    /// The brokers that did not do what was wanted, in order.
    brokers: Vec<String>,
    last_error: Option<Error>,
    /// An answer that says the message is stored, but not as safely as wanted.
    last_result: Option<SendResult>,
}

/// How long an attempt may take.
#[derive(Clone, Copy, Debug)]
struct Limit {
    since: Instant,
    timeout: Duration,
}

impl ProducerCore {
    /// Sends to queues in turn until one attempt succeeds, the attempts are used up, or the time is.
    pub(super) async fn send_anywhere(
        &self,
        outgoing: &Outgoing,
        timeout: Duration,
    ) -> Result<SendResult, Error> {
        let started = Instant::now();
        let sent = self.try_anywhere(outgoing, started, timeout).await;
        sent.inspect_err(|_| self.measure_failure(outgoing, started))
    }

    fn measure_failure(&self, outgoing: &Outgoing, started: Instant) {
        SendMeter::failed(&self.instance.identity.client_id, &outgoing.message.topic, started.elapsed());
    }

    async fn try_anywhere(
        &self,
        outgoing: &Outgoing,
        started: Instant,
        timeout: Duration,
    ) -> Result<SendResult, Error> {
        let mut call = Call::new(self, outgoing, started, timeout);
        let _permit = self.permit(timeout).await?;
        let mut route = call.route().await?;
        for attempt in 0..=self.settings.retry_times_when_send_failed {
            let queue = select::next_queue(
                &route.publish,
                self.faults.as_ref(),
                call.brokers.last().map(String::as_str),
            );
            let Some(queue) = queue else {
                return Err(Error::NoRoute { topic: outgoing.message.topic.clone() });
            };
            let is_last = attempt == self.settings.retry_times_when_send_failed;
            let max = self.settings.send_msg_max_timeout_per_request.filter(|_| !is_last);
            let Some(limit) = call.limit(max) else { break };
            let sent = self.attempt(&route, queue, outgoing, limit).await;
            if let Ok(result) = &sent
                && (result.status == SendStatus::SendOk || !self.settings.retry_another_broker)
            {
                call.measure_success(&route);
                return sent;
            }
            call.brokers.push(queue.broker_name.clone());
            match sent {
                Ok(result) => call.last_result = Some(result),
                Err(error) if call.may_retry(&error) => {
                    call.last_error = Some(error);
                    if !is_last && let Some(fresh) = Box::pin(call.reconsider(&route)).await {
                        route = fresh;
                    }
                }
                Err(error) => {
                    call.last_error = Some(error);
                    break;
                }
            }
        }
        call.finish(&route)
    }

    /// Sends to the queue that `choose` wants, in one attempt.
    pub(super) async fn send_chosen(
        &self,
        outgoing: &Outgoing,
        choose: impl FnOnce(&[MessageQueue]) -> Option<MessageQueue>,
        timeout: Duration,
    ) -> Result<SendResult, Error> {
        let started = Instant::now();
        let sent = self.try_chosen(outgoing, choose, started, timeout).await;
        sent.inspect_err(|_| self.measure_failure(outgoing, started))
    }

    async fn try_chosen(
        &self,
        outgoing: &Outgoing,
        choose: impl FnOnce(&[MessageQueue]) -> Option<MessageQueue>,
        started: Instant,
        timeout: Duration,
    ) -> Result<SendResult, Error> {
        let call = Call::new(self, outgoing, started, timeout);
        let _permit = self.permit(timeout).await?;
        let route = call.route().await?;
        let queue = chosen(&route, &outgoing.message.topic, choose)?;
        let limit = call.limit(None).ok_or_else(|| call.too_late())?;
        let sent = self.attempt(&route, &queue, outgoing, limit).await;
        sent.inspect(|_| call.measure_success(&route)).inspect_err(|error| {
            if is_doubtful(error) {
                self.instance.doubt_route(&outgoing.message.topic);
            }
        })
    }

    /// The queue that `choose` wants, before a message is made ready for it.
    pub(super) async fn choose(
        &self,
        topic: &str,
        choose: impl FnOnce(&[MessageQueue]) -> Option<MessageQueue>,
    ) -> Result<MessageQueue, Error> {
        self.check_open()?;
        let timeout = self.settings.send_msg_timeout;
        let route = self.instance.publish_route(topic, self.settings.default_topic_queue_nums);
        let late = |_| Error::Timeout { what: format!("the route of topic {topic}"), timeout };
        let route = tokio::time::timeout(timeout, route).await.map_err(late)??;
        chosen(&route, topic, choose)
    }

    /// Hands a message to a connection, for this queue or any; nothing will be known of it.
    pub(super) async fn send_oneway(
        &self,
        outgoing: &Outgoing,
        queue: Option<&MessageQueue>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let call = Call::new(self, outgoing, Instant::now(), timeout);
        let _permit = self.permit(timeout).await?;
        let route = call.route().await?;
        let queue = match (queue, outgoing.message.get_property(names::SHARDING_KEY)) {
            (Some(queue), _) => Some(queue),
            (None, Some(key)) => select::select_by_hash(&route.publish.queues, key),
            (None, None) => select::next_queue(&route.publish, self.faults.as_ref(), None),
        };
        let queue = queue.ok_or_else(|| Error::NoRoute { topic: outgoing.message.topic.clone() })?;
        let (broker, address) = self.address(&route, queue).await?;
        let to = Destination { broker: &broker, address: &address, topic: &outgoing.message.topic };
        let left = call.left().ok_or_else(|| call.too_late())?;
        let sent = self.instance.transport.oneway(to, outgoing.request(self, queue, &broker), left).await;
        sent.inspect_err(|_| self.instance.doubt_route(&outgoing.message.topic))
    }

    async fn attempt(
        &self,
        route: &Route,
        queue: &MessageQueue,
        outgoing: &Outgoing,
        limit: Limit,
    ) -> Result<SendResult, Error> {
        let judged = self.faults.as_ref().map(|faults| (faults, Instant::now()));
        let sent = self.attempt_once(route, queue, outgoing, limit).await;
        if let Some((faults, started)) = judged {
            let outcome = match &sent {
                Ok(_) | Err(Error::BrokerNotExist { .. }) => Outcome::Fine,
                Err(Error::Remoting { .. }) if !self.settings.start_detector => Outcome::Failed,
                Err(Error::Remoting { .. } | Error::Refused { .. }) => Outcome::Unreachable,
                Err(_) => Outcome::Fine,
            };
            faults.update(&queue.broker_name, started.elapsed(), outcome);
        }
        sent
    }

    async fn attempt_once(
        &self,
        route: &Route,
        queue: &MessageQueue,
        outgoing: &Outgoing,
        limit: Limit,
    ) -> Result<SendResult, Error> {
        let (broker, address) = self.address(route, queue).await?;
        let to = Destination { broker: &broker, address: &address, topic: &outgoing.message.topic };
        let name = request::name(outgoing.code());
        let traced = self.trace.as_ref().map(|trace| (trace, Instant::now()));
        let transport = &self.instance.transport;
        let command =
            (!transport.is_plain()).then(|| transport.prepare(outgoing.request(self, queue, &broker)));
        let write = |opaque, encoding, out: &mut Vec<u8>| match &command {
            Some(command) => command.encode_as(opaque, 0, encoding, out),
            None => outgoing.write(self, queue, &broker, (opaque, encoding), out),
        };
        let answer = transport.call_with(to, name, write, limit.since, limit.timeout).await?;
        let result = SendResult::read(&to, name, &answer, queue, outgoing.unique_ids())?;
        if let Some((trace, started)) = traced {
            trace.sent(&outgoing.subjects, &address, started.elapsed(), &result);
        }
        Ok(result)
    }

    /// Name and address of the queue's broker.
    async fn address<'q>(
        &self,
        route: &'q Route,
        queue: &'q MessageQueue,
    ) -> Result<(Cow<'q, str>, Arc<str>), Error> {
        let broker = route.real_broker(queue);
        match self.instance.routes.master(broker) {
            Some(address) => Ok((broker.into(), address)),
            None => {
                let (broker, address) = Box::pin(self.instance.master_of(queue)).await?;
                Ok((broker.into(), address.into()))
            }
        }
    }
}

impl<'a> Call<'a> {
    fn new(core: &'a ProducerCore, outgoing: &'a Outgoing, started: Instant, timeout: Duration) -> Self {
        Self { core, outgoing, started, timeout, brokers: Vec::new(), last_error: None, last_result: None }
    }

    fn topic(&self) -> &str {
        &self.outgoing.message.topic
    }

    fn left(&self) -> Option<Duration> {
        self.timeout.checked_sub(self.started.elapsed()).filter(|left| !left.is_zero())
    }

    /// What the next attempt may take, `max` at most; `None` if the time is over.
    fn limit(&self, max: Option<Duration>) -> Option<Limit> {
        if self.brokers.is_empty() && max.is_none() {
            // Whatever was waited for until now was waited for within the time-out.
            return Some(Limit { since: self.started, timeout: self.timeout });
        }
        let left = self.left()?;
        Some(Limit { since: Instant::now(), timeout: max.map_or(left, |max| left.min(max)) })
    }

    async fn route(&self) -> Result<Arc<Route>, Error> {
        if let Some(known) = self.core.instance.routes.get_publish(self.topic()) {
            return Ok(known);
        }
        let new_topic_queues = self.core.settings.default_topic_queue_nums;
        let route = self.core.instance.publish_route(self.topic(), new_topic_queues);
        let route = Box::pin(timeout_at(self.started + self.timeout, route)).await;
        route.unwrap_or_else(|_| Err(self.too_late()))
    }

    fn too_late(&self) -> Error {
        Error::Timeout { what: format!("a send to topic {}", self.topic()), timeout: self.timeout }
    }

    fn may_retry(&self, error: &Error) -> bool {
        match error {
            Error::Refused { code, .. } => self.core.settings.retry_response_codes.contains(code),
            _ => true,
        }
    }

    /// Looks for a better route after a failure. With other brokers to go to, that is not waited for; with only one, the
    /// next attempt would meet the same broker at the same address, and a new master may be in its place already.
    async fn reconsider(&self, route: &Route) -> Option<Arc<Route>> {
        if !self.last_error.as_ref().is_some_and(is_doubtful) {
            return None;
        }
        if !route.has_one_broker() {
            self.core.instance.doubt_route(self.topic());
            return None;
        }
        let refreshed = self.core.instance.refresh_route(self.topic());
        let fresh = timeout_at(self.started + self.timeout, refreshed).await.ok()?.ok()?;
        (!fresh.publish.queues.is_empty()).then_some(fresh)
    }

    fn measure_success(&self, route: &Route) {
        let meter = route.publish.meter(&self.core.instance.identity.client_id, self.topic());
        meter.succeeded(self.started.elapsed());
    }

    fn finish(self, route: &Route) -> Result<SendResult, Error> {
        if self.last_result.is_some() {
            self.measure_success(route);
        }
        let last = match (self.last_result, self.last_error) {
            (Some(result), _) => return Ok(result),
            (None, Some(error)) => error,
            (None, None) => Error::Timeout {
                what: format!("a send to topic {}", self.outgoing.message.topic),
                timeout: self.timeout,
            },
        };
        Err(Error::SendFailed {
            topic: self.outgoing.message.topic.clone(),
            attempts: self.brokers.len(),
            elapsed: self.started.elapsed(),
            brokers: self.brokers,
            last: Box::new(last),
        })
    }
}

fn chosen(
    route: &Route,
    topic: &str,
    choose: impl FnOnce(&[MessageQueue]) -> Option<MessageQueue>,
) -> Result<MessageQueue, Error> {
    let no_queue = || Error::invalid("queue selector", "it chose no queue");
    let queue = choose(&route.publish.queues).ok_or_else(no_queue)?;
    if queue.topic != topic {
        return Err(Error::invalid(format!("{queue}"), "the message has another topic"));
    }
    Ok(queue)
}

fn is_doubtful(error: &Error) -> bool {
    match error {
        Error::Refused { code, .. } => ROUTE_DOUBTFUL.contains(code),
        error => error.is_remoting(),
    }
}
