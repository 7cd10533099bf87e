//! The records of a trace as text (`docs/spec/07-client.md` 11, 25.13).

use std::fmt::Write;

/// Stands between the fields of a record.
const FIELD_END: char = '\u{1}';
/// Stands behind each record.
const RECORD_END: char = '\u{2}';
/// Stands for a text that is missing. A tag of this name can't be told from no tag.
const NOTHING: &str = "null";

/// What kind of message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// None of the others.
    Normal,
    /// Bound to a transaction.
    TransactionHalf,
    /// The end of a transaction.
    TransactionCommit,
    /// To be delivered later.
    Delay,
    /// Sent in order.
    Order,
}

impl MessageType {
    const ALL: [Self; 5] =
        [Self::Normal, Self::TransactionHalf, Self::TransactionCommit, Self::Delay, Self::Order];
}

/// How a listener came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsumeReturn {
    /// It has consumed the message.
    Success,
    /// It took longer than allowed.
    TimeOut,
    /// It threw an exception, or panicked.
    Exception,
    /// It returned nothing (Java).
    ReturnedNull,
    /// It has not consumed the message, which comes again.
    Failed,
}

impl ConsumeReturn {
    const ALL: [Self; 5] = [Self::Success, Self::TimeOut, Self::Exception, Self::ReturnedNull, Self::Failed];
}

/// One thing that happened to one message, as the client says that did it. Times are ms since the epoch, of its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceRecord {
    /// A broker took it from a producer.
    Pub {
        /// When it was sent.
        timestamp: i64,
        /// Region of the broker.
        region_id: String,
        /// The producer's group.
        group: String,
        /// The topic.
        topic: String,
        /// The id that the producer gave it.
        msg_id: String,
        /// The tag.
        tags: Option<String>,
        /// The keys, separated by spaces.
        keys: Option<String>,
        /// Address of the broker.
        store_host: String,
        /// Length of the body as it was sent, bytes.
        body_length: usize,
        /// How long the broker took, ms.
        cost_ms: i64,
        /// What kind of message it is.
        message_type: MessageType,
        /// Where it is stored; older clients do not say it.
        offset_msg_id: Option<String>,
        /// Whether it is as safe as the broker was set up to make it.
        success: bool,
        /// Address of the producer; only some clients say it.
        client_host: Option<String>,
    },
    /// A listener got it.
    SubBefore {
        /// When.
        timestamp: i64,
        /// Region of the broker.
        region_id: String,
        /// The consumer's group.
        group: String,
        /// By which the record of the listener's return is found.
        request_id: String,
        /// The message's id.
        msg_id: String,
        /// How often it was consumed before, without success.
        retry_times: i32,
        /// The keys, separated by spaces.
        keys: Option<String>,
    },
    /// The listener came back.
    SubAfter {
        /// By which the record of the listener's call is found.
        request_id: String,
        /// The message's id.
        msg_id: String,
        /// How long the listener took, ms, divided among the messages that it got at one time.
        cost_ms: i64,
        /// Whether the message is consumed.
        success: bool,
        /// The keys, separated by spaces.
        keys: Option<String>,
        /// How it came back; older clients do not say it.
        returned: Option<ConsumeReturn>,
        /// When; not every client says it.
        timestamp: Option<i64>,
        /// The consumer's group; not every client says it.
        group: Option<String>,
    },
    /// A producer told a broker what became of the transaction that the message belongs to.
    EndTransaction {
        /// When.
        timestamp: i64,
        /// Region of the broker.
        region_id: String,
        /// The producer's group.
        group: String,
        /// The topic.
        topic: String,
        /// The message's id.
        msg_id: String,
        /// The tag.
        tags: Option<String>,
        /// The keys, separated by spaces.
        keys: Option<String>,
        /// Address of the broker.
        store_host: String,
        /// What kind of message the record is about.
        message_type: MessageType,
        /// The transaction's id.
        transaction_id: String,
        /// `COMMIT_MESSAGE`, `ROLLBACK_MESSAGE` or `UNKNOW`.
        state: String,
        /// Whether the broker had asked for it.
        from_check: bool,
    },
    /// A producer has taken it back before it was delivered.
    Recall {
        /// When.
        timestamp: i64,
        /// Region of the broker.
        region_id: String,
        /// The producer's group.
        group: String,
        /// The topic.
        topic: String,
        /// The message's id.
        msg_id: String,
        /// Whether the broker did it.
        success: bool,
    },
}

impl TraceRecord {
    /// Id of the message that it is about.
    pub fn msg_id(&self) -> &str {
        match self {
            Self::Pub { msg_id, .. }
            | Self::SubBefore { msg_id, .. }
            | Self::SubAfter { msg_id, .. }
            | Self::EndTransaction { msg_id, .. }
            | Self::Recall { msg_id, .. } => msg_id,
        }
    }

    /// Keys of that message.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = match self {
            Self::Pub { keys, .. }
            | Self::SubBefore { keys, .. }
            | Self::SubAfter { keys, .. }
            | Self::EndTransaction { keys, .. } => keys.as_deref(),
            Self::Recall { .. } => None,
        };
        keys.unwrap_or_default().split_ascii_whitespace()
    }

    /// Adds the record to a text.
    pub(super) fn encode_into(&self, text: &mut String) {
        let mut fields = Fields { text, is_first: true };
        match self {
            Self::Pub {
                timestamp,
                region_id,
                group,
                topic,
                msg_id,
                tags,
                keys,
                store_host,
                body_length,
                cost_ms,
                message_type,
                offset_msg_id,
                success,
                client_host,
            } => {
                fields.add("Pub").add(timestamp).add(region_id).add(group).add(topic).add(msg_id);
                fields.add(or_nothing(tags)).add(or_nothing(keys)).add(store_host);
                fields.add(body_length).add(cost_ms).add(*message_type as i32);
                fields.add_some(offset_msg_id).add(success).add_some(client_host);
            }
            Self::SubBefore { timestamp, region_id, group, request_id, msg_id, retry_times, keys } => {
                fields.add("SubBefore").add(timestamp).add(region_id).add(group).add(request_id).add(msg_id);
                fields.add(retry_times).add(or_nothing(keys));
            }
            Self::SubAfter { request_id, msg_id, cost_ms, success, keys, returned, timestamp, group } => {
                fields.add("SubAfter").add(request_id).add(msg_id).add(cost_ms).add(success);
                fields.add(or_nothing(keys)).add_some(&returned.map(|returned| returned as i32));
                fields.add_some(timestamp).add_some(group);
            }
            Self::EndTransaction {
                timestamp,
                region_id,
                group,
                topic,
                msg_id,
                tags,
                keys,
                store_host,
                message_type,
                transaction_id,
                state,
                from_check,
            } => {
                fields.add("EndTransaction").add(timestamp).add(region_id).add(group).add(topic).add(msg_id);
                fields.add(or_nothing(tags)).add(or_nothing(keys)).add(store_host);
                fields.add(*message_type as i32).add(transaction_id).add(state).add(from_check);
            }
            Self::Recall { timestamp, region_id, group, topic, msg_id, success } => {
                fields.add("Recall").add(timestamp).add(region_id).add(group).add(topic).add(msg_id);
                fields.add(success);
            }
        }
        text.push(RECORD_END);
    }

    /// Reads one record, without what stands behind it. `None`: of a kind that is not known, or not whole.
    fn decode(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split(FIELD_END).collect();
        let text = |position: usize| fields.get(position).map(|field| (*field).to_owned());
        let text_or_nothing = |position: usize| {
            let field = *fields.get(position)?;
            Some((field != NOTHING).then(|| field.to_owned()))
        };
        let truth = |position: usize| fields.get(position).map(|field| field.eq_ignore_ascii_case("true"));
        Some(match *fields.first()? {
            "Pub" => {
                let has_offset_id = fields.len() > 13;
                Self::Pub {
                    timestamp: number(&fields, 1)?,
                    region_id: text(2)?,
                    group: text(3)?,
                    topic: text(4)?,
                    msg_id: text(5)?,
                    tags: text_or_nothing(6)?,
                    keys: text_or_nothing(7)?,
                    store_host: text(8)?,
                    body_length: number(&fields, 9)?,
                    cost_ms: number(&fields, 10)?,
                    message_type: one_of(&MessageType::ALL, &fields, 11)?,
                    offset_msg_id: text(12).filter(|_| has_offset_id),
                    success: truth(if has_offset_id { 13 } else { 12 })?,
                    client_host: text(14),
                }
            }
            "SubBefore" => Self::SubBefore {
                timestamp: number(&fields, 1)?,
                region_id: text(2)?,
                group: text(3)?,
                request_id: text(4)?,
                msg_id: text(5)?,
                retry_times: number(&fields, 6)?,
                keys: text_or_nothing(7)?,
            },
            "SubAfter" => Self::SubAfter {
                request_id: text(1)?,
                msg_id: text(2)?,
                cost_ms: number(&fields, 3)?,
                success: truth(4)?,
                keys: text_or_nothing(5)?,
                returned: one_of(&ConsumeReturn::ALL, &fields, 6),
                timestamp: number(&fields, 7),
                group: text(8),
            },
            "EndTransaction" => Self::EndTransaction {
                timestamp: number(&fields, 1)?,
                region_id: text(2)?,
                group: text(3)?,
                topic: text(4)?,
                msg_id: text(5)?,
                tags: text_or_nothing(6)?,
                keys: text_or_nothing(7)?,
                store_host: text(8)?,
                message_type: one_of(&MessageType::ALL, &fields, 9)?,
                transaction_id: text(10)?,
                state: text(11)?,
                from_check: truth(12)?,
            },
            "Recall" => Self::Recall {
                timestamp: number(&fields, 1)?,
                region_id: text(2)?,
                group: text(3)?,
                topic: text(4)?,
                msg_id: text(5)?,
                success: truth(6)?,
            },
            _ => return None,
        })
    }
}

/// The records in the body of a trace message. What can't be read is left out.
pub(crate) fn decode(text: &str) -> impl Iterator<Item = TraceRecord> + '_ {
    text.split(RECORD_END).filter_map(TraceRecord::decode)
}

/// Adds fields to a text.
struct Fields<'a> {
    text: &'a mut String,
    is_first: bool,
}

impl Fields<'_> {
    fn add(&mut self, field: impl std::fmt::Display) -> &mut Self {
        if !std::mem::take(&mut self.is_first) {
            self.text.push(FIELD_END);
        }
        // Writing to a string can't fail.
        let _ = write!(self.text, "{field}");
        self
    }

    fn add_some(&mut self, field: &Option<impl std::fmt::Display>) -> &mut Self {
        if let Some(field) = field {
            self.add(field);
        }
        self
    }
}

fn or_nothing(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or(NOTHING)
}

fn number<T: std::str::FromStr>(fields: &[&str], position: usize) -> Option<T> {
    fields.get(position)?.parse().ok()
}

fn one_of<T: Copy>(all: &[T], fields: &[&str], position: usize) -> Option<T> {
    all.get(number::<usize>(fields, position)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0A0000011F4018B4AAC2000003E80007";

    /// The text with the spec's abbreviations: `|` between fields, `M` and `O` for ids.
    fn expand(text: &str) -> String {
        let field = |field| match field {
            "M" => ID.to_owned(),
            "O" => "0A00000100002A9F000000000001E240".to_owned(),
            other => other.to_owned(),
        };
        let fields: Vec<String> = text.split('|').map(field).collect();
        fields.join("\u{1}") + "\u{2}"
    }

    fn is_encoded_as(record: &TraceRecord, text: &str) {
        let (mut encoded, expected) = (String::new(), expand(text));
        record.encode_into(&mut encoded);
        assert_eq!(encoded, expected);
        assert_eq!(&decode(&expected).collect::<Vec<_>>(), std::slice::from_ref(record));
    }

    fn published(tags: Option<&str>, keys: Option<&str>) -> TraceRecord {
        TraceRecord::Pub {
            timestamp: 1_700_000_000_000,
            region_id: "DefaultRegion".into(),
            group: "pg".into(),
            topic: "TopicTest".into(),
            msg_id: ID.into(),
            tags: tags.map(str::to_owned),
            keys: keys.map(str::to_owned),
            store_host: "10.0.0.1:10911".into(),
            body_length: 5,
            cost_ms: 3,
            message_type: if tags.is_some() { MessageType::Normal } else { MessageType::Delay },
            offset_msg_id: Some("0A00000100002A9F000000000001E240".into()),
            success: tags.is_some(),
            client_host: None,
        }
    }

    fn sub_after() -> TraceRecord {
        TraceRecord::SubAfter {
            request_id: "REQ1".into(),
            msg_id: ID.into(),
            cost_ms: 3,
            success: false,
            keys: Some("k1 k2".into()),
            returned: Some(ConsumeReturn::Failed),
            timestamp: Some(1_700_000_000_000),
            group: Some("pg".into()),
        }
    }

    #[test]
    fn the_records_of_the_spec_25_13() {
        is_encoded_as(
            &published(Some("TagA"), Some("k1 k2")),
            "Pub|1700000000000|DefaultRegion|pg|TopicTest|M|TagA|k1 k2|10.0.0.1:10911|5|3|0|O|true",
        );
        is_encoded_as(
            &published(None, None),
            "Pub|1700000000000|DefaultRegion|pg|TopicTest|M|null|null|10.0.0.1:10911|5|3|3|O|false",
        );
        let before = TraceRecord::SubBefore {
            timestamp: 1_700_000_000_000,
            region_id: "DefaultRegion".into(),
            group: "pg".into(),
            request_id: "REQ1".into(),
            msg_id: ID.into(),
            retry_times: 1,
            keys: Some("k1 k2".into()),
        };
        is_encoded_as(&before, "SubBefore|1700000000000|DefaultRegion|pg|REQ1|M|1|k1 k2");
        is_encoded_as(&sub_after(), "SubAfter|REQ1|M|3|false|k1 k2|4|1700000000000|pg");
        let ended = TraceRecord::EndTransaction {
            timestamp: 1_700_000_000_000,
            region_id: "DefaultRegion".into(),
            group: "pg".into(),
            topic: "TopicTest".into(),
            msg_id: ID.into(),
            tags: Some("TagA".into()),
            keys: Some("k1 k2".into()),
            store_host: "10.0.0.1:10911".into(),
            message_type: MessageType::TransactionCommit,
            transaction_id: ID.into(),
            state: "COMMIT_MESSAGE".into(),
            from_check: true,
        };
        is_encoded_as(
            &ended,
            "EndTransaction|1700000000000|DefaultRegion|pg|TopicTest|M|TagA|k1 k2|10.0.0.1:10911|2|M|COMMIT_MESSAGE|true",
        );
        let recalled = TraceRecord::Recall {
            timestamp: 1_700_000_000_000,
            region_id: "DefaultRegion".into(),
            group: "pg".into(),
            topic: "TopicTest".into(),
            msg_id: ID.into(),
            success: false,
        };
        is_encoded_as(&recalled, "Recall|1700000000000|DefaultRegion|pg|TopicTest|M|false");
    }

    #[test]
    fn what_other_clients_write_is_read_too() {
        let read = |text: &str| decode(&expand(text)).next().unwrap();
        let TraceRecord::SubAfter { returned, timestamp, group, .. } =
            read("SubAfter|REQ1|M|3|false|k1 k2|4|")
        else {
            panic!("another kind")
        };
        assert_eq!(
            (returned, timestamp, group),
            (Some(ConsumeReturn::Failed), None, None),
            "access channel CLOUD"
        );
        let TraceRecord::SubAfter { returned, success, .. } = read("SubAfter|REQ1|M|3|true|null") else {
            panic!("another kind")
        };
        assert_eq!((returned, success), (None, true), "an old client");
        let TraceRecord::Pub { offset_msg_id, success, .. } =
            read("Pub|1700000000000|DefaultRegion|pg|TopicTest|M|null|null|10.0.0.1:10911|5|3|0|true")
        else {
            panic!("another kind")
        };
        assert_eq!((offset_msg_id, success), (None, true), "an old client");
        let TraceRecord::Pub { client_host, .. } = read(
            "Pub|1700000000000|DefaultRegion|pg|TopicTest|M|null|null|10.0.0.1:10911|5|3|0|O|true|10.0.0.9",
        ) else {
            panic!("another kind")
        };
        assert_eq!(client_host.as_deref(), Some("10.0.0.9"));
    }

    #[test]
    fn what_can_t_be_read_is_left_out() {
        let mut text = expand("Pub|yesterday|DefaultRegion") + "\u{2}" + &expand("Later|1|2");
        sub_after().encode_into(&mut text);
        text += "Pub";
        assert_eq!(decode(&text).collect::<Vec<_>>(), [sub_after()]);
    }

    #[test]
    fn a_record_has_the_keys_of_its_message() {
        assert_eq!(published(None, Some("k1 k2")).keys().collect::<Vec<_>>(), ["k1", "k2"]);
        assert_eq!(published(None, None).keys().count(), 0);
        assert_eq!(sub_after().msg_id(), ID);
    }
}
