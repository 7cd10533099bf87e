//! What producers do, as records.

use std::time::Duration;

use super::record::{MessageType, TraceRecord};
use super::{DEFAULT_REGION, Trace, is_wanted, region};
use crate::consumer::subscription::now_ms;
use crate::message::{Message, MessageExt, Properties, properties as names};
use crate::producer::{LocalTransactionState, SendResult, SendStatus};

/// What a trace tells of a message that is sent; noted before it is.
#[derive(Debug)]
pub(crate) struct Subject {
    msg_id: String,
    tags: Option<String>,
    keys: Option<String>,
    body_length: usize,
    message_type: MessageType,
}

impl Subject {
    /// Of a message that has its id. `body_length` is that of the body as it will be sent.
    pub(crate) fn new(message: &Message, body_length: usize) -> Self {
        let property = |name| message.get_property(name).map(str::to_owned);
        let delays = [names::DELAY, names::TIMER_DELAY_MS, names::TIMER_DELIVER_MS];
        let message_type = if delays.iter().any(|name| message.get_property(name).is_some()) {
            MessageType::Delay
        } else if message.get_property(names::TRAN_MSG) == Some("true") {
            MessageType::TransactionHalf
        } else {
            MessageType::Normal
        };
        Self {
            msg_id: property(names::UNIQ_KEY).unwrap_or_default(),
            tags: property(names::TAGS),
            keys: property(names::KEYS),
            body_length,
            message_type,
        }
    }

    /// The body will be sent in another form.
    pub(crate) fn set_body_length(&mut self, body_length: usize) {
        self.body_length = body_length;
    }
}

/// What a trace tells of a message whose transaction ends; noted before it does.
#[derive(Debug)]
pub(crate) struct Ended {
    topic: String,
    tags: Option<String>,
    keys: Option<String>,
    region_id: String,
    is_wanted: bool,
}

impl Ended {
    fn new(topic: &str, properties: &Properties, region_id: &str, is_wanted: bool) -> Self {
        let property = |name: &str| properties.get(name).map(str::to_owned);
        Self {
            topic: topic.to_owned(),
            tags: property(names::TAGS),
            keys: property(names::KEYS),
            region_id: region_id.to_owned(),
            is_wanted,
        }
    }

    /// Of a message of ours that was just sent.
    pub(crate) fn of_sent(message: &Message) -> Self {
        Self::new(&message.topic, &message.properties, DEFAULT_REGION, true)
    }

    /// Of a message that a broker asks about.
    pub(crate) fn of_checked(message: &MessageExt) -> Self {
        Self::new(message.topic(), &message.properties, region(message), is_wanted(message))
    }
}

impl Trace {
    /// What there is to note of messages of a topic before they are sent: nothing if they are not traced.
    pub(crate) fn subjects(&self, topic: &str, note: impl FnOnce() -> Vec<Subject>) -> Vec<Subject> {
        if self.concerns(topic) { note() } else { Vec::new() }
    }

    /// A broker has answered a send. `cost` is how long that took.
    pub(crate) fn sent(&self, subjects: &[Subject], store_host: &str, cost: Duration, result: &SendResult) {
        if !result.trace_on {
            return;
        }
        let cost_ms = cost.as_millis() as i64;
        let timestamp = now_ms() - cost_ms;
        // A batch has one for each message.
        let mut offset_msg_ids = result.offset_msg_id.split(',');
        let records = subjects.iter().map(|subject| TraceRecord::Pub {
            timestamp,
            region_id: result.region_id.clone(),
            group: self.group.to_string(),
            topic: result.queue.topic.clone(),
            msg_id: subject.msg_id.clone(),
            tags: subject.tags.clone(),
            keys: subject.keys.clone(),
            store_host: store_host.to_owned(),
            body_length: subject.body_length,
            cost_ms,
            message_type: subject.message_type,
            offset_msg_id: Some(offset_msg_ids.next().unwrap_or_default().to_owned()),
            success: result.status == SendStatus::SendOk,
            client_host: None,
        });
        self.put(&result.queue.topic, records.collect());
    }

    /// A broker is told what became of a transaction.
    pub(crate) fn ended(
        &self,
        ended: Ended,
        msg_id: &str,
        store_host: &str,
        state: LocalTransactionState,
        from_check: bool,
    ) {
        if !ended.is_wanted || !self.concerns(&ended.topic) {
            return;
        }
        let record = TraceRecord::EndTransaction {
            timestamp: now_ms(),
            region_id: ended.region_id,
            group: self.group.to_string(),
            topic: ended.topic.clone(),
            msg_id: msg_id.to_owned(),
            tags: ended.tags,
            keys: ended.keys,
            store_host: store_host.to_owned(),
            message_type: MessageType::TransactionCommit,
            transaction_id: msg_id.to_owned(),
            state: state.name().to_owned(),
            from_check,
        };
        self.put(&ended.topic, vec![record]);
    }

    /// A broker has taken a message back. Brokers that do not say their region do not want it traced.
    pub(crate) fn recalled(&self, topic: &str, msg_id: &str, region_id: Option<&str>) {
        let Some(region_id) = region_id.filter(|_| self.concerns(topic)) else { return };
        let record = TraceRecord::Recall {
            timestamp: now_ms(),
            region_id: region_id.to_owned(),
            group: self.group.to_string(),
            topic: topic.to_owned(),
            msg_id: msg_id.to_owned(),
            success: true,
        };
        self.put(topic, vec![record]);
    }
}
