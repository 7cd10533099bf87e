//! Frame headers: read without building a map, written without building a string.
//!
//! A header is parsed into a [`HeaderScratch`] that the connection keeps: it only notes where each field stands in
//! the bytes. [`Request`] then borrows both. Handlers of hot requests walk the fields once; all others ask by name.

mod binary;
mod json;
mod write;

use std::borrow::Cow;

use thiserror::Error;

use crate::frame::{Frame, HeaderEncoding};
use crate::json::JsonError;
use crate::version::Language;

pub use json::write_json_string;
pub use write::{FieldOut, Head, begin_frame, write_response};

/// Most header fields one frame may carry; real peers send about twenty.
pub const HEADER_FIELDS_MAX: usize = 4096;

/// Bit 0 of `flag`: this is a response.
pub const FLAG_RESPONSE: i32 = 1;
/// Bit 1 of `flag`: the receiver must not answer.
pub const FLAG_ONEWAY: i32 = 2;

/// Why a header can't be read. The connection has to be closed (1.1 rule 2).
#[derive(Debug, Error)]
pub enum HeaderError {
    /// The JSON text is broken, in a way that even the lenient reader refuses.
    #[error("JSON header: {0}")]
    Json(#[from] JsonError),
    /// A member that the protocol gives a type has another one.
    #[error("JSON header: member `{0}` has a value of the wrong type or range")]
    Member(&'static str),
    /// A length in a binary header points outside of it.
    #[error("binary header: {what} of {length} bytes at byte {at} leaves the header of {header} bytes")]
    Binary {
        /// Which part.
        what: &'static str,
        /// Its announced length.
        length: i64,
        /// Where it would begin.
        at: usize,
        /// Bytes of the header.
        header: usize,
    },
    /// More than [`HEADER_FIELDS_MAX`] fields.
    #[error("more than {HEADER_FIELDS_MAX} header fields")]
    TooManyFields,
    /// Text that is not UTF-8.
    #[error("header text is not UTF-8")]
    NotUtf8,
}

/// Where a piece of a header stands in its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn new(start: usize, end: usize) -> Self {
        // Headers are below 16 MiB (24-bit length).
        Self { start: start as u32, end: end as u32 }
    }

    fn of(self, header: &[u8]) -> &[u8] {
        &header[self.start as usize..self.end as usize]
    }
}

/// How the bytes of a value are to be understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    /// As they are.
    #[default]
    Plain,
    /// JSON text with backslash escapes.
    Escaped,
    /// Present, but null: treated as absent.
    Null,
}

#[derive(Clone, Copy, Debug, Default)]
struct FieldSpan {
    key: Span,
    value: Span,
    form: Form,
}

#[derive(Debug, Default)]
struct Parts {
    code: i32,
    language: Option<Language>,
    version: i32,
    opaque: Option<i32>,
    flag: i32,
    remark: Option<(Span, Form)>,
    has_fields: bool,
}

/// What a connection keeps between frames so that reading a header allocates nothing.
#[derive(Debug, Default)]
pub struct HeaderScratch {
    fields: Vec<FieldSpan>,
    /// The header in strict JSON, when a peer used a leniency.
    normalized: Vec<u8>,
}

/// A request or response, borrowed from the frame that brought it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Request or response code.
    pub code: i32,
    /// Language of the sender; `None` when it named an unknown one.
    pub language: Option<Language>,
    /// Version of the sender (1.9).
    pub version: i32,
    /// Correlation id, chosen by the requester.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`], [`FLAG_ONEWAY`].
    pub flag: i32,
    /// How the header was written.
    pub encoding: HeaderEncoding,
    remark: Option<FieldValue<'a>>,
    /// The header fields.
    pub fields: Fields<'a>,
    /// The body; empty means none.
    pub body: &'a [u8],
}

impl Request<'_> {
    /// Whether the sender expects no answer.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// Whether this answers a request of ours.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// The remark, if there is one.
    pub fn remark(&self) -> Option<Cow<'_, str>> {
        self.remark.and_then(|value| value.text().ok())
    }
}

/// The fields of a header (`extFields`), in the order in which they were sent.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    header: &'a [u8],
    spans: &'a [FieldSpan],
    present: bool,
}

impl<'a> Fields<'a> {
    /// Whether the header had a field map at all, be it an empty one.
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// All fields with a value, as (name, value).
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], FieldValue<'a>)> + use<'a> {
        let header = self.header;
        self.spans.iter().filter(|span| span.form != Form::Null).map(move |span| {
            (span.key.of(header), FieldValue { bytes: span.value.of(header), form: span.form })
        })
    }

    /// The value of one field. The last one counts when a name was sent twice.
    pub fn get(&self, name: &str) -> Option<FieldValue<'a>> {
        let span = self.spans.iter().rev().find(|span| span.key.of(self.header) == name.as_bytes())?;
        (span.form != Form::Null).then(|| FieldValue { bytes: span.value.of(self.header), form: span.form })
    }
}

/// The value of one header field: text, whatever it stands for.
#[derive(Clone, Copy, Debug)]
pub struct FieldValue<'a> {
    bytes: &'a [u8],
    form: Form,
}

impl<'a> FieldValue<'a> {
    /// The value as text; allocates only if it holds escapes.
    pub fn text(&self) -> Result<Cow<'a, str>, HeaderError> {
        match self.form {
            Form::Escaped => {
                let mut text = Vec::with_capacity(self.bytes.len());
                self.append_to(&mut text)?;
                String::from_utf8(text).map(Cow::Owned).map_err(|_| HeaderError::NotUtf8)
            }
            _ => std::str::from_utf8(self.bytes).map(Cow::Borrowed).map_err(|_| HeaderError::NotUtf8),
        }
    }

    /// Appends the value's bytes to `out`, escapes resolved. They are UTF-8 if the sender's were.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), HeaderError> {
        match self.form {
            Form::Escaped => json::unescape(self.bytes, out),
            _ => {
                out.extend_from_slice(self.bytes);
                Ok(())
            }
        }
    }

    /// The value as a decimal number, as Java's `Long.parseLong` reads it.
    pub fn number(&self) -> Option<i64> {
        parse_decimal(self.bytes)
    }

    /// The value as a 32-bit number.
    pub fn int(&self) -> Option<i32> {
        self.number().and_then(|value| i32::try_from(value).ok())
    }

    /// The value as a boolean: `true` in any case, anything else is false (1.4).
    pub fn boolean(&self) -> bool {
        self.bytes.eq_ignore_ascii_case(b"true")
    }

    /// The bytes as they stand in the header, for messages about them.
    pub fn raw(&self) -> &'a [u8] {
        self.bytes
    }
}

pub(crate) fn parse_decimal(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    };
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    let mut value: i64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Counts downwards, because the smallest number has no positive twin.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

impl HeaderScratch {
    /// Parses the header of `frame`. The result borrows the frame's bytes and this scratch.
    pub fn parse<'a>(&'a mut self, frame: &Frame<'a>) -> Result<Request<'a>, HeaderError> {
        self.fields.clear();
        let (header, body, parts) = match frame.encoding {
            HeaderEncoding::Json => match json::parse(frame.header(), &mut self.fields) {
                Ok(parts) => (frame.header(), frame.body(), parts),
                Err(json::Irregular::Error(error)) => return Err(error),
                Err(json::Irregular::NeedsLenientReader) => {
                    self.fields.clear();
                    self.normalized.clear();
                    json::normalize(frame.header(), &mut self.normalized)?;
                    match json::parse(&self.normalized, &mut self.fields) {
                        Ok(parts) => (&self.normalized[..], frame.body(), parts),
                        Err(json::Irregular::Error(error)) => return Err(error),
                        Err(json::Irregular::NeedsLenientReader) => {
                            return Err(HeaderError::Member("header"));
                        }
                    }
                }
            },
            HeaderEncoding::Binary => {
                let (parts, end) = binary::parse(frame.header(), &mut self.fields)?;
                (frame.header(), frame.after(end), parts)
            }
        };
        let fields = Fields { header, spans: &self.fields, present: parts.has_fields };
        Ok(Request {
            code: parts.code,
            language: parts.language,
            version: parts.version,
            opaque: parts.opaque.unwrap_or(0),
            flag: parts.flag,
            encoding: frame.encoding,
            remark: parts.remark.map(|(span, form)| FieldValue { bytes: span.of(header), form }),
            fields,
            body,
        })
    }
}

#[cfg(test)]
mod tests;
