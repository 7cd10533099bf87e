//! The ROCKETMQ binary header (`docs/spec/01-remoting.md` 1.3).

use super::{FieldSpan, Form, HEADER_FIELDS_MAX, HeaderError, Parts, Span};
use crate::version::Language;

/// Reads big-endian pieces of a header and says which one left it.
struct Reader<'a> {
    header: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, length: i64, what: &'static str) -> Result<Span, HeaderError> {
        let start = self.at;
        let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
        match end {
            Some(end) if end <= self.header.len() => {
                self.at = end;
                Ok(Span::new(start, end))
            }
            _ => Err(HeaderError::Binary { what, length, at: start, header: self.header.len() }),
        }
    }

    fn number<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], HeaderError> {
        let span = self.take(N as i64, what)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(span.of(self.header));
        Ok(bytes)
    }

    fn i32(&mut self, what: &'static str) -> Result<i32, HeaderError> {
        self.number(what).map(i32::from_be_bytes)
    }

    fn i16(&mut self, what: &'static str) -> Result<i16, HeaderError> {
        self.number(what).map(i16::from_be_bytes)
    }
}

/// Parses `header` and returns where its parts end.
pub(super) fn parse(header: &[u8], fields: &mut Vec<FieldSpan>) -> Result<(Parts, usize), HeaderError> {
    let mut reader = Reader { header, at: 0 };
    let mut parts = Parts {
        code: i32::from(reader.i16("code")?),
        language: Language::from_code(reader.number::<1>("language")?[0]),
        version: i32::from(reader.i16("version")?),
        opaque: Some(reader.i32("opaque")?),
        flag: reader.i32("flag")?,
        ..Parts::default()
    };
    let remark_length = reader.i32("remark length")?;
    let remark = reader.take(i64::from(remark_length), "remark")?;
    if remark_length > 0 {
        parts.remark = Some((remark, Form::Plain));
    }
    let fields_length = reader.i32("field map length")?;
    let map = reader.take(i64::from(fields_length), "field map")?;
    parts.has_fields = fields_length > 0;
    let end = reader.at;
    let mut entries = Reader { header: &header[..map.end as usize], at: map.start as usize };
    while entries.at < map.end as usize {
        if fields.len() == HEADER_FIELDS_MAX {
            return Err(HeaderError::TooManyFields);
        }
        let key_length = entries.i16("field name length")?;
        let key = entries.take(i64::from(key_length), "field name")?;
        let value_length = entries.i32("field value length")?;
        let value = entries.take(i64::from(value_length), "field value")?;
        // A length of zero reads as null, for names too.
        let form = if key_length == 0 || value_length == 0 { Form::Null } else { Form::Plain };
        fields.push(FieldSpan { key, value, form });
    }
    Ok((parts, end))
}
