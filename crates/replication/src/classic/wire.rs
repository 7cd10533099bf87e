//! The two kinds of bytes on the wire (`docs/spec/05-ha.md` §2.1, §2.2).

use bytes::{Buf as _, BytesMut};

/// Length of a slave's report: one offset.
pub const REPORT_LEN: usize = 8;
/// Length of the header of a master's frame: an offset and the body's length.
pub const HEADER_LEN: usize = 12;
/// Most bytes of a frame: what the Java slave's buffer holds.
pub const FRAME_LEN_MAX: usize = 4 << 20;

/// What precedes the bytes that a master sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Where the body lies in the log; in a heartbeat, where the next one will.
    pub offset: i64,
    /// Bytes of the body; 0 in a heartbeat.
    pub len: i32,
}

impl FrameHeader {
    /// As it is sent.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Reads it from the front of what has come, if it is all there.
    pub fn peek(received: &[u8]) -> Option<FrameHeader> {
        let mut front = received.get(..HEADER_LEN)?;
        Some(FrameHeader { offset: front.get_i64(), len: front.get_i32() })
    }
}

/// A slave's report of an offset, as it is sent.
pub fn encode_report(offset: u64) -> [u8; REPORT_LEN] {
    offset.to_be_bytes()
}

/// Takes the next report from the front of what has come, if it is all there.
pub fn take_report(received: &mut BytesMut) -> Option<i64> {
    (received.len() >= REPORT_LEN).then(|| received.get_i64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// `docs/spec/05-ha.md` §15.1.
    #[test]
    fn the_bytes_of_the_reference() {
        assert_eq!(hex(&encode_report(0)), "0000000000000000");
        assert_eq!(hex(&encode_report(1_073_745_920)), "0000000040001000");
        let heartbeat = FrameHeader { offset: 1_073_745_920, len: 0 };
        assert_eq!(hex(&heartbeat.encode()), "000000004000100000000000");
        let header = FrameHeader { offset: 1_073_745_920, len: 4 };
        assert_eq!(hex(&header.encode()), "000000004000100000000004");
        assert_eq!(FrameHeader::peek(&[&header.encode()[..], b"ABCD"].concat()), Some(header));
        assert_eq!(FrameHeader::peek(&header.encode()[..11]), None);
    }

    #[test]
    fn reports_come_in_any_pieces() {
        let mut received = BytesMut::new();
        for report in [100u64, 200, 300] {
            received.extend_from_slice(&encode_report(report));
        }
        received.extend_from_slice(&[0, 0, 0]);
        let reports: Vec<i64> = std::iter::from_fn(|| take_report(&mut received)).collect();
        assert_eq!((reports, received.len()), (vec![100, 200, 300], 3));
    }
}
