//! Encoding of the MESSAGE and BLANK records (`docs/spec/02-store.md` §4.1, §4.2, §4.5).

use std::net::{IpAddr, SocketAddr};

use super::{crc32, sysflag};

/// Magic of a record whose topic length takes one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record whose topic length takes two bytes.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic of the record that fills the end of a log file.
pub const BLANK_MAGIC: u32 = 0xCBD4_3194;
/// Bytes that every log file keeps free for its BLANK record.
pub const BLANK_LEN_MIN: usize = 8;
/// Topics up to this many UTF-16 units are written in a V1 record.
pub const TOPIC_LEN_MAX_V1: usize = 127;
/// Largest length of a record's properties, the CRC property included.
pub const PROPERTIES_LEN_MAX: usize = 32_767;
/// Length of the `__CRC32#` property at the end of a record.
pub const CRC_PROPERTY_LEN: usize = 20;
/// Where a record holds its queue offset.
pub const QUEUE_OFFSET_AT: usize = 20;

const PHYSICAL_OFFSET_AT: usize = 28;
const SYS_FLAG_AT: usize = 36;
const CRC_PROPERTY_NAME: &[u8; 9] = b"__CRC32#\x01";

/// A message that can't be written as a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The properties are longer than a signed 16-bit length can say.
    #[error("the properties are {len} bytes long, the limit is {max}", max = PROPERTIES_LEN_MAX)]
    PropertiesTooLong {
        /// Length with what the store adds.
        len: usize,
    },
    /// The topic is longer than a signed 16-bit length can say.
    #[error("the topic is {len} bytes long, the limit is 32767")]
    TopicTooLong {
        /// Length in bytes.
        len: usize,
    },
    /// The record would be longer than a signed 32-bit length can say.
    #[error("the record would be {len} bytes long, the limit is 2147483647")]
    RecordTooLong {
        /// Length of the record.
        len: usize,
    },
}

/// A message as it goes into the log. Everything but queue offset, physical offset and store time, which only the
/// log can know.
#[derive(Debug, Clone, Copy)]
pub struct RecordFields<'a> {
    /// Topic; more than 127 UTF-16 units make a V2 record.
    pub topic: &'a str,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The client's flag, opaque.
    pub flag: i32,
    /// Bits of [`sysflag`]; the two address bits are set by the encoder, never cleared.
    pub sys_flag: i32,
    /// The client's clock, milliseconds since 1970.
    pub born_timestamp: i64,
    /// Remote address of the connection that brought the message.
    pub born_host: SocketAddr,
    /// `brokerIP1` and listen port of the broker.
    pub store_host: SocketAddr,
    /// How often consumers sent it back.
    pub reconsume_times: i32,
    /// Physical offset of the half message of a committed one, else 0.
    pub prepared_transaction_offset: i64,
    /// Body as received (compressed bytes stay compressed).
    pub body: &'a [u8],
    /// Encoded properties ([`super::properties`]).
    pub properties: &'a [u8],
}

impl<'a> RecordFields<'a> {
    /// A message with nothing but what every message has. The hosts are one address, all else is zero or empty.
    pub fn new(topic: &'a str, queue_id: i32, host: SocketAddr, body: &'a [u8]) -> Self {
        RecordFields {
            topic,
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties: &[],
        }
    }
}

impl RecordFields<'_> {
    /// Length of the record in bytes, without a CRC property.
    pub fn encoded_len(&self) -> usize {
        let topic_length = if self.is_v2() { 2 } else { 1 };
        let hosts = host_len(self.born_host) + host_len(self.store_host);
        4 * 4
            + 4
            + 8
            + 8
            + 4
            + 8
            + hosts
            + 8
            + 4
            + 8
            + 4
            + self.body.len()
            + topic_length
            + self.topic.len()
            + 2
            + self.properties.len()
    }

    fn is_v2(&self) -> bool {
        // The rule counts UTF-16 units. A topic can have fewer of them than bytes, but V1's length byte counts bytes.
        self.topic.len() > TOPIC_LEN_MAX_V1
    }

    /// Appends the record to `out`, with zeros for queue offset, physical offset and store time (see
    /// [`set_log_fields`]), and returns its length. On an error `out` is unchanged.
    pub fn encode_into(&self, out: &mut Vec<u8>) -> Result<usize, EncodeError> {
        self.encode(out, false)
    }

    /// As [`encode_into`](Self::encode_into), with room for the `__CRC32#` property at the end of the properties
    /// (`enabledAppendPropCRC`); [`seal_crc_property`] fills it in. The caller removes an older property of that name.
    pub fn encode_with_crc_property_into(&self, out: &mut Vec<u8>) -> Result<usize, EncodeError> {
        self.encode(out, true)
    }

    fn encode(&self, out: &mut Vec<u8>, crc_property: bool) -> Result<usize, EncodeError> {
        let separator = crc_property && !self.properties.is_empty() && self.properties.last() != Some(&2);
        let crc_len = if crc_property { CRC_PROPERTY_LEN + usize::from(separator) } else { 0 };
        let properties_len = self.properties.len() + crc_len;
        if properties_len > PROPERTIES_LEN_MAX {
            return Err(EncodeError::PropertiesTooLong { len: properties_len });
        }
        if self.topic.len() > i16::MAX as usize {
            return Err(EncodeError::TopicTooLong { len: self.topic.len() });
        }
        let len = self.encoded_len() + crc_len;
        let Ok(total_size) = i32::try_from(len) else {
            return Err(EncodeError::RecordTooLong { len });
        };

        let start = out.len();
        out.reserve(len);
        let mut sys_flag = self.sys_flag;
        if self.born_host.is_ipv6() {
            sys_flag |= sysflag::BORN_HOST_V6;
        }
        if self.store_host.is_ipv6() {
            sys_flag |= sysflag::STORE_HOST_V6;
        }

        // What lies in front of the body is put together on the stack: one copy instead of one for each field.
        let mut head = Head { bytes: [0; HEAD_LEN_MAX], len: 0 };
        head.put(&total_size.to_be_bytes());
        head.put(&(if self.is_v2() { MAGIC_V2 } else { MAGIC_V1 }).to_be_bytes());
        head.put(&crc32(self.body).to_be_bytes());
        head.put(&self.queue_id.to_be_bytes());
        head.put(&self.flag.to_be_bytes());
        // Queue offset and physical offset.
        head.put(&[0; 16]);
        head.put(&sys_flag.to_be_bytes());
        head.put(&self.born_timestamp.to_be_bytes());
        head.put_host(self.born_host);
        // Store time.
        head.put(&[0; 8]);
        head.put_host(self.store_host);
        head.put(&self.reconsume_times.to_be_bytes());
        head.put(&self.prepared_transaction_offset.to_be_bytes());
        head.put(&(self.body.len() as u32).to_be_bytes());
        out.extend_from_slice(&head.bytes[..head.len]);
        out.extend_from_slice(self.body);
        if self.is_v2() {
            out.extend_from_slice(&(self.topic.len() as u16).to_be_bytes());
        } else {
            out.push(self.topic.len() as u8);
        }
        out.extend_from_slice(self.topic.as_bytes());
        out.extend_from_slice(&(properties_len as u16).to_be_bytes());
        out.extend_from_slice(self.properties);
        if crc_property {
            if separator {
                out.push(2);
            }
            put_crc_property(out);
        }
        debug_assert_eq!(out.len() - start, len);
        Ok(len)
    }
}

/// Fills in the three fields of an encoded record that only the log knows. `record` begins at the record's first
/// byte and was written by [`RecordFields::encode_into`].
///
/// # Panics
/// If `record` is shorter than a record's fixed front.
#[inline]
pub fn set_log_fields(record: &mut [u8], queue_offset: i64, physical_offset: u64, store_timestamp: i64) {
    record[QUEUE_OFFSET_AT..QUEUE_OFFSET_AT + 8].copy_from_slice(&queue_offset.to_be_bytes());
    record[PHYSICAL_OFFSET_AT..PHYSICAL_OFFSET_AT + 8].copy_from_slice(&physical_offset.to_be_bytes());
    let born_host_v6 = record[SYS_FLAG_AT + 3] & sysflag::BORN_HOST_V6 as u8 != 0;
    let store_timestamp_at = if born_host_v6 { 68 } else { 56 };
    record[store_timestamp_at..store_timestamp_at + 8].copy_from_slice(&store_timestamp.to_be_bytes());
}

/// Properties that the log adds to a record because only it knows their values: they go behind the others.
///
/// The record was written by [`RecordFields::encode_into`] and is the only thing in `record`.
#[derive(Debug)]
pub struct LateProperties<'a> {
    record: &'a mut Vec<u8>,
    properties_len: usize,
}

impl<'a> LateProperties<'a> {
    /// `properties_len` is the length of the properties that the record has, in bytes.
    pub fn of(record: &'a mut Vec<u8>, properties_len: usize) -> Self {
        debug_assert!(properties_len <= record.len());
        LateProperties { record, properties_len }
    }

    /// Adds a property. The caller sees to it that all properties together stay below [`PROPERTIES_LEN_MAX`].
    pub fn add(&mut self, name: &str, value: &str) {
        self.separate();
        self.record.extend_from_slice(name.as_bytes());
        self.record.push(1);
        self.record.extend_from_slice(value.as_bytes());
        self.record.push(2);
        self.properties_len += name.len() + value.len() + 2;
    }

    /// Makes room for the `__CRC32#` property, which [`seal_crc_property`] fills in. The last one to be added.
    pub fn add_crc(&mut self) {
        self.separate();
        put_crc_property(self.record);
        self.properties_len += CRC_PROPERTY_LEN;
    }

    /// Writes the lengths that have changed.
    pub fn finish(self) {
        let (record, properties_len) = (self.record, self.properties_len);
        let at = record.len() - properties_len - 2;
        record[at..at + 2].copy_from_slice(&(properties_len as u16).to_be_bytes());
        let len = record.len() as u32;
        record[..4].copy_from_slice(&len.to_be_bytes());
    }

    fn separate(&mut self) {
        if self.properties_len > 0 && self.record.last() != Some(&2) {
            self.record.push(2);
            self.properties_len += 1;
        }
    }
}

fn put_crc_property(out: &mut Vec<u8>) {
    out.extend_from_slice(CRC_PROPERTY_NAME);
    out.extend_from_slice(&[b'0'; 10]);
    out.push(2);
}

/// Computes the `__CRC32#` property of a record written by [`RecordFields::encode_with_crc_property_into`], after
/// [`set_log_fields`].
///
/// # Panics
/// If `record` is shorter than the property.
pub fn seal_crc_property(record: &mut [u8]) {
    let covered = record.len() - CRC_PROPERTY_LEN;
    let mut rest = crc32(&record[..covered]);
    // Ten decimal digits, the least significant one first.
    for digit in &mut record[covered + CRC_PROPERTY_NAME.len()..][..10] {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// The first eight bytes of the BLANK record that fills the last `rest` bytes of a log file.
pub fn encode_blank(rest: u32) -> [u8; BLANK_LEN_MIN] {
    let mut blank = [0; BLANK_LEN_MIN];
    blank[..4].copy_from_slice(&rest.to_be_bytes());
    blank[4..].copy_from_slice(&BLANK_MAGIC.to_be_bytes());
    blank
}

const fn host_len(host: SocketAddr) -> usize {
    if host.is_ipv6() { 20 } else { 8 }
}

/// Length of what lies in front of the body when both hosts are IPv6.
const HEAD_LEN_MAX: usize = 112;

struct Head {
    bytes: [u8; HEAD_LEN_MAX],
    len: usize,
}

impl Head {
    #[inline]
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
    }

    #[inline]
    fn put_host(&mut self, host: SocketAddr) {
        match host.ip() {
            IpAddr::V4(ip) => self.put(&ip.octets()),
            IpAddr::V6(ip) => self.put(&ip.octets()),
        }
        self.put(&u32::from(host.port()).to_be_bytes());
    }
}
