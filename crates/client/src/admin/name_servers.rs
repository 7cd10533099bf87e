//! Name servers: their settings, their KV configuration, and what they say of brokers' permissions
//! (`docs/spec/10-admin.md` 9).
//!
//! Name servers don't know of each other: what is written is written to all of them, and all are tried even if one fails.

use std::collections::BTreeMap;

use ferromq_protocol::body::KVTable;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::java_properties;
use serde::de::DeserializeOwned;

use super::{Admin, NO_TOPIC, settings};
use crate::error::{Destination, Error};
use crate::instance::NAME_SERVER;

/// The namespace of the orders of topics' brokers, `broker-a:4;broker-b:4` by topic.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

fn name_server(address: &str) -> Destination<'_> {
    Destination { broker: NAME_SERVER, address, topic: NO_TOPIC }
}

impl Admin {
    /// The addresses of the name servers that this client knows now; none before an address server has told them.
    pub fn name_servers(&self) -> Vec<String> {
        self.instance().name_servers.all()
    }

    /// All settings of each name server, by its address.
    ///
    /// # Errors
    /// If one of them does not answer.
    pub async fn namesrv_config(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>, Error> {
        self.instance().name_servers.known(self.timeout).await?;
        let mut all = BTreeMap::new();
        for address in self.name_servers() {
            let to = name_server(&address);
            let answer = self.done(to, RemotingCommand::request(request::GET_NAMESRV_CONFIG)).await?;
            let settings = settings(to, request::GET_NAMESRV_CONFIG, &answer)?;
            all.insert(address, settings);
        }
        Ok(all)
    }

    /// Changes settings of all name servers.
    ///
    /// # Errors
    /// They refuse values that they can't use.
    pub async fn update_namesrv_config(&self, changes: &[(&str, &str)]) -> Result<(), Error> {
        let update = RemotingCommand::request(request::UPDATE_NAMESRV_CONFIG)
            .with_body(java_properties::write(changes.iter().copied()));
        self.tell_name_servers(update).await
    }

    /// A value of the KV configuration.
    ///
    /// # Errors
    /// If no name server answers.
    pub async fn kv_config(&self, namespace: &str, key: &str) -> Result<Option<String>, Error> {
        self.instance().check_running()?;
        let query =
            RemotingCommand::request(request::GET_KV_CONFIG).with("namespace", namespace).with("key", key);
        match self.instance().ask_name_server(NO_TOPIC, query, self.timeout).await {
            Ok((_, answer)) => Ok(answer.field("value").map(str::to_owned)),
            Err(Error::Refused { code: response::QUERY_NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All keys and values of a namespace of the KV configuration.
    ///
    /// # Errors
    /// If no name server answers.
    pub async fn kv_list(&self, namespace: &str) -> Result<BTreeMap<String, String>, Error> {
        let query = RemotingCommand::request(request::GET_KVLIST_BY_NAMESPACE).with("namespace", namespace);
        match self.ask_name_server::<KVTable>(query).await {
            Ok(list) => Ok(list.table),
            Err(Error::Refused { code: response::QUERY_NOT_FOUND, .. }) => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    /// Sets a value of the KV configuration at all name servers.
    ///
    /// # Errors
    /// The error of the last one that failed.
    pub async fn put_kv_config(&self, namespace: &str, key: &str, value: &str) -> Result<(), Error> {
        let put = RemotingCommand::request(request::PUT_KV_CONFIG)
            .with("namespace", namespace)
            .with("key", key)
            .with("value", value);
        self.tell_name_servers(put).await
    }

    /// Deletes a key of the KV configuration at all name servers.
    ///
    /// # Errors
    /// The error of the last one that failed.
    pub async fn delete_kv_config(&self, namespace: &str, key: &str) -> Result<(), Error> {
        let delete =
            RemotingCommand::request(request::DELETE_KV_CONFIG).with("namespace", namespace).with("key", key);
        self.tell_name_servers(delete).await
    }

    /// Takes the permission to write from all topics of a broker set at one name server, so that producers leave it, and
    /// returns how many topics that were.
    ///
    /// Name servers keep this in memory: it ends when they are restarted, or when the broker registers anew.
    ///
    /// # Errors
    /// If the name server does not answer.
    pub async fn wipe_write_perm(&self, name_server_address: &str, broker_name: &str) -> Result<i32, Error> {
        let wipe = RemotingCommand::request(request::WIPE_WRITE_PERM_OF_BROKER);
        self.change_perm(name_server_address, wipe, broker_name, "wipeTopicCount").await
    }

    /// Gives the permissions to read and write to all topics of a broker set at one name server, and returns how many topics
    /// that were.
    ///
    /// # Errors
    /// If the name server does not answer.
    pub async fn add_write_perm(&self, name_server_address: &str, broker_name: &str) -> Result<i32, Error> {
        let add = RemotingCommand::request(request::ADD_WRITE_PERM_OF_BROKER);
        self.change_perm(name_server_address, add, broker_name, "addTopicCount").await
    }

    async fn change_perm(
        &self,
        address: &str,
        change: RemotingCommand,
        broker_name: &str,
        count: &'static str,
    ) -> Result<i32, Error> {
        let (to, code) = (name_server(address), change.code);
        let answer = self.done(to, change.with("brokerName", broker_name)).await?;
        answer.number(count).map_err(|error| to.malformed(request::name(code), error))
    }

    /// Asks one name server, and the next one if it can't be reached.
    pub(super) async fn ask_name_server<T: DeserializeOwned>(
        &self,
        request: RemotingCommand,
    ) -> Result<T, Error> {
        self.instance().check_running()?;
        let code = request.code;
        let (address, answer) = self.instance().ask_name_server(NO_TOPIC, request, self.timeout).await?;
        super::body(name_server(&address), code, &answer)
    }

    /// Sends a request to all name servers.
    pub(super) async fn tell_name_servers(&self, request: RemotingCommand) -> Result<(), Error> {
        self.instance().name_servers.known(self.timeout).await?;
        let mut told = Ok(());
        for address in self.name_servers() {
            if let Err(error) = self.done(name_server(&address), request.clone()).await {
                told = Err(error);
            }
        }
        told
    }
}
