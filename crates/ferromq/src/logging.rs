//! The log: lines on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::args::LogArgs;
use crate::failure::Failure;

pub(crate) fn start(args: &LogArgs) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&args.log_level).map_err(|error| Failure::LogLevel(error.to_string()))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
    Ok(())
}
