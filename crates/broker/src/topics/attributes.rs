//! Attributes of topics and groups, and the requests that change them (`docs/spec/03-broker.md` 12.2).
//!
//! A request carries modifications: `+key=value` adds or changes, `-key` deletes. What is stored has plain keys.

use std::collections::{BTreeMap, BTreeSet};

use ferromq_protocol::body::TopicConfig;
use thiserror::Error;

type Attributes = BTreeMap<String, String>;

/// Which rule a modification breaks; the text is the remark that clients get.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts say it")]
pub(crate) enum AttributeError {
    #[error("add/alter attribute format is wrong: {0}")]
    AddFormat(String),
    #[error("delete attribute format is wrong: {0}")]
    DeleteFormat(String),
    #[error("key duplication: {0}")]
    RepeatedPiece(String),
    #[error("kv string format wrong.")]
    Key,
    #[error("alter duplication key. key: {0}")]
    RepeatedKey(String),
    #[error("only add attribute is supported while creating topic. key: {0}")]
    OnlyAdd(String),
    #[error("wrong format key: {0}")]
    NoSign(String),
    #[error("attempt to delete a nonexistent key: {0}")]
    Nonexistent(String),
    #[error("unsupported key: {0}")]
    Unsupported(String),
    #[error("attempt to update an unchangeable attribute. key: {0}")]
    Unchangeable(String),
    #[error("value is not in set: [{0}]")]
    NotInSet(&'static str),
    #[error("Update topic reserveTime not supported")]
    ReserveTime,
}

/// What an attribute may be.
pub(crate) struct Attribute {
    key: &'static str,
    changeable: bool,
    values: Values,
}

enum Values {
    /// One of these; the text lists them in the order in which Java's hash sets do.
    Set(&'static str),
    /// Needs tiered storage, which this broker does not have.
    Unsupported,
}

/// The attributes that topics have.
pub(crate) const OF_TOPICS: &[Attribute] = &[
    Attribute { key: "queue.type", changeable: false, values: Values::Set("SimpleCQ, BatchCQ") },
    Attribute { key: "cleanup.policy", changeable: false, values: Values::Set("DELETE, COMPACTION") },
    Attribute {
        key: "message.type",
        changeable: true,
        values: Values::Set("UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL"),
    },
    Attribute { key: "reserve.time", changeable: true, values: Values::Unsupported },
];

/// The attributes that groups have: none so far.
pub(crate) const OF_GROUPS: &[Attribute] = &[];

impl Values {
    fn check(&self, value: &str) -> Result<(), AttributeError> {
        match self {
            Values::Set(set) if set.split(", ").any(|known| known == value) => Ok(()),
            Values::Set(set) => Err(AttributeError::NotInSet(set)),
            Values::Unsupported => Err(AttributeError::ReserveTime),
        }
    }
}

/// Splits the header field `attributes` into modifications, keys with their signs.
pub(crate) fn parse_modifications(text: &str) -> Result<Attributes, AttributeError> {
    let mut modifications = Attributes::new();
    for piece in text.split(',').filter(|piece| !piece.is_empty()) {
        let (key, value) = match piece.split_once('=') {
            Some((key, value)) if key.contains('+') => (key, value),
            Some((key, _)) => return Err(AttributeError::AddFormat(key.to_owned())),
            None if piece.contains('-') => (piece, ""),
            None => return Err(AttributeError::DeleteFormat(piece.to_owned())),
        };
        if modifications.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(AttributeError::RepeatedPiece(key.to_owned()));
        }
    }
    Ok(modifications)
}

/// What `modifications` make of the attributes of something that exists (`current`) or is being created (`None`).
pub(crate) fn alter_attributes(
    known: &[Attribute],
    current: Option<&Attributes>,
    modifications: &Attributes,
) -> Result<Attributes, AttributeError> {
    let mut altered = current.cloned().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for (signed, value) in modifications {
        let key = signed.get(1..).unwrap_or_default();
        if key.is_empty() || key.contains(['+', '-']) {
            return Err(AttributeError::Key);
        }
        let named = || key.to_owned();
        if !seen.insert(key) {
            return Err(AttributeError::RepeatedKey(named()));
        }
        let adds = signed.starts_with('+');
        match current {
            None if !adds => return Err(AttributeError::OnlyAdd(named())),
            Some(_) if !adds && !signed.starts_with('-') => return Err(AttributeError::NoSign(named())),
            Some(current) if !adds && !current.contains_key(key) => {
                return Err(AttributeError::Nonexistent(named()));
            }
            _ => {}
        }
        let attribute = known.iter().find(|attribute| attribute.key == key);
        let attribute = attribute.ok_or_else(|| AttributeError::Unsupported(named()))?;
        if current.is_some() && !attribute.changeable {
            return Err(AttributeError::Unchangeable(named()));
        }
        if adds {
            attribute.values.check(value)?;
            altered.insert(named(), value.clone());
        } else {
            altered.remove(key);
        }
    }
    Ok(altered)
}

/// Whether a batch sent to the topic is stored as one record.
pub(crate) fn is_batch(topic: &TopicConfig) -> bool {
    topic.attributes.get("queue.type").is_some_and(|kind| kind == "BatchCQ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<const N: usize>(pairs: [(&str, &str); N]) -> Attributes {
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn parse_error(text: &str) -> String {
        parse_modifications(text).unwrap_err().to_string()
    }

    fn alter_error<const N: usize>(current: Option<&Attributes>, pairs: [(&str, &str); N]) -> String {
        alter_attributes(OF_TOPICS, current, &map(pairs)).unwrap_err().to_string()
    }

    #[test]
    fn header_text_of_20_5() {
        let parsed = parse_modifications("+message.type=DELAY,-reserve.time").unwrap();
        assert_eq!(parsed, map([("+message.type", "DELAY"), ("-reserve.time", "")]));
        assert_eq!(parse_modifications("").unwrap(), map([]));
    }

    #[test]
    fn a_broken_text_is_told_by_its_piece() {
        assert_eq!(parse_error("message.type=FIFO"), "add/alter attribute format is wrong: message.type");
        assert_eq!(parse_error("message.type"), "delete attribute format is wrong: message.type");
        assert_eq!(parse_error("+a=1,+a=2"), "key duplication: +a");
    }

    #[test]
    fn creation_only_adds() {
        let added =
            alter_attributes(OF_TOPICS, None, &map([("+message.type", "FIFO"), ("+queue.type", "BatchCQ")]));
        assert_eq!(added, Ok(map([("message.type", "FIFO"), ("queue.type", "BatchCQ")])));
        let error = alter_error(None, [("-message.type", "")]);
        assert_eq!(error, "only add attribute is supported while creating topic. key: message.type");
    }

    #[test]
    fn changes_of_what_exists() {
        let before = map([("message.type", "FIFO"), ("queue.type", "BatchCQ")]);
        let current = Some(&before);
        let changed = alter_attributes(OF_TOPICS, current, &map([("+message.type", "DELAY")]));
        assert_eq!(changed, Ok(map([("message.type", "DELAY"), ("queue.type", "BatchCQ")])));
        let deleted = alter_attributes(OF_TOPICS, current, &map([("-message.type", "")]));
        assert_eq!(deleted, Ok(map([("queue.type", "BatchCQ")])));
        assert_eq!(alter_attributes(OF_TOPICS, current, &map([])).as_ref(), Ok(&before));

        let unchangeable = "attempt to update an unchangeable attribute. key: queue.type";
        assert_eq!(alter_error(current, [("+queue.type", "SimpleCQ")]), unchangeable);
        assert_eq!(alter_error(Some(&map([])), [("+queue.type", "SimpleCQ")]), unchangeable);
        assert_eq!(alter_error(current, [("-queue.type", "")]), unchangeable);
        let nonexistent = alter_error(current, [("-cleanup.policy", "")]);
        assert_eq!(nonexistent, "attempt to delete a nonexistent key: cleanup.policy");
        assert_eq!(alter_error(current, [("message.type", "FIFO")]), "wrong format key: essage.type");
    }

    #[test]
    fn keys_and_values_are_checked() {
        assert_eq!(alter_error(None, [("+", "x")]), "kv string format wrong.");
        assert_eq!(alter_error(None, [("+a-b", "x")]), "kv string format wrong.");
        assert_eq!(alter_error(None, [("+foo", "bar")]), "unsupported key: foo");
        assert_eq!(
            alter_error(None, [("+message.type", "NOPE")]),
            "value is not in set: [UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]"
        );
        assert_eq!(alter_error(None, [("+reserve.time", "1")]), "Update topic reserveTime not supported");
        let repeated = alter_error(
            Some(&map([("message.type", "FIFO")])),
            [("+message.type", "FIFO"), ("-message.type", "")],
        );
        assert_eq!(repeated, "alter duplication key. key: message.type");
        let of_group = alter_attributes(OF_GROUPS, None, &map([("+k", "v")])).unwrap_err();
        assert_eq!(of_group.to_string(), "unsupported key: k");
    }
}
