//! Messages as they are stored in the commit log and delivered to clients (`docs/spec/02-store.md` §4,
//! `docs/spec/01-remoting.md` §6).
//!
//! * [`RecordFields`] is a message on its way into the log: [`RecordFields::encode_into`] writes the record with
//!   holes for the three values that only the log can know (queue offset, physical offset, store time).
//! * [`RecordView`] is a message on its way out: a checked view of stored bytes, without copying.
//! * [`properties`] reads and writes the `name 0x01 value 0x02` list, [`batch`] the body of a batch send,
//!   [`id`] the two kinds of message ids.
//!
//! Nothing here allocates unless its name says so, and nothing here panics on bytes from outside.

pub mod batch;
pub mod id;
pub mod properties;
mod record;
pub mod sysflag;
#[cfg(test)]
mod tests;
mod view;

pub use record::{
    BLANK_LEN_MIN, BLANK_MAGIC, CRC_PROPERTY_LEN, EncodeError, LateProperties, MAGIC_V1, MAGIC_V2,
    PROPERTIES_LEN_MAX, QUEUE_OFFSET_AT, RecordFields, TOPIC_LEN_MAX_V1, encode_blank, seal_crc_property,
    set_log_fields,
};
pub use view::{RecordError, RecordView};

/// The CRC of a body or a record as RocketMQ stores it: CRC-32 (IEEE) with bit 31 cleared
/// (`docs/spec/02-store.md` §4.4).
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes) & 0x7FFF_FFFF
}

/// `String.hashCode()` of Java: 32-bit wrapping sum over UTF-16 units. Tags codes and index keys are made of it
/// (`docs/spec/02-store.md` §6.2, §8.2).
pub fn java_string_hash(text: &str) -> i32 {
    java_string_hash_onto(0, text)
}

/// Continues a [`java_string_hash`] with more text, so that a joined string (`topic#key`) need not be built.
pub fn java_string_hash_onto(hash: i32, text: &str) -> i32 {
    const BASE: i32 = 31;
    let put = |hash: i32, unit: u16| hash.wrapping_mul(BASE).wrapping_add(i32::from(unit));
    if !text.is_ascii() {
        return text.encode_utf16().fold(hash, put);
    }
    // Eight characters at once, whose products need not wait for each other.
    const POWERS: [i32; 8] = {
        let mut powers = [1i32; 8];
        let mut at = 7;
        while at > 0 {
            powers[at - 1] = powers[at].wrapping_mul(BASE);
            at -= 1;
        }
        powers
    };
    let (eights, rest) = text.as_bytes().as_chunks::<8>();
    let hash = eights.iter().fold(hash, |hash, eight| {
        let products = eight.iter().zip(POWERS).map(|(byte, power)| i32::from(*byte).wrapping_mul(power));
        let sum = products.fold(0i32, i32::wrapping_add);
        hash.wrapping_mul(POWERS[0].wrapping_mul(BASE)).wrapping_add(sum)
    });
    rest.iter().fold(hash, |hash, byte| put(hash, u16::from(*byte)))
}

/// The tags code of a message: the hash of its whole `TAGS` value, sign-extended; 0 without tags.
pub fn tags_code(tags: Option<&str>) -> i64 {
    tags.map_or(0, |tags| i64::from(java_string_hash(tags)))
}
