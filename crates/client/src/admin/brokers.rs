//! Clusters and their brokers (`docs/spec/10-admin.md` 5, 16).

use std::collections::BTreeMap;

use ferromq_protocol::body::{BrokerStatsData, ClusterInfo, KVTable};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::java_properties;

use super::{Admin, Brokers, NO_TOPIC, at, settings};
use crate::error::Error;

impl Admin {
    /// All clusters, their broker sets, and the addresses of these.
    ///
    /// # Errors
    /// If no name server answers.
    pub async fn cluster_info(&self) -> Result<ClusterInfo, Error> {
        self.ask_name_server(RemotingCommand::request(request::GET_BROKER_CLUSTER_INFO)).await
    }

    /// A broker's figures of itself, by name: version, rates, disks, offsets of its log.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn broker_runtime_info(&self, address: &str) -> Result<BTreeMap<String, String>, Error> {
        let query = RemotingCommand::request(request::GET_BROKER_RUNTIME_INFO);
        let info: KVTable = self.get(at(address, NO_TOPIC), query).await?;
        Ok(info.table)
    }

    /// All settings of a broker.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn broker_config(&self, address: &str) -> Result<BTreeMap<String, String>, Error> {
        let to = at(address, NO_TOPIC);
        let answer = self.done(to, RemotingCommand::request(request::GET_BROKER_CONFIG)).await?;
        settings(to, request::GET_BROKER_CONFIG, &answer)
    }

    /// Changes settings of running brokers.
    ///
    /// # Errors
    /// A broker refuses values that it can't use, and settings that can be changed only while it is stopped.
    pub async fn update_broker_config(
        &self,
        brokers: &Brokers,
        changes: &[(&str, &str)],
    ) -> Result<(), Error> {
        let update = RemotingCommand::request(request::UPDATE_BROKER_CONFIG)
            .with_body(java_properties::write(changes.iter().copied()));
        self.done_at(brokers, NO_TOPIC, update).await
    }

    /// How often something happened at a broker in the last minute, hour and day: `name` is a statistic such as
    /// `TOPIC_PUT_NUMS` or `GROUP_GET_NUMS`, `key` what it is of, such as a topic or `topic@group`.
    ///
    /// # Errors
    /// [`Error::Refused`] if the broker has counted nothing under these names.
    pub async fn broker_stats(&self, address: &str, name: &str, key: &str) -> Result<BrokerStatsData, Error> {
        let query = RemotingCommand::request(request::VIEW_BROKER_STATS_DATA)
            .with("statsName", name)
            .with("statsKey", key);
        self.get(at(address, NO_TOPIC), query).await
    }

    /// Deletes files of consume queues whose messages are gone.
    ///
    /// # Errors
    /// If a broker does not answer.
    pub async fn clean_expired_consume_queue(&self, brokers: &Brokers) -> Result<(), Error> {
        let clean = RemotingCommand::request(request::CLEAN_EXPIRED_CONSUMEQUEUE);
        self.done_at(brokers, NO_TOPIC, clean).await
    }

    /// Deletes consume queues of topics that are not configured any more.
    ///
    /// # Errors
    /// If a broker does not answer.
    pub async fn clean_unused_topic(&self, brokers: &Brokers) -> Result<(), Error> {
        self.done_at(brokers, NO_TOPIC, RemotingCommand::request(request::CLEAN_UNUSED_TOPIC)).await
    }

    /// Deletes files of the commit log that are older than `fileReservedTime`, now.
    ///
    /// # Errors
    /// If a broker does not answer.
    pub async fn delete_expired_commit_log(&self, brokers: &Brokers) -> Result<(), Error> {
        self.done_at(brokers, NO_TOPIC, RemotingCommand::request(request::DELETE_EXPIRED_COMMITLOG)).await
    }

    /// Which groups read cold data, and how much: JSON of the broker's own shape.
    ///
    /// # Errors
    /// If the broker does not answer, or does not control cold reads.
    pub async fn cold_data_flow_ctr_info(&self, address: &str) -> Result<String, Error> {
        let to = at(address, NO_TOPIC);
        let answer = self.done(to, RemotingCommand::request(request::GET_COLD_DATA_FLOW_CTR_INFO)).await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Lets a group read `threshold` bytes of cold data per second.
    ///
    /// # Errors
    /// If a broker does not control cold reads.
    pub async fn update_cold_data_flow_ctr(
        &self,
        brokers: &Brokers,
        group: &str,
        threshold: i64,
    ) -> Result<(), Error> {
        let update = RemotingCommand::request(request::UPDATE_COLD_DATA_FLOW_CTR_CONFIG)
            .with_body(java_properties::write([(group, &*threshold.to_string())]));
        self.done_at(brokers, NO_TOPIC, update).await
    }

    /// Takes a group's own limit of cold reads away.
    ///
    /// # Errors
    /// If a broker does not control cold reads.
    pub async fn remove_cold_data_flow_ctr(&self, brokers: &Brokers, group: &str) -> Result<(), Error> {
        let remove =
            RemotingCommand::request(request::REMOVE_COLD_DATA_FLOW_CTR_CONFIG).with_body(group.to_owned());
        self.done_at(brokers, NO_TOPIC, remove).await
    }

    /// Whether the system reads ahead in the files of the commit log.
    ///
    /// # Errors
    /// If a broker refuses.
    pub async fn set_commit_log_read_ahead(&self, brokers: &Brokers, read_ahead: bool) -> Result<(), Error> {
        // MADV_NORMAL and MADV_RANDOM.
        let mode = if read_ahead { 0 } else { 1 };
        let set = RemotingCommand::request(request::SET_COMMITLOG_READ_MODE).with("READ_AHEAD_MODE", mode);
        self.done_at(brokers, NO_TOPIC, set).await
    }
}
