//! Transactional messages (`docs/spec/07-client.md` 9).

use std::fmt;
use std::sync::Arc;

use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::message::{id, sysflag};
use ferromq_remoting::Connection;

use super::{Producer, ProducerCore, SendResult, SendStatus};
use crate::error::{Destination, Error};
use crate::instance::member::BoxFuture;
use crate::message::{Message, MessageExt, properties as names};
use crate::trace::Ended;

/// What became of the transaction that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalTransactionState {
    /// It was committed: consumers get the message.
    CommitMessage,
    /// It was rolled back: nobody gets the message.
    RollbackMessage,
    /// Not known yet: the broker will ask.
    Unknown,
}

impl LocalTransactionState {
    fn on_wire(self) -> i32 {
        match self {
            Self::CommitMessage => sysflag::TRANSACTION_COMMIT,
            Self::RollbackMessage => sysflag::TRANSACTION_ROLLBACK,
            Self::Unknown => sysflag::TRANSACTION_NONE,
        }
    }

    /// As Java writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CommitMessage => "COMMIT_MESSAGE",
            Self::RollbackMessage => "ROLLBACK_MESSAGE",
            Self::Unknown => "UNKNOW",
        }
    }
}

/// Answers a broker that asks what became of a transaction.
#[derive(Clone)]
pub(crate) struct TransactionCheck(Arc<CheckListener>);

type CheckListener = dyn Fn(MessageExt) -> BoxFuture<LocalTransactionState> + Send + Sync;

impl TransactionCheck {
    pub(super) fn new<F>(listener: impl Fn(MessageExt) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = LocalTransactionState> + Send + 'static,
    {
        Self(Arc::new(move |message| Box::pin(listener(message))))
    }
}

impl fmt::Debug for TransactionCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("transaction check")
    }
}

/// A producer whose messages become visible when a local transaction is committed, and never if it is rolled back.
///
/// The message is stored first, invisible; then the transaction runs; then the broker is told the outcome. If that does not
/// reach it, because this process or the network died, the broker asks any producer of the group, whose check listener
/// looks up what became of the transaction.
///
/// A busy broker may also ask about a transaction whose outcome it was told seconds ago, and then stores a committed message
/// once more (`docs/spec/03-broker.md` 19, item 41): as with any other message, consumers may get it more than once.
#[derive(Clone, Debug)]
pub struct TransactionProducer {
    producer: Producer,
}

/// What became of a transactional message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionSendResult {
    /// The broker's receipt of the invisible message. Its queue and offset are not those that consumers will see.
    pub sent: SendResult,
    /// What became of the transaction.
    pub state: LocalTransactionState,
}

impl TransactionProducer {
    pub(super) fn new(producer: Producer) -> Self {
        Self { producer }
    }

    /// Stores a message, runs the transaction it belongs to, and tells the broker the outcome. If the message is not
    /// stored as safely as wanted, the transaction does not run and the message is rolled back.
    ///
    /// # Errors
    /// As [`Producer::send`]; the transaction did not run then. A delayed message is [`Error::Invalid`].
    ///
    /// # Cancellation
    /// If the future is dropped, the broker asks for the outcome later.
    pub async fn send_in_transaction<F>(
        &self,
        message: Message,
        transaction: impl FnOnce(SendResult) -> F,
    ) -> Result<TransactionSendResult, Error>
    where
        F: Future<Output = LocalTransactionState>,
    {
        let delayed = [names::DELAY, names::TIMER_DELAY_MS, names::TIMER_DELIVER_MS];
        if delayed.iter().any(|name| message.get_property(name).is_some()) {
            return Err(Error::invalid("transactional message", "it can't be delayed as well"));
        }
        let core = self.producer.core();
        let message = message.system(names::TRAN_MSG, "true").system(names::PRODUCER_GROUP, &core.group);
        let topic = message.topic.clone();
        let ended = core.trace.as_ref().map(|_| Ended::of_sent(&message));
        let sent = core.send(message).await?;
        let state = match sent.status {
            SendStatus::SendOk => transaction(sent.clone()).await,
            _ => LocalTransactionState::RollbackMessage,
        };
        let ended = ended.filter(|_| sent.trace_on);
        if let Err(error) = self.end(&topic, &sent, state, ended).await {
            tracing::warn!(id = sent.msg_id, %error, "the broker was not told the outcome and will ask");
        }
        Ok(TransactionSendResult { sent, state })
    }

    /// The producer inside, for messages without transaction.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// Tells the brokers that the producer leaves.
    pub async fn shutdown(&self) {
        self.producer.shutdown().await;
    }

    async fn end(
        &self,
        topic: &str,
        sent: &SendResult,
        state: LocalTransactionState,
        ended: Option<Ended>,
    ) -> Result<(), Error> {
        let core = self.producer.core();
        let not_an_id =
            || Error::invalid(format!("offset id `{}`", sent.offset_msg_id), "it tells no offset");
        let (_, log_offset) = id::parse_offset_id(&sent.offset_msg_id).ok_or_else(not_an_id)?;
        let (broker, address) = core.instance.master_of(&sent.queue).await?;
        let to = Destination { broker: &broker, address: &address, topic };
        let command = RemotingCommand::request(request::END_TRANSACTION)
            .with("producerGroup", &core.group)
            .with("topic", topic)
            .with("tranStateTableOffset", sent.queue_offset)
            .with("commitLogOffset", log_offset)
            .with("commitOrRollback", state.on_wire())
            .with("fromTransactionCheck", false)
            .with("msgId", &sent.msg_id)
            .with_some("transactionId", sent.transaction_id.as_ref())
            .with("bname", &broker);
        core.instance.transport.oneway(to, command, core.settings.send_msg_timeout).await?;
        if let (Some(trace), Some(ended)) = (&core.trace, ended) {
            trace.ended(ended, &sent.msg_id, &address, state, false);
        }
        Ok(())
    }
}

/// A question for the outcome of a transaction, as a broker asks it (code 39).
#[derive(Debug)]
pub(crate) struct CheckRequest {
    pub(crate) message: MessageExt,
    pub(crate) command: RemotingCommand,
}

impl CheckRequest {
    /// Asks the listener and answers over the connection that the question came from.
    pub(crate) async fn answer(
        self,
        core: &ProducerCore,
        check: TransactionCheck,
        connection: Arc<Connection>,
    ) {
        let unique_id = self.message.msg_id().into_owned();
        let ended = core.trace.as_ref().map(|_| Ended::of_checked(&self.message));
        // A listener that panics ends this task, and the broker asks again.
        let state = (check.0)(self.message).await;
        let copied = |name: &str| self.command.field(name).map(str::to_owned);
        let mut answer = RemotingCommand::request(request::END_TRANSACTION)
            .with("producerGroup", &core.group)
            .with("commitOrRollback", state.on_wire())
            .with("fromTransactionCheck", true)
            .with("msgId", &unique_id);
        for name in ["topic", "tranStateTableOffset", "commitLogOffset", "transactionId", "bname"] {
            answer = answer.with_some(name, copied(name));
        }
        connection.oneway(core.instance.transport.prepare(answer));
        if let (Some(trace), Some(ended)) = (&core.trace, ended) {
            trace.ended(ended, &unique_id, &connection.peer().to_string(), state, true);
        }
    }
}
