//! The pull path: handing stored messages to consumers (`docs/spec/03-broker.md` 3).
//!
//! A pull is checked ([`check`]), read from the store in place, and answered at once. When there is nothing yet and the
//! consumer is willing to wait it is held ([`hold`]) until the dispatcher reports a message that passes its filter.
//! When the messages are not in memory the read is repeated on a thread that may wait for the disk ([`cold`]).

mod check;
mod cold;
pub(crate) mod filter;
mod hold;

use std::sync::Arc;
use std::time::Instant;

use ferromq_protocol::body::{SubscriptionGroupConfig, TopicConfig};
use ferromq_protocol::code::response;
use ferromq_protocol::frame;
use ferromq_protocol::header::{FieldOut, Head, Request, begin_frame};
use ferromq_protocol::pull::{self, PullHeader};
use ferromq_remoting::Connection;
use ferromq_store::{ConsumeQueue, ReadOutcome, ReadRequest, ReadStatus, Residency};

use crate::answer::Refusal;
use crate::broker::Broker;
use crate::stats::Got;
use check::PullRefusal;
pub(crate) use cold::ColdReads;
use filter::TagFilter;
pub(crate) use hold::HeldPulls;

/// A pull that passed all checks.
struct Checked {
    topic: Arc<TopicConfig>,
    group: Arc<SubscriptionGroupConfig>,
    filter: TagFilter,
    queue: Arc<ConsumeQueue>,
}

/// Whether this is the first try of a pull or one after it was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    First,
    /// Neither holds again nor commits again (3.8).
    Again,
}

/// What is asked, by whom: everything that a pull needs after its frame is gone.
struct Asked<'a> {
    code: i32,
    opaque: i32,
    oneway: bool,
    header: PullHeader<'a>,
}

/// Scratch space of pulls: the messages found, before the header in front of them can be written.
pub(crate) type Bodies = Vec<u8>;

/// Handles one pull. Its answer is appended to `out`, or follows later.
pub(crate) fn pull(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    request: &Request<'_>,
    bodies: &mut Bodies,
    out: &mut Vec<u8>,
) {
    let header = match PullHeader::parse(request) {
        Ok(header) => header,
        Err(error) => {
            let refusal = PullRefusal::bare(Refusal::from(error));
            if !request.is_oneway() {
                refusal.write(out, connection.encoding(), request.opaque);
            }
            return;
        }
    };
    let asked = Asked { code: request.code, opaque: request.opaque, oneway: request.is_oneway(), header };
    run(broker, connection, asked, Pass::First, Residency::HotOnly, bodies, out);
}

fn run(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    asked: Asked<'_>,
    pass: Pass,
    residency: Residency,
    bodies: &mut Bodies,
    out: &mut Vec<u8>,
) {
    let checked = match check::check(broker, connection, &asked) {
        Ok(checked) => checked,
        Err(refusal) => {
            if !asked.oneway {
                refusal.write(out, connection.encoding(), asked.opaque);
            }
            return;
        }
    };
    let began = Instant::now();
    bodies.clear();
    let found = find(broker, &asked.header, &checked, residency, bodies);
    if found.status == Status::Read(ReadStatus::Cold) {
        return cold::read(broker.clone(), connection.clone(), asked, pass);
    }
    if pass == Pass::First && asked.header.has(pull::FLAG_COMMIT_OFFSET) {
        let (group, offset) = (&asked.header.consumer_group, asked.header.commit_offset);
        broker.offsets.commit(&broker.store, &connection.client_address(), group, &checked.queue, offset);
    }
    let code = found.code(asked.header.queue_offset);
    if code == response::PULL_NOT_FOUND && pass == Pass::First && asked.header.has(pull::FLAG_SUSPEND) {
        return hold::hold(broker, connection, asked, &checked);
    }
    broker.offsets.set_pulled(
        &asked.header.consumer_group,
        &asked.header.topic,
        asked.header.queue_id,
        found.outcome.next_offset,
    );
    if code == response::SUCCESS {
        let (group, topic) = (&asked.header.consumer_group, &asked.header.topic);
        let got = Got {
            queue_id: asked.header.queue_id,
            messages: found.outcome.messages as u64,
            bytes: found.outcome.bytes as u64,
            millis: began.elapsed().as_millis() as u64,
        };
        broker.stats.group_got(topic, group, got);
    }
    if !asked.oneway {
        write_found(broker, out, connection, &asked, &checked, &found, bodies);
    }
}

/// Runs a pull away from its connection's task and queues the answer.
fn answer_later(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    asked: Asked<'static>,
    pass: Pass,
    residency: Residency,
) {
    let (mut bodies, mut out) = (Vec::new(), Vec::new());
    run(broker, connection, asked, pass, residency, &mut bodies, &mut out);
    if !out.is_empty() {
        connection.send_with(|queued| queued.append(&mut out));
    }
}

impl Asked<'_> {
    fn into_owned(self) -> Asked<'static> {
        Asked { header: self.header.into_owned(), ..self }
    }
}

/// How a pull ended: as the store says, or at an offset that an administrator set (3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Read(ReadStatus),
    OffsetReset,
}

struct Found {
    status: Status,
    outcome: ReadOutcome,
    /// Offsets outside of the queue are for the master to correct: this slave may lack what it has.
    is_unchecked: bool,
    /// It was worth a thread that waits for the disk.
    is_cold: bool,
}

impl Found {
    /// 3.6.
    fn code(&self, asked_offset: i64) -> i32 {
        match self.code_of_master(asked_offset) {
            response::PULL_OFFSET_MOVED if self.is_unchecked => response::PULL_RETRY_IMMEDIATELY,
            code => code,
        }
    }

    fn code_of_master(&self, asked_offset: i64) -> i32 {
        let Status::Read(status) = self.status else { return response::PULL_OFFSET_MOVED };
        match status {
            ReadStatus::Found => response::SUCCESS,
            ReadStatus::MessageWasRemoving | ReadStatus::NoMatchedMessage => response::PULL_RETRY_IMMEDIATELY,
            ReadStatus::NoMessageInQueue if asked_offset != 0 => response::PULL_OFFSET_MOVED,
            ReadStatus::NoMessageInQueue | ReadStatus::OffsetFoundNull | ReadStatus::OffsetOverflowOne => {
                response::PULL_NOT_FOUND
            }
            ReadStatus::OffsetOverflowBadly | ReadStatus::OffsetTooSmall => response::PULL_OFFSET_MOVED,
            ReadStatus::Cold => response::PULL_RETRY_IMMEDIATELY,
        }
    }

    fn name(&self) -> &'static str {
        match self.status {
            Status::OffsetReset => "OFFSET_RESET",
            Status::Read(ReadStatus::Cold) => "COLD",
            Status::Read(ReadStatus::Found) => "FOUND",
            Status::Read(ReadStatus::NoMatchedMessage) => "NO_MATCHED_MESSAGE",
            Status::Read(ReadStatus::MessageWasRemoving) => "MESSAGE_WAS_REMOVING",
            Status::Read(ReadStatus::OffsetFoundNull) => "OFFSET_FOUND_NULL",
            Status::Read(ReadStatus::OffsetOverflowBadly) => "OFFSET_OVERFLOW_BADLY",
            Status::Read(ReadStatus::OffsetOverflowOne) => "OFFSET_OVERFLOW_ONE",
            Status::Read(ReadStatus::OffsetTooSmall) => "OFFSET_TOO_SMALL",
            Status::Read(ReadStatus::NoMessageInQueue) => "NO_MESSAGE_IN_QUEUE",
        }
    }
}

/// Where the offset comes from (3.4), and what is there (3.5).
fn find(
    broker: &Broker,
    header: &PullHeader<'_>,
    checked: &Checked,
    residency: Residency,
    bodies: &mut Bodies,
) -> Found {
    let queue = &checked.queue;
    let (group, topic) = (&*header.consumer_group, &*header.topic);
    if let Some(next_offset) = broker.offsets.take_reset(group, topic, header.queue_id) {
        let outcome = ReadOutcome::without_messages(queue, ReadStatus::OffsetTooSmall, next_offset);
        return Found { status: Status::OffsetReset, outcome, is_unchecked: false, is_cold: false };
    }
    let request = ReadRequest {
        offset: header.queue_offset,
        max_messages: usize::try_from(header.max_msg_nums).unwrap_or_default(),
        max_bytes: usize::MAX,
        residency,
    };
    let mut outcome = broker.store.read(queue, request, &checked.filter, bodies);
    let is_unchecked = broker.store.is_follower()
        && !broker.config().offset_check_in_slave
        && matches!(
            outcome.status,
            ReadStatus::OffsetOverflowBadly | ReadStatus::OffsetTooSmall | ReadStatus::NoMessageInQueue
        );
    if is_unchecked {
        outcome.next_offset = header.queue_offset;
    }
    Found {
        status: Status::Read(outcome.status),
        outcome,
        is_unchecked,
        is_cold: residency == Residency::Any,
    }
}

/// Which broker the consumer should ask next (3.6): a slave, if slaves serve reads and this consumer lags far behind, or what it
/// reads is not in memory. The latter only if there is a slave that has it.
fn suggested_broker(broker: &Broker, checked: &Checked, found: &Found) -> i64 {
    if !broker.config().slave_read_enable {
        return 0;
    }
    let is_cold = found.is_cold && found.status == Status::Read(ReadStatus::Found);
    let can_help = || broker.store.is_follower() || broker.replication.has_slave_in_sync();
    if found.outcome.suggest_slave || is_cold && can_help() {
        checked.group.which_broker_when_consume_slowly
    } else {
        checked.group.broker_id
    }
}

fn write_found(
    broker: &Broker,
    out: &mut Vec<u8>,
    connection: &Connection,
    asked: &Asked<'_>,
    checked: &Checked,
    found: &Found,
    bodies: &[u8],
) {
    let outcome = &found.outcome;
    let fields = [
        ("suggestWhichBrokerId", FieldOut::Number(suggested_broker(broker, checked, found))),
        ("nextBeginOffset", FieldOut::Number(outcome.next_offset)),
        ("minOffset", FieldOut::Number(outcome.min_offset)),
        ("maxOffset", FieldOut::Number(outcome.max_offset)),
        ("topicSysFlag", FieldOut::Number(i64::from(checked.topic.topic_sys_flag))),
        ("groupSysFlag", FieldOut::Number(i64::from(checked.group.group_sys_flag))),
    ];
    let code = found.code(asked.header.queue_offset);
    let head = Head::response(code, asked.opaque, Some(found.name()));
    let (start, header_end) = begin_frame(out, connection.encoding(), &head, Some(fields));
    out.extend_from_slice(bodies);
    frame::finish(out, start, header_end, connection.encoding());
}
