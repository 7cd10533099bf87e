//! Whether a cluster kept its promises: what producers and consumers saw, against what is in the stores in the end.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::history::{At, MessageId, Position, Progress, Seen, Send};
use crate::log::Log;
use crate::mode::Promise;

/// So many violations of one kind are told.
const TOLD_MAX: usize = 5;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// An acknowledged message is not where its acknowledgement said.
    Lost,
    /// When all brokers were killed, an acknowledged message was in too few stores.
    CopiesMissing,
    /// A message is there more often than it was sent.
    Duplicated,
    /// Acknowledged messages of one producer don't have their order in a queue.
    Reordered,
    /// A consumer got what is not there in the end.
    ReadAndGone,
    /// No consumer got an acknowledged message.
    NotDelivered,
    /// Replicas have different logs.
    ReplicasDiffer,
    /// Progress went further back than it may.
    ProgressLost,
    /// Two nodes were master in one term, or one acknowledged what another had stored.
    TwoMasters,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub broken: Broken,
    /// The time in the history that it is about.
    pub at: At,
    /// The message that it is about.
    pub message: Option<MessageId>,
    /// In words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} at {:.3} s: {}", self.broken, self.at.as_secs_f64(), self.what)
    }
}

/// What there was in the stores when all brokers had been killed at once.
#[derive(Clone, Debug)]
pub struct Wreck {
    /// When they were.
    pub at: At,
    /// The logs, one of each replica.
    pub logs: Vec<Log>,
}

/// Two replicas whose bytes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The nodes.
    pub nodes: (usize, usize),
    /// The first offset at which they do, bytes.
    pub at: u64,
}

/// A node was the master of a term, as its own log file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mastership {
    /// The term, or epoch.
    pub term: u64,
    /// The node.
    pub node: usize,
}

/// Everything that there is to judge by.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// What was promised.
    pub promise: Promise,
    /// What was seen.
    pub seen: &'a Seen,
    /// What was left when all brokers were killed at once.
    pub wreck: Option<&'a Wreck>,
    /// The logs in the end, one of each replica.
    pub logs: &'a [Log],
    /// Where they differ.
    pub differences: &'a [Difference],
    /// Who was master.
    pub masters: &'a [Mastership],
}

/// Finds all violations, at most a few of each kind.
pub fn check(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut found = Found::default();
    check_replicas(evidence, &mut found);
    check_terms(evidence, &mut found);
    if let Some(wreck) = evidence.wreck {
        check_copies(evidence, wreck, &mut found);
    }
    if let Some(log) = evidence.logs.iter().max_by_key(|log| log.end) {
        let agreed = Agreed::new(log);
        check_acknowledged(evidence, &agreed, &mut found);
        check_duplicates(evidence, log, &mut found);
        check_deliveries(evidence, &agreed, &mut found);
    }
    check_order(evidence, &mut found);
    check_progress(evidence, &mut found);
    found.violations
}

#[derive(Default)]
struct Found {
    violations: Vec<Violation>,
    counts: BTreeMap<Broken, usize>,
}

impl Found {
    fn add(&mut self, broken: Broken, at: At, message: Option<MessageId>, what: String) {
        let count = self.counts.entry(broken).or_default();
        *count += 1;
        if *count <= TOLD_MAX {
            self.violations.push(Violation { broken, at, message, what });
        }
    }
}

/// What is where, in the log that all have in the end.
struct Agreed {
    at: HashMap<Position, Entry>,
    positions: HashMap<MessageId, Position>,
}

#[derive(Clone, Copy)]
struct Entry {
    message: MessageId,
    physical: u64,
    host: SocketAddr,
}

impl Agreed {
    fn new(log: &Log) -> Self {
        let entry = |record: &crate::log::Record| Entry {
            message: record.message,
            physical: record.physical,
            host: record.host,
        };
        Self {
            at: log.records.iter().map(|record| (record.position, entry(record))).collect(),
            positions: log.records.iter().map(|record| (record.message, record.position)).collect(),
        }
    }

    /// What lies at a position, in words.
    fn describe(&self, position: Position) -> String {
        self.at.get(&position).map_or_else(|| "nothing".to_owned(), |entry| entry.message.to_string())
    }
}

fn check_replicas(evidence: &Evidence<'_>, found: &mut Found) {
    let end_of_run = evidence.seen.sends.last().map_or(Duration::ZERO, |send| send.returned);
    for (node, log) in evidence.logs.iter().enumerate() {
        for damage in &log.damages {
            let what = format!("the log of node {node} is damaged {damage}");
            found.add(Broken::ReplicasDiffer, end_of_run, None, what);
        }
    }
    for Difference { nodes: (one, other), at } in evidence.differences {
        let what = format!("the logs of node {one} and node {other} differ at {at}");
        found.add(Broken::ReplicasDiffer, end_of_run, None, what);
    }
    let ends: Vec<u64> = evidence.logs.iter().map(|log| log.end).collect();
    if ends.iter().any(|end| Some(end) != ends.first()) {
        let what = format!("the logs end at different offsets: {ends:?}");
        found.add(Broken::ReplicasDiffer, end_of_run, None, what);
    }
}

fn check_terms(evidence: &Evidence<'_>, found: &mut Found) {
    let mut masters: BTreeMap<u64, HashSet<usize>> = BTreeMap::new();
    for Mastership { term, node } in evidence.masters {
        masters.entry(*term).or_default().insert(*node);
    }
    for (term, nodes) in masters.iter().filter(|(_, nodes)| nodes.len() > 1) {
        let what = format!("nodes {nodes:?} were all master in term {term}");
        found.add(Broken::TwoMasters, Duration::ZERO, None, what);
    }
    let hosts: HashSet<SocketAddr> =
        evidence.seen.sends.iter().filter_map(|send| send.receipt().map(|receipt| receipt.host)).collect();
    if !evidence.promise.is_elected && hosts.len() > 1 {
        let what = format!("there is one master, and {hosts:?} acknowledged messages");
        found.add(Broken::TwoMasters, Duration::ZERO, None, what);
    }
}

fn check_copies(evidence: &Evidence<'_>, wreck: &Wreck, found: &mut Found) {
    let stores: Vec<_> = wreck.logs.iter().map(Log::counts).collect();
    for send in evidence.seen.sends.iter().filter(|send| send.returned <= wreck.at) {
        let Some(receipt) = send.receipt() else { continue };
        let copies = stores.iter().filter(|store| store.contains_key(&send.message)).count();
        if copies < evidence.promise.copies {
            let what = format!(
                "{} was acknowledged at {} by {}, and is in {copies} of {} stores, {} are promised",
                send.message,
                receipt.position,
                receipt.host,
                stores.len(),
                evidence.promise.copies
            );
            found.add(Broken::CopiesMissing, send.returned, Some(send.message), what);
        }
    }
}

fn check_acknowledged(evidence: &Evidence<'_>, agreed: &Agreed, found: &mut Found) {
    let delivered: HashSet<_> =
        evidence.seen.deliveries.iter().map(|delivery| (delivery.position, delivery.message)).collect();
    for send in &evidence.seen.sends {
        let Some(receipt) = send.receipt() else { continue };
        let message = Some(send.message);
        let entry = agreed.at.get(&receipt.position).filter(|entry| entry.message == send.message);
        let Some(entry) = entry else {
            let elsewhere = match agreed.positions.get(&send.message) {
                Some(position) => format!("it is at {position}"),
                None => "it is nowhere".to_owned(),
            };
            let what = format!(
                "{} was acknowledged at {} by {}; there is {}, and {elsewhere}",
                send.message,
                receipt.position,
                receipt.host,
                agreed.describe(receipt.position)
            );
            found.add(Broken::Lost, send.returned, message, what);
            continue;
        };
        if (entry.host, entry.physical) != (receipt.host, receipt.physical) {
            let what = format!(
                "{} was acknowledged by {} at byte {}, but it was stored by {} at byte {}",
                send.message, receipt.host, receipt.physical, entry.host, entry.physical
            );
            found.add(Broken::TwoMasters, send.returned, message, what);
        }
        if !delivered.contains(&(receipt.position, message)) {
            let what = format!("{} at {} was not delivered to anybody", send.message, receipt.position);
            found.add(Broken::NotDelivered, send.returned, message, what);
        }
    }
}

fn check_duplicates(evidence: &Evidence<'_>, log: &Log, found: &mut Found) {
    let counts = log.counts();
    for send in &evidence.seen.sends {
        let count = counts.get(&send.message).copied().unwrap_or_default();
        if count > send.attempts_max {
            let what = format!(
                "{} was sent at most {} times, and is there {count} times",
                send.message, send.attempts_max
            );
            found.add(Broken::Duplicated, send.returned, Some(send.message), what);
        }
    }
}

fn check_deliveries(evidence: &Evidence<'_>, agreed: &Agreed, found: &mut Found) {
    for delivery in &evidence.seen.deliveries {
        let entry = agreed.at.get(&delivery.position).map(|entry| entry.message);
        if entry.is_none() || entry != delivery.message {
            let got = delivery.message.map_or_else(|| "what nobody sent".to_owned(), |id| id.to_string());
            let what = format!(
                "consumer {} got {got} at {}, where {} is in the end",
                delivery.consumer,
                delivery.position,
                agreed.describe(delivery.position)
            );
            found.add(Broken::ReadAndGone, delivery.at, delivery.message, what);
        }
    }
}

/// A producer sends one message after the other, so later acknowledgements have higher offsets in each queue.
fn check_order(evidence: &Evidence<'_>, found: &mut Found) {
    let mut last: HashMap<(u32, i32), (&Send, i64)> = HashMap::new();
    let mut sends: Vec<&Send> = evidence.seen.sends.iter().collect();
    sends.sort_by_key(|send| send.message);
    for send in sends {
        let Some(receipt) = send.receipt() else { continue };
        let Position { queue, offset } = receipt.position;
        if let Some((earlier, before)) = last.insert((send.message.producer, queue), (send, offset))
            && before >= offset
        {
            let what = format!(
                "{} was acknowledged at {queue}/{before}, and the later {} at {queue}/{offset}",
                earlier.message, send.message
            );
            found.add(Broken::Reordered, send.returned, Some(send.message), what);
        }
    }
}

fn check_progress(evidence: &Evidence<'_>, found: &mut Found) {
    let mut queues: BTreeMap<i32, Vec<&Progress>> = BTreeMap::new();
    for progress in &evidence.seen.progress {
        queues.entry(progress.position.queue).or_default().push(progress);
    }
    for looks in queues.values() {
        let times = times_that_count(looks);
        // Looks that are so old that nothing below them may be seen.
        let mut old = times.iter().zip(looks).peekable();
        let mut highest: Option<&Progress> = None;
        for (now, look) in times.iter().zip(looks) {
            let is_old = |then: Duration| then + evidence.promise.progress_lost_max <= *now;
            while let Some((_, earlier)) = old.next_if(|(then, _)| is_old(**then)) {
                if highest.is_none_or(|highest| earlier.position.offset > highest.position.offset) {
                    highest = Some(earlier);
                }
            }
            if let Some(highest) = highest.filter(|highest| look.position.offset < highest.position.offset) {
                let what = format!(
                    "the group was at {} at {:.3} s, and is at {}; at most the last {:?} may be lost",
                    highest.position,
                    highest.answered.as_secs_f64(),
                    look.position,
                    evidence.promise.progress_lost_max
                );
                found.add(Broken::ProgressLost, look.answered, None, what);
            }
        }
    }
}

/// When looks at the progress were made, by a clock that stands still while there are none for a while: either there was nobody to
/// answer, and so nobody who committed anything, or the whole machine slept.
fn times_that_count(looks: &[&Progress]) -> Vec<Duration> {
    const GAP_MAX: Duration = Duration::from_secs(2);
    let mut time = Duration::ZERO;
    let mut last = looks.first().map_or(Duration::ZERO, |look| look.answered);
    let mut times = Vec::with_capacity(looks.len());
    for look in looks {
        time += look.answered.saturating_sub(last).min(GAP_MAX);
        last = look.answered;
        times.push(time);
    }
    times
}
