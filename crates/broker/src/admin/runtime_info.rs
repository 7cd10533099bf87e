//! GET_BROKER_RUNTIME_INFO: the table that `brokerStatus`, `clusterList`, the dashboard and the exporter read
//! (`docs/spec/03-broker.md` 10.2).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferromq_protocol::body::KVTable;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::{names, version};
use ferromq_remoting::Connection;
use ferromq_store::StoreStats;
use jiff::Timestamp;

use super::answer_body;
use crate::answer::Answer;
use crate::broker::Broker;
use crate::config::BrokerRole;
use crate::stats::{BrokerStats, MorningTotals, Rate};

/// What RocketMQ shows as free buffers when the transient store pool, which does not exist here, is off.
const NO_TRANSIENT_POOL: i32 = i32::MAX;

pub(super) fn get_broker_runtime_info(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    _: &RemotingCommand,
) -> Answer {
    let config = broker.config();
    let options = broker.store.options();
    let default_log_directory: PathBuf = options.root.join("commitlog");
    let table = runtime_table(&Facts {
        now_ms: Timestamp::now().as_millisecond(),
        stats: &broker.stats,
        store: broker.store.stats(),
        commit_log_directory: options.commit_log_directory.as_deref().unwrap_or(&default_log_directory),
        earliest_message_ms: broker.store.earliest_time_of_log(),
        start_accept_send_ms: config.start_accept_send_request_time_stamp,
        delay_levels: delay_levels(broker),
        is_active: config.broker_role != BrokerRole::Slave,
        queue_capacities: [
            ("send", config.send_thread_pool_queue_capacity),
            ("pull", config.pull_thread_pool_queue_capacity),
            ("litePull", config.lite_pull_thread_pool_queue_capacity),
            ("query", config.query_thread_pool_queue_capacity),
            ("ack", config.ack_thread_pool_queue_capacity),
        ],
        end_transaction_capacity: config.end_transaction_pool_queue_capacity,
        differing_subscriptions: differing_subscriptions(broker),
    });
    answer_body(&KVTable { table })
}

/// Level, delivered offset and end of the queue of every delay level that was ever used.
fn delay_levels(broker: &Broker) -> Vec<(i32, i64, i64)> {
    let used = |(level, delivered)| {
        let queue = broker.store.find_queue(names::SCHEDULE_TOPIC, level - 1)?;
        Some((level, delivered, queue.max_offset()))
    };
    broker.schedule.offsets().into_iter().filter_map(used).collect()
}

/// Groups whose consumers subscribe to different things: `client topic expression, …`.
fn differing_subscriptions(broker: &Broker) -> Vec<(String, String)> {
    let groups = broker.consumers.differing_subscriptions().into_iter();
    let text =
        |(client, topic, expression): (String, String, String)| format!("{client} {topic} `{expression}`");
    groups
        .map(|(group, subscriptions)| {
            (group, subscriptions.into_iter().map(text).collect::<Vec<_>>().join(", "))
        })
        .collect()
}

/// Where the values come from.
struct Facts<'a> {
    now_ms: i64,
    stats: &'a BrokerStats,
    store: StoreStats,
    commit_log_directory: &'a Path,
    /// Store time of the oldest message, ms.
    earliest_message_ms: Option<i64>,
    /// `startAcceptSendRequestTimeStamp`, as configured.
    start_accept_send_ms: u64,
    /// Per delay level: level, delivered offset, end of its queue.
    delay_levels: Vec<(i32, i64, i64)>,
    /// Whether this broker does a master's work.
    is_active: bool,
    /// Name of a kind of requests and the configured length of its queue.
    queue_capacities: [(&'static str, u32); 5],
    /// Configured length of the queue of END_TRANSACTION.
    end_transaction_capacity: u32,
    /// Groups whose consumers subscribe to different things, with a text that says which.
    differing_subscriptions: Vec<(String, String)>,
}

/// The table. It has every key of 4.x and of 5.x: tools lose a whole block of values when one of its keys is missing.
fn runtime_table(facts: &Facts<'_>) -> BTreeMap<String, String> {
    let mut table = Table::default();
    about_the_process(&mut table, facts);
    about_messages(&mut table, facts);
    about_the_log(&mut table, facts);
    about_delays(&mut table, facts);
    about_request_queues(&mut table, facts);
    about_subscriptions(&mut table, facts);
    table.0
}

#[derive(Default)]
struct Table(BTreeMap<String, String>);

impl Table {
    fn put(&mut self, key: impl Into<String>, value: impl ToString) {
        self.0.insert(key.into(), value.to_string());
    }

    /// A double as Java prints it.
    fn put_double(&mut self, key: impl Into<String>, value: f64) {
        self.put(key, ferromq_protocol::json::to_string(&value));
    }
}

fn about_the_process(table: &mut Table, facts: &Facts<'_>) {
    let boot_ms = facts.store.boot_timestamp_ms;
    table.put("bootTimestamp", boot_ms);
    table.put("runtime", running_time((facts.now_ms - boot_ms).max(0)));
    table.put("brokerVersion", version::CURRENT);
    table.put("brokerVersionDesc", version::name(version::CURRENT));
    table.put("brokerActive", facts.is_active);
    table.put("startAcceptSendRequestTimeStamp", facts.start_accept_send_ms);
}

fn about_messages(table: &mut Table, facts: &Facts<'_>) {
    let store = &facts.store;
    let put_times = store.put_total.max(1);
    table.put("putMessageTimesTotal", put_times);
    table.put("putMessageFailedTimes", store.put_failed_total);
    table.put("putMessageSizeTotal", store.put_bytes_total);
    table.put_double("putMessageAverageSize", store.put_bytes_total as f64 / put_times as f64);
    table.put("putMessageEntireTimeMax", store.put_latency_max_us / 1000);
    table.put("getMessageEntireTimeMax", facts.stats.get_ms_max());
    facts.stats.with_recent(|recent| {
        table.put("putTps", recent.text(Rate::Put));
        table.put("getFoundTps", recent.text(Rate::GetFound));
        table.put("getMissTps", recent.text(Rate::GetMiss));
        table.put("getTotalTps", recent.text(Rate::GetTotal));
        // 4.x has one r less.
        for key in ["getTransferredTps", "getTransferedTps"] {
            table.put(key, recent.text(Rate::Transferred));
        }
        let last_minute = recent.last_minute();
        table.put("putMessageDistributeTime", last_minute.map_or("null".to_owned(), |puts| puts.text()));
        for (key, part) in [("putLatency99", 0.99), ("putLatency999", 0.999)] {
            table.put(key, format!("{:.2}", last_minute.map_or(0.0, |puts| puts.quantile_ms(part))));
        }
    });
    let mut put_totals = |direction: &str, (now, mornings): (u64, &MorningTotals)| {
        table.put(format!("msg{direction}TotalYesterdayMorning"), mornings.yesterday_morning());
        table.put(format!("msg{direction}TotalTodayMorning"), mornings.today_morning());
        table.put(format!("msg{direction}TotalTodayNow"), now);
    };
    put_totals("Put", facts.stats.put_totals());
    put_totals("Get", facts.stats.get_totals());
}

fn about_the_log(table: &mut Table, facts: &Facts<'_>) {
    let store = &facts.store;
    table.put("commitLogMinOffset", store.log_min_offset);
    table.put("commitLogMaxOffset", store.log_max_offset);
    table.put("earliestMessageTimeStamp", facts.earliest_message_ms.unwrap_or(-1));
    table.put("dispatchBehindBytes", store.dispatch_behind_bytes);
    table.put("dispatchMaxBuffer", 0);
    table.put("pageCacheLockTimeMills", store.append_lock_held_ms);
    table.put("remainHowManyDataToFlush", human_size(store.flush_behind_bytes));
    table.put("remainTransientStoreBufferNumbs", NO_TRANSIENT_POOL);
    let log_ratio = store.commit_log_disk_ratio.unwrap_or(-1.0);
    table.put_double("commitLogDiskRatio", log_ratio);
    table.put_double(format!("commitLogDiskRatio_{}", facts.commit_log_directory.display()), log_ratio);
    table.put_double("consumeQueueDiskRatio", store.consume_queue_disk_ratio.unwrap_or(-1.0));
    // An unknown size is an empty disk: tools parse the numbers, and nobody takes this one for real.
    let (total, free) = store.commit_log_disk_capacity.unwrap_or_default();
    table.put("commitLogDirCapacity", format!("Total : {}, Free : {}.", human_size(total), human_size(free)));
}

fn about_delays(table: &mut Table, facts: &Facts<'_>) {
    for (level, delivered, end) in &facts.delay_levels {
        table.put(format!("scheduleMessageOffset_{level}"), format!("{delivered},{end}"));
    }
    table.put("timerReadBehind", 0);
    table.put("timerOffsetBehind", 0);
    table.put("timerCongestNum", 0);
    table.put_double("timerEnqueueTps", 0.0);
    table.put_double("timerDequeueTps", 0.0);
}

/// Requests don't wait in queues here: they are handled as they are read. What waits, waits in the sockets.
fn about_request_queues(table: &mut Table, facts: &Facts<'_>) {
    for (kind, capacity) in facts.queue_capacities {
        table.put(format!("{kind}ThreadPoolQueueSize"), 0);
        table.put(format!("{kind}ThreadPoolQueueCapacity"), capacity);
        table.put(format!("{kind}ThreadPoolQueueHeadWaitTimeMills"), 0);
    }
    table.put("EndTransactionQueueSize", 0);
    table.put("EndTransactionThreadPoolQueueCapacity", facts.end_transaction_capacity);
}

/// RocketMQ does not tell: there the members of such a group miss messages, and nobody knows why.
fn about_subscriptions(table: &mut Table, facts: &Facts<'_>) {
    for (group, text) in &facts.differing_subscriptions {
        table.put(format!("differingSubscriptions_{group}"), text);
    }
}

/// `[ 1,234 days, 2 hours, 3 minutes, 4 seconds ]`
fn running_time(duration_ms: i64) -> String {
    let seconds = duration_ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let days = with_thousands_grouped(days);
    format!("[ {days} days, {} hours, {} minutes, {} seconds ]", hours % 24, minutes % 60, seconds % 60)
}

fn with_thousands_grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `252 B`, `1.5 KiB`, `10.0 GiB`
fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let exponent = bytes.ilog2() / 10;
    let unit = UNITS[exponent as usize - 1];
    format!("{:.1} {unit}", bytes as f64 / 1024_f64.powi(exponent.cast_signed()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn table() -> BTreeMap<String, String> {
        let stats = BrokerStats::new("DefaultCluster", [], -1);
        stats.topic_put("orders").add(2, 500);
        let store = StoreStats {
            boot_timestamp_ms: 1_000_000,
            put_total: 3,
            put_bytes_total: 700,
            commit_log_disk_ratio: Some(0.2),
            commit_log_disk_capacity: Some((252 << 30, 10 << 30)),
            flush_behind_bytes: 252,
            ..StoreStats::default()
        };
        runtime_table(&Facts {
            now_ms: 1_000_000 + 298_000,
            stats: &stats,
            store,
            commit_log_directory: Path::new("/data/rmq/store/commitlog"),
            earliest_message_ms: None,
            start_accept_send_ms: 0,
            delay_levels: vec![(3, 6, 7)],
            is_active: true,
            queue_capacities: [("send", 10_000), ("pull", 1), ("litePull", 1), ("query", 20_000), ("ack", 1)],
            end_transaction_capacity: 100_000,
            differing_subscriptions: vec![("pay".to_owned(), "a@1 T `TagA`, b@2 T `TagB`".to_owned())],
        })
    }

    /// Keys of a recorded table, without those that depend on the machine and the load.
    fn recorded_keys(json: &str) -> BTreeSet<String> {
        let table: BTreeMap<String, String> = serde_json::from_str(json).unwrap();
        let varies = |key: &String| key.starts_with("scheduleMessageOffset_") || key.contains('/');
        table.into_keys().filter(|key| !varies(key)).collect()
    }

    #[test]
    fn no_key_of_4_9_and_5_3_is_missing() {
        let ours: BTreeSet<String> = table().into_keys().collect();
        for recorded in [
            include_str!("../../tests/data/runtime-4.9.7.json"),
            include_str!("../../tests/data/runtime-5.3.3.json"),
        ] {
            let missing: Vec<_> = recorded_keys(recorded).difference(&ours).cloned().collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }

    #[test]
    fn values_look_like_java_s() {
        let table = table();
        for (key, value) in [
            ("runtime", "[ 0 days, 0 hours, 4 minutes, 58 seconds ]"),
            ("putMessageAverageSize", "233.33333333333334"),
            ("commitLogDirCapacity", "Total : 252.0 GiB, Free : 10.0 GiB."),
            ("remainHowManyDataToFlush", "252 B"),
            ("commitLogDiskRatio_/data/rmq/store/commitlog", "0.2"),
            ("consumeQueueDiskRatio", "-1.0"),
            ("earliestMessageTimeStamp", "-1"),
            ("scheduleMessageOffset_3", "6,7"),
            ("putMessageDistributeTime", "null"),
            ("putLatency99", "0.00"),
            ("msgPutTotalTodayNow", "2"),
            ("brokerVersionDesc", "V5_3_3"),
            ("brokerVersion", "479"),
            ("brokerActive", "true"),
            ("sendThreadPoolQueueCapacity", "10000"),
            ("differingSubscriptions_pay", "a@1 T `TagA`, b@2 T `TagB`"),
        ] {
            assert_eq!(table[key], value, "{key}");
        }
    }

    #[test]
    fn sizes_and_times_for_people() {
        assert_eq!(human_size(1023), "1023 B");
        assert_eq!(human_size(2355), "2.3 KiB");
        assert_eq!(human_size(u64::MAX), "16.0 EiB");
        assert_eq!(
            running_time(1234 * 86_400_000 + 3_600_000),
            "[ 1,234 days, 1 hours, 0 minutes, 0 seconds ]"
        );
        assert_eq!(with_thousands_grouped(1_234_567), "1,234,567");
    }
}
