//! Properties that a record gets under the log's lock, because only then are their values known: the offsets of the light
//! queues that it goes to as well (`docs/spec/02-store.md` §4.9), and the first offset of a batch in one record (§4.8).
//!
//! Other records, which is nearly all of them, have nothing of this and pay nothing for it.

use std::sync::Arc;

use ferromq_protocol::message::{LateProperties, PROPERTIES_LEN_MAX, RecordFields, properties, sysflag};
use ferromq_protocol::names::{LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC};

use crate::error::PushError;
use crate::queue::{ConsumeQueue, ConsumeQueues};

/// Names of the light queues that a message goes to, joined by commas.
pub(crate) const MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
/// The offsets that they gave it.
pub(crate) const MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
/// How many messages a batch in one record holds.
pub(crate) const INNER_NUM: &str = "INNER_NUM";
const INNER_BASE: &str = "INNER_BASE";

/// Digits of the largest offset, and what separates it from the next.
const OFFSET_LEN_MAX: usize = 20;
/// Length of the shortest message in the body of a batch.
const BATCH_MESSAGE_LEN_MIN: usize = 22;
/// Most messages of a batch in one record: the queue's unit counts them in 16 bits.
const INNER_NUM_MAX: u32 = i16::MAX as u32;

/// What is still to be added to an encoded record.
#[derive(Debug)]
pub(crate) struct Late {
    addition: Addition,
    /// Length of the properties without it.
    properties_len: usize,
    crc_property: bool,
}

#[derive(Debug)]
enum Addition {
    Offsets(Vec<Arc<ConsumeQueue>>),
    Base { messages: u32 },
}

impl Late {
    /// What the log has to add to a record; `light_queues` are all queues if light queues are in use (`enableLmq`).
    #[inline]
    pub(crate) fn of(
        record: &RecordFields<'_>,
        light_queues: Option<&Arc<ConsumeQueues>>,
        crc_property: bool,
    ) -> Result<Option<Box<Late>>, PushError> {
        if record.sys_flag & sysflag::INNER_BATCH == 0 && light_queues.is_none() {
            return Ok(None);
        }
        Self::of_any(record, light_queues, crc_property)
    }

    fn of_any(
        record: &RecordFields<'_>,
        light_queues: Option<&Arc<ConsumeQueues>>,
        crc_property: bool,
    ) -> Result<Option<Box<Late>>, PushError> {
        let addition = if record.sys_flag & sysflag::INNER_BATCH != 0 {
            let messages = inner_num(record.properties).ok_or(PushError::InnerBatch)?;
            if messages as usize * BATCH_MESSAGE_LEN_MIN > record.body.len() {
                return Err(PushError::InnerBatch);
            }
            Addition::Base { messages }
        } else if let Some(queues) = light_queues
            .filter(|_| sysflag::takes_queue_offset(record.sys_flag) && may_go_to_light_queues(record.topic))
        {
            let names = last_value(record.properties, MULTI_DISPATCH);
            match names.and_then(|names| light_queues_named(queues, names)) {
                Some(queues) => Addition::Offsets(queues),
                None => return Ok(None),
            }
        } else {
            return Ok(None);
        };
        let late = Late { addition, properties_len: record.properties.len(), crc_property };
        let len = late.properties_len + late.growth_max();
        if len > PROPERTIES_LEN_MAX {
            return Err(ferromq_protocol::message::EncodeError::PropertiesTooLong { len }.into());
        }
        Ok(Some(Box::new(late)))
    }

    /// How many queue offsets the record takes.
    pub(crate) fn messages(&self) -> u32 {
        match &self.addition {
            Addition::Base { messages } => *messages,
            Addition::Offsets(_) => 1,
        }
    }

    /// Bytes by which the record may grow.
    pub(crate) fn growth_max(&self) -> usize {
        const MARKS: usize = 3;
        MARKS
            + match &self.addition {
                Addition::Offsets(queues) => MULTI_QUEUE_OFFSET.len() + queues.len() * OFFSET_LEN_MAX,
                Addition::Base { .. } => INNER_BASE.len() + OFFSET_LEN_MAX,
            }
            + if self.crc_property { ferromq_protocol::message::CRC_PROPERTY_LEN } else { 0 }
    }

    /// Writes the record with everything into `out`. Takes the light queues' offsets: only under the log's append lock, and
    /// only when the record will be appended.
    pub(crate) fn complete(&self, record: &[u8], queue_offset: i64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(record);
        let mut properties = LateProperties::of(out, self.properties_len);
        match &self.addition {
            Addition::Offsets(queues) => {
                let offsets: Vec<String> =
                    queues.iter().map(|queue| queue.take_offsets(1).to_string()).collect();
                properties.add(MULTI_QUEUE_OFFSET, &offsets.join(","));
            }
            Addition::Base { .. } => properties.add(INNER_BASE, &queue_offset.to_string()),
        }
        if self.crc_property {
            properties.add_crc();
        }
        properties.finish();
    }

    /// Whether somebody watches one of the light queues.
    pub(crate) fn is_watched(&self) -> bool {
        match &self.addition {
            Addition::Offsets(queues) => queues.iter().any(|queue| queue.is_watched()),
            Addition::Base { .. } => false,
        }
    }
}

/// Messages on their way (delayed, to be tried again) and those of the system go to their own queue only.
pub(crate) fn may_go_to_light_queues(topic: &str) -> bool {
    !topic.starts_with(RETRY_PREFIX) && !topic.starts_with("rmq_sys_") && topic != SCHEDULE_TOPIC
}

/// The light queues of these names, joined by commas. `None` if they name anything else: such a message goes to its own queue
/// only, as a queue that gave an offset must get the message.
fn light_queues_named(queues: &Arc<ConsumeQueues>, names: &[u8]) -> Option<Vec<Arc<ConsumeQueue>>> {
    let names = std::str::from_utf8(names).ok().filter(|names| names.split(',').all(is_light_queue))?;
    Some(names.split(',').map(|name| queues.get_or_create(name, 0)).collect())
}

/// Whether this is the name of a light queue. Each becomes that of a directory.
pub fn is_light_queue(name: &str) -> bool {
    name.starts_with(LMQ_PREFIX) && !name.contains(['/', '\0']) && name.len() <= 255
}

/// How many messages the properties of a batch in one record say that it holds.
pub(crate) fn inner_num(properties: &[u8]) -> Option<u32> {
    let number = std::str::from_utf8(last_value(properties, INNER_NUM)?).ok()?;
    number.parse().ok().filter(|number| (1..=INNER_NUM_MAX).contains(number))
}

fn last_value<'a>(encoded: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let pairs = properties::iter_bytes(encoded);
    pairs.filter(|(name, _)| *name == wanted.as_bytes()).last().map(|(_, value)| value)
}
