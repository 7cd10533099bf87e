//! Sends ten messages: `cargo run --example send -- 127.0.0.1:9876`.

use ferromq_client::{Client, Error, Message};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let producer = client.producer("example-producers").send_latency_fault_enable(true).start().await?;

    for number in 0..10 {
        let message = Message::new("TopicTest", format!("message {number}"))
            .tag("TagA")
            .keys([format!("key-{number}")])
            .property("colour", "green");
        let result = producer.send(message).await?;
        println!("{} is at {} in {}", result.msg_id, result.queue_offset, result.queue);
    }

    client.shutdown().await;
    Ok(())
}
