//! Sends a message over TLS: `cargo run --example send_encrypted -- 127.0.0.1:9876 [ca.pem]`.

use ferromq_client::{Client, Error, Message, Tls};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let name_servers = arguments.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let tls = match arguments.next() {
        // Certificates of brokers seldom are for their addresses.
        Some(authorities) => Tls::trusting(authorities).any_server_name(),
        // RocketMQ makes itself a certificate if it is given none.
        None => Tls::insecure(),
    };
    let client = Client::builder(name_servers).tls(tls).start()?;
    let producer = client.producer("example-producers").start().await?;
    let result = producer.send(Message::new("TopicTest", "nobody else reads this")).await?;
    println!("stored as {}", result.msg_id);
    client.shutdown().await;
    Ok(())
}
