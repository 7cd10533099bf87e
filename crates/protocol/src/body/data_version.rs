//! Versions of tables that brokers and name servers compare.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// Which state of a table of configurations this is: body of code 322, and a member of most dumps and files.
///
/// Two are equal if all three numbers are; the later one has the larger `stateVersion`, then `counter`, then
/// `timestamp` (`docs/spec/02-store.md` 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVersion {
    /// How often the table has changed.
    pub counter: i64,
    /// Term of the controller under which the table changed last; 0 without controller. Absent in 4.x.
    pub state_version: i64,
    /// When the table changed last, ms since the epoch.
    pub timestamp: i64,
}

impl DataVersion {
    /// The version of a table that has not changed since it was made at `now`, ms since the epoch.
    pub fn new(now: i64) -> Self {
        DataVersion { timestamp: now, ..DataVersion::default() }
    }

    /// Counts one change of the table at `now`, ms since the epoch, under `state_version`.
    pub fn next_version(&mut self, state_version: i64, now: i64) {
        self.timestamp = now;
        self.state_version = state_version;
        self.counter += 1;
    }
}

impl Ord for DataVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |v: &DataVersion| (v.state_version, v.counter, v.timestamp);
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for DataVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{DV, assert_sample, dv};
    use super::*;
    use crate::json;

    #[test]
    fn sample() {
        assert_sample(&dv(), DV);
    }

    #[test]
    fn of_4_9_has_no_state_version() {
        assert_eq!(json::from_slice(br#"{"counter":7,"timestamp":1700000000000}"#), Ok(dv()));
    }

    #[test]
    fn the_state_version_outweighs_the_counter() {
        let mut later = DataVersion { counter: 1, state_version: 1, timestamp: 0 };
        assert!(later > DataVersion { counter: 9, state_version: 0, timestamp: 9 });
        later.next_version(2, 5);
        assert_eq!(later, DataVersion { counter: 2, state_version: 2, timestamp: 5 });
    }
}
