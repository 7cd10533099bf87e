//! Sends a message with a trace and prints what is known of it: `cargo run --example trace -- 127.0.0.1:9876`.
//!
//! The broker needs `traceTopicEnable=true`, or creates topics by itself.

use ferromq_client::protocol::names::TRACE_TOPIC;
use ferromq_client::{Client, Error, Message};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let producer = client.producer("example-producers").enable_trace(true).start().await?;
    let sent = producer.send(Message::new("TopicTest", "hello").keys(["order-17"])).await?;
    // Otherwise it is written within five seconds.
    producer.shutdown().await;

    // Consumers with `enable_trace(true)` add to it.
    for trace in client.admin().message_trace(TRACE_TOPIC, &sent.msg_id, 0..i64::MAX).await? {
        println!("{} says: {:?}", trace.client_host, trace.record);
    }
    client.shutdown().await;
    Ok(())
}
