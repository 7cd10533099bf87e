//! Receives messages until there are none for five seconds: `cargo run --example pop -- 127.0.0.1:9876`.

use std::time::Duration;

use ferromq_client::{Client, ConsumeFrom, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let consumer = client
        .pop_consumer("example-poppers")
        .subscribe("TopicTest", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .await_duration(Duration::from_secs(5))
        .start()
        .await?;

    loop {
        let messages = consumer.receive(32, Duration::from_secs(30)).await?;
        if messages.is_empty() {
            break;
        }
        for message in &messages {
            println!("{}: {}", message.msg_id(), String::from_utf8_lossy(&message.body));
        }
        consumer.ack_all(&messages).await?;
    }
    client.shutdown().await;
    Ok(())
}
