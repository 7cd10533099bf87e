//! From what the store did to what the producer is told (`docs/spec/03-broker.md` 2.9).

use std::borrow::Cow;

use ferromq_protocol::code::response;
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_protocol::header::{FieldOut, Head, write_response};
use ferromq_protocol::message::id::write_offset_id;
use ferromq_store::{AppendError, Outcome};

use crate::answer::Refusal;
use crate::broker::Broker;
use crate::config::BrokerConfig;

/// A send that is in the log.
#[derive(Clone, Debug)]
pub(super) struct Stored<'a> {
    pub(super) opaque: i32,
    pub(super) queue_id: i32,
    pub(super) queue_offset: i64,
    /// Empty if there is none.
    pub(super) unique_id: Cow<'a, str>,
    /// A batch in one record.
    pub(super) inner_batch: bool,
    pub(super) records: Cow<'a, [Outcome]>,
}

impl Stored<'_> {
    pub(super) fn into_owned(self) -> Stored<'static> {
        Stored {
            unique_id: Cow::Owned(self.unique_id.into_owned()),
            records: Cow::Owned(self.records.into_owned()),
            ..self
        }
    }

    /// Where the last of its records ends.
    pub(super) fn end(&self) -> u64 {
        self.records.last().map_or(0, Outcome::end)
    }

    /// Writes the answer with a code that counts as success. `ids` is scratch space.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        ids: &mut String,
        encoding: HeaderEncoding,
        broker: &Broker,
        config: &BrokerConfig,
        code: i32,
    ) {
        ids.clear();
        for (position, record) in self.records.iter().enumerate() {
            if position > 0 {
                ids.push(',');
            }
            write_offset_id(ids, broker.store_host(), record.physical_offset);
        }
        let fields = [
            ("msgId", FieldOut::Text(ids)),
            ("queueId", FieldOut::Number(i64::from(self.queue_id))),
            ("queueOffset", FieldOut::Number(self.queue_offset)),
            ("MSG_REGION", FieldOut::Text(&config.region_id)),
            ("TRACE_ON", FieldOut::Boolean(config.trace_on)),
            ("transactionId", FieldOut::Text(&self.unique_id)),
            ("batchUniqId", FieldOut::Text(&self.unique_id)),
        ];
        let ids = if self.unique_id.is_empty() { 0 } else { 1 + usize::from(self.inner_batch) };
        let count = fields.len() - 2 + ids;
        let fields = fields.into_iter().take(count);
        write_response(out, encoding, &Head::response(code, self.opaque, None), Some(fields), b"");
    }
}

/// Writes a refusal. Once a send's header was read, its answer carries the region, whatever it says (2.3 step 4).
pub(super) fn write_refusal(
    out: &mut Vec<u8>,
    encoding: HeaderEncoding,
    config: &BrokerConfig,
    opaque: i32,
    refusal: &Refusal,
) {
    let head = Head::response(refusal.code, opaque, Some(&refusal.remark));
    let fields = refusal.field_map.then(|| {
        [("MSG_REGION", FieldOut::Text(&config.region_id)), ("TRACE_ON", FieldOut::Boolean(config.trace_on))]
    });
    write_response(out, encoding, &head, fields, b"");
}

/// What a producer is told when the log refused its message.
pub(crate) fn refuse_append(broker: &Broker, error: &AppendError) -> Refusal {
    match error {
        AppendError::DiskFull(full) => {
            let ratio = f64::from(full.used_percent) / 100.0;
            let remark = format!(
                "service not available now. It may be caused by one of the following reasons: the broker's disk is full \
                 [CL: {ratio:5.2} CQ: {ratio:5.2} INDEX: {ratio:5.2}], messages are put to the slave, message store has \
                 been shut down, etc. ({full})"
            );
            Refusal::new(response::SERVICE_NOT_AVAILABLE, remark)
        }
        AppendError::CreateFile(reason) => {
            tracing::error!(root = %broker.store.root().display(), %reason, "can't create the next log file");
            Refusal::system_error("create mapped file failed, server is busy or broken.")
        }
        AppendError::Follower => Refusal::new(response::SERVICE_NOT_AVAILABLE, error.to_string()),
        AppendError::Shutdown => {
            let remark = "service not available now: the broker is shutting down.";
            Refusal::new(response::SERVICE_NOT_AVAILABLE, remark)
        }
    }
}
