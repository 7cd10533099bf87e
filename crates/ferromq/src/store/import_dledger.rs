//! `ferromq store import-dledger`.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use ferromq_broker::batch_topics;
use ferromq_broker::config::{BrokerConfig, store_options};
use ferromq_store::StoreOptions;
use ferromq_store::offline::dledger::{
    DledgerSource, ImportOptions, ImportStep, Imported, Survey, Uncommitted, import,
};
use ferromq_store::offline::{Layout, Severity};
use indicatif::{DecimalBytes, HumanCount};

use super::StoreToolError;
use super::check::line;
use super::progress::{Count, Progress};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Messages, their order and their queue offsets stay; physical offsets do not. Topics, groups and progress come along with config/*.json.
The source is read only, and must not be in use. The new store is compared with it, message by message, before it gets its name.
Exit status: 0 imported, 1 imported but something was found, 2 not imported (then nothing is left of it).")]
pub(super) struct ImportArgs {
    /// Directory of the stopped broker's store (storePathRootDir), which has dledger-ID/data
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// Directory of the new store; must not be there, or be empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Which member, if DIR has the data of several (dLegerSelfId)
    #[arg(long, value_name = "ID")]
    member: Option<String>,
    /// Directory of the entries, if not in DIR (storePathDLedgerCommitLog); may be given several times
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Directory of the log from before DLedger [default: DIR/commitlog, if it is there]
    #[arg(long, value_name = "DIR")]
    commit_log: Option<PathBuf>,
    /// Settings of the new store, a broker.conf [default: file sizes are those of the source]
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// What to do with messages that are not known to be committed [default: import nothing if there are any]
    #[arg(long, value_enum, value_name = "WHAT")]
    uncommitted: Option<Choice>,
    /// Import what is whole although other parts of the source are damaged
    #[arg(long)]
    skip_damaged: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Choice {
    Keep,
    Drop,
}

pub(super) fn run(args: &ImportArgs) -> Result<ExitCode, StoreToolError> {
    let source =
        DledgerSource::open(&args.source, args.member.as_deref(), &args.data, args.commit_log.as_deref())?;
    source.check_target(&args.to)?;
    let options = ImportOptions {
        store: store_of(args, &source)?,
        uncommitted: match args.uncommitted {
            None => Uncommitted::Refuse,
            Some(Choice::Keep) => Uncommitted::Keep,
            Some(Choice::Drop) => Uncommitted::Drop,
        },
        skip_damaged: args.skip_damaged,
    };
    let progress = RefCell::new(Progress::new());
    let begun = Instant::now();
    let bytes = source.bytes();
    let survey = source.survey(&mut |read| progress.borrow_mut().show("read", Count::Bytes, read, bytes))?;
    print_survey(&source, &survey)?;
    let imported = import(&source, &survey, &options, &|step, done, of| {
        let (phase, count) = match step {
            ImportStep::Copy => ("copy", Count::Bytes),
            ImportStep::Queues => ("queues", Count::Bytes),
            ImportStep::Compare => ("compare", Count::Bytes),
            ImportStep::Check => ("check", Count::Things),
        };
        progress.borrow_mut().show(phase, count, done, of);
    })?;
    progress.into_inner().finish();
    print_imported(args, &imported, begun.elapsed().as_secs_f64())?;
    let is_sound = imported.findings.iter().all(|finding| finding.problem.severity() == Severity::Note);
    let is_whole = survey.damaged == 0;
    Ok(if is_sound && is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Settings of the new store.
fn store_of(args: &ImportArgs, source: &DledgerSource) -> Result<StoreOptions, StoreToolError> {
    let mut options = StoreOptions::new(&args.to);
    if let Some(file) = &args.config_file {
        let mut config = BrokerConfig::default();
        for warning in config.read(file)? {
            eprintln!("warning: {warning}");
        }
        options = StoreOptions { root: args.to.clone(), ..store_options(&config) };
    } else if let Some(directory) = source.entries_directory() {
        Layout::of(source.root(), directory)?.apply(&mut options);
    }
    options.batch_topics = batch_topics(&args.source.join("config"));
    Ok(options)
}

fn print_survey(source: &DledgerSource, survey: &Survey) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let messages = survey.messages_before + survey.messages;
    let member = source.member().map(|member| format!(" of member {member}")).unwrap_or_default();
    writeln!(
        out,
        "source     {} messages, {}{member}",
        HumanCount(messages),
        DecimalBytes(survey.message_bytes)
    )?;
    if survey.messages_before > 0 {
        writeln!(out, "           {} of them from before DLedger", HumanCount(survey.messages_before))?;
    }
    let known = survey.committed_index.map_or_else(|| "unknown".to_owned(), |index| index.to_string());
    if let Some(last) = survey.last_index {
        writeln!(out, "entries    up to {last} of term {}, committed up to {known}", survey.last_term)?;
    }
    for damage in &survey.damages {
        writeln!(out, "damage     {damage}")?;
    }
    if survey.damaged > survey.damages.len() as u64 {
        writeln!(out, "damage     in {} more places", survey.damaged - survey.damages.len() as u64)?;
    }
    if let Some(tail) = &survey.tail {
        writeln!(out, "tail       left out, as it is no part of the log: {tail}")?;
    }
    for queue in &survey.repeated {
        writeln!(
            out,
            "renumbered {}-{}: the source gave offset {} and those behind it again; {} messages got higher ones, by up to {}",
            queue.topic,
            queue.queue_id,
            queue.from,
            HumanCount(queue.messages),
            queue.raised_by
        )?;
    }
    out.flush()
}

fn print_imported(args: &ImportArgs, imported: &Imported, seconds: f64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let store = &imported.store;
    writeln!(
        out,
        "log        offsets {} to {}: {} messages, {}",
        store.log_min,
        store.log_end,
        HumanCount(store.records),
        DecimalBytes(store.record_bytes)
    )?;
    if imported.dropped > 0 {
        writeln!(
            out,
            "dropped    {} messages that are not known to be committed",
            HumanCount(imported.dropped)
        )?;
    }
    let (queues, units) = (HumanCount(store.queues), HumanCount(store.units));
    writeln!(out, "queues     {queues} of {} topics, with {units} units", HumanCount(store.topics))?;
    if imported.empty_queues > 0 {
        let empty = HumanCount(imported.empty_queues);
        writeln!(out, "           {empty} of them are empty, and go on where they were")?;
    }
    writeln!(out, "index      {} keys", HumanCount(imported.checked.keys))?;
    writeln!(out, "config     {} files", imported.config_files)?;
    for finding in &imported.findings {
        writeln!(out, "{}", line(&args.to, finding))?;
    }
    writeln!(
        out,
        "verified   {} messages: bytes, CRCs, queue offsets and order are those of the source; queues and index are those of the log",
        HumanCount(store.records)
    )?;
    writeln!(out, "time       {seconds:.2} s; the store is {}", args.to.display())?;
    out.flush()
}
