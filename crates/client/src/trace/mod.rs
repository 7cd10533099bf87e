//! Message trace: what producers and consumers did with a message, as messages of a topic of its own
//! (`docs/spec/07-client.md` 11).
//!
//! [`sent`] and [`consumed`] make [`record`]s of what happens, [`dispatcher`] sends them in the background. Nothing waits for
//! it: when more happens than can be sent, records are dropped and counted, and a send never fails because of its trace.

mod consumed;
mod dispatcher;
mod record;
mod sent;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferromq_protocol::names::TRACE_TOPIC;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::instance::Instance;
use crate::message::MessageExt;
use crate::meters;
use crate::validate;
pub(crate) use consumed::TracedDelivery;
use dispatcher::Dispatcher;
pub(crate) use record::decode;
pub use record::{ConsumeReturn, MessageType, TraceRecord};
pub(crate) use sent::{Ended, Subject};

/// Events that wait to be sent; what comes on top of that is dropped.
const QUEUE_MAX: usize = 2048;

/// Region of brokers that do not say theirs.
const DEFAULT_REGION: &str = "DefaultRegion";

/// Whether and where to a producer or consumer writes a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceSettings {
    pub(crate) enabled: bool,
    /// `None`: RocketMQ's own topic.
    pub(crate) topic: Option<String>,
}

impl TraceSettings {
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.topic.as_deref().map_or(Ok(()), validate::topic)
    }
}

/// What is traced: the two have groups of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Produce,
    Consume,
}

/// Records of one event, about messages of one topic.
#[derive(Debug)]
struct Event {
    topic: String,
    records: Vec<TraceRecord>,
}

/// Where a producer or consumer hands in what it does. When the last of its clones is dropped, what was handed in is sent and
/// the trace ends.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    group: Arc<str>,
    topic: Arc<str>,
    events: mpsc::Sender<Event>,
    losses: Arc<Losses>,
    closing: CancellationToken,
    dispatching: TaskTracker,
}

impl Trace {
    /// Starts the trace of a group, if it is wanted.
    pub(crate) fn start(
        instance: &Arc<Instance>,
        settings: &TraceSettings,
        role: Role,
        group: &str,
    ) -> Option<Self> {
        if !settings.enabled {
            return None;
        }
        let topic: Arc<str> = settings.topic.as_deref().unwrap_or(TRACE_TOPIC).into();
        let (events, queue) = mpsc::channel(QUEUE_MAX);
        let lost = meters::trace_records_lost(&instance.identity.client_id, group);
        let losses = Arc::new(Losses { lost, unreported: AtomicU64::new(0) });
        let (closing, dispatching) = (CancellationToken::new(), TaskTracker::new());
        let dispatcher = Dispatcher::new(instance, role, group, &topic, queue, losses.clone());
        instance.spawn(dispatching.track_future(dispatcher.run(closing.clone())));
        dispatching.close();
        Some(Self { group: group.into(), topic, events, losses, closing, dispatching })
    }

    /// Sends what was handed in and ends. What comes later is dropped.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.dispatching.wait().await;
    }

    /// Whether messages of a topic are traced: not those that are themselves a trace.
    fn concerns(&self, topic: &str) -> bool {
        topic != &*self.topic && topic != TRACE_TOPIC
    }

    /// Hands in what happened, without waiting.
    fn put(&self, topic: &str, records: Vec<TraceRecord>) {
        if records.is_empty() {
            return;
        }
        let event = Event { topic: topic.to_owned(), records };
        if let Err(refused) = self.events.try_send(event) {
            self.losses.add(refused.into_inner().records.len());
        }
    }
}

/// Counts the records that were not sent.
#[derive(Debug)]
struct Losses {
    lost: meters::LossMeter,
    /// Those that the log does not tell of yet.
    unreported: AtomicU64,
}

impl Losses {
    fn add(&self, records: usize) {
        self.lost.add(records);
        self.unreported.fetch_add(records as u64, Ordering::Relaxed);
    }

    fn take_unreported(&self) -> u64 {
        self.unreported.swap(0, Ordering::Relaxed)
    }
}

/// Whether the broker that stored a message wanted it traced.
fn is_wanted(message: &MessageExt) -> bool {
    message.property("TRACE_ON") != Some("false")
}

/// Region of the broker that stored a message.
fn region(message: &MessageExt) -> &str {
    message.property("MSG_REGION").filter(|region| !region.is_empty()).unwrap_or(DEFAULT_REGION)
}
