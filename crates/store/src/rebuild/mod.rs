//! Recovery of a store: which of its projections can be believed, and laying anew those that can't.
//!
//! There are three ways, from quick to thorough:
//!
//! 1. [`Rebuild::trust`]: our own clean stop, and everything is found as it was left. The queues' offsets come from the list of
//!    queues; of their files only some are looked at, as a sample.
//! 2. [`Rebuild::read_on_from`]: our own unclean exit. The queues' offsets come from the list, as of its position, and the log is read
//!    from there. What is new below the [`Marks`] is in the queues' files already. Unless the machine was restarted, the list is the
//!    [recent](Listing::Recent) one.
//! 3. [`Rebuild::everything`]: another broker wrote the store, or something is not as it should be. The whole log is read, and the
//!    queues are laid anew, each unit at the place that the record's QUEUEOFFSET names.
//!
//! After the first two nobody has looked at most queues' files: whoever uses one first checks it, and damage is repaired then
//! (`repair`). So the time that they take does not depend on the number of queues, but for the reading of the list.
//!
//! Whatever the way, a queue offset that was ever given is not given again: where its message is gone, a hole stays.

mod given;
mod lay;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use ferromq_protocol::message::RecordView;

use crate::commit_log::{Entry, entry_at};
use crate::deleted::DeletedTopics;
use crate::dispatch::{Placement, Projector};
use crate::error::{FileError, OpenError};
use crate::index::KeyIndex;
use crate::log::{MappedLog, Segment};
use crate::marks::Marks;
use crate::options::StoreOptions;
use crate::queue::{ConsumeQueues, Extent, ListedQueue, Listing, QueueList, WriteOutError};
use crate::recovery::{Scan, scan};
use given::Given;
use lay::Laying;

/// Units pushed between two looks at whether some have to be written.
const UNITS_BETWEEN_WRITES: usize = 500_000;
/// Queues whose files a start looks at; with no more than that, at all of them.
const SPOT_CHECKS: usize = 256;

/// How to recover.
#[derive(Debug)]
pub(crate) enum Way {
    /// See [`Rebuild::trust`].
    Clean(Marks),
    /// See [`Rebuild::read_on_from`].
    FromMark {
        /// The marks.
        marks: Marks,
        /// The machine was restarted: what was not forced to the disk may be lost, also of the log.
        rebooted: bool,
    },
    /// See [`Rebuild::everything`]; the reason why.
    Everything(&'static str),
}

/// What is known after a recovery.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// End of the log.
    pub(crate) end: u64,
    /// Everything below is in queues and index.
    pub(crate) projected: u64,
    /// Store time of the last record, ms.
    pub(crate) last_timestamp: i64,
    /// Where the queues are.
    pub(crate) queues: QueuesAre,
}

/// Where the units of the queues are after a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuesAre {
    /// In the files, and so says the list.
    OnDisk,
    /// In the files up to where a list says; of what is behind, some in the files, some in memory.
    Listed {
        /// Up to this place of the log on the disk too.
        synced: u64,
    },
    /// Laid anew; files and list are to be written.
    Anew,
}

/// Why a quick way can't be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Retry {
    /// Read everything, because of this.
    #[error("{0}")]
    Everything(String),
    /// The store can't be opened.
    #[error(transparent)]
    Failed(#[from] OpenError),
}

impl From<FileError> for Retry {
    fn from(error: FileError) -> Self {
        Retry::Failed(error.into())
    }
}

/// Chooses the way by what the last run left.
pub(crate) fn choose(
    marks: Option<&Marks>,
    abort: Option<&str>,
    boot: &str,
    checkpoint_modified_s: i64,
) -> Way {
    let Some(marks) = marks else {
        return Way::Everything("the store has no marks: another broker wrote it, or it is new");
    };
    match abort {
        None if !marks.clean => {
            Way::Everything("the abort file is missing although the last stop was not clean")
        }
        None if marks.checkpoint_modified_s != checkpoint_modified_s => {
            Way::Everything("another broker ran on this store, or it is a copy")
        }
        None => Way::Clean(marks.clone()),
        // The marks of a recovery that did not get to its end name no abort file, and a power cut may leave an empty one.
        Some(abort) if marks.clean || abort.is_empty() || abort != marks.abort => {
            Way::Everything("another broker ran on this store, or its last recovery did not come to an end")
        }
        Some(_) => {
            let mut marks = marks.clone();
            let rebooted = boot.is_empty() || marks.boot != boot;
            if rebooted {
                // The machine was restarted: only what was forced to the disk is sure to be there.
                marks.written = marks.synced;
            } else {
                // The index is written in place, in memory that outlives the process.
                marks.index_synced = u64::MAX;
            }
            Way::FromMark { marks, rebooted }
        }
    }
}

/// A recovery under way.
pub(crate) struct Rebuild<'a> {
    pub(crate) options: &'a StoreOptions,
    pub(crate) segments: &'a [Arc<Segment>],
    pub(crate) queues: &'a Arc<ConsumeQueues>,
    pub(crate) index: Option<&'a Arc<KeyIndex>>,
    pub(crate) deleted: &'a Arc<DeletedTopics>,
    /// The queues as of the last clean stop or full flush, if there is a list.
    pub(crate) list: Option<QueueList>,
    pub(crate) clean_exit: bool,
    /// `indexMsgTimestamp` of the checkpoint.
    pub(crate) index_flushed_ms: i64,
    /// What each queue must not fall below. Kept from one attempt to the next, which finds the queues' files cut.
    pub(crate) given: RefCell<Given>,
    /// Behind this a replica gets once more what is damaged.
    pub(crate) fetched_again: u64,
    /// Sees every record that [`Rebuild::everything`] reads.
    pub(crate) seen: Option<&'a dyn Fn(&RecordView<'_>)>,
}

impl Rebuild<'_> {
    /// Finishes deletions of topics that the last run could not: files whose units all lie where the topic was deleted.
    pub(crate) fn finish_deletions(&self) -> Result<(), OpenError> {
        let failed = |action| FileError::at(action, self.queues.directory());
        for topic in self.deleted.names() {
            self.queues.discover_topic(&topic).map_err(failed("list"))?;
            for queue in self.queues.of_topic(&topic) {
                let (_, end) = queue.load().map_err(failed("read"))?;
                let last = queue.unit_at(end - 1).map_err(failed("read"))?;
                if last.is_some_and(|last| self.deleted.covers(&topic, last.not_behind())) {
                    queue.delete_all_files().map_err(failed("delete"))?;
                }
                queue.reset();
            }
            let is_deleted = |offset| self.deleted.covers(&topic, offset);
            self.queues.batch().delete_units(&topic, is_deleted).map_err(failed("delete"))?;
        }
        Ok(())
    }

    fn log(&self) -> MappedLog {
        MappedLog::new(self.options.commit_log_file_size, self.segments.to_vec())
    }

    fn log_min(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.base())
    }

    fn projector(&self) -> Projector {
        Projector::new(Arc::clone(self.queues), self.index.cloned(), Arc::clone(self.deleted), self.options)
    }

    fn queue_error(&self, action: &'static str) -> impl Fn(io::Error) -> Retry + use<> {
        let directory = self.queues.directory().to_path_buf();
        move |error| FileError::at(action, &directory)(error).into()
    }

    /// Without log files there must be no queues that had messages: the log was moved away, or its disk is not mounted.
    pub(crate) fn refuse_lost_log(&self) -> Result<(), OpenError> {
        self.queues.discover().map_err(FileError::at("list", self.queues.directory()))?;
        for queue in self.queues.iter() {
            let (_, end) = queue.load().map_err(FileError::at("read", self.queues.directory()))?;
            if end > 0 {
                return Err(OpenError::BadFile {
                    path: self.options.commit_log_directory(),
                    reason: format!(
                        "there is no log file, but the queues prove that there was one ({}-{} ends at {end}); bring the log back, or remove \
                         the whole store to begin empty",
                        queue.topic(),
                        queue.queue_id()
                    ),
                });
            }
        }
        Ok(())
    }

    // ---- 1. clean ----

    /// After our own clean stop: takes the offsets from the list and checks that the files bear them out.
    pub(crate) fn trust(&mut self, marks: &Marks) -> Result<Recovered, Retry> {
        let doubt = |what: String| Err(Retry::Everything(what));
        if let Some(last) = self.segments.last() {
            let end_is_clean = match self.segments.iter().find(|segment| segment.end() > marks.log_end) {
                Some(segment) if segment.base() <= marks.log_end => {
                    let stop = (marks.log_end + 8).min(segment.end());
                    segment.range(marks.log_end, stop).iter().all(|byte| *byte == 0)
                }
                Some(_) => false,
                None => last.end() == marks.log_end,
            };
            if !end_is_clean {
                return doubt(format!(
                    "the log does not end at {}, as it did when it was closed",
                    marks.log_end
                ));
            }
        }
        let position = self.load_list(self.synced_list()?)?;
        if position != marks.log_end {
            return doubt(format!("the list of queues ends at {position}, the log at {}", marks.log_end));
        }
        for topic in self.spot_check()? {
            self.queues.discover_topic(&topic).map_err(self.queue_error("list"))?;
            for queue in self.queues.of_topic(&topic) {
                let (_, end) = queue.load().map_err(self.queue_error("read"))?;
                if end > 0 {
                    return doubt(format!("queue {}-{} is new", queue.topic(), queue.queue_id()));
                }
            }
        }
        if self.index.is_some_and(|index| index.reaches_to() < marks.index_end) {
            return doubt("index files are missing".to_owned());
        }
        Ok(Recovered {
            end: marks.log_end,
            projected: marks.log_end,
            last_timestamp: marks.last_timestamp,
            queues: QueuesAre::OnDisk,
        })
    }

    fn synced_list(&self) -> Result<&QueueList, Retry> {
        self.list.as_ref().ok_or_else(|| Retry::Everything("there is no whole list of the queues".to_owned()))
    }

    /// Makes the handles of all queues, with the offsets from the list. Returns the list's position.
    fn load_list(&self, list: &QueueList) -> Result<u64, Retry> {
        for listed in list.queues() {
            let Some(listed) = listed else {
                return Err(Retry::Everything("the list of the queues is damaged".to_owned()));
            };
            if self.is_alive(list, &listed) {
                self.queues.get_or_create(listed.topic, listed.queue_id).set_listed(&listed.offsets);
            }
        }
        Ok(list.position)
    }

    /// Whether the topic was not deleted since the list was made.
    fn is_alive(&self, list: &QueueList, queue: &ListedQueue<'_>) -> bool {
        // The unit may be that of a hole, which points behind the message that it stands for.
        let newest = queue.offsets.last_physical.unwrap_or(u64::MAX).min(list.position.saturating_sub(1));
        !self.deleted.covers(queue.topic, newest)
    }

    /// Compares the list with the directories of topics, and with the files of some queues. Returns topics that are not in the
    /// list and have a directory.
    fn spot_check(&self) -> Result<Vec<String>, Retry> {
        let directories = self.queues.compare_directories().map_err(self.queue_error("list"))?;
        if directories.missing > 0 {
            return Err(Retry::Everything(format!(
                "{} directories of topics are missing",
                directories.missing
            )));
        }
        let step = self.queues.len().div_ceil(spot_checks()).max(1);
        for queue in self.queues.iter().step_by(step) {
            if let Some(doubt) = queue.check().map_err(self.queue_error("read"))? {
                return Err(Retry::Everything(format!(
                    "queue {}-{}: {doubt}",
                    queue.topic(),
                    queue.queue_id()
                )));
            }
        }
        Ok(directories.unknown)
    }

    // ---- 2. from the mark ----

    /// After our own unclean exit: believes the list, and reads the log from its position.
    pub(crate) fn read_on_from(&mut self, marks: &Marks, rebooted: bool) -> Result<Recovered, Retry> {
        let synced = self.synced_list()?;
        let recent = match rebooted {
            false => QueueList::load(&self.options.root, Listing::Recent),
            true => None,
        };
        let recent = recent.filter(|recent| recent.position > synced.position);
        let listed = self.load_list(recent.as_ref().unwrap_or(synced))?;
        let synced = synced.position;
        let mark = marks.written.max(listed);
        if mark > 0 && self.segments.last().is_none_or(|last| last.end() < mark) {
            return Err(Retry::Everything(format!("the log does not reach to the mark {mark}")));
        }
        if listed < self.log_min() {
            return Err(Retry::Everything(format!("the log no longer has what is behind {listed}")));
        }
        tracing::info!(
            from = listed,
            mark,
            "the last stop was not clean: recovering from the list of queues"
        );
        if rebooted {
            self.look_at_files()?;
        }

        self.queues.batch().cut(listed).map_err(self.queue_error("cut"))?;
        let index_from = self.index_from(marks)?;
        let from = listed.min(index_from);
        let start = self.start_of_scan(from, rebooted);
        let mut projector = self.projector();
        let mut pushed = 0;
        // What has a unit in a file was confirmed.
        let mut projected = Projected { end: listed, end_max: self.options.known_confirmed().max(mark) };
        let result = scan(&self.log(), start, self.fetched_again, |record, _| {
            let offset = record.physical_offset();
            if offset < from || !projected.includes(record) {
                return Ok(true);
            }
            let placement = projector.place(record);
            if offset >= index_from {
                projector
                    .index(record)
                    .map_err(FileError::at("write to", &self.options.root.join("index")))?;
            }
            if offset < listed {
                return Ok(true);
            }
            if let Some(placement) = &placement {
                projector.push_for_others(placement).map_err(self.queue_error("read"))?;
            }
            for placement in placement.iter().chain(projector.further_placements()) {
                let Placement { queue, queue_offset, unit } = placement;
                let queue = projector.handle(*queue);
                let begins_late = queue.max_offset() == 0 && *queue_offset > 0;
                let result = if offset < marks.written {
                    queue.note(*queue_offset, *unit)
                } else {
                    pushed += 1;
                    projector.push(placement)
                };
                if begins_late || result.holes > 0 || result.implausible {
                    return Err(Retry::Everything(format!(
                        "queue {}-{} lacks what lies before its offset {queue_offset}",
                        queue.topic(),
                        queue.queue_id(),
                    )));
                }
            }
            self.write_out_now_and_then(&mut pushed)?;
            Ok(true)
        })?;
        if result.end < mark {
            return Err(Retry::Everything(format!("the log ends at {}, before the mark {mark}", result.end)));
        }
        self.spot_check()?;
        self.queues.pushed(pushed);
        let some_are_lost = self.keep_given(result.end);
        if some_are_lost {
            self.check_every_queue()?;
        }
        self.report(&result);
        let queues = if some_are_lost { QueuesAre::Anew } else { QueuesAre::Listed { synced } };
        Ok(Recovered {
            end: result.end,
            projected: projected.end(&result),
            last_timestamp: self.last_timestamp(&result),
            queues,
        })
    }

    /// Before all queues are written: that can't be done to files that are not what they were.
    fn check_every_queue(&self) -> Result<(), Retry> {
        for queue in self.queues.iter().filter(|queue| queue.is_to_be_checked()) {
            if let Some(doubt) = queue.check().map_err(self.queue_error("read"))? {
                let (topic, queue_id) = (queue.topic(), queue.queue_id());
                return Err(Retry::Everything(format!("queue {topic}-{queue_id}: {doubt}")));
            }
        }
        Ok(())
    }

    /// After the machine was restarted: what each queue's files hold behind what is known is erased; the offsets there were given
    /// to messages that the log may have lost.
    fn look_at_files(&self) -> Result<(), Retry> {
        self.queues.discover().map_err(self.queue_error("list"))?;
        let mut too_long = Vec::new();
        for queue in self.queues.iter() {
            let listed = queue.listed_offsets();
            let (_, end) = queue.load().map_err(self.queue_error("read"))?;
            queue.set_listed(&listed);
            self.was_given(&queue, end);
            if end > listed.max {
                too_long.push((queue, listed));
            }
        }
        if !too_long.is_empty() {
            self.remember_given()?;
        }
        for (queue, listed) in too_long {
            queue.cut(listed.max).map_err(self.queue_error("cut"))?;
            queue.set_listed(&listed);
        }
        Ok(())
    }

    /// Where a record begins, at or before `from`. After a restart of the machine the file that holds `from` is read from its
    /// begin, because it may have lost pages.
    fn start_of_scan(&self, from: u64, rebooted: bool) -> u64 {
        let holds = |segment: &&Arc<Segment>| segment.base() < from && from < segment.end();
        match self.segments.iter().find(holds) {
            Some(segment) if rebooted => segment.base(),
            _ => from.max(self.log_min()),
        }
    }

    /// From where on the log must be indexed again.
    fn index_from(&self, marks: &Marks) -> Result<u64, Retry> {
        let Some(index) = self.index else { return Ok(u64::MAX) };
        let mut from = marks.written;
        if let Some(begin) = index.drop_behind_if_unsure(marks.index_synced)? {
            tracing::warn!(from = begin, "the newest index files may not be whole: indexing again");
            from = from.min(begin);
        }
        // The newest message that is left may have keys in a file that is gone.
        let end = index.reaches_to();
        Ok(if end < marks.index_end { from.min(end.saturating_sub(1)) } else { from })
    }

    // ---- 3. everything ----

    /// Reads the whole log and lays every queue anew.
    pub(crate) fn everything(&mut self) -> Result<Recovered, Retry> {
        let log = self.log();
        let tail = self.find_tail(&log)?;
        self.queues.discover().map_err(self.queue_error("list"))?;
        for queue in self.queues.iter() {
            let (_, end) = queue.load().map_err(self.queue_error("read"))?;
            // Units behind the end of a log that ends well were never promised to anybody. When the tail is torn, or the
            // stop was not clean, consumers may have seen what is gone.
            let end = match self.clean_exit && !tail.torn {
                true => queue.first_at_or_behind(tail.end).map_err(self.queue_error("read"))?,
                false => end,
            };
            self.was_given(&queue, end);
        }
        for (list, listed) in
            self.list.iter().flat_map(|list| list.queues().flatten().map(move |queue| (list, queue)))
        {
            if self.is_alive(list, &listed) {
                let queue = self.queues.get_or_create(listed.topic, listed.queue_id);
                self.was_given(&queue, listed.offsets.max);
            }
        }
        if !self.clean_exit || tail.torn {
            for (topic, queue_id, end) in self.queues.batch().ends().map_err(self.queue_error("read"))? {
                self.was_given(&self.queues.get_or_create(&topic, queue_id), end);
            }
        }
        self.remember_given()?;
        self.queues.batch().clear().map_err(self.queue_error("delete"))?;
        if let Some(index) = self.index.filter(|_| !self.clean_exit) {
            index.drop_unflushed(self.index_flushed_ms)?;
        }
        if let Some(index) = self.index {
            index.drop_behind_if_unsure(tail.end)?;
        }

        let mut projector = self.projector();
        let mut coverage = self.index.map(|index| Coverage::new(index.ranges())).unwrap_or_default();
        let mut laying = Laying::new(self);
        let mut pushed = 0;
        let mut projected = Projected { end: self.log_min(), end_max: self.options.known_confirmed() };
        let result = scan(&log, self.log_min(), self.fetched_again, |record, _| {
            if let Some(seen) = self.seen {
                seen(record);
            }
            if !projected.includes(record) {
                return Ok(true);
            }
            let placement = projector.place(record);
            if let Some(placement) = &placement {
                projector.push_for_others(placement).map_err(self.queue_error("read"))?;
            }
            for placement in placement.iter().chain(projector.further_placements()) {
                laying.put(placement, &projector)?;
                pushed += 1;
            }
            if projector.has_keys() {
                if coverage.is_gap(record.physical_offset()) {
                    self.index.map_or(Ok(()), |index| index.clear())?;
                    return Err(Retry::Everything("index files are missing: indexing everything".to_owned()));
                }
                projector
                    .index(record)
                    .map_err(FileError::at("write to", &self.options.root.join("index")))?;
            }
            self.write_out_now_and_then(&mut pushed)?;
            Ok::<_, Retry>(true)
        })?;
        laying.finish(&projector)?;
        for queue in self.queues.iter() {
            // Queues of which the log has nothing: their messages have expired, or are damaged. Light queues are fed by
            // records of other topics.
            if !laying.has(queue.number()) && !queue.topic().starts_with("%LMQ%") {
                let end = queue.first_at_or_behind(self.log_min()).map_err(self.queue_error("read"))?;
                queue.cut(end).map_err(self.queue_error("cut"))?;
            }
        }
        self.keep_given(result.end);
        self.report(&result);
        Ok(Recovered {
            end: result.end,
            projected: projected.end(&result),
            last_timestamp: self.last_timestamp(&result),
            queues: QueuesAre::Anew,
        })
    }

    /// The log's end, from its last file that holds a record.
    fn find_tail(&self, log: &MappedLog) -> Result<Scan, Retry> {
        for segment in self.segments.iter().rev() {
            let tail = scan(log, segment.base(), self.fetched_again, |_, _| Ok::<_, Retry>(true))?;
            if tail.records > 0 {
                return Ok(tail);
            }
        }
        Ok(Scan { end: self.log_min(), ..Scan::default() })
    }

    // ---- common ----

    fn write_out_now_and_then(&self, pushed: &mut usize) -> Result<(), Retry> {
        if *pushed < UNITS_BETWEEN_WRITES {
            return Ok(());
        }
        self.queues.pushed(std::mem::take(pushed));
        // With many queues each got but a few units: they wait until memory gets short, wherever in the log they are.
        match self.queues.write_out(0, Extent::Due) {
            Ok(_) => Ok(()),
            Err(WriteOutError::Io(error)) => Err(self.queue_error("write")(error)),
            Err(doubt) => Err(Retry::Everything(doubt.to_string())),
        }
    }

    fn last_timestamp(&self, result: &Scan) -> i64 {
        if result.records > 0 {
            return result.last_timestamp;
        }
        // The scan began behind the last record; the file before has one.
        let mut last = 0;
        for segment in self.segments.iter().rev().filter(|segment| segment.base() < result.end) {
            if let Entry::Record(record) = entry_at(segment, segment.base(), segment.end()) {
                last = record.store_timestamp();
                break;
            }
        }
        last
    }

    fn report(&self, result: &Scan) {
        if result.damages > 0 {
            tracing::error!(
                places = result.damages,
                "the log is damaged in places; all other messages are there"
            );
        }
        tracing::info!(records = result.records, end = result.end, "the log was read");
    }
}

/// How many queues' files a start looks at. The few queues of a simulation shall be like the many of a broker.
fn spot_checks() -> usize {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_simulated() {
        return 1;
    }
    SPOT_CHECKS
}

/// How far records go into queues and index: what is not known to be confirmed may be truncated yet.
struct Projected {
    /// End of the last record that does.
    end: u64,
    end_max: u64,
}

impl Projected {
    fn includes(&mut self, record: &RecordView<'_>) -> bool {
        let end = record.physical_offset() + record.size() as u64;
        let includes = end <= self.end_max;
        if includes {
            self.end = self.end.max(end);
        }
        includes
    }

    fn end(&self, scan: &Scan) -> u64 {
        if scan.end <= self.end_max { scan.end } else { self.end }
    }
}

/// Which parts of the log the index files say they cover.
#[derive(Debug, Default)]
struct Coverage {
    ranges: Vec<(u64, u64)>,
    at: usize,
}

impl Coverage {
    fn new(ranges: Vec<(u64, u64)>) -> Self {
        Coverage { ranges, at: 0 }
    }

    /// Whether a record with keys lies in front of a file, or between two, that should have them. Asked in ascending order.
    fn is_gap(&mut self, offset: u64) -> bool {
        while self.ranges.get(self.at).is_some_and(|(_, end)| *end < offset) {
            self.at += 1;
        }
        self.ranges.get(self.at).is_some_and(|(begin, _)| offset < *begin)
    }
}
