//! Load from producers: windows of sends on many connections, as fast as they are answered or at a fixed rate.

use std::num::NonZeroU64;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ferromq_protocol::code::response;
use ferromq_protocol::frame::Frame;

use super::answer::{AnswerReader, NumberField};
use super::control::{self, Broker, Control};
use super::driver::{self, DRAIN, Run};
use super::error::BenchError;
use super::link::{Link, READ_BYTES};
use super::opaque::Opaques;
use super::poller::Poller;
use super::report::Report;
use super::settings::LoadArgs;
use super::spans::Span;
use super::supply::{NAP_MAX, Paced, Supply, Unlimited};
use super::tally::Tally;
use super::template::{MessageShape, SendTemplates, Stamp};

/// Options of `ferromq bench producer`.
#[derive(Debug, clap::Args)]
pub(super) struct ProducerArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Bytes of a message's body
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    size: u32,
    /// Requests in flight on each connection
    #[arg(short = 'd', long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    depth: u32,
    /// Messages per second of all connections together; 0 = as fast as they are answered. Latency then counts from the
    /// time at which a message was due
    #[arg(short = 'r', long, default_value_t = 0.0)]
    rate: f64,
    /// Messages of a request; above 1 they are sent as a batch
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// How topics come into being
    #[arg(long, value_enum, default_value_t = Create::Request)]
    create: Create,
}

/// How topics come into being.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Create {
    /// With a request like that of `mqadmin updateTopic`, before the load.
    Request,
    /// By the first message, if the broker allows that.
    Auto,
}

/// Sends messages, prints the result.
pub(super) fn run(args: &ProducerArgs) -> Result<ExitCode, BenchError> {
    let load = &args.load;
    let brokers = control::brokers(load)?;
    let topics = load.topic_names();
    if args.create == Create::Request {
        for broker in &brokers {
            let mut control = Control::connect(&broker.address)?;
            for topic in &topics {
                control.create_topic(topic, load.queues)?;
            }
        }
    }
    let queues: Vec<_> = brokers
        .iter()
        .flat_map(|broker| topics.iter().map(move |topic| (broker, topic)))
        .flat_map(|(broker, topic)| (0..load.queues).map(|queue| (broker.name.clone(), topic.clone(), queue)))
        .collect();
    let workers = (0..load.workers()).map(|number| Worker::connect(args, &brokers, &queues, number));
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    let loops: Vec<_> = workers.into_iter().map(|worker| |run: &Run| worker.run(run)).collect();
    let title = args.title(&brokers);
    let mut measured = driver::drive(load, &title, loops)?;
    for ((broker, topic, queue), span) in queues.iter().zip(&std::mem::take(&mut measured.tally.spans)) {
        if let Some(problem) = span.problem() {
            measured.tally.problem(format!("broker {broker}, topic {topic}, queue {queue}: {problem}"));
        }
    }
    Ok(Report::new(title, measured).publish(load.json))
}

impl ProducerArgs {
    fn title(&self, brokers: &[Broker]) -> String {
        let Self { load, .. } = self;
        let addresses: Vec<_> = brokers.iter().map(|broker| broker.address.as_str()).collect();
        let pace = if self.rate > 0.0 { format!(", {}/s", self.rate) } else { String::new() };
        let batch = if self.batch > 1 { format!(", batches of {}", self.batch) } else { String::new() };
        format!(
            "producer to {}: {} B, {} connections x {} in flight, {:?} headers{batch}{pace}",
            addresses.join(" "),
            self.size,
            load.connections,
            self.depth,
            load.header
        )
    }

    fn supply(&self, worker: u32, run: &Run) -> Supply {
        let Self { load, .. } = self;
        let left =
            load.messages_of(worker).map_or(u64::MAX, |messages| messages.div_ceil(u64::from(self.batch)));
        let (from_ns, until_ns) = (run.window.from_ns, run.window.until_ns);
        if self.rate > 0.0 {
            let rate = self.rate / f64::from(self.batch);
            let give_up_ns = until_ns.saturating_add(DRAIN.as_nanos() as u64);
            let workers = load.workers();
            Supply::Paced(Paced { rate, worker, workers, until_ns, give_up_ns, from_ns, left, issued: 0 })
        } else {
            Supply::Unlimited(Unlimited { until_ns, from_ns, left })
        }
    }
}

/// A request that waits for its answer.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    opaque: i32,
    queue: u32,
    due_ns: u64,
}

/// A connection with its window of requests.
struct Lane {
    link: Link,
    opaques: Opaques,
    slots: Vec<Option<InFlight>>,
    free: Vec<u32>,
    /// First queue of this connection's broker.
    first_queue: u32,
    next_queue: u32,
}

/// What the requests and answers of all lanes of a thread go through.
struct Exchange {
    templates: SendTemplates,
    queues_per_broker: u32,
    batch: u32,
    body_bytes: u64,
    stamp: Stamp,
    answers: AnswerReader,
    queue_offset: NumberField,
}

/// One thread's load.
struct Worker<'a> {
    args: &'a ProducerArgs,
    number: u32,
    poller: Poller,
    lanes: Vec<Lane>,
    exchange: Exchange,
}

impl<'a> Worker<'a> {
    fn connect(
        args: &'a ProducerArgs,
        brokers: &[Broker],
        queues: &[(String, String, u32)],
        number: u32,
    ) -> Result<Self, BenchError> {
        let load = &args.load;
        let shape = MessageShape {
            encoding: load.encoding(),
            body_bytes: args.size as usize,
            batch: args.batch,
            default_queues: load.queues,
        };
        let templates = SendTemplates::new(&shape, queues, number);
        let queues_per_broker = (queues.len() / brokers.len()) as u32;
        let poller = Poller::new()?;
        let mut lanes = Vec::new();
        for connection in load.connections_of(number) {
            let broker = connection as usize % brokers.len();
            let link = Link::connect(&brokers[broker].address)?;
            poller.add(&link, lanes.len())?;
            lanes.push(Lane {
                link,
                opaques: Opaques::new(connection, load.connections, args.depth),
                slots: vec![None; args.depth as usize],
                free: (0..args.depth).rev().collect(),
                first_queue: broker as u32 * queues_per_broker,
                // Connections begin at different queues.
                next_queue: connection % queues_per_broker,
            });
        }
        let exchange = Exchange {
            templates,
            queues_per_broker,
            batch: args.batch,
            body_bytes: u64::from(args.size) * u64::from(args.batch),
            stamp: Stamp::new(unix_millis()),
            answers: AnswerReader::new(),
            queue_offset: NumberField::new("queueOffset"),
        };
        Ok(Self { args, number, poller, lanes, exchange })
    }

    fn run(mut self, run: &Run) -> Result<Tally, BenchError> {
        let mut tally = Tally::new(run.window);
        tally.spans = vec![Span::default(); self.exchange.templates.queues()];
        let mut supply = self.args.supply(self.number, run);
        let is_paced = matches!(supply, Supply::Paced(_));
        if is_paced {
            // Without this the system may wake the thread 50 us late.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        let mut buffer = vec![0; READ_BYTES];
        let mut ready = Vec::new();
        let mut next_lane = 0;
        let mut now_ns = run.now_ns();
        let (mut answered, mut quiet_since_ns) = (0, now_ns);
        if !is_paced {
            for lane in 0..self.lanes.len() {
                self.fill(lane, &mut supply, now_ns, &mut tally)?;
            }
        }
        loop {
            if is_paced {
                self.send_due(&mut next_lane, &mut supply, now_ns, &mut tally)?;
            }
            let is_exhausted = supply.is_exhausted(now_ns);
            if run.is_failed() || is_exhausted && tally.sent == tally.answered {
                break;
            }
            if is_exhausted && now_ns > quiet_since_ns.saturating_add(DRAIN.as_nanos() as u64) {
                tally.problem(format!("no answer came for {DRAIN:?} after the last request"));
                break;
            }
            if !is_exhausted || tally.answered != answered {
                quiet_since_ns = now_ns;
            }
            // With all windows full, only answers make it possible to send.
            let nap = if is_paced && self.lanes.iter().any(|lane| !lane.free.is_empty()) {
                supply.nap(now_ns)
            } else {
                NAP_MAX
            };
            self.poller.wait(nap, &mut ready)?;
            now_ns = run.now_ns();
            self.exchange.stamp.set(unix_millis());
            answered = tally.answered;
            for ready in &ready {
                if ready.readable {
                    self.read(ready.link, &mut buffer, now_ns, &mut tally)?;
                }
                if !is_paced {
                    self.fill(ready.link, &mut supply, now_ns, &mut tally)?;
                } else if ready.writable {
                    self.flush(ready.link)?;
                }
            }
            run.advance((tally.answered - answered) * u64::from(self.args.batch));
        }
        if supply.abandoned() > 0 {
            let (requests, rate) = (supply.abandoned(), self.args.rate);
            tally.problem(format!(
                "{requests} requests that were due were not sent: the server can't take {rate}/s"
            ));
        }
        Ok(tally)
    }

    /// Reads the answers of one connection.
    fn read(
        &mut self,
        lane: usize,
        buffer: &mut [u8],
        now_ns: u64,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let Lane { link, opaques, slots, free, .. } = &mut self.lanes[lane];
        let address = link.address().to_owned();
        let exchange = &mut self.exchange;
        let result = link.read(buffer, |frame| {
            let answer = exchange.answers.read(frame);
            let answer = answer.map_err(|source| BenchError::Header { address: address.clone(), source })?;
            // Requests of the server's own are none of our business.
            let Some(answer) = answer else { return Ok(()) };
            let slot = opaques.slot(answer.opaque).map(|slot| slot as usize);
            let waiting =
                slot.and_then(|slot| slots[slot].take_if(|waiting| waiting.opaque == answer.opaque));
            let (Some(slot), Some(waiting)) = (slot, waiting) else {
                return Err(BenchError::Unexpected { address: address.clone(), opaque: answer.opaque });
            };
            free.push(slot as u32);
            tally.answer(waiting.due_ns, now_ns);
            if answer.code == response::SUCCESS {
                exchange.success(frame, waiting, now_ns, tally);
            } else {
                tally.error(answer.code, now_ns);
            }
            Ok(())
        });
        match result {
            Err(BenchError::Closed { address, .. }) => {
                Err(BenchError::Closed { address, unanswered: slots.iter().flatten().count() })
            }
            other => other,
        }
    }

    /// Sends on one connection as much as its window and the supply allow.
    fn fill(
        &mut self,
        lane: usize,
        supply: &mut Supply,
        now_ns: u64,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let lane_at = &mut self.lanes[lane];
        while !lane_at.free.is_empty()
            && let Some(due_ns) = supply.next(now_ns)
        {
            self.exchange.append(lane_at, due_ns);
            tally.sent += 1;
        }
        self.flush(lane)
    }

    /// Sends what is due, each message on the next connection that has room.
    fn send_due(
        &mut self,
        next_lane: &mut usize,
        supply: &mut Supply,
        now_ns: u64,
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        let lanes = self.lanes.len();
        loop {
            let candidates = (0..lanes).map(|step| (*next_lane + step) % lanes);
            let free = candidates.into_iter().find(|lane| !self.lanes[*lane].free.is_empty());
            let Some(lane) = free else { break };
            let Some(due_ns) = supply.next(now_ns) else { break };
            self.exchange.append(&mut self.lanes[lane], due_ns);
            tally.sent += 1;
            *next_lane = (lane + 1) % lanes;
        }
        for lane in 0..lanes {
            if !self.lanes[lane].link.out.is_empty() {
                self.flush(lane)?;
            }
        }
        Ok(())
    }

    /// Writes what is there, and asks to be told when the rest can be.
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

impl Exchange {
    /// Adds a request to what a connection writes next.
    fn append(&mut self, lane: &mut Lane, due_ns: u64) {
        let slot = lane.free.pop().expect("the caller saw a free slot");
        let queue = lane.first_queue + lane.next_queue;
        lane.next_queue = (lane.next_queue + 1) % self.queues_per_broker;
        let opaque = lane.opaques.next(slot);
        lane.slots[slot as usize] = Some(InFlight { opaque, queue, due_ns });
        self.templates.append(queue as usize, opaque, &self.stamp, &mut lane.link.out);
    }

    /// Counts messages that were stored, and where.
    fn success(&mut self, frame: &Frame<'_>, waiting: InFlight, now_ns: u64, tally: &mut Tally) {
        tally.success(u64::from(self.batch), self.body_bytes, now_ns);
        match self.queue_offset.read(frame) {
            Some(offset) => tally.spans[waiting.queue as usize].add(offset, self.batch),
            None => tally.problem("a send was acknowledged without a queue offset"),
        }
    }
}

fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
