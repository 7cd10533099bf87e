//! What an application does with messages.

use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ferromq_protocol::body::MessageQueue;

use crate::message::MessageExt;

/// Messages for a listener: one or more, all from one queue, in the queue's order.
///
/// It is a slice of them, and shares them with the consumer:
///
/// ```no_run
/// # fn print(delivery: ferromq_client::Delivery) {
/// for message in &delivery {
///     println!("{} of {}: {:?}", message.queue_offset, delivery.queue(), message.body);
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Messages that came together.
    all: Arc<[Arc<MessageExt>]>,
    /// Which of them are delivered; at least one.
    range: Range<usize>,
}

impl Delivery {
    /// Some of the messages that came together from a queue; `None` if there are none.
    pub(super) fn new(all: Arc<[Arc<MessageExt>]>, range: Range<usize>) -> Option<Self> {
        all.get(range.clone()).is_some_and(|messages| !messages.is_empty()).then_some(Self { all, range })
    }

    /// The queue.
    pub fn queue(&self) -> &MessageQueue {
        &self.all[self.range.start].queue
    }
}

impl Deref for Delivery {
    type Target = [Arc<MessageExt>];

    fn deref(&self) -> &Self::Target {
        &self.all[self.range.clone()]
    }
}

impl<'a> IntoIterator for &'a Delivery {
    type Item = &'a Arc<MessageExt>;
    type IntoIter = std::slice::Iter<'a, Arc<MessageExt>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// What a concurrent listener says about a delivery.
///
/// `Ok(())` of any `Result` is [`success`](Self::success), and `Err` is [`reconsume_later`](Self::reconsume_later).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumeResult {
    succeeded: usize,
    delay_level: i32,
}

impl ConsumeResult {
    /// All messages are done.
    pub fn success() -> Self {
        Self { succeeded: usize::MAX, delay_level: 0 }
    }

    /// None is done: they come again, later each time, and become dead letters when that was tried too often.
    pub fn reconsume_later() -> Self {
        Self { succeeded: 0, delay_level: 0 }
    }

    /// The first ones are done, the others come again.
    pub fn first_succeeded(count: usize) -> Self {
        Self { succeeded: count, delay_level: 0 }
    }

    /// What is not done comes again after the broker's delay level `level`, from 1 on.
    #[must_use]
    pub fn delay_level(self, level: u16) -> Self {
        Self { delay_level: i32::from(level), ..self }
    }

    /// What is not done becomes a dead letter at once.
    #[must_use]
    pub fn dead_letter(self) -> Self {
        Self { delay_level: -1, ..self }
    }

    /// How many of `count` messages are done.
    pub(super) fn succeeded_of(self, count: usize) -> usize {
        self.succeeded.min(count)
    }

    pub(super) fn next_delay_level(self) -> i32 {
        self.delay_level
    }
}

impl<E: fmt::Display> From<Result<(), E>> for ConsumeResult {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::success(),
            Err(error) => {
                tracing::warn!(%error, "listener failed, the messages come again");
                Self::reconsume_later()
            }
        }
    }
}

/// What an orderly listener says about a delivery. The queue's next messages wait until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumeOrderlyResult {
    /// All messages are done.
    Success,
    /// Not done: they come again after this time, and nothing of the queue before them. `None` = the consumer's
    /// [`suspend_current_queue_time`](super::PushConsumerBuilder::suspend_current_queue_time).
    SuspendCurrentQueue(Option<Duration>),
    /// Without [`auto_commit`](super::PushConsumerBuilder::auto_commit): everything since the last commit is done.
    Commit,
    /// Without [`auto_commit`](super::PushConsumerBuilder::auto_commit): everything since the last commit comes again.
    Rollback,
}

impl<E: fmt::Display> From<Result<(), E>> for ConsumeOrderlyResult {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Success,
            Err(error) => {
                tracing::warn!(%error, "listener failed, its queue waits for it");
                Self::SuspendCurrentQueue(None)
            }
        }
    }
}

pub(super) type Call<R> = dyn Fn(Delivery) -> Pin<Box<dyn Future<Output = R> + Send>> + Send + Sync;

/// The application's listener.
#[derive(Clone)]
pub(super) enum Listener {
    Concurrent(Arc<Call<ConsumeResult>>),
    Orderly(Arc<Call<ConsumeOrderlyResult>>),
}

impl Listener {
    pub(super) fn concurrent<F, R>(listener: impl Fn(Delivery) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: Into<ConsumeResult>,
    {
        Self::Concurrent(Arc::new(move |delivery| {
            let called = listener(delivery);
            Box::pin(async move { called.await.into() })
        }))
    }

    pub(super) fn orderly<F, R>(listener: impl Fn(Delivery) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: Into<ConsumeOrderlyResult>,
    {
        Self::Orderly(Arc::new(move |delivery| {
            let called = listener(delivery);
            Box::pin(async move { called.await.into() })
        }))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Concurrent(_) => "concurrent listener",
            Self::Orderly(_) => "orderly listener",
        })
    }
}

/// A listener panicked.
#[derive(Debug)]
pub(super) struct Panicked;

/// Calls a listener. Its panic costs one delivery, not the consumer.
pub(super) async fn call<R>(listener: &Call<R>, delivery: &Delivery) -> Result<R, Panicked> {
    let panicked = || {
        tracing::error!(queue = %delivery.queue(), "the listener panicked");
        Panicked
    };
    let mut called = catch_unwind(AssertUnwindSafe(|| listener(delivery.clone()))).map_err(|_| panicked())?;
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| called.as_mut().poll(context))) {
        Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(Err(panicked())),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::message;
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_wherever_it_happens() {
        let delivery = Delivery::new([Arc::new(message("T", 0))].into(), 0..1).unwrap();
        let at_once = Listener::concurrent(|_| -> std::future::Ready<ConsumeResult> { panic!("at once") });
        let later = Listener::concurrent(|_| async {
            tokio::task::yield_now().await;
            if true {
                panic!("later");
            }
            ConsumeResult::success()
        });
        let fine = Listener::concurrent(|_| async { Ok::<(), std::io::Error>(()) });
        for (listener, is_fine) in [(at_once, false), (later, false), (fine, true)] {
            let Listener::Concurrent(listener) = listener else { unreachable!() };
            assert_eq!(call(&*listener, &delivery).await.is_ok(), is_fine);
        }
    }

    #[test]
    fn a_delivery_is_a_part_of_what_came_together() {
        let all: Arc<[_]> = (0..3).map(|offset| Arc::new(message("T", offset))).collect();
        let delivery = Delivery::new(all.clone(), 1..3).unwrap();
        let offsets: Vec<_> = (&delivery).into_iter().map(|message| message.queue_offset).collect();
        assert_eq!((offsets, delivery.queue()), (vec![1, 2], &*all[0].queue));
        assert!(Delivery::new(all.clone(), 3..3).is_none() && Delivery::new(all, 2..4).is_none());
    }

    #[test]
    fn results() {
        assert_eq!(ConsumeResult::success().succeeded_of(3), 3);
        assert_eq!(ConsumeResult::reconsume_later().succeeded_of(3), 0);
        assert_eq!(ConsumeResult::first_succeeded(2).succeeded_of(3), 2);
        assert_eq!(ConsumeResult::reconsume_later().delay_level(4).next_delay_level(), 4);
        assert_eq!(ConsumeResult::reconsume_later().dead_letter().next_delay_level(), -1);
        assert_eq!(ConsumeOrderlyResult::from(Err("x")), ConsumeOrderlyResult::SuspendCurrentQueue(None));
    }
}
