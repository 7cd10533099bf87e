//! The body of a batch send (`docs/spec/01-remoting.md` §6.2.2, `02-store.md` §4.7).

/// One message of a batch body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMessage<'a> {
    /// The client's flag.
    pub flag: i32,
    /// Body.
    pub body: &'a [u8],
    /// Encoded properties ([`super::properties`]).
    pub properties: &'a [u8],
}

/// A batch body whose lengths do not add up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message {index} of the batch, at byte {at}, is malformed: {reason}")]
pub struct BatchError {
    /// Which message, from 0.
    pub index: usize,
    /// Where it begins in the body.
    pub at: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// The messages of a batch body. Ends after the first error.
pub fn iter(body: &[u8]) -> BatchMessages<'_> {
    BatchMessages { body, at: 0, index: 0 }
}

/// Appends one message to a batch body.
///
/// Returns `false`, and appends nothing, when the properties are longer than 32767 bytes or the body than 2 GiB.
pub fn append(out: &mut Vec<u8>, message: &BatchMessage<'_>) -> bool {
    let Ok(properties_len) = i16::try_from(message.properties.len()) else { return false };
    let Ok(total) = i32::try_from(22 + message.body.len() + message.properties.len()) else { return false };
    out.extend_from_slice(&total.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&message.flag.to_be_bytes());
    out.extend_from_slice(&(message.body.len() as u32).to_be_bytes());
    out.extend_from_slice(message.body);
    out.extend_from_slice(&properties_len.to_be_bytes());
    out.extend_from_slice(message.properties);
    true
}

/// Iterator of [`iter`].
#[derive(Debug, Clone)]
pub struct BatchMessages<'a> {
    body: &'a [u8],
    at: usize,
    index: usize,
}

impl<'a> BatchMessages<'a> {
    fn parse(message: &'a [u8]) -> Result<(usize, BatchMessage<'a>), &'static str> {
        let int = |at: usize| message.get(at..at + 4).map(|b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        let (Some(total), Some(flag), Some(body_len)) = (int(0), int(12), int(16)) else {
            return Err("fewer bytes than a message's front");
        };
        let Some(message) = usize::try_from(total).ok().and_then(|total| message.get(..total)) else {
            return Err("its size goes beyond the batch");
        };
        let Some(after_body) = usize::try_from(body_len).ok().and_then(|len| len.checked_add(20)) else {
            return Err("its body length is negative");
        };
        let (Some(body), Some(len)) = (message.get(20..after_body), message.get(after_body..after_body + 2))
        else {
            return Err("its body length goes beyond its size");
        };
        let properties = &message[after_body + 2..];
        if usize::try_from(i16::from_be_bytes([len[0], len[1]])) != Ok(properties.len()) {
            return Err("its parts do not add up to its size");
        }
        Ok((message.len(), BatchMessage { flag, body, properties }))
    }
}

impl<'a> Iterator for BatchMessages<'a> {
    type Item = Result<BatchMessage<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.body.len() {
            return None;
        }
        match Self::parse(&self.body[self.at..]) {
            Ok((size, message)) => {
                self.at += size;
                self.index += 1;
                Some(Ok(message))
            }
            Err(reason) => {
                let error = BatchError { index: self.index, at: self.at, reason };
                self.at = self.body.len();
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_the_recorded_batch() {
        // docs/spec/01-remoting.md §9.13
        let messages = [
            BatchMessage { flag: 7, body: b"m1", properties: b"" },
            BatchMessage { flag: 0, body: b"mm2", properties: b"TAGS\x01A\x02" },
        ];
        let mut body = Vec::new();
        for message in &messages {
            assert!(append(&mut body, message));
        }
        let expected = [
            &b"\0\0\0\x18\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\x02m1\0\0"[..],
            b"\0\0\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03mm2\0\x07TAGS\x01A\x02",
        ]
        .concat();
        assert_eq!(body, expected);
        let read: Vec<_> = iter(&body).collect::<Result<_, _>>().unwrap();
        assert_eq!(read, messages);
    }

    #[test]
    fn every_cut_is_an_error_and_ends_the_iteration() {
        let mut body = Vec::new();
        append(&mut body, &BatchMessage { flag: 1, body: b"hello", properties: b"a\x01b\x02" });
        let whole = body.len();
        append(&mut body, &BatchMessage { flag: 2, body: b"x", properties: b"" });
        for cut in (1..body.len()).filter(|cut| *cut != whole) {
            let results: Vec<_> = iter(&body[..cut]).collect();
            assert!(results.last().unwrap().is_err(), "cut at {cut}");
            assert!(results.len() <= 2);
        }
        body[16] = 0x80;
        assert!(iter(&body).next().unwrap().is_err());
    }
}
