//! Taking a timer message back before it is delivered (`docs/spec/07-client.md` 8.3).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::names::{DLQ_PREFIX, RETRY_PREFIX};

use super::Producer;
use crate::error::{Destination, Error};
use crate::validate;

/// Name of the broker in a recall handle.
fn broker_of(handle: &str) -> Option<String> {
    let text = String::from_utf8(URL_SAFE.decode(handle).ok()?).ok()?;
    let mut parts = text.split(' ');
    let (version, _topic, broker) = (parts.next()?, parts.next()?, parts.next()?);
    (version == "v1" && parts.count() >= 2).then(|| broker.to_owned())
}

impl Producer {
    /// Takes a timer message back that was not delivered yet: nobody gets it. `handle` is the
    /// [`recall_handle`](super::SendResult::recall_handle) of its receipt. Returns the id of the message that was taken
    /// back.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no handle; [`Error::Refused`] if it is too late.
    pub async fn recall_message(&self, topic: &str, handle: &str) -> Result<String, Error> {
        validate::topic(topic)?;
        if topic.starts_with(RETRY_PREFIX) || topic.starts_with(DLQ_PREFIX) {
            return Err(Error::invalid(format!("topic `{topic}`"), "its messages can't be recalled"));
        }
        let invalid = || Error::invalid("recall", "recall handle is invalid");
        let broker = broker_of(handle).ok_or_else(invalid)?;
        let core = self.core();
        core.instance.publish_route(topic, core.settings.default_topic_queue_nums).await?;
        let known = core.instance.routes.master(&broker).map(|address| (broker.clone(), address.to_string()));
        let no_route = || Error::NoRoute { topic: topic.to_owned() };
        let (name, address) =
            known.or_else(|| core.instance.routes.any_broker(topic)).ok_or_else(no_route)?;
        let to = Destination { broker: &name, address: &address, topic };
        let command = RemotingCommand::request(request::RECALL_MESSAGE)
            .with("producerGroup", &core.group)
            .with("topic", topic)
            .with("recallHandle", handle)
            .with("bname", &broker);
        let answer = core.instance.transport.done(to, command, core.settings.send_msg_timeout).await?;
        let id = answer.text("msgId").map_err(|error| to.malformed("RECALL_MESSAGE", error))?;
        if let Some(trace) = &core.trace {
            trace.recalled(topic, id, answer.field("MSG_REGION"));
        }
        Ok(id.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handle_of_the_spec_25_5() {
        let handle =
            "djEgVG9waWNUZXN0IGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgMEEwMDAwMDExRjQwMThCNEFBQzIwMDAwMDNFODAwMDc=";
        assert_eq!(broker_of(handle).as_deref(), Some("broker-a"));
        for bad in ["", "?", &URL_SAFE.encode("v2 T b 1 id"), &URL_SAFE.encode("v1 T b")] {
            assert_eq!(broker_of(bad), None, "{bad}");
        }
    }
}
