//! Deliveries that wait for a worker.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;

/// What a fixed number of workers takes its work from, in the order in which it came: iterators, one after another, so that
/// what came together is put here in one piece.
///
/// Waking a worker costs more than a short listener, so no more than one is on its way at any time: it wakes the next one
/// if there is still something to do when it arrives. One worker alone then does what never waits, and all of them soon
/// work if listeners wait or cores are free.
#[derive(Debug)]
pub(super) struct Waiting<I> {
    state: Mutex<State<I>>,
    woken: Notify,
}

#[derive(Debug)]
struct State<I> {
    /// Each with at least one delivery.
    deliveries: VecDeque<I>,
    /// Workers that found nothing and were not woken since.
    idle: usize,
    /// A worker was woken and has not looked yet.
    one_is_coming: bool,
    closed: bool,
}

impl<I: ExactSizeIterator> Waiting<I> {
    pub(super) fn new() -> Self {
        let state = State { deliveries: VecDeque::new(), idle: 0, one_is_coming: false, closed: false };
        Self { state: Mutex::new(state), woken: Notify::new() }
    }

    /// Adds deliveries behind the others; nothing when it is closed.
    pub(super) fn put(&self, deliveries: impl IntoIterator<Item = I>) {
        let mut state = self.state.lock();
        if !state.closed {
            state.deliveries.extend(deliveries.into_iter().filter(|some| some.len() > 0));
            self.wake_one(&mut state);
        }
    }

    /// Waits for the next delivery; `None` when it is closed. Workers may drop this future only all together: the one that
    /// does might have been woken for something.
    pub(super) async fn next(&self) -> Option<I::Item> {
        // Whoever always finds something gives way to others now and then.
        consume_budget().await;
        let mut was_woken = false;
        loop {
            {
                let mut state = self.state.lock();
                state.one_is_coming &= !was_woken;
                if let Some(delivery) = state.take() {
                    self.wake_one(&mut state);
                    return Some(delivery);
                }
                if state.closed {
                    // And the next one.
                    self.woken.notify_one();
                    return None;
                }
                state.idle += 1;
            }
            self.woken.notified().await;
            was_woken = true;
        }
    }

    fn wake_one(&self, state: &mut State<I>) {
        if state.idle > 0 && !state.one_is_coming && !state.deliveries.is_empty() {
            state.idle -= 1;
            state.one_is_coming = true;
            // Whoever worked last still has everything at hand.
            self.woken.notify_last();
        }
    }

    /// Forgets deliveries that nobody wants any more.
    pub(super) fn retain(&self, wanted: impl FnMut(&I) -> bool) {
        self.state.lock().deliveries.retain(wanted);
    }

    /// Forgets everything that waits, and sends the workers home when they are done with what they have.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.deliveries.clear();
        self.woken.notify_one();
    }
}

impl<I: ExactSizeIterator> State<I> {
    fn take(&mut self) -> Option<I::Item> {
        let first = self.deliveries.front_mut()?;
        let delivery = first.next();
        if first.len() == 0 {
            self.deliveries.pop_front();
        }
        delivery
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;
    use std::ops::Range;
    use std::sync::Arc;

    use tokio::task::{JoinSet, yield_now};

    use super::*;

    /// Workers that note what they take in the common list; each waits there for a word before it goes on.
    struct Workers {
        waiting: Arc<Waiting<Range<usize>>>,
        taken: Arc<Mutex<Vec<usize>>>,
        go_on: Arc<tokio::sync::Semaphore>,
        tasks: JoinSet<()>,
    }

    impl Workers {
        fn start(count: usize) -> Self {
            let waiting = Arc::new(Waiting::new());
            let mut workers = Self {
                waiting: waiting.clone(),
                taken: Arc::default(),
                go_on: Arc::new(tokio::sync::Semaphore::new(0)),
                tasks: JoinSet::new(),
            };
            for _ in 0..count {
                let (waiting, taken) = (waiting.clone(), workers.taken.clone());
                let go_on = workers.go_on.clone();
                workers.tasks.spawn(async move {
                    while let Some(number) = waiting.next().await {
                        taken.lock().push(number);
                        go_on.acquire().await.unwrap().forget();
                    }
                });
            }
            workers
        }

        /// What was taken when nobody has anything to do any more.
        async fn taken(&self) -> Vec<usize> {
            for _ in 0..100 {
                yield_now().await;
            }
            self.taken.lock().clone()
        }
    }

    #[tokio::test]
    async fn all_workers_work_if_there_is_enough_and_the_rest_waits_in_order() {
        let workers = Workers::start(3);
        assert!(workers.taken().await.is_empty());
        workers.waiting.put([0..2, 2..2, 2..3, 3..4, 4..5]);
        assert_eq!(workers.taken().await, [0, 1, 2]);
        workers.waiting.retain(|numbers| numbers.start != 3);
        workers.go_on.add_permits(1);
        assert_eq!(workers.taken().await, [0, 1, 2, 4]);
    }

    #[tokio::test]
    async fn one_worker_does_what_never_waits() {
        let waiting = Arc::new(Waiting::new());
        let mut workers = JoinSet::new();
        for _ in 0..20 {
            let waiting = waiting.clone();
            workers.spawn(async move {
                let mut count = 0;
                while waiting.next().await.is_some() {
                    count += 1;
                }
                count
            });
        }
        for _ in 0..10 {
            yield_now().await;
            waiting.put(once(0..32));
        }
        for _ in 0..10 {
            yield_now().await;
        }
        waiting.close();
        let mut counts = workers.join_all().await;
        counts.sort_unstable();
        assert_eq!(counts.iter().sum::<usize>(), 320);
        assert!(
            counts[..18].iter().all(|count| *count == 0),
            "each wakes one more, which has nothing to do: {counts:?}"
        );
    }

    #[tokio::test]
    async fn a_close_ends_all_workers_and_forgets_what_waits() {
        let mut workers = Workers::start(3);
        workers.waiting.put(once(0..4));
        assert_eq!(workers.taken().await, [0, 1, 2]);
        workers.waiting.close();
        workers.waiting.put(once(5..6));
        workers.go_on.add_permits(9);
        while workers.tasks.join_next().await.is_some() {}
        assert_eq!(workers.taken().await, [0, 1, 2]);
        assert_eq!(workers.waiting.next().await, None);
    }
}
