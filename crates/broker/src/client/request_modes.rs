//! Whether groups get a topic's messages by pull or by POP: SET_MESSAGE_REQUEST_MODE (401) and
//! GET_ALL_MESSAGE_REQUEST_MODE (402) (`docs/spec/03-broker.md` 4.9).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{
    MessageRequestMode, MessageRequestModeSerializeWrapper, SetMessageRequestModeRequestBody,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::RETRY_PREFIX;
use ferromq_remoting::Connection;
use parking_lot::RwLock;

use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::config_file::{ConfigFile, LoadError, SaveError, SavedFile};
use crate::service::Handler;

/// What administrators have set, kept in `messageRequestMode.json`.
#[derive(Debug)]
pub(crate) struct MessageRequestModes {
    table: Arc<RwLock<MessageRequestModeSerializeWrapper>>,
    file: SavedFile,
}

impl MessageRequestModes {
    /// Loads `messageRequestMode.json` and keeps it up to date from now on.
    pub(crate) fn load(config_directory: &Path) -> Result<Self, LoadError> {
        let (file, loaded) = ConfigFile::load(config_directory.join("messageRequestMode.json"))?;
        let table = Arc::new(RwLock::new(loaded.unwrap_or_default()));
        let file = SavedFile::start(file, Duration::ZERO, {
            let table: Arc<RwLock<MessageRequestModeSerializeWrapper>> = table.clone();
            move || table.read().clone()
        })?;
        Ok(Self { table, file })
    }

    /// What is set for a group on a topic: the mode, and with how many others a consumer shares its queues.
    pub(super) fn get(&self, group: &str, topic: &str) -> Option<(MessageRequestMode, i32)> {
        let table = self.table.read();
        let set = table.message_request_mode_map.get(topic)?.get(group)?;
        Some((set.mode, set.pop_share_queue_num))
    }

    /// Sets it. On the disk when this returns.
    fn set(&self, wanted: SetMessageRequestModeRequestBody) -> Result<(), SaveError> {
        let topic = wanted.topic.clone();
        let mut table = self.table.write();
        table
            .message_request_mode_map
            .entry(topic)
            .or_default()
            .insert(wanted.consumer_group.clone(), wanted);
        drop(table);
        self.file.wait(self.file.changed())
    }

    /// Makes the table that of a master.
    pub(crate) fn become_copy(&self, theirs: MessageRequestModeSerializeWrapper) {
        let mut table = self.table.write();
        if *table != theirs {
            *table = theirs;
            drop(table);
            self.file.changed();
        }
    }

    /// Saves what is not saved yet and ends the saving.
    pub(crate) fn stop(&self) {
        self.file.stop();
    }
}

pub(super) fn route(code: i32) -> Option<Handler> {
    Some(match code {
        request::SET_MESSAGE_REQUEST_MODE => Handler::Blocking(set_message_request_mode),
        request::GET_ALL_MESSAGE_REQUEST_MODE => Handler::Inline(get_all_message_request_mode),
        _ => return None,
    })
}

fn set_message_request_mode(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let wanted: SetMessageRequestModeRequestBody = json::from_slice(&request.body)?;
    let topic = &wanted.topic;
    if topic.starts_with(RETRY_PREFIX) {
        return Err(Refusal::new(response::NO_PERMISSION, "retry topic is not allowed to set mode"));
    }
    if !broker.topics.contains(topic) {
        return Err(Refusal::new(response::TOPIC_NOT_EXIST, format!("topic[{topic}] not exist")));
    }
    if broker.groups.get(&wanted.consumer_group).is_none() {
        let remark = "subscription group does not exist";
        return Err(Refusal::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
    }
    broker.request_modes.set(wanted).map_err(|error| Refusal::system_error(error.to_string()))?;
    Ok(RemotingCommand::success())
}

fn get_all_message_request_mode(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    Ok(RemotingCommand::success().with_body(json::to_vec(&*broker.request_modes.table.read())))
}
