use super::*;

const SET: &str = "broker-a";

fn check_code(id: i64) -> String {
    format!("10.0.0.{id}:10911;1700000000000")
}

fn apply_id(sets: &mut BrokerSets, broker_id: i64, check_code: String) -> Result<Applied, Refused> {
    sets.apply(&Command::ApplyBrokerId {
        cluster_name: "DefaultCluster".to_owned(),
        broker_name: SET.to_owned(),
        broker_id,
        check_code,
    })
}

/// Three replicas, none of them master yet.
fn three_replicas() -> BrokerSets {
    let mut sets = BrokerSets::default();
    for id in 1..=3 {
        assert_eq!(sets.next_broker_id(SET), id);
        assert_eq!(apply_id(&mut sets, id, check_code(id)), Ok(Applied::Done));
    }
    sets
}

fn live(ids: &[i64]) -> LiveReplicas {
    let replica = |id: &i64| (*id, LiveReplica { epoch: 1, max_offset: 100, priority: 0 });
    ids.iter().map(replica).collect()
}

fn elect(
    sets: &mut BrokerSets,
    asking: Asking,
    alive: &[i64],
    allow_unclean: bool,
) -> Result<Applied, Refused> {
    let live = live(alive);
    sets.apply(&Command::ElectMaster { broker_name: SET.to_owned(), asking, live, allow_unclean })
}

fn alter(sets: &mut BrokerSets, master: i64, ids: &[i64]) -> Result<Applied, Refused> {
    let set = sets.get(SET).unwrap();
    let proposed = SyncStateSet {
        sync_state_set: ids.iter().copied().collect(),
        sync_state_set_epoch: set.sync_state_set_epoch,
    };
    let master_epoch = set.master_epoch;
    let alive = BTreeSet::from([1, 2, 3]);
    sets.apply(&Command::AlterSyncStateSet {
        broker_name: SET.to_owned(),
        master,
        master_epoch,
        proposed,
        alive,
    })
}

fn clean(sets: &mut BrokerSets, ids: Option<&[i64]>, also_alive: bool) -> Result<Applied, Refused> {
    let cleaning = Cleaning { ids: ids.map(|ids| ids.iter().copied().collect()), also_alive };
    let alive = BTreeSet::from([1]);
    sets.apply(&Command::CleanBrokerData { broker_name: SET.to_owned(), cleaning, alive })
}

/// Master, its epoch, SyncStateSet, its epoch.
fn state(sets: &BrokerSets) -> (Option<i64>, i32, Vec<i64>, i32) {
    let set = sets.get(SET).unwrap();
    let ids = set.sync_state_set.iter().copied().collect();
    (set.master, set.master_epoch, ids, set.sync_state_set_epoch)
}

#[test]
fn an_id_is_given_again_only_to_the_same_check_code() {
    let mut sets = three_replicas();
    let before = sets.clone();
    assert_eq!(apply_id(&mut sets, 2, check_code(2)), Ok(Applied::Done));
    let refused = apply_id(&mut sets, 2, check_code(9)).unwrap_err().to_string();
    assert_eq!(refused, "Fail to apply brokerId: 2 in broker-set: broker-a");
    assert_eq!(sets, before);
    assert_eq!(sets.get(SET).unwrap().replicas[&2].address, "10.0.0.2:10911");
}

#[test]
fn a_name_belongs_to_the_cluster_that_took_it_first() {
    let mut sets = three_replicas();
    let other = Command::ApplyBrokerId {
        cluster_name: "OtherCluster".to_owned(),
        broker_name: SET.to_owned(),
        broker_id: 4,
        check_code: check_code(4),
    };
    assert!(matches!(sets.apply(&other), Err(Refused::OtherCluster { .. })));
}

#[test]
fn the_first_replica_that_asks_is_the_first_master_but_no_stranger() {
    let mut sets = three_replicas();
    assert_eq!(elect(&mut sets, Asking::Replica(9), &[], false), Err(Refused::NobodyElected));
    assert!(matches!(elect(&mut sets, Asking::Replica(2), &[], false), Ok(Applied::Elected(_))));
    assert_eq!(state(&sets), (Some(2), 1, vec![2], 1));
}

#[test]
fn a_living_master_stays() {
    let mut sets = three_replicas();
    elect(&mut sets, Asking::Replica(1), &[1], false).unwrap();
    alter(&mut sets, 1, &[1, 2]).unwrap();
    let before = sets.clone();
    for asking in [Asking::Replica(2), Asking::Controller, Asking::Operator(1)] {
        assert!(
            matches!(elect(&mut sets, asking, &[1, 2], false), Ok(Applied::MasterStays(_))),
            "{asking:?}"
        );
    }
    assert_eq!(sets, before);
}

#[test]
fn only_replicas_with_all_messages_follow_unless_that_is_allowed() {
    let mut sets = three_replicas();
    elect(&mut sets, Asking::Replica(1), &[1], false).unwrap();
    alter(&mut sets, 1, &[1, 2]).unwrap();
    let mut unclean = sets.clone();
    assert!(matches!(elect(&mut sets, Asking::Controller, &[3], false), Err(Refused::NobodyLeft { .. })));
    // Brokers see a newer epoch without master, and ask for an election as soon as they can.
    assert_eq!(state(&sets), (None, 2, vec![1, 2], 2));
    assert!(matches!(elect(&mut sets, Asking::Controller, &[3], false), Err(Refused::NobodyLeft { .. })));
    assert_eq!(state(&sets), (None, 2, vec![1, 2], 2));
    assert!(matches!(elect(&mut sets, Asking::Replica(2), &[2, 3], false), Ok(Applied::Elected(_))));
    assert_eq!(state(&sets), (Some(2), 3, vec![2], 3));

    assert!(matches!(elect(&mut unclean, Asking::Controller, &[3], true), Ok(Applied::Elected(_))));
    assert_eq!(state(&unclean), (Some(3), 2, vec![3], 3));
}

#[test]
fn an_operator_gets_the_replica_that_he_names_or_none() {
    let mut sets = three_replicas();
    elect(&mut sets, Asking::Replica(1), &[1], false).unwrap();
    alter(&mut sets, 1, &[1, 2]).unwrap();
    assert_eq!(elect(&mut sets, Asking::Operator(3), &[1, 2, 3], false), Err(Refused::NobodyElected));
    assert!(matches!(elect(&mut sets, Asking::Operator(2), &[1, 2, 3], false), Ok(Applied::Elected(_))));
    assert_eq!(state(&sets), (Some(2), 2, vec![2], 3));
}

#[test]
fn cleaning_spares_living_replicas_unless_told_otherwise() {
    let mut sets = three_replicas();
    elect(&mut sets, Asking::Replica(1), &[1], false).unwrap();
    alter(&mut sets, 1, &[1, 2]).unwrap();
    assert!(matches!(clean(&mut sets, None, false), Err(Refused::CleanMaster { .. })));
    assert!(matches!(clean(&mut sets, Some(&[1, 2]), false), Err(Refused::CleanAlive { broker_id: 1, .. })));
    assert_eq!(clean(&mut sets, Some(&[2]), false), Ok(Applied::Done));
    assert_eq!(state(&sets), (Some(1), 1, vec![1], 3));
    // Ids are respected also when replicas may be alive.
    assert_eq!(clean(&mut sets, Some(&[1]), true), Ok(Applied::Done));
    assert_eq!(state(&sets), (None, 2, vec![], 4));
    // Nobody is left who has all messages; an operator may name one who has some.
    assert_eq!(elect(&mut sets, Asking::Replica(3), &[3], false), Err(Refused::NobodyElected));
    assert!(matches!(elect(&mut sets, Asking::Operator(3), &[3], false), Ok(Applied::Elected(_))));
    assert_eq!(clean(&mut sets, None, true), Ok(Applied::Done));
    assert!(sets.get(SET).is_none());
}

#[test]
fn ids_are_never_given_twice() {
    let mut sets = three_replicas();
    clean(&mut sets, Some(&[3]), false).unwrap();
    assert_eq!(sets.next_broker_id(SET), 4);
}

#[test]
fn the_number_of_replicas_is_bounded() {
    let mut sets = three_replicas();
    for id in 4..=REPLICAS_MAX as i64 {
        apply_id(&mut sets, id, check_code(id)).unwrap();
    }
    assert_eq!(apply_id(&mut sets, 1_000_000, check_code(1)), Err(Refused::TooManyReplicas));
}

#[test]
fn what_changes_nothing_is_known_before() {
    let mut sets = three_replicas();
    let first = Command::ElectMaster {
        broker_name: SET.to_owned(),
        asking: Asking::Replica(1),
        live: live(&[1]),
        allow_unclean: false,
    };
    assert_eq!(sets.unchanged_by(&first), None);
    sets.apply(&first).unwrap();
    assert!(matches!(sets.unchanged_by(&first), Some(Ok(Applied::MasterStays(_)))));
}

/// It was gone too briefly to be missed, and may have lost what others still have.
#[test]
fn a_master_that_started_anew_makes_room_for_one_of_the_set_or_begins_a_new_epoch() {
    let mut sets = three_replicas();
    elect(&mut sets, Asking::Replica(1), &[1], false).unwrap();
    alter(&mut sets, 1, &[1, 2]).unwrap();
    let restarted = |epoch| Asking::Restarted { id: 1, epoch };
    let mut alone = sets.clone();
    // 3 is alive, but not in the set.
    assert!(matches!(elect(&mut alone, restarted(1), &[1, 3], false), Ok(Applied::Elected(_))));
    assert_eq!(state(&alone), (Some(1), 2, vec![1], 3));
    // Said twice, it changes nothing.
    assert!(matches!(elect(&mut alone, restarted(1), &[1, 3], false), Ok(Applied::MasterStays(_))));

    assert!(matches!(elect(&mut sets, restarted(1), &[1, 2, 3], false), Ok(Applied::Elected(_))));
    assert_eq!(state(&sets), (Some(2), 2, vec![2], 3));
    assert!(matches!(elect(&mut sets, restarted(1), &[1, 2, 3], false), Ok(Applied::MasterStays(_))));
}
