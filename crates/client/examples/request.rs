//! Asks a question and waits for the reply: `cargo run --example request -- 127.0.0.1:9876`.

use std::time::Duration;

use ferromq_client::{Client, Delivery, Error, Message};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let producer = client.producer("example-requests").topics(["Questions"]).start().await?;
    let answering = producer.clone();
    let _consumer = client
        .push_consumer("example-replies")
        .subscribe("Questions", "*")
        .listener(move |delivery: Delivery| {
            let producer = answering.clone();
            async move { producer.send(delivery[0].reply("fine")?).await.map(drop) }
        })
        .start()
        .await?;

    let reply = producer.request(Message::new("Questions", "how are you?"), Duration::from_secs(10)).await?;
    println!("{}", String::from_utf8_lossy(&reply.body));
    client.shutdown().await;
    Ok(())
}
