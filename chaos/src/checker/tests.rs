//! For each promise a history that keeps it, and one that breaks it.

use super::*;
use crate::history::{Delivery, Outcome, Receipt};
use crate::log::Record;

const PROMISE: Promise = Promise { copies: 2, is_elected: true, progress_lost_max: Duration::from_secs(5) };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn host(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node], 10_911))
}

fn id(number: u64) -> MessageId {
    MessageId { producer: 0, number }
}

fn position(offset: i64) -> Position {
    Position { queue: 0, offset }
}

/// Messages 0, 1, 2, acknowledged at offsets 0, 1, 2, delivered, and in the logs of all three nodes.
struct Story {
    seen: Seen,
    logs: Vec<Log>,
    wreck: Option<Wreck>,
    differences: Vec<Difference>,
    masters: Vec<Mastership>,
    promise: Promise,
}

impl Default for Story {
    fn default() -> Self {
        let receipt =
            |number| Receipt { position: position(number), host: host(1), physical: 100 * number as u64 };
        let mut seen = Seen::default();
        let mut log = Log { end: 300, ..Log::default() };
        for number in 0..3 {
            let message = id(number as u64);
            let at = seconds(number as u64);
            seen.sends.push(Send {
                message,
                attempts_max: 1,
                called: at,
                returned: at,
                outcome: Outcome::Acknowledged(receipt(number)),
            });
            let position = position(number);
            seen.deliveries.push(Delivery { at, consumer: 0, position, message: Some(message) });
            log.records.push(Record { position, physical: 100 * number as u64, host: host(1), message });
        }
        let logs = vec![log; 3];
        let wreck = Some(Wreck { at: seconds(9), logs: logs.clone() });
        Self { seen, logs, wreck, differences: Vec::new(), masters: Vec::new(), promise: PROMISE }
    }
}

impl Story {
    fn broken(&self) -> Vec<Broken> {
        let evidence = Evidence {
            promise: self.promise,
            seen: &self.seen,
            wreck: self.wreck.as_ref(),
            logs: &self.logs,
            differences: &self.differences,
            masters: &self.masters,
        };
        check(&evidence).into_iter().map(|violation| violation.broken).collect()
    }

    fn change_logs(&mut self, change: impl Fn(&mut Log)) {
        self.logs.iter_mut().for_each(change);
    }

    fn progress(&mut self, at: u64, offset: i64) {
        let position = position(offset);
        self.seen.progress.push(Progress { asked: seconds(at), answered: seconds(at), position });
    }
}

#[test]
fn kept_promises_are_not_blamed() {
    assert_eq!(Story::default().broken(), []);
}

#[test]
fn an_acknowledged_message_that_is_gone_is_lost() {
    let mut story = Story::default();
    story.change_logs(|log| log.records.retain(|record| record.message != id(1)));
    assert_eq!(story.broken(), [Broken::Lost, Broken::ReadAndGone]);
}

#[test]
fn so_is_one_in_whose_place_another_is() {
    let mut story = Story::default();
    story.change_logs(|log| log.records[1].message = id(77));
    assert_eq!(story.broken(), [Broken::Lost, Broken::ReadAndGone]);
}

#[test]
fn what_was_not_acknowledged_may_be_gone_or_there() {
    for outcome in [Outcome::Refused("no".into()), Outcome::Unknown("?".into())] {
        let mut story = Story::default();
        story.seen.sends[2].outcome = outcome;
        assert_eq!(story.broken(), [], "there");
        story.change_logs(|log| log.records.truncate(2));
        story.seen.deliveries.truncate(2);
        assert_eq!(story.broken(), [], "gone");
    }
}

#[test]
fn one_store_of_three_may_lack_a_message_when_all_are_killed() {
    let mut story = Story::default();
    let wreck = story.wreck.as_mut().unwrap();
    wreck.logs[2].records.truncate(2);
    assert_eq!(story.broken(), []);
    story.wreck.as_mut().unwrap().logs[1].records.truncate(2);
    assert_eq!(story.broken(), [Broken::CopiesMissing]);
    story.wreck.as_mut().unwrap().at = seconds(1);
    assert_eq!(story.broken(), [], "it was acknowledged later");
}

#[test]
fn a_second_copy_needs_a_second_attempt() {
    let mut story = Story::default();
    story.change_logs(|log| {
        let again = Record { position: position(3), physical: 300, ..log.records[2] };
        log.records.push(again);
        log.end = 400;
    });
    assert_eq!(story.broken(), [Broken::Duplicated]);
    story.seen.sends[2].attempts_max = 3;
    assert_eq!(story.broken(), []);
}

#[test]
fn a_later_message_has_a_higher_offset() {
    let mut story = Story::default();
    story.change_logs(|log| {
        let (one, other) = (log.records[1].message, log.records[2].message);
        (log.records[1].message, log.records[2].message) = (other, one);
    });
    let sends = &mut story.seen.sends;
    let (one, other) = (sends[1].outcome.clone(), sends[2].outcome.clone());
    (sends[1].outcome, sends[2].outcome) = (other, one);
    story.seen.deliveries[1].message = Some(id(2));
    story.seen.deliveries[2].message = Some(id(1));
    assert_eq!(story.broken(), [Broken::Reordered]);
}

#[test]
fn everything_acknowledged_is_delivered_some_time() {
    let mut story = Story::default();
    story.seen.deliveries.pop();
    assert_eq!(story.broken(), [Broken::NotDelivered]);
}

#[test]
fn replicas_are_the_same() {
    let mut story = Story::default();
    story.logs[2].end = 200;
    assert_eq!(story.broken(), [Broken::ReplicasDiffer], "shorter");
    let mut story = Story::default();
    story.differences.push(Difference { nodes: (0, 2), at: 17 });
    assert_eq!(story.broken(), [Broken::ReplicasDiffer], "different");
    let mut story = Story::default();
    story.logs[1].damages.push("at 12: torn".into());
    assert_eq!(story.broken(), [Broken::ReplicasDiffer], "damaged");
}

#[test]
fn a_term_has_one_master() {
    let masters = vec![Mastership { term: 1, node: 0 }, Mastership { term: 2, node: 1 }];
    let mut story = Story { masters, ..Story::default() };
    assert_eq!(story.broken(), []);
    story.masters.push(Mastership { term: 2, node: 2 });
    assert_eq!(story.broken(), [Broken::TwoMasters]);
}

#[test]
fn who_acknowledges_has_stored() {
    let mut story = Story::default();
    story.change_logs(|log| log.records[0].host = host(2));
    assert_eq!(story.broken(), [Broken::TwoMasters]);
}

#[test]
fn a_master_that_is_not_elected_stays() {
    let mut story = Story::default();
    story.promise.is_elected = false;
    assert_eq!(story.broken(), []);
    story.change_logs(|log| log.records[2].host = host(2));
    let Outcome::Acknowledged(receipt) = &mut story.seen.sends[2].outcome else { panic!("acknowledged") };
    receipt.host = host(2);
    assert_eq!(story.broken(), [Broken::TwoMasters]);
}

#[test]
fn progress_goes_back_by_what_may_be_lost_only() {
    let mut story = Story::default();
    for (at, offset) in [(0, 10), (2, 20), (4, 30), (6, 20), (7, 40), (8, 29)] {
        story.progress(at, offset);
    }
    assert_eq!(story.broken(), [], "30 was seen 4 s before");
    story.progress(9, 29);
    assert_eq!(story.broken(), [Broken::ProgressLost], "30 was seen 5 s before");
}

#[test]
fn time_in_which_nobody_answers_does_not_count() {
    let mut story = Story::default();
    for (at, offset) in [(0, 10), (100, 9), (200, 9)] {
        story.progress(at, offset);
    }
    assert_eq!(story.broken(), []);
}
