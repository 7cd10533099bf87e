//! What is on the disk, and what of it a power cut would leave.
//!
//! An [`Image`] knows two states of a directory: how the system shows it to the process (`names`, and what the files hold), and what
//! is durable of it. Forcing a file or a directory brings the second up to the first. A loss of power takes the durable
//! state, and of what came since whatever a file system might have got to the device by itself: some pages of each file, and
//! some of the changes of names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use fastrand::Rng;
use ferromq_store::simulation::DiskEvent;

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// What a name stands for: each file and directory has its number, since names may change, and come to mean others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Directory(u32),
    File(u32),
}

type Names = BTreeMap<PathBuf, Node>;

/// A change of names that is not durable yet.
#[derive(Debug, Clone)]
enum Change {
    Added(PathBuf, Node),
    Removed(PathBuf, Node),
    Renamed(PathBuf, PathBuf, Node),
}

/// A file's content, as the process sees it and as it is on the device.
#[derive(Debug, Clone)]
struct Content {
    /// Where to look for the present content. `None`: nobody can change it any more.
    open: Option<Rc<File>>,
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Parts on the device that only the journal's next commit makes readable.
    written_back: Vec<(usize, Vec<u8>)>,
    modified: SystemTime,
    durable_modified: SystemTime,
}

/// The state of a directory; all paths are relative to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    names: Names,
    durable: Names,
    pending: Vec<Change>,
    files: BTreeMap<u32, Content>,
    /// Numbers given to files and directories.
    given: u32,
    /// Our number of each open file, by the system's.
    numbers: BTreeMap<u64, u32>,
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Change::Added(path, node) => {
                remove_below(names, path);
                names.insert(path.clone(), *node);
            }
            Change::Removed(path, node) => {
                if names.get(path) == Some(node) {
                    remove_below(names, path);
                    names.remove(path);
                }
            }
            Change::Renamed(from, to, node) => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
        }
    }

    fn directory(&self) -> Option<&Path> {
        match self {
            Change::Added(path, _) | Change::Removed(path, _) | Change::Renamed(_, path, _) => path.parent(),
        }
    }
}

/// A directory that is gone has nothing in it, and neither has one that was just made.
fn remove_below(names: &mut Names, directory: &Path) {
    let below: Vec<_> = names.range(directory.to_path_buf()..).map(|(path, _)| path.clone()).collect();
    for path in
        below.iter().skip_while(|path| *path == directory).take_while(|path| path.starts_with(directory))
    {
        names.remove(path);
    }
}

impl Content {
    fn refresh(&mut self) {
        let Some(open) = &self.open else { return };
        let metadata = open.metadata().unwrap();
        self.live.resize(metadata.len() as usize, 0);
        open.read_exact_at(&mut self.live, 0).unwrap();
        self.modified = metadata.modified().unwrap();
    }

    fn sync(&mut self) {
        self.refresh();
        self.durable.clone_from(&self.live);
        self.durable_modified = self.modified;
        self.written_back.clear();
    }

    fn commit(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.written_back) {
            let end = (at + bytes.len()).max(self.durable.len());
            self.durable.resize(end, 0);
            self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Brings some of what is not durable to the device: of the blocks that differ, that part.
    fn write_some(&mut self, rng: &mut Rng, block: usize, part: f64) {
        if self.live.len() != self.durable.len() && rng.f64() < part {
            self.durable.resize(self.live.len(), 0);
        }
        let len = self.live.len().min(self.durable.len());
        for at in (0..len).step_by(block) {
            let range = at..len.min(at + block);
            if self.live[range.clone()] != self.durable[range.clone()] && rng.f64() < part {
                self.durable[range.clone()].copy_from_slice(&self.live[range]);
            }
        }
        if rng.f64() < part {
            self.durable_modified = self.modified;
        }
    }
}

impl Image {
    // ---- what the store does ----

    /// Takes note of what happened below `root`.
    pub(crate) fn note(&mut self, root: &Path, event: &DiskEvent<'_>) {
        let below = |path: &Path| path.strip_prefix(root).unwrap().to_path_buf();
        match event {
            DiskEvent::Opened { path, file } => self.opened(below(path), path, file),
            DiskEvent::Changed { .. } => {}
            DiskEvent::Renamed { from, to } => {
                let (from, to) = (below(from), below(to));
                let node = self.names[&from];
                self.change(Change::Renamed(from, to, node));
            }
            DiskEvent::Removed { path } => {
                let path = below(path);
                let gone: Vec<_> = self.names.iter().filter(|(name, _)| name.starts_with(&path)).collect();
                let gone: Vec<_> = gone.into_iter().rev().map(|(name, node)| (name.clone(), *node)).collect();
                gone.into_iter().for_each(|(name, node)| self.change(Change::Removed(name, node)));
            }
            DiskEvent::DirectoryMade { path } => {
                let path = below(path);
                let mut missing: Vec<_> =
                    path.ancestors().filter(|path| !self.names.contains_key(*path)).collect();
                missing.retain(|path| !path.as_os_str().is_empty());
                for directory in missing.into_iter().rev() {
                    let number = self.new_number();
                    self.change(Change::Added(directory.to_path_buf(), Node::Directory(number)));
                }
            }
            DiskEvent::Synced { file, with_name } => {
                let number = self.number(file);
                self.content(number).sync();
                if *with_name {
                    self.keep_name(number);
                }
            }
            DiskEvent::DirectorySynced { path } => {
                let path = below(path);
                self.keep(|change| {
                    change.directory() == Some(&path)
                        || matches!(change, Change::Added(made, Node::Directory(_)) if path.starts_with(made))
                });
            }
            DiskEvent::FileSystemSynced => self.write_everything(),
            DiskEvent::WroteBack { file, position, len } => {
                let number = self.number(file);
                let content = self.content(number);
                content.refresh();
                let (from, to) = (*position as usize, (*position + *len) as usize);
                content.written_back.push((from, content.live[from..to].to_vec()));
            }
            DiskEvent::JournalCommitted => {
                self.files.values_mut().for_each(Content::commit);
                self.keep(|_| true);
            }
        }
    }

    fn opened(&mut self, name: PathBuf, path: &Path, file: &File) {
        if self.names.contains_key(&name) {
            return;
        }
        let number = self.new_number();
        let metadata = file.metadata().unwrap();
        let modified = metadata.modified().unwrap();
        self.numbers.insert(metadata.ino(), number);
        let content = Content {
            open: Some(Rc::new(File::open(path).unwrap())),
            live: Vec::new(),
            durable: Vec::new(),
            written_back: Vec::new(),
            modified,
            durable_modified: modified,
        };
        self.files.insert(number, content);
        self.change(Change::Added(name, Node::File(number)));
    }

    fn new_number(&mut self) -> u32 {
        self.given += 1;
        self.given
    }

    fn number(&self, file: &File) -> u32 {
        self.numbers[&file.metadata().unwrap().ino()]
    }

    fn content(&mut self, number: u32) -> &mut Content {
        self.files.get_mut(&number).unwrap()
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    /// Makes changes of names durable.
    fn keep(&mut self, which: impl Fn(&Change) -> bool) {
        let Image { pending, durable, .. } = self;
        pending.retain(|change| {
            let keep = which(change);
            if keep {
                change.apply(durable);
            }
            !keep
        });
    }

    /// Makes the name durable that a file was created with, and the directories on the way to it.
    fn keep_name(&mut self, number: u32) {
        let created = self.pending.iter().find_map(|change| match change {
            Change::Added(path, node) if *node == Node::File(number) => Some(path.clone()),
            _ => None,
        });
        if let Some(path) = created {
            // With what these names meant before.
            self.keep(|change| match change {
                Change::Added(name, _) | Change::Removed(name, _) => path.starts_with(name),
                Change::Renamed(..) => false,
            });
        }
    }

    // ---- what the system does by itself ----

    /// Everything is written: much time has gone by.
    pub(crate) fn write_everything(&mut self) {
        self.files.values_mut().for_each(Content::sync);
        self.keep(|_| true);
    }

    /// Some pages are written, some changes of names are committed: in the background, as time goes by.
    pub(crate) fn write_some_back(&mut self, rng: &mut Rng) {
        let part = rng.f64();
        for content in self.files.values_mut() {
            content.refresh();
            content.write_some(rng, PAGE, part);
        }
        if rng.bool() {
            let committed = rng.usize(0..=self.pending.len());
            let committed: Vec<_> = self.pending.drain(..committed).collect();
            committed.iter().for_each(|change| change.apply(&mut self.durable));
        }
    }

    /// Reads what every file holds now, so that later changes do not matter to this image.
    pub(crate) fn freeze(&self) -> Image {
        let mut frozen = self.clone();
        for content in frozen.files.values_mut() {
            content.refresh();
            content.open = None;
        }
        frozen
    }

    /// What is left of a frozen image when the power goes: everything that is durable, and some of the rest.
    pub(crate) fn after_power_loss(mut self, rng: &mut Rng) -> Image {
        if rng.bool() {
            // As a file system with one journal does it.
            self.pending.truncate(rng.usize(0..=self.pending.len()));
        } else {
            let part = rng.f64();
            self.pending.retain(|_| rng.f64() < part);
        }
        self.keep(|_| true);
        let block = if rng.u8(0..4) == 0 { SECTOR } else { PAGE };
        let usual_part = some_part(rng);
        for content in self.files.values_mut() {
            let part = if rng.bool() { usual_part } else { some_part(rng) };
            content.write_some(rng, block, part);
        }
        self.only_durable()
    }

    /// What is left of a frozen image if the device has nothing but what is durable.
    pub(crate) fn only_durable(mut self) -> Image {
        let names = &self.durable;
        let is_reached = |path: &Path| {
            let mut above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
            above.all(|above| matches!(names.get(above), Some(Node::Directory(_))))
        };
        self.names = names
            .iter()
            .filter(|(path, _)| is_reached(path))
            .map(|(path, node)| (path.clone(), *node))
            .collect();
        self.durable = self.names.clone();
        self.pending.clear();
        let named: Vec<_> = self.names.values().collect();
        self.files.retain(|number, _| named.contains(&&Node::File(*number)));
        for content in self.files.values_mut() {
            content.live.clone_from(&content.durable);
            content.modified = content.durable_modified;
            content.written_back.clear();
        }
        self
    }

    /// What became of a name gets to the device, in a frozen image.
    pub(crate) fn write_name(&mut self, name: &Path) {
        self.keep(|change| match change {
            Change::Added(path, _) | Change::Removed(path, _) | Change::Renamed(_, path, _) => path == name,
        });
    }

    /// Everything below a directory gets to the device, in a frozen image.
    pub(crate) fn write_below(&mut self, directory: &Path) {
        self.keep(|change| match change {
            Change::Added(path, _) | Change::Removed(path, _) | Change::Renamed(_, path, _) => {
                path.starts_with(directory)
            }
        });
        for (_, node) in self.names.iter().filter(|(path, _)| path.starts_with(directory)) {
            if let Node::File(number) = node {
                self.files.get_mut(number).unwrap().sync();
            }
        }
    }

    /// Pages of a file get to the device, in a frozen image.
    pub(crate) fn write_pages(&mut self, name: &Path, which: impl Fn(usize) -> bool) {
        let Some(Node::File(number)) = self.names.get(name) else { return };
        let content = self.files.get_mut(number).unwrap();
        content.durable.resize(content.live.len(), 0);
        for (index, page) in content.live.chunks(PAGE).enumerate().filter(|(index, _)| which(*index)) {
            content.durable[index * PAGE..][..page.len()].copy_from_slice(page);
        }
    }

    /// A file of a queue's units is lost or cut off, on the device too, in a frozen image of a machine that had much time to write.
    /// Says which.
    pub(crate) fn damage_a_queue(&mut self, rng: &mut Rng) -> Option<PathBuf> {
        self.write_everything();
        let is_of_queue =
            |path: &Path| path.starts_with("consumequeue") || path.starts_with("batchconsumequeue.units");
        let files = self.names.iter().filter_map(|(path, node)| match node {
            Node::File(number) if is_of_queue(path) => Some((path.clone(), *number)),
            _ => None,
        });
        let files: Vec<_> = files.collect();
        let (path, number) = files.get(rng.usize(0..files.len().max(1)))?.clone();
        if rng.bool() {
            self.change(Change::Removed(path.clone(), Node::File(number)));
        } else {
            let live = &mut self.content(number).live;
            let from = rng.usize(0..=live.len());
            live[from..].fill(0);
        }
        self.write_everything();
        Some(path)
    }

    // ---- from and to a directory ----

    /// Lays the files out in an empty directory, and watches them there from now on.
    pub(crate) fn lay_out(&mut self, root: &Path) {
        self.numbers.clear();
        for (name, node) in &self.names {
            let path = root.join(name);
            let Node::File(number) = node else {
                fs::create_dir(&path).unwrap();
                continue;
            };
            let content = self.files.get_mut(number).unwrap();
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            file.set_len(content.live.len() as u64).unwrap();
            for (index, page) in content.live.chunks(PAGE).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    file.write_all_at(page, (index * PAGE) as u64).unwrap();
                }
            }
            file.set_modified(content.modified).unwrap();
            self.numbers.insert(file.metadata().unwrap().ino(), *number);
            content.open = Some(Rc::new(file));
        }
    }

    /// The content of a frozen image's file, to be damaged.
    pub(crate) fn file_mut(&mut self, name: &Path) -> &mut [u8] {
        let Node::File(number) = self.names[name] else { panic!("{} is a directory", name.display()) };
        &mut self.content(number).live
    }
}

fn some_part(rng: &mut Rng) -> f64 {
    [0.0, 0.1, 0.5, 0.9, 1.0][rng.usize(0..5)]
}
