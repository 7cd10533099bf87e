//! The Rust client as one side of a scenario, in a process of its own that can be killed. What happens to it goes to its
//! output, a line each; `interop/java/src/interop/sdk` reads that, and its counterpart there prints the same.
//!
//! ```text
//! peer consume NAMESRV TOPIC GROUP    a push consumer
//! peer orderly NAMESRV TOPIC GROUP    the same with an orderly listener
//! peer transact NAMESRV TOPIC GROUP   sends the transactional messages that it reads from its input: BODY STATE
//! ```
//!
//! A consumer prints
//!
//! ```text
//! queues ID…                 the queues that it has, whenever these are others than before
//! begin QUEUE OFFSET TIME BODY NAME=VALUE…   its listener begins, time in µs since the epoch; with the message's properties
//! end QUEUE OFFSET TIME      its listener is done
//! left                       it has left the group in order, as the line `leave` in its input told it to
//! ```
//!
//! and a producer, where STATE is `commit`, `rollback` or `unknown`. A check is answered by committing, of the body `dropped` by
//! rolling back:
//!
//! ```text
//! sent BODY STATE ID         with the id of the message, which is that of the transaction
//! checked BODY
//! ```
//!
//! The end of its input is the end of the process.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use ferromq_client::{
    Client, ConsumeFrom, ConsumeOrderlyResult, ConsumeResult, Delivery, Error, LocalTransactionState,
    Message, PushConsumer,
};

/// How long a listener takes: long enough for another one to be caught at the same queue.
const WORK: Duration = Duration::from_millis(3);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, name_servers, topic, group] = &words[..] else {
        eprintln!("usage: peer consume|orderly|transact NAMESRV TOPIC GROUP");
        std::process::exit(2);
    };
    // As its counterpart: a busy machine lets servers wait, and the scenarios are about changes.
    let client = Client::builder(&**name_servers)
        .api_timeout(Duration::from_secs(20))
        .poll_name_server_interval(Duration::from_secs(1))
        .heartbeat_broker_interval(Duration::from_secs(1))
        .persist_consumer_offset_interval(Duration::from_secs(1))
        .start()?;
    match &**role {
        "transact" => transact(&client, topic, group).await?,
        _ => consume(&client, topic, group, role == "orderly").await?,
    }
    client.shutdown().await;
    Ok(())
}

/// Prints a line. Nobody reads any more: there is nothing left to do.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// The lines of the input.
fn input() -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (sender, lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn now_us() -> u128 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_micros()
}

async fn listen(delivery: Delivery) {
    let queue = delivery.queue().queue_id;
    for message in &delivery {
        let body = String::from_utf8_lossy(&message.body);
        let properties: Vec<String> =
            message.properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        tell(&format!("begin {queue} {} {} {body} {}", message.queue_offset, now_us(), properties.join(" ")));
        tokio::time::sleep(WORK).await;
        tell(&format!("end {queue} {} {}", message.queue_offset, now_us()));
    }
}

async fn consume(client: &Client, topic: &str, group: &str, orderly: bool) -> Result<(), Error> {
    let builder = client.push_consumer(group).subscribe(topic, "*").consume_from(ConsumeFrom::FirstOffset);
    let builder = if orderly {
        builder.orderly_listener(|delivery| async {
            listen(delivery).await;
            ConsumeOrderlyResult::Success
        })
    } else {
        builder.listener(|delivery| async {
            listen(delivery).await;
            ConsumeResult::success()
        })
    };
    let consumer = builder.start().await?;
    let (mut lines, mut known) = (input(), Vec::new());
    let mut look = tokio::time::interval(Duration::from_millis(20));
    loop {
        tokio::select! {
            _ = look.tick() => tell_queues(&consumer, topic, &mut known),
            line = lines.recv() => match line.as_deref() {
                Some("leave") => {
                    consumer.shutdown().await;
                    tell("left");
                }
                Some(line) => eprintln!("not understood: {line}"),
                None => return Ok(()),
            },
        }
    }
}

fn tell_queues(consumer: &PushConsumer, topic: &str, known: &mut Vec<i32>) {
    let queues = consumer.assigned_queues();
    let mut ids: Vec<i32> =
        queues.iter().filter(|queue| queue.topic == topic).map(|queue| queue.queue_id).collect();
    ids.sort_unstable();
    if ids != *known {
        let words: Vec<String> = ids.iter().map(i32::to_string).collect();
        tell(&format!("queues {}", words.join(" ")));
        *known = ids;
    }
}

async fn transact(client: &Client, topic: &str, group: &str) -> Result<(), Error> {
    let check = |message: ferromq_client::MessageExt| async move {
        tell(&format!("checked {}", String::from_utf8_lossy(&message.body)));
        if &message.body[..] == b"dropped" {
            LocalTransactionState::RollbackMessage
        } else {
            LocalTransactionState::CommitMessage
        }
    };
    let producer =
        client.producer(group).send_msg_timeout(Duration::from_secs(20)).start_transactional(check).await?;
    let mut lines = input();
    while let Some(line) = lines.recv().await {
        let (body, word) = line.split_once(' ').unwrap_or((&line, "unknown"));
        let state = match word {
            "commit" => LocalTransactionState::CommitMessage,
            "rollback" => LocalTransactionState::RollbackMessage,
            _ => LocalTransactionState::Unknown,
        };
        let message = Message::new(topic, body.to_owned()).keys([body]);
        let result = producer.send_in_transaction(message, |_| async move { state }).await?;
        tell(&format!("sent {body} {word} {}", result.sent.msg_id));
    }
    Ok(())
}
