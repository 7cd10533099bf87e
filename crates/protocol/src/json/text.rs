//! Java's text forms of strings and doubles.

use std::fmt::Write;

/// Which characters of a string are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// fastjson's default: `/` and non-ASCII raw (5.2 item 6).
    Legacy,
    /// fastjson's `BrowserCompatible`: plain ASCII, `/` as `\/`.
    Standard,
}

/// Appends `value` in double quotes.
pub(super) fn push_quoted(out: &mut String, value: &str, escapes: Escapes) {
    out.push('"');
    let mut plain_from = 0;
    for (at, c) in value.char_indices() {
        if !is_escaped(c, escapes) {
            continue;
        }
        out.push_str(&value[plain_from..at]);
        push_escape(out, c);
        plain_from = at + c.len_utf8();
    }
    out.push_str(&value[plain_from..]);
    out.push('"');
}

fn is_escaped(c: char, escapes: Escapes) -> bool {
    match c {
        '"' | '\\' | '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => true,
        '/' => escapes == Escapes::Standard,
        c => escapes == Escapes::Standard && !c.is_ascii(),
    }
}

fn push_escape(out: &mut String, c: char) {
    let short = match c {
        '"' => '"',
        '\\' => '\\',
        '/' => '/',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0c' => 'f',
        '\r' => 'r',
        _ => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04X}");
            }
            return;
        }
    };
    out.push('\\');
    out.push(short);
}

/// Appends what Java's `Double.toString` gives for the shortest digits Rust knows, `shortest` being the `{:e}` form of
/// a finite number: plain from 10⁻³ up to 10⁷, else `d.dE±n`, always with a fraction.
pub(super) fn push_java_double(out: &mut String, shortest: &str) {
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let or_zero = |digits: &str| if digits.is_empty() { "0".to_owned() } else { digits.to_owned() };
    out.push_str(sign);
    let _ = match exponent {
        0..=6 => {
            let point = exponent as usize;
            let padded = format!("{fraction:0<point$}");
            write!(out, "{whole}{}.{}", &padded[..point], or_zero(&padded[point..]))
        }
        -3..=-1 => write!(out, "0.{}{whole}{fraction}", "0".repeat(-exponent as usize - 1)),
        _ => write!(out, "{whole}.{}E{exponent}", or_zero(fraction)),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(value: &str, escapes: Escapes) -> String {
        let mut out = String::new();
        push_quoted(&mut out, value, escapes);
        out
    }

    #[test]
    fn escapes_of_the_spec_9_10() {
        let text = "\u{4e2d}\x7f\u{80}\u{9f}\u{a0}\u{2028}/<>&'\"\\\x08\x0c\n\r\t\0\x1f\u{1f600}";
        assert_eq!(
            quoted(text, Escapes::Legacy),
            "\"\u{4e2d}\\u007F\\u0080\\u009F\u{a0}\\u2028/<>&'\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001F\u{1f600}\""
        );
        assert_eq!(
            quoted(text, Escapes::Standard),
            r#""\u4E2D\u007F\u0080\u009F\u00A0\u2028\/<>&'\"\\\b\f\n\r\t\u0000\u001F\uD83D\uDE00""#
        );
    }

    #[test]
    fn doubles_read_as_java_prints_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (1.0e10, "1.0E10"),
            (100.0, "100.0"),
            (1234567.0, "1234567.0"),
            (9999999.5, "9999999.5"),
            (1.0e7, "1.0E7"),
            (12345678.9, "1.23456789E7"),
            (0.001, "0.001"),
            (0.0123, "0.0123"),
            (0.00099, "9.9E-4"),
            (-0.25, "-0.25"),
            (f64::MAX, "1.7976931348623157E308"),
        ];
        for (value, text) in cases {
            let mut out = String::new();
            push_java_double(&mut out, &format!("{value:e}"));
            assert_eq!(out, text);
        }
    }
}
