//! The few requests that nobody but an administrator makes.

use std::collections::BTreeMap;
use std::time::Duration;

use ferromq_protocol::body::{ClusterInfo, KVTable};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Client;

/// A node that does not answer within that time is not asked again at once.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks brokers and the name server.
#[derive(Debug)]
pub(crate) struct Requests {
    client: Client,
    namesrv: String,
}

impl Requests {
    /// Asks this name server.
    pub(crate) fn new(namesrv: String) -> Self {
        Self { client: Client::new(), namesrv }
    }

    async fn ask(&self, address: &str, command: RemotingCommand) -> Option<RemotingCommand> {
        let answer =
            tokio::time::timeout(TIMEOUT, self.client.invoke(address, command, TIMEOUT)).await.ok()?;
        answer.ok().filter(|answer| answer.code == response::SUCCESS)
    }

    /// Addresses of the registered brokers of a set, by id.
    pub(crate) async fn registered(&self, broker_name: &str) -> BTreeMap<i64, String> {
        let asked = RemotingCommand::request(request::GET_BROKER_CLUSTER_INFO);
        let answer = self.ask(&self.namesrv, asked).await;
        let info: Option<ClusterInfo> = answer.and_then(|answer| json::from_slice(&answer.body).ok());
        info.and_then(|mut info| info.broker_addr_table.remove(broker_name))
            .map(|set| set.broker_addrs)
            .unwrap_or_default()
    }

    /// Creates a topic, or says that it can't.
    pub(crate) async fn create_topic(&self, broker: &str, topic: &str, queues: i32) -> bool {
        let command = RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
            .with("topic", topic)
            .with("defaultTopic", "TBW102")
            .with("readQueueNums", queues)
            .with("writeQueueNums", queues)
            .with("perm", 6)
            .with("topicFilterType", "SINGLE_TAG")
            .with("topicSysFlag", 0)
            .with("order", false);
        self.ask(broker, command).await.is_some()
    }

    /// Whether a broker knows the topic.
    pub(crate) async fn has_topic(&self, broker: &str, topic: &str) -> bool {
        self.ask(broker, RemotingCommand::request(request::GET_TOPIC_CONFIG).with("topic", topic))
            .await
            .is_some()
    }

    /// Where a broker's log ends.
    pub(crate) async fn log_end(&self, broker: &str) -> Option<u64> {
        let answer = self.ask(broker, RemotingCommand::request(request::GET_BROKER_RUNTIME_INFO)).await?;
        let table: KVTable = json::from_slice(&answer.body).ok()?;
        table.table.get("commitLogMaxOffset")?.parse().ok()
    }

    /// A group's progress in a queue.
    pub(crate) async fn progress(&self, broker: &str, group: &str, topic: &str, queue: i32) -> Option<i64> {
        let command = RemotingCommand::request(request::QUERY_CONSUMER_OFFSET)
            .with("consumerGroup", group)
            .with("topic", topic)
            .with("queueId", queue);
        self.ask(broker, command).await?.number("offset").ok()
    }
}
