//! Receipts of popped messages, and the lists in an answer that they are made of (`docs/spec/07-client.md` 17.1,
//! `docs/spec/04-pop-timer.md` 3).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ferromq_protocol::names::RETRY_PREFIX;
use thiserror::Error;

/// Which of a group's topics a message was popped from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The topic that was asked for.
    Topic,
    /// The retry topic `%RETRY%group_topic`.
    RetryV1,
    /// The retry topic `%RETRY%group+topic`.
    RetryV2,
}

impl Origin {
    pub(crate) fn of_topic(topic: &str) -> Self {
        match topic.strip_prefix(RETRY_PREFIX) {
            None => Self::Topic,
            Some(rest) if rest.contains('+') => Self::RetryV2,
            Some(_) => Self::RetryV1,
        }
    }

    /// The topic that brokers know the message under.
    pub(crate) fn real_topic(self, topic: &str, group: &str) -> String {
        match self {
            Self::Topic => topic.to_owned(),
            Self::RetryV1 => format!("{RETRY_PREFIX}{group}_{topic}"),
            Self::RetryV2 => format!("{RETRY_PREFIX}{group}+{topic}"),
        }
    }

    /// The topic that a group's retry topic for POP belongs to; `None` if this is no such topic.
    pub(crate) fn normal_topic<'t>(retries: &'t str, group: &str) -> Option<&'t str> {
        let topic = retries.strip_prefix(RETRY_PREFIX)?.strip_prefix(group)?;
        topic.strip_prefix(['_', '+'])
    }

    pub(crate) fn on_wire(self) -> &'static str {
        match self {
            Self::Topic => "0",
            Self::RetryV1 => "1",
            Self::RetryV2 => "2",
        }
    }
}

impl FromStr for Origin {
    type Err = MalformedHandle;

    fn from_str(text: &str) -> Result<Self, MalformedHandle> {
        match text {
            "0" => Ok(Self::Topic),
            "1" => Ok(Self::RetryV1),
            "2" => Ok(Self::RetryV2),
            _ => Err(MalformedHandle(format!("`{text}` is neither 0, 1 nor 2"))),
        }
    }
}

/// By which a popped message is acknowledged: the message property `POP_CK`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReceiptHandle {
    /// Where the pop began to read.
    pub(crate) start_offset: i64,
    /// When the pop was, on the broker's clock, ms.
    pub(crate) pop_time: i64,
    pub(crate) invisible_time: i64,
    pub(crate) revive_queue: i32,
    pub(crate) origin: Origin,
    pub(crate) broker: String,
    pub(crate) queue_id: i32,
    pub(crate) queue_offset: i64,
}

/// A receipt, or a list of an answer, that says nothing useful.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub(crate) struct MalformedHandle(pub(crate) String);

impl FromStr for ReceiptHandle {
    type Err = MalformedHandle;

    fn from_str(text: &str) -> Result<Self, MalformedHandle> {
        let parts: Vec<&str> = text.split(' ').collect();
        // Proxies append one more.
        let [start, pop_time, invisible, revive, origin, broker, queue, offset, ..] = parts[..] else {
            return Err(MalformedHandle(format!("`{text}` has {} parts, and 8 are needed", parts.len())));
        };
        Ok(Self {
            start_offset: number(start)?,
            pop_time: number(pop_time)?,
            invisible_time: number(invisible)?,
            revive_queue: number(revive)?,
            origin: origin.parse()?,
            broker: broker.to_owned(),
            queue_id: number(queue)?,
            queue_offset: number(offset)?,
        })
    }
}

impl fmt::Display for ReceiptHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            start_offset, pop_time, invisible_time, revive_queue, broker, queue_id, queue_offset, ..
        } = self;
        let origin = self.origin.on_wire();
        write!(
            formatter,
            "{start_offset} {pop_time} {invisible_time} {revive_queue} {origin} {broker} {queue_id} {queue_offset}"
        )
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, MalformedHandle> {
    text.parse().map_err(|_| MalformedHandle(format!("`{text}` is not a number")))
}

/// A queue that one answer brought messages from.
pub(crate) type Source = (Origin, i32);

/// What the header of an answer says about the messages in its body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OffsetLists {
    /// `startOffsetInfo`: where the pop began to read.
    starts: BTreeMap<Source, i64>,
    /// `msgOffsetInfo`: offsets of the messages, in the order in which they stand in the body.
    offsets: BTreeMap<Source, Vec<i64>>,
    /// `orderCountInfo`: how often a message was delivered before, by offset, and the least of that of its queue.
    counts: BTreeMap<(Source, Option<i64>), i32>,
}

impl OffsetLists {
    pub(crate) fn parse(starts: &str, offsets: &str, counts: &str) -> Result<Self, MalformedHandle> {
        let mut lists = Self::default();
        for [origin, queue, start] in items(starts)? {
            lists.starts.insert((origin.parse()?, number(queue)?), number(start)?);
        }
        for [origin, queue, list] in items(offsets)? {
            let list: Result<_, _> = list.split(',').map(number).collect();
            lists.offsets.insert((origin.parse()?, number(queue)?), list?);
        }
        for [origin, place, count] in items(counts)? {
            let (queue, offset) = match place.strip_prefix("qo").and_then(|place| place.split_once('%')) {
                Some((queue, offset)) => (queue, Some(number(offset)?)),
                None => (place, None),
            };
            lists.counts.insert(((origin.parse()?, number(queue)?), offset), number(count)?);
        }
        Ok(lists)
    }

    /// Where the pop began to read a queue; `None` if the broker is too old to say.
    pub(crate) fn start(&self, source: Source) -> Option<i64> {
        self.starts.get(&source).copied()
    }

    /// Offset of the message that is at this position among those from the same queue.
    pub(crate) fn offset(&self, source: Source, position: usize) -> Option<i64> {
        self.offsets.get(&source)?.get(position).copied()
    }

    /// How often a message was delivered before; `None` if it was not asked for in order.
    pub(crate) fn count(&self, source: Source, offset: i64) -> Option<i32> {
        self.counts.get(&(source, Some(offset))).or_else(|| self.counts.get(&(source, None))).copied()
    }
}

/// The items of a list, each of three parts.
fn items(list: &str) -> Result<Vec<[&str; 3]>, MalformedHandle> {
    let parts = |item: &str| MalformedHandle(format!("`{item}` does not have three parts"));
    let items = list.split(';').filter(|item| !item.is_empty());
    items
        .map(|item| {
            let mut split = item.split(' ');
            match (split.next(), split.next(), split.next(), split.next()) {
                (Some(origin), Some(place), Some(value), None) => Ok([origin, place, value]),
                _ => Err(parts(item)),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(topic: &str, queue_id: i32) -> ReceiptHandle {
        ReceiptHandle {
            start_offset: 100,
            pop_time: 1_700_000_000_000,
            invisible_time: 60_000,
            revive_queue: 3,
            origin: Origin::of_topic(topic),
            broker: "broker-a".to_owned(),
            queue_id,
            queue_offset: 105,
        }
    }

    #[test]
    fn retry_topics_name_the_topic_that_they_belong_to() {
        for origin in [Origin::RetryV1, Origin::RetryV2] {
            let retries = origin.real_topic("T_1", "g_1");
            assert_eq!(
                (Origin::of_topic(&retries), Origin::normal_topic(&retries, "g_1")),
                (origin, Some("T_1"))
            );
        }
        assert_eq!(Origin::normal_topic("%RETRY%g_1", "g_1"), None);
        assert_eq!(Origin::normal_topic("T_1", "g_1"), None);
    }

    #[test]
    fn handles_of_the_spec_25_12() {
        for (topic, queue, text) in [
            ("TopicTest", 2, "100 1700000000000 60000 3 0 broker-a 2 105"),
            ("%RETRY%g_TopicTest", 0, "100 1700000000000 60000 3 1 broker-a 0 105"),
            ("%RETRY%g+TopicTest", 0, "100 1700000000000 60000 3 2 broker-a 0 105"),
        ] {
            let handle = handle(topic, queue);
            assert_eq!(handle.to_string(), text);
            assert_eq!(text.parse(), Ok(handle.clone()));
            assert_eq!(format!("{text} 4096").parse(), Ok(handle.clone()), "a proxy's");
            assert_eq!(handle.origin.real_topic("TopicTest", "g"), topic);
        }
        for bad in ["", "1 2 3", "x 1 1 1 0 b 1 1", "1 1 1 1 3 b 1 1"] {
            assert!(bad.parse::<ReceiptHandle>().is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_of_the_spec_25_12() {
        let lists =
            OffsetLists::parse("0 2 100;1 0 5", "0 2 100,101,103;1 0 5", "0 2 1;0 qo2%101 2").unwrap();
        let (plain, retried) = ((Origin::Topic, 2), (Origin::RetryV1, 0));
        assert_eq!((lists.start(plain), lists.start(retried)), (Some(100), Some(5)));
        assert_eq!((lists.offset(plain, 2), lists.offset(plain, 3)), (Some(103), None));
        assert_eq!((lists.count(plain, 101), lists.count(plain, 100)), (Some(2), Some(1)));
        assert_eq!(lists.count(retried, 5), None);
        assert_eq!(OffsetLists::parse("", "", "").unwrap(), OffsetLists::default());
        for bad in ["0 2", "0 2 1 1", "0 x 1", "7 2 1"] {
            assert!(OffsetLists::parse(bad, "", "").is_err(), "{bad}");
        }
    }
}
