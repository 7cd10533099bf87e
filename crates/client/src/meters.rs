//! What the client measures, under the names that RocketMQ's 5.x clients use, through the `metrics` facade.
//!
//! Handles are made once for each topic and kept by those who measure: a measurement is a few instructions, and nothing
//! without a recorder.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

const SEND_COST_TIME: &str = "rocketmq_send_cost_time";
const PROCESS_TIME: &str = "rocketmq_process_time";
const CACHED_MESSAGES: &str = "rocketmq_consumer_cached_messages";
const CACHED_BYTES: &str = "rocketmq_consumer_cached_bytes";
const REBALANCES: &str = "rocketmq_consumer_rebalances";
const TRACE_RECORDS_LOST: &str = "rocketmq_trace_records_lost";

/// Tells the recorder what the names mean.
pub(crate) fn describe() {
    let ms = Unit::Milliseconds;
    describe_histogram!(SEND_COST_TIME, ms, "How long sends take, with all their attempts");
    describe_histogram!(PROCESS_TIME, ms, "How long listeners take for a delivery");
    describe_gauge!(CACHED_MESSAGES, Unit::Count, "Messages that a consumer has and has not finished");
    describe_gauge!(CACHED_BYTES, Unit::Bytes, "Bytes of the bodies of these");
    describe_counter!(REBALANCES, Unit::Count, "Rebalances that gave or took queues");
    describe_counter!(TRACE_RECORDS_LOST, Unit::Count, "Records of the message trace that were not sent");
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn status(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "failure" }
}

/// Sends to one topic.
pub(crate) struct SendMeter {
    succeeded: Histogram,
}

impl std::fmt::Debug for SendMeter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SendMeter")
    }
}

impl SendMeter {
    pub(crate) fn new(client_id: &str, topic: &str) -> Self {
        Self { succeeded: send_times(client_id, topic, true) }
    }

    pub(crate) fn succeeded(&self, time: Duration) {
        self.succeeded.record(milliseconds(time));
    }

    /// A failed send has taken long enough to look for its histogram.
    pub(crate) fn failed(client_id: &str, topic: &str, time: Duration) {
        send_times(client_id, topic, false).record(milliseconds(time));
    }
}

fn send_times(client_id: &str, topic: &str, succeeded: bool) -> Histogram {
    let (client_id, topic) = (client_id.to_owned(), topic.to_owned());
    histogram!(SEND_COST_TIME, "client_id" => client_id, "topic" => topic, "invocation_status" => status(succeeded))
}

/// A consumer's work on one topic.
pub(crate) struct ConsumeMeter {
    succeeded: Histogram,
    failed: Histogram,
    cached_messages: Gauge,
    cached_bytes: Gauge,
}

impl std::fmt::Debug for ConsumeMeter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ConsumeMeter")
    }
}

impl ConsumeMeter {
    pub(crate) fn new(client_id: &str, group: &str, topic: &str) -> Self {
        let labels = [("client_id", client_id), ("consumer_group", group), ("topic", topic)]
            .map(|(name, value)| (name, value.to_owned()));
        let times = |succeeded| {
            let mut labels = labels.to_vec();
            labels.push(("invocation_status", status(succeeded).to_owned()));
            histogram!(PROCESS_TIME, &labels)
        };
        Self {
            succeeded: times(true),
            failed: times(false),
            cached_messages: gauge!(CACHED_MESSAGES, &labels),
            cached_bytes: gauge!(CACHED_BYTES, &labels),
        }
    }

    pub(crate) fn consumed(&self, time: Duration, succeeded: bool) {
        let times = if succeeded { &self.succeeded } else { &self.failed };
        times.record(milliseconds(time));
    }

    pub(crate) fn cached(&self, messages: usize, bytes: usize) {
        self.cached_messages.set(messages as f64);
        self.cached_bytes.set(bytes as f64);
    }
}

/// Counts the rebalances of a group that changed something.
pub(crate) fn rebalances(client_id: &str, group: &str) -> Counter {
    counter!(REBALANCES, "client_id" => client_id.to_owned(), "consumer_group" => group.to_owned())
}

/// Records of a group's trace that were not sent.
pub(crate) struct LossMeter(Counter);

impl std::fmt::Debug for LossMeter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LossMeter")
    }
}

impl LossMeter {
    pub(crate) fn add(&self, records: usize) {
        self.0.increment(records as u64);
    }
}

/// Counts what a group's trace loses.
pub(crate) fn trace_records_lost(client_id: &str, group: &str) -> LossMeter {
    let (client_id, group) = (client_id.to_owned(), group.to_owned());
    LossMeter(counter!(TRACE_RECORDS_LOST, "client_id" => client_id, "group" => group))
}
