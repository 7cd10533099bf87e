//! What may be deleted and when, and what happens when the disk is full (`docs/spec/02-store.md` §12).

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::error::{AppendError, DiskFull};
use crate::log::Segment;
use crate::options::{DiskUsageSource, StoreOptions};

/// Says whether the disk is too full for writes. Reading the answer is one relaxed load.
#[derive(Debug, Default)]
pub(crate) struct DiskGuard {
    is_full: AtomicBool,
    full: Mutex<Option<DiskFull>>,
}

impl DiskGuard {
    #[inline]
    pub(crate) fn check(&self) -> Result<(), AppendError> {
        if self.is_full.load(Ordering::Relaxed)
            && let Some(full) = self.full()
        {
            return Err(AppendError::DiskFull(full));
        }
        Ok(())
    }

    pub(crate) fn full(&self) -> Option<DiskFull> {
        self.full.lock().clone()
    }

    pub(crate) fn set(&self, full: Option<DiskFull>) {
        let mut current = self.full.lock();
        match (&*current, &full) {
            (None, Some(full)) => tracing::error!(%full, "writes are refused"),
            (Some(_), None) => tracing::info!("the disk has space again: writes are accepted"),
            _ => {}
        }
        self.is_full.store(full.is_some(), Ordering::Relaxed);
        *current = full;
    }
}

/// Used part of a directory's partition in percent as `df` shows it: reserved blocks left out, rounded up.
pub(crate) fn used_percent(source: DiskUsageSource, directory: &Path) -> Option<u8> {
    if let DiskUsageSource::Fixed(usage) = source {
        return usage(directory);
    }
    let (used, available) = space(directory)?;
    let whole = used.saturating_add(available);
    if whole == 0 { None } else { u8::try_from((used * 100).div_ceil(whole)).ok() }
}

/// Bytes used and available in a directory's partition.
pub(crate) fn space(directory: &Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(directory).ok()?;
    Some((stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize, stat.f_bavail * stat.f_frsize))
}

/// What the settings and the disk say about this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Expired files may be deleted now.
    pub(crate) delete_expired: bool,
    /// The oldest files must go whatever their age.
    pub(crate) delete_any: bool,
}

/// Looks at the disk, sets the guard, and says what to delete. `hour` is the local hour.
pub(crate) fn judge(options: &StoreOptions, queue_directory: &Path, guard: &DiskGuard, hour: u8) -> Verdict {
    let log_directory = options.commit_log_directory();
    let directories = [log_directory.as_path(), queue_directory];
    // A directory that can't be looked at counts as a reason to clean, not as a full disk.
    let usages = directories.map(|directory| used_percent(options.disk_usage, directory));
    let over = |limit: u8| usages.iter().any(|usage| usage.is_some_and(|usage| usage > limit));
    // Of equal ones the log is named: `max_by_key` takes the last.
    let worst = directories.iter().zip(usages).filter_map(|(directory, usage)| Some((usage?, directory)));
    let worst = worst.rev().max_by_key(|(usage, _)| *usage);
    guard.set(worst.filter(|(usage, _)| *usage > options.disk_warning_ratio).map(|(usage, directory)| {
        DiskFull {
            directory: directory.to_path_buf(),
            used_percent: usage,
            limit_percent: options.disk_warning_ratio,
            setting: "diskSpaceWarningLevelRatio",
        }
    }));
    let at_once = over(options.disk_clean_forcibly_ratio) || over(options.disk_warning_ratio);
    Verdict {
        delete_expired: options.delete_when_hours.contains(&hour)
            || at_once
            || over(options.disk_max_used_ratio)
            || usages.contains(&None),
        delete_any: at_once && options.clean_file_forcibly,
    }
}

/// Whether a log file has not been written for so long that it may go.
pub(crate) fn is_expired(segment: &Segment, reserved: Duration, now: SystemTime) -> bool {
    fs::metadata(segment.path())
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age >= reserved))
}

/// The local hour.
pub(crate) fn local_hour() -> u8 {
    jiff::Zoned::now().hour().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(usage: fn(&Path) -> Option<u8>, hour: u8) -> (Verdict, Option<DiskFull>) {
        let guard = DiskGuard::default();
        let options = StoreOptions { disk_usage: DiskUsageSource::Fixed(usage), ..StoreOptions::new("/x") };
        (judge(&options, Path::new("/x/consumequeue"), &guard, hour), guard.full())
    }

    #[test]
    fn the_thresholds_are_those_of_the_settings() {
        let nothing = Verdict { delete_expired: false, delete_any: false };
        let expired = Verdict { delete_expired: true, delete_any: false };
        let any = Verdict { delete_expired: true, delete_any: true };
        assert_eq!(judged(|_| Some(75), 3), (nothing, None));
        assert_eq!(judged(|_| Some(75), 4), (expired, None));
        assert_eq!(judged(|_| Some(76), 3), (expired, None));
        assert_eq!(judged(|_| Some(86), 3), (any, None));
        assert_eq!(judged(|_| None, 3), (expired, None));
        let (verdict, full) = judged(|path| Some(if path.ends_with("consumequeue") { 91 } else { 10 }), 3);
        assert_eq!(verdict, any);
        let full = full.unwrap();
        assert_eq!((full.used_percent, full.limit_percent), (91, 90));
        let message = full.to_string();
        assert!(
            message.contains("/x/consumequeue") && message.contains("diskSpaceWarningLevelRatio"),
            "{message}"
        );
    }

    #[test]
    fn the_real_disk_has_a_use() {
        let root = tempfile::tempdir().unwrap();
        assert!(used_percent(DiskUsageSource::FileSystem, root.path()).unwrap() <= 100);
        assert_eq!(used_percent(DiskUsageSource::FileSystem, Path::new("/does/not/exist")), None);
    }
}
