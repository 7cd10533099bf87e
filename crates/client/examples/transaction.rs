//! Sends a message that is seen only if a transaction succeeds: `cargo run --example transaction -- 127.0.0.1:9876`.

use ferromq_client::{Client, Error, LocalTransactionState, Message};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name_servers = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let client = Client::builder(name_servers).start()?;
    let producer = client
        .producer("example-transactions")
        // Asked by brokers that did not hear of the outcome: look the transaction up.
        .start_transactional(|message| async move {
            println!("what became of {}?", message.msg_id());
            LocalTransactionState::Unknown
        })
        .await?;

    let message = Message::new("Orders", "order-1 is paid").keys(["order-1"]);
    let result = producer
        .send_in_transaction(message, |sent| async move {
            println!("{} is stored and not seen by anybody; now the money moves", sent.msg_id);
            LocalTransactionState::CommitMessage
        })
        .await?;
    println!("{:?}", result.state);
    client.shutdown().await;
    Ok(())
}
