//! Prints messages of each sharding key in order: `cargo run --example consume_in_order -- 127.0.0.1:9876`.

use std::time::Duration;

use ferromq_client::{Client, ConsumeFrom, ConsumeOrderlyResult, Delivery, Error, Message};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let producer = client.producer("example-producers").start().await?;
    for (order, step) in [("order-1", "paid"), ("order-2", "paid"), ("order-1", "shipped")] {
        producer.send(Message::new("Orders", format!("{order} is {step}")).sharding_key(order)).await?;
    }

    let _consumer = client
        .push_consumer("example-ordered")
        .subscribe("Orders", "*")
        .consume_from(ConsumeFrom::FirstOffset)
        .orderly_listener(|delivery: Delivery| async move {
            println!("{}", String::from_utf8_lossy(&delivery[0].body));
            ConsumeOrderlyResult::Success
        })
        .start()
        .await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    client.shutdown().await;
    Ok(())
}
