//! `ferromq store stat`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use ferromq_store::offline::{Amount, Files, OfflineStore, Statistics, TopicStatistics};
use indicatif::{BinaryBytes, HumanCount};
use serde::Serialize;

use super::StoreToolError;
use super::place::Place;
use super::progress::{Count, Progress};
use super::time::local;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Messages and bytes are those in the log, of deleted topics too. Days are days of store time, in local time.")]
pub(super) struct StatArgs {
    #[command(flatten)]
    place: Place,
    /// Topics that are listed, the largest first
    #[arg(long, value_name = "N", default_value_t = 10)]
    topics: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The numbers as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    log: Sizes,
    queues: Sizes,
    index: Sizes,
    log_min: u64,
    log_end: u64,
    damages: u64,
    oldest_store_timestamp: Option<i64>,
    newest_store_timestamp: Option<i64>,
    messages: u64,
    bytes: u64,
    days: BTreeMap<String, Numbers>,
    days_left_out: bool,
    topic_count: usize,
    queue_count: u64,
    topics: Vec<Topic<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sizes {
    files: u64,
    bytes: u64,
    disk_bytes: u64,
}

#[derive(Serialize)]
struct Numbers {
    messages: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Topic<'a> {
    topic: &'a str,
    queues: u64,
    messages: u64,
    bytes: u64,
    days: BTreeMap<String, Numbers>,
}

pub(super) fn run(args: &StatArgs) -> Result<ExitCode, StoreToolError> {
    let store = OfflineStore::open(args.place.options()?)?;
    let mut progress = Progress::new();
    let log_bytes = store.log_bytes();
    let statistics = store.statistics(&mut |read| progress.show("log", Count::Bytes, read, log_bytes))?;
    progress.finish();
    let mut topics: Vec<(&str, &TopicStatistics)> =
        statistics.topics.iter().map(|(name, topic)| (name.as_str(), topic)).collect();
    topics.sort_by(|a, b| b.1.amount.bytes.cmp(&a.1.amount.bytes).then(a.0.cmp(b.0)));
    topics.truncate(args.topics);
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &document(&statistics, &topics)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&mut out, &statistics, &topics)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn document<'a>(statistics: &Statistics, topics: &[(&'a str, &TopicStatistics)]) -> Document<'a> {
    let sizes = |files: Files| Sizes { files: files.files, bytes: files.bytes, disk_bytes: files.disk_bytes };
    Document {
        log: sizes(statistics.log),
        queues: sizes(statistics.queues),
        index: sizes(statistics.index),
        log_min: statistics.log_min,
        log_end: statistics.log_end,
        damages: statistics.damages,
        oldest_store_timestamp: statistics.store_times_ms.map(|(oldest, _)| oldest),
        newest_store_timestamp: statistics.store_times_ms.map(|(_, newest)| newest),
        messages: statistics.amount.messages,
        bytes: statistics.amount.bytes,
        days: days(&statistics.days),
        days_left_out: statistics.days_left_out,
        topic_count: statistics.topics.len(),
        queue_count: queue_count(statistics),
        topics: topics
            .iter()
            .map(|(name, topic)| Topic {
                topic: name,
                queues: topic.queues,
                messages: topic.amount.messages,
                bytes: topic.amount.bytes,
                days: days(&topic.days),
            })
            .collect(),
    }
}

fn days<D: ToString>(days: &BTreeMap<D, Amount>) -> BTreeMap<String, Numbers> {
    let numbers = |amount: &Amount| Numbers { messages: amount.messages, bytes: amount.bytes };
    days.iter().map(|(day, amount)| (day.to_string(), numbers(amount))).collect()
}

fn queue_count(statistics: &Statistics) -> u64 {
    statistics.topics.values().map(|topic| topic.queues).sum()
}

fn print(
    out: &mut impl Write,
    statistics: &Statistics,
    topics: &[(&str, &TopicStatistics)],
) -> io::Result<()> {
    let mut sizes = table(&["", "files", "bytes", "on disk"]);
    for (name, files) in [("log", statistics.log), ("queues", statistics.queues), ("index", statistics.index)]
    {
        sizes.add_row([name.to_owned(), count(files.files), bytes(files.bytes), bytes(files.disk_bytes)]);
    }
    writeln!(out, "{sizes}\n")?;
    writeln!(out, "offsets   {} to {}", statistics.log_min, statistics.log_end)?;
    if let Some((oldest, newest)) = statistics.store_times_ms {
        writeln!(out, "stored    {} to {}", local(oldest), local(newest))?;
    }
    writeln!(out, "messages  {}, {}", count(statistics.amount.messages), bytes(statistics.amount.bytes))?;
    writeln!(
        out,
        "topics    {} with {} queues",
        count(statistics.topics.len() as u64),
        count(queue_count(statistics))
    )?;
    if statistics.damages > 0 {
        writeln!(out, "damaged   {} places, see ferromq store check", statistics.damages)?;
    }
    let mut by_day = table(&["day", "messages", "bytes"]);
    for (day, amount) in &statistics.days {
        by_day.add_row([day.to_string(), count(amount.messages), bytes(amount.bytes)]);
    }
    writeln!(out, "\n{by_day}")?;
    if statistics.days_left_out {
        writeln!(out, "Store times are of too many different days; some are left out.")?;
    }
    let mut by_topic = table(&["queues", "day", "messages", "bytes", "topic"]);
    for (name, topic) in topics {
        let (messages, size) = (count(topic.amount.messages), bytes(topic.amount.bytes));
        by_topic.add_row([count(topic.queues), "all".to_owned(), messages, size, (*name).to_owned()]);
        for (day, amount) in topic.days.iter().filter(|_| topic.days.len() > 1) {
            let (messages, size) = (count(amount.messages), bytes(amount.bytes));
            by_topic.add_row([String::new(), day.to_string(), messages, size, String::new()]);
        }
    }
    writeln!(out, "\n{by_topic}")?;
    let others = statistics.topics.len() - topics.len();
    if others > 0 {
        writeln!(out, "{} smaller topics are not listed (see --topics)", count(others as u64))?;
    }
    Ok(())
}

/// A table with plain rows; numbers stand to the right.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding(if at == 0 { (0, 1) } else { (1, 1) });
        if matches!(header[at], "messages" | "bytes" | "files" | "on disk" | "queues") {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

fn bytes(number: u64) -> String {
    BinaryBytes(number).to_string()
}
