//! Messages that are answered by their consumers (`docs/spec/07-client.md` 10).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Producer;
use crate::error::Error;
use crate::instance::{Instance, Round};
use crate::message::{Message, MessageExt, properties as names};

/// Value of the property by which a message is known as a reply.
pub(super) const REPLY: &str = "reply";

/// Requests that wait for a reply, by correlation id.
#[derive(Debug, Default)]
pub(crate) struct PendingReplies {
    waiting: Mutex<HashMap<String, oneshot::Sender<MessageExt>>>,
}

impl PendingReplies {
    /// Hands a reply to whoever waits for it. A reply that nobody waits for (any more) is dropped.
    pub(crate) fn complete(&self, reply: MessageExt) {
        let id = reply.property(names::CORRELATION_ID).unwrap_or_default();
        match self.waiting.lock().remove(id) {
            // The waiting side may give up at the same moment.
            Some(waiting) => drop(waiting.send(reply)),
            None => tracing::warn!(id, "a reply came that nobody waits for"),
        }
    }

    fn wait(self: &PendingReplies, id: &str) -> oneshot::Receiver<MessageExt> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().insert(id.to_owned(), sender);
        receiver
    }
}

/// Forgets a request when its future ends or is dropped.
struct Waiting {
    instance: Arc<Instance>,
    id: String,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.instance.replies.waiting.lock().remove(&self.id);
    }
}

impl Producer {
    /// Sends a message and waits for the reply that a consumer makes with [`MessageExt::reply`].
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Error::Timeout`] if the message was sent but no reply came in time.
    pub async fn request(&self, message: Message, timeout: Duration) -> Result<MessageExt, Error> {
        let core = self.core();
        let (instance, deadline) = (core.instance.clone(), Instant::now() + timeout);
        let topic = message.topic.clone();
        if instance.routes.get(&topic).is_none() {
            // Brokers push replies to clients that they have heard of.
            instance.publish_route(&topic, core.settings.default_topic_queue_nums).await?;
            instance.heartbeat(Round::All).await;
        }
        let id = correlation_id();
        let message = message
            .system(names::CORRELATION_ID, &*id)
            .system(names::REPLY_TO_CLIENT, &*instance.identity.client_id)
            .system(names::TTL, timeout.as_millis().to_string());
        let reply = instance.replies.wait(&id);
        let _waiting = Waiting { instance, id };
        self.send_with_timeout(message, deadline.saturating_duration_since(Instant::now())).await?;
        let late =
            || Error::Timeout { what: format!("the reply to a message that was sent to {topic}"), timeout };
        timeout_at(deadline, reply).await.map_err(|_| late())?.map_err(|_| late())
    }
}

impl MessageExt {
    /// The reply to this message, to be sent with any [`Producer`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the message does not ask for one.
    pub fn reply(&self, body: impl Into<Bytes>) -> Result<Message, Error> {
        let no_request = || Error::invalid("reply", "the message does not ask for one");
        let cluster = self.property(names::CLUSTER).ok_or_else(no_request)?;
        let id = self.property(names::CORRELATION_ID).ok_or_else(no_request)?;
        let client = self.property(names::REPLY_TO_CLIENT).ok_or_else(no_request)?;
        Ok(Message::new(format!("{cluster}_REPLY_TOPIC"), body)
            .system(names::MESSAGE_TYPE, REPLY)
            .system(names::CORRELATION_ID, id)
            .system(names::REPLY_TO_CLIENT, client)
            .system(names::TTL, self.property(names::TTL).unwrap_or_default()))
    }
}

/// A random UUID.
fn correlation_id() -> String {
    const VERSION_4: u128 = 4 << 76;
    const VARIANT: u128 = 2 << 62;
    let random = fastrand::u128(..) & !(0xf << 76) & !(3 << 62) | VERSION_4 | VARIANT;
    let hex = format!("{random:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::testing::message;

    #[test]
    fn a_reply_goes_back_to_who_asked() {
        let mut request = message("T", 0);
        assert!(request.reply("x").is_err(), "it was not asked for");
        for (name, value) in
            [("CLUSTER", "C"), ("CORRELATION_ID", "id"), ("REPLY_TO_CLIENT", "c@1"), ("TTL", "3000")]
        {
            request.properties.insert(name, value);
        }
        let reply = request.reply("x").unwrap();
        assert_eq!((reply.topic(), reply.get_property("MSG_TYPE")), ("C_REPLY_TOPIC", Some("reply")));
        assert_eq!(
            (reply.get_property("CORRELATION_ID"), reply.get_property("TTL")),
            (Some("id"), Some("3000"))
        );
    }

    #[test]
    fn correlation_ids_are_uuids() {
        let id = correlation_id();
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "4");
        assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
    }
}
