//! What a node keeps: the side index, its vote, and how both go together with the commit log.
//!
//! One lock covers them, so that there is one order of everything that happens to the log: entries of another leader, votes, and the
//! moments at which the broker may append and no longer may. In particular the broker stops appending *before* a vote for somebody
//! else is written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ferromq_store::ReplicaError;
use openraft::{EntryPayload, LeaderId};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::error::RaftError;
use super::index::{Base, Damage, SideIndex};
use super::slots::{SlotFile, VALUE_LEN};
use super::types::{Entry, EntryKind, IndexEntry, LogId, LogRange, Members, NodeId, Vote, log_id};
use crate::log::ReplicaLog;

/// The end of the log that is taken to be in memory.
const RECENT_LEN: u64 = 64 << 20;

/// What an entry's acknowledgement by one node promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// It is in the page cache: it survives the death of the process, and the loss of power of less than half of the group
    /// (`flushDiskType=ASYNC_FLUSH`).
    #[default]
    PageCache,
    /// It is on the device (`flushDiskType=SYNC_FLUSH`).
    Device,
}

/// Files and log of one node. Clones share them.
#[derive(Clone)]
pub(crate) struct NodeStore {
    shared: Arc<Shared>,
}

struct Shared {
    log: Arc<dyn ReplicaLog>,
    durability: Durability,
    dir: PathBuf,
    state: Mutex<State>,
}

struct State {
    index: SideIndex,
    vote_file: SlotFile,
    vote: Option<Vote>,
    /// This node may have forgotten entries that it acknowledged, so it neither votes nor stands until it has caught up.
    amnesiac: bool,
    committed_file: SlotFile,
    committed: Option<LogId>,
    /// As which leader this node lets the broker append at present.
    leading: Option<LeaderId<NodeId>>,
}

/// What of the entries must be on the device before they are acknowledged.
pub(crate) struct Unflushed {
    end: u64,
    file: Arc<File>,
}

impl NodeStore {
    /// Opens or creates the files in `dir` and makes index and log agree: entries whose bytes are gone are dropped, bytes that
    /// belong to no entry are erased. The log follows from now on.
    pub(crate) fn open(
        dir: &Path,
        log: Arc<dyn ReplicaLog>,
        me: NodeId,
        durability: Durability,
    ) -> Result<NodeStore, RaftError> {
        fs::create_dir_all(dir).map_err(RaftError::file("create", dir))?;
        log.follow();
        let index_path = dir.join("index");
        let (index, damage) = SideIndex::open(dir).map_err(RaftError::file("open", &index_path))?;
        let vote_path = dir.join("vote");
        let (vote_file, vote) = SlotFile::open(&vote_path).map_err(RaftError::file("open", &vote_path))?;
        let committed_path = dir.join("committed");
        let (committed_file, committed) =
            SlotFile::open(&committed_path).map_err(RaftError::file("open", &committed_path))?;
        let (vote, amnesiac) = vote.map_or((None, false), |value| decode_vote(&value));
        let mut state = State {
            index,
            vote_file,
            // Who led when it died stands for election again in a new term: it may have lost entries of the old one.
            vote: vote.map(|vote| {
                if vote.leader_id.node_id == me { Vote { committed: false, ..vote } } else { vote }
            }),
            amnesiac,
            committed_file,
            committed: committed.map(|value| decode_committed(&value)),
            leading: None,
        };
        state.reconcile(&*log, &index_path)?;
        // Who has voted has had entries, or at least a beginning.
        if state.index.last_id().is_none() && state.vote.is_some() && !state.amnesiac {
            state.set_amnesiac(true, dir)?;
        }
        if damage == Damage::Middle {
            tracing::error!(
                file = %index_path.display(),
                "the Raft index is damaged: what lay behind is dropped and copied from the leader; until then this node does not vote"
            );
            state.set_amnesiac(true, dir)?;
        }
        let shared = Shared { log, durability, dir: dir.to_owned(), state: Mutex::new(state) };
        Ok(NodeStore { shared: Arc::new(shared) })
    }

    pub(crate) fn log(&self) -> &Arc<dyn ReplicaLog> {
        &self.shared.log
    }

    /// Whether this node knows of no group: it is new, or remembers nothing.
    pub(crate) fn knows_nothing(&self) -> bool {
        self.shared.state.lock().index.last_id().is_none()
    }

    /// Whether anything was ever decided as far as this node knows.
    pub(crate) fn has_history(&self) -> bool {
        self.shared.state.lock().index.last_id().is_some_and(|last| last.leader_id.term > 0)
    }

    pub(crate) fn is_amnesiac(&self) -> bool {
        self.shared.state.lock().amnesiac
    }

    /// Durably notes whether this node may have forgotten what it acknowledged.
    pub(crate) fn set_amnesiac(&self, amnesiac: bool) -> Result<(), RaftError> {
        self.shared.state.lock().set_amnesiac(amnesiac, &self.shared.dir)
    }

    /// Begins a group with what is in the log, see [`Base`]. The entry that stands for it has the log's end as its index, so that of
    /// nodes with logs of different lengths the longest counts as newest.
    pub(crate) fn begin_group(&self, members: Members) -> Result<(), RaftError> {
        let end = self.shared.log.bounds().end;
        self.shared.log.flush_to(end)?;
        self.rebegin(Some(Base { id: log_id(0, 0, end), end, members }))
    }

    /// Forgets all entries; `base` is what the log holds now.
    pub(crate) fn rebegin(&self, base: Option<Base>) -> Result<(), RaftError> {
        let mut state = self.shared.state.lock();
        state.index.reset(base).map_err(RaftError::file("write", &self.shared.dir.join("index")))
    }

    pub(crate) fn vote(&self) -> Option<Vote> {
        self.shared.state.lock().vote
    }

    pub(crate) fn committed(&self) -> Option<LogId> {
        let state = self.shared.state.lock();
        let last = state.index.last_id();
        // It is written without waiting for the device, so after a crash it may be behind or ahead of the entries.
        state.committed.min(last)
    }

    pub(crate) fn base(&self) -> Option<Base> {
        self.shared.state.lock().index.base().cloned()
    }

    pub(crate) fn last_id(&self) -> Option<LogId> {
        self.shared.state.lock().index.last_id()
    }

    /// The last entry whose bytes are all in files that the log no longer has.
    pub(crate) fn last_deleted(&self) -> Option<u64> {
        let begin = self.shared.log.bounds().begin;
        let state = self.shared.state.lock();
        state.index.last_until(begin).map(|id| id.index)
    }

    pub(crate) fn end_of(&self, id: LogId) -> Option<u64> {
        self.shared.state.lock().index.end_of(id)
    }

    /// Where the last entry ends in the commit log.
    #[cfg(test)]
    pub(crate) fn end(&self) -> Option<u64> {
        self.shared.state.lock().index.end()
    }

    /// Entries without their bytes.
    pub(crate) fn entries(&self, from: u64, to: u64) -> Vec<Entry> {
        let state = self.shared.state.lock();
        state.index.range(from, to).map(|entry| entry.to_entry(Bytes::new())).collect()
    }

    /// Whether the bytes of an entry were appended so lately that they are in memory.
    pub(crate) fn is_recent(&self, index: u64) -> bool {
        let offset = self.shared.state.lock().index.get(index).map_or(0, |entry| entry.offset);
        self.shared.log.bounds().end.saturating_sub(offset) <= RECENT_LEN
    }

    /// Whether taking entries waits for the device.
    pub(crate) fn is_synchronous(&self) -> bool {
        self.shared.durability == Durability::Device
    }

    /// Entries with their bytes, as many as make up about `len_max` bytes, at least one.
    pub(crate) fn entries_with_bytes(
        &self,
        from: u64,
        to: u64,
        len_max: u64,
    ) -> Result<Vec<Entry>, ReplicaError> {
        let picked: Vec<IndexEntry> = {
            let state = self.shared.state.lock();
            let mut len = 0;
            let fits = |entry: &&IndexEntry| {
                let first = len == 0;
                len += (entry.end() - entry.offset).max(1);
                first || len <= len_max
            };
            state.index.range(from, to).take_while(fits).cloned().collect()
        };
        let mut entries = Vec::with_capacity(picked.len());
        for entry in picked {
            let bytes = read_whole(&*self.shared.log, entry.offset, entry.end())?;
            entries.push(entry.to_entry(bytes));
        }
        Ok(entries)
    }

    /// Takes entries: those of another leader with their bytes, which go into the log; those of our own broker without, since their
    /// bytes are there already.
    pub(crate) fn append(
        &self,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<Option<Unflushed>, RaftError> {
        let log = &*self.shared.log;
        let mut state = self.shared.state.lock();
        let mut end = state.index.end().unwrap_or_else(|| log.bounds().end);
        let mut new = Vec::new();
        let mut flush = self.shared.durability == Durability::Device;
        let mut follows = false;
        for Entry { log_id: id, payload } in entries {
            let kind = match payload {
                EntryPayload::Blank => EntryKind::Blank,
                EntryPayload::Membership(members) => EntryKind::Members(Arc::new(members)),
                EntryPayload::Normal(range) if range.bytes.is_empty() => {
                    EntryKind::Range(state.proposed_len(log, id, &range, end))
                }
                EntryPayload::Normal(range) => {
                    if !follows {
                        state.follow(log)?;
                        follows = true;
                    }
                    state.copy(log, &range, end)?;
                    EntryKind::Range(range.len)
                }
            };
            flush |= !matches!(kind, EntryKind::Range(_));
            let entry = IndexEntry { id, kind, offset: end };
            end = entry.end();
            new.push(entry);
        }
        state.index.append(new).map_err(RaftError::file("append to", &self.shared.dir.join("index")))?;
        Ok(flush.then(|| Unflushed { end, file: state.index.file() }))
    }

    /// Brings the entries that were taken without waiting for the device there.
    pub(crate) fn flush_index(&self) -> Result<(), RaftError> {
        let file = self.shared.state.lock().index.file();
        file.sync_data().map_err(RaftError::file("flush", &self.shared.dir.join("index")))
    }

    pub(crate) fn flush(&self, unflushed: &Unflushed) -> Result<(), RaftError> {
        self.shared.log.flush_to(unflushed.end)?;
        unflushed.file.sync_data().map_err(RaftError::file("flush", &self.shared.dir.join("index")))
    }

    /// Drops the entries from `index` on, and their bytes.
    pub(crate) fn truncate(&self, index: u64) -> Result<(), RaftError> {
        let log = &*self.shared.log;
        let mut state = self.shared.state.lock();
        state.follow(log)?;
        let Some(offset) = state.index.range(index, u64::MAX).next().map(|entry| entry.offset) else {
            return Ok(());
        };
        if log.bounds().end > offset {
            log.truncate(offset)?;
        }
        state.index.truncate(index).map_err(RaftError::file("truncate", &self.shared.dir.join("index")))
    }

    /// Forgets the records of the entries up to `id`.
    pub(crate) fn purge(&self, id: LogId) -> Result<(), RaftError> {
        let mut state = self.shared.state.lock();
        let end = state.index.end_of(id).or(state.index.end()).unwrap_or_default();
        let members = state.index.members_at(id.index);
        let base = Base { id, end, members };
        state.index.rebase(base).map_err(RaftError::file("append to", &self.shared.dir.join("index")))
    }

    /// Keeps a vote for good. If it is for somebody else, the broker's appends end first.
    pub(crate) fn save_vote(&self, vote: Vote) -> Result<(), RaftError> {
        let mut state = self.shared.state.lock();
        if state.leading.is_some_and(|leading| leading != vote.leader_id) {
            state.follow(&*self.shared.log)?;
        }
        let value = encode_vote(Some(vote), state.amnesiac);
        state
            .vote_file
            .write(&value, true)
            .map_err(RaftError::file("write", &self.shared.dir.join("vote")))?;
        state.vote = Some(vote);
        Ok(())
    }

    pub(crate) fn save_committed(&self, committed: Option<LogId>) -> Result<(), RaftError> {
        let mut state = self.shared.state.lock();
        state.committed = committed;
        let Some(committed) = committed else { return Ok(()) };
        let value = encode_committed(committed);
        let path = self.shared.dir.join("committed");
        state.committed_file.write(&value, false).map_err(RaftError::file("write", &path))
    }

    /// Lets the broker append, if this node still is the leader that it was when it was asked to. Answers where appends begin. May
    /// take long, since the log waits for its dispatcher.
    pub(crate) fn lead(&self, leader: LeaderId<NodeId>) -> Result<Option<u64>, RaftError> {
        let log = &*self.shared.log;
        let end = {
            let mut state = self.shared.state.lock();
            if state.vote.is_none_or(|vote| vote.leader_id != leader || !vote.committed) {
                return Ok(None);
            }
            state.follow(log)?;
            state.leading = Some(leader);
            state.index.end()
        };
        let led = log.lead();
        let mut state = self.shared.state.lock();
        if state.leading == Some(leader) && led.is_ok() {
            return Ok(end);
        }
        // Somebody else was elected meanwhile.
        log.follow();
        state.follow(log)?;
        led?;
        Ok(None)
    }

    /// Ends the broker's appends and erases what of them was not proposed yet.
    pub(crate) fn follow(&self) -> Result<(), RaftError> {
        self.shared.state.lock().follow(&*self.shared.log)
    }
}

impl State {
    /// How much of a proposed range counts: nothing if leadership has changed since it was proposed.
    fn proposed_len(&self, log: &dyn ReplicaLog, id: LogId, range: &LogRange, end: u64) -> u32 {
        let current = self.leading == Some(LeaderId::new(id.leader_id.term, id.leader_id.node_id));
        if current
            && range.term == id.leader_id.term
            && range.offset == end
            && range.end() <= log.bounds().end
        {
            range.len
        } else {
            0
        }
    }

    /// Appends another leader's range to the log, which must end where it begins.
    fn copy(&mut self, log: &dyn ReplicaLog, range: &LogRange, end: u64) -> Result<(), RaftError> {
        if range.bytes.len() != range.len as usize || range.offset != end {
            return Err(ReplicaError::NotAtEnd { offset: range.offset, end }.into());
        }
        match log.append(range.offset, &range.bytes) {
            // A promotion that was overtaken is still under way, see `lead`.
            Err(ReplicaError::Leading) => {
                log.follow();
                if log.bounds().end > end {
                    log.truncate(end)?;
                }
                Ok(log.append(range.offset, &range.bytes)?)
            }
            appended => Ok(appended?),
        }
    }

    /// After this, the log ends where the last entry ends, and nobody but replication appends.
    fn follow(&mut self, log: &dyn ReplicaLog) -> Result<(), RaftError> {
        if self.leading.take().is_some() {
            log.follow();
        }
        match self.index.end() {
            Some(end) if log.bounds().end > end => Ok(log.truncate(end)?),
            _ => Ok(()),
        }
    }

    fn reconcile(&mut self, log: &dyn ReplicaLog, path: &Path) -> Result<(), RaftError> {
        let Some(end) = self.index.end() else { return Ok(()) };
        let bounds = log.bounds();
        if bounds.end < end {
            let lost =
                self.index.range(0, u64::MAX).find(|entry| entry.end() > bounds.end).map(|entry| entry.id);
            match lost {
                Some(first) if self.index.base().is_none_or(|base| base.end <= bounds.end) => {
                    tracing::warn!(%first, end = bounds.end, "the commit log lacks bytes of the last Raft entries: they are dropped");
                    self.index.truncate(first.index).map_err(RaftError::file("truncate", path))?;
                }
                _ => {
                    return self
                        .forget_all(path, "the commit log is shorter than what its Raft index begins with");
                }
            }
        }
        match self.follow(log) {
            // The power failed, and the index, which is not flushed as often as the log, lacks its last entries. Or the log went on in
            // another mode of replication.
            Err(RaftError::Log(ReplicaError::Confirmed { .. })) => self.forget_all(
                path,
                "the commit log holds confirmed messages that its Raft index knows nothing of",
            ),
            followed => followed,
        }
    }

    /// Keeps the log but none of its entries: it is compared with the leader's, and completed.
    fn forget_all(&mut self, path: &Path, reason: &str) -> Result<(), RaftError> {
        tracing::error!(
            file = %path.display(),
            "{reason}: this node compares its log with the leader's and completes it, and does not vote until then"
        );
        self.index.reset(None).map_err(RaftError::file("write", path))?;
        self.set_amnesiac(true, path.parent().unwrap_or(path))
    }

    fn set_amnesiac(&mut self, amnesiac: bool, dir: &Path) -> Result<(), RaftError> {
        let value = encode_vote(self.vote, amnesiac);
        self.vote_file.write(&value, true).map_err(RaftError::file("write", &dir.join("vote")))?;
        self.amnesiac = amnesiac;
        Ok(())
    }
}

/// Everything from `from` to `to`.
pub(crate) fn read_whole(log: &dyn ReplicaLog, from: u64, to: u64) -> Result<Bytes, ReplicaError> {
    let missing = |at| {
        let bounds = log.bounds();
        ReplicaError::Outside { offset: at, begin: bounds.begin, end: bounds.end }
    };
    let len = (to - from) as usize;
    if len == 0 {
        return Ok(Bytes::new());
    }
    let first = log.read(from, len)?;
    if first.len() == len {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(len);
    whole.extend_from_slice(&first);
    while whole.len() < len {
        let at = from + whole.len() as u64;
        let more = log.read(at, len - whole.len())?;
        if more.is_empty() {
            return Err(missing(at));
        }
        whole.extend_from_slice(&more);
    }
    Ok(whole.freeze())
}

/// Runs what may wait for the disk, without holding up other tasks of a runtime with several threads.
pub(crate) fn blocking<R>(run: impl FnOnce() -> R) -> R {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(run),
        _ => run(),
    }
}

fn encode_vote(vote: Option<Vote>, amnesiac: bool) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    if let Some(vote) = vote {
        value[0] = 1 + u8::from(vote.committed);
        value[8..16].copy_from_slice(&vote.leader_id.term.to_be_bytes());
        value[16..24].copy_from_slice(&vote.leader_id.node_id.to_be_bytes());
    }
    value[1] = amnesiac.into();
    value
}

fn decode_vote(value: &[u8; VALUE_LEN]) -> (Option<Vote>, bool) {
    let (term, node) = (u64_at(value, 8), u64_at(value, 16));
    let vote = match value[0] {
        0 => None,
        1 => Some(Vote::new(term, node)),
        _ => Some(Vote::new_committed(term, node)),
    };
    (vote, value[1] != 0)
}

fn encode_committed(id: LogId) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    value[..8].copy_from_slice(&id.leader_id.term.to_be_bytes());
    value[8..16].copy_from_slice(&id.leader_id.node_id.to_be_bytes());
    value[16..24].copy_from_slice(&id.index.to_be_bytes());
    value
}

fn decode_committed(value: &[u8; VALUE_LEN]) -> LogId {
    log_id(u64_at(value, 0), u64_at(value, 8), u64_at(value, 16))
}

fn u64_at(value: &[u8; VALUE_LEN], at: usize) -> u64 {
    value[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
