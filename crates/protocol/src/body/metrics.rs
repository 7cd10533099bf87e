//! How many messages wait for their time or for the end of their transaction, by topic.
//!
//! As files (`docs/spec/02-store.md` 3.11) these are written by [`crate::json::to_vec_standard`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DataVersion;

/// Messages that wait for their time: answer to code 61, and the file `timermetrics`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimerMetricsSerializeWrapper {
    /// Changes with every change of the counts.
    pub data_version: DataVersion,
    /// By topic.
    pub timing_count: BTreeMap<String, Metric>,
}

/// Half messages without an end: the file `transactionMetrics`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TransactionMetricsSerializeWrapper {
    /// Changes with every change of the counts.
    pub data_version: DataVersion,
    /// By topic.
    pub transaction_count: BTreeMap<String, Metric>,
}

/// A count and when it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metric {
    /// How many messages.
    pub count: i64,
    /// When the count changed last, ms since the epoch.
    pub time_stamp: i64,
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn samples() {
        let counts = BTreeMap::from([("T".to_owned(), Metric { count: 1, time_stamp: 1_700_000_000_000 })]);
        let timers = TimerMetricsSerializeWrapper { data_version: dv(), timing_count: counts.clone() };
        assert_sample(
            &timers,
            &format!(
                r#"{{"dataVersion":{DV},"timingCount":{{"T":{{"count":1,"timeStamp":1700000000000}}}}}}"#
            ),
        );
        let transactions =
            TransactionMetricsSerializeWrapper { data_version: dv(), transaction_count: counts };
        assert_sample(
            &transactions,
            &format!(
                r#"{{"dataVersion":{DV},"transactionCount":{{"T":{{"count":1,"timeStamp":1700000000000}}}}}}"#
            ),
        );
    }
}
