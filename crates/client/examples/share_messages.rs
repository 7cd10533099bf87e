//! A group whose members share messages instead of queues, without asking for them: brokers are told to let it pop, and it
//! lets them share out the queues. `cargo run --example share_messages -- 127.0.0.1:9876 DefaultCluster`.

use std::convert::Infallible;

use ferromq_client::admin::Brokers;
use ferromq_client::protocol::body::MessageRequestMode;
use ferromq_client::{Client, Delivery, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let name_servers = words.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let cluster = Brokers::masters_of(words.next().unwrap_or_else(|| "DefaultCluster".to_owned()));
    let client = Client::builder(name_servers).start()?;
    let group = "example-sharers";
    client.admin().set_consume_mode(&cluster, "TopicTest", group, MessageRequestMode::Pop, 0).await?;
    let consumer = client.push_consumer(group).subscribe("TopicTest", "*").client_rebalance(false);
    let _consumer = consumer
        .listener(|delivery: Delivery| async move {
            let message = &delivery[0];
            println!("{}: {}", message.msg_id(), String::from_utf8_lossy(&message.body));
            Ok::<(), Infallible>(())
        })
        .start()
        .await?;
    tokio::signal::ctrl_c().await.ok();
    client.shutdown().await;
    Ok(())
}
