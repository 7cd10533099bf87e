//! The JSON header (`docs/spec/01-remoting.md` 1.2).
//!
//! [`parse`] reads what real clients send, in one pass and without allocating. Whatever is JSON only to fastjson
//! (single quotes, bare keys, `ext_fields`, objects as field values …) goes through [`normalize`] first.

use std::borrow::Cow;

use memchr::memchr2;

use super::{FieldSpan, Form, HEADER_FIELDS_MAX, HeaderError, Parts, Span, parse_decimal};
use crate::json::{self, JsonError, Value};
use crate::version::Language;

/// Why [`parse`] gave up.
pub(super) enum Irregular {
    /// Perhaps the lenient reader understands it.
    NeedsLenientReader,
    /// Nobody does.
    Error(HeaderError),
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

/// A scalar as it stands in the text.
struct Scalar {
    span: Span,
    form: Form,
    quoted: bool,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Irregular> {
        if self.peek() == Some(wanted) {
            self.at += 1;
            return Ok(());
        }
        Err(Irregular::NeedsLenientReader)
    }

    /// A quoted string: where its text stands and whether it holds escapes.
    fn string(&mut self) -> Result<(Span, Form), Irregular> {
        self.expect(b'"')?;
        /// Most keys and values end within so many bytes, which are quicker looked at than searched.
        const SHORT: usize = 16;
        let start = self.at;
        let mut form = Form::Plain;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let stops = |byte: &u8| matches!(byte, b'"' | b'\\');
            let near = rest[..rest.len().min(SHORT)].iter().position(stops);
            let found = near.or_else(|| memchr2(b'"', b'\\', rest.get(SHORT..)?).map(|found| found + SHORT));
            let Some(found) = found else { return Err(Irregular::NeedsLenientReader) };
            self.at += found;
            if self.text[self.at] == b'"' {
                let span = Span::new(start, self.at);
                self.at += 1;
                return Ok((span, form));
            }
            form = Form::Escaped;
            self.at += 2;
        }
    }

    fn scalar(&mut self) -> Result<Scalar, Irregular> {
        if self.peek() == Some(b'"') {
            let (span, form) = self.string()?;
            return Ok(Scalar { span, form, quoted: true });
        }
        let start = self.at;
        while self.text.get(self.at).is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'a'..=b'z')) {
            self.at += 1;
        }
        let bytes = &self.text[start..self.at];
        let form = match bytes {
            b"null" => Form::Null,
            b"true" | b"false" => Form::Plain,
            _ if parse_decimal(bytes).is_some()
                && matches!(self.text.get(self.at), Some(b',' | b'}' | b' ' | b'\n')) =>
            {
                Form::Plain
            }
            _ => return Err(Irregular::NeedsLenientReader),
        };
        Ok(Scalar { span: Span::new(start, self.at), form, quoted: false })
    }

    /// Calls `member` at the start of each member's value, for a whole object.
    fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Span) -> Result<(), Irregular>,
    ) -> Result<(), Irregular> {
        self.expect(b'{')?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let (key, form) = self.string()?;
            if form != Form::Plain {
                return Err(Irregular::NeedsLenientReader);
            }
            self.expect(b':')?;
            member(self, key)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(Irregular::NeedsLenientReader),
            }
        }
    }

    fn int(&mut self, name: &'static str) -> Result<Option<i32>, Irregular> {
        let scalar = self.scalar()?;
        if scalar.form == Form::Null {
            return Ok(None);
        }
        let number = parse_decimal(scalar.span.of(self.text)).and_then(|number| i32::try_from(number).ok());
        number.map(Some).ok_or(Irregular::Error(HeaderError::Member(name)))
    }

    fn language(&mut self) -> Result<Option<Language>, Irregular> {
        let scalar = self.scalar()?;
        let bytes = scalar.span.of(self.text);
        if scalar.quoted || scalar.form == Form::Null {
            return Ok(Language::from_name(bytes));
        }
        // A number is a position, and one outside of the list ends the connection; an unknown name does not.
        let code =
            parse_decimal(bytes).and_then(|code| u8::try_from(code).ok()).and_then(Language::from_code);
        code.map(Some).ok_or(Irregular::Error(HeaderError::Member("language")))
    }
}

/// Parses a header in strict JSON, noting its fields in `fields`.
pub(super) fn parse(text: &[u8], fields: &mut Vec<FieldSpan>) -> Result<Parts, Irregular> {
    let mut parser = Parser { text, at: 0 };
    let mut parts = Parts { language: Some(Language::JAVA), ..Parts::default() };
    parser.object(|parser, key| {
        match key.of(text) {
            b"code" => parts.code = parser.int("code")?.unwrap_or(0),
            b"flag" => parts.flag = parser.int("flag")?.unwrap_or(0),
            b"version" => parts.version = parser.int("version")?.unwrap_or(0),
            b"opaque" => parts.opaque = parser.int("opaque")?,
            b"language" => parts.language = parser.language()?,
            b"remark" => {
                let remark = parser.scalar()?;
                parts.remark = (remark.form != Form::Null).then_some((remark.span, remark.form));
            }
            b"serializeTypeCurrentRPC" => {
                parser.scalar()?;
            }
            b"extFields" => {
                fields.clear();
                if parser.peek() == Some(b'n') {
                    parts.has_fields = false;
                    return parser.scalar().map(drop);
                }
                parts.has_fields = true;
                parser.object(|parser, key| {
                    let value = parser.scalar()?;
                    if fields.len() == HEADER_FIELDS_MAX {
                        return Err(Irregular::Error(HeaderError::TooManyFields));
                    }
                    fields.push(FieldSpan { key, value: value.span, form: value.form });
                    Ok(())
                })?;
            }
            _ => return Err(Irregular::NeedsLenientReader),
        }
        Ok(())
    })?;
    if parser.peek().is_some() {
        return Err(Irregular::NeedsLenientReader);
    }
    Ok(parts)
}

/// Rewrites what fastjson would read as a header into strict JSON with the known members only.
pub(super) fn normalize(text: &[u8], out: &mut Vec<u8>) -> Result<(), JsonError> {
    let text = String::from_utf8_lossy(text);
    let header = json::parse(&text)?;
    if !matches!(header, Value::Object(_)) {
        return Err(JsonError::Syntax { at: 0, expected: "an object", found: format!("{header:.20}") });
    }
    out.push(b'{');
    for name in ["code", "flag", "version", "opaque", "language", "remark"] {
        if let Some(value) = member(&header, name) {
            write_member(name, out);
            match value {
                Value::Number(digits) if name != "remark" => out.extend_from_slice(digits.as_bytes()),
                other => write_json_string(out, as_text(other).as_bytes()),
            }
        }
    }
    if let Some(Value::Object(fields)) = member(&header, "extFields") {
        write_member("extFields", out);
        out.push(b'{');
        for (key, value) in fields {
            let key = as_text(key);
            // The strict reader, which comes next, takes no escapes in names. Nobody asks for a field that has them.
            if key.chars().any(is_escaped) {
                continue;
            }
            write_member(&key, out);
            match value {
                Value::Null => out.extend_from_slice(b"null"),
                other => write_json_string(out, as_text(other).as_bytes()),
            }
        }
        out.push(b'}');
    }
    out.push(b'}');
    Ok(())
}

/// Whether [`write_json_string`] escapes the character.
fn is_escaped(character: char) -> bool {
    matches!(character, '"' | '\\' | '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}')
}

/// The last member with this name that is not null, in any of the spellings that fastjson accepts.
fn member<'v>(header: &'v Value<'v>, name: &str) -> Option<&'v Value<'v>> {
    let Value::Object(members) = header else { return None };
    let spelled = |key: &str| {
        let letters =
            key.bytes().filter(|byte| !matches!(byte, b'_' | b'-')).map(|byte| byte.to_ascii_lowercase());
        letters.eq(name.bytes().map(|byte| byte.to_ascii_lowercase()))
    };
    let found = members.iter().rev().find(|(key, _)| key.as_name().is_some_and(spelled));
    found.map(|(_, value)| value).filter(|value| !matches!(value, Value::Null))
}

/// What a value becomes where a text is wanted.
fn as_text<'v>(value: &'v Value<'_>) -> Cow<'v, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

fn write_member(name: &str, out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    write_json_string(out, name.as_bytes());
    out.push(b':');
}

/// Bytes that a JSON string can hold only escaped, or that may begin a character that is written escaped.
const NOT_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[0x7f] = true;
    table[0xc2] = true;
    table[0xe2] = true;
    table
};

/// Writes UTF-8 text as a JSON string with the escapes that fastjson writes (5.2 rule 6).
pub fn write_json_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| NOT_PLAIN[usize::from(*byte)]) {
        out.extend_from_slice(&rest[..at]);
        let used = write_escaped(out, &rest[at..]);
        rest = &rest[at + used..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Writes the character at the start of `text`, escaped if need be, and returns how many bytes of `text` it is. (For a
/// character that needs no escape that is its first byte, which is all that has to be looked at.)
fn write_escaped(out: &mut Vec<u8>, text: &[u8]) -> usize {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let (unit, width) = match *text {
        [short @ (b'"' | b'\\'), ..] => return write_short(out, short),
        [0x08, ..] => return write_short(out, b'b'),
        [b'\t', ..] => return write_short(out, b't'),
        [b'\n', ..] => return write_short(out, b'n'),
        [0x0c, ..] => return write_short(out, b'f'),
        [b'\r', ..] => return write_short(out, b'r'),
        [control @ (0..=0x1f | 0x7f), ..] => (u16::from(control), 1),
        // U+0080 to U+009F, and U+2028, U+2029.
        [0xc2, control @ 0x80..=0x9f, ..] => (u16::from(control), 2),
        [0xe2, 0x80, separator @ (0xa8 | 0xa9), ..] => (0x2000 | u16::from(separator & 0x7f), 3),
        [plain, ..] => {
            out.push(plain);
            return 1;
        }
        [] => return 0,
    };
    out.extend_from_slice(b"\\u");
    out.extend((0..4).rev().map(|digit| HEX[usize::from(unit >> (4 * digit) & 0xf)]));
    width
}

fn write_short(out: &mut Vec<u8>, letter: u8) -> usize {
    out.extend_from_slice(&[b'\\', letter]);
    1
}

/// Appends a JSON string's text to `out` with its escapes resolved. A lone surrogate becomes U+FFFD.
pub(super) fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<(), HeaderError> {
    let broken = || HeaderError::Member("string with an unknown escape");
    let mut at = 0;
    while at < text.len() {
        let plain = memchr::memchr(b'\\', &text[at..]).unwrap_or(text.len() - at);
        out.extend_from_slice(&text[at..at + plain]);
        at += plain;
        if at == text.len() {
            break;
        }
        let escape = *text.get(at + 1).ok_or_else(broken)?;
        at += 2;
        let byte = match escape {
            b'"' | b'\\' | b'/' | b'\'' => escape,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 0x0b,
            b'f' | b'F' => 0x0c,
            b'r' => b'\r',
            b'0'..=b'7' => escape - b'0',
            b'x' => {
                let value = hex(text.get(at..at + 2).ok_or_else(broken)?).ok_or_else(broken)?;
                at += 2;
                push_char(u32::from(value), out);
                continue;
            }
            b'u' => {
                let mut unit = u32::from(hex(text.get(at..at + 4).ok_or_else(broken)?).ok_or_else(broken)?);
                at += 4;
                if (0xd800..0xdc00).contains(&unit)
                    && text.get(at..at + 2) == Some(b"\\u")
                    && let Some(low) =
                        text.get(at + 2..at + 6).and_then(hex).filter(|low| (0xdc00..0xe000).contains(low))
                {
                    unit = 0x10000 + ((unit - 0xd800) << 10) + (u32::from(low) - 0xdc00);
                    at += 6;
                }
                push_char(unit, out);
                continue;
            }
            _ => return Err(broken()),
        };
        out.push(byte);
    }
    Ok(())
}

fn hex(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0u16, |value, digit| {
        let digit = (*digit as char).to_digit(16)?;
        Some(value << 4 | digit as u16)
    })
}

fn push_char(unit: u32, out: &mut Vec<u8>) {
    let character = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}
