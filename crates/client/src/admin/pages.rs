//! Tables that brokers hand out in pages (`docs/spec/01-remoting.md` 5, codes 21 and 201); up to 5.3.3 they do not, and answer with all
//! of it.

use ferromq_protocol::body::{DataVersion, SubscriptionGroupWrapper, TopicConfigSerializeWrapper};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use serde::de::DeserializeOwned;

use super::{Admin, NO_TOPIC, at, body};
use crate::error::Error;

/// Entries of a page that are asked for; a broker gives at most so many (`splitMetadataSize`).
const PAGE: usize = 2000;

/// Times that a table is begun anew because it changed between two of its pages.
const ATTEMPTS: usize = 5;

/// A table, or a page of it.
pub(super) trait Table: DeserializeOwned + Default {
    /// The request for it, and the names of its fields: which entry is the first, how many are wanted, and how many there are.
    const CODE: i32;
    const FIRST: &str;
    const MOST: &str;
    const TOTAL: &str;

    /// Which state of the table this is of.
    fn version(&self) -> DataVersion;

    fn entries(&self) -> usize;

    /// Adds the next page.
    fn extend(&mut self, page: Self);
}

impl Table for TopicConfigSerializeWrapper {
    const CODE: i32 = request::GET_ALL_TOPIC_CONFIG;
    const FIRST: &str = "topicSeq";
    const MOST: &str = "maxTopicNum";
    const TOTAL: &str = "totalTopicNum";

    fn version(&self) -> DataVersion {
        self.data_version
    }

    fn entries(&self) -> usize {
        self.topic_config_table.len()
    }

    fn extend(&mut self, page: Self) {
        self.data_version = page.data_version;
        self.topic_config_table.extend(page.topic_config_table);
    }
}

impl Table for SubscriptionGroupWrapper {
    const CODE: i32 = request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG;
    const FIRST: &str = "groupSeq";
    const MOST: &str = "maxGroupNum";
    const TOTAL: &str = "totalGroupNum";

    fn version(&self) -> DataVersion {
        self.data_version
    }

    fn entries(&self) -> usize {
        self.subscription_group_table.len()
    }

    fn extend(&mut self, page: Self) {
        self.data_version = page.data_version;
        self.forbidden_table.extend(page.forbidden_table);
        self.subscription_group_table.extend(page.subscription_group_table);
    }
}

impl Admin {
    /// All of a table: the pages of one state of it.
    pub(super) async fn whole_table<T: Table>(&self, address: &str) -> Result<T, Error> {
        for _ in 0..ATTEMPTS {
            if let Some(table) = self.try_whole_table(address).await? {
                return Ok(table);
            }
        }
        let reason =
            format!("the table changed each of the {ATTEMPTS} times that it was read: try again later");
        Err(at(address, NO_TOPIC).malformed(request::name(T::CODE), reason))
    }

    /// Nothing if the table changes between two pages.
    async fn try_whole_table<T: Table>(&self, address: &str) -> Result<Option<T>, Error> {
        let to = at(address, NO_TOPIC);
        let (mut table, mut known) = (T::default(), String::new());
        loop {
            let query = RemotingCommand::request(T::CODE)
                .with(T::FIRST, table.entries())
                .with(T::MOST, PAGE)
                .with("dataVersion", &known);
            let answer = self.done(to, query).await?;
            let total = answer.number_or_none::<usize>(T::TOTAL);
            let total = total.map_err(|error| to.malformed(request::name(T::CODE), error))?;
            let page: T = body(to, T::CODE, &answer)?;
            if !known.is_empty() && page.version() != table.version() {
                return Ok(None);
            }
            let before = table.entries();
            table.extend(page);
            let is_last = table.entries() == before;
            // One that tells no total gave everything.
            if is_last || total.is_none_or(|total| table.entries() >= total) {
                return Ok(Some(table));
            }
            known = json::to_string(&table.version());
        }
    }
}
