//! From text to [`Value`]: fastjson's grammar, which contains JSON's.
//!
//! Beyond JSON it knows unquoted and single-quoted keys, keys of any type, single-quoted strings, commas too many,
//! comments, `NaN`, `undefined`, and Java's suffixes of numbers (`7L`). It does not know a document that ends early or
//! goes on after its end: a file that was cut must be seen to be cut.

use std::borrow::Cow;

use super::{JsonError, Value};

/// How deeply objects and arrays may be nested. The deepest body of RocketMQ has eight levels.
pub const DEPTH_MAX: usize = 128;

/// Parses one whole document. White space around it is skipped, anything else is an error.
pub fn parse(text: &str) -> Result<Value<'_>, JsonError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    if text.starts_with('\u{feff}') {
        parser.at = '\u{feff}'.len_utf8();
    }
    let value = parser.value()?;
    parser.skip_blank()?;
    if parser.at < text.len() { Err(parser.expected("end of text")) } else { Ok(value) }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over `byte` if it is the next one.
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expected(&self, expected: &'static str) -> JsonError {
        let found = self.text.get(self.at..).and_then(|rest| rest.chars().next());
        let found = found.map_or("end of text".to_owned(), |c| format!("{c:?}"));
        JsonError::Syntax { at: self.at, expected, found }
    }

    /// Steps over bytes while they are `wanted` and returns them.
    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'t str {
        let rest = &self.text[self.at..];
        let len = rest.bytes().position(|b| !wanted(b)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// Steps over white space and comments.
    fn skip_blank(&mut self) -> Result<(), JsonError> {
        loop {
            self.take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x08 | 0x0c));
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(end) => self.at += 2 + end + 2,
                    None => return Err(self.expected("a comment that ends")),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self) -> Result<Value<'t>, JsonError> {
        self.skip_blank()?;
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"' | b'\'') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'a'..=b'z' | b'A'..=b'Z') => {
                let start = self.at;
                match self.word() {
                    "null" | "undefined" | "NaN" => Ok(Value::Null),
                    "true" => Ok(Value::Bool(true)),
                    "false" => Ok(Value::Bool(false)),
                    _ => {
                        self.at = start;
                        Err(self.expected("a value"))
                    }
                }
            }
            _ => Err(self.expected("a value")),
        }
    }

    fn nested(
        &mut self,
        inner: fn(&mut Self) -> Result<Value<'t>, JsonError>,
    ) -> Result<Value<'t>, JsonError> {
        if self.depth == DEPTH_MAX {
            return Err(JsonError::TooDeep { at: self.at });
        }
        self.depth += 1;
        self.at += 1; // the bracket
        let value = inner(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Result<Value<'t>, JsonError> {
        let mut members = Vec::new();
        loop {
            self.skip_blank()?;
            if self.eat(b',') {
                continue;
            }
            if self.eat(b'}') {
                return Ok(Value::Object(members));
            }
            let key = self.key()?;
            self.skip_blank()?;
            if !self.eat(b':') {
                return Err(self.expected("`:`"));
            }
            members.push((key, self.value()?));
            self.skip_blank()?;
            if !matches!(self.peek(), Some(b',' | b'}')) {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self) -> Result<Value<'t>, JsonError> {
        let mut elements = Vec::new();
        loop {
            self.skip_blank()?;
            if self.eat(b',') {
                continue;
            }
            if self.eat(b']') {
                return Ok(Value::Array(elements));
            }
            elements.push(self.value()?);
            self.skip_blank()?;
            if !matches!(self.peek(), Some(b',' | b']')) {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    /// A key: any value, or a bare word.
    fn key(&mut self) -> Result<Value<'t>, JsonError> {
        match self.peek() {
            Some(b'{' | b'[' | b'"' | b'\'' | b'-' | b'0'..=b'9') => self.value(),
            Some(b) if is_word_byte(b) => Ok(match self.word() {
                "null" => Value::Null,
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                word => Value::String(Cow::Borrowed(word)),
            }),
            _ => Err(self.expected("a key or `}`")),
        }
    }

    fn word(&mut self) -> &'t str {
        self.take_while(is_word_byte)
    }

    fn number(&mut self) -> Result<Value<'t>, JsonError> {
        let start = self.at;
        self.eat(b'-');
        self.digits()?;
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _sign = self.eat(b'-') || self.eat(b'+');
            self.digits()?;
        }
        let digits = &self.text[start..self.at];
        if matches!(self.peek(), Some(b'L' | b'S' | b'B' | b'F' | b'D')) {
            self.at += 1;
        }
        Ok(Value::Number(digits))
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        if self.take_while(|b| b.is_ascii_digit()).is_empty() {
            return Err(self.expected("a digit"));
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'t, str>, JsonError> {
        let quote = self.text.as_bytes()[self.at];
        self.at += 1;
        let plain = self.take_while(|b| b != quote && b != b'\\');
        if self.eat(quote) {
            return Ok(Cow::Borrowed(plain));
        }
        let mut value = plain.to_owned();
        loop {
            if self.eat(quote) {
                return Ok(Cow::Owned(value));
            }
            if !self.eat(b'\\') {
                return Err(self.expected("a quote that ends the string"));
            }
            value.push(self.escape()?);
            value.push_str(self.take_while(|b| b != quote && b != b'\\'));
        }
    }

    /// What stands behind a backslash. Half a surrogate pair becomes U+FFFD, since a Rust string can't hold it.
    fn escape(&mut self) -> Result<char, JsonError> {
        let c = match self.peek() {
            Some(b @ b'0'..=b'7') => char::from(b - b'0'),
            Some(b'b') => '\x08',
            Some(b't') => '\t',
            Some(b'n') => '\n',
            Some(b'v') => '\x0b',
            Some(b'f' | b'F') => '\x0c',
            Some(b'r') => '\r',
            Some(b @ (b'"' | b'\'' | b'\\' | b'/')) => char::from(b),
            Some(b'x') => {
                self.at += 1;
                let unit = self.hex(2)?;
                return Ok(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(b'u') => {
                self.at += 1;
                return self.utf16();
            }
            _ => return Err(self.expected("an escape: one of b f n r t u \" ' \\ /")),
        };
        self.at += 1;
        Ok(c)
    }

    /// The four digits behind `\u`, and the second half of a surrogate pair if it follows.
    fn utf16(&mut self) -> Result<char, JsonError> {
        let unit = self.hex(4)?;
        if !(0xd800..0xdc00).contains(&unit) {
            return Ok(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let behind = self.at;
        if self.text[behind..].starts_with("\\u") {
            self.at += 2;
            let low = self.hex(4)?;
            if (0xdc00..0xe000).contains(&low) {
                let point = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = behind; // not a pair: the next escape stands for itself
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self, len: usize) -> Result<u32, JsonError> {
        let digits =
            self.text.get(self.at..self.at + len).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|d| u32::from_str_radix(d, 16).ok());
        let unit = unit.ok_or_else(|| self.expected("hexadecimal digits"))?;
        self.at += len;
        Ok(unit)
    }
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'-') || !b.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compact form of what was read.
    fn read(text: &str) -> String {
        parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
    }

    #[test]
    fn more_than_json_is_accepted() {
        assert_eq!(read("  {\"a\" : [1, -2.5e3, true, null]}\r\n"), r#"{"a":[1,-2.5e3,true,null]}"#);
        assert_eq!(read("{0:'x',1:\"y\",b_c:1,true:2}"), r#"{0:"x",1:"y","b_c":1,true:2}"#);
        assert_eq!(read(r#"{{"topic":"T"}:5}"#), r#"{{"topic":"T"}:5}"#);
        assert_eq!(read("{,\"a\":1,,}"), r#"{"a":1}"#);
        assert_eq!(read("/* c */ [1, // one\n NaN, undefined, 7L]"), "[1,null,null,7]");
        assert_eq!(read("\u{feff}[]"), "[]");
        assert_eq!(
            read(r#""\u4e2d\uD83D\uDE00\uD83D\x41\/\'\1""#),
            "\"\u{4e2d}\u{1f600}\u{fffd}A/'\\u0001\""
        );
    }

    #[test]
    fn errors_say_where_and_what() {
        let message = |text| parse(text).map(|v| v.to_string()).unwrap_err().to_string();
        assert_eq!(message(""), "at byte 0: expected a value, found end of text");
        assert_eq!(message("{\"a\":1"), "at byte 6: expected `,` or `}`, found end of text");
        assert_eq!(message("{\"a\" 1}"), "at byte 5: expected `:`, found '1'");
        assert_eq!(message("[1] x"), "at byte 4: expected end of text, found 'x'");
        assert_eq!(message("\0\0"), "at byte 0: expected a value, found '\\0'");
        assert_eq!(message("nil"), "at byte 0: expected a value, found 'n'");
        assert_eq!(message("\"ab"), "at byte 3: expected a quote that ends the string, found end of text");
        assert_eq!(message(r#""\u12é4""#), "at byte 3: expected hexadecimal digits, found '1'");
        assert_eq!(message(&"[".repeat(129)), "at byte 128: nested deeper than 128 levels");
    }
}
