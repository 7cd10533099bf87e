//! Creates a topic and shows how far a group is: `cargo run --example administer -- 127.0.0.1:9876 Orders kitchen`.

use ferromq_client::admin::Brokers;
use ferromq_client::protocol::body::TopicConfig;
use ferromq_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let name_servers = arguments.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let topic = arguments.next().unwrap_or_else(|| "Orders".to_owned());
    let group = arguments.next().unwrap_or_else(|| "kitchen".to_owned());
    let client = Client::builder(name_servers).start()?;
    let admin = client.admin();
    for cluster in admin.cluster_info().await?.cluster_addr_table.keys() {
        admin.update_topic(&Brokers::masters_of(cluster), &TopicConfig::new(&*topic, 8)).await?;
    }
    for (queue, offsets) in admin.consume_stats(&group, Some(&topic)).await?.offset_table {
        println!("{queue}: {} of {}", offsets.consumer_offset, offsets.broker_offset);
    }
    client.shutdown().await;
    Ok(())
}
