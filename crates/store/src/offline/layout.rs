//! With which file sizes a store was written, as far as its files tell.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::error::FileError;
use crate::index::{IndexFile, index_files};
use crate::log::{load_files, parse_file_name};
use crate::options::StoreOptions;
use crate::queue::{BATCH_DIRECTORY, BATCH_UNIT, UNIT, UNITS_DIRECTORY};

/// Queue files that are looked at: a store may have millions.
const QUEUE_FILES_LOOKED_AT: usize = 200;

/// What the files of a store say about the settings that it was written with. `None`: the files do not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// `mappedFileSizeCommitLog`.
    pub commit_log_file_size: Option<u32>,
    /// `mappedFileSizeConsumeQueue`.
    pub consume_queue_file_size: Option<u32>,
    /// `mapperFileSizeBatchConsumeQueue`.
    pub batch_consume_queue_file_size: Option<u32>,
    /// `maxHashSlotNum` and `maxIndexNum`.
    pub index: Option<(u32, u32)>,
    /// There are light queues, so `enableMultiDispatch` was true.
    pub multi_dispatch: bool,
}

impl Layout {
    /// Looks at the lengths of the files, and at the heads of the index files.
    pub fn of(root: &Path, commit_log_directory: &Path) -> Result<Layout, FileError> {
        let mut layout = Layout::default();
        let log_files = load_files(commit_log_directory)?;
        let bases = log_files.iter().map(|file| file.base);
        layout.commit_log_file_size = common_len(log_files.iter().map(|file| file.len), bases, 1);
        let (mut queue_files, multi_dispatch) = sample_of_queue_files(&root.join("consumequeue"));
        layout.multi_dispatch = multi_dispatch;
        queue_files.extend(sample_of_queue_files(&root.join(UNITS_DIRECTORY)).0);
        layout.consume_queue_file_size = common_queue_len(&queue_files, UNIT);
        let (batch_files, _) = sample_of_queue_files(&root.join(BATCH_DIRECTORY));
        layout.batch_consume_queue_file_size = common_queue_len(&batch_files, BATCH_UNIT);
        let index = root.join("index");
        if index.is_dir() {
            layout.index = index_files(&index)?.iter().find_map(|path| IndexFile::infer_counts(path));
        }
        Ok(layout)
    }

    /// Puts what the files tell into the options.
    pub fn apply(&self, options: &mut StoreOptions) {
        options.commit_log_file_size = self.commit_log_file_size.unwrap_or(options.commit_log_file_size);
        options.consume_queue_file_size =
            self.consume_queue_file_size.unwrap_or(options.consume_queue_file_size);
        options.batch_consume_queue_file_size =
            self.batch_consume_queue_file_size.unwrap_or(options.batch_consume_queue_file_size);
        (options.index_slots, options.index_units) =
            self.index.unwrap_or((options.index_slots, options.index_units));
        options.multi_dispatch_enabled |= self.multi_dispatch;
    }
}

/// The commonest of the lengths that divides all names and is a multiple of `unit`; of two the longer one.
fn common_len(
    lens: impl Iterator<Item = u64>,
    bases: impl Iterator<Item = u64> + Clone,
    unit: u64,
) -> Option<u32> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for len in lens.filter(|len| *len > 0 && len.is_multiple_of(unit)) {
        *counts.entry(len).or_default() += 1;
    }
    let fits = |len: u64| bases.clone().all(|base| base.is_multiple_of(len));
    let common =
        counts.into_iter().filter(|(len, _)| fits(*len)).max_by_key(|(len, count)| (*count, *len))?;
    u32::try_from(common.0).ok()
}

fn common_queue_len(files: &[(u64, u64)], unit: usize) -> Option<u32> {
    common_len(files.iter().map(|(_, len)| *len), files.iter().map(|(base, _)| *base), unit as u64)
}

/// Names and lengths of some queue files, and whether there are light queues.
fn sample_of_queue_files(directory: &Path) -> (Vec<(u64, u64)>, bool) {
    let (mut files, mut light) = (Vec::new(), false);
    let list = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    for topic in list(directory) {
        light |= topic.file_name().as_encoded_bytes().starts_with(b"%LMQ%");
        if files.len() >= QUEUE_FILES_LOOKED_AT {
            continue;
        }
        for file in list(&topic.path()).flat_map(|queue| list(&queue.path())).take(QUEUE_FILES_LOOKED_AT) {
            if let Some(base) = parse_file_name(&file.file_name())
                && let Ok(metadata) = file.metadata()
            {
                files.push((base, metadata.len()));
            }
        }
    }
    (files, light)
}
