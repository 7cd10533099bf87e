//! What the rest of a client needs to know of its consumers.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use ferromq_protocol::body::{ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo, MessageQueue};

use crate::message::MessageExt;
use crate::producer::{ProducerCore, TransactionCheck};

/// A future that a trait object returns.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A producer as its client sees it.
#[derive(Clone, Debug)]
pub(crate) struct ProducerMember {
    pub(crate) core: Arc<ProducerCore>,
    /// With what brokers may ask it, if its messages are transactional.
    pub(crate) check: Option<TransactionCheck>,
}

/// A consumer as its client sees it.
pub(crate) trait ConsumerMember: Send + Sync {
    /// What brokers are told about it.
    fn heartbeat(&self) -> ConsumerData;

    /// The topics whose routes it needs.
    fn topics(&self) -> Vec<String>;

    /// Shares out the queues anew, soon.
    fn wake_rebalance(&self);

    /// Its offsets in a topic; in all topics if the name is empty.
    fn offsets(&self, topic: &str) -> BTreeMap<MessageQueue, i64>;

    /// What it does, for administrators.
    fn running_info(&self) -> ConsumerRunningInfo;

    /// Continues at other offsets, because an administrator says so.
    fn reset_offsets(self: Arc<Self>, topic: String, offsets: BTreeMap<MessageQueue, i64>) -> BoxFuture<()>;

    /// Hands one message to the listener, because an administrator says so. `None`: it has no listener.
    fn consume_directly(
        self: Arc<Self>,
        message: MessageExt,
    ) -> BoxFuture<Option<ConsumeMessageDirectlyResult>>;

    /// Stops it in an orderly way.
    fn shutdown(self: Arc<Self>) -> BoxFuture<()>;
}
