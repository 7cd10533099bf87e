//! One run: a cluster is started, used and broken, and judged.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::checker::{self, Broken, Difference, Evidence, Mastership, Violation, Wreck};
use crate::cluster::Cluster;
use crate::history::{History, Outcome, Position, Seen};
use crate::links::LinkKind;
use crate::load::{Load, QUEUES, TOPIC};
use crate::log::{self, Log, Unreadable};
use crate::mode::Mode;
use crate::nemesis;
use crate::node::SEGMENT_BYTES;
use crate::plan::{Fault, LASTS_MAX, Plan};

/// How long a cluster that nothing happens to may take to be as it should.
const PATIENCE: Duration = Duration::from_secs(240);
const TERMINATE_PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// Size of a node's disk, and what a minute's load adds.
const DISK_BYTES: u64 = 192 << 20;
const DISK_BYTES_PER_MINUTE: u64 = 32 << 20;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `ferromq` program.
    pub program: PathBuf,
    /// How the brokers keep copies.
    pub mode: Mode,
    /// How long faults go on.
    pub time: Duration,
    /// Which faults; see [`Mode::faults`].
    pub faults: Vec<Fault>,
    /// Where the plan comes from.
    pub seed: u64,
    /// Where everything is kept.
    pub directory: PathBuf,
    /// The network.
    pub links: LinkKind,
    /// Settings of all brokers, beside those of the mode and instead of them. Those that weaken a promise show that the
    /// checker would see it broken.
    pub settings: Vec<(String, String)>,
}

/// Why a run is not a success.
#[derive(Debug, Error)]
pub enum Failure {
    /// A promise was broken.
    #[error("{0}")]
    Violations(Verdict),
    /// A cluster that nothing happens to any more does not become as it should.
    #[error("the cluster does not recover: {0}")]
    Stuck(String),
    /// A program ended on its own.
    #[error("{0}")]
    Died(String),
    /// The client could not be started.
    #[error(transparent)]
    Client(#[from] ferromq_client::Error),
    /// A store can't be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The machine does not do what it should.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Broken promises, and what happened around them.
#[derive(Debug)]
pub struct Verdict {
    /// The promises.
    pub violations: Vec<Violation>,
    /// The parts of the history that show it.
    pub excerpts: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (violation, excerpt) in self.violations.iter().zip(&self.excerpts) {
            writeln!(formatter, "{violation}\n{excerpt}")?;
        }
        Ok(())
    }
}

/// What a run without a violation consisted of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sends with a promise.
    pub acknowledged: usize,
    /// Sends that were stored without the promised copies.
    pub not_safe: usize,
    /// Sends that brokers refused.
    pub refused: usize,
    /// Sends without an answer.
    pub unknown: usize,
    /// Messages that consumers got, the same ones counted again.
    pub delivered: usize,
    /// Looks at the group's progress.
    pub looks: usize,
    /// Messages in the log in the end.
    pub messages: usize,
    /// Times that a node became master.
    pub masterships: usize,
    /// The longest time without an acknowledgement.
    pub silence_max: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, not_safe, refused, unknown, delivered, .. } = self;
        write!(
            formatter,
            "{acknowledged} sends acknowledged, {not_safe} stored without enough copies, {refused} refused, {unknown} without \
             an answer; {delivered} deliveries; {} looks at progress; {} messages in the log; {} masters; at most {:.1?} \
             without an acknowledgement",
            self.looks, self.messages, self.masterships, self.silence_max
        )
    }
}

impl Report {
    fn new(seen: &Seen, messages: usize, masterships: usize) -> Self {
        let mut report = Self {
            delivered: seen.deliveries.len(),
            looks: seen.progress.len(),
            messages,
            masterships,
            ..Self::default()
        };
        let mut last = None;
        for send in &seen.sends {
            match send.outcome {
                Outcome::Acknowledged(_) => {
                    report.acknowledged += 1;
                    let silence = send.returned.saturating_sub(last.unwrap_or(send.returned));
                    report.silence_max = report.silence_max.max(silence);
                    last = Some(send.returned);
                }
                Outcome::Unsafe(_) => report.not_safe += 1,
                Outcome::Refused(_) => report.refused += 1,
                Outcome::Unknown(_) => report.unknown += 1,
            }
        }
        report
    }
}

/// Runs a cluster through the plan of the options' seed. Everything that it wrote is in the directory when this returns an
/// error, beside `history.txt` and `plan.txt`.
///
/// # Errors
/// Why it is not a success; above all [`Failure::Violations`].
pub async fn run(options: &Options) -> Result<Report, Failure> {
    let plan = Plan::draw(options.seed, options.mode, &options.faults, options.time);
    fs::create_dir_all(&options.directory)?;
    fs::write(options.directory.join("plan.txt"), plan.to_string())?;
    let minutes = options.time.as_secs().div_ceil(60);
    let mut cluster = Cluster::start(options, DISK_BYTES + DISK_BYTES_PER_MINUTE * minutes)?;
    let history = Arc::new(History::default());
    let outcome = judge(options, &plan, &mut cluster, &history).await;
    if outcome.is_err() {
        fs::write(options.directory.join("history.txt"), history.look(whole_history))?;
        cluster.keep_files()?;
    }
    outcome
}

async fn judge(
    options: &Options,
    plan: &Plan,
    cluster: &mut Cluster,
    history: &Arc<History>,
) -> Result<Report, Failure> {
    cluster.create_topic(TOPIC, QUEUES, PATIENCE).await.map_err(Failure::Stuck)?;
    let load = Load::start(cluster.namesrv(), history).await?;
    await_acknowledgements(cluster, history).await?;

    nemesis::torment(cluster, plan, &load, history, PATIENCE).await?;
    await_acknowledgements(cluster, history).await?;

    cluster.kill_all()?;
    let wreck_at = history.now();
    history.deed("all nodes are killed");
    let wreck = Wreck { at: wreck_at, logs: read_logs(cluster)? };
    nemesis::mend(cluster, history)?;
    await_acknowledgements(cluster, history).await?;

    load.stop_producers().await;
    cluster.caught_up(TOPIC, PATIENCE).await.map_err(Failure::Stuck)?;
    await_deliveries(cluster, history).await?;
    load.stop().await;
    cluster.terminate(TERMINATE_PATIENCE)?;

    let logs = read_logs(cluster)?;
    let differences = compare(&cluster.stores(), &logs)?;
    let masters = masterships(cluster.directories())?;
    history.look(|seen| {
        let promise = options.mode.promise(cut_off_max(plan));
        let evidence = Evidence {
            promise,
            seen,
            wreck: Some(&wreck),
            logs: &logs,
            differences: &differences,
            masters: &masters,
        };
        let violations = checker::check(&evidence);
        if violations.is_empty() {
            let messages = logs.iter().map(|log| log.records.len()).max().unwrap_or_default();
            return Ok(Report::new(seen, messages, masters.len()));
        }
        let excerpts =
            violations.iter().map(|violation| seen.excerpt(violation.at, violation.message)).collect();
        Err(Failure::Violations(Verdict { violations, excerpts }))
    })
}

/// For how long a node may have known nothing of the others, starts included.
fn cut_off_max(plan: &Plan) -> Duration {
    const START: Duration = Duration::from_secs(10);
    plan.rounds.iter().map(|round| round.lasts).max().unwrap_or(LASTS_MAX) + START
}

/// Waits until something that was sent from now on is acknowledged in each queue.
async fn await_acknowledgements(cluster: &mut Cluster, history: &History) -> Result<(), Failure> {
    let (from, first) = history.look(|seen| (history.now(), seen.sends.len()));
    let is_done = || {
        history.look(|seen| {
            (0..QUEUES).all(|queue| {
                seen.sends[first..].iter().any(|send| {
                    send.called >= from
                        && send.receipt().is_some_and(|receipt| receipt.position.queue == queue)
                })
            })
        })
    };
    until(cluster, "sends to all queues are acknowledged", is_done).await
}

/// Waits until everything that was acknowledged was delivered.
async fn await_deliveries(cluster: &mut Cluster, history: &History) -> Result<(), Failure> {
    let mut missing: HashSet<Position> = history.look(|seen| {
        seen.sends.iter().filter_map(|send| send.receipt()).map(|receipt| receipt.position).collect()
    });
    let mut looked_at = 0;
    let is_done = || {
        history.look(|seen| {
            for delivery in &seen.deliveries[looked_at..] {
                missing.remove(&delivery.position);
            }
            looked_at = seen.deliveries.len();
        });
        missing.is_empty()
    };
    // What is still missing is a violation that the checker describes.
    match until(cluster, "everything acknowledged is delivered", is_done).await {
        Err(Failure::Stuck(reason)) => {
            tracing::warn!("{reason}");
            Ok(())
        }
        outcome => outcome,
    }
}

async fn until(cluster: &mut Cluster, what: &str, mut is_done: impl FnMut() -> bool) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() {
        let deaths = cluster.deaths()?;
        if !deaths.is_empty() {
            return Err(Failure::Died(deaths.join("\n")));
        }
        if Instant::now() > deadline {
            return Err(Failure::Stuck(format!("not within {PATIENCE:?}: {what}")));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn read_logs(cluster: &Cluster) -> Result<Vec<Log>, Unreadable> {
    cluster.stores().iter().map(|store| log::read(store, SEGMENT_BYTES, TOPIC)).collect()
}

/// Compares the bytes that replicas have in common.
fn compare(stores: &[PathBuf], logs: &[Log]) -> io::Result<Vec<Difference>> {
    let mut differences = Vec::new();
    for other in 1..logs.len() {
        let begin = logs[0].begin.max(logs[other].begin);
        let end = logs[0].end.min(logs[other].end);
        let pair: [&Path; 2] = [&stores[0], &stores[other]];
        if let Some(at) = log::first_difference(pair, SEGMENT_BYTES, begin, end)? {
            differences.push(Difference { nodes: (0, other), at });
        }
    }
    Ok(differences)
}

/// Lines of brokers' log files by which a node becomes master, and where the term stands in them.
const BECOMES_MASTER: [(&str, &str); 2] =
    [("this node leads its Raft group", " term="), ("this replica is master", " epoch=")];

/// Who was master of which term, as the brokers' own log files say.
fn masterships<'a>(directories: impl Iterator<Item = &'a Path>) -> io::Result<Vec<Mastership>> {
    let mut masters = Vec::new();
    for (node, directory) in directories.enumerate() {
        let text = fs::read_to_string(directory.join("broker.log"))?;
        masters.extend(text.lines().filter_map(mastership).map(|term| Mastership { term, node }));
    }
    masters.sort_unstable();
    masters.dedup();
    Ok(masters)
}

/// The term of which a line says that the broker is its master.
fn mastership(line: &str) -> Option<u64> {
    let (_, field) = BECOMES_MASTER.into_iter().find(|(says, _)| line.contains(says))?;
    let (_, rest) = line.split_once(field)?;
    rest.split(' ').next()?.parse().ok()
}

fn whole_history(seen: &Seen) -> String {
    let mut lines: Vec<(Duration, String)> = Vec::new();
    lines.extend(seen.deeds.iter().map(|deed| (deed.at, format!("    {}", deed.what))));
    lines.extend(seen.sends.iter().map(|send| {
        (
            send.returned,
            format!("{} sent at {:.3}: {:?}", send.message, send.called.as_secs_f64(), send.outcome),
        )
    }));
    lines.extend(seen.deliveries.iter().map(|delivery| (delivery.at, format!("{delivery:?}"))));
    lines.extend(seen.progress.iter().map(|look| (look.answered, format!("progress {}", look.position))));
    lines.sort_by_key(|(at, _)| *at);
    let lines = lines.into_iter().map(|(at, line)| format!("{:9.3} {line}\n", at.as_secs_f64()));
    lines.collect()
}

impl Failure {
    /// Which promises were broken.
    pub fn broken(&self) -> Vec<Broken> {
        match self {
            Failure::Violations(verdict) => {
                verdict.violations.iter().map(|violation| violation.broken).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mastership;

    #[test]
    fn lines_that_say_who_is_master() {
        let raft = "2026-11-30T03:22:07Z  INFO ferromq_replication::raft::node: this node leads its Raft group group=\"broker-a\" term=2 begin=220830";
        assert_eq!(mastership(raft), Some(2));
        let controlled = "2026-11-30T03:22:07Z  INFO ferromq_broker::replication::controlled: this replica is master epoch=7 id=2";
        assert_eq!(mastership(controlled), Some(7));
        assert_eq!(mastership("this replica is a slave epoch=7 id=2"), None);
    }
}
