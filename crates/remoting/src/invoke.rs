//! Requests of our own that wait for an answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::task::{Poll, Waker};
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Why a request of ours has no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvokeError {
    /// The connection ended, before or after the request was written.
    #[error("the connection to {peer} was closed")]
    Closed {
        /// Address of the peer.
        peer: String,
    },
    /// No answer in time.
    #[error("no answer from {peer} within {timeout:?}")]
    Timeout {
        /// Address of the peer.
        peer: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// Too many requests are waiting for this peer.
    #[error("{outstanding_max} requests to {peer} are unanswered")]
    TooMany {
        /// Address of the peer.
        peer: String,
        /// The limit ([`Limits::outstanding_max`](crate::Limits::outstanding_max)).
        outstanding_max: usize,
    },
    /// There is no connection and none could be made.
    #[error("can't connect to {peer}: {reason}")]
    Connect {
        /// Address of the peer.
        peer: String,
        /// What the system said.
        reason: String,
    },
}

/// The requests of one connection that wait for an answer, by `opaque`.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    calls: Mutex<Calls>,
    /// A call has to be given up earlier than all others.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    by_opaque: HashMap<i32, Call>,
    /// When they are looked through for those whose time is over. One timer for all costs a call nothing.
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Call {
    deadline: Instant,
    /// Who waits for the outcome.
    waker: Waker,
    outcome: Option<Outcome>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answered(RemotingCommand),
    /// Its time is over.
    Late,
    /// The connection was closed.
    Closed,
}

impl Outstanding {
    /// Notes a call; false if there are as many as there may be.
    pub(crate) fn begin(&self, opaque: i32, deadline: Instant, waker: &Waker, max: usize) -> bool {
        let mut calls = self.calls.lock();
        if calls.by_opaque.len() >= max {
            return false;
        }
        calls.by_opaque.insert(opaque, Call { deadline, waker: waker.clone(), outcome: None });
        let is_first = calls.next_look.is_none_or(|next| deadline < next);
        if is_first {
            calls.next_look = Some(deadline);
            drop(calls);
            self.earlier.notify_one();
        }
        true
    }

    /// The outcome of a call that was begun; it is forgotten then.
    pub(crate) fn poll(&self, opaque: i32, waker: &Waker) -> Poll<Outcome> {
        let mut calls = self.calls.lock();
        let Entry::Occupied(mut call) = calls.by_opaque.entry(opaque) else {
            return Poll::Ready(Outcome::Closed);
        };
        match call.get_mut().outcome.take() {
            Some(outcome) => {
                call.remove();
                Poll::Ready(outcome)
            }
            None => {
                call.get_mut().waker.clone_from(waker);
                Poll::Pending
            }
        }
    }

    /// Hands answers to those who wait for them, if somebody does (still). Returns how many calls waited before.
    pub(crate) fn complete(&self, answers: &mut Vec<RemotingCommand>) -> usize {
        let mut wakers = Vec::with_capacity(answers.len());
        let mut calls = self.calls.lock();
        let waiting = calls.by_opaque.len();
        for answer in answers.drain(..) {
            if let Some(call) = calls.by_opaque.get_mut(&answer.opaque)
                && call.outcome.is_none()
            {
                call.outcome = Some(Outcome::Answered(answer));
                wakers.push(call.waker.clone());
            }
        }
        drop(calls);
        wakers.into_iter().for_each(Waker::wake);
        waiting
    }

    pub(crate) fn forget(&self, opaque: i32) {
        self.calls.lock().by_opaque.remove(&opaque);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.lock().by_opaque.is_empty()
    }

    /// Ends all waiting calls, because the connection was closed.
    pub(crate) fn fail_all(&self) {
        self.end(|_| Some(Outcome::Closed));
    }

    /// Ends calls when their time is over, for as long as it is polled.
    pub(crate) async fn give_up_late(&self) {
        loop {
            let next_look = self.calls.lock().next_look;
            match next_look {
                None => self.earlier.notified().await,
                Some(next_look) => tokio::select! {
                    () = self.earlier.notified() => {}
                    () = tokio::time::sleep_until(next_look) => {
                        let now = Instant::now();
                        self.end(|call| (call.deadline <= now).then_some(Outcome::Late));
                    }
                },
            }
        }
    }

    /// Ends the waiting calls for which `outcome_of` says how.
    fn end(&self, outcome_of: impl Fn(&Call) -> Option<Outcome>) {
        let mut wakers = Vec::new();
        let mut calls = self.calls.lock();
        let mut next_look: Option<Instant> = None;
        for call in calls.by_opaque.values_mut().filter(|call| call.outcome.is_none()) {
            call.outcome = outcome_of(call);
            if call.outcome.is_some() {
                wakers.push(call.waker.clone());
            } else {
                next_look = Some(next_look.map_or(call.deadline, |next| next.min(call.deadline)));
            }
        }
        calls.next_look = next_look;
        drop(calls);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(opaque: i32) -> RemotingCommand {
        RemotingCommand { opaque, ..RemotingCommand::success() }
    }

    /// What became of calls, a letter each.
    fn outcomes<const N: usize>(outstanding: &Outstanding, calls: [i32; N]) -> [char; N] {
        calls.map(|opaque| match outstanding.poll(opaque, Waker::noop()) {
            Poll::Pending => '.',
            Poll::Ready(Outcome::Answered(answer)) if answer.opaque == opaque => 'a',
            Poll::Ready(Outcome::Answered(_)) => '?',
            Poll::Ready(Outcome::Late) => 'l',
            Poll::Ready(Outcome::Closed) => 'c',
        })
    }

    #[tokio::test(start_paused = true)]
    async fn calls_end_when_their_time_is_over_and_not_before() {
        let (outstanding, now) = (Outstanding::default(), Instant::now());
        let begin = |opaque, seconds| {
            let deadline = now + Duration::from_secs(seconds);
            assert!(outstanding.begin(opaque, deadline, Waker::noop(), 9));
        };
        let wait_until = async |seconds| {
            let end = tokio::time::sleep_until(now + Duration::from_secs(seconds) + Duration::from_millis(1));
            tokio::select! { () = outstanding.give_up_late() => {} () = end => {} }
        };
        begin(1, 3);
        begin(2, 9);
        wait_until(1).await;
        // One that is over before the one that was waited for, and one in between.
        begin(3, 2);
        begin(4, 4);
        assert_eq!(outcomes(&outstanding, [1, 2, 3, 4]), ['.', '.', '.', '.']);
        wait_until(2).await;
        assert_eq!(outcomes(&outstanding, [1, 2, 3, 4]), ['.', '.', 'l', '.']);
        wait_until(4).await;
        assert_eq!(outcomes(&outstanding, [1, 2, 4]), ['l', '.', 'l']);
        outstanding.forget(2);
        wait_until(20).await;
        begin(5, 21);
        wait_until(21).await;
        assert_eq!(outcomes(&outstanding, [5]), ['l'], "after a time without calls");
        assert!(outstanding.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_reaches_its_call() {
        let (outstanding, deadline) = (Outstanding::default(), Instant::now() + Duration::from_secs(1));
        assert!((1..=3).all(|opaque| outstanding.begin(opaque, deadline, Waker::noop(), 3)));
        assert!(!outstanding.begin(4, deadline, Waker::noop(), 3), "there are as many as there may be");
        assert_eq!(outstanding.complete(&mut vec![answer(3), answer(7), answer(1), answer(1)]), 3);
        tokio::time::advance(Duration::from_secs(2)).await;
        outstanding.end(|_| Some(Outcome::Late));
        assert_eq!(outcomes(&outstanding, [1, 2, 3]), ['a', 'l', 'a'], "an answered call is not late");
        assert!(outstanding.begin(5, deadline, Waker::noop(), 3));
        outstanding.fail_all();
        assert_eq!(outcomes(&outstanding, [5, 6]), ['c', 'c']);
    }
}
