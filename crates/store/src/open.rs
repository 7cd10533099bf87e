//! Opening a store: take the lock, load, recover ([`crate::rebuild`]), make the log ready for appends.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ferromq_protocol::message::RecordView;

use crate::checkpoint::{Checkpoint, read_abort, write_abort};
use crate::deleted::DeletedTopics;
use crate::disk;
use crate::error::{FileError, OpenError};
use crate::index::KeyIndex;
use crate::lock_file::StoreLock;
use crate::log::{LoadedFile, MappedLog, Segment, load_files, reserve_blocks};
use crate::mapped::MappedFile;
use crate::marks::{Marks, MarksFile, boot_id};
use crate::options::StoreOptions;
use crate::queue::{ConsumeQueues, Extent, Listing, QueueList, WriteOutError};
use crate::rebuild::{QueuesAre, Rebuild, Recovered, Retry, Way, choose};
use crate::recovery::cut;

/// A recovered store, not yet running.
pub(crate) struct Opened {
    pub(crate) lock: StoreLock,
    pub(crate) log: MappedLog,
    /// The file that the next record goes to.
    pub(crate) active: Arc<Segment>,
    pub(crate) log_end: u64,
    /// Everything below is in queues and index.
    pub(crate) projected: u64,
    pub(crate) last_timestamp: i64,
    pub(crate) queues: Arc<ConsumeQueues>,
    pub(crate) index: Option<Arc<KeyIndex>>,
    pub(crate) deleted: Arc<DeletedTopics>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) marks_file: MarksFile,
    /// As they must be written when the store begins to run.
    pub(crate) marks: Marks,
}

pub(crate) fn open(options: &StoreOptions) -> Result<Opened, OpenError> {
    open_or_rebuild(options, None)
}

/// Opens, and lays queues and index anew whatever the last run left. `seen` sees every record.
///
/// When this is interrupted, the next start does the same: the marks no longer hold, and the abort file says that the last exit
/// was not clean.
pub(crate) fn rebuild(options: &StoreOptions, seen: &dyn Fn(&RecordView<'_>)) -> Result<Opened, OpenError> {
    open_or_rebuild(options, Some(seen))
}

fn open_or_rebuild(
    options: &StoreOptions,
    seen: Option<&dyn Fn(&RecordView<'_>)>,
) -> Result<Opened, OpenError> {
    options.check().map_err(OpenError::BadOption)?;
    let root = options.root.as_path();
    let lock = StoreLock::take(root)?;
    let log_directory = options.commit_log_directory();
    let queue_directory = root.join("consumequeue");
    refuse_rocksdb(&queue_directory)?;
    for directory in [&log_directory, &queue_directory] {
        disk::create_dir_all(directory).map_err(FileError::at("create", directory))?;
    }
    let abort = read_abort(root)?;
    let checkpoint = Checkpoint::open(root)?;
    let (mut marks_file, old_marks) = MarksFile::open(root)?;
    let deleted = Arc::new(DeletedTopics::load(root)?);
    deleted.mend()?;
    let (segments, tail_is_hurt) = load_segments(options)?;
    let queues = Arc::new(ConsumeQueues::new(options));
    queues.set_log_min(segments.first().map_or(0, |segment| segment.base()));
    let index = match options.index_enabled {
        true => Some(Arc::new(KeyIndex::load(root.join("index"), options.index_slots, options.index_units)?)),
        false => None,
    };

    let mut marks = Marks { boot: boot_id(), ..Marks::default() };
    let way = choose(old_marks.as_ref(), abort.as_deref(), &marks.boot, checkpoint.modified_s()?);
    let mut rebuild = Rebuild {
        options,
        segments: &segments,
        queues: &queues,
        index: index.as_ref(),
        deleted: &deleted,
        list: QueueList::load(root, Listing::Synced),
        clean_exit: abort.is_none() && !tail_is_hurt && old_marks.as_ref().is_none_or(|marks| marks.clean),
        index_flushed_ms: checkpoint.read()?.index_ms,
        given: RefCell::default(),
        fetched_again: match old_marks.as_ref().filter(|_| options.is_replica()) {
            Some(marks) => marks.synced,
            None => u64::MAX,
        },
        seen,
    };
    let way = match seen {
        Some(_) => {
            write_abort(root, "rebuild")?;
            Way::Everything("queues and index are to be laid anew")
        }
        None => way,
    };
    let recovered = recover(&mut rebuild, way, &mut marks_file, &mut marks)?;

    let (log_end, projected) = (recovered.end, recovered.projected);
    let mut segments = cut(segments, log_end)?;
    let log_min = segments.first().map_or(log_end, |segment| segment.base());
    let active = match segments.last() {
        Some(last) if log_end < last.end() => Arc::clone(last),
        _ => {
            let next = MappedLog::create(&log_directory, log_end, options.commit_log_file_size)
                .map_err(FileError::at("create a log file in", &log_directory))?;
            segments.push(Arc::clone(&next));
            next
        }
    };
    // A file may be sparse (as Java makes them): real blocks, so that writing to the mapping can't fail.
    reserve_blocks(active.mapped().file(), log_end - active.base(), u64::from(active.size()))
        .map_err(FileError::at("allocate blocks of", active.path()))?;
    let failed = |action| FileError::at(action, &queue_directory);
    if recovered.queues != QueuesAre::OnDisk {
        // What the last run wrote and never forced is in the system's memory at best. From here on it counts as flushed.
        for segment in &segments {
            segment.mapped().flush().map_err(FileError::at("flush", segment.path()))?;
        }
        if let Some(index) = &index {
            index.flush()?;
        }
        queues.suspect_everything();
        deleted.sync()?;
        // What these topics got after they were deleted, a crash took with the end of the log.
        for topic in deleted.empty_since(log_end) {
            queues.of_topic(&topic).iter().for_each(|queue| queue.reset());
            queues.delete_files(&topic).map_err(failed("delete files in"))?;
        }
    }
    (marks.written, marks.synced) = match recovered.queues {
        QueuesAre::OnDisk => (projected, projected),
        QueuesAre::Listed { synced } => (queues.written_below().unwrap_or(projected), synced),
        QueuesAre::Anew => {
            queues.iter().for_each(|queue| queue.correct_min_offset(log_min));
            queues.write_out(projected, Extent::All).map_err(|error| match error {
                WriteOutError::Io(error) => OpenError::Io(failed("write")(error)),
                doubt @ WriteOutError::Doubtful { .. } => {
                    OpenError::BadFile { path: queue_directory.clone(), reason: doubt.to_string() }
                }
            })?;
            let list = queues.begin_list(root, Listing::Synced, projected).map_err(failed("list"))?;
            queues.sync().map_err(failed("flush"))?;
            list.finish().map_err(FileError::at("write the list of queues in", root))?;
            (projected, projected)
        }
    };
    // The recovery is complete: what it noted is in the list of all queues.
    QueueList::remove(root, Listing::Given)?;
    QueueList::remove(root, Listing::Recent)?;
    deleted.end_with_log(log_end)?;
    marks.index_synced = projected;
    let log = MappedLog::new(options.commit_log_file_size, segments);
    let last_timestamp = recovered.last_timestamp;
    Ok(Opened {
        lock,
        log,
        active,
        log_end,
        projected,
        last_timestamp,
        queues,
        index,
        deleted,
        checkpoint,
        marks_file,
        marks,
    })
}

/// Refuses a store whose queues are in RocksDB (`docs/spec/02-store.md` §15.1): topics, groups and offsets are too.
fn refuse_rocksdb(queue_directory: &Path) -> Result<(), OpenError> {
    let path = queue_directory.join("CURRENT");
    if !path.exists() {
        return Ok(());
    }
    let reason = "the store keeps its queues, and with them topics, groups and offsets, in RocksDB (storeType=defaultRocksDB), which \
                  can't be read; let clients consume what is in it with the broker that wrote it, and give this one a new \
                  storePathRootDir";
    Err(OpenError::BadFile { path, reason: reason.to_owned() })
}

/// Takes the chosen way; when it turns out that the store does not deserve it, the thorough one.
fn recover(
    rebuild: &mut Rebuild<'_>,
    way: Way,
    marks_file: &mut MarksFile,
    marks: &mut Marks,
) -> Result<Recovered, OpenError> {
    rebuild.finish_deletions()?;
    if rebuild.segments.is_empty() {
        rebuild.refuse_lost_log()?;
    }
    let recovered = match way {
        Way::Clean(marks) => rebuild.trust(&marks),
        Way::FromMark { marks, rebooted } => rebuild.read_on_from(&marks, rebooted),
        Way::Everything(reason) => Err(Retry::Everything(reason.to_owned())),
    };
    let reason = match recovered {
        Ok(recovered) => return Ok(recovered),
        Err(Retry::Failed(error)) => return Err(error),
        Err(Retry::Everything(reason)) => reason,
    };
    if !rebuild.segments.is_empty() {
        tracing::warn!(reason, "the whole log is read, and the queues are laid anew");
    }
    // From here on no old mark holds.
    marks_file.write(marks, true)?;
    if rebuild.seen.is_some()
        && let Some(index) = rebuild.index
    {
        index.clear()?;
    }
    let mut attempts = 0;
    loop {
        match rebuild.everything() {
            Ok(recovered) => return Ok(recovered),
            Err(Retry::Failed(error)) => return Err(error),
            Err(Retry::Everything(reason)) if attempts < 2 => {
                tracing::warn!(reason, "reading the log once more");
                attempts += 1;
            }
            Err(Retry::Everything(reason)) => {
                return Err(OpenError::BadFile { path: rebuild.options.root.clone(), reason });
            }
        }
    }
}

/// Maps the log files. Lengths that a crash or a copy can leave are put right, others refused before anything is changed.
///
/// Also says whether the last file was not whole.
fn load_segments(options: &StoreOptions) -> Result<(Vec<Arc<Segment>>, bool), OpenError> {
    let directory = options.commit_log_directory();
    let size = options.commit_log_file_size;
    let mut files = load_files(&directory)?;
    let bad = |file: &LoadedFile, reason: String| OpenError::BadFile { path: file.path.clone(), reason };
    for (number, file) in files.iter().enumerate() {
        let next = files.get(number + 1);
        if file.base % u64::from(size) != 0
            || file.len > u64::from(size)
            || next.is_some_and(|next| next.base == file.base + file.len) && file.len != u64::from(size)
        {
            let reason = format!(
                "the file does not fit mappedFileSizeCommitLog={size}: it begins at {} and has {} bytes; set the size with which the store was written",
                file.base, file.len
            );
            return Err(bad(file, reason));
        }
    }
    let tail_is_hurt = files.last().is_some_and(|last| last.len < u64::from(size));
    while let Some(last) = files.last().filter(|last| last.len == 0) {
        tracing::warn!(file = %last.path.display(), "empty last log file removed");
        disk::remove_file(&last.path).map_err(FileError::at("delete", &last.path))?;
        files.pop();
    }
    let mut segments = Vec::new();
    for file in files {
        let opened = File::options()
            .read(true)
            .write(true)
            .open(&file.path)
            .map_err(FileError::at("open", &file.path))?;
        if file.len < u64::from(size) {
            tracing::warn!(file = %file.path.display(), len = file.len, expected = size, "log file is too short: extended with zeros");
            disk::set_len(&opened, u64::from(size)).map_err(FileError::at("extend", &file.path))?;
        }
        let mapped = MappedFile::map(&file.path, opened, size).map_err(FileError::at("map", &file.path))?;
        segments.push(Arc::new(Segment::new(file.base, mapped)));
    }
    Ok((segments, tail_is_hurt))
}
