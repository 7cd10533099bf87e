//! What the message trace tells of a message (`docs/spec/07-client.md` 11).

use std::net::SocketAddr;
use std::ops::Range;

use super::Admin;
use crate::error::Error;
use crate::trace::{TraceRecord, decode};

/// Messages of a trace that are looked at, for each broker: so many tell of one message if it is retried very often.
const TRACE_MESSAGES_MAX: i32 = 1024;

/// A record of the trace, and who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageTrace {
    /// What happened.
    pub record: TraceRecord,
    /// Address of the client that says so.
    pub client_host: SocketAddr,
    /// When the record was stored, ms of the broker's clock.
    pub store_timestamp: i64,
}

impl Admin {
    /// What producers and consumers with [`enable_trace`](crate::ProducerBuilder::enable_trace) did with a message, by its id
    /// ([`SendResult::msg_id`](crate::SendResult::msg_id)) or one of its keys, in the order in which it was written down.
    /// Clients write some seconds later. `trace_topic` is where they write to, as a rule
    /// [`TRACE_TOPIC`](crate::protocol::names::TRACE_TOPIC); `stored` is when that was, ms since the epoch.
    ///
    /// # Errors
    /// If a broker of the trace topic does not answer, or none has it.
    pub async fn message_trace(
        &self,
        trace_topic: &str,
        id_or_key: &str,
        stored: Range<i64>,
    ) -> Result<Vec<MessageTrace>, Error> {
        let messages = self.query_message_by_key(trace_topic, id_or_key, TRACE_MESSAGES_MAX, stored).await?;
        let mut traces = Vec::new();
        for message in messages {
            let text = String::from_utf8_lossy(&message.body);
            let concerned = decode(&text)
                .filter(|record| record.msg_id() == id_or_key || record.keys().any(|key| key == id_or_key));
            traces.extend(concerned.map(|record| MessageTrace {
                record,
                client_host: message.born_host,
                store_timestamp: message.store_timestamp,
            }));
        }
        Ok(traces)
    }
}
