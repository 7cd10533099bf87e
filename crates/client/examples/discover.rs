//! Shows the topics of a cluster whose name servers come from `NAMESRV_ADDR`, or from an address server:
//! `cargo run --example discover -- address-server.example:8080`.

use ferromq_client::{AddressServer, Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let settings = match std::env::args().nth(1) {
        Some(domain) => Client::discover(AddressServer::new(domain)),
        None => Client::from_env(),
    };
    let client = settings.start()?;
    for topic in client.admin().topics().await? {
        println!("{topic}");
    }
    client.shutdown().await;
    Ok(())
}
