//! The inside of a POP consumer: which broker is asked next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::body::{ConsumeMessageDirectlyResult, ConsumerData, ConsumerRunningInfo, MessageQueue};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::loans::Loans;
use super::requests::{PopOptions, Popped};
use crate::consumer::subscriber::Subscriber;
use crate::error::Error;
use crate::instance::member::{BoxFuture, ConsumerMember};
use crate::message::MessageExt;

/// How long an assignment is taken for granted, unless somebody says that the group has changed.
const ASSIGNMENT_AGE_MAX: Duration = Duration::from_secs(20);
/// How long one of several brokers may hold a request, while messages may come to the others.
const POLL_ONE_OF_MANY: Duration = Duration::from_secs(1);
/// A broker that holds too many requests answers at once; so soon it is asked again.
const POLL_PAUSE: Duration = Duration::from_millis(100);

/// Settings of a POP consumer that do not change.
#[derive(Clone, Debug)]
pub(super) struct PopSettings {
    pub(super) await_duration: Duration,
    pub(super) fifo: bool,
    pub(super) reconsume_times_max: i32,
}

impl Default for PopSettings {
    fn default() -> Self {
        Self { await_duration: Duration::from_secs(15), fifo: false, reconsume_times_max: 16 }
    }
}

/// The inside of a [`PopConsumer`](super::PopConsumer).
#[derive(Debug)]
pub(super) struct PopCore {
    pub(super) subscriber: Arc<Subscriber>,
    settings: PopSettings,
    /// What each topic is popped from, and since when that is known.
    assigned: Mutex<BTreeMap<String, (Instant, Vec<MessageQueue>)>>,
    /// Where the next round begins, so that all brokers have their turn.
    turn: AtomicUsize,
    /// What the application has.
    loans: Loans,
}

impl PopCore {
    pub(super) fn new(subscriber: Arc<Subscriber>, settings: PopSettings) -> Self {
        Self {
            subscriber,
            settings,
            assigned: Mutex::default(),
            turn: AtomicUsize::new(0),
            loans: Loans::default(),
        }
    }

    /// Starts the tasks that keep book.
    pub(super) fn run(self: &Arc<Self>) {
        let (core, stop) = (self.clone(), self.subscriber.stop.clone());
        self.subscriber.instance.spawn(async move {
            let books = async { tokio::join!(core.subscriber.clone().keep_stats(), core.loans.keep_ended()) };
            stop.run_until_cancelled(books).await;
        });
    }

    pub(super) async fn receive(
        &self,
        messages_max: usize,
        invisible_time: Duration,
    ) -> Result<Vec<MessageExt>, Error> {
        let closed = || Error::Closed { what: format!("the POP consumer {}", self.subscriber.group) };
        let received = self.receive_until_stopped(messages_max, invisible_time);
        self.subscriber.stop.run_until_cancelled(received).await.unwrap_or_else(|| Err(closed()))
    }

    /// Asks everybody, then waits with one after the other until there is something or the time is over.
    async fn receive_until_stopped(
        &self,
        messages_max: usize,
        invisible_time: Duration,
    ) -> Result<Vec<MessageExt>, Error> {
        let deadline = Instant::now() + self.settings.await_duration;
        let mut options = PopOptions { messages_max, invisible_time, poll: Duration::ZERO, attempt: None };
        let mut first_look = true;
        loop {
            let targets = self.targets().await?;
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let (mut answered, mut failed) = (false, None);
            for position in 0..targets.len() {
                let left = deadline.saturating_duration_since(Instant::now());
                let is_only = targets.len() == 1;
                options.poll = match (is_only, first_look) {
                    (true, _) => left,
                    (false, true) => Duration::ZERO,
                    (false, false) => left.min(POLL_ONE_OF_MANY),
                };
                // Whoever asks again under the same name would get the same messages again.
                options.attempt = self.settings.fifo.then(|| format!("{:032x}", fastrand::u128(..)));
                let target = &targets[(turn + position) % targets.len()];
                let queue = self.subscriber.pop_queue(target);
                if let Some(queue) = &queue {
                    queue.note_pop();
                }
                match self.subscriber.pop(target, &options).await {
                    Ok(Popped::Found(messages)) => {
                        answered = true;
                        let times_max = self.settings.reconsume_times_max;
                        let wanted = self.subscriber.sort_out(messages, times_max).await;
                        if let Some(queue) = &queue {
                            self.loans.begin(queue, &wanted, invisible_time);
                        }
                        if !wanted.is_empty() {
                            return Ok(wanted);
                        }
                    }
                    Ok(Popped::Nothing | Popped::Full) => answered = true,
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(error) = failed.filter(|_| !answered) {
                return Err(error);
            }
            if Instant::now() >= deadline {
                return Ok(Vec::new());
            }
            if !first_look {
                tokio::time::sleep_until(deadline.min(Instant::now() + POLL_PAUSE)).await;
            }
            first_look = false;
        }
    }

    /// What all topics are popped from.
    async fn targets(&self) -> Result<Vec<MessageQueue>, Error> {
        let topics = self.subscriber.topics();
        if topics.is_empty() {
            return Err(Error::invalid("POP consumer", "it is not subscribed to any topic"));
        }
        let (mut targets, mut failed) = (Vec::new(), None);
        for topic in topics {
            let known = self.assigned.lock().get(&topic).cloned();
            if let Some((_, queues)) = known.filter(|(since, _)| since.elapsed() < ASSIGNMENT_AGE_MAX) {
                targets.extend(queues);
                continue;
            }
            match self.subscriber.pop_targets(&topic).await {
                Ok(queues) => {
                    targets.extend(queues.iter().cloned());
                    self.subscriber.apply_popped(&topic, &queues.iter().cloned().collect());
                    self.assigned.lock().insert(topic, (Instant::now(), queues));
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if targets.is_empty() => Err(error),
            _ => Ok(targets),
        }
    }

    pub(super) fn unsubscribe(&self, topic: &str) {
        self.subscriber.unsubscribe(topic);
        self.subscriber.apply_popped(topic, &BTreeSet::new());
    }

    pub(super) async fn ack(&self, message: &MessageExt) -> Result<(), Error> {
        self.subscriber.ack(message).await?;
        self.loans.end(message, true);
        Ok(())
    }

    pub(super) async fn ack_all(&self, messages: &[MessageExt]) -> Result<(), Error> {
        self.subscriber.ack_all(messages).await?;
        messages.iter().for_each(|message| self.loans.end(message, true));
        Ok(())
    }

    pub(super) async fn change_invisible_time(
        &self,
        message: &mut MessageExt,
        invisible_time: Duration,
    ) -> Result<(), Error> {
        let before = message.receipt_handle().unwrap_or_default().to_owned();
        self.subscriber.change_invisible_time(message, invisible_time).await?;
        self.loans.prolong(&before, message, invisible_time);
        Ok(())
    }

    pub(super) async fn bury(&self, message: &MessageExt) -> Result<(), Error> {
        self.subscriber.bury(message).await?;
        self.loans.end(message, false);
        Ok(())
    }

    pub(super) async fn shutdown_now(&self) {
        self.subscriber.stop.cancel();
        self.subscriber.leave().await;
    }
}

impl ConsumerMember for PopCore {
    fn heartbeat(&self) -> ConsumerData {
        self.subscriber.heartbeat()
    }

    fn topics(&self) -> Vec<String> {
        self.subscriber.topics()
    }

    fn wake_rebalance(&self) {
        self.assigned.lock().clear();
    }

    /// Brokers keep the progress of POP.
    fn offsets(&self, _: &str) -> BTreeMap<MessageQueue, i64> {
        BTreeMap::new()
    }

    fn running_info(&self) -> ConsumerRunningInfo {
        self.loans.end_overdue();
        self.subscriber.running_info()
    }

    fn reset_offsets(self: Arc<Self>, _: String, _: BTreeMap<MessageQueue, i64>) -> BoxFuture<()> {
        Box::pin(async {})
    }

    fn consume_directly(self: Arc<Self>, _: MessageExt) -> BoxFuture<Option<ConsumeMessageDirectlyResult>> {
        Box::pin(async { None })
    }

    fn shutdown(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { self.shutdown_now().await })
    }
}
