//! QUERY_CORRECTION_OFFSET: the smallest progress of a topic's groups, queue by queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_protocol::body::QueryCorrectionOffsetBody;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;

use super::answer_body;
use crate::answer::Answer;
use crate::broker::Broker;

/// The smallest progress of all groups but the filtered ones; `i64::MAX` where the compared group is behind it.
///
/// RocketMQ deletes the progress of the filtered groups while it answers; this only looks.
pub(super) fn query_correction_offset(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let topic = request.text("topic")?;
    let filtered: Vec<&str> =
        request.field("filterGroups").unwrap_or_default().split(',').map(str::trim).collect();
    let groups =
        broker.offsets.groups_of(topic).into_iter().filter(|group| !filtered.contains(&group.as_str()));
    let progress = groups.map(|group| broker.offsets.offsets_of(&group, topic));
    let compared = broker.offsets.offsets_of(request.text("compareGroup")?, topic);
    answer_body(&QueryCorrectionOffsetBody { correction_offsets: correction(progress, &compared) })
}

fn correction(
    progress: impl Iterator<Item = BTreeMap<i32, i64>>,
    compared: &BTreeMap<i32, i64>,
) -> BTreeMap<i32, i64> {
    let mut smallest = BTreeMap::new();
    for (queue_id, offset) in progress.flatten() {
        let known = smallest.entry(queue_id).or_insert(offset);
        *known = offset.min(*known);
    }
    for (queue_id, offset) in compared {
        if let Some(smallest) = smallest.get_mut(queue_id).filter(|smallest| **smallest > *offset) {
            *smallest = i64::MAX;
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_progress_unless_the_compared_group_is_behind() {
        let groups = [BTreeMap::from([(0, 5), (1, 7)]), BTreeMap::from([(0, 3)])];
        let compared = BTreeMap::from([(0, 4), (1, 6), (2, 1)]);
        let result = correction(groups.into_iter(), &compared);
        assert_eq!(result, BTreeMap::from([(0, 3), (1, i64::MAX)]));
    }
}
