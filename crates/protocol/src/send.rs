//! The header of a send, in its long (10) and short (310, 320) spelling, read without building a map
//! (`docs/spec/01-remoting.md` 5.4.1, 6.1).

use std::borrow::Cow;

use crate::code::request;
use crate::command::{FieldError, FieldReader};
use crate::header::{FieldValue, Request};

/// What a producer says about the message in the body.
#[derive(Clone, Debug, Default)]
pub struct SendHeader<'a> {
    /// Producer group; not needed to store the message.
    pub producer_group: Option<Cow<'a, str>>,
    /// Topic to store into.
    pub topic: Cow<'a, str>,
    /// Template of an automatically created topic, normally `TBW102`.
    pub default_topic: Option<Cow<'a, str>>,
    /// Queues of an automatically created topic.
    pub default_topic_queue_nums: i32,
    /// Queue to store into; below 0 = any.
    pub queue_id: i32,
    /// `docs/spec/01-remoting.md` 6.6.
    pub sys_flag: i32,
    /// Producer's clock, ms.
    pub born_timestamp: i64,
    /// The user's own flag.
    pub flag: i32,
    /// Encoded properties (6.2.1), still as they stand in the header.
    pub properties: Option<FieldValue<'a>>,
    /// How often the message was consumed before.
    pub reconsume_times: i32,
    /// Unit mode.
    pub unit_mode: bool,
    /// The body is a batch (6.2.2).
    pub batch: bool,
    /// Consumer's limit of retries.
    pub max_reconsume_times: Option<i32>,
    /// `lo`: the queue id is that of a static topic.
    pub logical: Option<bool>,
}

/// The fields of a send, whatever their spelling.
enum Field {
    ProducerGroup,
    Topic,
    DefaultTopic,
    DefaultTopicQueueNums,
    QueueId,
    SysFlag,
    BornTimestamp,
    Flag,
    Properties,
    ReconsumeTimes,
    UnitMode,
    MaxReconsumeTimes,
    Batch,
}

fn short(name: &[u8]) -> Option<Field> {
    let [letter] = name else { return None };
    Some(match letter {
        b'a' => Field::ProducerGroup,
        b'b' => Field::Topic,
        b'c' => Field::DefaultTopic,
        b'd' => Field::DefaultTopicQueueNums,
        b'e' => Field::QueueId,
        b'f' => Field::SysFlag,
        b'g' => Field::BornTimestamp,
        b'h' => Field::Flag,
        b'i' => Field::Properties,
        b'j' => Field::ReconsumeTimes,
        b'k' => Field::UnitMode,
        b'l' => Field::MaxReconsumeTimes,
        b'm' => Field::Batch,
        _ => return None,
    })
}

fn long(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"producerGroup" => Field::ProducerGroup,
        b"topic" => Field::Topic,
        b"defaultTopic" => Field::DefaultTopic,
        b"defaultTopicQueueNums" => Field::DefaultTopicQueueNums,
        b"queueId" => Field::QueueId,
        b"sysFlag" => Field::SysFlag,
        b"bornTimestamp" => Field::BornTimestamp,
        b"flag" => Field::Flag,
        b"properties" => Field::Properties,
        b"reconsumeTimes" => Field::ReconsumeTimes,
        b"unitMode" => Field::UnitMode,
        b"maxReconsumeTimes" => Field::MaxReconsumeTimes,
        b"batch" => Field::Batch,
        _ => return None,
    })
}

impl<'a> SendHeader<'a> {
    /// Reads the header of a send. Fields that the store can't do without (1.4) are required, all others are optional.
    pub fn parse(request: &Request<'a>) -> Result<Self, FieldError> {
        let is_short = matches!(
            request.code,
            request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE | request::SEND_REPLY_MESSAGE_V2
        );
        let spelled =
            |long_name: &'static str, short_name: &'static str| if is_short { short_name } else { long_name };
        let read = FieldReader::of(request.code);

        let mut header = Self::default();
        let (mut topic, mut queue_id, mut sys_flag, mut born, mut flag) = (None, None, None, None, None);
        for (key, value) in request.fields.iter() {
            let Some(field) = (if is_short { short(key) } else { long(key) }) else {
                if key == b"lo" && !is_short {
                    header.logical = Some(value.boolean());
                }
                continue;
            };
            match field {
                Field::ProducerGroup => {
                    header.producer_group = Some(read.text(spelled("producerGroup", "a"), &value)?)
                }
                Field::Topic => topic = Some(read.text(spelled("topic", "b"), &value)?),
                Field::DefaultTopic => {
                    header.default_topic = Some(read.text(spelled("defaultTopic", "c"), &value)?)
                }
                Field::DefaultTopicQueueNums => {
                    header.default_topic_queue_nums =
                        read.int(spelled("defaultTopicQueueNums", "d"), &value)?;
                }
                Field::QueueId => queue_id = Some(read.int(spelled("queueId", "e"), &value)?),
                Field::SysFlag => sys_flag = Some(read.int(spelled("sysFlag", "f"), &value)?),
                Field::BornTimestamp => {
                    born = Some(read.long(spelled("bornTimestamp", "g"), &value)?);
                }
                Field::Flag => flag = Some(read.int(spelled("flag", "h"), &value)?),
                Field::Properties => header.properties = Some(value),
                Field::ReconsumeTimes => {
                    header.reconsume_times = read.int(spelled("reconsumeTimes", "j"), &value)?
                }
                Field::UnitMode => header.unit_mode = value.boolean(),
                Field::MaxReconsumeTimes => {
                    header.max_reconsume_times = Some(read.int(spelled("maxReconsumeTimes", "l"), &value)?);
                }
                Field::Batch => header.batch = value.boolean(),
            }
        }
        header.topic = topic.ok_or_else(|| read.missing(spelled("topic", "b")))?;
        header.queue_id = queue_id.ok_or_else(|| read.missing(spelled("queueId", "e")))?;
        header.sys_flag = sys_flag.ok_or_else(|| read.missing(spelled("sysFlag", "f")))?;
        header.born_timestamp = born.ok_or_else(|| read.missing(spelled("bornTimestamp", "g")))?;
        header.flag = flag.ok_or_else(|| read.missing(spelled("flag", "h")))?;
        Ok(header)
    }
}
