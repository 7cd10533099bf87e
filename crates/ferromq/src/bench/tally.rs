//! What one thread counts, and all of them together.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::spans::Span;

/// Latencies above this count as this long.
const LATENCY_MAX_NS: u64 = 120_000_000_000;
/// Digits that percentiles are exact to.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Problems that are told in full.
const PROBLEMS_MAX: usize = 20;

/// The time in which things count, in nanoseconds since the load began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// End of the warm-up.
    pub(super) from_ns: u64,
    /// End of the load; `u64::MAX` when messages are counted instead.
    pub(super) until_ns: u64,
}

impl Window {
    fn contains(&self, time_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&time_ns)
    }
}

/// Counts of a run.
#[derive(Debug)]
pub(super) struct Tally {
    window: Window,
    /// Latencies of the requests that were due in the window, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// Messages of the good answers that came within the window.
    pub(super) messages: u64,
    /// Good answers that came within the window.
    pub(super) answers: u64,
    /// Bytes of message bodies or records in them.
    pub(super) bytes: u64,
    /// Answers within the window that say something else than SUCCESS, by their code.
    pub(super) errors: BTreeMap<i32, u64>,
    /// Requests of the whole run.
    pub(super) sent: u64,
    /// Answers of the whole run.
    pub(super) answered: u64,
    /// When the last answer came.
    pub(super) last_answer_ns: u64,
    /// Offsets that each queue gave out, in an order that all threads share.
    pub(super) spans: Vec<Span>,
    /// Everything that must not be.
    pub(super) problems: Vec<String>,
}

impl Tally {
    pub(super) fn new(window: Window) -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, SIGNIFICANT_DIGITS);
        Self {
            window,
            latency: latency.expect("the bounds are constants that fit"),
            messages: 0,
            answers: 0,
            bytes: 0,
            errors: BTreeMap::new(),
            sent: 0,
            answered: 0,
            last_answer_ns: 0,
            spans: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Counts an answer that came at `now_ns` to a request that was due at `due_ns`.
    pub(super) fn answer(&mut self, due_ns: u64, now_ns: u64) {
        self.answered += 1;
        self.last_answer_ns = now_ns;
        // A request that was due in time counts even if its answer comes late: leaving it out would hide the worst.
        if self.window.contains(due_ns) {
            self.latency.saturating_record(now_ns.saturating_sub(due_ns));
        }
    }

    /// Counts how old a message was that arrived at `now_ns`.
    pub(super) fn arrival(&mut self, age_ns: u64, now_ns: u64) {
        if self.window.contains(now_ns) {
            self.latency.saturating_record(age_ns);
        }
    }

    /// Counts the contents of a good answer.
    pub(super) fn success(&mut self, messages: u64, bytes: u64, now_ns: u64) {
        if self.window.contains(now_ns) {
            self.answers += 1;
            self.messages += messages;
            self.bytes += bytes;
        }
    }

    /// Counts an answer that refuses.
    pub(super) fn error(&mut self, code: i32, now_ns: u64) {
        if self.window.contains(now_ns) {
            *self.errors.entry(code).or_default() += 1;
        }
    }

    /// Notes something that must not be.
    pub(super) fn problem(&mut self, problem: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem.into());
        } else if self.problems.len() == PROBLEMS_MAX {
            self.problems.push("more of this kind".to_owned());
        }
    }

    /// Adds what another thread counted.
    pub(super) fn merge(&mut self, other: Self) {
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        self.messages += other.messages;
        self.answers += other.answers;
        self.bytes += other.bytes;
        for (code, count) in other.errors {
            *self.errors.entry(code).or_default() += count;
        }
        self.sent += other.sent;
        self.answered += other.answered;
        self.last_answer_ns = self.last_answer_ns.max(other.last_answer_ns);
        self.spans.resize(self.spans.len().max(other.spans.len()), Span::default());
        self.spans.iter_mut().zip(&other.spans).for_each(|(all, own)| all.merge(own));
        for problem in other.problems {
            self.problem(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_counts_but_late_answers_have_a_latency() {
        let mut tally = Tally::new(Window { from_ns: 1_000, until_ns: 2_000 });
        for (due_ns, now_ns) in [(0, 900), (900, 1_100), (1_100, 1_900), (1_900, 5_900)] {
            tally.answer(due_ns, now_ns);
            tally.success(1, 10, now_ns);
        }
        assert_eq!((tally.answered, tally.messages, tally.bytes), (4, 2, 20));
        assert_eq!((tally.latency.len(), tally.latency.max() / 100), (2, 40));
        assert_eq!(tally.last_answer_ns, 5_900);
    }

    #[test]
    fn threads_are_added_up() {
        let window = Window { from_ns: 0, until_ns: u64::MAX };
        let mut all = Tally::new(window);
        for thread in 0..2 {
            let mut tally = Tally::new(window);
            tally.answer(0, 100 * (thread + 1));
            tally.error(2, 5);
            tally.problem("odd");
            all.merge(tally);
        }
        assert_eq!((all.answered, all.latency.max(), all.errors[&2], all.problems.len()), (2, 200, 2, 2));
    }
}
