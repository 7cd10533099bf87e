//! What may be deleted and when, and what happens when the disk is full (`docs/spec/02-store.md` §12).

use std::fs;
use std::os::unix::fs::MetadataExt;
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
    let is_nearly_full = over(options.disk_clean_forcibly_ratio) || over(options.disk_warning_ratio);
    let space = match options.replicas_per_disk_partition {
        _ if is_nearly_full => Space::Short,
        0 | 1 if over(options.disk_max_used_ratio) || usages.contains(&None) => Space::Scarce,
        0 | 1 => Space::Enough,
        stores => match share_used_percent(options, queue_directory, stores) {
            Some(used) if used > u64::from(options.logical_disk_clean_forcibly_ratio) => Space::Short,
            Some(used) if used <= u64::from(options.disk_max_used_ratio) => Space::Enough,
            _ => Space::Scarce,
        },
    };
    Verdict {
        delete_expired: options.delete_when_hours.contains(&hour) || space != Space::Enough,
        delete_any: space == Space::Short && options.clean_file_forcibly,
    }
}

/// How much of the disk is left to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Enough,
    /// Expired files must go.
    Scarce,
    /// The oldest files must go.
    Short,
}

/// What a store uses of its part of a partition that `stores` of them share, in percent (may be above 100).
fn share_used_percent(options: &StoreOptions, queue_directory: &Path, stores: u32) -> Option<u64> {
    let log_directory = options.commit_log_directory();
    let (used, available) = space(&log_directory)?;
    let capacity = used + available;
    let directories = [log_directory.as_path(), queue_directory, &options.root.join("index")];
    let used: u64 = directories.iter().map(|directory| allocated_bytes(directory)).sum();
    (used.saturating_mul(u64::from(stores)).saturating_mul(100)).checked_div(capacity)
}

/// Bytes on the disk of the files in a directory and below. What can't be looked at counts as nothing.
fn allocated_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => allocated_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
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

    const NOTHING: Verdict = Verdict { delete_expired: false, delete_any: false };
    const EXPIRED: Verdict = Verdict { delete_expired: true, delete_any: false };
    const ANY: Verdict = Verdict { delete_expired: true, delete_any: true };

    fn judged(usage: fn(&Path) -> Option<u8>, hour: u8) -> (Verdict, Option<DiskFull>) {
        judged_by(
            &StoreOptions { disk_usage: DiskUsageSource::Fixed(usage), ..StoreOptions::new("/x") },
            hour,
        )
    }

    fn judged_by(options: &StoreOptions, hour: u8) -> (Verdict, Option<DiskFull>) {
        let guard = DiskGuard::default();
        (judge(options, &options.root.join("consumequeue"), &guard, hour), guard.full())
    }

    #[test]
    fn the_thresholds_are_those_of_the_settings() {
        assert_eq!(judged(|_| Some(75), 3), (NOTHING, None));
        assert_eq!(judged(|_| Some(75), 4), (EXPIRED, None));
        assert_eq!(judged(|_| Some(76), 3), (EXPIRED, None));
        assert_eq!(judged(|_| Some(86), 3), (ANY, None));
        assert_eq!(judged(|_| None, 3), (EXPIRED, None));
        let (verdict, full) = judged(|path| Some(if path.ends_with("consumequeue") { 91 } else { 10 }), 3);
        assert_eq!(verdict, ANY);
        let full = full.unwrap();
        assert_eq!((full.used_percent, full.limit_percent), (91, 90));
        let message = full.to_string();
        assert!(
            message.contains("/x/consumequeue") && message.contains("diskSpaceWarningLevelRatio"),
            "{message}"
        );
    }

    #[test]
    fn every_hour_of_delete_when_counts() {
        let options = StoreOptions {
            disk_usage: DiskUsageSource::Fixed(|_| Some(10)),
            delete_when_hours: vec![4, 22],
            ..StoreOptions::new("/x")
        };
        let hours: Vec<u8> = (0..24).filter(|hour| judged_by(&options, *hour).0 == EXPIRED).collect();
        assert_eq!(hours, [4, 22]);
    }

    #[test]
    fn without_force_only_expired_files_go_however_full_the_disk_is() {
        let options = StoreOptions {
            disk_usage: DiskUsageSource::Fixed(|_| Some(95)),
            clean_file_forcibly: false,
            ..StoreOptions::new("/x")
        };
        let (verdict, full) = judged_by(&options, 3);
        assert_eq!((verdict, full.is_some()), (EXPIRED, true));
    }

    #[test]
    fn stores_that_share_a_disk_keep_to_their_part() {
        let root = tempfile::tempdir().unwrap();
        for (directory, blocks) in [("commitlog", 200), ("consumequeue/T/0", 30), ("index", 26)] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
            fs::write(root.path().join(directory).join("file"), vec![1; blocks << 10]).unwrap();
        }
        let directories = ["commitlog", "consumequeue", "index"].map(|name| root.path().join(name));
        let used: u64 = directories.iter().map(|directory| allocated_bytes(directory)).sum();
        assert!(used >= 256 << 10);
        let (others, available) = space(root.path()).unwrap();
        // So many stores that this one uses a part of its share.
        let judged = |part: f64, usage: fn(&Path) -> Option<u8>| {
            let options = StoreOptions {
                disk_usage: DiskUsageSource::Fixed(usage),
                replicas_per_disk_partition: ((others + available) as f64 / used as f64 * part) as u32,
                ..StoreOptions::new(root.path())
            };
            judged_by(&options, 3).0
        };
        assert_eq!(judged(0.5, |_| Some(10)), NOTHING);
        assert_eq!(judged(0.5, |_| Some(80)), NOTHING, "the others fill the disk");
        assert_eq!(judged(0.78, |_| Some(10)), EXPIRED);
        assert_eq!(judged(1.1, |_| Some(10)), ANY);
        assert_eq!(judged(0.5, |_| Some(86)), ANY, "that concerns everybody");
    }

    #[test]
    fn the_real_disk_has_a_use() {
        let root = tempfile::tempdir().unwrap();
        assert!(used_percent(DiskUsageSource::FileSystem, root.path()).unwrap() <= 100);
        assert_eq!(used_percent(DiskUsageSource::FileSystem, Path::new("/does/not/exist")), None);
    }
}
