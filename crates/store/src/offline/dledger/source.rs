//! The store of a stopped member of a DLedger group, read only.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferromq_protocol::message::RecordView;

use crate::error::FileError;
use crate::lock_file::StoreLock;
use crate::log::{LoadedFile, Segment, load_files};
use crate::mapped::MappedFile;
use crate::recovery;

use super::entries::{Met, Walk, Walked};
use super::error::{Damage, ImportError};
use super::import::check_target;
use super::numbering::{Numbering, RepeatedOffsets};

/// Damages of which a survey remembers the place. All are counted.
const DAMAGES_MAX: usize = 1000;
/// Longest file of DLedger that is read: `checkpoint` has two short lines.
const CHECKPOINT_LEN_MAX: u64 = 4096;

/// What is read. Brokers are kept away as long as it lives; nothing is changed.
#[derive(Debug)]
pub struct DledgerSource {
    root: PathBuf,
    member: Option<String>,
    /// The log of the time before DLedger, up to where that begins.
    before: Vec<LoadedFile>,
    entries: Vec<LoadedFile>,
    committed: Option<i64>,
    checkpoint: PathBuf,
    _lock: Option<StoreLock>,
}

/// What a source holds.
#[derive(Debug, Default)]
pub struct Survey {
    /// Whole messages from before DLedger.
    pub messages_before: u64,
    /// Whole messages in entries, those included that are not known to be committed.
    pub messages: u64,
    /// Bytes of all these messages.
    pub message_bytes: u64,
    /// Entries without a message, which later versions of DLedger write.
    pub controls: u64,
    /// Index of the last entry.
    pub last_index: Option<i64>,
    /// Its term.
    pub last_term: i64,
    /// The last entry that is known to be committed, as the checkpoint says.
    pub committed_index: Option<i64>,
    /// Messages behind that.
    pub uncommitted: u64,
    /// The first damaged places.
    pub damages: Vec<Damage>,
    /// How many there are.
    pub damaged: u64,
    /// Where something lies behind the log's end that is not a part of it: a torn write.
    pub tail: Option<Damage>,
    /// Queue offsets that were given twice.
    pub repeated: Vec<RepeatedOffsets>,
    pub(super) largest: usize,
    pub(super) largest_at: u64,
    pub(super) numbering: Numbering,
}

/// What is read of a source, in order.
#[derive(Debug)]
pub(super) enum Read<'a> {
    /// A message, and whether it is known to be committed.
    Message(&'a RecordView<'a>, Commitment),
    Damage(Damage),
    Tail(Damage),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commitment {
    BeforeDledger,
    Committed,
    Unknown,
}

impl DledgerSource {
    /// Finds the files and takes the lock.
    ///
    /// `member` is `dLegerSelfId`, which need not be given if the store has data of one member only. `data` are the directories of
    /// `storePathDLedgerCommitLog`, if that was set; `before` is the log of the time before DLedger, if it is not in `commitlog`.
    pub fn open(
        root: &Path,
        member: Option<&str>,
        data: &[PathBuf],
        before: Option<&Path>,
    ) -> Result<DledgerSource, ImportError> {
        let members = members(root)?;
        let member = match (member, members.as_slice()) {
            (Some(member), _) => Some(member.to_owned()),
            (None, [member]) => Some(member.clone()),
            (None, []) => None,
            (None, _) => return Err(ImportError::SeveralMembers { root: root.to_owned(), members }),
        };
        let directory = member.as_ref().map(|member| root.join(format!("dledger-{member}")));
        let data = match (data, &directory) {
            ([], Some(directory)) => vec![directory.join("data")],
            (data, _) => data.to_vec(),
        };
        if data.is_empty() || !data.iter().any(|directory| directory.is_dir()) {
            return Err(ImportError::NoDledger { root: root.to_owned() });
        }
        let lock = StoreLock::take_to_look(root)?;
        let mut entries = Vec::new();
        for directory in &data {
            entries.append(&mut load_files(directory)?);
        }
        entries.retain(|file| file.len > 0);
        entries.sort_by_key(|file| file.base);
        let begin = entries.first().map_or(u64::MAX, |file| file.base);
        let commit_log = before.map_or_else(|| root.join("commitlog"), Path::to_owned);
        let mut before = match commit_log.is_dir() {
            true => load_files(&commit_log)?,
            false => Vec::new(),
        };
        // Its files were closed where DLedger begins; what was allocated ahead is empty.
        before.retain(|file| file.len > 0 && file.base < begin);
        let checkpoint = directory.unwrap_or_else(|| root.to_owned()).join("checkpoint");
        let committed = match member {
            Some(_) => committed_index(&checkpoint)?,
            None => None,
        };
        Ok(DledgerSource {
            root: root.to_owned(),
            member,
            before,
            entries,
            committed,
            checkpoint,
            _lock: lock,
        })
    }

    /// Root of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `dLegerSelfId` of the member.
    pub fn member(&self) -> Option<&str> {
        self.member.as_deref()
    }

    /// Directory of the entries, of several the first.
    pub fn entries_directory(&self) -> Option<&Path> {
        self.entries.first()?.path.parent()
    }

    /// Offset behind the last file: behind everything that the source can name.
    pub(super) fn end(&self) -> u64 {
        let end = |file: &LoadedFile| file.base.saturating_add(file.len);
        self.before.iter().chain(&self.entries).map(end).max().unwrap_or(0)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.before.iter().chain(&self.entries).map(|file| file.len).sum()
    }

    /// Refuses a directory for the new store that is not empty, or lies in this one.
    pub fn check_target(&self, target: &Path) -> Result<(), ImportError> {
        check_target(&self.root, target)
    }

    /// Reads everything once. `progress` hears how many bytes were read, every few megabytes.
    pub fn survey(&self, progress: &mut dyn FnMut(u64)) -> Result<Survey, ImportError> {
        let mut survey = Survey { committed_index: self.committed, ..Survey::default() };
        let walked = self.read(progress, &mut |read| {
            match read {
                Read::Message(record, commitment) => {
                    *match commitment {
                        Commitment::BeforeDledger => &mut survey.messages_before,
                        _ => &mut survey.messages,
                    } += 1;
                    survey.uncommitted += u64::from(commitment == Commitment::Unknown);
                    survey.message_bytes += record.size() as u64;
                    survey.numbering.next(record);
                    if record.size() > survey.largest {
                        (survey.largest, survey.largest_at) = (record.size(), record.physical_offset());
                    }
                }
                Read::Damage(damage) => survey.damage(damage),
                Read::Tail(damage) => survey.tail = Some(damage),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        (survey.last_index, survey.last_term) = (walked.last_index, walked.last_term);
        survey.controls = walked.controls;
        survey.repeated = survey.numbering.repeated();
        if let Some(committed) = self.committed
            && committed > walked.last_index.unwrap_or(-1)
        {
            let reason = format!(
                "entries up to {committed} were committed, the last whole one is {}",
                walked.last_index.unwrap_or(-1)
            );
            let file = self.checkpoint.clone();
            survey.damage(Damage { file, position: 0, whole_again_at: None, reason });
        }
        if survey.messages_before + survey.messages == 0 {
            return Err(ImportError::NoMessage { root: self.root.clone() });
        }
        Ok(survey)
    }

    /// Hands everything to `take`, in order, which may stop.
    pub(super) fn read(
        &self,
        progress: &mut dyn FnMut(u64),
        take: &mut dyn FnMut(Read<'_>) -> Result<ControlFlow<()>, ImportError>,
    ) -> Result<Walked, ImportError> {
        let begin = self.entries.first().map_or(u64::MAX, |file| file.base);
        let mut read = ReadSoFar { bytes: 0, reported: 0, progress };
        if !self.read_before(begin, &mut read, take)? {
            return Ok(Walked::default());
        }
        let committed = self.committed;
        let mut meet = |met: Met<'_>| {
            let flow = match met {
                Met::Message(record, index) => {
                    read.more(record.size());
                    let commitment = match committed {
                        Some(committed) if index <= committed => Commitment::Committed,
                        _ => Commitment::Unknown,
                    };
                    take(Read::Message(record, commitment))?
                }
                Met::Damage(damage) => take(Read::Damage(damage))?,
                Met::Tail(damage) => take(Read::Tail(damage))?,
            };
            Ok(flow.is_continue())
        };
        Walk::new(committed, &mut meet).run(segments(&self.entries))
    }

    /// Reads the log of the time before DLedger. Says whether to go on.
    fn read_before(
        &self,
        begin: u64,
        read: &mut ReadSoFar<'_>,
        take: &mut dyn FnMut(Read<'_>) -> Result<ControlFlow<()>, ImportError>,
    ) -> Result<bool, ImportError> {
        let Some(first) = self.before.first() else { return Ok(true) };
        let mut stopped = false;
        recovery::walk(segments(&self.before), first.base, |met| {
            let damage = |file: &Segment, at: u64, whole_again_at, reason: &str| Damage {
                file: file.path().to_owned(),
                position: at - file.base(),
                whole_again_at,
                reason: reason.to_owned(),
            };
            let flow = match met {
                recovery::Met::Record(record, _) => {
                    read.more(record.size());
                    take(Read::Message(record, Commitment::BeforeDledger))?
                }
                recovery::Met::EndMarkLost { .. } => ControlFlow::Continue(()),
                recovery::Met::Damage { file, at, whole_again_at, reason } => {
                    take(Read::Damage(damage(file, at, Some(whole_again_at), reason)))?
                }
                recovery::Met::FilesMissing { from, to } => take(Read::Damage(missing(first, from, to)))?,
                // Where DLedger goes on behind it, the log was whole up to its end.
                recovery::Met::TornTail { file, at, reason } => match begin {
                    u64::MAX => take(Read::Tail(damage(file, at, None, reason)))?,
                    begin => take(Read::Damage(damage(file, at, Some(begin), reason)))?,
                },
            };
            stopped = flow.is_break();
            Ok::<_, ImportError>(!stopped)
        })?;
        let end = self.before.last().map_or(0, |last| last.base + last.len);
        if !stopped && begin != u64::MAX && end < begin {
            stopped = take(Read::Damage(missing(first, end, begin)))?.is_break();
        }
        Ok(!stopped)
    }
}

impl Survey {
    fn damage(&mut self, damage: Damage) {
        self.damaged += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(damage);
        }
    }
}

fn missing(first: &LoadedFile, from: u64, to: u64) -> Damage {
    let file = first.path.parent().map_or_else(|| first.path.clone(), Path::to_owned);
    let reason = format!("log files are missing: nothing is there from offset {from} to {to}");
    Damage { file, position: 0, whole_again_at: Some(to), reason }
}

/// How much was read.
struct ReadSoFar<'a> {
    bytes: u64,
    reported: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl ReadSoFar<'_> {
    fn more(&mut self, bytes: usize) {
        /// Bytes between two reports.
        const PROGRESS_BYTES: u64 = 4 << 20;
        self.bytes += bytes as u64;
        if self.bytes >= self.reported + PROGRESS_BYTES {
            self.reported = self.bytes;
            (self.progress)(self.bytes);
        }
    }
}

/// The files, each mapped when it is asked for. One that overlaps with the next is as long as that allows.
fn segments(files: &[LoadedFile]) -> impl Iterator<Item = Result<Arc<Segment>, ImportError>> {
    files.iter().enumerate().map(|(number, file)| {
        let next = files.get(number + 1).map_or(u64::MAX, |next| next.base - file.base);
        // No file of a log is longer than its setting can say.
        let len = file.len.min(next).min(i32::MAX as u64) as u32;
        let opened = File::open(&file.path).map_err(FileError::at("open", &file.path))?;
        let mapped =
            MappedFile::map_read_only(&file.path, opened, len).map_err(FileError::at("map", &file.path))?;
        Ok(Arc::new(Segment::new(file.base, mapped)))
    })
}

/// Ids of the members that have data in a store.
fn members(root: &Path) -> Result<Vec<String>, ImportError> {
    let mut members = Vec::new();
    for entry in fs::read_dir(root).map_err(FileError::at("list", root))? {
        let entry = entry.map_err(FileError::at("list", root))?;
        if let Some(name) = entry.file_name().to_str()
            && let Some(member) = name.strip_prefix("dledger-")
            && entry.path().join("data").is_dir()
        {
            members.push(member.to_owned());
        }
    }
    members.sort_unstable();
    Ok(members)
}

/// What the checkpoint, or the one before it, says of how far the log is committed (`docs/spec/05-ha.md` §10.2).
fn committed_index(checkpoint: &Path) -> Result<Option<i64>, ImportError> {
    for path in [checkpoint.to_owned(), checkpoint.with_extension("bak")] {
        let text = match fs::metadata(&path).map(|metadata| metadata.len()) {
            Ok(len) if len <= CHECKPOINT_LEN_MAX => fs::read(&path),
            Ok(_) => continue,
            Err(error) => Err(error),
        };
        let text = match text {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(FileError::at("read", &path)(error).into()),
        };
        let committed = text.lines().find_map(|line| line.trim().strip_prefix("committedIndex="));
        if let Some(committed) = committed.and_then(|value| value.trim().parse().ok()) {
            return Ok(Some(committed));
        }
    }
    Ok(None)
}
