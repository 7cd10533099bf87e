//! Frames: where one ends and the next begins (`docs/spec/01-remoting.md` 1.1).

use thiserror::Error;

/// Largest frame, its own 4-byte length field included (1.1 rule 1).
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes in front of the header: the length of the rest, and the header's encoding and length.
pub const FRAME_PREFIX_BYTES: usize = 8;

/// How a frame's header is written: the byte in front of the 24-bit header length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderEncoding {
    /// A JSON object (1.2).
    #[default]
    Json,
    /// RocketMQ's own binary form (1.3).
    Binary,
}

impl HeaderEncoding {
    /// The byte that names this encoding in a frame.
    pub fn wire_byte(self) -> u8 {
        match self {
            Self::Json => 0,
            Self::Binary => 1,
        }
    }

    /// The value of `rocketmq.serialize.type` and of `serializeTypeCurrentRPC`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Binary => "ROCKETMQ",
        }
    }
}

/// One whole frame, borrowed from the bytes that a socket brought.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// How the header is written.
    pub encoding: HeaderEncoding,
    /// Header and body, without the 8 bytes in front of them.
    payload: &'a [u8],
    header_length: usize,
}

impl<'a> Frame<'a> {
    /// The header.
    pub fn header(&self) -> &'a [u8] {
        &self.payload[..self.header_length]
    }

    /// Everything behind the header; empty means "no body".
    pub fn body(&self) -> &'a [u8] {
        self.after(self.header_length)
    }

    /// Everything behind byte `header_end` of the payload: the body of a frame whose binary header ended there
    /// (1.1 rule 5).
    pub fn after(&self, header_end: usize) -> &'a [u8] {
        &self.payload[header_end..]
    }
}

/// Why bytes can't be a frame. Nothing behind such bytes can be trusted: the connection has to be closed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The announced length is above [`FRAME_BYTES_MAX`] (or negative, read as signed).
    #[error("frame of {announced} bytes announced, the limit is {FRAME_BYTES_MAX}")]
    TooLong {
        /// What the length field and the field itself add up to.
        announced: u64,
    },
    /// A frame holds at least the 4 bytes of encoding and header length.
    #[error("frame of {announced} bytes announced, too short for a header")]
    TooShort {
        /// What the length field says.
        announced: u32,
    },
    /// The header would end behind the frame.
    #[error("header of {header} bytes announced in a frame of {frame} bytes")]
    HeaderBeyondFrame {
        /// Announced header length.
        header: u32,
        /// What the length field says.
        frame: u32,
    },
    /// The encoding byte is neither 0 nor 1.
    #[error("unknown header encoding {0}")]
    UnknownEncoding(u8),
}

/// Looks at the start of `bytes` for one frame and returns it with its length in `bytes`.
///
/// `None` means that more bytes are needed. Whatever the first 8 bytes already prove wrong is reported at once, so
/// that a peer can't make the reader wait for (and hold memory for) a frame that will be refused anyway.
pub fn split(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length);
    if length as usize > FRAME_BYTES_MAX - 4 {
        return Err(FrameError::TooLong { announced: u64::from(length) + 4 });
    }
    if length < 4 {
        return Err(FrameError::TooShort { announced: length });
    }
    let Some(mark) = bytes.get(4..8) else { return Ok(None) };
    let encoding = match mark[0] {
        0 => HeaderEncoding::Json,
        1 => HeaderEncoding::Binary,
        other => return Err(FrameError::UnknownEncoding(other)),
    };
    let header_length = u32::from_be_bytes([0, mark[1], mark[2], mark[3]]);
    if header_length > length - 4 {
        return Err(FrameError::HeaderBeyondFrame { header: header_length, frame: length });
    }
    let end = 4 + length as usize;
    let Some(payload) = bytes.get(FRAME_PREFIX_BYTES..end) else { return Ok(None) };
    Ok(Some((Frame { encoding, payload, header_length: header_length as usize }, end)))
}

/// Bytes that the frame at the start of `bytes` needs in all, once its length field is there.
pub fn announced_bytes(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize + 4)
}

/// Writes the 8 bytes in front of a header as zeros and returns where they stand, for [`finish`].
pub fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_PREFIX_BYTES]);
    start
}

/// Fills in the 8 bytes that [`begin`] left open, when the header ended at `header_end` and the body at the end of
/// `out`.
///
/// # Panics
/// If the frame is above what a length field can say: our own answers are bounded long before.
pub fn finish(out: &mut [u8], start: usize, header_end: usize, encoding: HeaderEncoding) {
    let length = u32::try_from(out.len() - start - 4).expect("a frame is bounded by its contents");
    let header_length = (header_end - start - FRAME_PREFIX_BYTES) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    out[start + 4..start + 8].copy_from_slice(&header_length.to_be_bytes());
    out[start + 4] = encoding.wire_byte();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_reference() {
        // docs/spec/01-remoting.md 9.8
        assert!(matches!(split(&16_777_212u32.to_be_bytes()), Ok(None)));
        assert!(matches!(split(&16_777_213u32.to_be_bytes()), Err(FrameError::TooLong { .. })));
        assert!(matches!(split(&[0xff; 4]), Err(FrameError::TooLong { .. })));
        assert!(matches!(split(&3u32.to_be_bytes()), Err(FrameError::TooShort { announced: 3 })));
        assert_eq!(
            split(&[0, 0, 0, 8, 0, 0, 0, 5]).unwrap_err(),
            FrameError::HeaderBeyondFrame { header: 5, frame: 8 }
        );
        assert_eq!(split(&[0, 0, 0, 8, 2, 0, 0, 0]).unwrap_err(), FrameError::UnknownEncoding(2));
    }

    #[test]
    fn splits_header_and_body_and_leaves_the_rest() {
        let mut bytes = Vec::new();
        let start = begin(&mut bytes);
        bytes.extend_from_slice(b"head");
        let header_end = bytes.len();
        bytes.extend_from_slice(b"body");
        finish(&mut bytes, start, header_end, HeaderEncoding::Binary);
        bytes.extend_from_slice(b"next");
        let (frame, length) = split(&bytes).unwrap().unwrap();
        assert_eq!(frame.encoding, HeaderEncoding::Binary);
        assert_eq!((frame.header(), frame.body()), (&b"head"[..], &b"body"[..]));
        assert_eq!(&bytes[length..], b"next");
        for cut in 0..length {
            assert!(split(&bytes[..cut]).unwrap().is_none());
        }
    }
}
