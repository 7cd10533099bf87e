//! Topics (`docs/spec/10-admin.md` 4).

use std::collections::BTreeSet;

use ferromq_protocol::body::{
    CreateTopicListRequestBody, GroupList, TopicConfig, TopicConfigAndQueueMapping,
    TopicConfigSerializeWrapper, TopicList, TopicRouteData, TopicStatsTable,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::AUTO_CREATE_TOPIC;

use super::{Admin, Brokers, NO_TOPIC, at, body};
use crate::error::Error;

/// Topic statistics of a disk full of queues take their time.
const STATS_TIMEOUT_FACTOR: u32 = 3;

impl Admin {
    /// Creates a topic, or replaces its configuration.
    ///
    /// The attributes of `config` are changes: `+name` sets one to the value, `-name` removes one, and those not named
    /// stay.
    ///
    /// # Errors
    /// A broker refuses names of the system's topics, illegal characters, and unknown attributes.
    pub async fn update_topic(&self, brokers: &Brokers, config: &TopicConfig) -> Result<(), Error> {
        let attributes: Vec<String> = config
            .attributes
            .iter()
            .map(|(name, value)| if value.is_empty() { name.clone() } else { format!("{name}={value}") })
            .collect();
        let update = RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
            .with("topic", &config.topic_name)
            .with("defaultTopic", AUTO_CREATE_TOPIC)
            .with("readQueueNums", config.read_queue_nums)
            .with("writeQueueNums", config.write_queue_nums)
            .with("perm", config.perm)
            .with("topicFilterType", "SINGLE_TAG")
            .with("topicSysFlag", config.topic_sys_flag)
            .with("order", config.order)
            .with("attributes", attributes.join(","))
            .with("force", false);
        self.done_at(brokers, &config.topic_name, update).await
    }

    /// Creates or changes many topics at once, as [`update_topic`](Self::update_topic) does one.
    ///
    /// # Errors
    /// One bad topic makes a broker refuse all. A Java broker says nothing and does nothing if it has one of them already
    /// exactly as it is wanted.
    pub async fn update_topics(&self, brokers: &Brokers, configs: &[TopicConfig]) -> Result<(), Error> {
        let list = CreateTopicListRequestBody { topic_config_list: configs.to_vec() };
        let update =
            RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC_LIST).with_body(json::to_vec(&list));
        self.done_at(brokers, NO_TOPIC, update).await
    }

    /// Deletes a topic at the masters of a cluster, whose slaves follow, and from the routes of all name servers. A topic
    /// that is not there is deleted with success.
    ///
    /// # Errors
    /// The topics of the system can't be deleted.
    pub async fn delete_topic(&self, cluster: &str, topic: &str) -> Result<(), Error> {
        self.delete_topic_in_brokers(&Brokers::masters_of(cluster), topic).await?;
        self.delete_topic_in_namesrv(topic, Some(cluster)).await
    }

    /// Deletes a topic and its messages at brokers. Name servers keep a route until the brokers register again.
    ///
    /// # Errors
    /// The topics of the system can't be deleted.
    pub async fn delete_topic_in_brokers(&self, brokers: &Brokers, topic: &str) -> Result<(), Error> {
        let delete = RemotingCommand::request(request::DELETE_TOPIC_IN_BROKER).with("topic", topic);
        self.done_at(brokers, topic, delete).await
    }

    /// Deletes the routes of a topic at all name servers: those to one cluster, or all.
    ///
    /// # Errors
    /// All name servers are told; the error is the last one's that failed.
    pub async fn delete_topic_in_namesrv(&self, topic: &str, cluster: Option<&str>) -> Result<(), Error> {
        let delete = RemotingCommand::request(request::DELETE_TOPIC_IN_NAMESRV)
            .with("topic", topic)
            .with_some("clusterName", cluster);
        self.tell_name_servers(delete).await
    }

    /// The names of all topics that brokers have registered, retry and dead letter topics too.
    ///
    /// # Errors
    /// If no name server answers.
    pub async fn topics(&self) -> Result<Vec<String>, Error> {
        let list: TopicList = self
            .ask_name_server(RemotingCommand::request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
            .await?;
        Ok(list.topic_list)
    }

    /// The names of the topics that a cluster has.
    ///
    /// # Errors
    /// If no name server answers.
    pub async fn topics_of_cluster(&self, cluster: &str) -> Result<Vec<String>, Error> {
        let query = RemotingCommand::request(request::GET_TOPICS_BY_CLUSTER).with("cluster", cluster);
        let list: TopicList = self.ask_name_server(query).await?;
        Ok(list.topic_list)
    }

    /// The topics of the system, as a broker knows them.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn system_topics(&self, address: &str) -> Result<Vec<String>, Error> {
        let query = RemotingCommand::request(request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER);
        let list: TopicList = self.get(at(address, NO_TOPIC), query).await?;
        Ok(list.topic_list)
    }

    /// Which brokers have a topic, and with how many queues.
    ///
    /// # Errors
    /// [`Error::Refused`] with code TOPIC_NOT_EXIST if none has.
    pub async fn topic_route(&self, topic: &str) -> Result<TopicRouteData, Error> {
        self.instance().check_running()?;
        self.instance().lookup_route(topic).await
    }

    /// The clusters that have a topic.
    ///
    /// # Errors
    /// [`Error::Refused`] with code TOPIC_NOT_EXIST if none has.
    pub async fn clusters_of_topic(&self, topic: &str) -> Result<BTreeSet<String>, Error> {
        let route = self.topic_route(topic).await?;
        Ok(route.broker_datas.into_iter().map(|broker| broker.cluster).collect())
    }

    /// The configuration that one broker has of a topic.
    ///
    /// # Errors
    /// [`Error::Refused`] with code TOPIC_NOT_EXIST if it has none.
    pub async fn topic_config(&self, address: &str, topic: &str) -> Result<TopicConfig, Error> {
        let query = RemotingCommand::request(request::GET_TOPIC_CONFIG).with("topic", topic).with("lo", true);
        let config: TopicConfigAndQueueMapping = self.get(at(address, topic), query).await?;
        Ok(config.topic_config)
    }

    /// The configurations of all topics of a broker.
    ///
    /// # Errors
    /// If the broker does not answer, or if its topics change whenever they are read and they fill several answers.
    pub async fn topic_configs(&self, address: &str) -> Result<TopicConfigSerializeWrapper, Error> {
        self.whole_table(address).await
    }

    /// First and next offset of each queue of a topic, and when it was written to last.
    ///
    /// # Errors
    /// If a broker of the topic does not answer, or none has it.
    pub async fn topic_stats(&self, topic: &str) -> Result<TopicStatsTable, Error> {
        let mut all = TopicStatsTable::default();
        for place in self.places_of_topic(topic).await? {
            let to = place.about(topic);
            let query = RemotingCommand::request(request::GET_TOPIC_STATS_INFO).with("topic", topic);
            let answer =
                self.instance().transport.done(to, query, self.timeout * STATS_TIMEOUT_FACTOR).await?;
            let table: TopicStatsTable = body(to, request::GET_TOPIC_STATS_INFO, &answer)?;
            all.offset_table.extend(table.offset_table);
            all.topic_put_tps += table.topic_put_tps;
        }
        Ok(all)
    }

    /// The consumer groups that subscribe to a topic or have offsets in it, as all of its brokers know them.
    ///
    /// # Errors
    /// If a broker of the topic does not answer, or none has it.
    pub async fn groups_of_topic(&self, topic: &str) -> Result<BTreeSet<String>, Error> {
        let mut groups = BTreeSet::new();
        for place in self.places_of_topic(topic).await? {
            let query = RemotingCommand::request(request::QUERY_TOPIC_CONSUME_BY_WHO).with("topic", topic);
            let list: GroupList = self.get(place.about(topic), query).await?;
            groups.extend(list.group_list);
        }
        Ok(groups)
    }
}
