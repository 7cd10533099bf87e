//! `ferromq store rebuild`.

use std::cell::RefCell;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use ferromq_store::offline::{OfflineStore, Rebuilt, rebuild};
use indicatif::{DecimalBytes, HumanCount};

use super::StoreToolError;
use super::place::Place;
use super::progress::{Count, Progress};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The log is read from its begin, and every queue and the index are laid anew; queue offsets stay what they are. A torn tail of the
log is cut, as any start does. Interrupting it does no harm: the next start, or the next rebuild, begins anew.")]
pub(super) struct RebuildArgs {
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(args: &RebuildArgs) -> Result<ExitCode, StoreToolError> {
    let options = args.place.options()?;
    // Looks at the lock before anything is changed.
    let log_bytes = OfflineStore::open(options.clone())?.log_bytes();
    let progress = RefCell::new(Progress::new());
    let begun = Instant::now();
    let rebuilt = rebuild(&options, &|read| {
        progress.borrow_mut().show("log", Count::Bytes, read, log_bytes);
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    progress.into_inner().finish();
    let Rebuilt { records, record_bytes, log_min, log_end, topics, queues, units } = rebuilt;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "log     offsets {log_min} to {log_end}: {} records, {}",
        HumanCount(records),
        DecimalBytes(record_bytes)
    )?;
    writeln!(
        out,
        "queues  {} of {} topics, with {} units",
        HumanCount(queues),
        HumanCount(topics),
        HumanCount(units)
    )?;
    let rate = |amount: u64| (amount as f64 / seconds) as u64;
    writeln!(
        out,
        "time    {seconds:.2} s: {} records/s, {}/s",
        HumanCount(rate(records)),
        DecimalBytes(rate(record_bytes))
    )?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
