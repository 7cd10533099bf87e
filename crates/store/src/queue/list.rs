//! The list of all queues in a file, so that a start need not look at the queues' own files.
//!
//! `ferromq.queues` beside the files of RocketMQ, which ignores it: text, one line per queue under the line of its topic, with a
//! checksum at the end. It is replaced at a clean stop, and now and then in between, and holds for each queue what was in its
//! files, forced to the disk, before the list was written. What the log got behind the list's position, the log gives back.
//!
//! There are others of the same form ([`Listing`]).
//!
//! ```text
//! ferromq queues 2, position 90300
//! = 9 TopicTest
//! 0 0 17 0 89950
//! 1 4 18 512 90210
//! crc 5f3b2c19
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::error::FileError;

/// What a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// All queues, as their files are on the disk.
    Synced,
    /// All queues, as their files were written in the present run. It holds as long as the machine is not restarted.
    Recent,
    /// For a recovery that is under way: how far queues had got whose files it cuts. In it, nothing is readable.
    Given,
}

impl Listing {
    fn file(self) -> &'static str {
        match self {
            Listing::Synced => "ferromq.queues",
            Listing::Recent => "ferromq.queues.recent",
            Listing::Given => "ferromq.given",
        }
    }
}

const HEADER: &str = "ferromq queues 2, position ";
const CRC: &str = "crc ";
/// Text gathered for one write.
const WRITE_BYTES: usize = 256 << 10;

/// What the list says about one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListedOffsets {
    /// First readable offset.
    pub(crate) min: i64,
    /// Behind the last unit that is in the files.
    pub(crate) max: i64,
    /// The message at `min` lies at or behind this place of the log.
    pub(crate) min_physical: u64,
    /// Physical offset in the last unit; `None` when there is nothing readable.
    pub(crate) last_physical: Option<u64>,
}

/// A queue in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListedQueue<'a> {
    pub(crate) topic: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) offsets: ListedOffsets,
}

/// The list as it was read: whole, by its checksum.
#[derive(Debug)]
pub(crate) struct QueueList {
    /// Units of all messages that lie below this place of the log were in the files.
    pub(crate) position: u64,
    text: String,
    /// Where the lines of the queues are in the text.
    lines: std::ops::Range<usize>,
}

impl QueueList {
    /// Reads a list; `None` if there is none or it is not whole.
    pub(crate) fn load(root: &Path, listing: Listing) -> Option<QueueList> {
        Self::load_file(&root.join(listing.file()))
    }

    /// Removes a list that no longer holds.
    pub(crate) fn remove(root: &Path, listing: Listing) -> Result<(), FileError> {
        let path = root.join(listing.file());
        match disk::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FileError::at("delete", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn load_file(path: &Path) -> Option<QueueList> {
        let text = fs::read_to_string(path).ok()?;
        let end = text.rfind(CRC)?;
        let crc = u32::from_str_radix(text[end + CRC.len()..].trim_end(), 16).ok()?;
        if crc != crc32fast::hash(&text.as_bytes()[..end]) {
            return None;
        }
        let header_end = text.find('\n').filter(|header_end| *header_end < end)?;
        let position = text[..header_end].strip_prefix(HEADER)?.parse().ok()?;
        Some(QueueList { position, lines: header_end + 1..end, text })
    }

    /// The queues. `None` in between: the rest is not to be understood (a checksum holds for nonsense too).
    pub(crate) fn queues(&self) -> impl Iterator<Item = Option<ListedQueue<'_>>> {
        Lines { rest: &self.text[self.lines.clone()], topic: "" }
    }
}

/// What is left of the list, and the topic of the last queue.
struct Lines<'a> {
    rest: &'a str,
    topic: &'a str,
}

impl<'a> Lines<'a> {
    fn queue(&mut self) -> Option<ListedQueue<'a>> {
        if let Some(rest) = self.rest.strip_prefix("= ") {
            let (len, rest) = rest.split_once(' ')?;
            // A name may hold anything, also the end of a line.
            let (topic, rest) = rest.split_at_checked(len.parse().ok()?)?;
            self.topic = topic;
            self.rest = rest.strip_prefix('\n')?;
        }
        let (line, rest) = self.rest.split_once('\n')?;
        self.rest = rest;
        let mut fields = line.split(' ');
        let mut number = || fields.next()?.parse::<i64>().ok();
        let (queue_id, min, max) = (number()?, number()?, number()?);
        let (min_physical, last_physical) = (number()?, number()?);
        let offsets = ListedOffsets {
            min,
            max,
            min_physical: u64::try_from(min_physical).ok()?,
            last_physical: u64::try_from(last_physical).ok(),
        };
        let is_sound = 0 <= min && min <= max && max > 0 && (min == max || last_physical >= 0);
        is_sound.then_some(ListedQueue {
            topic: self.topic,
            queue_id: i32::try_from(queue_id).ok()?,
            offsets,
        })
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Option<ListedQueue<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let queue = self.queue();
        if queue.is_none() {
            self.rest = "";
        }
        Some(queue)
    }
}

/// Writes a new list beside the old one, piece by piece.
#[derive(Debug)]
pub(crate) struct QueueListWriter {
    root: PathBuf,
    listing: Listing,
    file: File,
    text: String,
    written: u64,
    crc: crc32fast::Hasher,
    topic: String,
}

impl QueueListWriter {
    /// `position`: of the log, below which everything is in the list.
    pub(crate) fn create(root: &Path, listing: Listing, position: u64) -> io::Result<Self> {
        let file = disk::create_empty(&new_file(root, listing))?;
        Ok(QueueListWriter {
            root: root.to_path_buf(),
            listing,
            file,
            text: format!("{HEADER}{position}\n"),
            written: 0,
            crc: crc32fast::Hasher::new(),
            topic: String::new(),
        })
    }

    pub(crate) fn put(&mut self, queue: &ListedQueue<'_>) -> io::Result<()> {
        use std::fmt::Write;
        let ListedQueue { topic, queue_id, offsets } = queue;
        if *topic != self.topic {
            self.topic.clear();
            self.topic.push_str(topic);
            let _infallible = writeln!(self.text, "= {} {topic}", topic.len());
        }
        let ListedOffsets { min, max, min_physical, last_physical } = offsets;
        let last = last_physical.map_or(-1, |last| last as i64);
        let _infallible = writeln!(self.text, "{queue_id} {min} {max} {min_physical} {last}");
        if self.text.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.crc.update(self.text.as_bytes());
        disk::write_all_at(&self.file, self.text.as_bytes(), self.written)?;
        self.written += self.text.len() as u64;
        self.text.clear();
        Ok(())
    }

    /// Puts the new list in the place of the old one, and forces it to the disk unless it would not hold there.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.text = format!("{CRC}{:08x}\n", self.crc.clone().finalize());
        self.flush()?;
        let (new, path) = (new_file(&self.root, self.listing), self.root.join(self.listing.file()));
        if self.listing == Listing::Recent {
            return disk::rename(&new, &path);
        }
        disk::sync_all(&self.file)?;
        disk::rename(&new, &path)?;
        disk::sync_directory(&self.root)
    }
}

/// The name of a list that is not finished.
fn new_file(root: &Path, listing: Listing) -> PathBuf {
    root.join(format!("{}.tmp", listing.file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(topic: &str, queue_id: i32, last_physical: Option<u64>) -> ListedQueue<'_> {
        ListedQueue {
            topic,
            queue_id,
            offsets: ListedOffsets {
                min: 9,
                max: 9 + i64::from(last_physical.is_some()),
                min_physical: 3,
                last_physical,
            },
        }
    }

    fn save(root: &Path, queues: &[ListedQueue<'_>]) {
        let mut writer = QueueListWriter::create(root, Listing::Synced, 12).unwrap();
        queues.iter().for_each(|queue| writer.put(queue).unwrap());
        writer.finish().unwrap();
    }

    #[test]
    fn what_was_listed_is_read_back() {
        let root = tempfile::tempdir().unwrap();
        assert!(QueueList::load(root.path(), Listing::Synced).is_none());
        let queues = [
            queue("a", 0, Some(7)),
            queue("a", 1, None),
            queue("with\nline and blank", 0, Some(1)),
            queue("= 1 a", -5, None),
            queue("a", 2, Some(0)),
        ];
        save(root.path(), &queues);
        let list = QueueList::load(root.path(), Listing::Synced).unwrap();
        assert_eq!(list.position, 12);
        assert!(list.queues().eq(queues.map(Some)));
        save(root.path(), &[]);
        assert_eq!(QueueList::load(root.path(), Listing::Synced).unwrap().queues().count(), 0);
    }

    #[test]
    fn a_list_of_many_queues_is_written_in_pieces() {
        let root = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..80_000).map(|number| format!("Topic{}", number / 3)).collect();
        let queues: Vec<_> =
            names.iter().enumerate().map(|(id, name)| queue(name, id as i32, Some(5))).collect();
        save(root.path(), &queues);
        let list = QueueList::load(root.path(), Listing::Synced).unwrap();
        assert!(list.text.len() > 3 * WRITE_BYTES);
        assert!(list.queues().eq(queues.into_iter().map(Some)));
    }

    #[test]
    fn a_list_that_is_not_whole_is_none() {
        let root = tempfile::tempdir().unwrap();
        save(root.path(), &[queue("a", 0, Some(7)), queue("b", 0, Some(8))]);
        let path = root.path().join(Listing::Synced.file());
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() - 2 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(QueueList::load(root.path(), Listing::Synced).is_none(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(QueueList::load(root.path(), Listing::Synced).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn nonsense_with_a_good_checksum_is_seen() {
        let root = tempfile::tempdir().unwrap();
        for lines in ["0 0 1 0\n", "= 99 a\n0 0 1 0 5\n", "= 1 a\n0 5 1 0 5\n", "= 1 a\n0 0 1 0 -1\n", "x"] {
            let body = format!("{HEADER}12\n{lines}");
            fs::write(
                root.path().join(Listing::Synced.file()),
                format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes())),
            )
            .unwrap();
            let list = QueueList::load(root.path(), Listing::Synced).unwrap();
            assert_eq!(list.queues().last(), Some(None), "{lines}");
        }
    }
}
