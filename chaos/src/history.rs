//! What producers, consumers and an onlooker saw, and what was done to the cluster, with times.

use std::fmt;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time since the run began.
pub type At = Duration;

/// A message: who sent it, and which of its sends it was. This is what stands in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    /// The producer.
    pub producer: u32,
    /// Counts its sends.
    pub number: u64,
}

impl MessageId {
    /// The body of the message, of at least `bytes`.
    pub fn body(self, bytes: usize) -> Vec<u8> {
        let mut body = format!("{self} ").into_bytes();
        body.resize(body.len().max(bytes), b'.');
        body
    }

    /// Reads a body; `None` if it is none of ours.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?.split(' ').next()?;
        let (producer, number) = text.strip_prefix('p')?.split_once('-')?;
        Some(Self { producer: producer.parse().ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "p{}-{}", self.producer, self.number)
    }
}

/// A place in a queue of the topic under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The queue.
    pub queue: i32,
    /// Offset in it.
    pub offset: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.queue, self.offset)
    }
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Where the message is.
    pub position: Position,
    /// Who stored it.
    pub host: SocketAddr,
    /// Where it is in the log, bytes.
    pub physical: u64,
}

/// How a send ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// SEND_OK: the promise holds from now on.
    Acknowledged(Receipt),
    /// Stored by the master, but copies are missing (`FLUSH_SLAVE_TIMEOUT` and others): nothing is promised.
    Unsafe(Receipt),
    /// A broker said no; the message may be there all the same.
    Refused(String),
    /// No answer.
    Unknown(String),
}

/// One send of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// What was sent.
    pub message: MessageId,
    /// How often the client may have sent it.
    pub attempts_max: usize,
    /// When it began.
    pub called: At,
    /// When it ended.
    pub returned: At,
    /// How.
    pub outcome: Outcome,
}

impl Send {
    /// What the acknowledgement said, if there was one.
    pub fn receipt(&self) -> Option<Receipt> {
        match self.outcome {
            Outcome::Acknowledged(receipt) => Some(receipt),
            _ => None,
        }
    }
}

/// A message that a consumer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When.
    pub at: At,
    /// The consumer.
    pub consumer: u32,
    /// Where it was read.
    pub position: Position,
    /// What it was; `None` for a body that nobody sent.
    pub message: Option<MessageId>,
}

/// The group's progress in a queue, as the master said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When it was asked.
    pub asked: At,
    /// When it answered.
    pub answered: At,
    /// Offset of the next message.
    pub position: Position,
}

/// Something that was done to the cluster, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// When.
    pub at: At,
    /// What.
    pub what: String,
}

/// Everything that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// All sends that ended.
    pub sends: Vec<Send>,
    /// All that consumers got.
    pub deliveries: Vec<Delivery>,
    /// All looks at the group's progress.
    pub progress: Vec<Progress>,
    /// What was done.
    pub deeds: Vec<Deed>,
}

impl Seen {
    /// What happened around a time, and everything about one message.
    pub fn excerpt(&self, around: At, message: Option<MessageId>) -> String {
        const SPAN: Duration = Duration::from_millis(500);
        const LINES_MAX: usize = 60;
        let is_near = |at: At| at + SPAN >= around && at <= around + SPAN;
        let mut lines: Vec<(At, String)> = Vec::new();
        for deed in &self.deeds {
            lines.push((deed.at, format!("    {}", deed.what)));
        }
        for send in &self.sends {
            if Some(send.message) == message || is_near(send.returned) {
                let took = send.returned - send.called;
                lines.push((
                    send.returned,
                    format!("{} sent in {took:.1?}: {:?}", send.message, send.outcome),
                ));
            }
        }
        for delivery in self.deliveries.iter().filter(|delivery| delivery.message == message) {
            let Delivery { consumer, position, .. } = delivery;
            lines.push((delivery.at, format!("consumer {consumer} gets {position}")));
        }
        lines.sort_by_key(|(at, _)| *at);
        // Those nearest in time.
        let center = lines.partition_point(|(at, _)| *at < around);
        let first = center.saturating_sub(LINES_MAX / 2);
        let mut text = String::new();
        for (at, line) in lines.iter().skip(first).take(LINES_MAX) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:9.3} {line}", at.as_secs_f64());
        }
        text
    }
}

/// Where everything is noted while it happens.
#[derive(Debug)]
pub struct History {
    began: Instant,
    seen: Mutex<Seen>,
}

impl Default for History {
    fn default() -> Self {
        Self { began: Instant::now(), seen: Mutex::default() }
    }
}

impl History {
    /// The time.
    pub fn now(&self) -> At {
        self.began.elapsed()
    }

    /// Notes something.
    pub fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock());
    }

    /// Notes what is being done to the cluster.
    pub fn deed(&self, what: impl Into<String>) {
        let (at, what) = (self.now(), what.into());
        tracing::info!("{:8.3} {what}", at.as_secs_f64());
        self.note(|seen| seen.deeds.push(Deed { at, what }));
    }

    /// Looks at what was noted so far.
    pub fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock())
    }
}
