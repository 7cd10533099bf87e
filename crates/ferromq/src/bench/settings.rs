//! Options that producers and consumers share.

use std::time::Duration;

use ferromq_protocol::frame::HeaderEncoding;

/// Whom to load, with what, for how long.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct LoadArgs {
    /// Broker to load, HOST:PORT
    #[arg(long, default_value = "127.0.0.1:10911", conflicts_with = "namesrv")]
    pub(super) addr: String,
    /// Name server to ask for the brokers, HOST:PORT
    #[arg(short = 'n', long)]
    pub(super) namesrv: Option<String>,
    /// Topic, or the beginning of the topics' names when there are several
    #[arg(long, default_value = "FerroBench")]
    pub(super) topic: String,
    /// Topics to spread the load over
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) topics: u32,
    /// Queues of each topic to spread the load over
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) queues: u32,
    /// Connections
    #[arg(short = 'c', long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) connections: u32,
    /// Threads that generate the load
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) threads: u32,
    /// Encoding of the request headers
    #[arg(long, value_enum, default_value_t = Header::Json)]
    pub(super) header: Header,
    /// Seconds to measure
    #[arg(short = 's', long, default_value_t = 10.0, value_parser = seconds)]
    pub(super) seconds: f64,
    /// Messages to measure, instead of a time
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) messages: Option<u64>,
    /// Seconds of load before the measurement begins
    #[arg(short = 'w', long, default_value_t = 0.0, value_parser = seconds)]
    pub(super) warmup: f64,
    /// Process id of the server, to measure its CPU time and memory
    #[arg(long)]
    pub(super) server_pid: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print no progress
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,
}

/// Encoding of the request headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Header {
    /// JSON, what clients send by default.
    Json,
    /// RocketMQ's binary form.
    Binary,
}

impl From<Header> for HeaderEncoding {
    fn from(header: Header) -> Self {
        match header {
            Header::Json => Self::Json,
            Header::Binary => Self::Binary,
        }
    }
}

impl LoadArgs {
    /// The topics' names.
    pub(super) fn topic_names(&self) -> Vec<String> {
        match self.topics {
            1 => vec![self.topic.clone()],
            topics => (0..topics).map(|topic| format!("{}-{topic}", self.topic)).collect(),
        }
    }

    /// How headers of requests are written.
    pub(super) fn encoding(&self) -> HeaderEncoding {
        self.header.into()
    }

    /// How long to load before measuring.
    pub(super) fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup)
    }

    /// How long to measure; `None` when messages are counted instead.
    pub(super) fn measured_time(&self) -> Option<Duration> {
        self.messages.is_none().then(|| Duration::from_secs_f64(self.seconds))
    }

    /// Threads that have at least one connection.
    pub(super) fn workers(&self) -> u32 {
        self.threads.min(self.connections)
    }

    /// The connections of thread `worker`, which are numbered from 0 to all of them.
    pub(super) fn connections_of(&self, worker: u32) -> impl Iterator<Item = u32> + use<> {
        (worker..self.connections).step_by(self.workers() as usize)
    }

    /// The part of [`messages`](Self::messages) that thread `worker` sends.
    pub(super) fn messages_of(&self, worker: u32) -> Option<u64> {
        let (messages, workers) = (self.messages?, u64::from(self.workers()));
        Some(messages / workers + u64::from(u64::from(worker) < messages % workers))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    const SECONDS_MAX: f64 = 86_400.0;
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if (0.0..=SECONDS_MAX).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("not within 0 and {SECONDS_MAX}"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        load: LoadArgs,
    }

    #[test]
    fn work_is_divided_without_rest() {
        let args =
            Cli::parse_from(["bench", "--connections", "7", "--threads", "3", "--messages", "11"]).load;
        let connections: Vec<Vec<u32>> = (0..3).map(|worker| args.connections_of(worker).collect()).collect();
        assert_eq!(connections, [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
        assert_eq!((0..3).filter_map(|worker| args.messages_of(worker)).collect::<Vec<_>>(), [4, 4, 3]);
        assert_eq!(args.measured_time(), None);
    }

    #[test]
    fn topics_are_numbered_when_there_are_several() {
        assert_eq!(Cli::parse_from(["bench"]).load.topic_names(), ["FerroBench"]);
        assert_eq!(
            Cli::parse_from(["bench", "--topics", "2"]).load.topic_names(),
            ["FerroBench-0", "FerroBench-1"]
        );
    }
}
