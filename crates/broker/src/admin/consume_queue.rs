//! QUERY_CONSUME_QUEUE: the units of a queue as they are stored.

use std::sync::Arc;

use ferromq_protocol::body::{ConsumeQueueData, QueryConsumeQueueResponseBody, SubscriptionData};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Connection;
use ferromq_store::QueueUnit;

use super::NO_CODE_SET;
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;

/// Most units in one answer.
const COUNT_MAX: usize = 10_000;

pub(super) fn query_consume_queue(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let topic = request.text("topic")?;
    let queue_id: i32 = request.number("queueId")?;
    let index: i64 = request.number("index")?;
    let count: i32 = request.number("count")?;
    broker.store.dispatch_to_confirmed();
    let Some(queue) = broker.store.find_queue(topic, queue_id) else {
        return Err(Refusal::system_error(format!("{queue_id}@{topic} is not exist!")));
    };
    let group = request.field("consumerGroup");
    let subscription = group.and_then(|group| broker.consumers.subscription(group, topic));
    let filter_data = group.map(|group| match &subscription {
        // Filters over properties have data of their own, which this broker does not make.
        Some(_) => "null".to_owned(),
        None => format!("{group}@{topic} is not online!"),
    });
    let count = usize::try_from(count).unwrap_or(0).min(COUNT_MAX);
    let units = broker.store.consume_queue_units(&queue, index, count);
    let queue_data = units.iter().map(|unit| queue_data(unit, subscription.as_deref())).collect();
    let body = QueryConsumeQueueResponseBody {
        filter_data,
        max_queue_index: queue.max_offset(),
        min_queue_index: queue.min_offset(),
        queue_data,
        subscription_data: subscription.as_deref().cloned(),
    };
    Ok(RemotingCommand::success().with_remark(NO_CODE_SET).with_body(json::to_vec(&body)))
}

fn queue_data(unit: &QueueUnit, subscription: Option<&SubscriptionData>) -> ConsumeQueueData {
    ConsumeQueueData {
        eval: subscription.is_some_and(|subscription| matches(unit.tags_code, subscription)),
        physic_offset: i64::try_from(unit.physical_offset).unwrap_or(i64::MAX),
        physic_size: i32::try_from(unit.size).unwrap_or(i32::MAX),
        tags_code: unit.tags_code,
        ..ConsumeQueueData::default()
    }
}

/// Whether a subscription lets a unit pass, as far as its tags code tells.
fn matches(tags_code: i64, subscription: &SubscriptionData) -> bool {
    subscription.sub_string == "*" || subscription.code_set.iter().any(|code| i64::from(*code) == tags_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_judged_by_its_tags_code() {
        let unit = QueueUnit { queue_offset: 0, physical_offset: 209, size: 202, tags_code: 2_598_919 };
        let by_tag = SubscriptionData {
            sub_string: "TagA".to_owned(),
            code_set: [2_598_919].into(),
            ..Default::default()
        };
        assert!(queue_data(&unit, Some(&by_tag)).eval);
        assert!(!queue_data(&QueueUnit { tags_code: 0, ..unit }, Some(&by_tag)).eval);
        let all = SubscriptionData { sub_string: "*".to_owned(), ..Default::default() };
        assert!(queue_data(&unit, Some(&all)).eval);
        assert!(!queue_data(&unit, None).eval);
        assert_eq!(queue_data(&unit, None).physic_size, 202);
    }
}
