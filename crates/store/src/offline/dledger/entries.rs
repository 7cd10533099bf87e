//! The entries of a DLedger log (`docs/spec/05-ha.md` §10.3), and a walk over them.

use std::path::Path;
use std::sync::Arc;

use ferromq_protocol::message::RecordView;

use crate::log::Segment;
use crate::recovery::{find_whole, first_nonzero};

use super::error::{Damage, ImportError};

/// Bytes in front of the message.
pub(super) const HEADER_LEN: usize = 48;

const MESSAGE: i32 = 1;
/// What later versions of DLedger write for themselves: the begin of a term, a change of the group.
const CONTROL: std::ops::RangeInclusive<i32> = 2..=3;
const BLANK: i32 = -1;

/// What lies at a place of the files.
#[derive(Debug)]
enum Entry<'a> {
    Message {
        header: Header,
        record: RecordView<'a>,
    },
    /// The message is whole, and lies where it says; what is in front of it is no right header.
    HeaderDamaged {
        record: RecordView<'a>,
        reason: String,
    },
    Control(Header),
    /// The end of the file.
    Blank,
    Bad(String),
}

#[derive(Debug, Clone, Copy)]
struct Header {
    magic: i32,
    size: u64,
    index: i64,
    term: i64,
}

impl Header {
    /// The header at the begin of `bytes`, which lie at `position` and end with the file.
    fn parse(bytes: &[u8], position: u64) -> Result<Header, String> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err("no entry fits here".to_owned());
        };
        let int =
            |at: usize| i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let long = |at: usize| i64::from(int(at)) << 32 | i64::from(int(at + 4) as u32);
        let (magic, size, body_len) = (int(0), i64::from(int(4)), i64::from(int(44)));
        if magic == 0 && size == 0 {
            return Err("no entry begins here".to_owned());
        }
        if magic != MESSAGE && !CONTROL.contains(&magic) {
            return Err(format!("the magic of an entry is 1, here is {magic}"));
        }
        if body_len < 0 || size != HEADER_LEN as i64 + body_len || size > bytes.len() as i64 {
            return Err(format!(
                "an entry of {size} bytes with a body of {body_len}, where {} bytes are left in the file",
                bytes.len()
            ));
        }
        if long(24) as u64 != position {
            return Err(format!("the entry says that it lies at {}", long(24)));
        }
        Ok(Header { magic, size: size as u64, index: long(8), term: long(16) })
    }
}

fn entry_at(segment: &Segment, position: u64) -> Entry<'_> {
    let bytes = segment.range(position, segment.end());
    let Some([a, b, c, d, e, f, g, h]) = bytes.first_chunk::<8>().copied() else { return Entry::Blank };
    if i32::from_be_bytes([a, b, c, d]) == BLANK {
        return match u32::from_be_bytes([e, f, g, h]) as usize {
            len if len == bytes.len() => Entry::Blank,
            len => Entry::Bad(format!(
                "the file's end is marked, but with {len} bytes instead of {}",
                bytes.len()
            )),
        };
    }
    let record = bytes.get(HEADER_LEN..).map_or(Err(None), |body| {
        RecordView::whole(body, position + HEADER_LEN as u64).map_err(|error| Some(error.to_string()))
    });
    match (Header::parse(bytes, position), record) {
        (Ok(header), _) if header.magic != MESSAGE => Entry::Control(header),
        (Ok(header), Ok(record)) if header.size == (HEADER_LEN + record.size()) as u64 => {
            Entry::Message { header, record }
        }
        (Ok(header), Ok(record)) => {
            let reason = format!("an entry of {} bytes holds a message of {}", header.size, record.size());
            Entry::HeaderDamaged { record, reason }
        }
        (Err(reason), Ok(record)) => Entry::HeaderDamaged { record, reason },
        (Ok(_), Err(reason)) => Entry::Bad(reason.unwrap_or_default()),
        (Err(reason), Err(_)) => Entry::Bad(reason),
    }
}

/// What a [`Walk`] meets, in order.
#[derive(Debug)]
pub(super) enum Met<'a> {
    /// A whole message, and the index of its entry.
    Message(&'a RecordView<'a>, i64),
    /// A part of what was committed is not whole.
    Damage(Damage),
    /// Behind what is known to be committed the log does not go on in order: a torn write, or what a change of leaders left.
    Tail(Damage),
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Walked {
    /// Index of the last entry.
    pub(super) last_index: Option<i64>,
    /// Its term.
    pub(super) last_term: i64,
    /// Entries without a message.
    pub(super) controls: u64,
}

/// A walk over the entries.
pub(super) struct Walk<'w> {
    /// The last entry that is known to be committed.
    pub(super) committed: Option<i64>,
    pub(super) meet: &'w mut dyn FnMut(Met<'_>) -> Result<bool, ImportError>,
    walked: Walked,
    /// Where the last entry ends.
    end: u64,
    /// Where the walk came off the track: nothing whole was found since.
    lost: Option<Lost>,
}

struct Lost {
    file: Arc<Segment>,
    at: u64,
    reason: String,
}

impl Lost {
    fn damage(&self, whole_again_at: Option<u64>) -> Damage {
        let position = self.at - self.file.base();
        Damage { file: self.file.path().to_owned(), position, whole_again_at, reason: self.reason.clone() }
    }
}

impl<'w> Walk<'w> {
    pub(super) fn new(
        committed: Option<i64>,
        meet: &'w mut dyn FnMut(Met<'_>) -> Result<bool, ImportError>,
    ) -> Self {
        Walk { committed, meet, walked: Walked::default(), end: 0, lost: None }
    }

    /// Walks over all entries of the segments, which must ascend. A whole message is met whatever is wrong in front of it.
    pub(super) fn run(
        mut self,
        segments: impl IntoIterator<Item = Result<Arc<Segment>, ImportError>>,
    ) -> Result<Walked, ImportError> {
        let mut expected = None;
        for segment in segments {
            let segment = segment?;
            if let Some(expected) = expected.replace(segment.end())
                && expected != segment.base()
                && !self.missing(segment.path(), expected, segment.base())?
            {
                return Ok(self.walked);
            }
            if !self.file(&segment)? {
                return Ok(self.walked);
            }
        }
        if let Some(lost) = self.lost.take()
            && first_nonzero(&lost.file, lost.at).is_some()
        {
            // Whether it is a loss is told by the index up to which everything was committed.
            (self.meet)(Met::Tail(lost.damage(None)))?;
        }
        Ok(self.walked)
    }

    /// Whether everything was met that is known to be committed.
    fn is_behind_committed(&self) -> bool {
        self.committed.is_some_and(|committed| self.walked.last_index.is_some_and(|last| last >= committed))
    }

    /// Files are missing between two offsets. Says whether to go on.
    fn missing(&mut self, file: &Path, from: u64, to: u64) -> Result<bool, ImportError> {
        let damage = Damage {
            file: file.to_owned(),
            position: 0,
            whole_again_at: Some(to),
            reason: format!("nothing is there from offset {from} to {to}, where this file begins"),
        };
        match self.is_behind_committed() {
            true => {
                (self.meet)(Met::Tail(damage))?;
                Ok(false)
            }
            false => (self.meet)(Met::Damage(damage)),
        }
    }

    /// Walks over one file. Says whether to go on.
    fn file(&mut self, segment: &Arc<Segment>) -> Result<bool, ImportError> {
        segment.mapped().will_need(0, segment.size().min(64 << 20));
        let mut position = segment.base();
        while position < segment.end() {
            let reason = match entry_at(segment, position) {
                Entry::Blank => break,
                Entry::Message { header, record } => {
                    let index = match self.follows(header, position) {
                        Ok(index) => index,
                        Err(reason) => {
                            if !self.odd(segment, position, Some(record.physical_offset()), reason)? {
                                return Ok(false);
                            }
                            self.next_index()
                        }
                    };
                    if !self.found(record.physical_offset())? || !self.message(&record, index, header.term)? {
                        return Ok(false);
                    }
                    position = self.end;
                    continue;
                }
                Entry::HeaderDamaged { record, reason } => {
                    let again = Some(record.physical_offset());
                    if !self.found(record.physical_offset())?
                        || !self.odd(segment, position, again, reason)?
                        || !self.message(&record, self.next_index(), self.walked.last_term)?
                    {
                        return Ok(false);
                    }
                    position = self.end;
                    continue;
                }
                Entry::Control(header) => match self.follows(header, position) {
                    Ok(index) => {
                        if !self.found(position)? {
                            return Ok(false);
                        }
                        position += header.size;
                        (self.walked.last_index, self.walked.last_term) = (Some(index), header.term);
                        (self.walked.controls, self.end) = (self.walked.controls + 1, position);
                        continue;
                    }
                    Err(reason) => reason,
                },
                Entry::Bad(reason) => reason,
            };
            self.lost.get_or_insert_with(|| Lost { file: Arc::clone(segment), at: position, reason });
            if self.is_behind_committed() {
                break;
            }
            // The header in front of the message that is whole again is looked at first.
            let from = position + 1 + HEADER_LEN as u64;
            match find_whole(segment, from.min(segment.end()), segment.end()) {
                Some(record) => position = record - HEADER_LEN as u64,
                None => break,
            }
        }
        // Behind what is committed the log ends where it is not in order.
        Ok(self.lost.is_none() || !self.is_behind_committed() || self.tail()?)
    }

    fn message(&mut self, record: &RecordView<'_>, index: i64, term: i64) -> Result<bool, ImportError> {
        self.end = record.physical_offset() + record.size() as u64;
        (self.walked.last_index, self.walked.last_term) = (Some(index), term);
        (self.meet)(Met::Message(record, index))
    }

    fn next_index(&self) -> i64 {
        self.walked.last_index.map_or(0, |last| last.saturating_add(1))
    }

    /// The index of an entry, if it goes on from the last one: by one, or by as many as can lie in what is not whole.
    fn follows(&self, header: Header, position: u64) -> Result<i64, String> {
        let Some(last) = self.walked.last_index else {
            return if header.index >= 0 { Ok(header.index) } else { Err(format!("index {}", header.index)) };
        };
        let skipped = header.index.checked_sub(self.next_index());
        let room = (position.saturating_sub(self.end) / HEADER_LEN as u64) as i64;
        match skipped {
            Some(skipped) if (0..=room).contains(&skipped) && header.term >= self.walked.last_term => {
                Ok(header.index)
            }
            _ => Err(format!(
                "entry {} of term {} behind entry {last} of term {}",
                header.index, header.term, self.walked.last_term
            )),
        }
    }

    /// The track is found again: reports what lies before. Says whether to go on.
    fn found(&mut self, whole_again_at: u64) -> Result<bool, ImportError> {
        match self.lost.take() {
            Some(lost) => (self.meet)(Met::Damage(lost.damage(Some(whole_again_at)))),
            None => Ok(true),
        }
    }

    /// Something is wrong with the header of a whole message. Says whether to go on.
    fn odd(
        &mut self,
        segment: &Segment,
        at: u64,
        whole_again_at: Option<u64>,
        reason: String,
    ) -> Result<bool, ImportError> {
        let file = segment.path().to_owned();
        let damage = Damage { file, position: at - segment.base(), whole_again_at, reason };
        match self.is_behind_committed() {
            true => {
                (self.meet)(Met::Tail(damage))?;
                Ok(false)
            }
            false => (self.meet)(Met::Damage(damage)),
        }
    }

    /// Ends the walk at the place where it came off the track.
    fn tail(&mut self) -> Result<bool, ImportError> {
        if let Some(lost) = self.lost.take()
            && first_nonzero(&lost.file, lost.at).is_some()
        {
            (self.meet)(Met::Tail(lost.damage(None)))?;
        }
        Ok(false)
    }
}
