//! `ferromq store check`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use ferromq_store::offline::{CheckProgress, CheckReport, Checked, Finding, OfflineStore, Severity};

use super::StoreToolError;
use super::config_files;
use super::place::Place;
use super::progress::{Count, Progress};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0 the store is sound, 1 something was found, 2 the check could not be made.
The store must not be in use; nothing in it is changed.")]
pub(super) struct CheckArgs {
    #[command(flatten)]
    place: Place,
    /// Most findings that are listed; all are counted
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

/// The findings: the first ones, and how many of each kind.
struct Report {
    progress: Progress,
    limit: usize,
    listed: Vec<Finding>,
    counts: BTreeMap<(Severity, &'static str), u64>,
}

impl CheckReport for Report {
    fn found(&mut self, finding: Finding) {
        let kind = (finding.problem.severity(), finding.problem.kind());
        *self.counts.entry(kind).or_default() += 1;
        if self.listed.len() < self.limit {
            self.listed.push(finding);
        }
    }

    fn progress(&mut self, progress: CheckProgress) {
        match progress {
            CheckProgress::Log { done, of } => self.progress.show("log", Count::Bytes, done, of),
            CheckProgress::Queues { done, of } => self.progress.show("queues", Count::Things, done, of),
        }
    }
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, StoreToolError> {
    let options = args.place.options()?;
    let root = options.root.clone();
    let store = OfflineStore::open(options)?;
    let mut report =
        Report { progress: Progress::new(), limit: args.limit, listed: Vec::new(), counts: BTreeMap::new() };
    config_files::check(&root, |finding| report.found(finding));
    let checked = store.check(config_files::topics(&root).as_ref(), &mut report)?;
    let Report { progress, listed, counts, .. } = report;
    progress.finish();
    print(&root, &checked, &listed, &counts)?;
    let is_sound = counts.keys().all(|(severity, _)| *severity == Severity::Note);
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(
    root: &Path,
    checked: &Checked,
    listed: &[Finding],
    counts: &BTreeMap<(Severity, &'static str), u64>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for finding in listed {
        writeln!(out, "{}", line(root, finding))?;
    }
    let all: u64 = counts.values().sum();
    if all > listed.len() as u64 {
        writeln!(out, "... and {} more (see --limit)", all - listed.len() as u64)?;
    }
    if all > 0 {
        writeln!(out)?;
    }
    let Checked { records, record_bytes, log_min, log_end, queues, units, keys, .. } = checked;
    writeln!(out, "log     offsets {log_min} to {log_end}: {records} whole records, {record_bytes} bytes")?;
    writeln!(out, "queues  {queues}, with {units} right units")?;
    writeln!(out, "index   {keys} right keys")?;
    for ((severity, kind), count) in counts.iter().rev() {
        writeln!(out, "{}  {count} {kind}", label(*severity))?;
    }
    let wrong: u64 =
        counts.iter().filter(|((severity, _), _)| *severity > Severity::Note).map(|(_, n)| n).sum();
    match wrong {
        0 => writeln!(out, "The store is sound."),
        1 => writeln!(out, "One finding."),
        wrong => writeln!(out, "{wrong} findings."),
    }?;
    out.flush()
}

/// A finding as it is printed.
pub(super) fn line(root: &Path, finding: &Finding) -> String {
    let file = finding.file.strip_prefix(root).unwrap_or(&finding.file).display();
    let position = finding.position.map(|position| format!(":{position}")).unwrap_or_default();
    format!("{} {file}{position}: {}", label(finding.problem.severity()), finding.problem)
}

fn label(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note   ",
        Severity::Repairable => "repair ",
        Severity::Damage => "damage ",
    }
}
