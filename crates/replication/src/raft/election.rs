//! When this node stands for election.
//!
//! openraft has a clock for that too. It can't tell a silent leader from a disk of its own that has kept it from listening, it looks
//! at the time three times a second only, and it draws the patience of a node by chance. So it is switched off, and this one says
//! when to stand. Who is elected is openraft's business alone.

use std::time::Duration;

use tokio::time::Instant;

use super::settings::LEASE;

/// A voter keeps to its leader for [`LEASE`]; who stands earlier is refused.
const MARGIN: Duration = Duration::from_millis(30);
/// Between the times at which two nodes stand: an election takes less.
const STEP: Duration = Duration::from_millis(100);
/// Before a node that was not elected stands again.
const RETRY: Duration = Duration::from_millis(300);
/// The same if another node has newer entries: that one should stand first.
const RETRY_BEHIND: Duration = Duration::from_secs(2);

/// Counts the time in which nothing was heard of a leader.
#[derive(Debug)]
pub(crate) struct ElectionClock {
    /// When this node last heard of a leader, voted for one, or stood itself.
    since: Instant,
    not_before: Instant,
    /// It has stood since it last heard of a leader.
    has_stood: bool,
    /// Another node has newer entries.
    is_behind: bool,
    /// Its place in the order of the group: not two at the same time.
    rank: u32,
}

impl ElectionClock {
    pub(crate) fn new(rank: u32) -> ElectionClock {
        let now = Instant::now();
        ElectionClock { since: now, not_before: now, has_stood: false, is_behind: false, rank }
    }

    /// A leader was heard, or voted for.
    pub(crate) fn heard(&mut self) {
        *self = ElectionClock { not_before: self.not_before, ..ElectionClock::new(self.rank) };
    }

    /// This node is not to stand before `time`, whatever happens.
    pub(crate) fn not_before(&mut self, time: Instant) {
        self.not_before = time;
    }

    /// A voter has newer entries.
    pub(crate) fn behind(&mut self) {
        self.is_behind = true;
    }

    /// Whether to stand now; if so, the clock begins anew.
    pub(crate) fn is_due(&mut self) -> bool {
        let patience = match (self.has_stood, self.is_behind) {
            (false, _) => LEASE + MARGIN,
            (true, false) => RETRY,
            (true, true) => RETRY_BEHIND,
        };
        let is_due = self.since.elapsed() >= patience + STEP * self.rank && self.not_before <= Instant::now();
        if is_due {
            (self.since, self.has_stood, self.is_behind) = (Instant::now(), true, false);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nodes_stand_in_their_order_once_the_leader_is_silent() {
        let mut clocks = [ElectionClock::new(0), ElectionClock::new(1)];
        for _ in 0..20 {
            advance(LEASE / 2).await;
            clocks.iter_mut().for_each(|clock| {
                assert!(!clock.is_due());
                clock.heard();
            });
        }
        advance(LEASE + MARGIN).await;
        assert_eq!(clocks.each_mut().map(ElectionClock::is_due), [true, false]);
        advance(STEP).await;
        assert_eq!(clocks.each_mut().map(ElectionClock::is_due), [false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_elected_tries_again_and_who_is_behind_lets_others_go_first() {
        let mut clock = ElectionClock::new(0);
        advance(LEASE + MARGIN).await;
        assert!(clock.is_due());
        advance(RETRY).await;
        assert!(clock.is_due());
        clock.behind();
        advance(RETRY).await;
        assert!(!clock.is_due());
        advance(RETRY_BEHIND).await;
        assert!(clock.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn who_lets_others_go_first_does_so_whatever_it_hears() {
        let mut clock = ElectionClock::new(0);
        clock.not_before(Instant::now() + Duration::from_secs(10));
        advance(Duration::from_secs(5)).await;
        assert!(!clock.is_due());
        clock.heard();
        advance(Duration::from_secs(4)).await;
        assert!(!clock.is_due());
        advance(Duration::from_secs(1)).await;
        assert!(clock.is_due());
    }
}
