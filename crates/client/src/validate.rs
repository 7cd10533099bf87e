//! What the client refuses before a broker sees it (`docs/spec/07-client.md` 7.1).

use ferromq_protocol::names;

use crate::error::Error;
use crate::message::Message;

/// Longest name of a group, characters.
const GROUP_LENGTH_MAX: usize = 120;

/// Group names that stand for "none was chosen".
const DEFAULT_GROUPS: [&str; 2] = ["DEFAULT_PRODUCER", "DEFAULT_CONSUMER"];

/// Checks the name of a producer or consumer group.
pub(crate) fn group(group: &str) -> Result<(), Error> {
    let refuse = |reason: String| Err(Error::invalid(format!("group `{group}`"), reason));
    if group.trim().is_empty() {
        refuse("it is blank".to_owned())
    } else if group.len() > GROUP_LENGTH_MAX {
        refuse(format!("it is longer than {GROUP_LENGTH_MAX} characters"))
    } else if !names::has_legal_characters(group) {
        refuse("it contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$".to_owned())
    } else if DEFAULT_GROUPS.contains(&group) {
        refuse("this name stands for none, specify another one".to_owned())
    } else {
        Ok(())
    }
}

/// Checks the name of a topic.
pub(crate) fn topic(topic: &str) -> Result<(), Error> {
    names::check_topic(topic).map_err(|error| Error::invalid(format!("topic `{topic}`"), error.to_string()))
}

/// Checks a message that is to be sent. Its topic must have been looked at already.
pub(crate) fn message(message: &Message, body_bytes_max: usize) -> Result<(), Error> {
    topic(&message.topic)?;
    if names::is_forbidden_to_clients(&message.topic) {
        let topic = &message.topic;
        return Err(Error::invalid(
            format!("topic `{topic}`"),
            format!("Sending message to topic[{topic}] is forbidden."),
        ));
    }
    message.check_properties()?;
    let size = message.body.len();
    if size == 0 {
        return Err(Error::invalid("message", "its body is empty"));
    }
    if size > body_bytes_max {
        let reason = format!("its body has {size} bytes, the limit is {body_bytes_max}");
        return Err(Error::invalid("message", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups() {
        for good in ["g", "%RETRY%g", "a|b_c-d", &"g".repeat(120)] {
            assert!(group(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a b", "grüße", &"g".repeat(121), "DEFAULT_PRODUCER", "DEFAULT_CONSUMER"] {
            assert!(group(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn messages() {
        let reason = |m: Message| message(&m, 10).unwrap_err().to_string();
        assert!(message(&Message::new("T", "0123456789"), 10).is_ok());
        assert!(reason(Message::new("T", "0123456789a")).contains("11 bytes, the limit is 10"));
        assert!(reason(Message::new("T", "")).contains("empty"));
        assert!(reason(Message::new("T".repeat(128), "x")).contains("longer"));
        assert!(reason(Message::new("SCHEDULE_TOPIC_XXXX", "x")).contains("forbidden"));
        assert!(reason(Message::new("T", "x").property("WAIT", "x")).contains("used by the system"));
    }
}
