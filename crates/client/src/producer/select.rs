//! Which queue gets a message (`docs/spec/07-client.md` 4).

use ferromq_protocol::body::MessageQueue;
use ferromq_protocol::message::java_string_hash;

use super::fault::FaultTable;
use crate::instance::route::PublishInfo;

/// The next queue: in turn, after a failure on another broker than the last time, and with fault tolerance not on a broker
/// that is to be left alone, as long as there is a choice.
pub(crate) fn next_queue<'a>(
    info: &'a PublishInfo,
    faults: Option<&FaultTable>,
    last_broker: Option<&str>,
) -> Option<&'a MessageQueue> {
    let is_other = |queue: &MessageQueue| last_broker.is_none_or(|last| queue.broker_name != last);
    if let Some(faults) = faults {
        if last_broker.is_some() {
            info.reset();
        }
        let available = |queue: &MessageQueue| faults.is_available(&queue.broker_name) && is_other(queue);
        let reachable = |queue: &MessageQueue| faults.is_reachable(&queue.broker_name) && is_other(queue);
        let found = info.next_matching(available).or_else(|| info.next_matching(reachable));
        return found.or_else(|| info.next());
    }
    info.next_matching(is_other).or_else(|| info.next())
}

/// The queue for a sharding key: always the same one, as long as the topic has the same queues. Java clients choose
/// the same with `SelectMessageQueueByHash`.
pub fn select_by_hash<'a>(queues: &'a [MessageQueue], key: &str) -> Option<&'a MessageQueue> {
    let count = i64::try_from(queues.len()).ok()?;
    let position = i64::from(java_string_hash(key)).checked_rem(count)?.unsigned_abs();
    queues.get(usize::try_from(position).ok()?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fault::Outcome;
    use super::*;

    fn info() -> PublishInfo {
        let queues = ["a", "b"].into_iter().flat_map(|b| (0..2).map(move |id| MessageQueue::new("T", b, id)));
        PublishInfo::new(queues.collect())
    }

    fn brokers_of_a_round(info: &PublishInfo, faults: &FaultTable, last: Option<&str>) -> Vec<String> {
        let pick = || next_queue(info, Some(faults), last).unwrap().broker_name.clone();
        let mut brokers: Vec<String> = (0..8).map(|_| pick()).collect();
        brokers.sort();
        brokers.dedup();
        brokers
    }

    #[test]
    fn a_retry_goes_to_another_broker_if_there_is_one() {
        let info = info();
        for _ in 0..8 {
            assert_eq!(next_queue(&info, None, Some("a")).unwrap().broker_name, "b");
        }
        let only = PublishInfo::new(vec![MessageQueue::new("T", "a", 0)]);
        assert_eq!(next_queue(&only, None, Some("a")).unwrap().broker_name, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_failed_is_avoided_and_used_again_later() {
        let (info, faults) = (info(), FaultTable::default());
        faults.update("a", Duration::ZERO, Outcome::Failed);
        assert_eq!(brokers_of_a_round(&info, &faults, None), ["b"]);
        // When all are isolated, one that can be reached is better than none.
        faults.update("b", Duration::ZERO, Outcome::Unreachable);
        assert_eq!(brokers_of_a_round(&info, &faults, None), ["a"]);
        assert_eq!(brokers_of_a_round(&info, &faults, Some("a")), ["a", "b"], "no other choice");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(brokers_of_a_round(&info, &faults, None), ["a", "b"]);
    }

    #[test]
    fn hashes_of_the_spec_25_6() {
        let queues: Vec<_> = (0..8).map(|id| MessageQueue::new("T", "a", id)).collect();
        let chosen = |key| select_by_hash(&queues, key).unwrap().queue_id;
        assert_eq!((chosen("order-1"), chosen("order-2"), chosen("polygenelubricants")), (6, 5, 0));
        assert!(select_by_hash(&[], "k").is_none());
    }
}
