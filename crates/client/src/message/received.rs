//! Messages as consumers get them (`docs/spec/07-client.md` 12.3).

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::message::{RecordView, batch, id, sysflag};

use super::compression::decompress;
use super::{Message, Properties, properties as names};

/// A message that was stored, with everything that the broker noted about it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MessageExt {
    /// The body, decompressed.
    pub body: Bytes,
    /// The application's own flag.
    pub flag: i32,
    /// All properties, the application's and the system's.
    pub properties: Properties,
    /// The queue that it was read from; messages that came together share it.
    pub queue: Arc<MessageQueue>,
    /// Its position in the queue.
    pub queue_offset: i64,
    /// Its position in the broker's log, bytes.
    pub commit_log_offset: u64,
    /// Flags of the system ([`ferromq_protocol::message::sysflag`]).
    pub sys_flag: i32,
    /// The producer's clock, ms.
    pub born_timestamp: i64,
    /// The producer's address.
    pub born_host: SocketAddr,
    /// The broker's clock, ms.
    pub store_timestamp: i64,
    /// The broker's address.
    pub store_host: SocketAddr,
    /// How often it was consumed without success.
    pub reconsume_times: i32,
    /// For a committed transaction: where its half message is, bytes.
    pub prepared_transaction_offset: i64,
    /// Size of the whole record, bytes.
    pub store_size: usize,
    /// The topic, if it is not the queue's.
    pub(super) other_topic: Option<Box<str>>,
}

impl MessageExt {
    /// The topic. Of a retried message it is the one that it was sent to at first.
    pub fn topic(&self) -> &str {
        self.other_topic.as_deref().unwrap_or(&self.queue.topic)
    }

    pub(crate) fn set_topic(&mut self, topic: &str) {
        self.other_topic = (topic != self.queue.topic).then(|| topic.into());
    }

    /// The id that the producer gave it, the same through all retries; without one, its
    /// [`offset_msg_id`](Self::offset_msg_id).
    pub fn msg_id(&self) -> Cow<'_, str> {
        match self.property(names::UNIQ_KEY) {
            Some(id) => Cow::Borrowed(id),
            None => Cow::Owned(self.offset_msg_id()),
        }
    }

    /// The id that says where it is stored, at which broker and where in its log: another one after each retry.
    pub fn offset_msg_id(&self) -> String {
        id::offset_id(self.store_host, self.commit_log_offset)
    }

    /// A property.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name)
    }

    /// The tag.
    pub fn tags(&self) -> Option<&str> {
        self.property(names::TAGS)
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.property(names::KEYS).unwrap_or_default().split_ascii_whitespace()
    }

    /// For a transactional message: the id of its transaction.
    pub fn transaction_id(&self) -> Option<&str> {
        let is_transactional = self.property(names::TRAN_MSG) == Some("true");
        if is_transactional { self.property(names::UNIQ_KEY) } else { None }
    }

    /// Of a popped message: by which it is acknowledged. It ends with the message's invisible time.
    pub fn receipt_handle(&self) -> Option<&str> {
        self.property(names::POP_CK)
    }

    /// The same content as a message to be sent, with all properties.
    pub(crate) fn to_message(&self, topic: String) -> Message {
        let mut message = Message::new(topic, self.body.clone()).flag(self.flag);
        message.properties = self.properties.clone();
        message
    }

    fn read(
        record: &RecordView<'_>,
        pulled: &Bytes,
        queue: Arc<MessageQueue>,
        added: &Properties,
    ) -> io::Result<Self> {
        let mut sys_flag = record.sys_flag();
        let body = if sys_flag & sysflag::COMPRESSED != 0 {
            let body = decompress(record.body(), sys_flag)?;
            sys_flag &= !sysflag::COMPRESSED;
            body
        } else {
            pulled.slice_ref(record.body())
        };
        let topic = record.topic().ok_or_else(|| io::Error::other("its topic is not UTF-8"))?;
        Ok(Self {
            other_topic: (topic != queue.topic).then(|| topic.into()),
            body,
            flag: record.flag(),
            properties: Properties::decode_with(record.properties(), added),
            queue,
            queue_offset: record.queue_offset(),
            commit_log_offset: record.physical_offset(),
            sys_flag,
            born_timestamp: record.born_timestamp(),
            born_host: record.born_host(),
            store_timestamp: record.store_timestamp(),
            store_host: record.store_host(),
            reconsume_times: record.reconsume_times(),
            prepared_transaction_offset: record.prepared_transaction_offset(),
            store_size: record.size(),
        })
    }

    /// The messages inside of a batch that the broker stored as one record.
    fn unwrap(&self, added: &Properties) -> io::Result<Vec<Self>> {
        let inner = batch::iter(&self.body).enumerate().map(|(position, message)| {
            let message = message.map_err(io::Error::other)?;
            Ok(Self {
                body: self.body.slice_ref(message.body),
                flag: message.flag,
                properties: Properties::decode_with(message.properties, added),
                queue_offset: self.queue_offset + position as i64,
                sys_flag: self.sys_flag & !(sysflag::INNER_BATCH | sysflag::NEED_UNWRAP),
                ..self.clone()
            })
        });
        inner.collect()
    }
}

/// The messages in the body of an answer to a pull, as they were pulled from `queue`, each with the properties `added`. A
/// record that can't be read ends the list: what is behind it can't be told from it.
pub(crate) fn decode_pulled(
    pulled: &Bytes,
    queue: &MessageQueue,
    added: &Properties,
    each: impl FnMut(MessageExt),
) {
    let queue = Arc::new(queue.clone());
    decode(pulled, |_| queue.clone(), added, each);
}

/// The messages in a body, each of the queue of this broker that its record names.
pub(crate) fn decode_stored(stored: &Bytes, broker: &str) -> Vec<MessageExt> {
    let queue_of = |record: &RecordView<'_>| {
        Arc::new(MessageQueue::new(record.topic().unwrap_or_default(), broker, record.queue_id()))
    };
    let mut messages = Vec::new();
    decode(stored, queue_of, &Properties::default(), |message| messages.push(message));
    messages
}

fn decode(
    pulled: &Bytes,
    queue_of: impl Fn(&RecordView<'_>) -> Arc<MessageQueue>,
    added: &Properties,
    mut each: impl FnMut(MessageExt),
) {
    const WRAPPED: i32 = sysflag::INNER_BATCH | sysflag::NEED_UNWRAP;
    let mut rest = &pulled[..];
    while !rest.is_empty() {
        let read = RecordView::parse(rest).map_err(io::Error::other).and_then(|record| {
            let message = MessageExt::read(&record, pulled, queue_of(&record), added)?;
            if message.sys_flag & WRAPPED == WRAPPED {
                message.unwrap(added)?.into_iter().for_each(&mut each);
            } else {
                each(message);
            }
            Ok(record.size())
        });
        match read {
            Ok(size) => rest = &rest[size..],
            Err(reason) => {
                let at = pulled.len() - rest.len();
                tracing::error!(at, %reason, "a message of a broker can't be read, it and those behind it are left out");
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::message::{RecordFields, set_log_fields};

    use super::*;
    use crate::message::Compression;

    fn record(body: &[u8], sys_flag: i32, properties: &[u8], queue_offset: i64) -> Vec<u8> {
        let host = "10.0.0.1:10911".parse().unwrap();
        let fields = RecordFields {
            topic: "T",
            queue_id: 3,
            flag: 7,
            sys_flag,
            born_timestamp: 1,
            born_host: host,
            store_host: host,
            reconsume_times: 2,
            prepared_transaction_offset: 0,
            body,
            properties,
        };
        let mut bytes = Vec::new();
        fields.encode_into(&mut bytes).unwrap();
        set_log_fields(&mut bytes, queue_offset, 4096, 2);
        bytes
    }

    fn pulled(bytes: Vec<u8>, added: &Properties) -> Vec<MessageExt> {
        let mut messages = Vec::new();
        let queue = MessageQueue::new("T", "broker-a", 3);
        decode_pulled(&Bytes::from(bytes), &queue, added, |message| messages.push(message));
        messages
    }

    #[test]
    fn a_compressed_message_is_as_it_was_sent() {
        let body = Compression::Zlib.compress(b"hello hello hello", 5).unwrap();
        let properties = b"UNIQ_KEY\x01id\x02TAGS\x01A\x02KEYS\x01k1 k2\x02";
        let messages = pulled(record(&body, 0x301, properties, 9), &Properties::default());
        let [message] = &messages[..] else { panic!("one message, not {messages:?}") };
        assert_eq!((&message.body[..], message.sys_flag), (&b"hello hello hello"[..], 0x300));
        assert_eq!((&*message.msg_id(), message.tags(), message.queue_offset), ("id", Some("A"), 9));
        assert_eq!(message.keys().collect::<Vec<_>>(), ["k1", "k2"]);
        assert_eq!(message.offset_msg_id(), "0A00000100002A9F0000000000001000");
    }

    #[test]
    fn a_message_has_the_topic_of_its_queue_until_it_gets_another() {
        let mut message = pulled(record(b"x", 0, b"", 0), &Properties::default()).remove(0);
        assert_eq!((message.topic(), message.msg_id()), ("T", message.offset_msg_id().into()));
        message.set_topic("Other");
        assert_eq!(message.topic(), "Other");
        Arc::make_mut(&mut message.queue).topic = "Other".to_owned();
        message.set_topic("Other");
        assert_eq!((message.topic(), &message.other_topic), ("Other", &None));
    }

    #[test]
    fn a_batch_in_one_record_is_unwrapped() {
        let mut body = Vec::new();
        for part in [&b"m0"[..], b"m1"] {
            batch::append(
                &mut body,
                &batch::BatchMessage { flag: 0, body: part, properties: b"TAGS\x01B\x02" },
            );
        }
        let bytes = record(&body, sysflag::INNER_BATCH | sysflag::NEED_UNWRAP, b"", 20);
        let mut added = Properties::default();
        added.insert(names::MAX_OFFSET, "22");
        let messages = pulled(bytes, &added);
        assert!(messages.iter().all(|message| message.property(names::MAX_OFFSET) == Some("22")));
        let seen: Vec<_> = messages.iter().map(|m| (m.queue_offset, &m.body[..], m.tags())).collect();
        assert_eq!(seen, [(20, &b"m0"[..], Some("B")), (21, b"m1", Some("B"))]);
    }

    #[test]
    fn what_follows_a_damaged_record_is_left_out() {
        let mut bytes = record(b"whole", 0, b"", 0);
        let mut torn = record(b"torn", 0, b"", 1);
        torn.truncate(torn.len() - 1);
        bytes.extend(torn);
        assert_eq!(pulled(bytes, &Properties::default()).len(), 1);
    }
}
