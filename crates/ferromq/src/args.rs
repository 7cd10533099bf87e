//! The command line.

use std::path::PathBuf;

use crate::bench::BenchArgs;
use crate::store::StoreArgs;

/// FerroMQ, a message broker for Apache RocketMQ's clients and tools
#[derive(Debug, clap::Parser)]
#[command(
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "\
Begin with `ferromq standalone`, and point clients at the name server 127.0.0.1:9876."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run a name server and a broker in one process
    Standalone(StandaloneArgs),
    /// Run a name server
    Namesrv(NamesrvArgs),
    /// Run a broker
    Broker(BrokerArgs),
    /// Run a controller, which decides which replica of a broker set is master
    Controller(ControllerArgs),
    /// Load a broker and measure it
    Bench(BenchArgs),
    /// Look into a store that no broker has open
    Store(StoreArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct StandaloneArgs {
    /// Port of the name server; 0 is any free port
    #[arg(long, value_name = "PORT", default_value_t = 9876)]
    pub(crate) namesrv_port: u16,
    /// Port of the broker [default: listenPort of the file, or 10911]; 0 is any free port
    #[arg(long, value_name = "PORT")]
    pub(crate) broker_port: Option<u16>,
    /// Directory of everything that is stored [default: storePathRootDir of the file, or ./ferromq-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Settings of the broker, a broker.conf
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamesrvArgs {
    /// Settings, a namesrv.conf
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
    /// Accepted because RocketMQ's does; a name server needs no other
    #[arg(short = 'n', long = "namesrvAddr", value_name = "LIST", hide = true)]
    pub(crate) namesrv_addr: Option<String>,
    /// Print all settings and exit
    #[arg(short = 'p', long = "printConfigItem")]
    pub(crate) print_config: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Settings come from the command line, then the file, then the environment (NAMESRV_ADDR), then the defaults.")]
pub(crate) struct BrokerArgs {
    /// Settings, a broker.conf
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
    /// Name servers, such as '10.0.0.1:9876;10.0.0.2:9876'
    #[arg(short = 'n', long = "namesrvAddr", value_name = "LIST")]
    pub(crate) namesrv_addr: Option<String>,
    /// Print all settings and exit
    #[arg(short = 'p', long = "printConfigItem")]
    pub(crate) print_config: bool,
    /// Print the important settings and exit
    #[arg(short = 'm', long = "printImportantConfig", conflicts_with = "print_config")]
    pub(crate) print_important_config: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A group of one: a file with
  controllerDLegerGroup=group1
  controllerDLegerPeers=n0-127.0.0.1:9878
  controllerDLegerSelfId=n0")]
pub(crate) struct ControllerArgs {
    /// Settings, a controller.conf
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
    /// Accepted because RocketMQ's does; a controller needs none
    #[arg(short = 'n', long = "namesrvAddr", value_name = "LIST", hide = true)]
    pub(crate) namesrv_addr: Option<String>,
    /// Print all settings and exit
    #[arg(short = 'p', long = "printConfigItem")]
    pub(crate) print_config: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// What is logged: error, warn, info, debug, trace, or directives such as ferromq_broker=debug
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG", default_value = "info,openraft=off")]
    pub(crate) log_level: String,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
