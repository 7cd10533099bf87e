//! The header fields of a command that owns its parts.

use std::fmt::{self, Display, Write as _};

use crate::header::{Fields, HeaderError};

/// Room for the fields of a common request or answer.
const TEXT_BYTES: usize = 256;
const FIELDS: usize = 16;

/// Names and values in the order in which they were added, in one piece of text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldList {
    /// All names and values, one behind the other.
    text: String,
    /// Of each field, where its name and where its value end.
    ends: Vec<(usize, usize)>,
}

impl FieldList {
    /// An owned copy of what a peer sent.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, HeaderError> {
        let mut list = Self::default();
        for (name, value) in fields.iter() {
            list.push(&String::from_utf8_lossy(name), value.text()?);
        }
        Ok(list)
    }

    /// Adds a field behind the others.
    pub fn push(&mut self, name: &str, value: impl Display) {
        if self.ends.is_empty() {
            self.text.reserve(TEXT_BYTES);
            self.ends.reserve(FIELDS);
        }
        self.text.push_str(name);
        let name_end = self.text.len();
        // Text takes whatever a value writes.
        let _ = write!(self.text, "{value}");
        self.ends.push((name_end, self.text.len()));
    }

    /// The value of a field; the last one counts when a name was added twice.
    pub fn get(&self, name: &str) -> Option<&str> {
        let positions = (0..self.ends.len()).rev();
        positions.map(|position| self.at(position)).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// All names and values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.ends.len()).map(|position| self.at(position))
    }

    fn at(&self, position: usize) -> (&str, &str) {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (name_end, value_end) = self.ends[position];
        (&self.text[start..name_end], &self.text[name_end..value_end])
    }
}

impl<N: AsRef<str>, V: Display> FromIterator<(N, V)> for FieldList {
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
