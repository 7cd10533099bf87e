//! Consuming messages.
//!
//! [`subscriber`] is what all consumers have in common; a [`rebalance`] gives it queues, [`pull`] brings their messages
//! into a [`process_queue`], and the two kinds of consumers differ in what comes then: [`push`] calls a listener,
//! [`lite_pull`] waits to be asked. A [`pop`] consumer has no queues: brokers lend it messages. So they do with a push
//! consumer to which they [assign](assignment) queues to be popped from.

mod allocate;
mod assignment;
mod consistent_hash;
mod lite_pull;
mod local_offsets;
mod offsets;
mod pop;
mod process_queue;
mod pull;
mod push;
mod rebalance;
mod stats;
mod subscriber;
pub(crate) mod subscription;
#[cfg(test)]
pub(crate) mod testing;
mod window;

pub use allocate::{AllocateStrategy, RoomOf};
pub use lite_pull::{LitePullConsumer, LitePullConsumerBuilder};
pub use pop::{PopConsumer, PopConsumerBuilder};
pub use push::{ConsumeOrderlyResult, ConsumeResult, Delivery, PushConsumer, PushConsumerBuilder};
pub use subscriber::ConsumeFrom;
pub use subscription::Filter;
