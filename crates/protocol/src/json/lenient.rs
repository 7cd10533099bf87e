//! Small things that bodies say about their members.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, SerializeTuple, Serializer};
use std::fmt;

use super::read::Constant;

/// For `#[serde(deserialize_with)]`: an enum member whose unknown names read as `None`, as Java reads them.
/// A position number outside the enum is an error.
pub fn enum_or_none<'de, D, E>(deserializer: D) -> Result<Option<E>, D::Error>
where
    D: Deserializer<'de>,
    E: Deserialize<'de>,
{
    match deserializer.deserialize_any(TokenVisitor)? {
        Token::Absent => Ok(None),
        Token::Name(name) => Ok(E::deserialize(Constant::Name(&name)).ok()),
        Token::Position(position) => {
            E::deserialize(Constant::Position(position)).map(Some).map_err(|e| D::Error::custom(e.reason()))
        }
    }
}

/// For `#[serde(deserialize_with)]`: an enum member whose unknown names read as the enum's default.
/// A position number outside the enum is an error.
pub fn enum_or_default<'de, D, E>(deserializer: D) -> Result<E, D::Error>
where
    D: Deserializer<'de>,
    E: Deserialize<'de> + Default,
{
    enum_or_none(deserializer).map(Option::unwrap_or_default)
}

/// What stands in the text for an enum's constant.
enum Token {
    Absent,
    Name(String),
    Position(u64),
}

struct TokenVisitor;

impl Visitor<'_> for TokenVisitor {
    type Value = Token;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name or the position of an enum constant")
    }

    fn visit_unit<E>(self) -> Result<Token, E> {
        Ok(Token::Absent)
    }

    fn visit_str<E>(self, name: &str) -> Result<Token, E> {
        Ok(Token::Name(name.to_owned()))
    }

    fn visit_u64<E>(self, position: u64) -> Result<Token, E> {
        Ok(Token::Position(position))
    }

    fn visit_i64<E: Error>(self, position: i64) -> Result<Token, E> {
        u64::try_from(position)
            .map(Token::Position)
            .map_err(|_| E::custom(format!("no constant at {position}")))
    }
}

/// A list that the pretty form writes in one line, as it does Java's sets and primitive arrays (02-store 3.1).
#[derive(Debug)]
pub struct InLine<I>(pub I);

impl<I> Serialize for InLine<I>
where
    I: IntoIterator<Item: Serialize, IntoIter: ExactSizeIterator> + Copy,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        in_line(self.0, serializer)
    }
}

/// For `#[serde(serialize_with)]`: the member is a list like [`InLine`].
pub fn in_line<I, S>(elements: I, serializer: S) -> Result<S::Ok, S::Error>
where
    I: IntoIterator<Item: Serialize, IntoIter: ExactSizeIterator>,
    S: Serializer,
{
    let elements = elements.into_iter();
    let mut tuple = serializer.serialize_tuple(elements.len())?;
    for element in elements {
        tuple.serialize_element(&element)?;
    }
    tuple.end()
}
