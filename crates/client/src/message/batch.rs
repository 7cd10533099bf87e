//! Several messages in one send (`docs/spec/07-client.md` 7.4).

use bytes::Bytes;
use ferromq_protocol::message::batch::{self, BatchMessage};
use ferromq_protocol::names::RETRY_PREFIX;

use super::{Message, properties as names};
use crate::error::Error;

/// Whether messages can be one batch; if not, why. They have one topic and one `WAIT`, and none is delayed or a retry.
pub(crate) fn check(messages: &[Message]) -> Result<(), Error> {
    let Some(first) = messages.first() else { return Err(Error::invalid("batch", "it is empty")) };
    for message in messages {
        let wrong = if message.topic != first.topic {
            "its messages must have one topic"
        } else if message.get_property(names::WAIT) != first.get_property(names::WAIT) {
            "its messages must wait for the store alike"
        } else if message.topic.starts_with(RETRY_PREFIX) {
            "retries can't be sent in batches"
        } else if message.delay_level_or_0() > 0
            || message.get_property(names::TIMER_DELAY_MS).is_some()
            || message.get_property(names::TIMER_DELIVER_MS).is_some()
        {
            "delayed messages can't be sent in batches"
        } else {
            continue;
        };
        return Err(Error::invalid("batch", wrong));
    }
    Ok(())
}

/// Bytes of a message in a batch beside its body and properties.
const HEAD_BYTES: usize = 22;

/// Bytes that a message takes in a batch.
pub(crate) fn size(message: &Message) -> usize {
    HEAD_BYTES + message.body.len() + message.properties.encoded().len()
}

/// One message that carries all of `messages`, which have their unique ids already.
pub(crate) fn pack(messages: &[Message]) -> Result<Message, Error> {
    let mut body = Vec::with_capacity(messages.iter().map(size).sum());
    for (position, message) in messages.iter().enumerate() {
        let part = BatchMessage {
            flag: message.flag,
            body: &message.body,
            properties: message.properties.encoded(),
        };
        if !batch::append(&mut body, &part) {
            let reason = format!("the properties of message {position} are longer than 32767 bytes");
            return Err(Error::invalid("batch", reason));
        }
    }
    let first = &messages[0];
    let wait = first.get_property(names::WAIT).unwrap_or("true");
    let mut packed = Message::new(first.topic.clone(), Bytes::from(body)).system(names::WAIT, wait);
    packed.identify();
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Properties;

    #[test]
    fn the_body_of_the_spec_25_4() {
        let mut first = Message::new("T", "hi").flag(7).tag("A");
        first.properties.remove(names::WAIT);
        let mut second = Message::new("T", "x");
        second.properties = Properties::default();
        let bytes = size(&first) + size(&second);
        let packed = pack(&[first, second]).unwrap();
        assert_eq!(packed.body.len(), bytes);
        let expected: &[u8] = b"\0\0\0\x1f\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\x02hi\0\x07TAGS\x01A\x02\
            \0\0\0\x17\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01x\0\0";
        assert_eq!(&packed.body[..], expected);
        assert_eq!(packed.properties.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["WAIT", "UNIQ_KEY"]);
    }

    #[test]
    fn unlike_messages_are_no_batch() {
        let reason = |messages: &[Message]| check(messages).unwrap_err().to_string();
        assert!(reason(&[]).contains("empty"));
        assert!(reason(&[Message::new("A", "x"), Message::new("B", "x")]).contains("one topic"));
        assert!(reason(&[Message::new("A", "x").delay_level(1)]).contains("delayed"));
        assert!(
            reason(&[Message::new("A", "x"), Message::new("A", "x").without_waiting_for_store()])
                .contains("alike")
        );
        assert!(reason(&[Message::new("%RETRY%g", "x")]).contains("retries"));
        assert!(check(&[Message::new("A", "x"), Message::new("A", "y")]).is_ok());
    }
}
