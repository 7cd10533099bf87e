//! The long version: `chaos run --mode raft --minutes 30`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ferromq_chaos::{Fault, LinkKind, Mode, Options, Plan, run};

/// Breaks clusters of FerroMQ while they are used, and checks that they kept their promises
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
enum Cli {
    /// Run a cluster and judge it
    Run(RunArgs),
    /// Print what a run would do
    Plan(PlanArgs),
}

#[derive(Debug, clap::Args)]
struct PlanArgs {
    /// How the brokers keep their copies
    #[arg(long, value_enum)]
    mode: Mode,
    /// How long faults go on
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Repeat the faults of an earlier run [default: a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// Only these faults, separated by commas [default: all that the mode should bear]
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Vec<Fault>,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// The ferromq program [default: the one beside this]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where everything is kept; removed after a success [default: a new directory in the system's for temporary files]
    #[arg(long)]
    directory: Option<PathBuf>,
    /// How nodes are linked
    #[arg(long, value_enum, default_value_t)]
    links: LinkKind,
    /// A setting of all brokers, key=value, instead of the mode's own
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not of the form key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl PlanArgs {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.minutes.clamp(0.1, 10_000.0) * 60.0)
    }

    fn faults(&self) -> Vec<Fault> {
        if self.faults.is_empty() { self.mode.faults() } else { self.faults.clone() }
    }
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| "warn,ferromq_chaos=info,ferromq_client=error".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .init();
    match Cli::parse() {
        Cli::Plan(args) => {
            let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
            print!("{}", Plan::draw(seed, args.mode, &args.faults(), args.time()));
            ExitCode::SUCCESS
        }
        Cli::Run(args) => execute(&args),
    }
}

fn execute(args: &RunArgs) -> ExitCode {
    let seed = args.plan.seed.unwrap_or_else(|| fastrand::u64(..));
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name("ferromq");
    let directory = args.directory.clone();
    let options = Options {
        program: args.program.clone().unwrap_or_else(beside),
        mode: args.plan.mode,
        time: args.plan.time(),
        faults: args.plan.faults(),
        seed,
        directory: directory.unwrap_or_else(|| std::env::temp_dir().join(format!("chaos-{seed}"))),
        links: args.links,
        settings: args.settings.clone(),
    };
    println!("{:?}, seed {seed}, in {}", options.mode, options.directory.display());
    let outcome =
        tokio::runtime::Runtime::new().map_err(Into::into).and_then(|tokio| tokio.block_on(run(&options)));
    match outcome {
        Ok(report) => {
            println!("all promises were kept: {report}");
            remove(&options.directory)
        }
        Err(failure) => {
            println!(
                "{failure}\n{:?}, seed {seed}; everything is kept in {}",
                options.mode,
                options.directory.display()
            );
            ExitCode::FAILURE
        }
    }
}

fn remove(directory: &Path) -> ExitCode {
    match std::fs::remove_dir_all(directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{} can't be removed: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
