//! What a slave that becomes master looks after before it takes messages.

use std::time::Duration;

use ferromq_store::ConsumeQueue;

use crate::broker::{Broker, restore_topics};
use crate::clock;

/// Slaves copy their master's tables every ten seconds, large ones every minute.
const TOLD_WITHIN: Duration = Duration::from_secs(120);

/// Makes the topics that the last master made and had no time to tell of. Those that are older it has deleted. May wait for the disk.
pub(super) fn take_over_topics(broker: &Broker) {
    broker.store.dispatch_to_confirmed();
    let told_ms = clock::now_ms() - TOLD_WITHIN.as_millis() as i64;
    let is_new = |queue: &ConsumeQueue| {
        queue.min_offset() == 0
            && broker.store.earliest_time(queue).is_some_and(|first_ms| first_ms > told_ms)
    };
    restore_topics(&broker.topics, &broker.store, is_new);
}
