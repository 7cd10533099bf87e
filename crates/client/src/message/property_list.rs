//! The properties of a message.

use std::borrow::Cow;
use std::fmt;

use ferromq_protocol::message::properties;

/// What may be added to a list that came from a broker without moving it.
const SPARE_BYTES: usize = 64;

/// Room in a new list: the system's own properties of a message that is sent are shorter.
const LIST_BYTES: usize = 128;

/// Names and values, in one piece as they are on the wire: most messages are consumed without anybody looking at most of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties {
    encoded: Vec<u8>,
}

impl Properties {
    /// A list as it came.
    pub(crate) fn decode(encoded: &[u8]) -> Self {
        Self::decode_with(encoded, &Self::default())
    }

    /// A list as it came, and others behind it, which count if they have the same names.
    pub(crate) fn decode_with(encoded: &[u8], added: &Self) -> Self {
        const END: u8 = 2;
        let mut list = Vec::with_capacity(encoded.len() + SPARE_BYTES.max(1 + added.encoded.len()));
        list.extend_from_slice(encoded);
        if !added.encoded.is_empty() && encoded.last().is_some_and(|last| *last != END) {
            list.push(END);
        }
        list.extend_from_slice(&added.encoded);
        Self { encoded: list }
    }

    /// The list as it is sent.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// The same as text. What came and is not text is left out.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match std::str::from_utf8(&self.encoded) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => {
                Cow::Owned(self.iter().map(|(name, value)| format!("{name}\u{1}{value}\u{2}")).collect())
            }
        }
    }

    /// The value of a property.
    pub fn get(&self, name: &str) -> Option<&str> {
        properties::find(&self.encoded, name)
    }

    /// All names and values, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        properties::iter(&self.encoded)
    }

    /// Sets a property. False, and nothing is changed, if name or value can't stand in a list: one of them is empty, the value contains the
    /// character 2, or the name that or the character 1.
    pub fn insert(&mut self, name: &str, value: &str) -> bool {
        if self.get(name).is_none() {
            return self.append(name, value);
        }
        let mut changed = self.without(name);
        let is_set = properties::append(&mut changed, name, value);
        if is_set {
            self.encoded = changed;
        }
        is_set
    }

    /// As [`insert`](Self::insert) for a property that is not there.
    pub(crate) fn append(&mut self, name: &str, value: &str) -> bool {
        if self.encoded.capacity() == 0 {
            self.encoded.reserve(LIST_BYTES);
        }
        properties::append(&mut self.encoded, name, value)
    }

    /// Takes a property out.
    pub fn remove(&mut self, name: &str) {
        if self.get(name).is_some() {
            self.encoded = self.without(name);
        }
    }

    fn without(&self, name: &str) -> Vec<u8> {
        let mut others = Vec::with_capacity(self.encoded.len() + SPARE_BYTES);
        properties::copy_without(&self.encoded, &mut others, |other| other == name);
        others
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_spec_25_4() {
        let mut list = Properties::default();
        assert!(list.insert("KEYS", "k1 k2") && list.insert("TAGS", "tagA") && list.insert("WAIT", "true"));
        assert_eq!(list.encoded(), b"KEYS\x01k1 k2\x02TAGS\x01tagA\x02WAIT\x01true\x02");
    }

    #[test]
    fn a_property_is_set_once() {
        let mut list = Properties::decode(b"a\x011\x02b\x012\x02a\x013");
        assert_eq!(list.get("a"), Some("3"), "the last one counts");
        assert!(list.insert("a", "4") && list.insert("c", "5"));
        assert_eq!(list.iter().collect::<Vec<_>>(), [("b", "2"), ("a", "4"), ("c", "5")]);
        list.remove("b");
        assert_eq!(list, Properties::decode(b"a\x014\x02c\x015\x02"));
        assert_eq!(format!("{list:?}"), r#"{"a": "4", "c": "5"}"#);
    }

    #[test]
    fn what_is_added_stands_behind_what_came() {
        let added = Properties::decode(b"a\x019\x02");
        for came in [&b"a\x011\x02b\x012\x02"[..], b"a\x011\x02b\x012"] {
            let list = Properties::decode_with(came, &added);
            assert_eq!((list.get("a"), list.get("b")), (Some("9"), Some("2")));
        }
        assert_eq!(Properties::decode_with(b"", &added), added);
    }

    #[test]
    fn what_can_t_stand_in_a_list_changes_nothing() {
        let mut list = Properties::decode(b"a\x011\x02");
        for (name, value) in [("a", ""), ("a", "x\u{2}y"), ("", "x"), ("b\u{1}", "x")] {
            assert!(!list.insert(name, value), "{name:?} {value:?}");
        }
        assert_eq!(list, Properties::decode(b"a\x011\x02"));
    }
}
