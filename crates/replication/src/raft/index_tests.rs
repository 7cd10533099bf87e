use std::collections::{BTreeMap, BTreeSet};

use openraft::BasicNode;
use proptest::prelude::*;

use super::super::types::{Membership, log_id};
use super::*;

fn membership(count: u64) -> Membership {
    let ids: BTreeSet<u64> = (0..count).collect();
    let nodes: BTreeMap<u64, BasicNode> =
        ids.iter().map(|id| (*id, BasicNode::new(format!("10.0.0.{id}:40911")))).collect();
    Membership::new(vec![ids], nodes)
}

/// A change of the index. Entries get the next index and offset.
#[derive(Debug, Clone)]
enum Change {
    Append(Vec<Kind>),
    NextTerm,
    /// Of the entries that there are, so many permille stay.
    Truncate(u64),
    /// Of the entries that there are, so many permille are forgotten.
    Rebase(u64),
    Reopen,
}

#[derive(Debug, Clone)]
enum Kind {
    Blank,
    Range(u32),
    Members(u64),
}

fn change() -> impl Strategy<Value = Change> {
    let kind = prop_oneof![
        1 => Just(Kind::Blank),
        6 => (0..5_000u32).prop_map(Kind::Range),
        1 => (1..6u64).prop_map(Kind::Members),
    ];
    prop_oneof![
        6 => proptest::collection::vec(kind, 1..5).prop_map(Change::Append),
        1 => Just(Change::NextTerm),
        2 => (0..1000u64).prop_map(Change::Truncate),
        2 => (0..1000u64).prop_map(Change::Rebase),
        2 => Just(Change::Reopen),
    ]
}

/// What the index must hold.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    base: Option<Base>,
    entries: Vec<IndexEntry>,
    term: u64,
}

impl Model {
    fn of(index: &SideIndex, term: u64) -> Model {
        let entries = index.range(0, u64::MAX).cloned().collect();
        Model { base: index.base.clone(), entries, term }
    }

    fn next(&self) -> (u64, u64) {
        let last = self.entries.last().map(|last| (last.id.index + 1, last.end()));
        last.or(self.base.as_ref().map(|base| (base.id.index + 1, base.end))).unwrap_or_default()
    }

    fn apply(&mut self, change: &Change, index: &mut SideIndex) {
        match change {
            Change::Append(kinds) => {
                let mut new = Vec::new();
                for kind in kinds {
                    let (at, offset) = self.next();
                    let kind = match kind {
                        Kind::Blank => EntryKind::Blank,
                        Kind::Range(len) => EntryKind::Range(*len),
                        Kind::Members(count) => EntryKind::Members(Arc::new(membership(*count))),
                    };
                    let entry = IndexEntry { id: log_id(self.term, 1, at), kind, offset };
                    self.entries.push(entry.clone());
                    new.push(entry);
                }
                index.append(new).unwrap();
            }
            Change::NextTerm => self.term += 1,
            Change::Truncate(permille) => {
                let keep = self.entries.len() as u64 * permille / 1000;
                if let Some(first) = self.entries.get(keep as usize) {
                    index.truncate(first.id.index).unwrap();
                    self.entries.truncate(keep as usize);
                }
            }
            Change::Rebase(permille) => {
                let count = (self.entries.len() as u64 * permille / 1000) as usize;
                if let Some(last) = self.entries.get(count) {
                    let members = index.members_at(last.id.index);
                    let base = Base { id: last.id, end: last.end(), members };
                    index.rebase(base.clone()).unwrap();
                    self.base = Some(base);
                    self.entries.drain(..=count);
                }
            }
            Change::Reopen => {
                let (again, damage) = SideIndex::open(index.path.parent().unwrap()).unwrap();
                assert_eq!(damage, Damage::None);
                *index = again;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_holds_what_was_written_also_after_it_is_opened_again(changes in proptest::collection::vec(change(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let (mut index, _) = SideIndex::open(dir.path()).unwrap();
        let mut model = Model::default();
        for change in &changes {
            model.apply(change, &mut index);
            prop_assert_eq!(&Model::of(&index, model.term), &model);
        }
        for entry in &model.entries {
            prop_assert_eq!(index.end_of(entry.id), Some(entry.end()));
        }
    }

    /// The process dies or the power fails in the middle of an append: what is left is any beginning of what was written.
    #[test]
    fn a_torn_tail_costs_only_the_records_that_were_torn(
        changes in proptest::collection::vec(change(), 1..20),
        lost_permille in 0..1000u64,
        garbage in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (mut index, _) = SideIndex::open(dir.path()).unwrap();
        let mut model = Model::default();
        for change in &changes {
            model.apply(change, &mut index);
        }
        let before = index.len;
        let kept = model.clone();
        model.apply(&Change::Append(vec![Kind::Range(100), Kind::Blank, Kind::Members(3)]), &mut index);
        let cut = before + (index.len - before) * lost_permille / 1000;
        index.file.set_len(cut).unwrap();
        index.file.write_all_at(&garbage, cut).unwrap();
        drop(index);

        let (mut index, _) = SideIndex::open(dir.path()).unwrap();
        let found = Model::of(&index, model.term);
        prop_assert_eq!(&found.base, &kept.base);
        prop_assert!(found.entries.len() >= kept.entries.len());
        prop_assert_eq!(&found.entries[..], &model.entries[..found.entries.len()]);

        // And it goes on from there.
        let mut model = found;
        model.apply(&Change::Append(vec![Kind::Range(7)]), &mut index);
        model.apply(&Change::Reopen, &mut index);
        prop_assert_eq!(Model::of(&index, model.term), model);
    }

    #[test]
    fn no_file_makes_it_panic(content in proptest::collection::vec(any::<u8>(), 0..300)) {
        let dir = tempfile::tempdir().unwrap();
        let mut file = header().to_vec();
        file.extend_from_slice(&content);
        fs::write(dir.path().join("index"), file).unwrap();
        SideIndex::open(dir.path()).unwrap();
    }
}

#[test]
fn a_damaged_record_with_sound_ones_behind_it_is_told_from_a_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    let (mut index, _) = SideIndex::open(dir.path()).unwrap();
    let mut model = Model::default();
    model.apply(&Change::Append(vec![Kind::Range(10), Kind::Range(20), Kind::Range(30)]), &mut index);
    let second = index.entries[1].at;
    index.file.write_all_at(&[0xee], second + 20).unwrap();
    let (index, damage) = SideIndex::open(dir.path()).unwrap();
    assert_eq!(damage, Damage::Middle);
    assert_eq!(Model::of(&index, 0).entries, model.entries[..1]);
}

#[test]
fn forgotten_entries_give_their_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut index, _) = SideIndex::open(dir.path()).unwrap();
    let mut model = Model::default();
    for _ in 0..1_200 {
        model.apply(&Change::Append(vec![Kind::Range(1); 100]), &mut index);
    }
    let full = index.len;
    assert!(full > COMPACT_LEN_MIN);
    model.apply(&Change::Rebase(900), &mut index);
    assert!(index.len < full / 5, "{} of {full}", index.len);
    assert_eq!(Model::of(&index, 0), model);
    model.apply(&Change::Truncate(500), &mut index);
    model.apply(&Change::Append(vec![Kind::Blank]), &mut index);
    model.apply(&Change::Reopen, &mut index);
    assert_eq!(Model::of(&index, 0), model);
}

#[test]
fn a_file_of_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("index"), [7; 100]).unwrap();
    assert_eq!(SideIndex::open(dir.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
}
