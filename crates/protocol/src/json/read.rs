//! From [`Value`] to structs: a serde `Deserializer` with fastjson's leniencies.
//!
//! Every value passes [`ValueDeserializer::new`], the one place that resolves references, and every container leaves
//! out members that are `null`, so that absent and `null` are the same to a struct.

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::reference::Document;
use super::{JsonError, Value, parse};

/// Reads one document. Malformed UTF-8 reads as U+FFFD, as in Java.
///
/// Memory is bounded by a multiple of `bytes.len()`, whatever the bytes are.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    read_text(&String::from_utf8_lossy(bytes), |root| T::deserialize(root))
}

/// Parses `text` and hands a deserializer for the whole of it to `read`.
fn read_text<T>(
    text: &str,
    read: impl FnOnce(ValueDeserializer<'_, '_>) -> Result<T, JsonError>,
) -> Result<T, JsonError> {
    let root = parse(text)?;
    let document = Document::new(&root, text.len());
    read(ValueDeserializer::new(&root, &document, 0)?)
}

/// A value that is no reference, about to become something.
#[derive(Clone, Copy)]
struct ValueDeserializer<'d, 'v> {
    value: &'v Value<'v>,
    document: &'d Document<'v>,
    /// How many references were followed to get here.
    followed: usize,
}

impl<'d, 'v> ValueDeserializer<'d, 'v> {
    fn new(value: &'v Value<'v>, document: &'d Document<'v>, followed: usize) -> Result<Self, JsonError> {
        let (value, followed) = document.resolve(value, followed)?;
        Ok(ValueDeserializer { value, document, followed })
    }

    /// A deserializer for something inside this one's value.
    fn inner(&self, value: &'v Value<'v>) -> Result<Self, JsonError> {
        Self::new(value, self.document, self.followed)
    }

    /// A deserializer for something inside this one's value, or nothing if it is `null`.
    fn inner_unless_null(&self, value: &'v Value<'v>) -> Result<Option<Self>, JsonError> {
        let inner = self.inner(value)?;
        Ok((*inner.value != Value::Null).then_some(inner))
    }

    fn expected(&self, expected: &str) -> JsonError {
        match self.value {
            Value::Number(text) => JsonError::shape(format!("expected {expected}, found {}", short(text))),
            Value::String(text) => {
                JsonError::shape(format!("expected {expected}, found \"{}\"", short(text)))
            }
            other => JsonError::shape(format!("expected {expected}, found {}", other.kind())),
        }
    }

    /// Java's conversion to a whole number: from text, from a boolean, and from a fraction by cutting it off.
    fn integer(&self) -> Result<i64, JsonError> {
        let parsed = match self.value {
            Value::Number(digits) => parse_integer(digits),
            Value::String(text) if matches!(text.as_ref(), "" | "null") => Some(0),
            Value::String(text) => parse_integer(&text.replace(',', "")),
            Value::Bool(value) => Some(i64::from(*value)),
            _ => None,
        };
        parsed.ok_or_else(|| self.expected("an integer"))
    }

    fn float(&self) -> Result<f64, JsonError> {
        let parsed = match self.value {
            Value::Number(digits) => digits.parse().ok(),
            Value::String(text) => text.replace(',', "").parse().ok(),
            _ => None,
        };
        parsed.ok_or_else(|| self.expected("a number"))
    }

    fn boolean(&self) -> Result<bool, JsonError> {
        let text = match self.value {
            Value::Bool(value) => return Ok(*value),
            Value::Number(digits) => return Ok(parse_integer(digits) == Some(1)),
            Value::String(text) => text.to_ascii_lowercase(),
            _ => return Err(self.expected("a boolean")),
        };
        match text.as_str() {
            "true" | "1" | "y" | "t" => Ok(true),
            "false" | "0" | "n" | "f" | "" | "null" => Ok(false),
            _ => Err(self.expected("a boolean")),
        }
    }
}

fn parse_integer(digits: &str) -> Option<i64> {
    if let Ok(whole) = digits.parse() {
        return Some(whole);
    }
    let cut: f64 = digits.parse::<f64>().ok()?.trunc();
    // 2^63 itself is the first whole number that i64 can't hold, and is exact as f64.
    let limit = 2f64.powi(63);
    let is_fraction = digits.contains(['.', 'e', 'E']);
    (is_fraction && cut >= -limit && cut < limit).then_some(cut as i64)
}

/// The beginning of a text from outside, short enough for an error's message.
fn short(text: &str) -> &str {
    text.char_indices().nth(64).map_or(text, |(end, _)| &text[..end])
}

/// Methods that differ in nothing but the type of a number.
macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            visitor.visit_i64(self.integer()?)
        }
    )*};
}

impl<'de> Deserializer<'de> for ValueDeserializer<'_, '_> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(digits) => match digits.parse() {
                Ok(whole) => visitor.visit_i64(whole),
                Err(_) => visitor.visit_f64(self.float()?),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_bool(self.boolean()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.value {
            Value::Null => Err(self.expected("a string")),
            value => match value.as_name() {
                Some(text) => visitor.visit_str(text),
                None => visitor.visit_string(value.to_string()),
            },
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        let Value::Array(elements) = self.value else { return Err(self.expected("an array")) };
        visitor.visit_seq(Elements { array: self, rest: elements.iter().enumerate() })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        let Value::Object(members) = self.value else { return Err(self.expected("an object")) };
        visitor.visit_map(Entries { object: self, rest: members.iter(), current: None })
    }

    /// A struct from an object, or from a string that holds an object's text: the form that a map key takes when it
    /// went through a strict JSON writer.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        match self.value {
            Value::Object(members) => {
                let mut values = vec![None; fields.len()];
                for (key, value) in members {
                    if let Some(field) = key.as_name().and_then(|name| find_field(fields, name)) {
                        values[field] = Some(value);
                    }
                }
                visitor.visit_map(Members { object: self, rest: fields.iter().zip(values), current: None })
            }
            Value::String(text) if text.trim_start().starts_with('{') => {
                read_text(text, |inner| inner.deserialize_struct(name, fields, visitor))
            }
            _ => Err(self.expected("an object")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        let constant = match self.value {
            Value::String(name) => Constant::Name(name),
            Value::Number(_) => u64::try_from(self.integer()?)
                .map(Constant::Position)
                .map_err(|_| self.expected("the position of an enum constant"))?,
            _ => return Err(self.expected("an enum constant")),
        };
        visitor.visit_enum(constant.find(variants)?.into_deserializer())
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_unit()
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, JsonError> {
        self.deserialize_seq(visitor)
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple_struct identifier
    }
}

/// Which field a member's name means: the same spelling, or the same but for case, `_` and `-`, or that behind `is`.
fn find_field(fields: &[&str], name: &str) -> Option<usize> {
    let position = |same: &dyn Fn(&str) -> bool| fields.iter().position(|field| same(field));
    position(&|field| field == name).or_else(|| position(&|field| is_same_name(field, name))).or_else(|| {
        let behind_is = name.get(..2).filter(|is| is.eq_ignore_ascii_case("is")).map(|_| &name[2..])?;
        position(&|field| is_same_name(field, behind_is))
    })
}

fn is_same_name(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        name.bytes().filter(|b| !matches!(b, b'_' | b'-')).map(|b| b.to_ascii_lowercase())
    }
    letters(a).eq(letters(b))
}

/// The elements of a list.
struct Elements<'d, 'v> {
    array: ValueDeserializer<'d, 'v>,
    rest: std::iter::Enumerate<std::slice::Iter<'v, Value<'v>>>,
}

impl<'de> SeqAccess<'de> for Elements<'_, '_> {
    type Error = JsonError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, JsonError> {
        for (i, element) in self.rest.by_ref() {
            if let Some(inner) = self.array.inner_unless_null(element)? {
                return seed.deserialize(inner).map(Some).map_err(|e| e.below(format_args!("[{i}]")));
            }
        }
        Ok(None)
    }
}

/// The entries of a map.
struct Entries<'d, 'v> {
    object: ValueDeserializer<'d, 'v>,
    rest: std::slice::Iter<'v, (Value<'v>, Value<'v>)>,
    current: Option<(&'v Value<'v>, ValueDeserializer<'d, 'v>)>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = JsonError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, JsonError> {
        for (key, value) in self.rest.by_ref() {
            let Some(inner_key) = self.object.inner_unless_null(key)? else { continue };
            let Some(inner) = self.object.inner_unless_null(value)? else { continue };
            self.current = Some((key, inner));
            return seed.deserialize(inner_key).map(Some).map_err(|e| e.below(format_args!(" key")));
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, JsonError> {
        let (key, inner) = self.current.take().ok_or_else(|| JsonError::shape("a value without its key"))?;
        seed.deserialize(inner).map_err(|e| e.below(format_args!(".{}", key.as_name().map_or("{…}", short))))
    }
}

/// The members of an object that have a field, each once.
struct Members<'d, 'v> {
    object: ValueDeserializer<'d, 'v>,
    rest: std::iter::Zip<std::slice::Iter<'static, &'static str>, std::vec::IntoIter<Option<&'v Value<'v>>>>,
    current: Option<(&'static str, ValueDeserializer<'d, 'v>)>,
}

impl<'de> MapAccess<'de> for Members<'_, '_> {
    type Error = JsonError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, JsonError> {
        for (field, value) in self.rest.by_ref() {
            let Some(value) = value else { continue };
            let Some(inner) = self.object.inner_unless_null(value)? else { continue };
            self.current = Some((field, inner));
            return seed.deserialize((*field).into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, JsonError> {
        let (field, inner) =
            self.current.take().ok_or_else(|| JsonError::shape("a value without its key"))?;
        seed.deserialize(inner).map_err(|e| e.below(format_args!(".{field}")))
    }
}

/// What the text says of an enum constant. As a deserializer it gives that constant of any enum.
#[derive(Clone, Copy)]
pub(super) enum Constant<'a> {
    /// Its name, in any case.
    Name(&'a str),
    /// Its place in the enum, from 0.
    Position(u64),
}

impl Constant<'_> {
    fn find(self, variants: &'static [&'static str]) -> Result<&'static str, JsonError> {
        match self {
            Constant::Name(name) => variants.iter().find(|variant| variant.eq_ignore_ascii_case(name)),
            Constant::Position(position) => usize::try_from(position).ok().and_then(|i| variants.get(i)),
        }
        .copied()
        .ok_or_else(|| {
            JsonError::shape(match self {
                Constant::Name(name) => {
                    format!("expected one of {}, found {}", variants.join(", "), short(name))
                }
                Constant::Position(position) => {
                    format!("expected a position below {}, found {position}", variants.len())
                }
            })
        })
    }
}

impl<'de> Deserializer<'de> for Constant<'_> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, JsonError> {
        Err(JsonError::shape("only an enum can be read from an enum constant"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_enum(self.find(variants)?.into_deserializer())
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
