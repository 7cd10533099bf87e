//! Reading only what is needed of an answer.

use ferromq_protocol::frame::{Frame, HeaderEncoding};
use ferromq_protocol::header::{HeaderError, HeaderScratch};
use memchr::memmem::Finder;

/// Code and number of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// Response code.
    pub(super) code: i32,
    /// Number of the request.
    pub(super) opaque: i32,
}

/// Reads answers as servers write them by searching for the wanted members; everything that looks different is parsed
/// properly. Searching is safe, because a quotation mark inside of a JSON string has a backslash in front.
pub(super) struct AnswerReader {
    opaque: Finder<'static>,
    response_flag: Finder<'static>,
    scratch: HeaderScratch,
}

/// In front of the number, only the flag and the language (both in this space) are behind the fields.
const FLAG_AND_LANGUAGE_BYTES: usize = 48;

impl AnswerReader {
    pub(super) fn new() -> Self {
        Self {
            opaque: Finder::new(b"\"opaque\":"),
            response_flag: Finder::new(b"\"flag\":1,"),
            scratch: HeaderScratch::default(),
        }
    }

    /// Code and number of an answer; `None` for a request of the server's own.
    pub(super) fn read(&mut self, frame: &Frame<'_>) -> Result<Option<Answer>, HeaderError> {
        let found = match frame.encoding {
            HeaderEncoding::Json => self.read_json(frame.header()),
            HeaderEncoding::Binary => read_binary(frame.header()),
        };
        if found.is_some() {
            return Ok(found);
        }
        let answer = self.scratch.parse(frame)?;
        Ok(answer.is_response().then_some(Answer { code: answer.code, opaque: answer.opaque }))
    }

    fn read_json(&self, header: &[u8]) -> Option<Answer> {
        let code = leading_number(header.strip_prefix(b"{\"code\":")?)?;
        // A request of the server's own has flag 0 or 2 and goes the slow way.
        let opaque_at = self.opaque.find(header)?;
        let is_response = self
            .response_flag
            .find(&header[opaque_at.saturating_sub(FLAG_AND_LANGUAGE_BYTES)..opaque_at])
            .is_some();
        let opaque = leading_number(&header[opaque_at + self.opaque.needle().len()..])?;
        let answer = Answer { code: i32::try_from(code).ok()?, opaque: i32::try_from(opaque).ok()? };
        is_response.then_some(answer)
    }
}

fn read_binary(header: &[u8]) -> Option<Answer> {
    let code = i16::from_be_bytes(header.get(..2)?.try_into().ok()?);
    let opaque = i32::from_be_bytes(header.get(5..9)?.try_into().ok()?);
    let flag = i32::from_be_bytes(header.get(9..13)?.try_into().ok()?);
    (flag == 1).then_some(Answer { code: i32::from(code), opaque })
}

/// Finds one header field with a number.
pub(super) struct NumberField {
    json: Finder<'static>,
    binary: Finder<'static>,
}

impl NumberField {
    pub(super) fn new(name: &str) -> Self {
        let json = format!("\"{name}\":\"");
        let mut binary = (name.len() as u16).to_be_bytes().to_vec();
        binary.extend_from_slice(name.as_bytes());
        Self { json: Finder::new(&json).into_owned(), binary: Finder::new(&binary).into_owned() }
    }

    /// The field's value in a header that was already recognised as an answer.
    pub(super) fn read(&self, frame: &Frame<'_>) -> Option<i64> {
        let header = frame.header();
        match frame.encoding {
            HeaderEncoding::Json => {
                leading_number(&header[self.json.find(header)? + self.json.needle().len()..])
            }
            HeaderEncoding::Binary => {
                let (length, value) =
                    header[self.binary.find(header)? + self.binary.needle().len()..].split_first_chunk()?;
                leading_number(value.get(..u32::from_be_bytes(*length) as usize)?)
            }
        }
    }
}

/// The decimal number that `text` begins with.
fn leading_number(text: &[u8]) -> Option<i64> {
    let (is_negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 18 {
        return None;
    }
    let number = text[..digits].iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    Some(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::command::RemotingCommand;
    use ferromq_protocol::frame;

    use super::*;

    fn read(bytes: &[u8]) -> (Option<Answer>, Option<i64>) {
        let (frame, _) = frame::split(bytes).unwrap().unwrap();
        (AnswerReader::new().read(&frame).unwrap(), NumberField::new("queueOffset").read(&frame))
    }

    #[test]
    fn answers_are_read_in_both_encodings() {
        let mut command =
            RemotingCommand::error(-5, "no \"opaque\":7 here").with("queueId", 3).with("queueOffset", 12_345);
        command.opaque = 1_000_000_009;
        for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
            let mut bytes = Vec::new();
            command.encode(encoding, &mut bytes);
            assert_eq!(read(&bytes), (Some(Answer { code: -5, opaque: 1_000_000_009 }), Some(12_345)));
        }
    }

    #[test]
    fn unusual_answers_are_parsed_properly() {
        let header = br#"{ "flag" : 1, "opaque": 12, "code": 17 }"#;
        let mut bytes = ((header.len() + 4) as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(&(header.len() as u32).to_be_bytes());
        bytes.extend_from_slice(header);
        assert_eq!(read(&bytes), (Some(Answer { code: 17, opaque: 12 }), None));
    }

    #[test]
    fn requests_of_the_server_are_no_answers() {
        for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
            let mut bytes = Vec::new();
            RemotingCommand::request(40).with("consumerGroup", "\"flag\":1,").encode(encoding, &mut bytes);
            assert_eq!(read(&bytes).0, None);
        }
    }
}
