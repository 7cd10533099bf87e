//! Commands that own their parts: everything that is not on the hot path reads and writes these.

use std::borrow::Cow;

use bytes::Bytes;
use thiserror::Error;

use crate::code;
pub use crate::field_list::{FieldList, FieldText};
use crate::frame::{self, HeaderEncoding};
use crate::header::{
    FLAG_ONEWAY, FLAG_RESPONSE, FieldOut, FieldValue, Head, HeaderError, HeaderScratch, Request, begin_frame,
};
use crate::version::{self, Language};

/// A request or a response (`docs/spec/01-remoting.md` 1.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemotingCommand {
    /// Request or response code.
    pub code: i32,
    /// Language of the sender; `None` when it named an unknown one.
    pub language: Option<Language>,
    /// Version of the sender.
    pub version: i32,
    /// Correlation id, chosen by the requester.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`], [`FLAG_ONEWAY`].
    pub flag: i32,
    /// Text for people.
    pub remark: Option<String>,
    /// Header fields. `None` and empty differ on the wire, and clients rely on it (1.11).
    pub fields: Option<FieldList>,
    /// Empty means none.
    pub body: Bytes,
}

/// A header field that a handler can't work with. It becomes the remark of a SYSTEM_ERROR (1.4).
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FieldError {
    /// The request does not have it.
    #[error("{request} needs header field `{field}`")]
    Missing {
        /// Name of the request code.
        request: &'static str,
        /// Name of the field.
        field: &'static str,
    },
    /// It is there, but it is not what it should be.
    #[error("header field `{field}` of {request} is not {wanted}: `{value}`")]
    Invalid {
        /// Name of the request code.
        request: &'static str,
        /// Name of the field.
        field: &'static str,
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        value: String,
    },
}

/// Reads the values of the hot headers, which are not commands, with the same errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldReader {
    request: &'static str,
}

impl FieldReader {
    pub(crate) fn of(code: i32) -> Self {
        Self { request: code::request::name(code) }
    }

    pub(crate) fn int(self, field: &'static str, value: &FieldValue<'_>) -> Result<i32, FieldError> {
        value.int().ok_or_else(|| self.invalid(field, "a 32-bit number", value))
    }

    pub(crate) fn long(self, field: &'static str, value: &FieldValue<'_>) -> Result<i64, FieldError> {
        value.number().ok_or_else(|| self.invalid(field, "a 64-bit number", value))
    }

    pub(crate) fn text<'a>(
        self,
        field: &'static str,
        value: &FieldValue<'a>,
    ) -> Result<Cow<'a, str>, FieldError> {
        value.text().map_err(|_| self.invalid(field, "UTF-8 text", value))
    }

    pub(crate) fn missing(self, field: &'static str) -> FieldError {
        FieldError::Missing { request: self.request, field }
    }

    fn invalid(self, field: &'static str, wanted: &'static str, value: &FieldValue<'_>) -> FieldError {
        let raw = value.raw();
        let value = String::from_utf8_lossy(&raw[..raw.len().min(64)]).into_owned();
        FieldError::Invalid { request: self.request, field, wanted, value }
    }
}

impl RemotingCommand {
    /// A request; the connection that sends it gives it its `opaque`.
    pub fn request(code: i32) -> Self {
        Self { code, language: Some(Language::JAVA), version: version::CURRENT, ..Self::default() }
    }

    /// A response without field map; the connection that sends it gives it the request's `opaque`.
    pub fn response(code: i32) -> Self {
        Self { flag: FLAG_RESPONSE, ..Self::request(code) }
    }

    /// A response with code 0.
    pub fn success() -> Self {
        Self::response(code::response::SUCCESS)
    }

    /// A response that says what went wrong.
    pub fn error(code: i32, remark: impl Into<String>) -> Self {
        Self { remark: Some(remark.into()), ..Self::response(code) }
    }

    /// The answer to a request that nobody here knows (`docs/spec/01-remoting.md` 3).
    pub fn not_supported(request_code: i32) -> Self {
        // The blank in front is the reference's.
        let remark = format!(" request type {request_code} not supported");
        Self::error(code::response::REQUEST_CODE_NOT_SUPPORTED, remark)
    }

    /// The same with a body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same with a remark.
    #[must_use]
    pub fn with_remark(mut self, remark: impl Into<String>) -> Self {
        self.remark = Some(remark.into());
        self
    }

    /// The same with one more header field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl FieldText) -> Self {
        self.fields.get_or_insert_default().push(name, value);
        self
    }

    /// The same with one more header field if there is a value.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl FieldText>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The same with a field map, be it empty.
    #[must_use]
    pub fn with_field_map(mut self) -> Self {
        self.fields.get_or_insert_default();
        self
    }

    /// Whether the sender expects no answer.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// Whether this is an answer.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// A header field that may be absent.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.as_ref()?.get(name)
    }

    /// A header field that has to be there.
    pub fn text(&self, field: &'static str) -> Result<&str, FieldError> {
        self.field(field)
            .ok_or_else(|| FieldError::Missing { request: code::request::name(self.code), field })
    }

    /// A header field that has to be a number of the wanted width.
    pub fn number<N: TryFrom<i64>>(&self, field: &'static str) -> Result<N, FieldError> {
        parse_number(self.code, field, self.text(field)?)
    }

    /// A header field that is a number if it is there. Like the reference, an empty one counts as absent.
    pub fn number_or_none<N: TryFrom<i64>>(&self, field: &'static str) -> Result<Option<N>, FieldError> {
        self.field(field)
            .filter(|text| !text.is_empty())
            .map(|text| parse_number(self.code, field, text))
            .transpose()
    }

    /// A header field that is a boolean: `true` in any case is true, anything else and nothing are false.
    pub fn boolean(&self, field: &str) -> bool {
        self.field(field).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// Appends the whole frame to `out`.
    pub fn encode(&self, encoding: HeaderEncoding, out: &mut Vec<u8>) {
        self.encode_as(self.opaque, self.flag, encoding, out);
    }

    /// The same with another correlation id and other flags: one command can be sent several times.
    pub fn encode_as(&self, opaque: i32, flag: i32, encoding: HeaderEncoding, out: &mut Vec<u8>) {
        let head = Head {
            code: self.code,
            opaque,
            flag,
            language: self.language.unwrap_or_default(),
            version: self.version,
            remark: self.remark.as_deref(),
        };
        let fields = self.fields.as_ref();
        let fields = fields.map(|fields| fields.iter().map(|(name, value)| (name, FieldOut::Text(value))));
        let (start, header_end) = begin_frame(out, encoding, &head, fields);
        out.extend_from_slice(&self.body);
        frame::finish(out, start, header_end, encoding);
    }

    /// The command in one whole frame.
    pub fn decode(frame: &frame::Frame<'_>) -> Result<Self, HeaderError> {
        Self::from_request(&HeaderScratch::default().parse(frame)?)
    }

    /// An owned copy of what a connection read.
    pub fn from_request(request: &Request<'_>) -> Result<Self, HeaderError> {
        let fields = request.fields.is_present().then(|| FieldList::read(&request.fields)).transpose()?;
        Ok(Self {
            code: request.code,
            language: request.language,
            version: request.version,
            opaque: request.opaque,
            flag: request.flag,
            remark: request.remark().map(|remark| remark.into_owned()),
            fields,
            body: Bytes::copy_from_slice(request.body),
        })
    }
}

fn parse_number<N: TryFrom<i64>>(code: i32, field: &'static str, text: &str) -> Result<N, FieldError> {
    let number = crate::header::parse_decimal(text.as_bytes()).and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| FieldError::Invalid {
        request: code::request::name(code),
        field,
        wanted: if size_of::<N>() > 4 { "a 64-bit number" } else { "a 32-bit number" },
        value: text.chars().take(64).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_in_both_encodings() {
        let mut command =
            RemotingCommand::error(17, "no \u{1}\"route\" for 中文").with("topic", "T").with("n", -5);
        command.opaque = -7;
        command.body = Bytes::from_static(b"body");
        for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
            let mut bytes = Vec::new();
            command.encode(encoding, &mut bytes);
            let (frame, length) = frame::split(&bytes).unwrap().unwrap();
            assert_eq!(length, bytes.len());
            assert_eq!(RemotingCommand::decode(&frame).unwrap(), command);
        }
    }

    #[test]
    fn a_missing_or_broken_field_is_named() {
        let command = RemotingCommand::request(code::request::PULL_MESSAGE).with("queueId", "x1");
        let missing = command.text("topic").unwrap_err().to_string();
        assert_eq!(missing, "PULL_MESSAGE needs header field `topic`");
        let invalid = command.number::<i32>("queueId").unwrap_err().to_string();
        assert_eq!(invalid, "header field `queueId` of PULL_MESSAGE is not a 32-bit number: `x1`");
    }
}
