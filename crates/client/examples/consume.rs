//! Prints messages until Ctrl-C: `cargo run --example consume -- 127.0.0.1:9876`.

use ferromq_client::{Client, ConsumeFrom, Delivery, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let _consumer = client
        .push_consumer("example-consumers")
        .subscribe("TopicTest", "TagA || TagB")
        .consume_from(ConsumeFrom::FirstOffset)
        .listener(|delivery: Delivery| async move {
            for message in &delivery {
                println!("{}: {}", message.msg_id(), String::from_utf8_lossy(&message.body));
            }
            // An error here means: not done, bring the messages again later.
            Ok::<(), std::io::Error>(())
        })
        .start()
        .await?;

    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("can't wait for Ctrl-C: {error}");
    }
    client.shutdown().await;
    Ok(())
}
