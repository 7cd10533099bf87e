//! What brokers ask of a client (`docs/spec/07-client.md` 20).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use ferromq_protocol::body::{GetConsumerStatusBody, ResetOffsetBody};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::{FieldError, RemotingCommand};
use ferromq_protocol::header::Request;
use ferromq_protocol::json::{self, JsonError};
use ferromq_remoting::{Connection, Service};
use thiserror::Error;

use super::Instance;
use super::member::ProducerMember;
use crate::consumer::subscription::now_ms;
use crate::message::{decode_stored, properties as names, pushed_reply};
use crate::producer::CheckRequest;

/// Answers the requests of brokers on behalf of a client.
#[derive(Debug)]
pub(crate) struct BrokerRequests {
    pub(super) instance: Weak<Instance>,
}

/// Why a request of a broker can't be served.
#[derive(Debug, Error)]
enum Refusal {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("the body can't be read: {0}")]
    Body(#[from] JsonError),
    #[error("The Consumer Group <{0}> not exist in this consumer")]
    NoSuchConsumer(String),
    #[error("the body does not hold a message")]
    NoMessage,
}

/// The answer to a request: now, or later through the connection, or none.
enum Answer {
    Now(RemotingCommand),
    None,
}

impl Service for BrokerRequests {
    type Session = ();

    fn open(&self, _: &Arc<Connection>) {
        if let Some(instance) = self.instance.upgrade() {
            instance.heartbeats.connection_opened.notify_one();
        }
    }

    fn request(&self, (): &mut (), connection: &Arc<Connection>, request: &Request<'_>, out: &mut Vec<u8>) {
        let Some(instance) = self.instance.upgrade() else { return };
        let answer = match RemotingCommand::from_request(request) {
            Ok(command) => instance.answer(connection, &command).unwrap_or_else(|refusal| {
                tracing::warn!(code = request.code, %refusal, "refused a request of a broker");
                Answer::Now(RemotingCommand::error(response::SYSTEM_ERROR, refusal.to_string()))
            }),
            Err(error) => Answer::Now(RemotingCommand::error(response::SYSTEM_ERROR, error.to_string())),
        };
        if let Answer::Now(mut answer) = answer
            && !request.is_oneway()
        {
            answer.opaque = request.opaque;
            answer.encode(connection.encoding(), out);
        }
    }
}

impl Instance {
    fn answer(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        command: &RemotingCommand,
    ) -> Result<Answer, Refusal> {
        match command.code {
            request::NOTIFY_CONSUMER_IDS_CHANGED => {
                self.consumers().iter().for_each(|consumer| consumer.wake_rebalance());
                Ok(Answer::None)
            }
            request::CHECK_TRANSACTION_STATE => self.check_transaction(connection, command),
            request::PUSH_REPLY_MESSAGE_TO_CLIENT => {
                self.replies.complete(pushed_reply(command, now_ms())?);
                Ok(Answer::Now(RemotingCommand::success()))
            }
            request::RESET_CONSUMER_CLIENT_OFFSET => self.reset_offsets(command),
            request::GET_CONSUMER_STATUS_FROM_CLIENT => self.consumer_status(command).map(Answer::Now),
            request::GET_CONSUMER_RUNNING_INFO => self.consumer_running_info(command).map(Answer::Now),
            request::CONSUME_MESSAGE_DIRECTLY => self.consume_directly(connection, command),
            unknown => Ok(Answer::Now(RemotingCommand::not_supported(unknown))),
        }
    }

    /// The broker wants to know what became of a transaction. It is told in a request of ours, when the listener knows.
    fn check_transaction(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        command: &RemotingCommand,
    ) -> Result<Answer, Refusal> {
        let broker = command.field("bname").unwrap_or_default();
        let message = stored_message(&command.body, broker).ok_or(Refusal::NoMessage)?;
        let group = message.property(names::PRODUCER_GROUP).unwrap_or_default().to_owned();
        if let Some(ProducerMember { core, check: Some(check) }) = self.producer(&group) {
            let connection = connection.clone();
            let question = CheckRequest { message, command: command.clone() };
            self.spawn(async move { question.answer(&core, check, connection).await });
        }
        Ok(Answer::None)
    }

    fn reset_offsets(self: &Arc<Self>, command: &RemotingCommand) -> Result<Answer, Refusal> {
        let (topic, group) = (command.text("topic")?, command.text("group")?);
        let body: ResetOffsetBody = json::from_slice(&command.body)?;
        if let Some(consumer) = self.consumer(group) {
            tracing::info!(group, topic, offsets = body.offset_table.len(), "offsets are reset");
            self.spawn(consumer.reset_offsets(topic.to_owned(), body.offset_table));
        }
        Ok(Answer::None)
    }

    fn consumer_status(&self, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
        let topic = command.field("topic").unwrap_or_default().trim();
        let offsets = self.consumer(command.text("group")?).map(|consumer| consumer.offsets(topic));
        let body = GetConsumerStatusBody {
            message_queue_table: offsets.unwrap_or_default(),
            consumer_table: BTreeMap::new(),
        };
        Ok(RemotingCommand::success().with_body(json::to_vec(&body)))
    }

    fn consumer_running_info(&self, command: &RemotingCommand) -> Result<RemotingCommand, Refusal> {
        let group = command.text("consumerGroup")?;
        let consumer = self.consumer(group).ok_or_else(|| Refusal::NoSuchConsumer(group.to_owned()))?;
        let mut info = consumer.running_info();
        info.properties.insert("PROP_NAMESERVER_ADDR".to_owned(), self.name_servers.list());
        if command.boolean("jstackEnable") {
            info.jstack = Some("a Rust client has no thread dump of its tasks".to_owned());
        }
        Ok(RemotingCommand::success().with_body(json::to_vec(&info)))
    }

    fn consume_directly(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        command: &RemotingCommand,
    ) -> Result<Answer, Refusal> {
        let group = command.text("consumerGroup")?.to_owned();
        let broker = command.field("brokerName").unwrap_or_default().to_owned();
        let consumer = self.consumer(&group).ok_or_else(|| Refusal::NoSuchConsumer(group.clone()))?;
        let message = stored_message(&command.body, &broker).ok_or(Refusal::NoMessage)?;
        let (connection, opaque) = (connection.clone(), command.opaque);
        self.spawn(async move {
            let answer = match consumer.consume_directly(message).await {
                Some(result) => RemotingCommand::success().with_body(json::to_vec(&result)),
                None => {
                    RemotingCommand::error(response::SYSTEM_ERROR, Refusal::NoSuchConsumer(group).to_string())
                }
            };
            connection.respond(opaque, answer);
        });
        Ok(Answer::None)
    }
}

/// The one message in the body of a request.
fn stored_message(body: &Bytes, broker: &str) -> Option<crate::MessageExt> {
    decode_stored(body, broker).into_iter().next()
}
