//! What a slave makes of its master's bytes.
//!
//! The bytes are appended by whole records, each of which was looked at: so nothing that is no record gets into the log, whoever
//! sends it, and the log never ends in the middle of one. Only records that are too long to be kept in memory, and what fills
//! the end of a file, are appended as they come.
//!
//! A slave that has a log asks first for the last part of what it has, and compares: if that is not what the master has there, one of
//! the two has messages that the other has not, and nothing is appended.

use bytes::{Buf as _, BytesMut};
use ferromq_protocol::message::{BLANK_LEN_MIN, BLANK_MAGIC, MAGIC_V1, MAGIC_V2, RecordError, RecordView};
use ferromq_store::ReplicaError;
use thiserror::Error;

use crate::log::ReplicaLog;

/// How much of its log's end a slave compares with the master's.
const COMPARED_BYTES: u64 = 64 << 10;
/// Records above this length are not kept in memory until they are whole.
const KEPT_RECORD_MAX: usize = 8 << 20;
/// Length of the part of a record that says how long it is and where it lies.
const FRONT_LEN: usize = 36;
/// No record is shorter.
const RECORD_LEN_MIN: usize = 91;

/// Why bytes of the master were not appended.
#[derive(Debug, Error)]
pub enum BadBytes {
    /// They don't continue what came before.
    #[error("the master goes on at offset {found} instead of {expected}")]
    OutOfPlace {
        /// Where they should lie.
        expected: u64,
        /// Where the master says they lie.
        found: i64,
    },
    /// They are no part of a log.
    #[error(
        "what the master sent for offset {offset} is no record ({reason}); is it a RocketMQ broker's haListenPort?"
    )]
    NoRecord {
        /// Where it should lie.
        offset: u64,
        /// What is wrong with it.
        reason: RecordError,
    },
    /// The master's files have another size.
    #[error(
        "the master's log goes on at {offset}, which does not begin a file of {file_size} bytes; set mappedFileSizeCommitLog as at \
         the master, and begin with an empty store"
    )]
    OtherFileSize {
        /// Where the master's file begins or ends.
        offset: u64,
        /// Size of a file here.
        file_size: u64,
    },
    /// The two logs differ.
    #[error(
        "this slave's log differs from the master's at offset {offset} (it ends at {end}): one of them has messages that the other has \
         not. Nothing was changed. Keep the slave's store if its messages are needed, and start the slave with an empty \
         storePathRootDir; or make it the master"
    )]
    Diverged {
        /// The first byte that differs.
        offset: u64,
        /// Where the slave's log ends.
        end: u64,
    },
    /// The slave has more than the master.
    #[error(
        "this slave's log ends at {end}, and the master has nothing at {missing}: the master lost messages that the slave has, or no \
         longer has what lies there. Nothing was changed. Keep the slave's store if its messages are needed, and start the \
         slave with an empty storePathRootDir; or make it the master"
    )]
    Ahead {
        /// Where the slave's log ends.
        end: u64,
        /// What the master does not have.
        missing: u64,
    },
    /// The log does not take them.
    #[error(transparent)]
    Log(#[from] ReplicaError),
}

/// Takes in what one connection brings.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Where the next byte of the master belongs; `None` until the first one of an empty log has come.
    next: Option<u64>,
    /// Our own bytes up to here are compared.
    compare_to: u64,
    /// Heartbeats since the last bytes, while bytes that we have are outstanding.
    idle: u32,
    /// Bytes behind the log's end that are not yet a whole record.
    pending: BytesMut,
    /// So many bytes are appended as they come.
    streamed: u64,
}

impl Intake {
    /// For a log as it is now. `first`: where an empty log should begin, if that is known.
    pub(crate) fn new(log: &dyn ReplicaLog, first: Option<u64>) -> Result<Self, BadBytes> {
        let bounds = log.bounds();
        let mut intake =
            Intake { next: None, compare_to: bounds.end, idle: 0, pending: BytesMut::new(), streamed: 0 };
        if bounds.end > bounds.begin {
            // To ask for 0 would be to ask for the last file.
            let from = bounds.end.saturating_sub(COMPARED_BYTES).max(bounds.begin).max(1);
            // The file before may be gone at the master.
            let file = bounds.end - bounds.end % log.file_size();
            intake.next = Some(if file < bounds.end { from.max(file) } else { from });
        } else if let Some(first) = first {
            if !first.is_multiple_of(log.file_size()) {
                return Err(BadBytes::OtherFileSize { offset: first, file_size: log.file_size() });
            }
            intake.next = Some(first);
            intake.compare_to = 0;
            if first == 0 {
                // To ask for 0 is to ask for the last file. The first byte of a record is 0, unless it has 16 MiB or more.
                intake.pending.extend_from_slice(&[0]);
                intake.next = Some(1);
            }
        }
        Ok(intake)
    }

    /// What to report first: from there on the master sends.
    pub(crate) fn request(&self) -> u64 {
        self.next.unwrap_or(0)
    }

    /// Whether the log was found to be a part of the master's: only then its end may be reported.
    pub(crate) fn is_compared(&self) -> bool {
        self.next.is_none_or(|next| next >= self.compare_to)
    }

    /// A heartbeat of a master that will go on at `offset`.
    pub(crate) fn heartbeat(&mut self, offset: i64) -> Result<(), BadBytes> {
        let Some(next) = self.next else { return Ok(()) };
        self.check_place(next, offset)?;
        if !self.is_compared() {
            // One may have been on its way with the bytes.
            self.idle += 1;
            if self.idle > 1 {
                return Err(BadBytes::Ahead { end: self.compare_to, missing: next });
            }
        }
        Ok(())
    }

    /// Bytes of the master's log. May wait for the disk.
    pub(crate) fn take(&mut self, log: &dyn ReplicaLog, offset: i64, bytes: &[u8]) -> Result<(), BadBytes> {
        let next = match self.next {
            Some(next) => next,
            // The master chose where an empty log begins: at a file.
            None => {
                let begin =
                    u64::try_from(offset).map_err(|_| BadBytes::OutOfPlace { expected: 0, found: offset })?;
                if !begin.is_multiple_of(log.file_size()) {
                    return Err(BadBytes::OtherFileSize { offset: begin, file_size: log.file_size() });
                }
                self.compare_to = begin;
                begin
            }
        };
        self.check_place(next, offset)?;
        self.idle = 0;
        let known = bytes.len().min(self.compare_to.saturating_sub(next) as usize);
        self.compare(log, next, &bytes[..known])?;
        self.pending.extend_from_slice(&bytes[known..]);
        self.next = Some(next + bytes.len() as u64);
        self.append(log)
    }

    fn check_place(&self, expected: u64, found: i64) -> Result<(), BadBytes> {
        if u64::try_from(found) == Ok(expected) {
            Ok(())
        } else {
            Err(BadBytes::OutOfPlace { expected, found })
        }
    }

    fn compare(&self, log: &dyn ReplicaLog, mut offset: u64, mut theirs: &[u8]) -> Result<(), BadBytes> {
        while !theirs.is_empty() {
            let ours = log.read(offset, theirs.len())?;
            if ours.is_empty() {
                break;
            }
            let (these, rest) = theirs.split_at(ours.len().min(theirs.len()));
            if let Some(at) = ours.iter().zip(these).position(|(ours, theirs)| ours != theirs) {
                return Err(BadBytes::Diverged { offset: offset + at as u64, end: self.compare_to });
            }
            offset += these.len() as u64;
            theirs = rest;
        }
        Ok(())
    }

    /// Appends what is whole.
    fn append(&mut self, log: &dyn ReplicaLog) -> Result<(), BadBytes> {
        let file_size = log.file_size();
        while !self.pending.is_empty() {
            // An empty log begins where its first byte lies.
            let next = self.next.unwrap_or_default();
            let offset = next - self.pending.len() as u64;
            let rest = file_size - offset % file_size;
            let whole = self.whole(offset, rest as usize)?;
            if whole == 0 {
                break;
            }
            log.append(offset, &self.pending[..whole])?;
            self.pending.advance(whole);
        }
        Ok(())
    }

    /// How many bytes, from the front of those that are pending, can be appended: none of the next file, of which `rest` bytes are
    /// missing in this one.
    fn whole(&mut self, offset: u64, rest: usize) -> Result<usize, BadBytes> {
        let mut whole = 0;
        while whole < rest {
            let bytes = &self.pending[whole..];
            if self.streamed > 0 {
                let some = bytes.len().min(self.streamed as usize);
                if some == 0 {
                    break;
                }
                self.streamed -= some as u64;
                whole += some;
                continue;
            }
            let at = offset + whole as u64;
            match front(bytes, at, rest - whole)? {
                Front::Short => break,
                Front::Blank => self.streamed = (rest - whole) as u64,
                Front::Record(len) if len > KEPT_RECORD_MAX => self.streamed = len as u64,
                Front::Record(len) => {
                    let Some(record) = bytes.get(..len) else { break };
                    RecordView::whole(record, at)
                        .map_err(|reason| BadBytes::NoRecord { offset: at, reason })?;
                    whole += len;
                }
            }
        }
        Ok(whole)
    }
}

/// What begins somewhere in the log.
enum Front {
    /// Too few bytes to tell.
    Short,
    /// What fills the end of a file.
    Blank,
    /// A record of so many bytes.
    Record(usize),
}

/// What begins at the front of `bytes`, which lie at `offset`, when `rest` bytes are left in the file.
fn front(bytes: &[u8], offset: u64, rest: usize) -> Result<Front, BadBytes> {
    let bad = |reason| Err(BadBytes::NoRecord { offset, reason });
    if rest < BLANK_LEN_MIN {
        return Ok(if bytes.is_empty() { Front::Short } else { Front::Blank });
    }
    let Some(&[a, b, c, d, magic @ ..]) = bytes.first_chunk::<BLANK_LEN_MIN>() else {
        return Ok(Front::Short);
    };
    let declared = i32::from_be_bytes([a, b, c, d]);
    let len = usize::try_from(declared).unwrap_or_default();
    match u32::from_be_bytes(magic) {
        BLANK_MAGIC if len == rest => return Ok(Front::Blank),
        MAGIC_V1 | MAGIC_V2 if len >= RECORD_LEN_MIN && len <= rest => {}
        MAGIC_V1 | MAGIC_V2 | BLANK_MAGIC => return bad(RecordError::Size { declared }),
        magic => return bad(RecordError::Magic { magic }),
    }
    let Some(front) = bytes.get(..FRONT_LEN) else { return Ok(Front::Short) };
    let declared = (&front[FRONT_LEN - 8..]).get_u64();
    if declared != offset {
        return bad(RecordError::PhysicalOffset { declared, actual: offset });
    }
    Ok(Front::Record(len))
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use bytes::Bytes;
    use ferromq_protocol::message::{RecordFields, encode_blank, set_log_fields};
    use parking_lot::Mutex;

    use super::*;
    use crate::log::LogBounds;

    const FILE: u64 = 4096;

    /// A log in memory.
    struct Memory {
        begin: Mutex<u64>,
        bytes: Mutex<Vec<u8>>,
        file_size: u64,
    }

    impl Memory {
        fn new(begin: u64, bytes: &[u8]) -> Self {
            Memory { begin: Mutex::new(begin), bytes: Mutex::new(bytes.to_vec()), file_size: FILE }
        }

        fn content(&self) -> Vec<u8> {
            self.bytes.lock().clone()
        }
    }

    impl ReplicaLog for Memory {
        fn bounds(&self) -> LogBounds {
            let begin = *self.begin.lock();
            let end = begin + self.bytes.lock().len() as u64;
            LogBounds { begin, confirmed: end, flushed: end, end }
        }

        fn file_size(&self) -> u64 {
            self.file_size
        }

        fn wake_at_end(&self, _: u64, _: Waker) {}

        fn read(&self, offset: u64, len_max: usize) -> Result<Bytes, ReplicaError> {
            let bytes = self.bytes.lock();
            let from = (offset - *self.begin.lock()) as usize;
            Ok(Bytes::copy_from_slice(&bytes[from..bytes.len().min(from + len_max)]))
        }

        fn append(&self, offset: u64, bytes: &[u8]) -> Result<(), ReplicaError> {
            let (end, mut content) = (self.bounds().end, self.bytes.lock());
            if content.is_empty() {
                *self.begin.lock() = offset;
            } else {
                assert_eq!(offset, end);
            }
            assert!(bytes.len() as u64 <= self.file_size - offset % self.file_size);
            content.extend_from_slice(bytes);
            Ok(())
        }

        fn flush_to(&self, _: u64) -> Result<(), ReplicaError> {
            Ok(())
        }

        fn truncate(&self, _: u64) -> Result<(), ReplicaError> {
            unreachable!("a slave never truncates")
        }

        fn confirm(&self, _: u64) {}

        fn lead(&self) -> Result<(), ReplicaError> {
            Ok(())
        }

        fn follow(&self) {}
    }

    /// Records from `begin` on, as a master's log has them; the last file's end is not filled.
    fn records(begin: u64, count: usize) -> Vec<u8> {
        let mut log = Vec::new();
        for number in 0..count {
            let body = vec![b'a' + (number % 26) as u8; 100 + number * 37 % 900];
            let mut record = Vec::new();
            let host = "10.0.0.1:1".parse().unwrap();
            RecordFields::new("T", 0, host, &body).encode_into(&mut record).unwrap();
            let rest = FILE - (begin + log.len() as u64) % FILE;
            if (record.len() + BLANK_LEN_MIN) as u64 > rest {
                let blank = log.len();
                log.resize(blank + rest as usize, 0);
                log[blank..blank + BLANK_LEN_MIN].copy_from_slice(&encode_blank(rest as u32));
            }
            set_log_fields(&mut record, number as i64, begin + log.len() as u64, 1000);
            log.extend_from_slice(&record);
        }
        log
    }

    fn take_all(
        log: &Memory,
        intake: &mut Intake,
        mut at: u64,
        bytes: &[u8],
        step: usize,
    ) -> Result<(), BadBytes> {
        for part in bytes.chunks(step) {
            intake.take(log, at as i64, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    #[test]
    fn whole_records_are_appended_however_they_are_cut() {
        let master = records(2 * FILE, 60);
        for step in [1, 7, 100, 4000, 100_000] {
            let log = Memory::new(0, b"");
            let mut intake = Intake::new(&log, None).unwrap();
            assert_eq!(intake.request(), 0);
            intake.heartbeat(12345).unwrap();
            let (whole, partly) = (master.len(), master.len() - 10);
            take_all(&log, &mut intake, 2 * FILE, &master[..partly], step).unwrap();
            assert!(log.content().len() < partly, "the last record is not whole");
            take_all(&log, &mut intake, 2 * FILE + partly as u64, &master[partly..], step).unwrap();
            assert_eq!((log.bounds().begin, log.content().len()), (2 * FILE, whole));
            assert_eq!(log.content(), master);
        }
    }

    #[test]
    fn a_log_that_begins_at_0_is_copied_whole() {
        let master = records(0, 60);
        let log = Memory::new(0, b"");
        let mut intake = Intake::new(&log, Some(0)).unwrap();
        assert_eq!(intake.request(), 1, "0 would be the last file");
        take_all(&log, &mut intake, 1, &master[1..], 1000).unwrap();
        assert_eq!(log.content(), master);
    }

    #[test]
    fn a_slave_that_has_copied_little_does_not_ask_for_the_last_file() {
        let master = records(0, 300);
        let ours = records(0, 3).len();
        let log = Memory::new(0, &master[..ours]);
        let mut intake = Intake::new(&log, None).unwrap();
        assert_eq!(intake.request(), 1, "0 would be the last file");
        take_all(&log, &mut intake, 1, &master[1..], 1000).unwrap();
        assert_eq!(log.content(), master);
    }

    #[test]
    fn a_slave_goes_on_where_its_log_ends_if_that_is_a_part_of_the_masters() {
        let master = records(FILE, 300);
        let boundary = 2 * FILE as usize;
        for ours in [records(FILE, 299).len(), boundary, records(FILE, 3).len()] {
            let log = Memory::new(FILE, &master[..ours]);
            let mut intake = Intake::new(&log, Some(7 * FILE)).unwrap();
            let from = intake.request();
            let end = FILE + ours as u64;
            assert!(from < end && from >= FILE);
            assert!(!intake.is_compared());
            intake.heartbeat(from as i64).unwrap();
            take_all(&log, &mut intake, from, &master[(from - FILE) as usize..], 1000).unwrap();
            assert!(intake.is_compared());
            assert_eq!(log.content(), master, "{ours}");
        }
    }

    #[test]
    fn a_slave_with_another_log_is_refused() {
        let master = records(0, 40);
        let mut ours = master.clone();
        let at = master.len() - 300;
        ours[at] ^= 1;
        let log = Memory::new(0, &ours);
        let mut intake = Intake::new(&log, None).unwrap();
        let from = intake.request();
        let result = intake.take(&log, from as i64, &master[from as usize..]);
        assert!(matches!(result, Err(BadBytes::Diverged { offset, .. }) if offset == at as u64));
        assert_eq!(log.content(), ours);
    }

    #[test]
    fn a_slave_that_has_more_is_refused() {
        let ours = records(0, 40);
        let log = Memory::new(0, &ours);
        let mut intake = Intake::new(&log, None).unwrap();
        let from = intake.request();
        let theirs = ours.len() - 100;
        intake.take(&log, from as i64, &ours[from as usize..theirs]).unwrap();
        intake.heartbeat(theirs as i64).unwrap();
        let result = intake.heartbeat(theirs as i64);
        let end = ours.len() as u64;
        assert!(
            matches!(result, Err(BadBytes::Ahead { end: at, missing }) if at == end && missing == theirs as u64)
        );
    }

    #[test]
    fn what_is_no_record_is_not_appended() {
        let master = records(0, 10);
        let second = u32::from_be_bytes(*master.first_chunk().unwrap()) as usize;
        let spoil = |at: usize| {
            let mut spoilt = master.clone();
            spoilt[second + at] ^= 0x55;
            spoilt
        };
        // Size, magic, body CRC, physical offset, body.
        for at in [0, 2, 4, 8, 28, 35, 95] {
            let log = Memory::new(0, b"");
            let mut intake = Intake::new(&log, None).unwrap();
            let result = take_all(&log, &mut intake, 0, &spoil(at), 10_000);
            assert!(
                matches!(result, Err(BadBytes::NoRecord { offset, .. }) if offset == second as u64),
                "{at}"
            );
            assert!(log.content().len() <= second);
        }
        let log = Memory::new(0, b"");
        let mut intake = Intake::new(&log, None).unwrap();
        assert!(matches!(intake.take(&log, 100, &master), Err(BadBytes::OtherFileSize { offset: 100, .. })));
        assert!(matches!(intake.take(&log, -1, &master), Err(BadBytes::OutOfPlace { .. })));
        intake.take(&log, 0, &master).unwrap();
        let expected = master.len() as u64;
        let result = intake.take(&log, 5, &master);
        assert!(matches!(result, Err(BadBytes::OutOfPlace { expected: at, found: 5 }) if at == expected));
        assert!(matches!(intake.heartbeat(5), Err(BadBytes::OutOfPlace { .. })));
        assert!(matches!(Intake::new(&Memory::new(0, b""), Some(5)), Err(BadBytes::OtherFileSize { .. })));
    }

    #[test]
    fn a_long_record_is_not_kept_in_memory() {
        let mut record = Vec::new();
        let body = vec![b'x'; KEPT_RECORD_MAX + 1];
        let host = "10.0.0.1:1".parse().unwrap();
        RecordFields::new("T", 0, host, &body).encode_into(&mut record).unwrap();
        let log = Memory { file_size: 64 << 20, ..Memory::new(0, b"") };
        let mut intake = Intake::new(&log, None).unwrap();
        intake.take(&log, 0, &record[..1000]).unwrap();
        assert_eq!(log.content().len(), 1000);
        intake.take(&log, 1000, &record[1000..]).unwrap();
        assert_eq!(log.content(), record);
    }
}
