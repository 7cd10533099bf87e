//! A monotonic offset of the log that can be awaited.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A log offset that only rises, such as "everything below is flushed". It can be advanced by one party, read by
/// all, and awaited by anybody: a future by [`wait`](Self::wait), a thread by [`wait_blocking`](Self::wait_blocking).
///
/// Reading and advancing without waiters take no lock. Whoever sees a value sees everything that was written to
/// memory before it was advanced to that value.
#[derive(Debug, Default)]
pub struct Waterline {
    offset: AtomicU64,
    /// The lowest target somebody waits for; `u64::MAX` without waiters. Lets `advance` skip the lock.
    lowest_target: LowestTarget,
    waiters: Mutex<Waiters>,
}

#[derive(Debug)]
struct LowestTarget(AtomicU64);

impl Default for LowestTarget {
    fn default() -> Self {
        LowestTarget(AtomicU64::new(u64::MAX))
    }
}

#[derive(Debug, Default)]
struct Waiters {
    /// Lowest target first. Entries of futures that were dropped stay until their target is passed; waking them is
    /// harmless.
    heap: BinaryHeap<Reverse<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    target: u64,
    waker: Waker,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}
impl Eq for Waiter {}
impl PartialOrd for Waiter {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiter {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.target.cmp(&other.target)
    }
}

impl Waterline {
    /// A waterline that stands at `offset`.
    pub fn new(offset: u64) -> Self {
        Waterline { offset: AtomicU64::new(offset), ..Waterline::default() }
    }

    /// Where the waterline stands.
    #[inline]
    pub fn get(&self) -> u64 {
        self.offset.load(Ordering::Acquire)
    }

    /// Raises the waterline to `offset` and wakes those who waited for that; a lower offset changes nothing.
    #[inline]
    pub fn advance(&self, offset: u64) {
        self.raise(offset);
        self.notify(offset);
    }

    /// Lowers the waterline: what was behind `offset` is no longer there. Only where no waiter relies on it.
    pub(crate) fn lower(&self, offset: u64) {
        self.offset.fetch_min(offset, Ordering::AcqRel);
    }

    /// First half of [`advance`](Self::advance): raises the waterline. For callers that hold a lock in which nobody should
    /// be woken; [`notify`](Self::notify) must follow.
    #[inline]
    pub(crate) fn raise(&self, offset: u64) {
        // Mostly there is a single writer, so this is one uncontended instruction.
        self.offset.fetch_max(offset, Ordering::AcqRel);
    }

    /// Second half of [`advance`](Self::advance): wakes whoever waited for `offset`.
    #[inline]
    pub(crate) fn notify(&self, offset: u64) {
        // Pairs with the fence in `register`: either we see the target, or the waiter sees our offset.
        fence(Ordering::SeqCst);
        if self.lowest_target.0.load(Ordering::Relaxed) <= offset {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let mut due = Vec::new();
        {
            let mut waiters = self.waiters.lock();
            let offset = self.get();
            while waiters.heap.peek().is_some_and(|Reverse(waiter)| waiter.target <= offset) {
                due.extend(waiters.heap.pop().map(|Reverse(waiter)| waiter.waker));
            }
            self.set_lowest_target(&waiters);
        }
        // Outside of the lock: a waker may run anything.
        for waker in due {
            waker.wake();
        }
    }

    fn set_lowest_target(&self, waiters: &Waiters) {
        let lowest = waiters.heap.peek().map_or(u64::MAX, |Reverse(waiter)| waiter.target);
        self.lowest_target.0.store(lowest, Ordering::Relaxed);
    }

    /// Wakes `waker` once the waterline has reached `target`; at once if it has.
    pub fn register(&self, target: u64, waker: Waker) {
        {
            let mut waiters = self.waiters.lock();
            waiters.heap.push(Reverse(Waiter { target, waker }));
            self.set_lowest_target(&waiters);
        }
        fence(Ordering::SeqCst);
        if self.get() >= target {
            self.wake();
        }
    }

    fn deregister(&self, waker: &Waker) {
        let mut waiters = self.waiters.lock();
        waiters.heap.retain(|Reverse(waiter)| !waiter.waker.will_wake(waker));
        self.set_lowest_target(&waiters);
    }

    /// A future that is ready once the waterline has reached `target`. It may be dropped at any time.
    pub fn wait(&self, target: u64) -> WaterlineWait<'_> {
        WaterlineWait { waterline: self, target, registered: None }
    }

    /// Wakes everybody, whatever they wait for.
    pub(crate) fn wake_all(&self) {
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.heap.into_iter().for_each(|Reverse(waiter)| waiter.waker.wake());
    }

    /// Blocks the thread until the waterline has reached `target` or `timeout` is over; says which.
    pub fn wait_blocking(&self, target: u64, timeout: Duration) -> bool {
        self.wait_unless(target, timeout, || false)
    }

    /// As [`wait_blocking`](Self::wait_blocking), and gives up when `give_up` says so; it is asked after
    /// [`wake_all`](Self::wake_all).
    pub(crate) fn wait_unless(&self, target: u64, timeout: Duration, give_up: impl Fn() -> bool) -> bool {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        if self.get() >= target {
            return true;
        }
        let deadline = Instant::now() + timeout;
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        self.register(target, waker.clone());
        while self.get() < target {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() || give_up() {
                self.deregister(&waker);
                return false;
            }
            std::thread::park_timeout(rest);
        }
        true
    }
}

/// Future of [`Waterline::wait`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct WaterlineWait<'a> {
    waterline: &'a Waterline,
    target: u64,
    registered: Option<Waker>,
}

impl Future for WaterlineWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waterline.get() >= self.target {
            return Poll::Ready(());
        }
        if !self.registered.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.registered = Some(context.waker().clone());
            self.waterline.register(self.target, context.waker().clone());
            if self.waterline.get() >= self.target {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wakes_exactly_those_whose_target_is_reached() {
        let line = Waterline::new(10);
        let counts: Vec<_> = (0..3).map(|_| Arc::new(Count::default())).collect();
        for (count, target) in counts.iter().zip([30, 20, 10]) {
            line.register(target, Waker::from(Arc::clone(count)));
        }
        let seen = || counts.iter().map(|c| c.0.load(Ordering::SeqCst)).collect::<Vec<_>>();
        assert_eq!(seen(), [0, 0, 1], "10 is reached already");
        line.advance(19);
        assert_eq!(seen(), [0, 0, 1]);
        line.advance(20);
        assert_eq!(seen(), [0, 1, 1]);
        line.advance(15);
        assert_eq!(line.get(), 20, "it never falls");
        line.advance(1000);
        assert_eq!(seen(), [1, 1, 1]);
    }

    #[test]
    fn the_future_is_ready_when_it_should_be() {
        let line = Waterline::new(0);
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut wait = std::pin::pin!(line.wait(5));
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert!(wait.as_mut().poll(&mut context).is_pending(), "a second poll does not register twice");
        line.advance(5);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(wait.as_mut().poll(&mut context).is_ready());
        drop(line.wait(9));
    }

    #[test]
    fn no_wake_up_is_lost_between_threads() {
        let line = Waterline::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=2_000).for_each(|offset| line.advance(offset)));
            for target in 1..=2_000 {
                assert!(line.wait_blocking(target, Duration::from_secs(20)), "lost at {target}");
            }
        });
        assert!(!line.wait_blocking(3_000, Duration::from_millis(1)));
        assert!(line.waiters.lock().heap.is_empty(), "who gave up is forgotten");
    }
}
