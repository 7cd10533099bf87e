//! Looking up messages by key or by place (`docs/spec/03-broker.md` 9.1, 9.2).

use std::sync::Arc;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::RecordView;
use ferromq_remoting::Connection;
use ferromq_store::{QueryResult, RecordSlice};

use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::service::Handler;

/// Set by clients that look for a message by its unique id.
const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";

/// Most bytes of messages in one answer: what a frame of 16 MiB holds besides its header. RocketMQ knows no such bound
/// and sends frames that no client accepts.
const ANSWER_BYTES_MAX: usize = (16 << 20) - (64 << 10);

pub(crate) fn route(code: i32) -> Option<Handler> {
    match code {
        request::QUERY_MESSAGE => Some(Handler::Blocking(query_message)),
        request::VIEW_MESSAGE_BY_ID => Some(Handler::Blocking(view_message_by_id)),
        _ => None,
    }
}

/// QUERY_MESSAGE: the newest messages of a topic that have a key or a unique id.
fn query_message(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let topic = request.text("topic")?;
    let key = request.text("key")?;
    let begin_ms = request.number("beginTimestamp")?;
    let end_ms = request.number("endTimestamp")?;
    let asked_max: i32 = request.number("maxNum")?;
    let is_unique = request.boolean(UNIQUE_KEY_QUERY);
    let max = if is_unique { broker.config().default_query_max_num.cast_signed() } else { asked_max };
    let max = usize::try_from(max).unwrap_or(0);

    Ok(query_answer(&broker.store.query(topic, key, max, begin_ms, end_ms, is_unique)))
}

fn query_answer(found: &QueryResult) -> RemotingCommand {
    let with_index = |answer: RemotingCommand, timestamp: i64, offset: u64| {
        answer.with("indexLastUpdatePhyoffset", offset).with("indexLastUpdateTimestamp", timestamp)
    };
    if found.records.is_empty() {
        let remark = "can not find message, maybe time range not correct";
        return with_index(RemotingCommand::error(response::QUERY_NOT_FOUND, remark), 0, 0);
    }
    let body =
        newest_that_fit(&found.records).iter().flat_map(|record| record.iter().copied()).collect::<Vec<u8>>();
    let answer = RemotingCommand::success().with_body(body);
    with_index(answer, found.index_last_timestamp, found.index_last_offset)
}

/// The last records, one at least, that one answer has room for.
fn newest_that_fit(records: &[RecordSlice]) -> &[RecordSlice] {
    let sizes = records.iter().map(|record| record.len());
    &records[first_that_fits(sizes.rev(), records.len())..]
}

/// Where the longest run at the end begins that fits; sizes come from the end. The last one always fits.
fn first_that_fits(sizes_from_the_end: impl Iterator<Item = usize>, count: usize) -> usize {
    let mut bytes = 0;
    let fitting = sizes_from_the_end.enumerate().take_while(|(index, size)| {
        bytes += size;
        *index == 0 || bytes <= ANSWER_BYTES_MAX
    });
    count - fitting.count()
}

/// VIEW_MESSAGE_BY_ID: the message at a place of the log.
///
/// RocketMQ takes whatever lies there for a message; here it has to be one.
fn view_message_by_id(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let offset: i64 = request.number("offset")?;
    match message_at(broker, offset) {
        Some(record) => Ok(RemotingCommand::success().with_body(record.to_vec())),
        None => Err(missing(offset)),
    }
}

/// The whole and sound message that begins at an offset of the log.
pub(crate) fn message_at(broker: &Broker, physical_offset: i64) -> Option<RecordSlice> {
    let physical_offset = u64::try_from(physical_offset).ok()?;
    // Its error says that no message begins there, which is all that matters.
    let record = broker.store.record_at(physical_offset).ok()??;
    RecordView::whole(&record, physical_offset).is_ok().then_some(record)
}

/// The refusal when no message begins at an offset.
pub(crate) fn missing(offset: i64) -> Refusal {
    Refusal::system_error(format!("can not find message by the offset, {offset}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_found_is_22_with_zeros() {
        let answer = query_answer(&QueryResult { index_last_timestamp: 5, ..QueryResult::default() });
        assert_eq!(answer.code, 22);
        assert_eq!(answer.remark.as_deref(), Some("can not find message, maybe time range not correct"));
        assert_eq!(answer.field("indexLastUpdateTimestamp"), Some("0"));
        assert_eq!(answer.field("indexLastUpdatePhyoffset"), Some("0"));
    }

    #[test]
    fn an_answer_holds_the_newest_messages_that_fit() {
        let first = |sizes: &[usize]| first_that_fits(sizes.iter().rev().copied(), sizes.len());
        assert_eq!(first(&[]), 0);
        assert_eq!(first(&[1, 2, 3]), 0);
        assert_eq!(first(&[10 << 20, 10 << 20, 1 << 20]), 1);
        assert_eq!(first(&[1, ANSWER_BYTES_MAX + 1]), 1);
        assert_eq!(first(&[1, ANSWER_BYTES_MAX]), 1);
    }
}
