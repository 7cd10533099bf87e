//! Topics of this broker (`docs/spec/03-broker.md` 2.5, 12).
//!
//! [`TopicTable`] is the table with its file; `system` knows the topics that every broker has, `attributes` the rules for
//! a topic's attributes, `requests` what administrators ask.

mod attributes;
mod requests;
mod system;
mod table;

use std::fmt;

use ferromq_protocol::body::{TopicConfig, TopicFilterType};

pub(crate) use attributes::{AttributeError, OF_GROUPS, alter_attributes, is_batch};
pub(crate) use requests::route;
pub use table::batch_topics;
pub(crate) use table::{NotCreated, TopicChange, TopicTable};

/// Permission bit of a topic or broker: topics made from this one take its settings.
pub(crate) const PERM_INHERIT: i32 = 1;
/// Permission bit: it may be written to.
pub(crate) const PERM_WRITE: i32 = 2;
/// Permission bit: it may be read from.
pub(crate) const PERM_READ: i32 = 4;

/// A topic as remarks show it (20.5).
pub(crate) struct TopicText<'t>(pub(crate) &'t TopicConfig);

impl fmt::Display for TopicText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = self.0;
        let has = |bit, letter| if topic.perm & bit != 0 { letter } else { '-' };
        let filter_type = match topic.topic_filter_type {
            TopicFilterType::SingleTag => "SINGLE_TAG",
            TopicFilterType::MultiTag => "MULTI_TAG",
        };
        write!(
            out,
            "TopicConfig [topicName={}, readQueueNums={}, writeQueueNums={}, perm={}{}{}, topicFilterType={}, \
             topicSysFlag={}, order={}, attributes={{",
            topic.topic_name,
            topic.read_queue_nums,
            topic.write_queue_nums,
            has(PERM_READ, 'R'),
            has(PERM_WRITE, 'W'),
            has(PERM_INHERIT, 'X'),
            filter_type,
            topic.topic_sys_flag,
            topic.order
        )?;
        for (number, (key, value)) in topic.attributes.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(out, "{separator}{key}={value}")?;
        }
        out.write_str("}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_20_5() {
        let mut topic = TopicConfig::new("TopicA", 4);
        topic.attributes.insert("message.type".into(), "DELAY".into());
        assert_eq!(
            TopicText(&topic).to_string(),
            "TopicConfig [topicName=TopicA, readQueueNums=4, writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={message.type=DELAY}]"
        );
    }
}
