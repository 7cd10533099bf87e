//! Writing a new store with the messages of a source, and comparing the two.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferromq_protocol::message::RecordView;

use crate::commit_log::{Entry, entry_at};
use crate::disk;
use crate::error::FileError;
use crate::log::{LoadedFile, Segment, load_files, parse_file_name};
use crate::mapped::MappedFile;
use crate::offline::{CheckProgress, CheckReport, Checked, Finding, OfflineStore, Rebuilt, rebuild};
use crate::options::StoreOptions;
use crate::queue::{ConsumeQueues, UNIT, Unit};

use super::error::ImportError;
use super::numbering::Numbering;
use super::source::{Commitment, DledgerSource, Read, Survey};
use super::writer::{Layout, LogWriter, is_same};

/// What is done with messages that are not known to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uncommitted {
    /// If there are any, nothing is imported.
    #[default]
    Refuse,
    /// They are taken over.
    Keep,
    /// They are left out.
    Drop,
}

/// How an import is made.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The new store: `root`, which must not be there or be empty, and file sizes. Its log lies in `commitlog`.
    pub store: StoreOptions,
    /// What is done with messages that are not known to be committed.
    pub uncommitted: Uncommitted,
    /// What is whole is imported although other parts are damaged.
    pub skip_damaged: bool,
}

/// What an import is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportStep {
    /// Messages are copied.
    Copy,
    /// Queues and index are laid.
    Queues,
    /// Every message is compared with the source.
    Compare,
    /// Queues and index are compared with the log.
    Check,
}

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// The new store, as it was laid.
    pub store: Rebuilt,
    /// What the check of the new store looked at.
    pub checked: Checked,
    /// What it found.
    pub findings: Vec<Finding>,
    /// Messages that were left out because they are not known to be committed.
    pub dropped: u64,
    /// Queues without messages that go on where they were.
    pub empty_queues: u64,
    /// Files of `config` that were copied.
    pub config_files: u64,
}

/// Writes a new store. When it fails nothing is left of it; the source is never changed.
///
/// The store lies in a directory `….importing` until it is complete, so that no broker can be started on a part of it.
pub fn import(
    source: &DledgerSource,
    survey: &Survey,
    options: &ImportOptions,
    progress: &dyn Fn(ImportStep, u64, u64),
) -> Result<Imported, ImportError> {
    if let Some(first) = survey.damages.first().filter(|_| !options.skip_damaged) {
        return Err(ImportError::Damaged { count: survey.damaged, first: first.clone() });
    }
    if survey.uncommitted > 0 && options.uncommitted == Uncommitted::Refuse {
        let (messages, committed) = (survey.uncommitted, survey.committed_index);
        return Err(ImportError::Uncommitted { messages, committed });
    }
    let dropped = if options.uncommitted == Uncommitted::Drop { survey.uncommitted } else { 0 };
    let target = options.store.root.clone();
    let work = Work::begin(source.root(), &target)?;
    let store = StoreOptions { root: work.path.clone(), commit_log_directory: None, ..options.store.clone() };
    let layout = Layout::behind(source.end(), store.commit_log_file_size);
    if survey.largest as u64 > layout.record_len_max() {
        return Err(ImportError::FileSize {
            offset: survey.largest_at,
            size: survey.largest,
            file_size: store.commit_log_file_size,
        });
    }
    let import = Import { source, survey, uncommitted: options.uncommitted, store: &store, layout, progress };
    let end = import.copy()?;
    let empty_queues = import.keep_empty_queues()?;
    let config_files = copy_config(source.root(), &store.root)?;
    let rebuilt = rebuild(&store, &|read| progress(ImportStep::Queues, read, survey.message_bytes))?;
    let expected = survey.messages_before + survey.messages - dropped;
    if (rebuilt.records, rebuilt.log_end) != (expected, end) {
        let (records, log_end) = (rebuilt.records, rebuilt.log_end);
        let reason = format!(
            "the log has {records} messages and ends at {log_end}, where {expected} messages end at {end}"
        );
        return Err(ImportError::Differs { reason });
    }
    import.compare()?;
    let (checked, findings) = import.check()?;
    work.complete(&target)?;
    Ok(Imported { store: rebuilt, checked, findings, dropped, empty_queues, config_files })
}

/// An import under way.
struct Import<'a> {
    source: &'a DledgerSource,
    survey: &'a Survey,
    uncommitted: Uncommitted,
    /// The new store.
    store: &'a StoreOptions,
    /// Where its log begins.
    layout: Layout,
    progress: &'a dyn Fn(ImportStep, u64, u64),
}

impl Import<'_> {
    /// Hands the messages that are taken over to `take`, with their queue offsets.
    fn messages(
        &self,
        step: ImportStep,
        take: &mut dyn FnMut(&RecordView<'_>, i64) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let mut numbering = Numbering::default();
        let mut progress = |read| (self.progress)(step, read, self.survey.message_bytes);
        self.source.read(&mut progress, &mut |read| {
            // What is damaged was reported by the survey, and the decision was to leave it out.
            let Read::Message(record, commitment) = read else { return Ok(ControlFlow::Continue(())) };
            if commitment == Commitment::Unknown && self.uncommitted != Uncommitted::Keep {
                return Ok(ControlFlow::Break(()));
            }
            take(record, numbering.next(record))?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    /// Writes the log. Returns its end.
    fn copy(&self) -> Result<u64, ImportError> {
        let mut log = LogWriter::create(&self.store.commit_log_directory(), self.layout)?;
        self.messages(ImportStep::Copy, &mut |record, queue_offset| Ok(log.append(record, queue_offset)?))?;
        Ok(log.finish()?)
    }

    /// Reads both logs once more, and compares message by message: bytes, CRCs, queue offsets, places.
    fn compare(&self) -> Result<(), ImportError> {
        let mut log = NewLog { files: load_files(&self.store.commit_log_directory())?, segment: None };
        let mut layout = self.layout;
        self.messages(ImportStep::Compare, &mut |record, queue_offset| {
            let (offset, _) = layout.next(record.size());
            let differs = |what: &str| {
                let from = record.physical_offset();
                let reason = format!("the message at offset {from} of the source, now at {offset}: {what}");
                ImportError::Differs { reason }
            };
            let segment = log.segment_at(offset)?.ok_or_else(|| differs("its log file is missing"))?;
            let copy = match entry_at(&segment, offset, segment.end()) {
                Entry::Record(copy) => copy,
                Entry::Blank => return Err(differs("the log file ends there")),
                Entry::Bad(error) => return Err(differs(&error.to_string())),
            };
            copy.check(offset).map_err(|error| differs(&error.to_string()))?;
            if copy.queue_offset() != queue_offset {
                let is = copy.queue_offset();
                return Err(differs(&format!("its queue offset is {is} instead of {queue_offset}")));
            }
            if is_same(record, &copy) { Ok(()) } else { Err(differs("its content is another")) }
        })
    }

    /// Compares queues and index with the log.
    fn check(&self) -> Result<(Checked, Vec<Finding>), ImportError> {
        struct Report<'a> {
            findings: Vec<Finding>,
            progress: &'a dyn Fn(ImportStep, u64, u64),
        }
        impl CheckReport for Report<'_> {
            fn found(&mut self, finding: Finding) {
                /// Findings that are listed.
                const FINDINGS_MAX: usize = 1000;
                if self.findings.len() < FINDINGS_MAX {
                    self.findings.push(finding);
                }
            }

            fn progress(&mut self, progress: CheckProgress) {
                let (CheckProgress::Log { done, of } | CheckProgress::Queues { done, of }) = progress;
                (self.progress)(ImportStep::Check, done, of);
            }
        }
        let mut report = Report { findings: Vec::new(), progress: self.progress };
        let checked = OfflineStore::open(self.store.clone())?.check(None, &mut report)?;
        Ok((checked, report.findings))
    }

    /// Keeps how far queues had got whose messages have all expired: their last units come along. They point in front of the new log,
    /// so that they count as what they are.
    fn keep_empty_queues(&self) -> Result<u64, ImportError> {
        let from = self.source.root().join("consumequeue");
        if !from.is_dir() {
            return Ok(0);
        }
        let options = StoreOptions { root: self.source.root().to_owned(), ..self.store.clone() };
        let queues = ConsumeQueues::new(&options);
        queues.discover().map_err(FileError::at("list", &from))?;
        let mut kept = 0;
        for queue in queues.iter() {
            let (topic, queue_id) = (queue.topic(), queue.queue_id());
            // Light queues are fed by the messages of other topics, and topics of batches have other files.
            if self.survey.numbering.has(topic, queue_id)
                || topic.starts_with("%LMQ%")
                || queues.batch().contains(topic)
            {
                continue;
            }
            let path = Path::new(topic).join(queue_id.to_string());
            let to = self.store.root.join("consumequeue").join(&path);
            kept += u64::from(keep_last_units(&from.join(path), &to, self.store)?);
        }
        Ok(kept)
    }
}

/// Copies the last file of a queue that has units, if there is one.
fn keep_last_units(from: &Path, to: &Path, store: &StoreOptions) -> Result<bool, ImportError> {
    let file_len = store.consume_queue_file_units() * UNIT as u64;
    let mut files = Vec::new();
    for entry in fs::read_dir(from).map_err(FileError::at("list", from))? {
        let entry = entry.map_err(FileError::at("list", from))?;
        if let Some(base) = parse_file_name(&entry.file_name()).filter(|base| base.is_multiple_of(file_len)) {
            files.push((base, entry.path(), entry.file_name()));
        }
    }
    files.sort_unstable();
    for (_, path, name) in files.into_iter().rev() {
        let mut units = Vec::new();
        // A file of another length was not written with this setting.
        let file = File::open(&path).map_err(FileError::at("open", &path))?;
        file.take(file_len).read_to_end(&mut units).map_err(FileError::at("read", &path))?;
        let is_written = |unit: &[u8]| unit.first_chunk().is_some_and(|unit| Unit::decode(unit).is_written());
        let Some(last) = units.chunks_exact(UNIT).rposition(is_written) else { continue };
        disk::create_dir_all(to).map_err(FileError::at("create", to))?;
        let path = to.join(name);
        let copy = disk::create_new(&path).map_err(FileError::at("create", &path))?;
        disk::write_all_at(&copy, &units[..(last + 1) * UNIT], 0).map_err(FileError::at("write", &path))?;
        disk::set_len(&copy, file_len).map_err(FileError::at("lengthen", &path))?;
        disk::sync_all(&copy).map_err(FileError::at("flush", &path))?;
        return Ok(true);
    }
    Ok(false)
}

/// Copies the files of `config`: topics, groups, progress, each with its backup.
fn copy_config(from: &Path, to: &Path) -> Result<u64, ImportError> {
    let (from, to) = (from.join("config"), to.join("config"));
    disk::create_dir_all(&to).map_err(FileError::at("create", &to))?;
    let entries = match fs::read_dir(&from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(FileError::at("list", &from)(error).into()),
    };
    let mut copied = 0;
    for entry in entries {
        let entry = entry.map_err(FileError::at("list", &from))?;
        let path = entry.path();
        if !entry.file_type().map_err(FileError::at("stat", &path))?.is_file() {
            continue;
        }
        let content = fs::read(&path).map_err(FileError::at("read", &path))?;
        let path = to.join(entry.file_name());
        let file = disk::create_new(&path).map_err(FileError::at("create", &path))?;
        disk::write_all_at(&file, &content, 0).map_err(FileError::at("write", &path))?;
        disk::sync_all(&file).map_err(FileError::at("flush", &path))?;
        copied += 1;
    }
    disk::sync_directory(&to).map_err(FileError::at("flush", &to))?;
    Ok(copied)
}

/// Reads the new log from front to back.
struct NewLog {
    files: Vec<LoadedFile>,
    segment: Option<Arc<Segment>>,
}

impl NewLog {
    fn segment_at(&mut self, offset: u64) -> Result<Option<Arc<Segment>>, FileError> {
        let holds = |segment: &&Arc<Segment>| (segment.base()..segment.end()).contains(&offset);
        if let Some(segment) = self.segment.as_ref().filter(holds) {
            return Ok(Some(Arc::clone(segment)));
        }
        let holds = |file: &&LoadedFile| file.base <= offset && offset - file.base < file.len;
        let Some(file) = self.files.iter().find(holds) else { return Ok(None) };
        let opened = File::open(&file.path).map_err(FileError::at("open", &file.path))?;
        // As long as mappedFileSizeCommitLog.
        let mapped = MappedFile::map_read_only(&file.path, opened, file.len as u32)
            .map_err(FileError::at("map", &file.path))?;
        let segment = Arc::new(Segment::new(file.base, mapped));
        self.segment = Some(Arc::clone(&segment));
        Ok(Some(segment))
    }
}

/// Refuses a directory that is not empty, or lies in the source: before much is read, and when the import begins.
pub(super) fn check_target(source: &Path, target: &Path) -> Result<(), ImportError> {
    match fs::read_dir(target).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Ok(false) => return Err(ImportError::TargetExists { target: target.to_owned() }),
        Err(error) => return Err(FileError::at("list", target)(error).into()),
    }
    // The nearest directory above that is there.
    let mut above = target.ancestors().chain([Path::new(".")]).filter_map(|path| path.canonicalize().ok());
    let source = source.canonicalize().map_err(FileError::at("find", source))?;
    if above.next().is_some_and(|above| above.starts_with(&source)) {
        return Err(ImportError::TargetInSource { target: target.to_owned() });
    }
    Ok(())
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The directory in which a store is written before it gets its name. Goes away with this unless it is complete.
struct Work {
    path: PathBuf,
    is_complete: bool,
}

impl Work {
    fn begin(source: &Path, target: &Path) -> Result<Work, ImportError> {
        check_target(source, target)?;
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".importing");
        let parent = parent(target);
        disk::create_dir_all(parent).map_err(FileError::at("create", parent))?;
        let path = parent.join(name);
        match fs::create_dir(&path) {
            Ok(()) => Ok(Work { path, is_complete: false }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(ImportError::Unfinished { work: path })
            }
            Err(error) => Err(FileError::at("create", &path)(error).into()),
        }
    }

    /// Gives the store its name.
    fn complete(mut self, target: &Path) -> Result<(), ImportError> {
        // Over an empty directory too.
        disk::rename(&self.path, target).map_err(FileError::at("rename to", target))?;
        self.is_complete = true;
        let parent = parent(target);
        Ok(disk::sync_directory(parent).map_err(FileError::at("flush", parent))?)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.is_complete
            && let Err(error) = disk::remove_dir_all(&self.path)
        {
            tracing::warn!(directory = %self.path.display(), %error, "what was begun could not be removed");
        }
    }
}
