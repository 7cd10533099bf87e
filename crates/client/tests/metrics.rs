//! What a client measures: for the recorder of the application, and for administrators.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::{ConsumeFrom, ConsumeResult, Delivery, Message};
use metrics_util::CompositeKey;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use support::{Cluster, eventually};

/// What was recorded under a name and labels.
struct Seen(Vec<(CompositeKey, DebugValue)>);

impl Seen {
    fn values(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &DebugValue> {
        let has = |key: &CompositeKey, label: &(&str, &str)| {
            key.key().labels().any(|known| (known.key(), known.value()) == *label)
        };
        self.0.iter().filter_map(move |(key, value)| {
            let is_wanted = key.key().name() == name && labels.iter().all(|label| has(key, label));
            is_wanted.then_some(value)
        })
    }

    fn measurements(&self, name: &str, labels: &[(&str, &str)]) -> usize {
        let count = |value: &DebugValue| match value {
            DebugValue::Histogram(times) => times.len(),
            other => panic!("{name} is {other:?}"),
        };
        self.values(name, labels).map(count).sum()
    }
}

#[tokio::test]
async fn sends_deliveries_and_rebalances_are_measured() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let producer = client.producer("p").start().await.unwrap();
    for _ in 0..3 {
        producer.send(Message::new("T", "x")).await.unwrap();
    }
    producer.send_with_selector(Message::new("T", "x"), |_| None).await.unwrap_err();

    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let consumer = client.push_consumer("g").subscribe("T", "*").consume_from(ConsumeFrom::FirstOffset);
    let consumer = consumer
        .listener(move |_: Delivery| {
            let is_first = counter.fetch_add(1, Ordering::Relaxed) == 0;
            async move { if is_first { ConsumeResult::reconsume_later() } else { ConsumeResult::success() } }
        })
        .start()
        .await
        .unwrap();
    eventually("three and one retry", async || calls.load(Ordering::Relaxed) == 4).await;
    let admin = client.admin().timeout(Duration::from_secs(5));
    let status = async |topic: &str| {
        admin.consumer_running_info("g", client.id(), false).await.unwrap().status_table[topic]
    };
    // The listener's last result is counted when it has returned.
    eventually("all is counted", async || status("%RETRY%g").await.consume_ok_tps > 0.0).await;
    let of_topic = status("T").await;
    assert_eq!(of_topic.consume_failed_msgs, 1);
    assert!(of_topic.consume_ok_tps > 0.0 && of_topic.consume_failed_tps > 0.0, "{of_topic:?}");
    assert!(of_topic.pull_tps > 0.0 && of_topic.pull_rt > 0.0, "{of_topic:?}");
    consumer.shutdown().await;

    let recorded = snapshotter.snapshot().into_vec().into_iter();
    let seen = Seen(recorded.map(|(key, _, _, value)| (key, value)).collect());
    let (topic, group, me) = (("topic", "T"), ("consumer_group", "g"), ("client_id", client.id()));
    let (success, failure) = (("invocation_status", "success"), ("invocation_status", "failure"));
    assert_eq!(seen.measurements("rocketmq_send_cost_time", &[me, topic, success]), 3);
    assert_eq!(seen.measurements("rocketmq_send_cost_time", &[me, topic, failure]), 1);
    assert_eq!(seen.measurements("rocketmq_process_time", &[me, group, topic, success]), 2);
    assert_eq!(seen.measurements("rocketmq_process_time", &[me, group, topic, failure]), 1);
    assert_eq!(seen.measurements("rocketmq_process_time", &[me, group, success]), 3, "the retry, too");
    for name in ["rocketmq_consumer_cached_messages", "rocketmq_consumer_cached_bytes"] {
        let left: Vec<_> = seen.values(name, &[me, group, topic]).collect();
        assert_eq!(left, [&DebugValue::Gauge(0.0.into())], "it has nothing after its shutdown");
    }
    let rebalances: Vec<_> = seen.values("rocketmq_consumer_rebalances", &[me, group]).collect();
    assert!(matches!(rebalances[..], [DebugValue::Counter(1..)]), "{rebalances:?}");
    client.shutdown().await;
    cluster.shutdown().await;
}
