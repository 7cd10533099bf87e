//! What consumers do, as records.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::record::{ConsumeReturn, TraceRecord};
use super::{Trace, is_wanted, region};
use crate::consumer::subscription::now_ms;
use crate::message::{MessageExt, next_unique_id, properties as names};

/// Messages that a listener has, whose trace says so already.
#[must_use]
pub(crate) struct TracedDelivery<'a> {
    trace: &'a Trace,
    request_id: String,
    messages: Vec<Arc<MessageExt>>,
    started: Instant,
}

impl Trace {
    /// A listener gets messages, all of one queue. `None`: they are not traced.
    pub(crate) fn delivery(&self, messages: &[Arc<MessageExt>]) -> Option<TracedDelivery<'_>> {
        let topic = messages.first()?.topic();
        if !self.concerns(topic) || !messages.iter().any(|message| is_wanted(message)) {
            return None;
        }
        let (timestamp, request_id) = (now_ms(), next_unique_id());
        let wanted = messages.iter().filter(|message| is_wanted(message));
        let records = wanted.map(|message| TraceRecord::SubBefore {
            timestamp,
            region_id: region(message).to_owned(),
            group: self.group.to_string(),
            request_id: request_id.clone(),
            msg_id: message.msg_id().into_owned(),
            retry_times: message.reconsume_times,
            keys: keys(message),
        });
        self.put(topic, records.collect());
        let (messages, started) = (messages.to_vec(), Instant::now());
        Some(TracedDelivery { trace: self, request_id, messages, started })
    }
}

impl TracedDelivery<'_> {
    /// The listener is back: the first `succeeded` messages are consumed.
    pub(crate) fn end(self, succeeded: usize, has_panicked: bool, consume_timeout: Duration) {
        let elapsed = self.started.elapsed();
        let cost_ms = elapsed.as_millis() as i64 / self.messages.len().max(1) as i64;
        let timestamp = now_ms();
        let records = self.messages.iter().enumerate().filter(|(_, message)| is_wanted(message));
        let records = records.map(|(position, message)| {
            let success = position < succeeded;
            let returned = if has_panicked {
                ConsumeReturn::Exception
            } else if elapsed >= consume_timeout {
                ConsumeReturn::TimeOut
            } else if success {
                ConsumeReturn::Success
            } else {
                ConsumeReturn::Failed
            };
            TraceRecord::SubAfter {
                request_id: self.request_id.clone(),
                msg_id: message.msg_id().into_owned(),
                cost_ms,
                success,
                keys: keys(message),
                returned: Some(returned),
                timestamp: Some(timestamp),
                group: Some(self.trace.group.to_string()),
            }
        });
        let topic = self.messages.first().map(|message| message.topic()).unwrap_or_default();
        self.trace.put(topic, records.collect());
    }
}

fn keys(message: &MessageExt) -> Option<String> {
    message.property(names::KEYS).map(str::to_owned)
}
