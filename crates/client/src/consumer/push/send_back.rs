//! Messages that were not consumed go back to a broker (`docs/spec/07-client.md` 15.1).

use std::borrow::Cow;

use ferromq_protocol::names::retry_topic;

use super::core::PushCore;
use crate::instance::route::is_logical;
use crate::message::properties as names;
use crate::message::{Message, MessageExt};

/// Delay level of the first retry.
const FIRST_RETRY_LEVEL: i32 = 3;

impl PushCore {
    /// Gives a message back; it comes again after a delay, or becomes a dead letter. False: it is still here.
    pub(super) async fn send_back(&self, message: &MessageExt, delay_level: i32, times_max: i32) -> bool {
        let subscriber = &self.subscriber;
        if !is_logical(&message.queue.broker_name) {
            match subscriber.instance.send_back(&subscriber.group, message, delay_level, times_max).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(id = %message.msg_id(), %error, "not given back, a copy is sent instead");
                }
            }
        }
        self.send_to_retry_topic(message, times_max).await
    }

    /// Sends a copy to the group's retry topic. False if that failed too.
    pub(super) async fn send_to_retry_topic(&self, message: &MessageExt, times_max: i32) -> bool {
        let copy = retry_of(&self.subscriber.group, message, times_max);
        let sent = self.inner_producer.send(copy).await;
        sent.inspect_err(|error| tracing::error!(id = %message.msg_id(), %error, "no retry was sent")).is_ok()
    }
}

/// What is sent to a retry topic: the message, and what the broker has to know of its past.
fn retry_of(group: &str, message: &MessageExt, times_max: i32) -> Message {
    let mut copy = message.to_message(retry_topic(group));
    for name in [names::TRAN_MSG, names::MIN_OFFSET, names::MAX_OFFSET] {
        copy.properties.remove(name);
    }
    let origin = message.property(names::ORIGIN_MESSAGE_ID).map_or_else(|| message.msg_id(), Cow::Borrowed);
    let tries = message.reconsume_times.saturating_add(1);
    let delay_level = FIRST_RETRY_LEVEL.saturating_add(message.reconsume_times);
    copy.system(names::ORIGIN_MESSAGE_ID, origin)
        .system(names::RETRY_TOPIC, message.topic())
        .system(names::RECONSUME_TIME, tries.to_string())
        .system(names::MAX_RECONSUME_TIMES, times_max.to_string())
        .system(names::DELAY, delay_level.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::message;
    use super::*;

    #[test]
    fn a_retry_tells_its_past() {
        let mut message = message("Orders", 3);
        message.reconsume_times = 2;
        message.properties.insert(names::UNIQ_KEY, "id");
        message.properties.insert(names::TRAN_MSG, "true");
        let retry = retry_of("g", &message, 16);
        assert_eq!((retry.topic(), &retry.body()[..]), ("%RETRY%g", &b"x"[..]));
        let property = |name| retry.get_property(name);
        assert_eq!(
            (property(names::RETRY_TOPIC), property(names::ORIGIN_MESSAGE_ID)),
            (Some("Orders"), Some("id"))
        );
        assert_eq!((property(names::RECONSUME_TIME), property(names::DELAY)), (Some("3"), Some("5")));
        assert_eq!((property(names::MAX_RECONSUME_TIMES), property(names::TRAN_MSG)), (Some("16"), None));
    }
}
