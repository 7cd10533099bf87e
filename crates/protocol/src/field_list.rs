//! The header fields of a command that owns its parts.

use std::borrow::Cow;
use std::fmt;

use crate::header::{FieldOut, Fields, HeaderError};

/// Room for the fields of a common request or answer.
const TEXT_BYTES: usize = 256;
const FIELDS: usize = 16;

/// What can be the value of a header field: text, a number, `true` or `false`.
pub trait FieldText {
    /// Appends the value as it is on the wire.
    fn append_to(&self, text: &mut String);
}

impl FieldText for str {
    fn append_to(&self, text: &mut String) {
        text.push_str(self);
    }
}

impl FieldText for String {
    fn append_to(&self, text: &mut String) {
        text.push_str(self);
    }
}

impl FieldText for Cow<'_, str> {
    fn append_to(&self, text: &mut String) {
        text.push_str(self);
    }
}

impl FieldText for bool {
    fn append_to(&self, text: &mut String) {
        text.push_str(if *self { "true" } else { "false" });
    }
}

impl FieldText for FieldOut<'_> {
    fn append_to(&self, text: &mut String) {
        match self {
            Self::Text(value) => value.append_to(text),
            Self::Number(value) => value.append_to(text),
            Self::Boolean(value) => value.append_to(text),
        }
    }
}

impl<T: FieldText + ?Sized> FieldText for &T {
    fn append_to(&self, text: &mut String) {
        (**self).append_to(text);
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl FieldText for $number {
            fn append_to(&self, text: &mut String) {
                text.push_str(itoa::Buffer::new().format(*self));
            }
        }
    )*};
}

numbers!(u8, i16, u16, i32, u32, i64, u64, usize, u128);

/// Names and values in the order in which they were added, in one piece of text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldList {
    /// All names and values, one behind the other.
    text: String,
    /// Bytes of each field's name and value.
    lengths: Vec<(usize, usize)>,
}

impl FieldList {
    /// An owned copy of what a peer sent.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, HeaderError> {
        let mut list = Self::default();
        for (name, value) in fields.iter() {
            match std::str::from_utf8(name) {
                Ok(name) => list.push(name, value.text()?),
                Err(_) => list.push(&String::from_utf8_lossy(name), value.text()?),
            }
        }
        Ok(list)
    }

    /// Adds a field behind the others.
    pub fn push(&mut self, name: &str, value: impl FieldText) {
        if self.lengths.is_empty() {
            self.text.reserve(TEXT_BYTES);
            self.lengths.reserve(FIELDS);
        }
        self.text.push_str(name);
        let value_start = self.text.len();
        value.append_to(&mut self.text);
        self.lengths.push((name.len(), self.text.len() - value_start));
    }

    /// The value of a field; the last one counts when a name was added twice.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().filter(|(key, _)| *key == name).last().map(|(_, value)| value)
    }

    /// All names and values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.text.as_str();
        self.lengths.iter().map(move |(name_length, value_length)| {
            let (name, behind) = rest.split_at(*name_length);
            let (value, behind) = behind.split_at(*value_length);
            rest = behind;
            (name, value)
        })
    }
}

impl<N: AsRef<str>, V: FieldText> FromIterator<(N, V)> for FieldList {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut list = Self::default();
        fields.into_iter().for_each(|(name, value)| list.push(name.as_ref(), value));
        list
    }
}

impl fmt::Debug for FieldList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_order_and_the_last_of_a_name_counts() {
        let list = FieldList::from_iter([("topic", "T"), ("", ""), ("n", "中"), ("topic", "U")]);
        assert_eq!(list.iter().collect::<Vec<_>>(), [("topic", "T"), ("", ""), ("n", "中"), ("topic", "U")]);
        assert_eq!((list.get("topic"), list.get("n"), list.get("x")), (Some("U"), Some("中"), None));
        assert_eq!(FieldList::default().iter().next(), None);
        assert_eq!(format!("{list:?}"), r#"{"topic": "T", "": "", "n": "中", "topic": "U"}"#);
    }
}
