//! Sends many small messages at the same time, in few requests: `cargo run --example auto_batch -- 127.0.0.1:9876`.

use ferromq_client::{Client, Error, Message};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let producer = client.producer("example-producers").auto_batch(true).start().await?;

    let mut sends = JoinSet::new();
    for number in 0..1000 {
        let producer = producer.clone();
        sends.spawn(
            async move { producer.send(Message::new("TopicTest", format!("message {number}"))).await },
        );
    }
    for result in sends.join_all().await {
        let result = result?;
        println!("{} is at {} in {}", result.offset_msg_id, result.queue_offset, result.queue);
    }
    client.shutdown().await;
    Ok(())
}
