//! Consume queues: per queue of a topic, where its messages lie in the log.

mod consume_queue;

pub use consume_queue::{ConsumeQueue, QueueWatch};
