//! The four kinds of bytes on the wire (`docs/spec/05-ha.md` 9.2 to 9.4).

use bytes::{Buf as _, BytesMut};

use super::epochs::{Epoch, Epochs};

/// First number of a handshake.
const HANDSHAKE: i32 = 1;
/// First number of everything that follows.
const TRANSFER: i32 = 2;

/// Length of a slave's handshake.
pub const SLAVE_HANDSHAKE_LEN: usize = 16;
/// Length of a slave's report.
pub const REPORT_LEN: usize = 12;
/// Length of the front of a master's handshake.
const MASTER_HANDSHAKE_LEN: usize = 20;
/// Length of an epoch in it.
const EPOCH_LEN: usize = 12;
/// Length of the header of a master's frame.
pub const FRAME_HEADER_LEN: usize = 36;
/// Most bytes of a frame: what the Java slave's buffer holds.
pub const FRAME_LEN_MAX: usize = 4 << 20;
/// Most epochs that are read.
const EPOCHS_MAX: usize = 100_000;

/// Something that can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side sent what is no message of the HA protocol of controller mode ({what} {number})")]
pub struct Unreadable {
    /// Which number is wrong.
    pub what: &'static str,
    /// The number.
    pub number: i64,
}

/// What a slave sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfSlave {
    /// Who it is and how it wants to begin.
    Handshake {
        /// An empty log begins with the master's last file.
        from_last_file: bool,
        /// Never to be a part of the SyncStateSet.
        is_learner: bool,
        /// Its id in the set.
        id: i64,
    },
    /// Up to where its log reaches.
    Report(u64),
}

impl OfSlave {
    /// As it is sent.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLAVE_HANDSHAKE_LEN);
        match self {
            Self::Handshake { from_last_file, is_learner, id } => {
                bytes.extend_from_slice(&HANDSHAKE.to_be_bytes());
                bytes.extend_from_slice(&i16::from(from_last_file).to_be_bytes());
                bytes.extend_from_slice(&i16::from(is_learner).to_be_bytes());
                bytes.extend_from_slice(&id.to_be_bytes());
            }
            Self::Report(offset) => {
                bytes.extend_from_slice(&TRANSFER.to_be_bytes());
                bytes.extend_from_slice(&offset.to_be_bytes());
            }
        }
        bytes
    }

    /// Takes the next one from the front of what has come, if it is all there.
    pub fn take(received: &mut BytesMut) -> Result<Option<Self>, Unreadable> {
        let Some(mut front) = received.get(..4) else { return Ok(None) };
        match front.get_i32() {
            HANDSHAKE if received.len() >= SLAVE_HANDSHAKE_LEN => {
                received.advance(4);
                let (from_last_file, is_learner) = (received.get_i16() == 1, received.get_i16() == 1);
                Ok(Some(Self::Handshake { from_last_file, is_learner, id: received.get_i64() }))
            }
            TRANSFER if received.len() >= REPORT_LEN => {
                received.advance(4);
                let number = received.get_i64();
                let offset = u64::try_from(number).map_err(|_| Unreadable { what: "report", number })?;
                Ok(Some(Self::Report(offset)))
            }
            HANDSHAKE | TRANSFER => Ok(None),
            state => Err(Unreadable { what: "state", number: state.into() }),
        }
    }
}

/// What a master answers to a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterHandshake {
    /// Where its log ends.
    pub end: u64,
    /// The epochs of its log.
    pub epochs: Epochs,
}

impl MasterHandshake {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let entries = self.epochs.entries();
        let mut bytes = Vec::with_capacity(MASTER_HANDSHAKE_LEN + EPOCH_LEN * entries.len());
        bytes.extend_from_slice(&HANDSHAKE.to_be_bytes());
        bytes.extend_from_slice(&((EPOCH_LEN * entries.len()) as i32).to_be_bytes());
        bytes.extend_from_slice(&self.end.to_be_bytes());
        bytes.extend_from_slice(&self.epochs.last().map_or(-1, |last| last.number).to_be_bytes());
        for epoch in entries {
            bytes.extend_from_slice(&epoch.number.to_be_bytes());
            bytes.extend_from_slice(&epoch.start.to_be_bytes());
        }
        bytes
    }

    /// Takes it from the front of what has come, if it is all there.
    pub fn take(received: &mut BytesMut) -> Result<Option<Self>, Unreadable> {
        let Some(mut front) = received.get(..MASTER_HANDSHAKE_LEN) else { return Ok(None) };
        let (state, len, end) = (front.get_i32(), front.get_i32(), front.get_i64());
        if state != HANDSHAKE {
            return Err(Unreadable { what: "state", number: state.into() });
        }
        let epochs_len =
            usize::try_from(len).ok().filter(|len| len % EPOCH_LEN == 0 && *len <= EPOCH_LEN * EPOCHS_MAX);
        let epochs_len = epochs_len.ok_or(Unreadable { what: "length", number: len.into() })?;
        let end = u64::try_from(end).map_err(|_| Unreadable { what: "end", number: end })?;
        if received.len() < MASTER_HANDSHAKE_LEN + epochs_len {
            return Ok(None);
        }
        received.advance(MASTER_HANDSHAKE_LEN);
        let mut epochs = received.split_to(epochs_len);
        let mut entries = Vec::with_capacity(epochs_len / EPOCH_LEN);
        while epochs.has_remaining() {
            let (number, start) = (epochs.get_i32(), epochs.get_i64());
            let start = u64::try_from(start).map_err(|_| Unreadable { what: "epoch", number: start })?;
            entries.push(Epoch { number, start });
        }
        Ok(Some(Self { end, epochs: Epochs::new(entries) }))
    }
}

/// What precedes the bytes that a master sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the body; 0 in a heartbeat.
    pub len: usize,
    /// Where the body lies in the log; in a heartbeat where the next one will. `None` while the master has no log.
    pub offset: Option<u64>,
    /// The epoch of the body.
    pub epoch: Epoch,
    /// Up to where the log is confirmed.
    pub confirmed: u64,
}

impl FrameHeader {
    /// As it is sent.
    pub fn encode(&self) -> [u8; FRAME_HEADER_LEN] {
        let mut bytes = [0; FRAME_HEADER_LEN];
        bytes[..4].copy_from_slice(&TRANSFER.to_be_bytes());
        bytes[4..8].copy_from_slice(&(self.len as i32).to_be_bytes());
        bytes[8..16].copy_from_slice(&self.offset.map_or(-1, |offset| offset as i64).to_be_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.number.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.epoch.start.to_be_bytes());
        bytes[28..].copy_from_slice(&self.confirmed.to_be_bytes());
        bytes
    }

    /// Reads it from the front of what has come, if it is all there.
    pub fn peek(received: &[u8]) -> Result<Option<Self>, Unreadable> {
        let Some(mut front) = received.get(..FRAME_HEADER_LEN) else { return Ok(None) };
        let (state, len_of_body, offset) = (front.get_i32(), front.get_i32(), front.get_i64());
        let (number, start, confirmed) = (front.get_i32(), front.get_i64(), front.get_i64());
        if state != TRANSFER {
            return Err(Unreadable { what: "state", number: state.into() });
        }
        let unsigned = |what, number| u64::try_from(number).map_err(|_| Unreadable { what, number });
        let len = usize::try_from(len_of_body).ok().filter(|len| *len <= FRAME_LEN_MAX - FRAME_HEADER_LEN);
        Ok(Some(Self {
            len: len.ok_or(Unreadable { what: "length", number: len_of_body.into() })?,
            offset: if offset == -1 { None } else { Some(unsigned("offset", offset)?) },
            epoch: Epoch { number, start: unsigned("start of an epoch", start)? },
            confirmed: unsigned("confirmed offset", confirmed)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn epochs(entries: &[(i32, u64)]) -> Epochs {
        Epochs::new(entries.iter().map(|&(number, start)| Epoch { number, start }))
    }

    /// `docs/spec/05-ha.md` 15.3.
    #[test]
    fn the_bytes_of_the_reference() {
        let both_ways = |message: OfSlave, bytes: &str| {
            let encoded = message.encode();
            assert_eq!(hex(&encoded), bytes);
            assert_eq!(OfSlave::take(&mut BytesMut::from(&encoded[..])), Ok(Some(message)));
            assert_eq!(OfSlave::take(&mut BytesMut::from(&encoded[..encoded.len() - 1])), Ok(None));
        };
        let plain = OfSlave::Handshake { from_last_file: false, is_learner: false, id: 2 };
        both_ways(plain, "00000001000000000000000000000002");
        let learner = OfSlave::Handshake { from_last_file: true, is_learner: true, id: 3 };
        both_ways(learner, "00000001000100010000000000000003");
        both_ways(OfSlave::Report(4000), "000000020000000000000fa0");

        let handshake = MasterHandshake { end: 5000, epochs: epochs(&[(1, 0), (2, 1000)]) };
        let bytes = "0000000100000018000000000000138800000002000000010000000000000000\
                     0000000200000000000003e8";
        assert_eq!(hex(&handshake.encode()), bytes);
        assert_eq!(MasterHandshake::take(&mut BytesMut::from(&handshake.encode()[..])), Ok(Some(handshake)));

        let epoch = Epoch { number: 2, start: 1000 };
        let data = FrameHeader { len: 4, offset: Some(4000), epoch, confirmed: 4000 };
        let bytes = "00000002000000040000000000000fa00000000200000000000003e80000000000000fa0";
        assert_eq!(hex(&data.encode()), bytes);
        assert_eq!(FrameHeader::peek(&data.encode()), Ok(Some(data)));
        let epoch = Epoch { number: 1, start: 0 };
        let empty = FrameHeader { len: 0, offset: None, epoch, confirmed: 0 };
        let bytes = "0000000200000000ffffffffffffffff0000000100000000000000000000000000000000";
        assert_eq!(hex(&empty.encode()), bytes);
        assert_eq!(FrameHeader::peek(&empty.encode()), Ok(Some(empty)));
    }

    #[test]
    fn nonsense_is_refused_before_anything_is_reserved_for_it() {
        assert!(OfSlave::take(&mut BytesMut::from(&b"GET / HTTP/1.1"[..])).is_err());
        assert!(OfSlave::take(&mut BytesMut::from(&[0, 0, 0, 2, 255, 0, 0, 0, 0, 0, 0, 0][..])).is_err());
        let mut handshake = MasterHandshake { end: 1, epochs: Epochs::default() }.encode();
        handshake[4..8].copy_from_slice(&0x7fff_fff0_i32.to_be_bytes());
        assert!(MasterHandshake::take(&mut BytesMut::from(&handshake[..])).is_err());
        let epoch = Epoch { number: 1, start: 0 };
        let mut header = FrameHeader { len: 0, offset: Some(0), epoch, confirmed: 0 }.encode();
        header[4..8].copy_from_slice(&(-1_i32).to_be_bytes());
        assert!(FrameHeader::peek(&header).is_err());
    }
}
