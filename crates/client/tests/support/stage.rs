//! The cluster that a test of the protocol runs against: ours, or another one if `FERROMQ_TEST_NAMESRV` names its name
//! servers (`interop/peer/rocketmq` starts the real one), encrypted if `FERROMQ_TEST_TLS` is there.
//!
//! Topics and groups have new names in each run, so that the other cluster may have been used before.

use std::time::Duration;

use ferromq_client::{
    Client, ConsumeFrom, ConsumeResult, Delivery, LocalTransactionState, Message, PushConsumer, Tls,
};

use super::inbox::Inbox;
use super::{Cluster, eventually};

/// A cluster, and names that nobody has used in it.
pub(crate) struct Stage {
    pub(crate) name_servers: String,
    pub(crate) own: Option<Cluster>,
    suffix: String,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let suffix = format!("{now:x}-{}", std::process::id());
        match std::env::var("FERROMQ_TEST_NAMESRV") {
            Ok(name_servers) => {
                let stage = Self { name_servers, own: None, suffix };
                stage.registered().await;
                stage
            }
            Err(_) => {
                let cluster = Cluster::start(1).await;
                Self { name_servers: cluster.name_servers(), own: Some(cluster), suffix }
            }
        }
    }

    /// Waits until the name servers know a broker: one that was just started listens before it has registered.
    async fn registered(&self) {
        let client = self.client();
        let admin = client.admin();
        eventually("a broker is registered", async || admin.topic_route("TBW102").await.is_ok()).await;
        client.shutdown().await;
    }

    /// Whether it is ours, here or as processes (`FERROMQ_TEST_OURS`).
    pub(crate) fn is_ours(&self) -> bool {
        self.own.is_some() || std::env::var_os("FERROMQ_TEST_OURS").is_some()
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.suffix)
    }

    /// A client that notices changes soon and is patient with servers that a busy machine lets wait.
    pub(crate) fn client(&self) -> Client {
        let builder = Client::builder(&*self.name_servers)
            .client_ip("127.0.0.1")
            .api_timeout(Duration::from_secs(20))
            .poll_name_server_interval(Duration::from_millis(500))
            .persist_consumer_offset_interval(Duration::from_millis(500));
        let encrypted = self.own.is_none() && std::env::var_os("FERROMQ_TEST_TLS").is_some();
        let builder = if encrypted { builder.tls(Tls::insecure()) } else { builder };
        builder.start().unwrap()
    }

    pub(crate) async fn collect(
        &self,
        client: &Client,
        topic: &str,
        group: &str,
        inbox: &Inbox,
    ) -> PushConsumer {
        let (name, inbox) = (client.id().to_owned(), inbox.clone());
        client
            .push_consumer(self.name(group))
            .subscribe(topic, "*")
            .consume_from(ConsumeFrom::FirstOffset)
            .listener(move |delivery: Delivery| {
                inbox.put(&name, &delivery);
                async { ConsumeResult::success() }
            })
            .start()
            .await
            .unwrap()
    }

    /// What the real `mqadmin` prints when it is asked this; `None` without `FERROMQ_TEST_MQADMIN`, which names its program.
    pub(crate) fn mqadmin(&self, words: &[&str]) -> Option<String> {
        let program = std::env::var_os("FERROMQ_TEST_MQADMIN")?;
        let mut command = std::process::Command::new(program);
        let output = command.arg("mqadmin").args(words).args(["-n", &self.name_servers]).output().unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }

    /// Whether the cluster can't do this yet: our own brokers say so themselves.
    pub(crate) async fn lacks(&self, what: &str) -> bool {
        let message = Message::new(self.name("probe"), "x");
        let client = self.client();
        let refused = match what {
            "pop" => {
                let producer = client.producer("probe").start().await.unwrap();
                let topic = message.topic().to_owned();
                producer.send(message).await.unwrap();
                let consumer = client.pop_consumer("probe").subscribe(topic, "*").start().await.unwrap();
                consumer.receive(1, Duration::from_secs(10)).await.is_err()
            }
            "transactions" => {
                let check = |_| async { LocalTransactionState::RollbackMessage };
                let producer = client.producer("probe").start_transactional(check).await.unwrap();
                let end = |_| async { LocalTransactionState::RollbackMessage };
                producer.send_in_transaction(message, end).await.is_err()
            }
            _ => {
                let producer = client.producer("probe").start().await.unwrap();
                producer.send(message.deliver_after(Duration::from_secs(1))).await.is_err()
            }
        };
        client.shutdown().await;
        assert!(!refused || self.is_ours(), "another cluster must have {what}");
        refused
    }

    pub(crate) async fn clear(self, clients: impl IntoIterator<Item = Client>) {
        for client in clients {
            client.shutdown().await;
        }
        if let Some(cluster) = self.own {
            cluster.shutdown().await;
        }
    }
}
