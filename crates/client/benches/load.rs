//! One producer, or one push consumer, as fast as it goes; `bench/client` runs it beside `bench/java/ClientLoad.java`, which
//! does the same with the Java client.
//!
//! `load producer NAMESRV TOPIC WARM MESSAGES DEPTH` sends messages of 128 bytes, `DEPTH` of them at a time without an answer.
//! `load consumer NAMESRV TOPIC WARM MESSAGES GROUP` consumes a topic from its beginning. The first `WARM` messages are not
//! measured. Prints messages per second, and how much CPU time this process has used for each. `LOAD_THREADS` says how many
//! threads the runtime has; without it, it is one.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ferromq_client::{Client, ConsumeFrom, ConsumeResult, Delivery, Message};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const BODY: [u8; 128] = [b'x'; 128];

/// Counts messages and knows when the measured ones began and ended.
struct Progress {
    warm: u64,
    total: u64,
    done: AtomicU64,
    warmed_up: Notify,
    finished: Notify,
}

impl Progress {
    fn new(warm: u64, messages: u64) -> Arc<Self> {
        let (warmed_up, finished) = (Notify::new(), Notify::new());
        Arc::new(Self { warm, total: warm + messages, done: AtomicU64::new(0), warmed_up, finished })
    }

    fn add(&self, messages: u64) {
        let before = self.done.fetch_add(messages, Ordering::Relaxed);
        let passes = |mark| before < mark && before + messages >= mark;
        if passes(self.warm) {
            self.warmed_up.notify_one();
        }
        if passes(self.total) {
            self.finished.notify_one();
        }
    }

    /// Waits for both marks and prints what was between them.
    async fn measure(&self) -> Result<(), Box<dyn Error>> {
        self.warmed_up.notified().await;
        let (began, cpu_before) = (Instant::now(), cpu_seconds()?);
        let before = self.done.load(Ordering::Relaxed);
        self.finished.notified().await;
        let messages = (self.done.load(Ordering::Relaxed) - before) as f64;
        println!("messages_per_second {:.0}", messages / began.elapsed().as_secs_f64());
        println!("cpu_us_per_message {:.3}", (cpu_seconds()? - cpu_before) * 1e6 / messages);
        Ok(())
    }
}

/// CPU time of this process, in user space and in the kernel.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may hold blanks; behind it the 12th and 13th fields are these times.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

async fn produce(
    client: &Client,
    topic: &str,
    depth: u64,
    progress: Arc<Progress>,
) -> Result<(), Box<dyn Error>> {
    let producer = client.producer("bench-rust").start().await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut senders = JoinSet::new();
    for _ in 0..depth {
        let (producer, topic) = (producer.clone(), topic.to_owned());
        let (next, progress) = (next.clone(), progress.clone());
        senders.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < progress.total {
                producer.send(Message::new(&*topic, &BODY[..])).await?;
                progress.add(1);
            }
            Ok::<(), ferromq_client::Error>(())
        });
    }
    let sent = async {
        while let Some(sender) = senders.join_next().await {
            sender??;
        }
        Ok::<(), Box<dyn Error>>(())
    };
    tokio::try_join!(sent, progress.measure()).map(drop)
}

async fn consume(
    client: &Client,
    topic: &str,
    group: &str,
    progress: Arc<Progress>,
) -> Result<(), Box<dyn Error>> {
    let counting = progress.clone();
    let consumer = client
        .push_consumer(group)
        .subscribe(topic, "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .listener(move |delivery: Delivery| {
            counting.add(delivery.len() as u64);
            async { ConsumeResult::success() }
        })
        .start()
        .await?;
    progress.measure().await?;
    consumer.shutdown().await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::env::var("LOAD_THREADS").map_or(Ok(1), |threads| threads.parse())?;
    let mut runtime = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if threads > 1 {
        runtime.worker_threads(threads);
    }
    runtime.enable_all().build()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    // `cargo bench` adds a word of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [kind, name_servers, topic, warm, messages, last] = &words[..] else {
        return Err("load producer|consumer NAMESRV TOPIC WARM MESSAGES DEPTH|GROUP".into());
    };
    let progress = Progress::new(warm.parse()?, messages.parse()?);
    let client = Client::builder(&**name_servers).start()?;
    if kind == "producer" {
        produce(&client, topic, last.parse()?, progress).await?;
    } else {
        consume(&client, topic, last, progress).await?;
    }
    client.shutdown().await;
    Ok(())
}
