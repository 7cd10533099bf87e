//! The check: one walk over the log, with queues and index read in step with it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::sync::Arc;

use crate::deleted::DeletedTopics;
use crate::dispatch::{Placement, Projector};
use crate::error::{FileError, OpenError};
use crate::log::{Segment, parse_file_name};
use crate::queue::{ConsumeQueue, ConsumeQueues};
use crate::recovery::{Met, walk};

use super::OfflineStore;
use super::batch_audit::BatchAudit;
use super::finding::{Finding, Problem};
use super::index_audit::IndexAudit;
use super::queue_audit::QueueAudit;
use super::ranges::Ranges;
use super::state_files::StateFiles;

/// Bytes of the log, or queues, between two reports of progress.
const PROGRESS_BYTES: u64 = 4 << 20;
const PROGRESS_QUEUES: u64 = 256;

/// Hears what a check finds, and how far it is.
pub trait CheckReport {
    /// Something was found.
    fn found(&mut self, finding: Finding);
    /// Called every few megabytes, and every few hundred queues.
    fn progress(&mut self, progress: CheckProgress);
}

/// How far a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckProgress {
    /// Bytes of the log that were read, of all.
    Log {
        /// Read.
        done: u64,
        /// All.
        of: u64,
    },
    /// Queues whose ends were looked at, of all.
    Queues {
        /// Looked at.
        done: u64,
        /// All.
        of: u64,
    },
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Whole records.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// First offset of the log.
    pub log_min: u64,
    /// Where the next record goes.
    pub log_end: u64,
    /// The highest store time, ms.
    pub newest_store_time_ms: i64,
    /// Queues.
    pub queues: u64,
    /// Units that are what they should be.
    pub units: u64,
    /// Keys that the index has.
    pub keys: u64,
}

impl OfflineStore {
    /// Verifies every record, compares queues and index with the log, and looks at the files that say how the store was left.
    /// Changes nothing. Reads the log once, front to back; memory goes with the number of queues, not with their length.
    ///
    /// `topics`: the topics that the broker knows, if that is known. Messages of another topic without any queue are taken for
    /// those of a deleted one.
    pub fn check(
        &self,
        topics: Option<&HashSet<String>>,
        report: &mut dyn CheckReport,
    ) -> Result<Checked, OpenError> {
        let root = self.options.root.as_path();
        let state = StateFiles::read(root, &mut |finding| report.found(finding))?;
        self.check_log_files(&mut |finding| report.found(finding))?;
        let queues = Arc::new(ConsumeQueues::new(&self.options));
        queues
            .discover()
            .and_then(|()| queues.discover_batch_queues())
            .map_err(FileError::at("list", root))?;
        let mut check = Check {
            store: self,
            queues: Arc::clone(&queues),
            deleted: DeletedTopics::load(root)?,
            projector: Projector::new(queues, None, Arc::new(DeletedTopics::none()), &self.options)
                .hashing_keys(),
            queue_audit: QueueAudit::new(&self.options, self.min_offset()),
            batch_audit: BatchAudit::new(&self.options, self.min_offset()),
            written_by_us: state.written_by_us(),
            index_audit: match self.options.index_enabled {
                true => Some(IndexAudit::new(
                    root.join("index"),
                    self.options.index_slots,
                    self.options.index_units,
                    self.min_offset(),
                )?),
                false => None,
            },
            damaged: Ranges::default(),
            checked: Checked { log_min: self.min_offset(), ..Checked::default() },
            read: 0,
            reported: 0,
            log_bytes: self.log_bytes(),
            report,
        };
        check.log()?;
        check.queues(topics)?;
        let Check { checked, report, .. } = check;
        state.compare(&checked, &mut |finding| report.found(finding));
        Ok(checked)
    }

    /// Names and lengths.
    fn check_log_files(&self, found: &mut dyn FnMut(Finding)) -> Result<(), OpenError> {
        let directory = self.options.commit_log_directory();
        let expected = u64::from(self.options.commit_log_file_size);
        let mut files = Vec::new();
        for entry in fs::read_dir(&directory).map_err(FileError::at("list", &directory))? {
            let entry = entry.map_err(FileError::at("list", &directory))?;
            let metadata = entry.metadata().map_err(FileError::at("stat", &entry.path()))?;
            match parse_file_name(&entry.file_name()) {
                Some(base) if metadata.is_file() => files.push((base, metadata.len(), entry.path())),
                _ => found(Finding { file: entry.path(), position: None, problem: Problem::ForeignFile }),
            }
        }
        files.sort_unstable();
        let last = files.last().map(|(base, ..)| *base);
        for (base, len, file) in files {
            let mut problem = |problem| found(Finding { file: file.clone(), position: None, problem });
            if !base.is_multiple_of(expected) {
                problem(Problem::LogFileName { expected });
            }
            if len == 0 && Some(base) == last {
                problem(Problem::EmptyLogFile);
            } else if len != expected {
                problem(Problem::LogFileLength { len, expected });
            }
        }
        Ok(())
    }
}

/// A check under way.
struct Check<'a> {
    store: &'a OfflineStore,
    queues: Arc<ConsumeQueues>,
    deleted: DeletedTopics,
    /// Says what a record's unit and keys are; of deleted topics too, whose keys the index still has.
    projector: Projector,
    queue_audit: QueueAudit,
    batch_audit: BatchAudit,
    /// Up to here topics of batches have consume queues of ours beside the files that every broker reads.
    written_by_us: u64,
    index_audit: Option<IndexAudit>,
    damaged: Ranges,
    checked: Checked,
    read: u64,
    /// Value of `read` when progress was reported last.
    reported: u64,
    log_bytes: u64,
    report: &'a mut dyn CheckReport,
}

impl Check<'_> {
    fn log(&mut self) -> Result<(), OpenError> {
        let store = self.store;
        let scan = walk(store.segments(), store.min_offset(), |met| {
            self.meet(met)?;
            Ok::<_, OpenError>(true)
        })?;
        self.checked.log_end = scan.end;
        self.report.progress(CheckProgress::Log { done: self.log_bytes, of: self.log_bytes });
        if let Some(index) = &mut self.index_audit {
            index.finish(&self.damaged, &mut |finding| self.report.found(finding));
            self.checked.keys = index.keys;
        }
        Ok(())
    }

    fn meet(&mut self, met: Met<'_>) -> Result<(), OpenError> {
        let found = |file: &Arc<Segment>, at: u64, problem| Finding {
            file: file.path().to_owned(),
            position: Some(at - file.base()),
            problem,
        };
        let finding = match met {
            Met::Record(record, _) => {
                let size = record.size() as u64;
                self.checked.records += 1;
                self.checked.record_bytes += size;
                self.checked.newest_store_time_ms =
                    self.checked.newest_store_time_ms.max(record.store_timestamp());
                self.read += size;
                if self.read >= self.reported + PROGRESS_BYTES {
                    self.reported = self.read;
                    self.report.progress(CheckProgress::Log { done: self.read, of: self.log_bytes });
                }
                return self.record(record);
            }
            Met::Damage { file, at, whole_again_at, reason } => {
                self.damaged.push(at, whole_again_at);
                self.read += whole_again_at - at;
                found(file, at, Problem::LogDamaged { offset: at, whole_again_at, reason: reason.to_owned() })
            }
            Met::EndMarkLost { file, at } => found(file, at, Problem::EndMarkMissing { offset: at }),
            Met::FilesMissing { from, to } => {
                self.damaged.push(from, to);
                if to - from < u64::from(self.store.options.commit_log_file_size) {
                    // A file that is too short, which was reported.
                    return Ok(());
                }
                let file = self.store.options.commit_log_directory();
                Finding { file, position: None, problem: Problem::LogFilesMissing { from, to } }
            }
            Met::TornTail { file, at, reason } => {
                found(file, at, Problem::TornTail { offset: at, reason: reason.to_owned() })
            }
        };
        self.report.found(finding);
        Ok(())
    }

    fn record(&mut self, record: &ferromq_protocol::message::RecordView<'_>) -> Result<(), OpenError> {
        let Check { projector, queue_audit, batch_audit, index_audit, damaged, report, deleted, .. } = self;
        let placement = projector.place(record);
        let offset = record.physical_offset();
        let mut found = |finding| report.found(finding);
        if let Some(index) = index_audit {
            index.record(offset, projector.key_hashes(), damaged, &mut found);
        }
        let root = self.store.options.root.as_path();
        let batch = projector.batch_unit();
        if let (Some(Placement { queue, .. }), Some(unit)) = (&placement, batch)
            && let queue = projector.handle(*queue)
            && !deleted.covers(queue.topic(), offset)
        {
            let audited = batch_audit.record(queue, unit, damaged, &mut found);
            audited.map_err(FileError::at("read queues in", root))?;
        }
        for placement in placement.iter().chain(projector.further_placements()) {
            let queue = projector.handle(placement.queue);
            let topic = queue.topic();
            let is_ours = batch.is_some() && self.queues.batch().contains(topic);
            if deleted.covers(topic, offset) || is_ours && offset >= self.written_by_us {
                continue;
            }
            let audited = queue_audit.record(queue, placement, damaged, &mut found);
            audited.map_err(FileError::at("read queues in", root))?;
        }
        Ok(())
    }

    fn queues(&mut self, topics: Option<&HashSet<String>>) -> Result<(), OpenError> {
        let root = self.store.options.root.as_path();
        let mut all: Vec<_> = self.queues.iter().collect();
        all.sort_by(|a, b| (a.topic(), a.queue_id()).cmp(&(b.topic(), b.queue_id())));
        let of = all.len() as u64;
        let mut deleted: HashMap<String, u64> = HashMap::new();
        for (done, queue) in (0u64..).zip(&all) {
            if done.is_multiple_of(PROGRESS_QUEUES) {
                self.report.progress(CheckProgress::Queues { done, of });
            }
            let is_unknown = topics.is_some_and(|topics| !topics.contains(queue.topic()));
            if is_unknown && self.is_without_units(queue) {
                let lacking = self.queue_audit.take_missing(queue).max(self.batch_audit.take_missing(queue));
                *deleted.entry(queue.topic().to_owned()).or_default() += lacking;
                continue;
            }
            self.finish(queue).map_err(FileError::at("read queues in", root))?;
        }
        self.report.progress(CheckProgress::Queues { done: of, of });
        for (topic, records) in deleted {
            let file = self.queues.topic_directory(&topic);
            let problem = Problem::DeletedTopic { topic, records };
            self.report.found(Finding { file, position: None, problem });
        }
        self.checked.queues = of;
        self.checked.units = self.queue_audit.units + self.batch_audit.units;
        Ok(())
    }

    /// Whether the queue has messages in the log, and not a single unit anywhere.
    fn is_without_units(&self, queue: &ConsumeQueue) -> bool {
        match self.queues.batch().contains(queue.topic()) {
            true => self.batch_audit.is_without_units(queue) && self.queue_audit.has_no_file(queue),
            false => self.queue_audit.is_without_units(queue),
        }
    }

    /// Looks at what a queue has behind its last message, and at its files.
    fn finish(&mut self, queue: &ConsumeQueue) -> io::Result<()> {
        let Check { queue_audit, batch_audit, damaged, report, .. } = self;
        let (log_end, is_batch) = (self.checked.log_end, self.queues.batch().contains(queue.topic()));
        let mut found = |finding| report.found(finding);
        if is_batch {
            batch_audit.finish(queue, log_end, damaged, &mut found)?;
        }
        if !is_batch || self.written_by_us > 0 {
            queue_audit.finish(queue, log_end, damaged, &mut found)?;
        }
        Ok(())
    }
}
