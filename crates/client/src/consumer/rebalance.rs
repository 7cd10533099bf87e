//! Sharing out queues among the members of a group (`docs/spec/07-client.md` 14).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::code::response;
use tokio::time::{Instant, sleep_until, timeout};

use super::assignment::Share;
use super::pop::PopQueue;
use super::process_queue::ProcessQueue;
use super::subscriber::Subscriber;
use crate::error::Error;
use crate::instance::Round;

/// How long a share that fits is left as it is, unless somebody says that the group has changed.
const PERIOD: Duration = Duration::from_secs(20);
/// Two rounds are at least this far apart; a share that does not fit yet is tried again so soon.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// How long a topic without route is looked for at every round.
const NEW_TOPIC_WAIT: Duration = Duration::from_secs(10);
/// How soon a queue is tried again that another member has not given back yet.
const LOCK_RETRY: Duration = Duration::from_millis(500);
/// How long a rebalance waits for an orderly listener that is running.
const CONSUMING_WAIT: Duration = Duration::from_millis(500);
/// When a queue's lock was confirmed so long ago, it is given back although its listener still runs.
const UNLOCK_DELAY: Duration = Duration::from_secs(20);
/// How often orderly consumers confirm their locks.
const LOCK_PERIOD: Duration = Duration::from_secs(20);

/// A queue that this consumer has got.
#[derive(Debug)]
pub(crate) struct Assigned {
    pub(crate) queue: Arc<ProcessQueue>,
    /// Where to begin.
    pub(crate) offset: i64,
}

/// What a rebalance gives.
#[derive(Debug)]
pub(crate) enum Given {
    /// A queue to be pulled.
    Pulled(Assigned),
    /// Something to be popped from.
    Popped(Arc<PopQueue>),
}

/// What one round did.
#[derive(Debug, Default)]
struct Outcome {
    given: Vec<Given>,
    changed: BTreeSet<String>,
    /// Some queue that should be ours is not yet.
    incomplete: bool,
    lock_failed: bool,
}

impl Subscriber {
    /// Keeps this consumer's share of queues right, and hands each queue that it gets to `start`.
    pub(crate) async fn keep_balanced(self: Arc<Self>, mut start: impl FnMut(Given) + Send) {
        loop {
            let began = Instant::now();
            let outcome = self.rebalance().await;
            outcome.given.into_iter().for_each(&mut start);
            if !outcome.changed.is_empty() {
                self.stats.rebalanced();
                for topic in &outcome.changed {
                    self.renew_subscription(topic);
                }
                self.instance.heartbeat(Round::Changed).await;
            }
            let next = match (outcome.lock_failed, outcome.incomplete) {
                (true, _) => LOCK_RETRY,
                (false, true) => INTERVAL_MIN,
                (false, false) => PERIOD,
            };
            let _ = timeout(next, self.rebalance_now.notified()).await;
            sleep_until(began + INTERVAL_MIN.min(next)).await;
        }
    }

    async fn rebalance(&self) -> Outcome {
        let mut outcome = Outcome::default();
        if self.is_assigned_by_hand() {
            return outcome;
        }
        for topic in self.topics() {
            match self.share_of(&topic).await {
                Some(share) => {
                    self.apply(&topic, &share.pulled, &mut outcome).await;
                    self.pop_from(&topic, &share.popped, &mut outcome);
                }
                None => outcome.incomplete = true,
            }
        }
        let mine: Vec<_> = self.queues.lock().values().cloned().collect();
        for queue in mine {
            if !self.is_subscribed(&queue.queue.topic) {
                self.give_up(&queue).await;
                outcome.changed.insert(queue.queue.topic.clone());
            }
        }
        for queue in self.pop_queues() {
            if !self.is_subscribed(&queue.queue.topic) {
                self.pop_from(&queue.queue.topic, &BTreeSet::new(), &mut outcome);
            }
        }
        outcome
    }

    fn pop_from(&self, topic: &str, target: &BTreeSet<MessageQueue>, outcome: &mut Outcome) {
        let (new, changed) = self.apply_popped(topic, target);
        outcome.given.extend(new.into_iter().map(Given::Popped));
        if changed {
            outcome.changed.insert(topic.to_owned());
        }
    }

    /// The queues of a topic that should be ours. `None`: that can't be told now, and everything stays as it is.
    async fn share_of(&self, topic: &str) -> Option<Share> {
        let route = match self.instance.routes.get(topic) {
            Some(route) => route,
            // A topic that does not exist has no queues. The look-up that finds it one day wakes this consumer.
            None if self.is_missing_for_good(topic) => return Some(Share::default()),
            None => self.instance.refresh_route(topic).await.ok()?,
        };
        if !self.is_clustering() {
            return Some(Share::pulled(route.subscribe.iter().cloned()));
        }
        if self.settings.assigned_by_broker {
            match self.query_assignment(topic).await {
                Ok(assigned) => return assigned.map(|assigned| self.assigned_share(topic, assigned)),
                // Before 5.0 they can't: the members do it themselves, all of them.
                Err(Error::Refused { code: response::REQUEST_CODE_NOT_SUPPORTED, .. }) => {}
                Err(error) => {
                    tracing::warn!(group = self.group, topic, %error, "what is assigned is not known");
                    return None;
                }
            }
        }
        let ids = self.instance.consumer_ids(topic, &self.group).await;
        let ids = ids.inspect_err(|error| tracing::warn!(%error, "the members of the group are not known"));
        let mut members = ids.ok()?;
        // All members must sort alike, in whatever language: by UTF-16 units.
        members.sort_by(|left, right| left.encode_utf16().cmp(right.encode_utf16()));
        let mut queues = route.subscribe.clone();
        queues.sort();
        let me = &self.instance.identity.client_id;
        let share = self.settings.strategy.allocate(me, &queues, &members)?;
        Some(Share::pulled(share))
    }

    /// Whether a topic was looked for long enough. The retry topic of a new group is just being created by its broker, so
    /// that it is worth looking again soon; later the regular look-ups do.
    fn is_missing_for_good(&self, topic: &str) -> bool {
        let now = Instant::now();
        now - *self.missing.lock().entry(topic.to_owned()).or_insert(now) > NEW_TOPIC_WAIT
    }

    async fn apply(&self, topic: &str, target: &BTreeSet<MessageQueue>, outcome: &mut Outcome) {
        let mine: Vec<_> = {
            let queues = self.queues.lock();
            queues.values().filter(|queue| queue.queue.topic == topic).cloned().collect()
        };
        for queue in &mine {
            if queue.is_dropped() || !target.contains(&queue.queue) || queue.is_pull_expired() {
                if self.give_up(queue).await {
                    outcome.changed.insert(topic.to_owned());
                } else {
                    outcome.incomplete = true;
                }
            }
        }
        for queue in target {
            if self.queues.lock().contains_key(queue) {
                continue;
            }
            match self.take_over(queue).await {
                TakeOver::Done(assigned) => {
                    outcome.given.push(Given::Pulled(assigned));
                    outcome.changed.insert(topic.to_owned());
                }
                TakeOver::Locked => outcome.lock_failed = true,
                TakeOver::Failed => outcome.incomplete = true,
            }
        }
    }

    async fn take_over(&self, queue: &MessageQueue) -> TakeOver {
        if self.is_locking && !self.lock_one(queue).await {
            tracing::debug!(group = self.group, %queue, "another member has not given it back yet");
            return TakeOver::Locked;
        }
        self.offsets.forget(queue);
        match self.first_offset(queue).await {
            Ok(offset) => {
                tracing::info!(group = self.group, %queue, offset, "got a queue");
                TakeOver::Done(Assigned { queue: self.adopt(queue), offset })
            }
            Err(error) => {
                tracing::warn!(group = self.group, %queue, %error, "where to begin is not known");
                TakeOver::Failed
            }
        }
    }

    /// Begins with a queue.
    pub(crate) fn adopt(&self, queue: &MessageQueue) -> Arc<ProcessQueue> {
        let (stats, dropped) = (self.stats.topic(&queue.topic), self.instance.stop.child_token());
        let mut queues = self.queues.lock();
        let progress = self.offsets.progress(queue);
        let process_queue = Arc::new(ProcessQueue::new(queue.clone(), progress, stats, dropped));
        process_queue.set_locked(self.is_locking);
        queues.insert(queue.clone(), process_queue.clone());
        process_queue
    }

    /// Gives a queue up: its progress is stored and its lock given back. False: its listener is still running, and the
    /// next member must wait.
    ///
    /// A rebalance, a reset and a pull at an illegal offset may all do this at the same time.
    pub(crate) async fn give_up(&self, queue: &Arc<ProcessQueue>) -> bool {
        queue.drop_now();
        let mq = &queue.queue;
        let is_ours = |queues: &BTreeMap<_, _>| queues.get(mq).is_some_and(|known| Arc::ptr_eq(known, queue));
        if !is_ours(&self.queues.lock()) {
            return true;
        }
        if self.is_locking {
            self.offsets.persist(mq).await;
            let consuming = timeout(CONSUMING_WAIT, queue.consuming.lock()).await;
            if consuming.is_err() && queue.lock_age() <= UNLOCK_DELAY {
                queue.note_unlock_attempt();
                return false;
            }
            self.offsets.persist(mq).await;
            queue.set_locked(false);
            if let Err(error) = self.instance.unlock_queues(&self.group, BTreeSet::from([mq.clone()])).await {
                tracing::warn!(group = self.group, queue = %mq, %error, "the lock was not given back");
            }
        } else {
            self.offsets.persist(mq).await;
        }
        let mut queues = self.queues.lock();
        if is_ours(&queues) {
            self.offsets.forget(mq);
            queues.remove(mq);
            tracing::info!(group = self.group, queue = %mq, "gave a queue up");
        }
        true
    }

    /// Locks a queue at its broker.
    pub(crate) async fn lock_one(&self, queue: &MessageQueue) -> bool {
        let locked = self.instance.lock_queues(&self.group, BTreeSet::from([queue.clone()])).await;
        match locked {
            Ok(locked) => {
                let is_mine = locked.contains(queue);
                if let Some(process_queue) = self.process_queue(queue).filter(|_| is_mine) {
                    process_queue.set_locked(true);
                }
                is_mine
            }
            Err(error) => {
                tracing::warn!(group = self.group, %queue, %error, "the queue was not locked");
                false
            }
        }
    }

    /// Confirms the locks of all queues from time to time.
    pub(crate) async fn keep_locks(self: Arc<Self>) {
        tokio::time::sleep(INTERVAL_MIN).await;
        loop {
            for queues in self.queues_by_broker() {
                match self.instance.lock_queues(&self.group, queues.clone()).await {
                    Ok(locked) => {
                        for queue in queues {
                            if let Some(process_queue) = self.process_queue(&queue) {
                                process_queue.set_locked(locked.contains(&queue));
                            }
                        }
                    }
                    // The locks hold as long as they were confirmed for.
                    Err(error) => tracing::warn!(group = self.group, %error, "locks were not confirmed"),
                }
            }
            tokio::time::sleep(LOCK_PERIOD).await;
        }
    }

    /// Gives all locks back.
    pub(crate) async fn unlock_all(&self) {
        for queues in self.queues_by_broker() {
            if let Err(error) = self.instance.unlock_queues(&self.group, queues).await {
                tracing::warn!(group = self.group, %error, "locks were not given back");
            }
        }
    }

    fn queues_by_broker(&self) -> Vec<BTreeSet<MessageQueue>> {
        let mut by_broker: BTreeMap<String, BTreeSet<MessageQueue>> = BTreeMap::new();
        for queue in self.process_queues() {
            let queue = queue.queue.clone();
            by_broker.entry(queue.broker_name.clone()).or_default().insert(queue);
        }
        by_broker.into_values().collect()
    }
}

/// What became of the wish to have a queue.
enum TakeOver {
    Done(Assigned),
    /// Somebody else has it locked.
    Locked,
    /// Something else is in the way.
    Failed,
}
