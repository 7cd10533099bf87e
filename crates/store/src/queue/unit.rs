//! The 20-byte unit of a consume queue (`docs/spec/02-store.md` §6.1).

/// Length of a unit.
pub(crate) const UNIT: usize = 20;
/// Size field of a unit that stands for no message: the begin of a queue whose first messages were never here
/// ("pre-blank", physical offset 0), or the place of a damaged record (physical offset of the next one in the queue, so that
/// offsets still ascend).
const NO_MESSAGE: u32 = 0x7FFF_FFFF;

/// Most queue offsets without a message that can follow each other: so many messages are lost at most when a log file or two are
/// gone, or what was not flushed. More than that is a damaged number.
pub(crate) const HOLES_MAX: i64 = 1 << 24;
/// Length of the shortest message: one in a batch that is one record, without body and properties.
const MESSAGE_LEN_MIN: u64 = 22;

/// Whether a queue can have got as far as `queue_offset` when its log has got to `physical_offset`: each message has had its place in the
/// log. Queue offsets in records, units and file names have no checksum, and whoever believes any of them makes room for as many units.
pub(crate) fn is_plausible(queue_offset: i64, physical_offset: u64) -> bool {
    u64::try_from(queue_offset)
        .is_ok_and(|offset| offset <= (physical_offset / MESSAGE_LEN_MIN).saturating_add(HOLES_MAX as u64))
}

/// One unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) physical_offset: u64,
    pub(crate) size: u32,
    pub(crate) tags_code: i64,
}

impl Unit {
    /// The unit before the first message of a queue.
    pub(crate) const PRE_BLANK: Unit = Unit { physical_offset: 0, size: NO_MESSAGE, tags_code: 0 };

    /// The place of a message that is not there (any more), in front of the one at `next_physical_offset`.
    pub(crate) fn hole(next_physical_offset: u64) -> Unit {
        Unit { physical_offset: next_physical_offset, size: NO_MESSAGE, tags_code: 0 }
    }

    pub(crate) fn encode(self) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        bytes[..8].copy_from_slice(&self.physical_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; UNIT]) -> Unit {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let [s0, s1, s2, s3, t @ ..] = rest;
        Unit {
            physical_offset: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            size: u32::from_be_bytes([s0, s1, s2, s3]),
            tags_code: i64::from_be_bytes(t),
        }
    }

    /// Whether the unit points to a message. Zeros (never written) and negative numbers (damage) do not.
    pub(crate) fn is_message(self) -> bool {
        self.size > 0 && self.size < NO_MESSAGE && self.physical_offset <= i64::MAX as u64
    }

    /// Whether the unit was written at all: a message or a place without one.
    pub(crate) fn is_written(self) -> bool {
        self.size > 0 && self.size <= NO_MESSAGE && self.physical_offset <= i64::MAX as u64
    }

    /// Whether the unit's message lies at `physical_offset` or behind. That of a hole which points there lay before.
    pub(crate) fn is_behind(self, physical_offset: u64) -> bool {
        if self.is_message() {
            self.physical_offset >= physical_offset
        } else {
            self.physical_offset > physical_offset
        }
    }

    /// A place of the log at or behind that of the unit's message, and in front of everything that came later.
    pub(crate) fn not_behind(self) -> u64 {
        if self.is_message() { self.physical_offset } else { self.physical_offset.saturating_sub(1) }
    }

    pub(crate) fn is_pre_blank(self) -> bool {
        self.size == NO_MESSAGE && self.physical_offset == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_offset_needs_a_log_that_had_room_for_it() {
        assert!(is_plausible(0, 0) && is_plausible(HOLES_MAX, 0) && is_plausible(1_000_000_000, 1 << 40));
        assert!(
            !is_plausible(-1, 1 << 40) && !is_plausible(HOLES_MAX + 1, 0) && !is_plausible(1 << 40, 1 << 40)
        );
        assert!(!is_plausible(i64::MAX, u64::MAX));
    }

    #[test]
    fn units_are_those_of_the_reference() {
        // docs/spec/02-store.md §18.2 Q1, Q3
        let unit = Unit { physical_offset: 0xa8, size: 0x7c, tags_code: 2_598_920 };
        assert_eq!(unit.encode(), *b"\0\0\0\0\0\0\0\xa8\0\0\0\x7c\0\0\0\0\x00\x27\xa8\x08");
        assert_eq!(Unit::decode(&unit.encode()), unit);
        assert_eq!(Unit::PRE_BLANK.encode(), *b"\0\0\0\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0\0\0\0\0");
        assert!(unit.is_message() && unit.is_written());
        assert!(
            !Unit::PRE_BLANK.is_message() && Unit::PRE_BLANK.is_written() && Unit::PRE_BLANK.is_pre_blank()
        );
        assert!(!Unit::hole(5).is_message() && !Unit::hole(5).is_pre_blank());
        assert!(!Unit::decode(&[0; UNIT]).is_written());
        assert!(!Unit::decode(&[0xff; UNIT]).is_written());
    }
}
