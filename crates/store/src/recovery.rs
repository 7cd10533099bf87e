//! Reading the log after a start: where it ends, what in it is damaged, and where whole records go on.
//!
//! A record counts as whole by the rule of [`RecordView::check`]: lengths, position, body CRC, topic, properties. What is not
//! whole costs only itself: the scan searches for the next record that proves itself. Only behind the last whole record the log
//! is cut, and erased, so that nothing of it can ever come back.

use std::io;
use std::sync::Arc;

use ferromq_protocol::message::{BLANK_LEN_MIN, MAGIC_V1, MAGIC_V2, RecordView, encode_blank};
use memchr::memmem;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::commit_log::{Entry, entry_at};
use crate::disk;
use crate::error::FileError;
use crate::log::{MappedLog, Segment};

/// The bytes that both record magics begin with.
const MAGIC_FRONT: [u8; 3] = [0xDA, 0xA3, 0x20];
/// Log bytes between two lines of progress.
const PROGRESS_BYTES: u64 = 1 << 30;

/// Result of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Where the next record goes.
    pub(crate) end: u64,
    /// Whole records.
    pub(crate) records: u64,
    /// Damaged places in front of `end`.
    pub(crate) damages: u64,
    /// There was something behind `end`: a torn record, or rubbish.
    pub(crate) torn: bool,
    /// Store time of the last whole record.
    pub(crate) last_timestamp: i64,
}

/// What a [`walk`] meets, in the order of the log.
#[derive(Debug)]
pub(crate) enum Met<'a> {
    /// A whole record.
    Record(&'a RecordView<'a>, &'a Arc<Segment>),
    /// Nothing whole lies between `at` (in `file`) and `whole_again_at`.
    Damage { file: &'a Arc<Segment>, at: u64, whole_again_at: u64, reason: &'a str },
    /// Only zeros from `at` to the end of `file`, where the mark of the file's end should be.
    EndMarkLost { file: &'a Arc<Segment>, at: u64 },
    /// Files are missing between two offsets.
    FilesMissing { from: u64, to: u64 },
    /// Nothing whole lies behind `at`, which is the log's end, although something lies there.
    TornTail { file: &'a Arc<Segment>, at: u64, reason: &'a str },
}

/// Walks the log from `from` (where a record begins) on and tells `meet` everything, which may stop the walk. Changes nothing.
///
/// The segments must ascend. They are asked for one by one, so that a long log need not be mapped all at once.
pub(crate) fn walk<E>(
    segments: impl IntoIterator<Item = Result<Arc<Segment>, E>>,
    from: u64,
    mut meet: impl FnMut(Met<'_>) -> Result<bool, E>,
) -> Result<Scan, E> {
    let mut scan = Scan { end: from, ..Scan::default() };
    // Where the walk came off the track: nothing whole was found since.
    let mut lost: Option<(Arc<Segment>, u64, String)> = None;
    let mut expected = None;
    for segment in segments {
        let segment = &segment?;
        if segment.end() <= from {
            continue;
        }
        if let Some(expected) = expected
            && expected != segment.base()
        {
            scan.damages += 1;
            if !meet(Met::FilesMissing { from: expected, to: segment.base() })? {
                return Ok(scan);
            }
        }
        expected = Some(segment.end());
        segment.mapped().will_need(0, segment.size().min(64 << 20));
        let mut position = from.max(segment.base());
        while position < segment.end() {
            let reason = match entry_at(segment, position, segment.end()) {
                Entry::Record(record) => match record.check(position) {
                    Ok(()) => {
                        if let Some((file, at, reason)) = lost.take() {
                            scan.torn = false;
                            if !meet_damage(&mut scan, &mut meet, &file, at, position, &reason)? {
                                return Ok(scan);
                            }
                        }
                        if !meet(Met::Record(&record, segment))? {
                            return Ok(scan);
                        }
                        scan.records += 1;
                        scan.last_timestamp = record.store_timestamp();
                        position += record.size() as u64;
                        scan.end = position;
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                Entry::Blank => {
                    if lost.is_none() {
                        scan.end = segment.end();
                    }
                    break;
                }
                Entry::Bad(error) => error.to_string(),
            };
            lost.get_or_insert_with(|| (Arc::clone(segment), position, reason));
            match find_whole(segment, position + 1, segment.end()) {
                Some(found) => position = found,
                None => break,
            }
        }
        if lost.is_some() {
            // Unless something whole follows, this is the end. All zeros there is how an end looks.
            scan.torn |= first_nonzero(segment, scan.end).is_some();
        }
    }
    if let Some((file, at, reason)) = lost.filter(|_| scan.torn) {
        meet(Met::TornTail { file: &file, at, reason: &reason })?;
    }
    Ok(scan)
}

fn meet_damage<E>(
    scan: &mut Scan,
    meet: &mut impl FnMut(Met<'_>) -> Result<bool, E>,
    file: &Arc<Segment>,
    at: u64,
    whole_again_at: u64,
    reason: &str,
) -> Result<bool, E> {
    if at < file.end() && whole_again_at >= file.end() && first_nonzero_in(file, at, file.end()).is_none() {
        // Only the mark of the file's end is missing.
        if !meet(Met::EndMarkLost { file, at })? {
            return Ok(false);
        }
        if whole_again_at == file.end() {
            return Ok(true);
        }
    }
    scan.damages += 1;
    meet(Met::Damage { file, at, whole_again_at, reason })
}

/// Walks the whole records from `from` (where a record begins) on and hands them to `take`, which may stop it. What is
/// damaged is logged; a lost mark of a file's end is written again. Damage at or behind `fetched_again` is where the log ends: a
/// replica gets once more what lies there.
pub(crate) fn scan<E: From<FileError>>(
    log: &MappedLog,
    from: u64,
    fetched_again: u64,
    mut take: impl FnMut(&RecordView<'_>, &Arc<Segment>) -> Result<bool, E>,
) -> Result<Scan, E> {
    let mut next_progress = from + PROGRESS_BYTES;
    let mut records = 0u64;
    walk(log.all().into_iter().map(Ok), from, |met| {
        if let Met::Damage { file, at, .. } | Met::TornTail { file, at, .. } = met {
            refuse_unknown_version(file, at)?;
        }
        match met {
            Met::Record(record, segment) => {
                let position = record.physical_offset();
                if position >= next_progress {
                    tracing::info!(position, records, "reading the log");
                    next_progress += PROGRESS_BYTES;
                }
                records += 1;
                return take(record, segment);
            }
            Met::Damage { file, at, reason, .. } if at >= fetched_again => {
                tracing::warn!(file = %file.path().display(), offset = at, reason, "damaged: the log is cut here, and fetched again");
                return Ok(false);
            }
            Met::FilesMissing { from, to } if from >= fetched_again => {
                tracing::warn!(from, to, "log files are missing: the log is cut here, and fetched again");
                return Ok(false);
            }
            Met::Damage { file, at, whole_again_at, reason } => {
                tracing::error!(file = %file.path().display(), offset = at, whole_again_at, reason, "damaged part of the log skipped");
            }
            Met::EndMarkLost { file, at } => {
                let rest = (file.end() - at) as u32;
                if rest as usize >= BLANK_LEN_MIN {
                    file.mapped().write((at - file.base()) as u32, &encode_blank(rest));
                }
                tracing::warn!(file = %file.path().display(), offset = at, "the mark of the file's end was missing: written again");
            }
            Met::FilesMissing { from, to } => {
                tracing::error!(from, to, "log files are missing: the messages in them are lost");
            }
            Met::TornTail { file, at, reason } => {
                tracing::warn!(file = %file.path().display(), offset = at, reason, "the log's tail is not whole: cut and erased");
            }
        }
        Ok(true)
    })
}

/// A record that says it lies where it lies, but is of a kind that is not known here, was written by a later program: what it
/// holds must not be taken for damage, and erased.
fn refuse_unknown_version(file: &Segment, at: u64) -> Result<(), FileError> {
    let Some(record) = of_unknown_version(file.range(at, file.end()), at) else { return Ok(()) };
    // With a known magic it would be whole: that is a flipped bit.
    let known = |magic: u32| {
        let mut record = record.to_vec();
        record[4..8].copy_from_slice(&magic.to_be_bytes());
        RecordView::whole(&record, at).is_ok()
    };
    if known(MAGIC_V1) || known(MAGIC_V2) {
        return Ok(());
    }
    let magic = record[4..8].iter().fold(0u32, |magic, byte| magic << 8 | u32::from(*byte));
    let reason = format!(
        "the record at offset {at} is of a version (magic {magic:#010x}) that this program does not know: open the store with the \
         version that wrote it; the log was left as it is"
    );
    Err(FileError {
        action: "read",
        path: file.path().to_path_buf(),
        source: io::Error::new(io::ErrorKind::Unsupported, reason),
    })
}

/// The bytes of such a record.
fn of_unknown_version(bytes: &[u8], at: u64) -> Option<&[u8]> {
    let [size, magic, offset] = [0..4, 4..8, 28..36].map(|range| bytes.get(range));
    let size = usize::try_from(u32::from_be_bytes(size?.try_into().ok()?)).ok()?;
    let is_new = magic?.starts_with(&MAGIC_FRONT)
        && ![MAGIC_V1, MAGIC_V2].iter().any(|known| Some(&known.to_be_bytes()[..]) == magic);
    (is_new && offset? == at.to_be_bytes() && size >= 36).then(|| bytes.get(..size))?
}

/// The first record in `[from, end)` of the segment that proves itself.
pub(crate) fn find_whole(segment: &Segment, from: u64, end: u64) -> Option<u64> {
    let end = end.min(segment.end());
    let finder = memmem::Finder::new(&MAGIC_FRONT);
    for (start, stop) in data_ranges(segment, from, end) {
        let mut at = start;
        while at < stop {
            let Some(found) = finder.find(segment.range(at, stop)) else { break };
            let magic = at + found as u64;
            at = magic + 1;
            if let Some(record) = magic.checked_sub(4).filter(|record| *record >= from)
                && RecordView::whole(segment.range(record, end), record).is_ok()
            {
                return Some(record);
            }
        }
    }
    None
}

/// Parts of `[from, end)` that may hold something: what the file system knows to be empty is left out. (Files are allocated
/// ahead, so most of the last one was never written.)
fn data_ranges(segment: &Segment, from: u64, end: u64) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut at = from;
    while at < end {
        let file = segment.mapped().file();
        let in_file = at - segment.base();
        let (start, stop) = match seek(file, SeekFrom::Data(in_file)) {
            Ok(start) => (start, seek(file, SeekFrom::Hole(start)).unwrap_or(u64::from(segment.size()))),
            Err(rustix::io::Errno::NXIO) => break,
            // Not supported here: everything may hold something.
            Err(_) => (in_file, u64::from(segment.size())),
        };
        let (start, stop) = ((segment.base() + start).max(at), (segment.base() + stop).min(end));
        if start >= stop {
            break;
        }
        ranges.push((start, stop));
        at = stop;
    }
    ranges
}

pub(crate) fn first_nonzero(segment: &Segment, from: u64) -> Option<u64> {
    first_nonzero_in(segment, from.max(segment.base()), segment.end())
}

fn first_nonzero_in(segment: &Segment, from: u64, end: u64) -> Option<u64> {
    data_ranges(segment, from, end).into_iter().find_map(|(start, stop)| {
        let bytes = segment.range(start, stop);
        bytes.iter().position(|byte| *byte != 0).map(|at| start + at as u64)
    })
}

/// Erases everything behind `end`: the rest of its file becomes zeros, the files behind it are deleted. Returns the files
/// that are left.
pub(crate) fn cut(segments: Vec<Arc<Segment>>, end: u64) -> Result<Vec<Arc<Segment>>, FileError> {
    let mut kept = Vec::new();
    for segment in segments {
        if segment.base() >= end && !(kept.is_empty() && segment.base() == end) {
            disk::remove_file(segment.path()).map_err(FileError::at("delete", segment.path()))?;
            continue;
        }
        erase_behind(&segment, end)?;
        kept.push(segment);
    }
    Ok(kept)
}

/// Makes everything in a file zeros that lies at or behind `end`.
pub(crate) fn erase_behind(segment: &Segment, end: u64) -> Result<(), FileError> {
    match first_nonzero(segment, end).filter(|_| end < segment.end()) {
        Some(from) => zero(segment, from).map_err(FileError::at("erase the tail of", segment.path())),
        None => Ok(()),
    }
}

fn zero(segment: &Segment, from: u64) -> io::Result<()> {
    let file = segment.mapped().file();
    let (at, len) = (from - segment.base(), segment.end() - from);
    if fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, len).is_err() {
        let zeros = vec![0; 1 << 20];
        let mut done = 0;
        while done < len {
            let part = zeros.len().min((len - done) as usize);
            disk::write_all_at(file, &zeros[..part], at + done)?;
            done += part as u64;
        }
    }
    disk::sync_data(file)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ferromq_protocol::message::{RecordFields, set_log_fields};

    use super::*;

    const FILE: u32 = 4096;

    struct Fixture {
        _directory: tempfile::TempDir,
        log: MappedLog,
        /// Begin and end of each record.
        records: Vec<(u64, u64)>,
    }

    /// Two and a half files of records.
    fn fixture() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let host: SocketAddr = "10.0.0.1:54321".parse().unwrap();
        let segments: Vec<_> = (0..3)
            .map(|file| MappedLog::create(directory.path(), file * u64::from(FILE), FILE).unwrap())
            .collect();
        let log = MappedLog::new(FILE, segments.clone());
        let mut records = Vec::new();
        for segment in &segments {
            let mut position = 0u32;
            for number in 0.. {
                let body = vec![b'a' + number as u8; 300];
                let fields =
                    RecordFields { properties: b"TAGS\x01a\x02", ..RecordFields::new("T", 0, host, &body) };
                let mut record = Vec::new();
                fields.encode_into(&mut record).unwrap();
                if position as usize + record.len() + 8 > FILE as usize {
                    segment.mapped().write(position, &encode_blank(FILE - position));
                    break;
                }
                if segment.base() == 2 * u64::from(FILE) && number == 5 {
                    break;
                }
                let at = segment.base() + u64::from(position);
                set_log_fields(&mut record, records.len() as i64, at, 1000 + records.len() as i64);
                segment.mapped().write(position, &record);
                position += record.len() as u32;
                records.push((at, at + record.len() as u64));
            }
        }
        Fixture { _directory: directory, log, records }
    }

    impl Fixture {
        fn scan(&self) -> (Scan, Vec<u64>) {
            let mut found = Vec::new();
            let scan = scan::<FileError>(&self.log, 0, u64::MAX, |record, _| {
                found.push(record.physical_offset());
                Ok(true)
            })
            .unwrap();
            (scan, found)
        }

        fn overwrite(&self, at: u64, bytes: &[u8]) {
            let segment = self.log.segment_at(at).unwrap();
            segment.mapped().write((at - segment.base()) as u32, bytes);
        }

        /// Scans and expects every record but those.
        fn expect_without(&self, missing: &[usize]) -> Scan {
            let (scan, found) = self.scan();
            let expected: Vec<u64> = (0..self.records.len())
                .filter(|number| !missing.contains(number))
                .map(|number| self.records[number].0)
                .collect();
            assert_eq!(found, expected);
            scan
        }
    }

    #[test]
    fn a_sound_log_is_read_to_its_end() {
        let fixture = fixture();
        let scan = fixture.expect_without(&[]);
        let end = fixture.records.last().unwrap().1;
        let records = fixture.records.len() as u64;
        assert_eq!(
            scan,
            Scan { end, records, damages: 0, torn: false, last_timestamp: 999 + records as i64 }
        );
    }

    #[test]
    fn a_damaged_record_costs_only_itself() {
        for field in [4, 8, 30, 100, 397] {
            let fixture = fixture();
            fixture.overwrite(fixture.records[3].0 + field, &[0xEE, 0]);
            let scan = fixture.expect_without(&[3]);
            assert_eq!((scan.damages, scan.torn), (1, false), "field at {field}");
        }
        let fixture = fixture();
        fixture.overwrite(fixture.records[3].0, &7u32.to_be_bytes());
        fixture.expect_without(&[3]);
        fixture.overwrite(fixture.records[4].0 + 200, &[0; 400]);
        assert_eq!(fixture.expect_without(&[3, 4, 5]).damages, 1);
    }

    #[test]
    fn a_damaged_first_record_of_a_file_and_a_lost_end_mark_cost_nothing_else() {
        let fixture = fixture();
        let first = fixture.records.iter().position(|(at, _)| *at == u64::from(FILE)).unwrap();
        fixture.overwrite(u64::from(FILE) + 4, &[0; 4]);
        fixture.expect_without(&[first]);
        let mark = fixture.records[first - 1].1;
        fixture.overwrite(mark, &[0; 8]);
        fixture.expect_without(&[first]);
        let fixture = self::fixture();
        fixture.overwrite(mark, &[0; 8]);
        assert_eq!(fixture.expect_without(&[]).damages, 0);
        let segment = fixture.log.segment_at(0).unwrap();
        assert_eq!(
            segment.range(mark, mark + 8),
            encode_blank((segment.end() - mark) as u32),
            "the mark is back"
        );
    }

    #[test]
    fn a_torn_tail_is_cut_and_erased() {
        let fixture = fixture();
        let last = fixture.records.len() - 1;
        let (begin, end) = fixture.records[last];
        fixture.overwrite(begin + 150, &vec![0; (end - begin - 150) as usize]);
        let scan = fixture.expect_without(&[last]);
        assert_eq!((scan.end, scan.torn, scan.damages), (begin, true, 0));
        let kept = cut(fixture.log.all(), scan.end).unwrap();
        assert_eq!(kept.len(), 3);
        assert_eq!(first_nonzero(&kept[2], scan.end), None);
        let (again, _) = fixture.scan();
        assert_eq!((again.end, again.torn), (begin, false));
    }

    #[test]
    fn a_copy_behind_the_tail_is_no_record() {
        let fixture = fixture();
        let (begin, end) = *fixture.records.last().unwrap();
        let copy = fixture.log.segment_at(begin).unwrap().range(begin, end).to_vec();
        fixture.overwrite(end, &copy);
        let scan = fixture.expect_without(&[]);
        assert_eq!((scan.end, scan.torn), (end, true));
    }

    #[test]
    fn files_without_any_record_are_deleted() {
        let fixture = fixture();
        let first_of_last = fixture.records.iter().position(|(at, _)| *at == 2 * u64::from(FILE)).unwrap();
        fixture.overwrite(2 * u64::from(FILE), &vec![0; FILE as usize]);
        let missing: Vec<usize> = (first_of_last..fixture.records.len()).collect();
        let scan = fixture.expect_without(&missing);
        assert_eq!((scan.end, scan.torn), (2 * u64::from(FILE), false));
        let kept = cut(fixture.log.all(), scan.end).unwrap();
        assert_eq!(kept.len(), 2);
    }
}
