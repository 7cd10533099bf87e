//! A message as a request (`docs/spec/07-client.md` 6.1, 6.2).

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::{self, HeaderEncoding};
use ferromq_protocol::header::{FieldOut, Head, begin_frame};
use ferromq_protocol::message::sysflag;
use ferromq_protocol::names::RETRY_PREFIX;
use ferromq_protocol::version;

use super::ProducerCore;
use super::reply::REPLY;
use crate::error::Error;
use crate::instance::transport::LANGUAGE;
use crate::message::properties as names;
use crate::message::{Message, batch};
use crate::trace::Subject;
use crate::validate;

/// Bodies above this are compressed on a thread that may be busy for a while.
const COMPRESSED_INLINE_BYTES_MAX: usize = 128 * 1024;

/// A message that was checked, named and compressed once, and can be sent any number of times.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) message: Message,
    /// Of a batch the ids of all messages.
    batch_ids: Option<String>,
    body: Bytes,
    sys_flag: i32,
    /// What a trace tells of it, one for each message; none if it is not traced.
    pub(super) subjects: Vec<Subject>,
}

impl Outgoing {
    /// A message of its own. It is to be [compressed](Self::compress) before it is sent.
    pub(super) fn single(core: &ProducerCore, mut message: Message) -> Result<Self, Error> {
        core.check_open()?;
        validate::message(&message, core.settings.max_message_size)?;
        message.identify();
        Ok(Self::alone(core, message))
    }

    /// Batches are not compressed: brokers take them apart.
    pub(super) fn batch(core: &ProducerCore, mut messages: Vec<Message>) -> Result<Self, Error> {
        core.check_open()?;
        batch::check(&messages)?;
        for message in &mut messages {
            validate::message(message, core.settings.max_message_size)?;
            message.identify();
        }
        Self::packed(core, &messages, None)
    }

    /// Messages that were checked and named when they were held back. Brokers that store the batch as one record filter it
    /// by its tag.
    pub(super) async fn accumulated(
        core: &ProducerCore,
        messages: Vec<Message>,
        tags: Option<&str>,
    ) -> Result<Self, Error> {
        match <[Message; 1]>::try_from(messages) {
            Ok([message]) => {
                let mut outgoing = Self::alone(core, message);
                outgoing.compress(core).await;
                Ok(outgoing)
            }
            Err(messages) => Self::packed(core, &messages, tags),
        }
    }

    fn alone(core: &ProducerCore, message: Message) -> Self {
        let (body, mut sys_flag) = (message.body.clone(), 0);
        if message.get_property(names::TRAN_MSG) == Some("true") {
            sys_flag |= sysflag::TRANSACTION_PREPARED;
        }
        let subjects = subjects(core, &message.topic, || vec![Subject::new(&message, body.len())]);
        Self { message, batch_ids: None, body, sys_flag, subjects }
    }

    /// Compresses the body if it is large enough.
    pub(super) async fn compress(&mut self, core: &ProducerCore) {
        if self.body.len() < core.settings.compress_over {
            return;
        }
        let (body, sys_flag) = Box::pin(compress(core, &self.body)).await;
        self.subjects.iter_mut().for_each(|subject| subject.set_body_length(body.len()));
        self.body = body;
        self.sys_flag |= sys_flag;
    }

    fn packed(core: &ProducerCore, messages: &[Message], tags: Option<&str>) -> Result<Self, Error> {
        let message = batch::pack(messages)?.system(names::TAGS, tags.unwrap_or_default());
        validate::message(&message, core.settings.max_message_size)?;
        let ids: Vec<&str> = messages.iter().filter_map(|m| m.get_property(names::UNIQ_KEY)).collect();
        let body = message.body.clone();
        let batch_ids = Some(ids.join(","));
        let subjects = subjects(core, &message.topic, || {
            messages.iter().map(|message| Subject::new(message, message.body.len())).collect()
        });
        Ok(Self { message, batch_ids, body, sys_flag: 0, subjects })
    }

    /// The ids that the result shows.
    pub(super) fn unique_ids(&self) -> &str {
        self.batch_ids.as_deref().or_else(|| self.message.get_property(names::UNIQ_KEY)).unwrap_or_default()
    }

    /// Code of the request that stores it.
    pub(super) fn code(&self) -> i32 {
        if self.batch_ids.is_some() {
            request::SEND_BATCH_MESSAGE
        } else if self.message.get_property(names::MESSAGE_TYPE) == Some(REPLY) {
            request::SEND_REPLY_MESSAGE_V2
        } else {
            request::SEND_MESSAGE_V2
        }
    }

    /// The request that stores it in a queue.
    pub(super) fn request(&self, core: &ProducerCore, queue: &MessageQueue, broker: &str) -> RemotingCommand {
        let properties = self.message.properties.text();
        let mut command = RemotingCommand::request(self.code()).with_body(self.body.clone());
        command.fields = Some(self.fields(core, queue, broker, &properties).collect());
        command
    }

    /// Appends the same request as a whole frame, for clients whose requests need nothing more.
    pub(super) fn write(
        &self,
        core: &ProducerCore,
        queue: &MessageQueue,
        broker: &str,
        (opaque, encoding): (i32, HeaderEncoding),
        out: &mut Vec<u8>,
    ) {
        let head = Head {
            code: self.code(),
            opaque,
            flag: 0,
            language: LANGUAGE,
            version: version::CURRENT,
            remark: None,
        };
        let properties = self.message.properties.text();
        let fields = self.fields(core, queue, broker, &properties);
        let (start, header_end) = begin_frame(out, encoding, &head, Some(fields));
        out.extend_from_slice(&self.body);
        frame::finish(out, start, header_end, encoding);
    }

    fn fields<'a>(
        &'a self,
        core: &'a ProducerCore,
        queue: &MessageQueue,
        broker: &'a str,
        properties: &'a str,
    ) -> impl Iterator<Item = (&'a str, FieldOut<'a>)> {
        use FieldOut::{Boolean, Number, Text};
        let (message, settings) = (&self.message, &core.settings);
        let born_ms =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        // A retry tells its counts in the header; brokers leave the properties of that name alone.
        let is_retry = message.topic.starts_with(RETRY_PREFIX);
        let count = |name| message.get_property(name).filter(|_| is_retry);
        let fields = [
            Some(("a", Text(&core.group))),
            Some(("b", Text(&message.topic))),
            Some(("c", Text(&settings.create_topic_key))),
            Some(("d", Number(settings.default_topic_queue_nums.into()))),
            Some(("e", Number(queue.queue_id.into()))),
            Some(("f", Number(self.sys_flag.into()))),
            Some(("g", Number(born_ms))),
            Some(("h", Number(message.flag.into()))),
            Some(("i", Text(properties))),
            Some(("j", Text(count(names::RECONSUME_TIME).unwrap_or("0")))),
            Some(("k", Boolean(settings.unit_mode))),
            count(names::MAX_RECONSUME_TIMES).map(|max| ("l", Text(max))),
            Some(("m", Boolean(self.batch_ids.is_some()))),
            Some(("n", Text(broker))),
        ];
        fields.into_iter().flatten()
    }
}

fn subjects(core: &ProducerCore, topic: &str, note: impl FnOnce() -> Vec<Subject>) -> Vec<Subject> {
    core.trace.as_ref().map_or_else(Vec::new, |trace| trace.subjects(topic, note))
}

/// The body as it is sent, and the bits that say how.
async fn compress(core: &ProducerCore, body: &Bytes) -> (Bytes, i32) {
    let settings = &core.settings;
    let (kind, level, plain) = (settings.compression, settings.compress_level, body.clone());
    let packed = if body.len() <= COMPRESSED_INLINE_BYTES_MAX {
        kind.compress(&plain, level)
    } else {
        let packing = tokio::task::spawn_blocking(move || kind.compress(&plain, level));
        packing.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    };
    match packed {
        Ok(packed) => (packed.into(), kind.sys_flag()),
        Err(error) => {
            tracing::warn!(%error, "a body can't be compressed and is sent as it is");
            (body.clone(), 0)
        }
    }
}
