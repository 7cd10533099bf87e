//! What became of a message (`docs/spec/07-client.md` 6.6).

use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::code::response;
use ferromq_protocol::command::{FieldList, RemotingCommand};

use crate::error::{Destination, Error};

/// Where a broker is that does not say it.
const DEFAULT_REGION: &str = "DefaultRegion";

/// How safe a message is that a broker has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendStatus {
    /// As safe as the broker was set up to make it.
    SendOk,
    /// Stored, but the disk did not confirm it in time (`SYNC_FLUSH`).
    FlushDiskTimeout,
    /// Stored, but not enough replicas confirmed it in time.
    FlushSlaveTimeout,
    /// Stored, but there are not enough replicas.
    SlaveNotAvailable,
}

/// A broker's receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendResult {
    /// How safe the message is.
    pub status: SendStatus,
    /// The id that this client gave it; of a batch the ids of all messages, separated by `,`.
    pub msg_id: String,
    /// Where it is stored; of a batch one for each message, separated by `,`.
    pub offset_msg_id: String,
    /// The queue that it is in.
    pub queue: MessageQueue,
    /// Its position in the queue; of a batch that of the first message.
    pub queue_offset: i64,
    /// Id of its transaction, if it belongs to one.
    pub transaction_id: Option<String>,
    /// By which a timer message can be recalled.
    pub recall_handle: Option<String>,
    /// Region of the broker.
    pub region_id: String,
    /// Whether the broker wants the message traced.
    pub trace_on: bool,
}

/// The status that a response code stands for; `None` if the message was not taken.
pub(crate) fn status(code: i32) -> Option<SendStatus> {
    Some(match code {
        response::SUCCESS => SendStatus::SendOk,
        response::FLUSH_DISK_TIMEOUT => SendStatus::FlushDiskTimeout,
        response::FLUSH_SLAVE_TIMEOUT => SendStatus::FlushSlaveTimeout,
        response::SLAVE_NOT_AVAILABLE => SendStatus::SlaveNotAvailable,
        _ => return None,
    })
}

impl SendResult {
    pub(crate) fn read(
        to: &Destination<'_>,
        request: &'static str,
        answer: &RemotingCommand,
        queue: &MessageQueue,
        unique_ids: &str,
    ) -> Result<Self, Error> {
        let status = status(answer.code).ok_or_else(|| to.refused(request, answer))?;
        let malformed = |error| to.malformed(request, error);
        let mut result = Self {
            status,
            msg_id: unique_ids.to_owned(),
            offset_msg_id: String::new(),
            queue: MessageQueue { queue_id: answer.number("queueId").map_err(malformed)?, ..queue.clone() },
            queue_offset: answer.number("queueOffset").map_err(malformed)?,
            transaction_id: None,
            recall_handle: None,
            region_id: String::new(),
            trace_on: true,
        };
        for (name, value) in answer.fields.iter().flat_map(FieldList::iter) {
            match name {
                "batchUniqId" => value.clone_into(&mut result.msg_id),
                "msgId" => value.clone_into(&mut result.offset_msg_id),
                "transactionId" => result.transaction_id = Some(value.to_owned()),
                "recallHandle" => result.recall_handle = Some(value.to_owned()),
                "MSG_REGION" => value.clone_into(&mut result.region_id),
                "TRACE_ON" => result.trace_on = value != "false",
                _ => {}
            }
        }
        if result.region_id.is_empty() {
            DEFAULT_REGION.clone_into(&mut result.region_id);
        }
        Ok(result)
    }
}
