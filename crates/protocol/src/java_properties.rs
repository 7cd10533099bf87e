//! Java properties text: configuration files, and the bodies of the requests that read and change configurations
//! (`docs/spec/03-broker.md` 17.3).
//!
//! ```
//! use ferromq_protocol::java_properties;
//!
//! let properties = java_properties::parse(b"# a comment\nbrokerName = broker-a\nlistenPort:10911\n").unwrap();
//! assert_eq!((properties[1].key.as_str(), properties[1].value.as_str(), properties[1].line), ("listenPort", "10911", 3));
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use thiserror::Error;

/// One entry of a properties text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The key, unescaped.
    pub key: String,
    /// The value, unescaped. Blanks at its end are part of it, those before it are not.
    pub value: String,
    /// Number of the line that it begins in, from 1.
    pub line: usize,
}

/// The only thing that can be wrong with a properties text.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: `\\u` needs four hexadecimal digits after it; write `\\\\u` for a backslash and a u")]
pub struct BadUnicodeEscape {
    /// Number of the line, from 1.
    pub line: usize,
}

const BLANKS: [char; 3] = [' ', '\t', '\x0c'];

/// The entries in the order of the text. Of entries with the same key only the last one is there.
///
/// The text is UTF-8 if it is valid UTF-8, and ISO-8859-1 otherwise. (Java reads ISO-8859-1 only, and so garbles what
/// most editors write.)
pub fn parse(text: &[u8]) -> Result<Vec<Property>, BadUnicodeEscape> {
    let text = decode(text);
    let properties: Vec<Property> = entries(&text).map(|entry| property(&entry)).collect::<Result<_, _>>()?;
    let last_line: HashMap<_, _> =
        properties.iter().map(|property| (property.key.clone(), property.line)).collect();
    Ok(properties.into_iter().filter(|property| last_line[&property.key] == property.line).collect())
}

/// The text with some values changed. All else stays as it is, comments too. A key that is not there yet is appended.
pub fn edit(text: &[u8], changes: &[(&str, &str)]) -> Result<String, BadUnicodeEscape> {
    let text = decode(text);
    let line_of: HashMap<_, _> =
        parse(text.as_bytes())?.into_iter().map(|property| (property.line, property.key)).collect();
    let mut pending = changes.to_vec();
    let mut out = String::new();
    let mut copied = 0;
    for entry in entries(&text) {
        let key = line_of.get(&entry.line);
        let Some(change) = pending.iter().position(|(changed, _)| key.is_some_and(|key| key == changed))
        else {
            continue;
        };
        out.push_str(&text[copied..entry.at.start]);
        out.push_str(&write([pending.remove(change)]));
        copied = entry.at.end;
    }
    out.push_str(&text[copied..]);
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out.push_str(&write(pending));
    Ok(out)
}

/// UTF-8 or ISO-8859-1, any of the three line ends, to text whose lines end with `\n`.
fn decode(text: &[u8]) -> String {
    let text = match std::str::from_utf8(text) {
        Ok(text) => Cow::Borrowed(text.trim_start_matches('\u{feff}')),
        Err(_) => Cow::Owned(text.iter().map(|byte| char::from(*byte)).collect()),
    };
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// An entry as it stands, lines that end with a backslash joined with the next one.
struct Entry {
    joined: String,
    line: usize,
    /// Where it is in the text, line ends included.
    at: Range<usize>,
}

fn entries(text: &str) -> impl Iterator<Item = Entry> {
    let mut lines = (1..).zip(text.split_inclusive('\n'));
    let mut position = 0;
    std::iter::from_fn(move || {
        let mut entry = Entry { joined: String::new(), line: 0, at: 0..0 };
        for (line, content) in lines.by_ref() {
            let start = position;
            position += content.len();
            let content = content.trim_end_matches('\n').trim_start_matches(BLANKS);
            if entry.joined.is_empty() {
                if content.is_empty() || content.starts_with(['#', '!']) {
                    continue;
                }
                entry.line = line;
                entry.at.start = start;
            }
            entry.at.end = position;
            let backslashes = content.len() - content.trim_end_matches('\\').len();
            if backslashes % 2 == 0 {
                entry.joined.push_str(content);
                return Some(entry);
            }
            entry.joined.push_str(&content[..content.len() - 1]);
        }
        (!entry.joined.is_empty()).then_some(entry)
    })
}

/// Splits at the first `=`, `:` or blank that has no backslash before it.
fn property(entry: &Entry) -> Result<Property, BadUnicodeEscape> {
    let (joined, line) = (&entry.joined, entry.line);
    let mut escaped = false;
    let key_end = joined.find(|c: char| {
        let separates = !escaped && (c == '=' || c == ':' || BLANKS.contains(&c));
        escaped = c == '\\' && !escaped;
        separates
    });
    let (key, rest) = joined.split_at(key_end.unwrap_or(joined.len()));
    let rest = rest.trim_start_matches(BLANKS);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(BLANKS);
    let unescape = |text| unescape(text).ok_or(BadUnicodeEscape { line });
    Ok(Property { key: unescape(key)?, value: unescape(value)?, line })
}

/// `None` when a `\u` is not followed by four hexadecimal digits.
fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    // `\u` escapes are UTF-16 units: a character outside of the basic plane is written as two of them.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let plain = match c {
            '\\' => match rest.next() {
                Some('u') => {
                    let digits = rest.as_str().get(..4)?;
                    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                        return None;
                    }
                    units.push(u16::from_str_radix(digits, 16).ok()?);
                    rest = rest.as_str()[4..].chars();
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => continue,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}

/// One `key=value` line for each entry. What Java would read differently from how it stands there is escaped, which
/// makes the text the same as RocketMQ's for everything but backslashes, line breaks, and other than ASCII characters.
pub fn write<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (key, value) in entries {
        for (position, c) in key.chars().enumerate() {
            if matches!(c, ' ' | '=' | ':') || position == 0 && matches!(c, '#' | '!') {
                out.push('\\');
            }
            push_escaped(&mut out, c);
        }
        out.push('=');
        if value.starts_with(' ') {
            out.push('\\');
        }
        value.chars().for_each(|c| push_escaped(&mut out, c));
        out.push('\n');
    }
    out
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\x0c' => out.push_str("\\f"),
        ' '..='~' => out.push(c),
        _ => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: impl AsRef<[u8]>) -> Vec<(String, String)> {
        parse(text.as_ref()).unwrap().into_iter().map(|property| (property.key, property.value)).collect()
    }

    fn pair(text: impl AsRef<[u8]>) -> (String, String) {
        let mut pairs = pairs(text);
        assert_eq!(pairs.len(), 1);
        pairs.remove(0)
    }

    fn owned(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    /// `docs/spec/03-broker.md` 20.5.
    #[test]
    fn reads_the_reference_example() {
        let text = "a = 1 \nb:2\n# c\nd\\u0041=\\u4e2d\ne=x\\\n  y\n";
        assert_eq!(pairs(text), [owned("a", "1 "), owned("b", "2"), owned("dA", "中"), owned("e", "xy")]);
    }

    #[test]
    fn separators() {
        for text in ["k=v", "k:v", "k v", "k\tv", "  k = v", "k : v", "k  v", "k\x0c=\x0cv"] {
            assert_eq!(pair(text), owned("k", "v"), "{text:?}");
        }
        assert_eq!(pair("k = = v"), owned("k", "= v"));
        assert_eq!(pair("k"), owned("k", ""));
        assert_eq!(pair("=v"), owned("", "v"));
        assert_eq!(pair(r"a\ b\=c\:d=e"), owned("a b=c:d", "e"));
        assert_eq!(pair(r"a\\=v"), owned("a\\", "v"));
    }

    #[test]
    fn values_keep_their_blanks() {
        assert_eq!(pair("messageDelayLevel=1s 5s 10s"), owned("messageDelayLevel", "1s 5s 10s"));
        assert_eq!(pair("metricsLabel=a:b,c=d"), owned("metricsLabel", "a:b,c=d"));
    }

    #[test]
    fn comments_and_empty_lines_are_nothing() {
        assert_eq!(pairs("\n  # a=b\n!c=d\\\n\t\n"), []);
        assert_eq!(pair("a=b # not a comment"), owned("a", "b # not a comment"));
    }

    #[test]
    fn lines_are_joined_by_a_backslash() {
        assert_eq!(pair("a=1,\\\n   2,\\\r\n\t3"), owned("a", "1,2,3"));
        assert_eq!(pair("a=1\\\\"), owned("a", "1\\"));
        assert_eq!(pairs("a=1\\\n\nb=2"), [owned("a", "1"), owned("b", "2")]);
        assert_eq!(pair("a=1\\\n#2"), owned("a", "1#2"));
        assert_eq!(pair("a=1\\"), owned("a", "1"));
    }

    #[test]
    fn line_numbers_count_joined_and_ignored_lines() {
        let lines: Vec<_> =
            parse(b"# one\r\na=\\\r\n1\r\rb=2\nc=3").unwrap().iter().map(|property| property.line).collect();
        assert_eq!(lines, [2, 5, 6]);
    }

    #[test]
    fn the_last_of_equal_keys_wins() {
        let properties = parse(b"a=1\nb=2\na=3").unwrap();
        assert_eq!(properties.len(), 2);
        assert_eq!(properties[1], Property { key: "a".into(), value: "3".into(), line: 3 });
    }

    #[test]
    fn escapes() {
        assert_eq!(pair(r"a=\t\n\r\f\q\\\ "), owned("a", "\t\n\r\x0cq\\ "));
        assert_eq!(pair(r"a=\ud83d\ude00"), owned("a", "😀"));
        assert_eq!(parse(b"x=1\na=\\u12g4"), Err(BadUnicodeEscape { line: 2 }));
        assert_eq!(parse(b"a=\\u+123"), Err(BadUnicodeEscape { line: 1 }));
        assert_eq!(parse("a=\\u00é9".as_bytes()), Err(BadUnicodeEscape { line: 1 }));
    }

    #[test]
    fn reads_utf_8_and_latin_1() {
        assert_eq!(pair("\u{feff}a=中é"), owned("a", "中é"));
        assert_eq!(pair(b"a=\xe9"), owned("a", "é"));
    }

    #[test]
    fn writes_what_java_reads_back() {
        let text = write([("a", "1s 5s;x=y:z#!"), ("b c", " \\中😀\n"), ("#d", "")]);
        assert_eq!(text, "a=1s 5s;x=y:z#!\nb\\ c=\\ \\\\\\u4E2D\\uD83D\\uDE00\\n\n\\#d=\n");
    }

    #[test]
    fn edits_leave_everything_else_as_it_is() {
        let text = b"# mine\r\n  a = 1\r\nb=x\\\n  y\n! end\na: 2\nc=3";
        let edited = edit(text, &[("b", "z z"), ("a", "9"), ("d", "new")]).unwrap();
        assert_eq!(edited, "# mine\n  a = 1\nb=z z\n! end\na=9\nc=3\nd=new\n");
        assert_eq!(edit(b"", &[("a", "1")]).unwrap(), "a=1\n");
        assert_eq!(edit(b"a=1", &[]).unwrap(), "a=1\n");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(key in "\\PC{1,12}", value in "(\\PC|[ \t\n\r\x0c\\\\=:#!]){0,20}") {
            prop_assert_eq!(pair(write([(key.as_str(), value.as_str())])), (key, value));
        }

        #[test]
        fn reads_anything(text: Vec<u8>) {
            let _ = parse(&text);
        }
    }
}
