//! What a group does when nothing is wrong, or one thing.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::memory_log::MemoryLog;
use super::simulated_group::{FILE_SIZE, Group, address};
use crate::log::ReplicaLog;
use crate::raft::Durability::PageCache;
use crate::raft::RaftError;
use crate::raft::types::Vote;
use crate::raft::wire::{self, Message};

const SOON: Duration = Duration::from_secs(5);
const LATER: Duration = Duration::from_secs(60);

/// A group that has a leader and some messages.
fn group(size: u64) -> Group {
    let mut group = Group::new(7, size, PageCache);
    group.run_until("a leader", SOON, |group| group.leader().is_some());
    send(&mut group, 10);
    group
}

fn send(group: &mut Group, count: usize) {
    let before = group.acknowledged.len();
    for _ in 0..count {
        group.send();
        group.run_for(Duration::from_millis(2));
    }
    group
        .run_until("all messages are acknowledged", SOON, |group| group.acknowledged.len() >= before + count);
}

#[test]
fn messages_are_confirmed_on_all_nodes() {
    for size in [1, 3, 5] {
        let mut group = group(size);
        let leader = group.leader().unwrap();
        let end = group.log(leader).bounds().end;
        group.run_until("all nodes have everything", SOON, |group| {
            (0..group.size()).all(|id| group.log(id).bounds().confirmed == end)
        });
        let payloads = group.log(0).confirmed_payloads();
        let expected: Vec<_> = group.acknowledged.iter().map(|(_, payload)| payload.clone()).collect();
        assert_eq!(payloads, expected);
        group.check();
    }
}

#[test]
fn another_node_leads_soon_after_the_leaders_death_and_the_old_one_follows_when_it_is_back() {
    let mut group = group(3);
    let old = group.leader().unwrap();
    group.send();
    group.kill(old);
    group.run_until("a new leader", Duration::from_secs(3), |group| group.leader().is_some());
    send(&mut group, 10);
    group.start(old);
    let leader = group.leader().unwrap() as u64;
    group.run_until("the old leader follows", SOON, |group| group.role(old).leader == Some(leader));
    group.conclude();
}

#[test]
fn a_leader_without_a_majority_takes_no_messages_and_goes_on_when_it_has_one_again() {
    let mut group = group(3);
    let leader = group.leader().unwrap();
    let others: Vec<usize> = (0..3).filter(|id| *id != leader).collect();
    others.iter().for_each(|id| group.kill(*id));
    group.run_until("it takes nothing", SOON, |group| group.leader().is_none());
    others.iter().for_each(|id| group.start(*id));
    group.conclude();
}

#[test]
fn a_stopped_node_takes_no_messages_and_its_group_goes_on() {
    let mut group = group(3);
    let leader = group.leader().unwrap();
    group.stop(leader);
    assert!(!group.log(leader).is_leading());
    group.run_until("a new leader", SOON, |group| group.leader().is_some());
    send(&mut group, 3);
}

#[test]
fn leadership_is_handed_over_on_demand() {
    for size in [3, 5] {
        let mut group = group(size);
        let old = group.leader().unwrap();
        let next = (old + 1) % group.size();
        let handed = group.ask(old, async move |node| node.transfer_leadership(next as u64).await);
        handed.unwrap();
        group.run_until("it leads", SOON, |group| group.leader() == Some(next));
        send(&mut group, 5);
        let refused = group.ask(old, async move |node| node.transfer_leadership(next as u64).await);
        assert!(
            matches!(refused, Err(RaftError::NotLeader { leader: Some(leader), .. }) if leader == next as u64)
        );
        group.conclude();
    }
}

#[test]
fn a_node_that_does_not_take_over_leaves_the_leader_in_place() {
    let mut group = group(3);
    let leader = group.leader().unwrap();
    let dead = (leader + 1) % 3;
    group.kill(dead);
    let refused = group.ask(leader, async move |node| node.transfer_leadership(dead as u64).await);
    assert!(matches!(refused, Err(RaftError::Refused { .. })), "{refused:?}");
    group.run_until("the leader goes on", SOON, |group| group.leader() == Some(leader));
    send(&mut group, 5);
}

#[test]
fn the_preferred_node_leads_whenever_it_can() {
    let logs = (0..3).map(|_| MemoryLog::new(FILE_SIZE)).collect();
    let mut group = Group::over(7, logs, 3, vec![2], PageCache);
    group.run_until("n2 leads", LATER, |group| group.leader() == Some(2));
    group.kill(2);
    group.run_until("another one leads", SOON, |group| group.leader().is_some());
    send(&mut group, 20);
    group.start(2);
    group.run_until("n2 leads again", LATER, |group| group.leader() == Some(2));
    group.conclude();
}

#[test]
fn nodes_are_added_and_removed() {
    let logs = (0..4).map(|_| MemoryLog::new(FILE_SIZE)).collect();
    let mut group = Group::over(7, logs, 3, Vec::new(), PageCache);
    group.run_until("a leader", LATER, |group| group.leader().is_some());
    send(&mut group, 100);
    let leader = group.leader().unwrap();
    let removed = (leader + 1) % 3;
    let members: std::collections::BTreeMap<_, _> =
        (0..4).filter(|id| *id != removed as u64).map(|id| (id, address(id))).collect();
    let changed = members.clone();
    group.ask(leader, async move |node| node.change_members(changed).await).unwrap();
    group.run_until("the new node knows", SOON, |group| group.members_known_to(3) == members);

    // The group works without the removed node, and with the new one in place of another.
    group.kill(removed);
    let end = group.acknowledged.last().unwrap().0;
    group.run_until("the new node has everything", SOON, |group| group.log(3).bounds().confirmed >= end);
    group.kill(leader);
    group.run_until("a new leader", SOON, |group| group.leader().is_some());
    send(&mut group, 10);
    group.check();
}

#[test]
fn a_node_that_was_down_for_long_copies_the_log() {
    let mut group = group(3);
    let down = (group.leader().unwrap() + 1) % 3;
    group.kill(down);
    let confirmed = group.log(down).bounds().end;
    // More entries than are kept.
    send(&mut group, 300);
    group.start(down);
    let end = group.acknowledged.last().unwrap().0;
    group.run_until("it has everything", LATER, |group| group.log(down).bounds().confirmed >= end);
    assert!(confirmed > 0 && confirmed < end);
    // It counts again: with it, and without another one, the group goes on.
    let leader = group.leader().unwrap();
    group.kill((0..3).find(|id| *id != leader && *id != down).unwrap());
    send(&mut group, 10);
    group.conclude();
}

#[test]
fn a_node_that_lost_its_disk_copies_what_the_others_still_have() {
    let mut group = group(3);
    send(&mut group, 300);
    let lost = (group.leader().unwrap() + 1) % 3;
    group.lose_disk(lost);
    // Retention has deleted the oldest files meanwhile.
    let begin = 3 * FILE_SIZE;
    (0..3).filter(|id| *id != lost).for_each(|id| group.log(id).delete_below(begin));
    send(&mut group, 10);
    group.start(lost);
    let end = group.acknowledged.last().unwrap().0;
    group.run_until("it has everything", LATER, |group| group.log(lost).bounds().confirmed >= end);
    assert_eq!(group.log(lost).bounds().begin, begin);
    group.conclude();
}

#[test]
fn a_node_that_lost_its_disk_does_not_help_to_elect_who_lacks_the_same() {
    let mut group = group(3);
    let leader = group.leader().unwrap();
    let (behind, lost) = ((leader + 1) % 3, (leader + 2) % 3);
    group.kill(behind);
    send(&mut group, 10);
    // What was acknowledged is on the leader and one more node. The leader dies, the other one loses its disk.
    group.kill(leader);
    group.lose_disk(lost);
    group.start(behind);
    group.start(lost);
    group.run_for(Duration::from_secs(20));
    assert_eq!(group.leader(), None);
    group.start(leader);
    group.conclude();
}

#[test]
fn entries_whose_bytes_were_deleted_are_not_waited_for() {
    let mut group = group(3);
    let down = (group.leader().unwrap() + 1) % 3;
    send(&mut group, 20);
    group.kill(down);
    // All entries that it lacks are still remembered, but not all bytes.
    while group.acknowledged.last().unwrap().0 < 3 * FILE_SIZE {
        send(&mut group, 1);
    }
    let begin = group.log(down).bounds().end / FILE_SIZE * FILE_SIZE;
    (0..3).filter(|id| *id != down).for_each(|id| group.log(id).delete_below(begin));
    group.run_for(LATER);
    group.start(down);
    group.conclude();
}

#[test]
fn a_group_whose_nodes_have_all_forgotten_something_goes_on_with_the_longest_log() {
    let mut group = group(3);
    send(&mut group, 100);
    (0..3).for_each(|id| group.kill(id));
    (0..3).for_each(|id| group.damage_index(id));
    (0..3).for_each(|id| group.start(id));
    group.conclude();
}

#[test]
fn a_log_that_there_was_before_becomes_the_groups_beginning() {
    // A master, a slave that had everything, one that lagged, and an empty one.
    let master = MemoryLog::new(FILE_SIZE);
    master.lead().unwrap();
    let mut ends = Vec::new();
    for count in 0..60 {
        ends.push(master.send(format!("of the master {count}").as_bytes()).unwrap());
    }
    let whole = master.after_kill();
    let part = master.after_kill();
    part.truncate(ends[40]).unwrap();
    let logs = vec![part, whole, master.after_kill(), MemoryLog::new(FILE_SIZE), MemoryLog::new(FILE_SIZE)];
    let mut group = Group::over(7, logs, 5, Vec::new(), PageCache);
    group.run_until("a leader", LATER, |group| group.leader().is_some());
    send(&mut group, 10);
    group.conclude();
    for id in 0..5 {
        assert_eq!(group.log(id).confirmed_payloads()[..60], master.payloads(u64::MAX));
    }
}

#[test]
fn a_log_of_another_history_is_not_joined_and_not_touched() {
    let mut group = group(3);
    send(&mut group, 50);
    let lost = (group.leader().unwrap() + 1) % 3;
    group.lose_disk(lost);
    let log = group.log(lost);
    log.lead().unwrap();
    for count in 0..20 {
        log.send(format!("of another group {count}").as_bytes()).unwrap();
    }
    let before = log.payloads(u64::MAX);
    group.start(lost);
    group.run_for(Duration::from_secs(20));
    assert_eq!(log.payloads(u64::MAX), before);
    assert_eq!(log.bounds().confirmed, 0);
    send(&mut group, 5);
}

/// Peers that have no business here, or don't keep to the protocol, change nothing and disturb nobody.
#[test]
fn hostile_peers_are_refused() {
    let mut group = group(3);
    let leader = group.leader().unwrap();
    let before = group.role(leader);
    let hello = |group: &str, from, to| Message::Hello { group: group.into(), from, to };
    let target = address(leader as u64);
    let me = leader as u64;
    let messages: Vec<Vec<Message>> = vec![
        vec![hello("other", (me + 1) % 3, me)],
        vec![hello("g", 77, me)],
        vec![hello("g", me, me)],
        vec![hello("g", (me + 1) % 3, (me + 2) % 3)],
        vec![Message::Agreed],
        // In the name of somebody else, and of nobody who leads.
        vec![hello("g", (me + 1) % 3, me), Message::Stand(Vote::new_committed(99, (me + 2) % 3))],
        vec![hello("g", (me + 1) % 3, me), Message::Stand(Vote::new_committed(99, (me + 1) % 3))],
    ];
    let garbage: Vec<Vec<u8>> =
        vec![vec![0xff; 64], b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0, 0, 0, 200, 1, 7]];
    group.ask(leader, async move |_| {
        for conversation in messages {
            let mut stream = turmoil::net::TcpStream::connect(target.as_str()).await.unwrap();
            let mut last = None;
            for message in conversation {
                wire::write(&mut stream, &message).await.unwrap();
                last = wire::read(&mut stream).await.unwrap();
            }
            assert!(matches!(last, Some(Message::Refused(_))), "{last:?}");
        }
        for bytes in garbage {
            let mut stream = turmoil::net::TcpStream::connect(target.as_str()).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            let ended = stream.read(&mut [0; 16]).await;
            assert!(
                ended.as_ref().is_ok_and(|len| *len == 0)
                    || ended.is_err_and(|e| e.kind() != ErrorKind::TimedOut)
            );
        }
    });
    send(&mut group, 10);
    assert_eq!(group.role(leader), before);
    group.check();
}
