//! Reading of stored records (`docs/spec/02-store.md` §4.1, §10.2).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::record::{CRC_PROPERTY_LEN, MAGIC_V1, MAGIC_V2};
use super::{crc32, properties, sysflag};

/// Why bytes are not a whole record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Fewer bytes than the record says it has.
    #[error("{available} bytes are there, {needed} are needed")]
    Short {
        /// Bytes that were given.
        available: usize,
        /// Bytes that are needed.
        needed: usize,
    },
    /// Neither of the two record magics.
    #[error("unknown magic 0x{magic:08x}")]
    Magic {
        /// What was found.
        magic: u32,
    },
    /// TOTALSIZE is not a possible length, or the parts do not add up to it.
    #[error("the declared size {declared} does not fit the record's parts")]
    Size {
        /// TOTALSIZE.
        declared: i32,
    },
    /// The topic is empty or not UTF-8.
    #[error("the topic is empty or not UTF-8")]
    Topic,
    /// The record lies elsewhere than it says.
    #[error("the record says it lies at {declared}, but it lies at {actual}")]
    PhysicalOffset {
        /// PHYSICALOFFSET.
        declared: u64,
        /// Where the record was found.
        actual: u64,
    },
    /// BODYCRC does not fit the body.
    #[error("body CRC is {actual}, the record says {declared}")]
    BodyCrc {
        /// BODYCRC.
        declared: u32,
        /// CRC of the bytes that are there.
        actual: u32,
    },
    /// The properties do not parse, or contain zero bytes.
    #[error("the properties are damaged")]
    Properties,
    /// The `__CRC32#` property does not fit the record.
    #[error("the record's CRC property does not fit its bytes")]
    CrcProperty,
}

/// A stored record whose lengths add up. Cheap to make (no body is touched); [`check`](Self::check) does the rest.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    bytes: &'a [u8],
    body_at: u32,
    body_len: u32,
    topic_at: u32,
    topic_len: u16,
    properties_len: u16,
}

impl<'a> RecordView<'a> {
    /// Parses the record at the beginning of `bytes`, which may go on behind it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let short = |needed: usize| RecordError::Short { available: bytes.len(), needed };
        let Some(front) = bytes.first_chunk::<40>() else { return Err(short(40)) };
        let declared = i32_at(front, 0);
        let magic = u32_at(front, 4);
        let v2 = match magic {
            MAGIC_V1 => false,
            MAGIC_V2 => true,
            magic => return Err(RecordError::Magic { magic }),
        };
        let size = Err(RecordError::Size { declared });
        let Ok(total) = usize::try_from(declared) else { return size };
        if total > bytes.len() {
            return Err(short(total));
        }
        let record = &bytes[..total];
        let body_at =
            48 + host_len(front, sysflag::BORN_HOST_V6) + 8 + host_len(front, sysflag::STORE_HOST_V6) + 16;
        let Some(body_len) = record.get(body_at - 4..body_at).map(|b| i32_at(b, 0)) else { return size };
        let Ok(body_len) = usize::try_from(body_len) else { return size };
        let after_body = body_at + body_len;
        let (topic_at, topic_len) = if v2 {
            let Some(len) = record.get(after_body..after_body + 2) else { return size };
            (after_body + 2, i16::from_be_bytes([len[0], len[1]]))
        } else {
            let Some(len) = record.get(after_body) else { return size };
            (after_body + 1, i16::from(*len as i8))
        };
        let Ok(topic_len) = u16::try_from(topic_len) else { return size };
        let after_topic = topic_at + usize::from(topic_len);
        let Some(len) = record.get(after_topic..after_topic + 2) else { return size };
        let Ok(properties_len) = u16::try_from(i16::from_be_bytes([len[0], len[1]])) else { return size };
        if after_topic + 2 + usize::from(properties_len) != total {
            return size;
        }
        Ok(RecordView {
            bytes: record,
            body_at: body_at as u32,
            body_len: body_len as u32,
            topic_at: topic_at as u32,
            topic_len,
            properties_len,
        })
    }

    /// Parses and checks the record at the beginning of `bytes`: it is whole if its lengths add up, it lies at
    /// `physical_offset` as it says, its body CRC holds, its topic is text, its properties parse without zero bytes,
    /// and its CRC property, if it has one, holds.
    pub fn whole(bytes: &'a [u8], physical_offset: u64) -> Result<Self, RecordError> {
        let view = Self::parse(bytes)?;
        view.check(physical_offset)?;
        Ok(view)
    }

    /// The whole-record rule, see [`whole`](Self::whole).
    pub fn check(&self, physical_offset: u64) -> Result<(), RecordError> {
        if self.physical_offset() != physical_offset {
            return Err(RecordError::PhysicalOffset {
                declared: self.physical_offset(),
                actual: physical_offset,
            });
        }
        let actual = crc32(self.body());
        if actual != self.body_crc() {
            return Err(RecordError::BodyCrc { declared: self.body_crc(), actual });
        }
        match self.topic() {
            Some(topic) if !topic.is_empty() => {}
            _ => return Err(RecordError::Topic),
        }
        self.check_properties()
    }

    fn check_properties(&self) -> Result<(), RecordError> {
        let properties = self.properties();
        if !properties::is_sound(properties) {
            return Err(RecordError::Properties);
        }
        if let Some(tail) = properties.last_chunk::<CRC_PROPERTY_LEN>()
            && tail.starts_with(b"__CRC32#\x01")
            && tail[CRC_PROPERTY_LEN - 1] == 2
        {
            let mut declared = 0u64;
            for digit in tail[9..19].iter().rev() {
                if !digit.is_ascii_digit() {
                    return Err(RecordError::CrcProperty);
                }
                declared = declared * 10 + u64::from(digit - b'0');
            }
            if declared != u64::from(crc32(&self.bytes[..self.bytes.len() - CRC_PROPERTY_LEN])) {
                return Err(RecordError::CrcProperty);
            }
        }
        Ok(())
    }

    /// The record's bytes, as they are sent to clients.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// TOTALSIZE.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the record is of version 2.
    pub fn is_v2(&self) -> bool {
        u32_at(self.bytes, 4) == MAGIC_V2
    }

    /// BODYCRC as declared.
    pub fn body_crc(&self) -> u32 {
        u32_at(self.bytes, 8)
    }

    /// QUEUEID.
    pub fn queue_id(&self) -> i32 {
        i32_at(self.bytes, 12)
    }

    /// FLAG.
    pub fn flag(&self) -> i32 {
        i32_at(self.bytes, 16)
    }

    /// QUEUEOFFSET.
    pub fn queue_offset(&self) -> i64 {
        i64_at(self.bytes, 20)
    }

    /// PHYSICALOFFSET.
    pub fn physical_offset(&self) -> u64 {
        i64_at(self.bytes, 28) as u64
    }

    /// SYSFLAG ([`sysflag`]).
    pub fn sys_flag(&self) -> i32 {
        i32_at(self.bytes, 36)
    }

    /// BORNTIMESTAMP, milliseconds.
    pub fn born_timestamp(&self) -> i64 {
        i64_at(self.bytes, 40)
    }

    /// BORNHOST.
    pub fn born_host(&self) -> SocketAddr {
        host_at(self.bytes, 48, self.sys_flag() & sysflag::BORN_HOST_V6 != 0)
    }

    /// STORETIMESTAMP, milliseconds.
    pub fn store_timestamp(&self) -> i64 {
        i64_at(self.bytes, self.store_timestamp_at())
    }

    fn store_timestamp_at(&self) -> usize {
        48 + host_len(self.bytes, sysflag::BORN_HOST_V6)
    }

    /// STOREHOST.
    pub fn store_host(&self) -> SocketAddr {
        host_at(self.bytes, self.store_timestamp_at() + 8, self.sys_flag() & sysflag::STORE_HOST_V6 != 0)
    }

    /// RECONSUMETIMES.
    pub fn reconsume_times(&self) -> i32 {
        i32_at(self.bytes, self.body_at as usize - 16)
    }

    /// PREPAREDTRANSACTIONOFFSET.
    pub fn prepared_transaction_offset(&self) -> i64 {
        i64_at(self.bytes, self.body_at as usize - 12)
    }

    /// BODY as stored.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.body_at as usize..][..self.body_len as usize]
    }

    /// TOPIC as stored.
    pub fn topic_bytes(&self) -> &'a [u8] {
        &self.bytes[self.topic_at as usize..][..usize::from(self.topic_len)]
    }

    /// TOPIC; `None` if it is not UTF-8.
    pub fn topic(&self) -> Option<&'a str> {
        std::str::from_utf8(self.topic_bytes()).ok()
    }

    /// PROPERTIES as stored ([`properties`]).
    pub fn properties(&self) -> &'a [u8] {
        &self.bytes[self.bytes.len() - usize::from(self.properties_len)..]
    }

    /// Value of one property.
    pub fn property(&self, name: &str) -> Option<&'a str> {
        properties::find(self.properties(), name)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    u32_at(bytes, at) as i32
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn host_len(record: &[u8], v6_bit: i32) -> usize {
    if i32_at(record, 36) & v6_bit != 0 { 20 } else { 8 }
}

fn host_at(record: &[u8], at: usize, v6: bool) -> SocketAddr {
    if v6 {
        let ip: [u8; 16] = record[at..at + 16].try_into().expect("sixteen bytes");
        SocketAddr::from((Ipv6Addr::from(ip), u32_at(record, at + 16) as u16))
    } else {
        let ip: [u8; 4] = record[at..at + 4].try_into().expect("four bytes");
        SocketAddr::from((Ipv4Addr::from(ip), u32_at(record, at + 4) as u16))
    }
}
