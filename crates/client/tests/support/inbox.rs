//! What listeners of a test got.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_client::{MessageExt, MessageQueue};
use parking_lot::Mutex;

/// Collects messages, with the name of the consumer that got them.
#[derive(Clone, Default)]
pub(crate) struct Inbox {
    messages: Arc<Mutex<Vec<Got>>>,
}

type Got = (String, Arc<MessageExt>);

impl Inbox {
    pub(crate) fn put(&self, consumer: &str, messages: &[Arc<MessageExt>]) {
        let named = messages.iter().map(|message| (consumer.to_owned(), message.clone()));
        self.messages.lock().extend(named);
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.lock().len()
    }

    /// How often each body came.
    pub(crate) fn bodies(&self) -> BTreeMap<String, usize> {
        let mut bodies = BTreeMap::new();
        for (_, message) in self.messages.lock().iter() {
            *bodies.entry(String::from_utf8_lossy(&message.body).into_owned()).or_default() += 1;
        }
        bodies
    }

    /// How many messages each consumer got.
    pub(crate) fn by_consumer(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (consumer, _) in self.messages.lock().iter() {
            *counts.entry(consumer.clone()).or_default() += 1;
        }
        counts
    }

    /// The offsets of each queue in the order in which they came.
    pub(crate) fn by_queue(&self) -> BTreeMap<MessageQueue, Vec<i64>> {
        let mut queues: BTreeMap<MessageQueue, Vec<i64>> = BTreeMap::new();
        for (_, message) in self.messages.lock().iter() {
            queues.entry((*message.queue).clone()).or_default().push(message.queue_offset);
        }
        queues
    }

    pub(crate) fn messages(&self) -> Vec<Arc<MessageExt>> {
        self.messages.lock().iter().map(|(_, message)| message.clone()).collect()
    }

    pub(crate) fn clear(&self) {
        self.messages.lock().clear();
    }
}
