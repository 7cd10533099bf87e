//! Sending messages.

mod accumulator;
mod fault;
mod recall;
mod reply;
mod request;
mod result;
mod select;
mod send;
mod transaction;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::code::response;
use ferromq_protocol::names::AUTO_CREATE_TOPIC;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::error::Error;
use crate::instance::member::ProducerMember;
use crate::instance::{Instance, QueueEnd, Round};
use crate::message::{Compression, Message, MessageExt, properties as names};
use crate::trace::{Role, Trace, TraceSettings};
use crate::validate;
use accumulator::{Accumulator, BatchSettings};
use fault::FaultTable;
use request::Outgoing;

pub(crate) use reply::PendingReplies;
pub use result::{SendResult, SendStatus};
pub use select::select_by_hash;
pub(crate) use transaction::{CheckRequest, TransactionCheck};
pub use transaction::{LocalTransactionState, TransactionProducer, TransactionSendResult};

/// How often the detector looks for brokers to probe.
const DETECTOR_PERIOD: Duration = Duration::from_secs(3);

/// How long a message of a trace may take.
const TRACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends messages of one group.
///
/// Handles are cheap to clone. Sends are pipelined: any number of [`send`](Self::send) futures may run at the same time, and
/// those to one broker share one connection without waiting for each other's answers.
#[derive(Clone, Debug)]
pub struct Producer {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    core: Arc<ProducerCore>,
    /// Keeps the client alive.
    _client: Client,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.closed.cancel();
        if !self.core.has_left.swap(true, Ordering::AcqRel) {
            self.core.instance.drop_producer(&self.core.group);
        }
    }
}

/// The inside of a [`Producer`].
#[derive(Debug)]
pub(crate) struct ProducerCore {
    pub(crate) group: String,
    pub(crate) settings: ProducerSettings,
    pub(crate) instance: Arc<Instance>,
    /// `None`: no fault tolerance.
    faults: Option<FaultTable>,
    in_flight: Semaphore,
    /// `None`: messages are not held back to be sent together.
    accumulator: Option<Arc<Accumulator>>,
    /// `None`: what is sent is not traced.
    trace: Option<Trace>,
    closed: CancellationToken,
    /// Whether the group was left: from then on its name belongs to whoever takes it next.
    has_left: AtomicBool,
}

/// Settings of a producer that do not change.
#[derive(Clone, Debug)]
pub(crate) struct ProducerSettings {
    create_topic_key: String,
    default_topic_queue_nums: i32,
    send_msg_timeout: Duration,
    send_msg_max_timeout_per_request: Option<Duration>,
    compress_over: usize,
    compress_level: u32,
    compression: Compression,
    retry_times_when_send_failed: usize,
    retry_another_broker: bool,
    retry_response_codes: BTreeSet<i32>,
    max_message_size: usize,
    max_in_flight: usize,
    unit_mode: bool,
    send_latency_fault: bool,
    start_detector: bool,
    detect_timeout: Duration,
    detect_interval: Duration,
    auto_batch: BatchSettings,
    trace: TraceSettings,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        const NO_BUYER_ID: i32 = 204;
        const NOT_IN_CURRENT_UNIT: i32 = 205;
        Self {
            create_topic_key: AUTO_CREATE_TOPIC.to_owned(),
            default_topic_queue_nums: 4,
            send_msg_timeout: Duration::from_secs(3),
            send_msg_max_timeout_per_request: None,
            compress_over: 4096,
            compress_level: 5,
            compression: Compression::Zlib,
            retry_times_when_send_failed: 2,
            retry_another_broker: false,
            retry_response_codes: BTreeSet::from([
                response::TOPIC_NOT_EXIST,
                response::SERVICE_NOT_AVAILABLE,
                response::SYSTEM_ERROR,
                response::SYSTEM_BUSY,
                response::NO_PERMISSION,
                NO_BUYER_ID,
                NOT_IN_CURRENT_UNIT,
                response::GO_AWAY,
            ]),
            max_message_size: 4 * 1024 * 1024,
            max_in_flight: 1024,
            unit_mode: false,
            send_latency_fault: false,
            start_detector: false,
            detect_timeout: Duration::from_millis(200),
            detect_interval: Duration::from_secs(2),
            auto_batch: BatchSettings::default(),
            trace: TraceSettings::default(),
        }
    }
}

impl ProducerCore {
    fn new(instance: Arc<Instance>, group: String, settings: ProducerSettings) -> Self {
        Self {
            faults: settings.send_latency_fault.then(FaultTable::default),
            accumulator: Accumulator::new(&settings.auto_batch),
            trace: Trace::start(&instance, &settings.trace, Role::Produce, &group),
            group,
            in_flight: Semaphore::new(settings.max_in_flight),
            closed: instance.stop.child_token(),
            has_left: AtomicBool::new(false),
            settings,
            instance,
        }
    }

    /// A producer that sends on behalf of the client itself.
    pub(crate) fn inner(instance: Arc<Instance>, group: &str) -> Self {
        Self::new(instance, group.to_owned(), ProducerSettings::default())
    }

    /// A producer that sends a trace.
    pub(crate) fn of_trace(instance: Arc<Instance>, group: &str) -> Self {
        let settings = ProducerSettings { send_msg_timeout: TRACE_TIMEOUT, ..ProducerSettings::default() };
        Self::new(instance, group.to_owned(), settings)
    }

    pub(crate) async fn send(&self, message: Message) -> Result<SendResult, Error> {
        let mut outgoing = Outgoing::single(self, message)?;
        outgoing.compress(self).await;
        self.send_anywhere(&outgoing, self.settings.send_msg_timeout).await
    }

    /// Sends what is held back and what is left of the trace. Sends that come later fail.
    pub(crate) async fn finish(&self) {
        if let Some(accumulator) = &self.accumulator {
            accumulator.close().await;
        }
        self.closed.cancel();
        if let Some(trace) = &self.trace {
            trace.close().await;
        }
    }

    /// What holds a message back until it is sent with others; `None` if it is sent alone.
    fn accumulator_for(&self, message: &Message) -> Option<&Arc<Accumulator>> {
        self.accumulator.as_ref().filter(|accumulator| accumulator.takes(message))
    }

    /// The queue of a message with a sharding key.
    async fn sharded_queue(&self, message: &Message) -> Result<Option<MessageQueue>, Error> {
        let Some(key) = message.get_property(names::SHARDING_KEY) else { return Ok(None) };
        let queue = self.choose(&message.topic, |queues| select_by_hash(queues, key).cloned()).await?;
        Ok(Some(queue))
    }

    /// Whether messages are still taken.
    fn check_open(&self) -> Result<(), Error> {
        if self.closed.is_cancelled() { Err(self.closed_error()) } else { Ok(()) }
    }

    fn closed_error(&self) -> Error {
        Error::Closed { what: format!("the producer {}", self.group) }
    }

    /// Waits until fewer messages than allowed are on their way.
    async fn permit(&self, timeout: Duration) -> Result<SemaphorePermit<'_>, Error> {
        if let Ok(permit) = self.in_flight.try_acquire() {
            return Ok(permit);
        }
        let permit =
            Box::pin(tokio::time::timeout(timeout, self.in_flight.acquire())).await.map_err(|_| {
                let max = self.settings.max_in_flight;
                Error::Timeout { what: format!("a place among {max} messages on their way"), timeout }
            })?;
        permit.map_err(|_| self.closed_error())
    }

    /// Looks whether brokers that were given up can be reached again.
    async fn detect(self: Arc<Self>) {
        let Some(faults) = &self.faults else { return };
        loop {
            tokio::time::sleep(DETECTOR_PERIOD).await;
            for broker in faults.due_for_probe(self.settings.detect_interval) {
                // Any queue of any topic does: the question is whether there is an answer.
                let topic = self.instance.routes.topics().into_iter().find(|topic| {
                    let route = self.instance.routes.get(topic);
                    route.is_some_and(|route| route.addresses(&broker).is_some())
                });
                let Some(topic) = topic.filter(|_| self.instance.routes.master(&broker).is_some()) else {
                    faults.remove(&broker);
                    continue;
                };
                let queue = MessageQueue::new(topic, broker.clone(), 0);
                let probe = self.instance.queue_end(&queue, QueueEnd::Max);
                let answered = tokio::time::timeout(self.settings.detect_timeout, probe).await;
                // A broker that refuses the question is there too.
                if let Ok(Ok(_) | Err(Error::Refused { .. })) = answered {
                    faults.set_reachable(&broker);
                }
            }
        }
    }
}

impl Producer {
    /// Sends a message and waits until a broker has it. Failed attempts are repeated on other brokers; so a message whose
    /// first answer was lost may be stored twice.
    ///
    /// A message with a [sharding key](Message::sharding_key) goes to the queue of that key and nowhere else.
    ///
    /// # Errors
    /// [`Error::Invalid`] before anything was sent, [`Error::NoRoute`], [`Error::SendFailed`] with the last reason.
    ///
    /// # Cancellation
    /// If the future is dropped, the message may or may not have been stored.
    pub async fn send(&self, message: Message) -> Result<SendResult, Error> {
        let core = self.core();
        match core.accumulator_for(&message) {
            Some(accumulator) => {
                let held = async {
                    let queue = core.sharded_queue(&message).await?;
                    accumulator.send(core, message, queue).await
                };
                Box::pin(held).await
            }
            None => self.send_with_timeout(message, core.settings.send_msg_timeout).await,
        }
    }

    /// As [`send`](Self::send), with another time-out for all attempts together. The message is not held back to be sent with
    /// others.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_with_timeout(&self, message: Message, timeout: Duration) -> Result<SendResult, Error> {
        let mut outgoing = Outgoing::single(self.core(), message)?;
        outgoing.compress(self.core()).await;
        match outgoing.message.get_property(names::SHARDING_KEY).map(str::to_owned) {
            Some(key) => {
                let choose = |queues: &[MessageQueue]| select_by_hash(queues, &key).cloned();
                Box::pin(self.core().send_chosen(&outgoing, choose, timeout)).await
            }
            None => self.core().send_anywhere(&outgoing, timeout).await,
        }
    }

    /// Sends a message to the queue that `choose` picks among all queues of the topic. There is one attempt.
    ///
    /// # Errors
    /// As [`send`](Self::send), without [`Error::SendFailed`] around the reason.
    pub async fn send_with_selector(
        &self,
        message: Message,
        choose: impl FnOnce(&[MessageQueue]) -> Option<MessageQueue>,
    ) -> Result<SendResult, Error> {
        let core = self.core();
        match core.accumulator_for(&message) {
            Some(accumulator) => {
                let held = async {
                    let queue = core.choose(&message.topic, choose).await?;
                    accumulator.send(core, message, Some(queue)).await
                };
                Box::pin(held).await
            }
            None => {
                let mut outgoing = Outgoing::single(core, message)?;
                outgoing.compress(core).await;
                core.send_chosen(&outgoing, choose, core.settings.send_msg_timeout).await
            }
        }
    }

    /// Sends a message to one queue. There is one attempt.
    ///
    /// # Errors
    /// As [`send_with_selector`](Self::send_with_selector).
    pub async fn send_to_queue(&self, message: Message, queue: &MessageQueue) -> Result<SendResult, Error> {
        self.send_with_selector(message, |_| Some(queue.clone())).await
    }

    /// Sends several messages of one topic at once. They get into one queue, one behind the other, or none of them is
    /// stored.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_batch(&self, messages: Vec<Message>) -> Result<SendResult, Error> {
        let outgoing = Outgoing::batch(self.core(), messages)?;
        self.core().send_anywhere(&outgoing, self.core().settings.send_msg_timeout).await
    }

    /// Hands a message to the connection and does not wait for an answer: quick, and without any promise. With
    /// [`auto_batch`](ProducerBuilder::auto_batch) it is handed over a little later.
    ///
    /// # Errors
    /// If there is no route or no connection.
    pub async fn send_oneway(&self, message: Message) -> Result<(), Error> {
        let core = self.core();
        match core.accumulator_for(&message) {
            Some(accumulator) => {
                let queue = Box::pin(core.sharded_queue(&message)).await?;
                accumulator.send_oneway(core, message, queue)
            }
            None => {
                let mut outgoing = Outgoing::single(core, message)?;
                outgoing.compress(core).await;
                core.send_oneway(&outgoing, None, core.settings.send_msg_timeout).await
            }
        }
    }

    /// The queues of a topic that can be sent to.
    ///
    /// # Errors
    /// If there is no route.
    pub async fn fetch_publish_message_queues(&self, topic: &str) -> Result<Vec<MessageQueue>, Error> {
        Ok(self.core().instance.refresh_route(topic).await?.publish.queues.clone())
    }

    /// Sends what is held back and what is left of the trace, and tells the brokers that the producer leaves. Sends that come
    /// later fail with [`Error::Closed`].
    pub async fn shutdown(&self) {
        let core = self.core();
        if !core.has_left.swap(true, Ordering::AcqRel) {
            core.instance.leave_producer(&core.group).await;
        }
    }

    fn core(&self) -> &Arc<ProducerCore> {
        &self.handle.core
    }
}

/// Settings of a [`Producer`]; their names are those of Java's `DefaultMQProducer`.
#[derive(Clone, Debug)]
pub struct ProducerBuilder {
    client: Client,
    group: String,
    topics: Vec<String>,
    settings: ProducerSettings,
}

impl ProducerBuilder {
    pub(crate) fn new(client: Client, group: String) -> Self {
        Self { client, group, topics: Vec::new(), settings: ProducerSettings::default() }
    }

    /// Topics whose routes are fetched, and connections made, at the start instead of with the first message.
    #[must_use]
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.topics.extend(topics.into_iter().map(Into::into));
        self
    }

    /// How long a send may take with all its attempts; default 3 s.
    #[must_use]
    pub fn send_msg_timeout(mut self, timeout: Duration) -> Self {
        self.settings.send_msg_timeout = timeout;
        self
    }

    /// How long one attempt may take while another one is possible; default: as long as is left.
    #[must_use]
    pub fn send_msg_max_timeout_per_request(mut self, timeout: Duration) -> Self {
        self.settings.send_msg_max_timeout_per_request = Some(timeout);
        self
    }

    /// How many more attempts follow a failed one; default 2.
    #[must_use]
    pub fn retry_times_when_send_failed(mut self, times: usize) -> Self {
        self.settings.retry_times_when_send_failed = times;
        self
    }

    /// Send again to another broker when a message was stored, but not as safely as wanted
    /// (`retryAnotherBrokerWhenNotStoreOK`); default false. Consumers then get it twice.
    #[must_use]
    pub fn retry_another_broker_when_not_store_ok(mut self, on: bool) -> Self {
        self.settings.retry_another_broker = on;
        self
    }

    /// One more response code after which another attempt is made.
    #[must_use]
    pub fn add_retry_response_code(mut self, code: i32) -> Self {
        self.settings.retry_response_codes.insert(code);
        self
    }

    /// Bodies of this many bytes or more are compressed; default 4096.
    #[must_use]
    pub fn compress_msg_body_over_howmuch(mut self, bytes: usize) -> Self {
        self.settings.compress_over = bytes;
        self
    }

    /// How bodies are compressed; default zlib at level 5.
    #[must_use]
    pub fn compression(mut self, kind: Compression, level: u32) -> Self {
        (self.settings.compression, self.settings.compress_level) = (kind, level);
        self
    }

    /// Longest body, bytes before compression; default 4 MiB.
    #[must_use]
    pub fn max_message_size(mut self, bytes: usize) -> Self {
        self.settings.max_message_size = bytes;
        self
    }

    /// Most messages on their way at one time; further sends wait for a place. Default 1024.
    #[must_use]
    pub fn max_in_flight(mut self, messages: usize) -> Self {
        self.settings.max_in_flight = messages.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Template of topics that a send creates; default `TBW102`.
    #[must_use]
    pub fn create_topic_key(mut self, topic: impl Into<String>) -> Self {
        self.settings.create_topic_key = topic.into();
        self
    }

    /// Queues of topics that a send creates; default 4.
    #[must_use]
    pub fn default_topic_queue_nums(mut self, queues: u16) -> Self {
        self.settings.default_topic_queue_nums = i32::from(queues);
        self
    }

    /// Whether messages belong to a unit.
    #[must_use]
    pub fn unit_mode(mut self, on: bool) -> Self {
        self.settings.unit_mode = on;
        self
    }

    /// Leave brokers alone for a while that answer slowly or fail (`sendLatencyFaultEnable`); default false.
    #[must_use]
    pub fn send_latency_fault_enable(mut self, on: bool) -> Self {
        self.settings.send_latency_fault = on;
        self
    }

    /// Probe brokers that can't be reached, and send there only when they can (`startDetectorEnable`); default false.
    /// Has an effect with [`send_latency_fault_enable`](Self::send_latency_fault_enable).
    #[must_use]
    pub fn start_detector_enable(mut self, on: bool) -> Self {
        self.settings.start_detector = on;
        self
    }

    /// How long a probe may take, and how often a broker is probed; default 200 ms and 2 s.
    #[must_use]
    pub fn detector(mut self, timeout: Duration, interval: Duration) -> Self {
        (self.settings.detect_timeout, self.settings.detect_interval) = (timeout, interval);
        self
    }

    /// Send messages together that are sent soon after each other and have one topic and tag; default false. Each send waits a
    /// little longer and gets its own result, and many of them are one request. It is for many small messages that are
    /// sent at the same time; a task that sends one after another only gets slower.
    ///
    /// Sent alone, as without it: messages with a delay or in a transaction, replies, large ones, those sent with a
    /// [time-out](Producer::send_with_timeout). Messages in a batch are not compressed. Brokers give all messages of a
    /// batch, as those of [`send_batch`](Producer::send_batch), one id in the eyes of consumers; of
    /// [`SendResult`]s the offset ids are those that consumers see.
    #[must_use]
    pub fn auto_batch(mut self, on: bool) -> Self {
        self.settings.auto_batch.enabled = on;
        self
    }

    /// How long [`auto_batch`](Self::auto_batch) holds a message back, from 1 ms to 30 s; default 10 ms.
    #[must_use]
    pub fn batch_max_delay(mut self, delay: Duration) -> Self {
        self.settings.auto_batch.delay_max = delay;
        self
    }

    /// Most bytes of a batch, bodies and properties, up to 2 MiB; default 32 KiB. Larger messages are sent alone.
    #[must_use]
    pub fn batch_max_bytes(mut self, bytes: usize) -> Self {
        self.settings.auto_batch.bytes_max = bytes;
        self
    }

    /// Bytes of all messages that are held back or on their way in batches, above which messages are sent alone; default
    /// 32 MiB.
    #[must_use]
    pub fn total_batch_max_bytes(mut self, bytes: usize) -> Self {
        self.settings.auto_batch.total_bytes_max = bytes;
        self
    }

    /// Trace what becomes of messages (`enableTrace`); default false. Consumers of the messages trace their part if they are
    /// told so, too.
    #[must_use]
    pub fn enable_trace(mut self, on: bool) -> Self {
        self.settings.trace.enabled = on;
        self
    }

    /// The topic of the trace (`traceTopic`); default `RMQ_SYS_TRACE_TOPIC`, which brokers have with `traceTopicEnable`.
    #[must_use]
    pub fn trace_topic(mut self, topic: impl Into<String>) -> Self {
        self.settings.trace.topic = Some(topic.into());
        self
    }

    /// Starts the producer.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the group's name can't be used, [`Error::GroupInUse`], [`Error::Closed`]. A topic without
    /// route is no error.
    pub async fn start(self) -> Result<Producer, Error> {
        self.start_with(None).await
    }

    /// Starts a producer of transactional messages. `check` is asked by brokers what became of a transaction of this group
    /// of which they did not hear: perhaps one that another process began.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_transactional<F>(
        self,
        check: impl Fn(MessageExt) -> F + Send + Sync + 'static,
    ) -> Result<TransactionProducer, Error>
    where
        F: Future<Output = LocalTransactionState> + Send + 'static,
    {
        let check = TransactionCheck::new(check);
        Ok(TransactionProducer::new(self.start_with(Some(check)).await?))
    }

    async fn start_with(self, check: Option<TransactionCheck>) -> Result<Producer, Error> {
        validate::group(&self.group)?;
        self.settings.auto_batch.check()?;
        self.settings.trace.check()?;
        let instance = self.client.instance().clone();
        let core = Arc::new(ProducerCore::new(instance.clone(), self.group, self.settings));
        instance.join_producer(&core.group, ProducerMember { core: core.clone(), check })?;
        // From here on a drop of the handle undoes the registration, also when this future is dropped.
        let handle = Arc::new(Handle { core: core.clone(), _client: self.client });
        if core.faults.is_some() && core.settings.start_detector {
            let closed = core.closed.clone();
            instance.spawn(async move {
                closed.run_until_cancelled_owned(core.detect()).await;
            });
        }
        for topic in self.topics {
            let wanted = instance.publish_route(&topic, handle.core.settings.default_topic_queue_nums).await;
            if let Err(error) = wanted {
                tracing::debug!(%error, "the route will be looked for with the first message");
            }
        }
        instance.heartbeat(Round::All).await;
        Ok(Producer { handle })
    }
}
