//! From structs to text: a serde `Serializer` that writes what fastjson writes.
//!
//! A serializer answers whether it wrote `null`, because an object leaves out members that are.

use std::fmt::Display;

use serde::Serialize;
use serde::ser::{self, Serializer};

use super::text::{self, Escapes};

/// Writes the legacy compact form: the bytes of nearly every body.
///
/// # Panics
///
/// If a `Serialize` implementation reports an error of its own. Derived ones never do.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    to_string(value).into_bytes()
}

/// [`to_vec`] as text, for header fields and arguments that hold JSON.
///
/// # Panics
///
/// As [`to_vec`].
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> String {
    write(value, Style { escapes: Escapes::Legacy, pretty: false })
}

/// Writes strict JSON in plain ASCII, fastjson's `BrowserCompatible` form: code 105 to new clients, and the metrics
/// files of the broker. Maps must be sorted by themselves.
///
/// # Panics
///
/// As [`to_vec`].
pub fn to_vec_standard<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    write(value, Style { escapes: Escapes::Standard, pretty: false }).into_bytes()
}

/// Writes the form of the files under `config/` (`docs/spec/02-store.md` 3.1): tabs, one member per line, maps with
/// keys that are no strings in one line.
///
/// # Panics
///
/// As [`to_vec`].
pub fn to_string_pretty<T: Serialize + ?Sized>(value: &T) -> String {
    write(value, Style { escapes: Escapes::Legacy, pretty: true })
}

fn write<T: Serialize + ?Sized>(value: &T, style: Style) -> String {
    let mut writer = Writer { out: String::new(), style, indent: 0 };
    match value.serialize(&mut writer) {
        Ok(_) => writer.out,
        Err(error) => panic!("a Serialize implementation failed: {error}"),
    }
}

#[derive(Clone, Copy)]
struct Style {
    escapes: Escapes,
    pretty: bool,
}

/// Whether a value was `null`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrote {
    Null,
    Something,
}

/// An error that a `Serialize` implementation made itself; the writer has none.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WriteError(String);

impl ser::Error for WriteError {
    fn custom<T: Display>(message: T) -> Self {
        WriteError(message.to_string())
    }
}

struct Writer {
    out: String,
    style: Style,
    indent: usize,
}

impl Writer {
    fn new_line(&mut self) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n('\t', self.indent));
    }

    fn quoted(&mut self, text: &str) {
        text::push_quoted(&mut self.out, text, self.style.escapes);
    }

    fn plain(&mut self, text: impl Display) -> Result<Wrote, WriteError> {
        use std::fmt::Write;
        let _ = write!(self.out, "{text}"); // writing to a String can't fail
        Ok(Wrote::Something)
    }

    /// A double, given its shortest scientific form. What is no number is `null`, but is not left out.
    fn double(&mut self, is_finite: bool, shortest: &str) -> Result<Wrote, WriteError> {
        if is_finite {
            text::push_java_double(&mut self.out, shortest);
        } else {
            self.out.push_str("null");
        }
        Ok(Wrote::Something)
    }

    fn open(&mut self, bracket: &str, close: &'static str, layout: Layout) -> Block<'_> {
        self.out.push_str(bracket);
        self.indent += usize::from(layout != Layout::InLine);
        Block { writer: self, close, layout, is_empty: true, pending: None }
    }

    /// `{"Name":` before the content of an enum variant that has one. RocketMQ has no such enums.
    fn variant(&mut self, name: &str) {
        self.out.push('{');
        self.quoted(name);
        self.out.push(':');
    }
}

/// How the pretty form breaks the lines of an object or a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Every member begins a line, and so does the closing bracket.
    Lines,
    /// Only the closing bracket begins a line: a map whose keys are no strings.
    LastLine,
    /// No line is begun: Java's sets and primitive arrays.
    InLine,
}

/// An object or a list being written.
struct Block<'w> {
    writer: &'w mut Writer,
    close: &'static str,
    layout: Layout,
    is_empty: bool,
    /// Where the entry begins whose key is written and whose value is not.
    pending: Option<usize>,
}

impl Block<'_> {
    fn begin_entry(&mut self, layout: Layout) {
        if !self.is_empty {
            self.writer.out.push(',');
        }
        if self.writer.style.pretty && layout == Layout::Lines {
            self.writer.new_line();
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        self.begin_entry(self.layout);
        value.serialize(&mut *self.writer)?;
        self.is_empty = false;
        Ok(())
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), WriteError> {
        let entry = self.writer.out.len();
        self.begin_entry(Layout::Lines);
        self.writer.quoted(name);
        self.value(entry, value)
    }

    fn key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), WriteError> {
        let entry = self.writer.out.len();
        self.begin_entry(Layout::LastLine);
        let start = self.writer.out.len();
        key.serialize(&mut *self.writer)?;
        self.layout = Layout::LastLine;
        if self.writer.out[start..].starts_with('"') {
            self.layout = Layout::Lines;
            if self.writer.style.pretty {
                let written = self.writer.out.split_off(start);
                self.writer.new_line();
                self.writer.out.push_str(&written);
            }
        } else if self.writer.style.escapes == Escapes::Standard {
            let written = self.writer.out.split_off(start);
            self.writer.quoted(&written);
        }
        self.pending = Some(entry);
        Ok(())
    }

    /// The value of the entry that begins at `entry`, or no such entry if the value is `null`.
    fn value<T: Serialize + ?Sized>(&mut self, entry: usize, value: &T) -> Result<(), WriteError> {
        self.writer.out.push(':');
        match value.serialize(&mut *self.writer)? {
            Wrote::Null => self.writer.out.truncate(entry),
            Wrote::Something => self.is_empty = false,
        }
        Ok(())
    }

    fn finish(self) -> Result<Wrote, WriteError> {
        if self.layout != Layout::InLine {
            self.writer.indent -= 1;
            if self.writer.style.pretty && !self.is_empty {
                self.writer.new_line();
            }
        }
        self.writer.out.push_str(self.close);
        Ok(Wrote::Something)
    }
}

/// Methods that differ in nothing but the type of a number or the like.
macro_rules! plain {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<Wrote, WriteError> {
            self.plain(value)
        }
    )*};
}

impl<'w> Serializer for &'w mut Writer {
    type Ok = Wrote;
    type Error = WriteError;
    type SerializeSeq = Block<'w>;
    type SerializeTuple = Block<'w>;
    type SerializeTupleStruct = Block<'w>;
    type SerializeTupleVariant = Block<'w>;
    type SerializeMap = Block<'w>;
    type SerializeStruct = Block<'w>;
    type SerializeStructVariant = Block<'w>;

    plain! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128
    }

    fn serialize_f32(self, value: f32) -> Result<Wrote, WriteError> {
        self.double(value.is_finite(), &format!("{value:e}"))
    }

    fn serialize_f64(self, value: f64) -> Result<Wrote, WriteError> {
        self.double(value.is_finite(), &format!("{value:e}"))
    }

    fn serialize_char(self, value: char) -> Result<Wrote, WriteError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<Wrote, WriteError> {
        self.quoted(value);
        Ok(Wrote::Something)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Wrote, WriteError> {
        self.collect_seq(value)
    }

    fn serialize_none(self) -> Result<Wrote, WriteError> {
        self.out.push_str("null");
        Ok(Wrote::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Wrote, WriteError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Wrote, WriteError> {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<Wrote, WriteError> {
        self.serialize_none()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<Wrote, WriteError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<Wrote, WriteError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Wrote, WriteError> {
        let mut block = self.open("{", "}", Layout::Lines);
        block.member(variant, value)?;
        block.finish()
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Block<'w>, WriteError> {
        Ok(self.open("[", "]", Layout::Lines))
    }

    fn serialize_tuple(self, _len: usize) -> Result<Block<'w>, WriteError> {
        Ok(self.open("[", "]", Layout::InLine))
    }

    fn serialize_tuple_struct(self, _name: &'static str, len: usize) -> Result<Block<'w>, WriteError> {
        self.serialize_tuple(len)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Block<'w>, WriteError> {
        self.variant(variant);
        Ok(self.open("[", "]}", Layout::InLine))
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Block<'w>, WriteError> {
        Ok(self.open("{", "}", Layout::Lines))
    }

    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Block<'w>, WriteError> {
        Ok(self.open("{", "}", Layout::Lines))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Block<'w>, WriteError> {
        self.variant(variant);
        Ok(self.open("{", "}}", Layout::Lines))
    }
}

/// The traits of lists, which are all the same to JSON.
macro_rules! list {
    ($($trait:ident::$method:ident),*) => {$(
        impl ser::$trait for Block<'_> {
            type Ok = Wrote;
            type Error = WriteError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
                self.element(value)
            }

            fn end(self) -> Result<Wrote, WriteError> {
                self.finish()
            }
        }
    )*};
}

list! {
    SerializeSeq::serialize_element, SerializeTuple::serialize_element, SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
}

/// The traits of objects whose members have names.
macro_rules! object {
    ($($trait:ident),*) => {$(
        impl ser::$trait for Block<'_> {
            type Ok = Wrote;
            type Error = WriteError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), WriteError> {
                self.member(name, value)
            }

            fn end(self) -> Result<Wrote, WriteError> {
                self.finish()
            }
        }
    )*};
}

object! { SerializeStruct, SerializeStructVariant }

impl ser::SerializeMap for Block<'_> {
    type Ok = Wrote;
    type Error = WriteError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), WriteError> {
        self.key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        let entry = self.pending.take().ok_or_else(|| WriteError("a value without a key".to_owned()))?;
        self.value(entry, value)
    }

    fn end(self) -> Result<Wrote, WriteError> {
        self.finish()
    }
}
