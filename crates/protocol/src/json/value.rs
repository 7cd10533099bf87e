//! A parsed JSON document in which a map key may be any value.

use std::borrow::Cow;
use std::fmt;

use super::text;

/// A JSON value as it stands in the text: numbers unconverted, `$ref`s unresolved, duplicate members kept.
///
/// It borrows from the text wherever it can, so its size is bounded by the text's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'t> {
    /// `null`, `undefined` or `NaN`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// The digits of a number, sign, fraction and exponent included.
    Number(&'t str),
    /// A text, its escapes resolved.
    String(Cow<'t, str>),
    /// The elements of a list.
    Array(Vec<Value<'t>>),
    /// The members of an object, or the entries of a map, in the text's order.
    Object(Vec<(Value<'t>, Value<'t>)>),
}

impl<'t> Value<'t> {
    /// The last member with this name, as the text spells it.
    pub fn get(&self, name: &str) -> Option<&Value<'t>> {
        let Value::Object(members) = self else { return None };
        members.iter().rev().find(|(key, _)| key.as_name() == Some(name)).map(|(_, value)| value)
    }

    /// The text of a key or plain value that needs no conversion to be one: `a`, `"a"`, `7`.
    pub fn as_name(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            Value::Number(digits) => Some(digits),
            Value::Bool(true) => Some("true"),
            Value::Bool(false) => Some("false"),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// What this is, for messages of errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

/// Writes the value in the legacy compact form, which is also what it becomes where a string is wanted.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(digits) => f.write_str(digits),
            Value::String(value) => {
                let mut quoted = String::with_capacity(value.len() + 2);
                text::push_quoted(&mut quoted, value, text::Escapes::Legacy);
                f.write_str(&quoted)
            }
            Value::Array(elements) => {
                f.write_str("[")?;
                for (i, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Value::Object(members) => {
                f.write_str("{")?;
                for (i, (key, value)) in members.iter().enumerate() {
                    write!(f, "{}{key}:{value}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("}")
            }
        }
    }
}
