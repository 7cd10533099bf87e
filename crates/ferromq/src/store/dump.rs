//! `ferromq store dump`.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use ferromq_protocol::message::{RecordView, id, properties, sysflag};
use ferromq_store::offline::{OfflineStore, Selected, Selection};
use serde::Serialize;

use super::StoreToolError;
use super::body::Body;
use super::place::Place;
use super::time::parse_ms;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One line of JSON per message, for all messages for which every condition holds. Times are milliseconds since 1970,
RFC 3339 (2026-11-29T17:30:00Z), or local (2026-11-29 17:30:00).
With --topic and --queue the queue's files say where the messages are; with --topic and --key the index does; else the log is
read, from the file on that the conditions allow. Damaged places are named on the standard error stream.")]
pub(super) struct DumpArgs {
    #[command(flatten)]
    place: Place,
    /// The message that begins at this physical offset
    #[arg(long, value_name = "OFFSET", conflicts_with_all = ["from", "to"])]
    offset: Option<u64>,
    /// Messages from this physical offset on
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,
    /// Messages before this physical offset
    #[arg(long, value_name = "OFFSET")]
    to: Option<u64>,
    /// Messages of a topic
    #[arg(long, short = 't', value_name = "TOPIC")]
    topic: Option<String>,
    /// Messages of this queue of each topic
    #[arg(long, short = 'q', value_name = "ID")]
    queue: Option<i32>,
    /// Messages from this queue offset on
    #[arg(long, value_name = "OFFSET")]
    queue_from: Option<i64>,
    /// Messages before this queue offset
    #[arg(long, value_name = "OFFSET")]
    queue_to: Option<i64>,
    /// Messages stored at or after a time
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    begin: Option<i64>,
    /// Messages stored at or before a time
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    end: Option<i64>,
    /// Messages with this key, or this unique key
    #[arg(long, short = 'k', value_name = "KEY")]
    key: Option<String>,
    /// Most messages
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Decompress bodies
    #[arg(long)]
    decompress: bool,
    /// Read the log even if queue files or index could tell where the messages are
    #[arg(long)]
    read_log: bool,
}

/// A message as it is printed. The names are those of RocketMQ's Java client.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    topic: Option<&'a str>,
    queue_id: i32,
    queue_offset: i64,
    physical_offset: u64,
    size: usize,
    msg_id: String,
    store_timestamp: i64,
    store_host: String,
    born_timestamp: i64,
    born_host: String,
    flag: i32,
    sys_flag: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<&'static str>,
    reconsume_times: i32,
    prepared_transaction_offset: i64,
    #[serde(rename = "bodyCRC")]
    body_crc: u32,
    properties: BTreeMap<&'a str, &'a str>,
    body_size: usize,
    /// What `body` is: `text` or `base64`.
    body_encoding: &'static str,
    /// How the bytes in `body` are compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_compression: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_error: Option<String>,
    body: String,
}

impl<'a> Message<'a> {
    fn of(record: &RecordView<'a>, decompress: bool) -> Self {
        let Body { encoding, text, compression, error } = Body::of(record, decompress);
        Message {
            topic: record.topic(),
            queue_id: record.queue_id(),
            queue_offset: record.queue_offset(),
            physical_offset: record.physical_offset(),
            size: record.size(),
            msg_id: id::offset_id(record.store_host(), record.physical_offset()),
            store_timestamp: record.store_timestamp(),
            store_host: record.store_host().to_string(),
            born_timestamp: record.born_timestamp(),
            born_host: record.born_host().to_string(),
            flag: record.flag(),
            sys_flag: record.sys_flag(),
            transaction: match sysflag::transaction_type(record.sys_flag()) {
                sysflag::TRANSACTION_PREPARED => Some("prepared"),
                sysflag::TRANSACTION_COMMIT => Some("commit"),
                sysflag::TRANSACTION_ROLLBACK => Some("rollback"),
                _ => None,
            },
            reconsume_times: record.reconsume_times(),
            prepared_transaction_offset: record.prepared_transaction_offset(),
            body_crc: record.body_crc(),
            properties: properties::iter(record.properties()).collect(),
            body_size: record.body().len(),
            body_encoding: encoding,
            body_compression: compression,
            body_error: error,
            body: text,
        }
    }
}

impl DumpArgs {
    fn selection(&self) -> Selection {
        let (from, to) = match self.offset {
            Some(offset) => (offset, offset.saturating_add(1)),
            None => (self.from.unwrap_or(0), self.to.unwrap_or(u64::MAX)),
        };
        Selection {
            physical: from..to,
            topic: self.topic.clone(),
            queue_id: self.queue,
            queue_offsets: self.queue_from.unwrap_or(i64::MIN)..self.queue_to.unwrap_or(i64::MAX),
            store_times_ms: (self.begin.unwrap_or(i64::MIN), self.end.unwrap_or(i64::MAX)),
            key: self.key.clone(),
            read_log: self.read_log,
        }
    }
}

pub(super) fn run(args: &DumpArgs) -> Result<ExitCode, StoreToolError> {
    let store = OfflineStore::open(args.place.options()?)?;
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let max = args.max.unwrap_or(u64::MAX);
    let (mut printed, mut failure) = (0, None);
    if max > 0 {
        store.messages(&args.selection(), &mut |selected| {
            let record = match selected {
                Selected::Message(record) => record,
                Selected::Damage { offset, reason } => {
                    eprintln!("ferromq store: damaged log at offset {offset}: {reason}; skipped");
                    return ControlFlow::Continue(());
                }
            };
            let message = Message::of(record, args.decompress);
            let line = serde_json::to_writer(&mut out, &message).map_err(io::Error::from);
            match line.and_then(|()| out.write_all(b"\n")) {
                Ok(()) => printed += 1,
                Err(error) => failure = Some(error),
            }
            match failure.is_some() || printed >= max {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
    }
    if let Some(error) = failure {
        // What is left in the buffer has nobody to go to.
        let _ = out.into_parts();
        return Err(error.into());
    }
    out.flush()?;
    if let Some(offset) = args.offset.filter(|_| printed == 0) {
        eprintln!("ferromq store: no message for which all conditions hold begins at offset {offset}");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}
