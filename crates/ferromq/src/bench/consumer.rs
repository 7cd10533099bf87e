//! Load from consumers: pulls from all queues, over and over as fast as they are answered, or waiting at the end.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ferromq_protocol::code::{request, response};
use ferromq_protocol::frame::{self, Frame, HeaderEncoding};
use ferromq_protocol::header::{FieldOut, Head, begin_frame};
use ferromq_protocol::pull::{FLAG_SUBSCRIPTION, FLAG_SUSPEND};
use ferromq_protocol::version::{self, Language};

use super::answer::{AnswerReader, NumberField};
use super::control::{self, Broker, Control};
use super::driver::{self, DRAIN, Run};
use super::error::BenchError;
use super::link::{Link, READ_BYTES};
use super::opaque::Opaques;
use super::poller::Poller;
use super::report::Report;
use super::settings::LoadArgs;
use super::supply::NAP_MAX;
use super::tally::Tally;

/// How long a broker may hold a pull at the end of a queue.
const SUSPEND_MILLIS: i64 = 15_000;

/// Options of `ferromq bench consumer`.
#[derive(Debug, clap::Args)]
pub(super) struct ConsumerArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Most messages of a pull
    #[arg(short = 'b', long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Pulls in flight on each connection, each at a place of its own, like so many consumer groups
    #[arg(short = 'd', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    depth: u32,
    /// Begin at the end of every queue and wait there for new messages. Latency is then from a message's birth until its
    /// arrival, in whole milliseconds
    #[arg(long)]
    tail: bool,
    /// Consumer group
    #[arg(long, default_value = "ferromq_bench_consumer")]
    group: String,
}

/// Pulls messages, prints the result.
pub(super) fn run(args: &ConsumerArgs) -> Result<ExitCode, BenchError> {
    let load = &args.load;
    let brokers = control::brokers(load)?;
    let queues = queues(args, &brokers)?;
    let workers = (0..load.workers()).map(|number| Worker::connect(args, &brokers, &queues, number));
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    let title = args.title(&brokers);
    let loops: Vec<_> = workers.into_iter().map(|worker| |run: &Run| worker.run(run)).collect();
    let measured = driver::drive(load, &title, loops)?;
    Ok(Report::new(title, measured).publish(load.json))
}

impl ConsumerArgs {
    fn title(&self, brokers: &[Broker]) -> String {
        let addresses: Vec<_> = brokers.iter().map(|broker| broker.address.as_str()).collect();
        let mode =
            if self.tail { "waiting at the end".to_owned() } else { format!("{} in flight", self.depth) };
        format!(
            "consumer from {}: batches of {}, {} connections, {mode}, {:?} headers",
            addresses.join(" "),
            self.batch,
            self.load.connections,
            self.load.header
        )
    }
}

/// A queue and what it holds.
#[derive(Debug, Clone)]
struct Queue {
    broker: usize,
    topic: String,
    id: u32,
    min: i64,
    max: i64,
}

/// The queues to pull from: those with messages, or all when new messages are waited for.
fn queues(args: &ConsumerArgs, brokers: &[Broker]) -> Result<Vec<Queue>, BenchError> {
    let mut queues = Vec::new();
    for (broker, Broker { address, .. }) in brokers.iter().enumerate() {
        let mut control = Control::connect(address)?;
        for topic in args.load.topic_names() {
            for id in 0..args.load.queues {
                let (min, max) = control.offsets(&topic, id)?;
                queues.push(Queue { broker, topic: topic.clone(), id, min, max });
            }
        }
    }
    queues.retain(|queue| args.tail || queue.min < queue.max);
    if queues.is_empty() {
        return Err(BenchError::NothingToPull { topic: args.load.topic.clone() });
    }
    Ok(queues)
}

/// A place in a queue from which one pull at a time goes on.
#[derive(Debug)]
struct Cursor {
    queue: Queue,
    next: i64,
    /// Number of the pull in flight.
    opaque: Option<i32>,
    sent_ns: u64,
}

impl Cursor {
    /// Cursor `number` of `count` in the same queue: they are spread over what it holds.
    fn new(queue: &Queue, number: usize, count: usize, at_end: bool) -> Self {
        let span = queue.max - queue.min;
        let next = if at_end { queue.max } else { queue.min + span * number as i64 / count as i64 };
        Self { queue: queue.clone(), next, opaque: None, sent_ns: 0 }
    }
}

/// A connection with its cursors.
struct Lane {
    link: Link,
    broker_name: String,
    opaques: Opaques,
    cursors: Vec<Cursor>,
}

/// One thread's load.
struct Worker<'a> {
    args: &'a ConsumerArgs,
    poller: Poller,
    lanes: Vec<Lane>,
    reader: PullReader,
}

impl<'a> Worker<'a> {
    fn connect(
        args: &'a ConsumerArgs,
        brokers: &[Broker],
        queues: &[Queue],
        number: u32,
    ) -> Result<Self, BenchError> {
        let load = &args.load;
        let poller = Poller::new()?;
        let mut lanes = Vec::new();
        for connection in load.connections_of(number) {
            let broker = connection as usize % brokers.len();
            let cursors = cursors(args, brokers.len(), queues, connection as usize);
            if cursors.is_empty() {
                continue;
            }
            let link = Link::connect(&brokers[broker].address)?;
            poller.add(&link, lanes.len())?;
            let opaques = Opaques::new(connection, load.connections, cursors.len() as u32);
            lanes.push(Lane { link, broker_name: brokers[broker].name.clone(), opaques, cursors });
        }
        Ok(Self { args, poller, lanes, reader: PullReader::new(args.tail) })
    }

    fn run(mut self, run: &Run) -> Result<Tally, BenchError> {
        let mut tally = Tally::new(run.window);
        let mut buffer = vec![0; READ_BYTES];
        let mut ready = Vec::new();
        let mut now_ns = run.now_ns();
        for lane in 0..self.lanes.len() {
            self.pull(lane, now_ns, &mut tally)?;
        }
        let messages =
            self.args.load.messages.map_or(u64::MAX, |all| all / u64::from(self.args.load.workers()));
        let mut is_over = false;
        while !run.is_failed() {
            is_over |= now_ns >= run.window.until_ns || tally.messages >= messages;
            let is_late = now_ns > tally.last_answer_ns.saturating_add(DRAIN.as_nanos() as u64);
            // Pulls that a broker holds at the end of a queue are not waited for.
            if is_over && (tally.sent == tally.answered || self.args.tail) {
                break;
            }
            if is_over && is_late {
                tally.problem(format!("some answers did not come within {DRAIN:?} after the last pull"));
                break;
            }
            self.poller.wait(NAP_MAX, &mut ready)?;
            now_ns = run.now_ns();
            let before = self.reader.received;
            for ready in &ready {
                if ready.readable {
                    self.read(ready.link, &mut buffer, now_ns, &mut tally)?;
                }
                if is_over {
                    self.flush(ready.link)?;
                } else {
                    self.pull(ready.link, now_ns, &mut tally)?;
                }
            }
            run.advance(self.reader.received - before);
        }
        if self.args.tail {
            // What is still held counts neither way.
            tally.sent = tally.answered;
        }
        Ok(tally)
    }

    /// Sends a pull for every cursor of a connection that has none in flight.
    fn pull(&mut self, lane: usize, now_ns: u64, tally: &mut Tally) -> Result<(), BenchError> {
        let Lane { link, broker_name, opaques, cursors } = &mut self.lanes[lane];
        for (slot, cursor) in cursors.iter_mut().enumerate().filter(|(_, cursor)| cursor.opaque.is_none()) {
            let opaque = opaques.next(slot as u32);
            (cursor.opaque, cursor.sent_ns) = (Some(opaque), now_ns);
            append_pull(self.args, broker_name, cursor, opaque, &mut link.out);
            tally.sent += 1;
        }
        self.flush(lane)
    }

    fn read(
        &mut self,
        lane: usize,
        buffer: &mut [u8],
        now_ns: u64,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let Lane { link, opaques, cursors, .. } = &mut self.lanes[lane];
        let address = link.address().to_owned();
        let reader = &mut self.reader;
        let result = link.read(buffer, |frame| {
            let answer = reader.answers.read(frame);
            let answer = answer.map_err(|source| BenchError::Header { address: address.clone(), source })?;
            let Some(answer) = answer else { return Ok(()) };
            let cursor = opaques.slot(answer.opaque).and_then(|slot| cursors.get_mut(slot as usize));
            let Some(cursor) = cursor.filter(|cursor| cursor.opaque == Some(answer.opaque)) else {
                return Err(BenchError::Unexpected { address: address.clone(), opaque: answer.opaque });
            };
            cursor.opaque = None;
            reader.answer(answer.code, frame, cursor, now_ns, tally);
            Ok(())
        });
        match result {
            Err(BenchError::Closed { address, .. }) => {
                let unanswered = cursors.iter().filter(|cursor| cursor.opaque.is_some()).count();
                Err(BenchError::Closed { address, unanswered })
            }
            other => other,
        }
    }

    fn flush(&mut self, lane: usize) -> Result<(), BenchError> {
        let link = &mut self.lanes[lane].link;
        let is_blocked = !link.flush()?;
        if is_blocked != link.watches_writing {
            link.watches_writing = is_blocked;
            self.poller.watch_writing(&*link, lane, is_blocked)?;
        }
        Ok(())
    }
}

/// The cursors of one connection: one for each pull in flight, or one in every `connections`-th queue to wait at its end.
fn cursors(args: &ConsumerArgs, brokers: usize, queues: &[Queue], connection: usize) -> Vec<Cursor> {
    let broker = connection % brokers;
    let queues: Vec<&Queue> = queues.iter().filter(|queue| queue.broker == broker).collect();
    if queues.is_empty() {
        return Vec::new();
    }
    let connections = (args.load.connections as usize).div_ceil(brokers);
    let connection = connection / brokers;
    if args.tail {
        return queues
            .iter()
            .skip(connection)
            .step_by(connections)
            .map(|queue| Cursor::new(queue, 0, 1, true))
            .collect();
    }
    let depth = args.depth as usize;
    let per_queue = (connections * depth).div_ceil(queues.len());
    let numbers = connection * depth..(connection + 1) * depth;
    numbers
        .map(|number| Cursor::new(queues[number % queues.len()], number / queues.len(), per_queue, false))
        .collect()
}

/// Appends a pull with the fields that the Java client sends (`docs/spec/01-remoting.md` 5.4.1).
fn append_pull(args: &ConsumerArgs, broker_name: &str, cursor: &Cursor, opaque: i32, out: &mut Vec<u8>) {
    let (flags, suspend_millis) =
        if args.tail { (FLAG_SUBSCRIPTION | FLAG_SUSPEND, SUSPEND_MILLIS) } else { (FLAG_SUBSCRIPTION, 0) };
    let fields = [
        ("consumerGroup", FieldOut::Text(&args.group)),
        ("topic", FieldOut::Text(&cursor.queue.topic)),
        ("queueId", FieldOut::Number(i64::from(cursor.queue.id))),
        ("queueOffset", FieldOut::Number(cursor.next)),
        ("maxMsgNums", FieldOut::Number(i64::from(args.batch))),
        ("sysFlag", FieldOut::Number(i64::from(flags))),
        ("commitOffset", FieldOut::Number(0)),
        ("suspendTimeoutMillis", FieldOut::Number(suspend_millis)),
        ("subscription", FieldOut::Text("*")),
        ("subVersion", FieldOut::Number(0)),
        ("expressionType", FieldOut::Text("TAG")),
        ("bname", FieldOut::Text(broker_name)),
    ];
    let head = Head {
        code: request::PULL_MESSAGE,
        opaque,
        flag: 0,
        language: Language::JAVA,
        version: version::CURRENT,
        remark: None,
    };
    let encoding: HeaderEncoding = args.load.encoding();
    let (start, header_end) = begin_frame(out, encoding, &head, Some(fields));
    frame::finish(out, start, header_end, encoding);
}

/// Reads answers to pulls and checks what they bring.
struct PullReader {
    is_tail: bool,
    answers: AnswerReader,
    next_begin_offset: NumberField,
    /// Messages of the whole run.
    received: u64,
}

impl PullReader {
    fn new(is_tail: bool) -> Self {
        let next_begin_offset = NumberField::new("nextBeginOffset");
        Self { is_tail, answers: AnswerReader::new(), next_begin_offset, received: 0 }
    }

    fn answer(&mut self, code: i32, frame: &Frame<'_>, cursor: &mut Cursor, now_ns: u64, tally: &mut Tally) {
        let due_ns = cursor.sent_ns;
        match code {
            response::SUCCESS => self.messages(frame, cursor, now_ns, tally),
            response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED
                if self.is_tail =>
            {
                tally.answered += 1;
                cursor.next = self.next_begin_offset.read(frame).unwrap_or(cursor.next);
                return;
            }
            other => {
                // The end of the queue, or a refusal: either way it goes on at the beginning.
                cursor.next = cursor.queue.min;
                tally.error(other, now_ns);
            }
        }
        if self.is_tail {
            tally.answered += 1;
            tally.last_answer_ns = now_ns;
        } else {
            tally.answer(due_ns, now_ns);
        }
    }

    /// Walks through the messages of an answer and moves the cursor behind them.
    fn messages(&mut self, frame: &Frame<'_>, cursor: &mut Cursor, now_ns: u64, tally: &mut Tally) {
        let body = frame.body();
        let unix_millis =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let (mut at, mut expected) = (0, cursor.next);
        while at < body.len() {
            let Some(record) = Record::read(&body[at..]) else {
                tally.problem(format!("byte {at} of a pull's {} bytes does not begin a message", body.len()));
                break;
            };
            if record.queue_offset != expected {
                let (topic, queue) = (&cursor.queue.topic, cursor.queue.id);
                tally.problem(format!(
                    "{topic}, queue {queue}: message {} came where {expected} should be",
                    record.queue_offset
                ));
            }
            if self.is_tail {
                let age_millis = unix_millis.saturating_sub(record.born_millis).max(0) as u64;
                tally.arrival(age_millis * 1_000_000, now_ns);
            }
            expected = record.queue_offset + 1;
            at += record.bytes;
            self.received += 1;
        }
        let count = expected - cursor.next;
        tally.success(count.max(0) as u64, body.len() as u64, now_ns);
        match self.next_begin_offset.read(frame) {
            Some(next) if next == expected && count > 0 => cursor.next = next,
            next => {
                tally.problem(format!(
                    "{count} messages from {} on, but the next offset is {next:?}",
                    cursor.next
                ));
                cursor.next = next.filter(|next| *next > cursor.next).unwrap_or(cursor.queue.min);
            }
        }
        if !self.is_tail && cursor.next >= cursor.queue.max {
            cursor.next = cursor.queue.min;
        }
    }
}

/// What is looked at of a stored message (`docs/spec/01-remoting.md` 6.3).
struct Record {
    bytes: usize,
    queue_offset: i64,
    born_millis: i64,
}

impl Record {
    fn read(body: &[u8]) -> Option<Self> {
        const MAGIC: [u32; 2] = [0xDAA3_20A7, 0xDAA3_20AB];
        let bytes = u32::from_be_bytes(body.get(..4)?.try_into().ok()?) as usize;
        let record = body.get(..bytes)?;
        let magic = u32::from_be_bytes(record.get(4..8)?.try_into().ok()?);
        let number = |at: usize| record.get(at..at + 8)?.try_into().ok().map(i64::from_be_bytes);
        MAGIC.contains(&magic).then_some(())?;
        Some(Self { bytes, queue_offset: number(20)?, born_millis: number(40)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(broker: usize, id: u32) -> Queue {
        Queue { broker, topic: "T".to_owned(), id, min: 0, max: 100 }
    }

    fn args(arguments: &[&str]) -> ConsumerArgs {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            consumer: ConsumerArgs,
        }
        <Cli as clap::Parser>::parse_from([&["bench"], arguments].concat()).consumer
    }

    fn places(cursors: &[Cursor]) -> Vec<(u32, i64)> {
        cursors.iter().map(|cursor| (cursor.queue.id, cursor.next)).collect()
    }

    #[test]
    fn cursors_are_spread_over_queues_and_over_what_they_hold() {
        let args = args(&["--connections", "2", "--depth", "3"]);
        let queues = [queue(0, 0), queue(0, 1), queue(0, 2)];
        assert_eq!(places(&cursors(&args, 1, &queues, 0)), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(places(&cursors(&args, 1, &queues, 1)), [(0, 50), (1, 50), (2, 50)]);
    }

    #[test]
    fn every_queue_has_one_cursor_at_its_end_when_waiting() {
        let args = args(&["--connections", "2", "--tail"]);
        let queues = [queue(0, 0), queue(0, 1), queue(0, 2)];
        assert_eq!(places(&cursors(&args, 1, &queues, 0)), [(0, 100), (2, 100)]);
        assert_eq!(places(&cursors(&args, 1, &queues, 1)), [(1, 100)]);
    }

    #[test]
    fn connections_pull_from_their_own_broker() {
        let args = args(&["--connections", "2", "--depth", "1"]);
        let queues = [queue(0, 0), queue(1, 5)];
        assert_eq!(places(&cursors(&args, 2, &queues, 0)), [(0, 0)]);
        assert_eq!(places(&cursors(&args, 2, &queues, 1)), [(5, 0)]);
    }
}
