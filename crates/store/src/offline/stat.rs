//! How large a store is, and of what.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ferromq_protocol::message::RecordView;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::error::{FileError, OpenError};
use crate::queue::{BATCH_DIRECTORY, UNITS_DIRECTORY};
use crate::recovery::{Met, walk};

use super::OfflineStore;

/// Bytes of the log between two reports of progress.
const PROGRESS_BYTES: u64 = 4 << 20;
/// Days that are counted one by one, for all topics together. A log with damaged times may have as many as it has records.
const DAYS_MAX: usize = 1 << 20;
/// Every time zone's day begins at a multiple of this.
const QUARTER_OF_AN_HOUR_MS: i64 = 15 * 60 * 1000;

/// Files of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Files {
    /// How many.
    pub files: u64,
    /// Sum of their lengths.
    pub bytes: u64,
    /// What they take on the disk: files are sparse.
    pub disk_bytes: u64,
}

/// Messages and their bytes, as they are in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Records.
    pub messages: u64,
    /// Bytes of the records.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }
}

/// One topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicStatistics {
    /// Directories of its queues.
    pub queues: u64,
    /// Its records in the log.
    pub amount: Amount,
    /// The same by day of store time, local time.
    pub days: BTreeMap<Date, Amount>,
}

/// A store in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// `commitlog/`.
    pub log: Files,
    /// `consumequeue/`, and what topics of batches have instead.
    pub queues: Files,
    /// `index/`.
    pub index: Files,
    /// First offset of the log.
    pub log_min: u64,
    /// Where the next record goes.
    pub log_end: u64,
    /// Damaged places of the log, and a torn tail.
    pub damages: u64,
    /// Lowest and highest store time, ms.
    pub store_times_ms: Option<(i64, i64)>,
    /// All records.
    pub amount: Amount,
    /// All records by day of store time, local time.
    pub days: BTreeMap<Date, Amount>,
    /// Topics that have records or queues.
    pub topics: HashMap<String, TopicStatistics>,
    /// There were too many different days: the later ones are not counted by day.
    pub days_left_out: bool,
}

impl OfflineStore {
    /// Counts everything. Reads the log once; memory goes with the number of topics. `progress` hears how many bytes of the log
    /// were read, every few megabytes.
    pub fn statistics(&self, progress: &mut dyn FnMut(u64)) -> Result<Statistics, OpenError> {
        let root = self.options.root.as_path();
        let mut statistics = Statistics { log_min: self.min_offset(), ..Statistics::default() };
        let log = self.options.commit_log_directory();
        files_below(&log, 1, &mut statistics.log).map_err(FileError::at("list", &log))?;
        let index = root.join("index");
        files_below(&index, 1, &mut statistics.index).map_err(FileError::at("list", &index))?;
        for queues in ["consumequeue", BATCH_DIRECTORY, UNITS_DIRECTORY].map(|name| root.join(name)) {
            queue_files(&queues, &mut statistics).map_err(FileError::at("list", &queues))?;
        }

        let mut counter = Counter { statistics, zone: TimeZone::system(), day: None, days: 0, reported: 0 };
        let mut damages = 0;
        let scan = walk(self.segments(), self.min_offset(), |met| {
            match met {
                Met::Record(record, _) => counter.count(record, progress),
                Met::Damage { .. } | Met::FilesMissing { .. } | Met::TornTail { .. } => damages += 1,
                Met::EndMarkLost { .. } => {}
            }
            Ok::<_, OpenError>(true)
        })?;
        let Counter { mut statistics, .. } = counter;
        statistics.damages = damages;
        statistics.log_end = scan.end;
        Ok(statistics)
    }
}

struct Counter {
    statistics: Statistics,
    zone: TimeZone,
    /// The last day that was looked up, and of which quarter of an hour.
    day: Option<(i64, Option<Date>)>,
    /// Days counted one by one.
    days: usize,
    reported: u64,
}

impl Counter {
    fn count(&mut self, record: &RecordView<'_>, progress: &mut dyn FnMut(u64)) {
        let (bytes, time) = (record.size() as u64, record.store_timestamp());
        let day = self.day_of(time);
        let statistics = &mut self.statistics;
        statistics.amount.add(bytes);
        let (oldest, newest) = statistics.store_times_ms.unwrap_or((time, time));
        statistics.store_times_ms = Some((oldest.min(time), newest.max(time)));
        let name = record.topic().unwrap_or_default();
        if !statistics.topics.contains_key(name) {
            statistics.topics.insert(name.to_owned(), TopicStatistics::default());
        }
        let topic = statistics.topics.get_mut(name);
        let mut count = |days: &mut BTreeMap<Date, Amount>| {
            let Some(day) = day else { return };
            if let Some(amount) = days.get_mut(&day) {
                amount.add(bytes);
            } else if self.days < DAYS_MAX {
                self.days += 1;
                days.entry(day).or_default().add(bytes);
            } else {
                statistics.days_left_out = true;
            }
        };
        count(&mut statistics.days);
        if let Some(topic) = topic {
            count(&mut topic.days);
            topic.amount.add(bytes);
        }
        let read = statistics.amount.bytes;
        if read >= self.reported + PROGRESS_BYTES {
            self.reported = read;
            progress(read);
        }
    }

    /// `None` for a time that no calendar has.
    fn day_of(&mut self, time_ms: i64) -> Option<Date> {
        let quarter = time_ms.div_euclid(QUARTER_OF_AN_HOUR_MS);
        if let Some((known, day)) = self.day
            && known == quarter
        {
            return day;
        }
        let day =
            Timestamp::from_millisecond(time_ms).ok().map(|time| time.to_zoned(self.zone.clone()).date());
        self.day = Some((quarter, day));
        day
    }
}

fn count_file(metadata: &fs::Metadata, files: &mut Files) {
    files.files += 1;
    files.bytes += metadata.len();
    files.disk_bytes += metadata.blocks() * 512;
}

/// Counts the files of a directory and of those in it, `depth` levels deep. One that is not there has none.
fn files_below(directory: &Path, depth: u32, files: &mut Files) -> io::Result<()> {
    for entry in entries(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() {
            count_file(&metadata, files);
        } else if metadata.is_dir() && depth > 1 {
            files_below(&entry.path(), depth - 1, files)?;
        }
    }
    Ok(())
}

fn queue_files(directory: &Path, statistics: &mut Statistics) -> io::Result<()> {
    for topic in entries(directory)? {
        let topic = topic?;
        let Ok(name) = topic.file_name().into_string() else { continue };
        if !topic.file_type()?.is_dir() {
            continue;
        }
        let mut queues = 0;
        for queue in fs::read_dir(topic.path())? {
            let queue = queue?;
            if queue.file_name().to_str().is_some_and(|id| id.parse::<i32>().is_ok()) {
                queues += 1;
                files_below(&queue.path(), 1, &mut statistics.queues)?;
            }
        }
        let topic = statistics.topics.entry(name).or_default();
        topic.queues = topic.queues.max(queues);
    }
    Ok(())
}

fn entries(directory: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(directory) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(error) => Err(error),
    }
}
