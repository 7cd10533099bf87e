//! Log files that were deleted, until their space is given back.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Segment;

/// Space is given back in such steps. To free a whole file of 1 GiB keeps ext4 busy for a quarter of a second, in which single flushes
/// were seen to wait for 40 to 55 ms; with steps of this size it was about half of that.
const STEP: u64 = 16 << 20;

/// Files that have no name any more. Reads that were under way keep them mapped; whoever ends last must not have to unmap and free
/// them, because that may be a thread that must not wait. So one more handle of each is kept here, and the thread that
/// deletes files comes by.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    segments: Mutex<Vec<Arc<Segment>>>,
}

impl Leaving {
    /// Takes a file over that is out of the log and was removed.
    pub(crate) fn take(&self, segment: Arc<Segment>) {
        self.segments.lock().push(segment);
    }

    /// Frees the files that nobody reads any more, calling `pause` with the time to sleep behind each step. Returns how many files are
    /// left. Waits for the disk.
    pub(crate) fn free(&self, mut pause: impl FnMut(Duration)) -> usize {
        let leaving = std::mem::take(&mut *self.segments.lock());
        for segment in leaving {
            match Arc::try_unwrap(segment) {
                Ok(segment) => segment.into_mapped().free_in_steps(STEP, || pause(Duration::from_millis(10))),
                Err(still_read) => self.take(still_read),
            }
        }
        self.segments.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{MappedLog, RecordSlice};

    #[test]
    fn a_file_is_freed_when_its_last_reader_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let segment = MappedLog::create(directory.path(), 0, 8192).unwrap();
        segment.mapped().write(100, b"record");
        let reader = RecordSlice::new(&segment, 100, 6);
        let file = segment.mapped().file().try_clone().unwrap();
        std::fs::remove_file(segment.path()).unwrap();
        let leaving = Leaving::default();
        leaving.take(segment);
        assert_eq!(leaving.free(|_| ()), 1);
        assert_eq!((&*reader, file.metadata().unwrap().len()), (&b"record"[..], 8192));
        let weak = Arc::downgrade(&leaving.segments.lock()[0]);
        drop(reader);
        assert!(weak.upgrade().is_some(), "the reader does not have to do it");
        assert_eq!(leaving.free(|_| ()), 0);
        assert!(weak.upgrade().is_none());
    }
}
