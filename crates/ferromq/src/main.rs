//! The `ferromq` program: name server, broker, both in one process, controller, a load generator, and tools for a store.
//!
//! What lives here: the command line ([`args`]), where settings come from ([`settings`]), starting and stopping
//! ([`server`]), what is printed and logged ([`banner`], [`logging`]), the load generator ([`mod@bench`]), and the tools for
//! a store that no broker has open ([`store`]).
//!
//! This crate must not know how anything works inside.

mod args;
mod banner;
mod bench;
mod failure;
mod logging;
mod server;
mod settings;
mod store;

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
            // The tools for a store keep 1 for what they find.
            let is_store = std::env::args_os().nth(1).is_some_and(|command| command == "store");
            return match help_or_error.use_stderr() {
                true if is_store => ExitCode::from(store::COULD_NOT_RUN),
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            };
        }
    };
    let outcome = match cli.command {
        Command::Standalone(args) => server::standalone(&args),
        Command::Namesrv(args) => server::namesrv(&args),
        Command::Broker(args) => server::broker(&args),
        Command::Controller(args) => server::controller(&args),
        Command::Bench(args) => return bench::run(args),
        Command::Store(args) => return store::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ferromq: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
