//! Asks for messages until there are none for five seconds: `cargo run --example lite_pull -- 127.0.0.1:9876`.

use std::time::Duration;

use ferromq_client::{Client, ConsumeFrom, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let consumer = client
        .lite_pull_consumer("example-pullers")
        .subscribe("TopicTest", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .auto_commit(false)
        .start()
        .await?;

    loop {
        let messages = consumer.poll(Duration::from_secs(5)).await;
        if messages.is_empty() {
            break;
        }
        for message in messages {
            println!("{}: {}", message.queue, String::from_utf8_lossy(&message.body));
        }
        consumer.commit();
    }
    client.shutdown().await;
    Ok(())
}
