//! Writing headers straight into the bytes that go to the socket.

use super::write_json_string;
use crate::frame::{self, HeaderEncoding};
use crate::version::{self, Language};

/// The value of a header field to be written.
#[derive(Clone, Copy, Debug)]
pub enum FieldOut<'a> {
    /// Text.
    Text(&'a str),
    /// A number, written in decimal.
    Number(i64),
    /// `true` or `false`.
    Boolean(bool),
}

impl FieldOut<'_> {
    fn write_plain(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Number(number) => write_decimal(out, *number),
            Self::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        }
    }
}

/// Everything of a header but its fields.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Request or response code.
    pub code: i32,
    /// Correlation id.
    pub opaque: i32,
    /// Flag bits.
    pub flag: i32,
    /// Language of the sender.
    pub language: Language,
    /// Version of the sender.
    pub version: i32,
    /// Text for people.
    pub remark: Option<&'a str>,
}

impl<'a> Head<'a> {
    /// The head of an answer from a server.
    pub fn response(code: i32, opaque: i32, remark: Option<&'a str>) -> Self {
        let flag = super::FLAG_RESPONSE;
        Self { code, opaque, flag, language: Language::JAVA, version: version::CURRENT, remark }
    }
}

fn write_decimal(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes a frame's beginning, through the end of its header, and returns where the header ended and the frame began,
/// for [`frame::finish`].
///
/// `fields` = `None` leaves the field map out, which peers can tell from an empty one (1.2).
pub fn begin_frame<'f>(
    out: &mut Vec<u8>,
    encoding: HeaderEncoding,
    head: &Head<'_>,
    fields: Option<impl IntoIterator<Item = (&'f str, FieldOut<'f>)>>,
) -> (usize, usize) {
    let start = frame::begin(out);
    match encoding {
        HeaderEncoding::Json => write_json(out, head, fields),
        HeaderEncoding::Binary => write_binary(out, head, fields),
    }
    (start, out.len())
}

fn write_json<'f>(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    fields: Option<impl IntoIterator<Item = (&'f str, FieldOut<'f>)>>,
) {
    out.extend_from_slice(b"{\"code\":");
    write_decimal(out, i64::from(head.code));
    if let Some(fields) = fields {
        out.extend_from_slice(b",\"extFields\":{");
        for (position, (name, value)) in fields.into_iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            write_json_string(out, name.as_bytes());
            out.push(b':');
            match value {
                FieldOut::Text(text) => write_json_string(out, text.as_bytes()),
                other => {
                    out.push(b'"');
                    other.write_plain(out);
                    out.push(b'"');
                }
            }
        }
        out.push(b'}');
    }
    out.extend_from_slice(b",\"flag\":");
    write_decimal(out, i64::from(head.flag));
    out.extend_from_slice(b",\"language\":\"");
    out.extend_from_slice(head.language.name().as_bytes());
    out.extend_from_slice(b"\",\"opaque\":");
    write_decimal(out, i64::from(head.opaque));
    if let Some(remark) = head.remark {
        out.extend_from_slice(b",\"remark\":");
        write_json_string(out, remark.as_bytes());
    }
    out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    write_decimal(out, i64::from(head.version));
    out.push(b'}');
}

fn write_binary<'f>(
    out: &mut Vec<u8>,
    head: &Head<'_>,
    fields: Option<impl IntoIterator<Item = (&'f str, FieldOut<'f>)>>,
) {
    // Codes and versions above 15 bits are cut, as the format demands (1.3).
    out.extend_from_slice(&(head.code as i16).to_be_bytes());
    out.push(head.language.code());
    out.extend_from_slice(&(head.version as i16).to_be_bytes());
    out.extend_from_slice(&head.opaque.to_be_bytes());
    out.extend_from_slice(&head.flag.to_be_bytes());
    let remark = head.remark.unwrap_or_default();
    out.extend_from_slice(&(remark.len() as u32).to_be_bytes());
    out.extend_from_slice(remark.as_bytes());
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    for (name, value) in fields.into_iter().flatten() {
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        let value_length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        value.write_plain(out);
        let value_length = (out.len() - value_length_at - 4) as u32;
        out[value_length_at..value_length_at + 4].copy_from_slice(&value_length.to_be_bytes());
    }
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Writes a whole answer.
pub fn write_response<'f>(
    out: &mut Vec<u8>,
    encoding: HeaderEncoding,
    head: &Head<'_>,
    fields: Option<impl IntoIterator<Item = (&'f str, FieldOut<'f>)>>,
    body: &[u8],
) {
    let (start, header_end) = begin_frame(out, encoding, head, fields);
    out.extend_from_slice(body);
    frame::finish(out, start, header_end, encoding);
}
