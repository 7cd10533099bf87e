//! `ferromq bench`: load on any RocketMQ-compatible broker, and what it costs that broker.
//!
//! The load generator shares the machine with the server that it measures, so it is made to cost next to nothing: frames
//! are encoded once and only their changing digits are patched ([`template`]), a few threads with non-blocking sockets
//! ([`link`], [`poller`]) write a window of requests at once and read many answers at once, and of an answer only the
//! wanted fields are looked at ([`answer`]).
//!
//! Read first: [`producer`] and [`consumer`], the two loops; [`driver`], which runs them for a measured time;
//! [`report`], what comes out. [`failover`] measures how long nobody takes messages; it is an application of the client. [`null_server`] is the yardstick: it answers sends without storing anything.

mod answer;
mod consumer;
mod control;
mod driver;
mod error;
mod failover;
mod link;
mod null_server;
mod opaque;
mod poller;
mod process;
mod producer;
mod progress;
mod report;
mod settings;
mod spans;
mod supply;
mod tally;
mod template;

use std::process::ExitCode;

use error::BenchError;

/// Arguments of `ferromq bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Send messages and measure throughput and latency
    Producer(producer::ProducerArgs),
    /// Pull messages and measure throughput and latency
    Consumer(consumer::ConsumerArgs),
    /// Send one message after another, and print each time that nobody acknowledged them
    Failover(failover::FailoverArgs),
    /// Answer sends without storing anything: the yardstick for everything else
    NullServer(null_server::NullServerArgs),
}

/// Runs one benchmark. It fails if the load could not be applied or an answer was wrong; requests that the server
/// refused are only reported.
pub(crate) fn run(args: BenchArgs) -> ExitCode {
    let outcome = match args.command {
        Command::Producer(args) => producer::run(&args),
        Command::Consumer(args) => consumer::run(&args),
        Command::Failover(args) => failover::run(&args),
        Command::NullServer(args) => null_server::run(&args),
    };
    outcome.unwrap_or_else(|error: BenchError| {
        eprintln!("ferromq bench: {error}");
        ExitCode::FAILURE
    })
}
