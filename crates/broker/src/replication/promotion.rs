//! What a slave that becomes master looks after before it takes messages.

use std::sync::Arc;
use std::time::Duration;

use ferromq_store::ConsumeQueue;
use tokio::task::spawn_blocking;

use crate::broker::{Broker, restore_topics};
use crate::clock;

/// Slaves copy their master's tables every ten seconds, large ones every minute.
const TOLD_WITHIN: Duration = Duration::from_secs(120);

/// Takes over the topics of the last master as soon as everything that the log has now is confirmed: there are no queues before.
pub(super) async fn take_over_topics_when_confirmed(broker: Arc<Broker>) {
    let end = broker.store.appended().get();
    broker.store.confirmed().wait(end).await;
    if let Err(error) = spawn_blocking(move || take_over_topics(&broker)).await {
        tracing::error!(%error, "topics that the last master has just made may be missing");
    }
}

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
