//! How long nobody takes messages when a broker dies: one send after another, as an application with the defaults of the client makes
//! them, and a line for each time that they had to wait.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ferromq_client::{Client, Message, Producer, SendResult, SendStatus};
use ferromq_protocol::message::id;

use super::error::BenchError;

/// Between two sends.
const PAUSE: Duration = Duration::from_millis(1);
/// After a send that failed on all brokers.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// Options of `ferromq bench failover`.
#[derive(Debug, clap::Args)]
pub(super) struct FailoverArgs {
    /// Name server of the brokers, HOST:PORT
    #[arg(short = 'n', long, default_value = "127.0.0.1:9876")]
    namesrv: String,
    /// Topic to send to
    #[arg(long, default_value = "FerroBench")]
    topic: String,
    /// Milliseconds without an acknowledgement that are worth a line
    #[arg(long, default_value_t = 200)]
    gap: u64,
    /// Seconds after which to end; by default never
    #[arg(short = 's', long)]
    seconds: Option<u64>,
}

/// Sends until it is ended. The first line says when the first message was acknowledged, each other one when acknowledgements ceased
/// and when they came again, both in milliseconds since 1970, and by which broker; there is one, too, when another broker acknowledges.
pub(super) fn run(args: &FailoverArgs) -> Result<ExitCode, BenchError> {
    let runtime = tokio::runtime::Runtime::new().map_err(BenchError::Serve)?;
    runtime.block_on(async {
        let client = Client::builder(&args.namesrv).start()?;
        let producer = client.producer("FerroBench").start().await?;
        let end = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let mut last = Acknowledged::now();
        let mut acknowledging = None;
        while end.is_none_or(|end| Instant::now() < end) {
            let Some(broker) = send(&producer, &args.topic).await else {
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                continue;
            };
            let now = Acknowledged::now();
            let is_another = acknowledging.replace(broker) != Some(broker);
            if is_another || now.at - last.at >= Duration::from_millis(args.gap) {
                println!("{} {} {broker}", last.clock_ms, now.clock_ms);
            }
            last = now;
            tokio::time::sleep(PAUSE).await;
        }
        client.shutdown().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Sends one message; the broker that has it, if it is as safe there as it should be.
async fn send(producer: &Producer, topic: &str) -> Option<SocketAddr> {
    let sent = producer.send(Message::new(topic, "still there?")).await;
    match sent {
        Ok(SendResult { status: SendStatus::SendOk, offset_msg_id, .. }) => {
            id::parse_offset_id(&offset_msg_id).map(|(broker, _)| broker)
        }
        Ok(_) | Err(_) => None,
    }
}

/// When a message was acknowledged.
struct Acknowledged {
    at: Instant,
    clock_ms: u128,
}

impl Acknowledged {
    fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at: Instant::now(), clock_ms: since.as_millis() }
    }
}
