//! The `ferromq` program: name server, broker, both in one process, and a load generator.
//!
//! What lives here: the command line ([`args`]), where settings come from ([`settings`]), starting and stopping
//! ([`server`]), what is printed and logged ([`banner`], [`logging`]), and the load generator ([`mod@bench`]).
//!
//! This crate must not know how anything works inside.

mod args;
mod banner;
mod bench;
mod failure;
mod logging;
mod server;
mod settings;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(help_or_error) => {
            // Nobody is left to tell if this can't be printed.
            let _ = help_or_error.print();
            return if help_or_error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match cli.command {
        Command::Standalone(args) => server::standalone(&args),
        Command::Namesrv(args) => server::namesrv(&args),
        Command::Broker(args) => server::broker(&args),
        Command::Bench(args) => return bench::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ferromq: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
