use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use openraft::testing::{StoreBuilder, Suite};
use openraft::{BasicNode, EntryPayload, LeaderId, StorageError};
use tempfile::TempDir;

use super::memory_log::MemoryLog;
use crate::log::ReplicaLog;
use crate::raft::state_machine::Confirmed;
use crate::raft::storage::{Durability, NodeStore};
use crate::raft::types::*;

struct Builder;

impl StoreBuilder<GroupConfig, NodeStore, Confirmed, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, NodeStore, Confirmed), StorageError<NodeId>> {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), &MemoryLog::new(1 << 20));
        let confirmed = Confirmed::new(store.clone());
        Ok((dir, store, confirmed))
    }
}

#[test]
fn it_is_what_openraft_expects_of_a_storage() {
    Suite::test_all(Builder).unwrap();
}

fn open(dir: &Path, log: &Arc<MemoryLog>) -> NodeStore {
    NodeStore::open(dir, Arc::clone(log) as Arc<dyn ReplicaLog>, 1, Durability::PageCache).unwrap()
}

fn members() -> Members {
    let ids = BTreeSet::from([0, 1, 2]);
    let nodes: BTreeMap<u64, BasicNode> =
        ids.iter().map(|id| (*id, BasicNode::new(id.to_string()))).collect();
    Members::new(None, Membership::new(vec![ids], nodes))
}

/// A log with a group that begins at its end, and its node's files.
fn begin(dir: &Path) -> (Arc<MemoryLog>, NodeStore) {
    let log = MemoryLog::new(1 << 20);
    let store = open(dir, &log);
    store.begin_group(members()).unwrap();
    (log, store)
}

/// What a leader sends for some payloads.
fn range(term: u64, index: u64, offset: u64, payloads: &[&[u8]]) -> Entry {
    let mut bytes = Vec::new();
    for payload in payloads {
        bytes.extend_from_slice(&(4 + payload.len() as u32).to_be_bytes());
        bytes.extend_from_slice(payload);
    }
    let range = LogRange { offset, len: bytes.len() as u32, term: 0, bytes: Bytes::from(bytes) };
    Entry { log_id: log_id(term, 0, index), payload: EntryPayload::Normal(range) }
}

/// What our own proposer proposes.
fn proposal(term: u64, index: u64, offset: u64, end: u64) -> Entry {
    let range = LogRange { offset, len: (end - offset) as u32, term, bytes: Bytes::new() };
    Entry { log_id: log_id(term, 1, index), payload: EntryPayload::Normal(range) }
}

fn elect_me(store: &NodeStore, term: u64) -> u64 {
    store.save_vote(Vote::new_committed(term, 1)).unwrap();
    store.lead(LeaderId::new(term, 1)).unwrap().unwrap()
}

#[test]
fn a_leaders_entries_are_the_bytes_that_its_broker_appended() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    assert_eq!(log.send(b"too early"), None);
    assert_eq!(elect_me(&store, 1), 0);
    let end = log.send(b"one").unwrap();
    store.append([proposal(1, 1, 0, end)]).unwrap();

    let read = store.entries_with_bytes(1, 2, 1000).unwrap();
    assert_eq!(read, [Entry { log_id: log_id(1, 1, 1), ..range(1, 1, 0, &[b"one"]) }]);
}

#[test]
fn bytes_that_were_not_proposed_are_gone_before_a_vote_for_another_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    elect_me(&store, 1);
    let end = log.send(b"proposed").unwrap();
    store.append([proposal(1, 1, 0, end)]).unwrap();
    log.send(b"not proposed").unwrap();
    store.save_vote(Vote::new(2, 0)).unwrap();
    assert_eq!(log.send(b"deposed"), None);
    assert_eq!(log.bounds().end, end);
}

#[test]
fn a_proposal_that_a_change_of_leaders_overtook_stands_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    elect_me(&store, 1);
    let end = log.send(b"one").unwrap();
    store.save_vote(Vote::new(2, 0)).unwrap();
    elect_me(&store, 3);
    log.send(b"another").unwrap();
    // It comes only now, when these offsets are within another record.
    let mut overtaken = proposal(1, 1, 0, end);
    overtaken.log_id = log_id(3, 1, 1);
    store.append([overtaken]).unwrap();
    assert_eq!((store.last_id(), store.end()), (Some(log_id(3, 1, 1)), Some(0)));

    store.save_vote(Vote::new(4, 0)).unwrap();
    store.append([proposal(3, 2, 0, 11)]).unwrap();
    assert_eq!((store.last_id(), store.end()), (Some(log_id(3, 1, 2)), Some(0)));
}

#[test]
fn another_leaders_bytes_replace_those_that_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    elect_me(&store, 1);
    let first = log.send(b"kept").unwrap();
    store.append([proposal(1, 1, 0, first)]).unwrap();
    let second = log.send(b"lost").unwrap();
    store.append([proposal(1, 2, first, second)]).unwrap();

    store.truncate(2).unwrap();
    store.append([range(2, 2, first, &[b"won", b"too"])]).unwrap();
    assert_eq!(log.payloads(u64::MAX), [&b"kept"[..], b"won", b"too"]);
    assert!(!log.is_leading());
}

#[test]
fn after_a_kill_everything_that_was_taken_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    elect_me(&store, 7);
    let end = log.send(b"one").unwrap();
    store.append([proposal(7, 1, 0, end)]).unwrap();
    log.send(b"not proposed").unwrap();
    store.save_committed(Some(log_id(7, 1, 1))).unwrap();

    let log = log.after_kill();
    let store = open(dir.path(), &log);
    assert_eq!(log.payloads(u64::MAX), [b"one"]);
    assert_eq!(store.last_id(), Some(log_id(7, 1, 1)));
    assert_eq!(store.committed(), Some(log_id(7, 1, 1)));
    assert_eq!(
        store.vote(),
        Some(Vote::new(7, 1)),
        "it does not go on as leader of a term whose entries it may lack"
    );
}

#[test]
fn after_a_loss_of_power_entries_without_their_bytes_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    let one = range(1, 1, 0, &[b"one"]);
    let two = range(1, 2, 7, &[b"two"]);
    store.append([one]).unwrap();
    log.flush_to(7).unwrap();
    store.append([two, Entry { log_id: log_id(1, 0, 3), payload: EntryPayload::Blank }]).unwrap();
    store.save_committed(Some(log_id(1, 0, 3))).unwrap();

    let log = log.after_power_loss();
    let store = open(dir.path(), &log);
    assert_eq!(store.last_id(), Some(log_id(1, 0, 1)));
    assert_eq!(store.committed(), Some(log_id(1, 0, 1)));
    assert!(!store.is_amnesiac());
}

#[test]
fn a_log_that_is_shorter_than_the_base_makes_the_node_amnesiac() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    store.append([range(1, 1, 0, &[b"one"]), range(1, 2, 7, &[b"two"])]).unwrap();
    store.purge(log_id(1, 0, 2)).unwrap();
    let log = log.after_power_loss();
    let store = open(dir.path(), &log);
    assert!(store.is_amnesiac() && store.knows_nothing());
    assert_eq!(store.last_id(), None);
}

#[test]
fn confirmed_messages_that_the_index_lost_are_kept_and_the_node_is_amnesiac() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    store.append([range(1, 1, 0, &[b"one"])]).unwrap();
    let log = log.after_kill();
    log.append(7, b"\0\0\0\x07two").unwrap();
    log.confirm(14);
    let store = open(dir.path(), &log);
    assert!(store.is_amnesiac());
    assert_eq!(log.payloads(u64::MAX), [b"one", b"two"]);
}

#[test]
fn a_range_that_does_not_continue_the_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = begin(dir.path());
    store.append([range(1, 1, 0, &[b"one"])]).unwrap();
    for offset in [0, 6, 8, 1 << 40] {
        assert!(store.append([range(1, 2, offset, &[b"two"])]).is_err());
    }
    assert_eq!(log.payloads(u64::MAX), [b"one"]);
    assert_eq!(store.last_id(), Some(log_id(1, 0, 1)));
}

#[test]
fn with_synchronous_flushing_what_was_taken_survives_a_loss_of_power() {
    let dir = tempfile::tempdir().unwrap();
    let log = MemoryLog::new(1 << 20);
    let store = NodeStore::open(dir.path(), log.clone(), 1, Durability::Device).unwrap();
    store.begin_group(members()).unwrap();
    let unflushed = store.append([range(1, 1, 0, &[b"one"])]).unwrap().unwrap();
    store.flush(&unflushed).unwrap();
    store.append([range(1, 2, 7, &[b"two"])]).unwrap().unwrap();
    let log = log.after_power_loss();
    assert_eq!(open(dir.path(), &log).last_id(), Some(log_id(1, 0, 1)));
}
