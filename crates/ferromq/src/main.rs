//! The `ferromq` program.

mod bench;

use std::process::ExitCode;

use clap::Parser;

/// FerroMQ, a message broker that speaks RocketMQ's protocols.
#[derive(Debug, Parser)]
#[command(version)]
enum Cli {
    /// Load a broker and measure it
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    match Cli::parse() {
        Cli::Bench(args) => bench::run(args),
    }
}
