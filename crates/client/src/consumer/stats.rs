//! How fast a consumer consumes, for administrators and for metrics (`docs/spec/07-client.md` 20.2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferromq_protocol::body::ConsumeStatus;
use metrics::Counter;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::subscriber::Subscriber;
use crate::meters::{self, ConsumeMeter};

/// How often counts are noted.
const SAMPLE_PERIOD: Duration = Duration::from_secs(10);
/// Samples that make the last minute: the difference to the oldest one counts.
const MINUTE_SAMPLES: usize = 7;
/// One in so many is noted for the last hour, too: every 10 minutes.
const HOUR_SAMPLE_EVERY: u64 = 60;
/// Samples that make the last hour.
const HOUR_SAMPLES: usize = 7;

/// The counts of one consumer, by topic.
#[derive(Debug)]
pub(crate) struct ConsumerStats {
    client_id: String,
    group: String,
    topics: Mutex<BTreeMap<String, Arc<TopicStats>>>,
    rebalances: Rebalances,
}

struct Rebalances(Counter);

impl std::fmt::Debug for Rebalances {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Rebalances")
    }
}

/// The counts of one topic. Those who count only add to numbers; samples of them are taken by a task.
#[derive(Debug)]
pub(crate) struct TopicStats {
    pulls: AtomicU64,
    pull_us: AtomicU64,
    pulled: AtomicU64,
    deliveries: AtomicU64,
    consume_us: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    meter: ConsumeMeter,
    history: Mutex<History>,
}

/// What the counts were, and when.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    pulls: u64,
    pull_us: u64,
    pulled: u64,
    deliveries: u64,
    consume_us: u64,
    succeeded: u64,
    failed: u64,
}

#[derive(Debug)]
struct History {
    minute: VecDeque<Sample>,
    hour: VecDeque<Sample>,
    taken: u64,
}

impl ConsumerStats {
    pub(crate) fn new(client_id: &str, group: &str) -> Self {
        Self {
            client_id: client_id.to_owned(),
            group: group.to_owned(),
            topics: Mutex::default(),
            rebalances: Rebalances(meters::rebalances(client_id, group)),
        }
    }

    /// The counts of a topic.
    pub(crate) fn topic(&self, topic: &str) -> Arc<TopicStats> {
        let mut topics = self.topics.lock();
        if let Some(known) = topics.get(topic) {
            return known.clone();
        }
        let stats = Arc::new(TopicStats::new(ConsumeMeter::new(&self.client_id, &self.group, topic)));
        topics.insert(topic.to_owned(), stats.clone());
        stats
    }

    /// A rebalance has changed something.
    pub(crate) fn rebalanced(&self) {
        self.rebalances.0.increment(1);
    }

    /// Speeds by topic.
    pub(crate) fn status_table(&self) -> BTreeMap<String, ConsumeStatus> {
        self.topics.lock().iter().map(|(topic, stats)| (topic.clone(), stats.status())).collect()
    }

    fn all(&self) -> Vec<(String, Arc<TopicStats>)> {
        self.topics.lock().iter().map(|(topic, stats)| (topic.clone(), stats.clone())).collect()
    }
}

impl TopicStats {
    fn new(meter: ConsumeMeter) -> Self {
        let stats = Self {
            pulls: AtomicU64::new(0),
            pull_us: AtomicU64::new(0),
            pulled: AtomicU64::new(0),
            deliveries: AtomicU64::new(0),
            consume_us: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            meter,
            history: Mutex::new(History { minute: VecDeque::new(), hour: VecDeque::new(), taken: 0 }),
        };
        stats.sample();
        stats
    }

    /// A pull has brought messages.
    pub(crate) fn pulled(&self, time: Duration, messages: usize) {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        self.pull_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
        self.pulled.fetch_add(messages as u64, Ordering::Relaxed);
    }

    /// A listener has returned.
    pub(crate) fn consumed(&self, time: Duration, succeeded: usize, failed: usize) {
        self.deliveries.fetch_add(1, Ordering::Relaxed);
        self.consume_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
        self.succeeded.fetch_add(succeeded as u64, Ordering::Relaxed);
        if failed > 0 {
            self.failed.fetch_add(failed as u64, Ordering::Relaxed);
        }
        self.meter.consumed(time, failed == 0);
    }

    fn now(&self) -> Sample {
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Sample {
            at: Instant::now(),
            pulls: count(&self.pulls),
            pull_us: count(&self.pull_us),
            pulled: count(&self.pulled),
            deliveries: count(&self.deliveries),
            consume_us: count(&self.consume_us),
            succeeded: count(&self.succeeded),
            failed: count(&self.failed),
        }
    }

    /// Notes the counts as they are.
    fn sample(&self) {
        let now = self.now();
        let mut history = self.history.lock();
        push(&mut history.minute, now, MINUTE_SAMPLES);
        if history.taken.is_multiple_of(HOUR_SAMPLE_EVERY) {
            push(&mut history.hour, now, HOUR_SAMPLES);
        }
        history.taken += 1;
    }

    pub(super) fn status(&self) -> ConsumeStatus {
        let now = self.now();
        let history = self.history.lock();
        let since = |samples: &VecDeque<Sample>| *samples.front().unwrap_or(&now);
        let (minute, hour) = (since(&history.minute), since(&history.hour));
        let seconds = (now.at - minute.at).as_secs_f64().max(0.001);
        let rate = |end: u64, begin: u64| (end - begin) as f64 / seconds;
        let average_ms = |total_us: u64, count: u64| {
            if count == 0 { 0.0 } else { total_us as f64 / 1000.0 / count as f64 }
        };
        // A topic on which nothing was consumed for a minute still shows how long it took before.
        let consumed_since = if now.deliveries > minute.deliveries { minute } else { hour };
        ConsumeStatus {
            pull_rt: average_ms(now.pull_us - minute.pull_us, now.pulls - minute.pulls),
            pull_tps: rate(now.pulled, minute.pulled),
            consume_rt: average_ms(
                now.consume_us - consumed_since.consume_us,
                now.deliveries - consumed_since.deliveries,
            ),
            consume_ok_tps: rate(now.succeeded, minute.succeeded),
            consume_failed_tps: rate(now.failed, minute.failed),
            consume_failed_msgs: (now.failed - hour.failed) as i64,
        }
    }
}

fn push(samples: &mut VecDeque<Sample>, sample: Sample, max: usize) {
    if samples.len() == max {
        samples.pop_front();
    }
    samples.push_back(sample);
}

impl Subscriber {
    /// Notes counts, and how much is in memory, from time to time.
    pub(crate) async fn keep_stats(self: Arc<Self>) {
        loop {
            self.note_cached();
            sleep(SAMPLE_PERIOD).await;
            self.stats.all().iter().for_each(|(_, stats)| stats.sample());
        }
    }

    /// Tells the metrics how much is in memory.
    pub(crate) fn note_cached(&self) {
        let pulled = self.process_queues().into_iter();
        let pulled = pulled.map(|queue| {
            let amount = queue.amount();
            (queue.queue.topic.clone(), amount.messages, amount.bytes)
        });
        let popped = self.pop_queues().into_iter();
        let popped = popped.map(|queue| (queue.queue.topic.clone(), queue.count(), queue.bytes()));
        let cached: Vec<_> = pulled.chain(popped).collect();
        for (topic, stats) in self.stats.all() {
            let of_topic = || cached.iter().filter(|(of, ..)| *of == topic);
            let messages = of_topic().map(|(_, count, _)| count).sum();
            stats.meter.cached(messages, of_topic().map(|(.., bytes)| bytes).sum());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn speeds_are_those_of_the_last_minute_and_failures_those_of_the_last_hour() {
        let stats = ConsumerStats::new("me", "g").topic("T");
        assert_eq!(stats.status(), ConsumeStatus::default());
        for _ in 0..6 {
            tokio::time::advance(SAMPLE_PERIOD).await;
            stats.pulled(4 * MS, 30);
            stats.consumed(2 * MS, 9, 0);
            stats.consumed(4 * MS, 0, 1);
            stats.sample();
        }
        let status = stats.status();
        assert_eq!((status.pull_rt, status.pull_tps), (4.0, 3.0));
        assert_eq!((status.consume_rt, status.consume_ok_tps, status.consume_failed_tps), (3.0, 0.9, 0.1));
        assert_eq!(status.consume_failed_msgs, 6);
        for _ in 0..12 {
            tokio::time::advance(SAMPLE_PERIOD).await;
            stats.sample();
        }
        let idle = ConsumeStatus { consume_rt: 3.0, consume_failed_msgs: 6, ..ConsumeStatus::default() };
        assert_eq!(stats.status(), idle);
        for _ in 0..600 {
            tokio::time::advance(SAMPLE_PERIOD).await;
            stats.sample();
        }
        assert_eq!(stats.status(), ConsumeStatus::default());
    }

    #[test]
    fn one_topic_has_one_count() {
        let all = ConsumerStats::new("me", "g");
        assert!(Arc::ptr_eq(&all.topic("T"), &all.topic("T")));
        all.topic("T").consumed(MS, 1, 0);
        assert_eq!(all.status_table().keys().collect::<Vec<_>>(), ["T"]);
    }
}
