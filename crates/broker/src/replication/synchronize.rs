//! A slave's copies of what is not in the log: topics, groups, progress (`docs/spec/05-ha.md` 4).
//!
//! Tables are made equal to the master's, entry by entry, and keep the master's version. Progress is merged: a group never goes
//! back because its master knows less than the slave. Topics that the master has deleted lose their queues and their progress here,
//! too.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{
    ConsumerOffsetSerializeWrapper, DataVersion, DelayOffsetSerializeWrapper,
    MessageRequestModeSerializeWrapper, SubscriptionGroupConfig, SubscriptionGroupWrapper, TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::{FieldError, RemotingCommand};
use ferromq_protocol::json::{self, JsonError};
use ferromq_remoting::InvokeError;
use ferromq_store::ReplicaError;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::MasterAddress;
use crate::broker::Broker;
use crate::config_file::SaveError;

/// Between two rounds.
const PERIOD: Duration = Duration::from_secs(10);
/// The same when the tables are large.
const PERIOD_OF_LARGE_TABLES: Duration = Duration::from_secs(60);
/// Bytes of a round above which they are.
const LARGE: usize = 4 << 20;
/// While nobody knows where the master is, name servers are asked so often.
const LOOK_FOR_MASTER: Duration = Duration::from_secs(2);
/// How long the master may take for a table.
const TABLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the master may take for anything else.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Entries of a page that are asked for.
const PAGE: usize = 2000;
/// Times that a table is begun anew because it changed between two pages.
const ATTEMPTS: usize = 5;

/// Why something was not copied. The next round tries again.
#[derive(Debug, Error)]
enum SynchronizeError {
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    #[error("the master answers {code}: {remark}")]
    Refused { code: i32, remark: String },
    #[error("the master's answer can't be read: {0}")]
    Body(#[from] JsonError),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("the table changed {ATTEMPTS} times while it was read")]
    Restless,
    #[error("can't delete what the master has deleted: {0}")]
    Delete(#[from] ReplicaError),
    #[error("interrupted: {0}")]
    Ended(#[from] io::Error),
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// Copies again and again.
pub(super) async fn run(broker: Arc<Broker>, master: Arc<MasterAddress>) {
    let mut known = master.address.subscribe();
    loop {
        let address = known.borrow_and_update().clone();
        let pause = match address {
            // What goes with another log than ours is not for us.
            Some(_) if !broker.replication.follows() => LOOK_FOR_MASTER,
            Some(address) => {
                let round = Round { broker: &broker, master: &master, address: &address, bytes: 0 };
                tokio::select! {
                    bytes = round.run() => if bytes > LARGE { PERIOD_OF_LARGE_TABLES } else { PERIOD },
                    // Nobody waits for one that is no longer the master and perhaps away.
                    _ = known.changed() => Duration::ZERO,
                }
            }
            None => {
                broker.registration.register_all_soon();
                LOOK_FOR_MASTER
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = known.changed() => {}
        }
    }
}

struct Round<'a> {
    broker: &'a Arc<Broker>,
    master: &'a MasterAddress,
    address: &'a str,
    bytes: usize,
}

impl Round<'_> {
    /// Each table for itself. Returns how many bytes they had.
    async fn run(mut self) -> usize {
        let outcomes = [
            ("topics", self.topics().await),
            ("consumer offsets", self.consumer_offsets().await),
            ("delay offsets", self.delay_offsets().await),
            ("subscription groups", self.groups().await),
            ("message request modes", self.request_modes().await),
        ];
        for (what, outcome) in outcomes {
            if let Err(error) = outcome {
                tracing::warn!(master = self.address, %error, "{what} not copied from the master");
            }
        }
        self.bytes
    }

    async fn topics(&mut self) -> Result<(), SynchronizeError> {
        let mut topics: BTreeMap<String, TopicConfig> = BTreeMap::new();
        let mut deleted = BTreeMap::new();
        let pages = Pages {
            code: request::GET_ALL_TOPIC_CONFIG,
            from: "topicSeq",
            at_most: "maxTopicNum",
            total: "totalTopicNum",
        };
        let version = self
            .pages(pages, &mut topics, |page: TopicConfigAndMappingSerializeWrapper| {
                deleted.extend(page.deleted_topics);
                (page.data_version, page.topic_config_table)
            })
            .await?;
        // Before the table has one of that name again, or none.
        let broker = self.broker.clone();
        spawn_blocking(move || delete_topics(&broker, &deleted)).await.map_err(io::Error::other)??;
        self.broker.topics.become_copy(topics, version);
        Ok(())
    }

    async fn groups(&mut self) -> Result<(), SynchronizeError> {
        let mut groups: BTreeMap<String, SubscriptionGroupConfig> = BTreeMap::new();
        let mut forbidden = BTreeMap::new();
        let pages = Pages {
            code: request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            from: "groupSeq",
            at_most: "maxGroupNum",
            total: "totalGroupNum",
        };
        let version = self
            .pages(pages, &mut groups, |page: SubscriptionGroupWrapper| {
                forbidden.extend(page.forbidden_table);
                (page.data_version, page.subscription_group_table)
            })
            .await?;
        self.broker.groups.become_copy(groups, forbidden, version);
        Ok(())
    }

    async fn consumer_offsets(&mut self) -> Result<(), SynchronizeError> {
        let question = RemotingCommand::request(request::GET_ALL_CONSUMER_OFFSET);
        let theirs: ConsumerOffsetSerializeWrapper = self.ask(question, TIMEOUT).await?;
        let is_changed = self.broker.offsets.copy_from_master(theirs);
        if is_changed || !self.broker.offsets.is_kept() {
            // At once: if all brokers die now and this one is the next master, groups go on from here.
            let broker = self.broker.clone();
            spawn_blocking(move || broker.offsets.keep()).await.map_err(io::Error::other)??;
        }
        Ok(())
    }

    async fn delay_offsets(&mut self) -> Result<(), SynchronizeError> {
        let question = RemotingCommand::request(request::GET_ALL_DELAY_OFFSET);
        let theirs: DelayOffsetSerializeWrapper = self.ask(question, TIMEOUT).await?;
        self.broker.schedule.merge(&theirs);
        Ok(())
    }

    async fn request_modes(&mut self) -> Result<(), SynchronizeError> {
        let question = RemotingCommand::request(request::GET_ALL_MESSAGE_REQUEST_MODE);
        let theirs: MessageRequestModeSerializeWrapper = self.ask(question, TIMEOUT).await?;
        self.broker.request_modes.become_copy(theirs);
        Ok(())
    }

    /// Reads a table that may come in pages; one without a total came whole. Returns its version.
    async fn pages<B: DeserializeOwned, T>(
        &mut self,
        pages: Pages,
        table: &mut BTreeMap<String, T>,
        mut take: impl FnMut(B) -> (DataVersion, BTreeMap<String, T>),
    ) -> Result<DataVersion, SynchronizeError> {
        let mut version: Option<DataVersion> = None;
        let mut attempts = 0;
        let mut received = 0;
        loop {
            let question = RemotingCommand::request(pages.code)
                .with(pages.from, received)
                .with(pages.at_most, PAGE)
                .with("dataVersion", version.map(|version| json::to_string(&version)).unwrap_or_default());
            let answer = self.answer(question, TABLE_TIMEOUT).await?;
            let total: Option<usize> = answer.number_or_none(pages.total)?;
            let (of_page, entries) = take(json::from_slice(&answer.body)?);
            if version.is_some_and(|version| version != of_page) {
                attempts += 1;
                if attempts == ATTEMPTS {
                    return Err(SynchronizeError::Restless);
                }
                (version, received) = (None, 0);
                table.clear();
                continue;
            }
            version = Some(of_page);
            let is_last = entries.is_empty();
            received += entries.len();
            table.extend(entries);
            if is_last || total.is_none_or(|total| received >= total) {
                return Ok(of_page);
            }
        }
    }

    async fn ask<B: DeserializeOwned>(
        &mut self,
        question: RemotingCommand,
        timeout: Duration,
    ) -> Result<B, SynchronizeError> {
        Ok(json::from_slice(&self.answer(question, timeout).await?.body)?)
    }

    async fn answer(
        &mut self,
        question: RemotingCommand,
        timeout: Duration,
    ) -> Result<RemotingCommand, SynchronizeError> {
        let answer = self.master.client.invoke(self.address, question, timeout).await?;
        if answer.code != response::SUCCESS {
            let remark = answer.remark.unwrap_or_default();
            return Err(SynchronizeError::Refused { code: answer.code, remark });
        }
        self.bytes += answer.body.len();
        Ok(answer)
    }
}

/// Deletes the queues and the progress of topics that the master has deleted, as it did: what they got later stays.
fn delete_topics(broker: &Broker, deletions: &BTreeMap<String, u64>) -> Result<(), ReplicaError> {
    for topic in broker.store.delete_topics_below(deletions)? {
        tracing::info!(topic, "the master has deleted this topic");
        broker.offsets.remove_topic(&topic);
        if broker.config().auto_delete_unused_stats {
            broker.stats.remove_topic(&topic);
        }
    }
    Ok(())
}

/// The names of a request for pages.
#[derive(Clone, Copy)]
struct Pages {
    code: i32,
    from: &'static str,
    at_most: &'static str,
    total: &'static str,
}
