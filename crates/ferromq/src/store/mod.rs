//! `ferromq store`: looking into a store that no broker has open, one of ours or of the Java broker.
//!
//! Read first: [`place`], which store is meant and with which settings it was written. Everything that knows about files is in
//! `ferromq_store::offline`; here is what an operator types and reads.

mod body;
mod check;
mod config_files;
mod dump;
mod import_dledger;
mod place;
mod progress;
mod rebuild;
mod stat;
mod time;

use std::process::ExitCode;

use thiserror::Error;

/// Exit status when a command could not be carried out, or was not understood; 1 is for what was found.
pub(crate) const COULD_NOT_RUN: u8 = 2;

/// Arguments of `ferromq store`.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Verify every record, and queues and index against the log; change nothing
    Check(check::CheckArgs),
    /// Print messages as lines of JSON
    Dump(dump::DumpArgs),
    /// Make a store of what a stopped Java broker kept in DLedger mode
    ImportDledger(import_dledger::ImportArgs),
    /// Lay queues and index anew from the log
    Rebuild(rebuild::RebuildArgs),
    /// Sizes, topics, messages per day
    Stat(stat::StatArgs),
}

/// Why a command could not be carried out.
#[derive(Debug, Error)]
enum StoreToolError {
    #[error(transparent)]
    Settings(#[from] ferromq_broker::config::ConfigError),
    #[error("{} is no store: it has no directory commitlog (set --commit-log if the log is elsewhere)", .0.display())]
    NoStore(std::path::PathBuf),
    #[error(transparent)]
    Open(#[from] ferromq_store::OpenError),
    #[error(transparent)]
    File(#[from] ferromq_store::FileError),
    #[error(transparent)]
    Import(#[from] ferromq_store::offline::dledger::ImportError),
    #[error("can't write the output: {0}")]
    Output(#[from] std::io::Error),
}

/// Runs one command.
pub(crate) fn run(args: &StoreArgs) -> ExitCode {
    let outcome = match &args.command {
        Command::Check(args) => check::run(args),
        Command::Dump(args) => dump::run(args),
        Command::ImportDledger(args) => import_dledger::run(args),
        Command::Rebuild(args) => rebuild::run(args),
        Command::Stat(args) => stat::run(args),
    };
    match outcome {
        Ok(status) => status,
        // Whoever reads has seen enough, as in `ferromq store dump DIR | head`.
        Err(StoreToolError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ferromq store: {error}");
            ExitCode::from(COULD_NOT_RUN)
        }
    }
}
