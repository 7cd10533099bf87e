//! Queue locks of orderly consumers: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42) (`docs/spec/03-broker.md` 5).
//!
//! A lock is a lease: it ends 60 s after its owner renewed it last. Other than in Java it also ends with its owner's
//! connection, so that the queues of a consumer that was killed go on within seconds. A client that lost its connection
//! but not its life has [`RECONNECT_GRACE`] to come back: a heartbeat or a lock request under the same client id, over
//! any connection, keeps the lock.

mod quorum;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferromq_protocol::body::{LockBatchRequestBody, LockBatchResponseBody, MessageQueue};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Connection;
use parking_lot::Mutex;

use crate::answer::Answer;
use crate::broker::Broker;
use crate::service::{Handler, PendingAnswer};

/// How long a lock lives after it was taken or renewed (`rocketmq.broker.rebalance.lockMaxLiveTime`). Clients renew every
/// 20 s.
const LIVE_MAX: Duration = Duration::from_secs(60);

/// How long a lock outlives its owner's last connection.
const RECONNECT_GRACE: Duration = Duration::from_secs(5);

/// Who holds which queue. Memory only.
#[derive(Debug, Default)]
pub(crate) struct QueueLocks {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: HashMap<Arc<str>, HashMap<MessageQueue, Lock>>,
    /// The groups in which each connection may hold locks.
    by_connection: HashMap<u64, HashSet<Arc<str>>>,
}

#[derive(Debug)]
struct Lock {
    client_id: Arc<str>,
    /// Over which connection its owner was heard of last.
    connection: u64,
    renewed: Instant,
    /// When the owner lost that connection, if it has not come back.
    orphaned: Option<Instant>,
}

impl Lock {
    fn is_live(&self, now: Instant) -> bool {
        let within = |since, limit| now.saturating_duration_since(since) <= limit;
        within(self.renewed, LIVE_MAX) && self.orphaned.is_none_or(|since| within(since, RECONNECT_GRACE))
    }
}

impl QueueLocks {
    /// Locks what is free, expired or already the client's own; returns what the client holds now.
    pub(crate) fn lock(
        &self,
        group: &str,
        client_id: &str,
        connection: u64,
        queues: impl IntoIterator<Item = MessageQueue>,
        now: Instant,
    ) -> BTreeSet<MessageQueue> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let group = known_name(&state.groups, group);
        let client_id: Arc<str> = client_id.into();
        let locks = state.groups.entry(group.clone()).or_default();
        let mut granted = BTreeSet::new();
        for queue in queues {
            let held_by_other =
                locks.get(&queue).is_some_and(|lock| lock.is_live(now) && lock.client_id != client_id);
            if !held_by_other {
                let lock = Lock { client_id: client_id.clone(), connection, renewed: now, orphaned: None };
                locks.insert(queue.clone(), lock);
                granted.insert(queue);
            }
        }
        if locks.is_empty() {
            state.groups.remove(&group);
        } else {
            state.by_connection.entry(connection).or_default().insert(group);
        }
        granted
    }

    /// Gives back those of the queues that the client holds.
    pub(crate) fn unlock<'q>(
        &self,
        group: &str,
        client_id: &str,
        queues: impl IntoIterator<Item = &'q MessageQueue>,
    ) {
        let mut state = self.state.lock();
        let Some(locks) = state.groups.get_mut(group) else { return };
        for queue in queues {
            if locks.get(queue).is_some_and(|lock| &*lock.client_id == client_id) {
                locks.remove(queue);
            }
        }
        if locks.is_empty() {
            state.groups.remove(group);
        }
    }

    /// Whether anybody consumes the group in order: such a group's failed messages are not retried later, they become
    /// dead letters (2.6).
    pub(crate) fn has_live_lock(&self, group: &str, now: Instant) -> bool {
        let state = self.state.lock();
        state.groups.get(group).is_some_and(|locks| locks.values().any(|lock| lock.is_live(now)))
    }

    /// A client was heard of: the locks that it had when it lost its connection stay its own.
    pub(crate) fn adopt(&self, group: &str, client_id: &str, connection: u64, now: Instant) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some((group, _)) = state.groups.get_key_value(group) else { return };
        let group = group.clone();
        let mut adopted = false;
        for lock in state.groups.get_mut(&group).into_iter().flat_map(HashMap::values_mut) {
            if lock.orphaned.is_some() && &*lock.client_id == client_id && lock.is_live(now) {
                (lock.connection, lock.orphaned) = (connection, None);
                adopted = true;
            }
        }
        if adopted {
            state.by_connection.entry(connection).or_default().insert(group);
        }
    }

    /// A connection ended. `is_online` says whether a client still is a member of a group over another one.
    pub(crate) fn connection_closed(
        &self,
        connection: u64,
        is_online: impl Fn(&str, &str) -> bool,
        now: Instant,
    ) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for group in state.by_connection.remove(&connection).unwrap_or_default() {
            for lock in state.groups.get_mut(&group).into_iter().flat_map(HashMap::values_mut) {
                if lock.connection == connection && !is_online(&group, &lock.client_id) {
                    lock.orphaned = Some(now);
                }
            }
        }
    }

    /// Forgets what nobody holds any more. Called now and then, so that memory does not grow.
    pub(crate) fn remove_expired(&self, now: Instant) {
        self.state.lock().groups.retain(|_, locks| {
            locks.retain(|_, lock| lock.is_live(now));
            !locks.is_empty()
        });
    }
}

/// The group's name as the table holds it, so that it is stored once.
fn known_name<V>(groups: &HashMap<Arc<str>, V>, group: &str) -> Arc<str> {
    groups.get_key_value(group).map_or_else(|| group.into(), |(name, _)| name.clone())
}

/// The handlers of this module.
pub(crate) fn route(code: i32) -> Option<Handler> {
    match code {
        request::LOCK_BATCH_MQ => Some(Handler::Async(lock_batch_mq)),
        request::UNLOCK_BATCH_MQ => Some(Handler::Inline(unlock_batch_mq)),
        _ => None,
    }
}

fn lock_batch_mq(
    broker: Arc<Broker>,
    connection: Arc<Connection>,
    request: RemotingCommand,
) -> PendingAnswer {
    Box::pin(async move {
        let mut asked: LockBatchRequestBody = json::from_slice(&request.body)?;
        let (group, client_id) = (&asked.consumer_group, &asked.client_id);
        // What another broker of the set asks for lives as long as the client's own connection to this one.
        let own = asked.only_this_broker.then(|| broker.consumers.find(group, client_id)).flatten();
        let owner = own.map_or(connection.id(), |client| client.connection.id());
        let queues = std::mem::take(&mut asked.mq_set);
        let mut lock_ok_mq_set = broker.locks.lock(group, client_id, owner, queues, Instant::now());
        if quorum::is_needed(&broker.config(), &asked) {
            asked.mq_set = lock_ok_mq_set;
            lock_ok_mq_set = quorum::granted(&broker, asked).await;
        }
        Ok(RemotingCommand::success().with_body(json::to_vec(&LockBatchResponseBody { lock_ok_mq_set })))
    })
}

fn unlock_batch_mq(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let asked: LockBatchRequestBody = json::from_slice(&request.body)?;
    broker.locks.unlock(&asked.consumer_group, &asked.client_id, &asked.mq_set);
    if quorum::is_needed(&broker.config(), &asked) {
        quorum::give_back(broker, asked);
    }
    Ok(RemotingCommand::success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue(queue_id: i32) -> MessageQueue {
        MessageQueue::new("T", "broker-a", queue_id)
    }

    /// Locks queue 0 over the connection with the number of the client.
    fn take(locks: &QueueLocks, client: &str, connection: u64, now: Instant) -> bool {
        !locks.lock("G", client, connection, [queue(0)], now).is_empty()
    }

    #[test]
    fn a_lock_keeps_others_out_until_it_is_given_back() {
        let (locks, now) = (QueueLocks::default(), Instant::now());
        let all = locks.lock("G", "A", 1, [queue(0), queue(1)], now);
        assert_eq!(all, BTreeSet::from([queue(0), queue(1)]));
        let rest = locks.lock("G", "B", 2, [queue(1), queue(2)], now);
        assert_eq!(rest, BTreeSet::from([queue(2)]));
        assert_eq!(locks.lock("other", "B", 2, [queue(1)], now).len(), 1, "groups do not see each other");
        locks.unlock("G", "B", &[queue(0)]);
        assert!(!take(&locks, "B", 2, now), "only the owner can give it back");
        locks.unlock("G", "A", &[queue(0)]);
        assert!(take(&locks, "B", 2, now));
    }

    #[test]
    fn a_lock_expires_unless_renewed_the_worked_example_of_20_7() {
        let (locks, now) = (QueueLocks::default(), Instant::now());
        assert!(take(&locks, "A", 1, now));
        assert!(!take(&locks, "B", 2, now + Duration::from_millis(59_900)));
        assert!(take(&locks, "B", 2, now + Duration::from_millis(60_100)));
        locks.unlock("G", "A", &[queue(0)]);
        assert!(!take(&locks, "A", 1, now + Duration::from_millis(60_200)), "the unlock removed nothing");
        assert!(take(&locks, "B", 2, now + 100 * SECOND));
        assert!(!take(&locks, "A", 1, now + 159 * SECOND), "renewed at 100 s");
    }

    #[test]
    fn a_lock_ends_seconds_after_its_owners_connection() {
        let (locks, now) = (QueueLocks::default(), Instant::now());
        assert!(take(&locks, "A", 1, now));
        locks.connection_closed(1, |_, _| false, now + SECOND);
        assert!(!take(&locks, "B", 2, now + 5 * SECOND));
        assert!(take(&locks, "B", 2, now + 7 * SECOND));
        locks.connection_closed(1, |_, _| false, now + 8 * SECOND);
        assert!(!take(&locks, "A", 3, now + 20 * SECOND), "the lock is not that connection's any more");
    }

    #[test]
    fn an_owner_that_comes_back_keeps_its_lock() {
        let (locks, now) = (QueueLocks::default(), Instant::now());
        assert!(take(&locks, "A", 1, now));
        locks.connection_closed(1, |_, _| false, now);
        locks.adopt("G", "other", 2, now + SECOND);
        locks.adopt("G", "A", 3, now + SECOND);
        assert!(!take(&locks, "B", 2, now + 30 * SECOND));
        locks.connection_closed(3, |_, _| false, now + 31 * SECOND);
        assert!(take(&locks, "B", 2, now + 37 * SECOND));

        assert!(take(&locks, "B", 2, now + 40 * SECOND));
        locks.connection_closed(2, |_, _| false, now + 40 * SECOND);
        assert!(take(&locks, "B", 4, now + 41 * SECOND));
        assert!(!take(&locks, "C", 5, now + 50 * SECOND));
    }

    #[test]
    fn an_owner_with_a_second_connection_has_not_left() {
        let (locks, now) = (QueueLocks::default(), Instant::now());
        assert!(take(&locks, "A", 1, now));
        locks.connection_closed(1, |group, client| (group, client) == ("G", "A"), now);
        assert!(!take(&locks, "B", 2, now + 10 * SECOND));
    }

    #[test]
    fn expired_locks_count_for_nothing_and_are_forgotten() {
        let (locks, now) = (QueueLocks::default(), Instant::now());
        assert!(!locks.has_live_lock("G", now));
        assert!(take(&locks, "A", 1, now));
        assert!(locks.has_live_lock("G", now + 60 * SECOND));
        assert!(!locks.has_live_lock("G", now + 61 * SECOND));
        locks.remove_expired(now + 60 * SECOND);
        assert_eq!(locks.state.lock().groups.len(), 1);
        locks.remove_expired(now + 61 * SECOND);
        assert!(locks.state.lock().groups.is_empty());
    }
}
