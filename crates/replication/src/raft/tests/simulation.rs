//! Nodes are killed, lose power or their disks, and are cut off, while messages are sent.

use std::time::Duration;

use super::simulated_group::Group;
use crate::raft::Durability;

/// Some minutes in which much goes wrong, one thing at a time and several.
fn much_goes_wrong(seed: u64, size: u64, durability: Durability, lose_disks: bool) {
    let mut group = Group::new(seed, size, durability);
    group.run_until("a leader", Duration::from_secs(30), |group| group.leader().is_some());
    for _ in 0..60 {
        let id = group.rng.usize(0..group.size());
        let down = (0..group.size()).filter(|id| !group.is_running(*id)).count();
        match group.rng.u8(0..10) {
            0 | 1 => group.kill(id),
            2 => {
                if let Some(leader) = group.leader() {
                    group.kill(leader);
                }
            }
            3 => group.cut_off(id),
            4 | 5 => group.heal(),
            // Others may have lost unacknowledged entries only, so one disk is not too much.
            6 if lose_disks && down == 0 => {
                group.conclude();
                group.lose_disk(id);
            }
            _ => (0..group.size()).for_each(|id| group.start(id)),
        }
        for _ in 0..group.rng.usize(1..20) {
            group.send();
            let pause = group.rng.u64(2..100);
            group.run_for(Duration::from_millis(pause));
        }
        group.check();
    }
    group.conclude();
    assert!(group.acknowledged.len() > 100, "only {} messages were acknowledged", group.acknowledged.len());
}

#[test]
fn what_was_acknowledged_survives_kills_and_partitions() {
    for seed in seeds(2) {
        much_goes_wrong(seed, 3, Durability::PageCache, false);
    }
}

#[test]
fn what_was_acknowledged_survives_losses_of_power_if_it_was_flushed() {
    for seed in seeds(2) {
        much_goes_wrong(seed, 3, Durability::Device, false);
    }
}

#[test]
fn what_was_acknowledged_survives_the_loss_of_a_disk() {
    for seed in seeds(2) {
        much_goes_wrong(seed, 3, Durability::PageCache, true);
    }
}

#[test]
fn five_nodes_lose_two_at_a_time() {
    for seed in seeds(1) {
        much_goes_wrong(seed, 5, Durability::PageCache, false);
    }
}

/// `RAFT_SEED=n` runs that one only, `RAFT_SEEDS=n` runs so many.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    match number("RAFT_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("RAFT_SEEDS").unwrap_or(count)).collect(),
    }
}
