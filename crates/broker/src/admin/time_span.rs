//! QUERY_CONSUME_TIME_SPAN: how old the messages are that a group is at.

use std::sync::Arc;

use ferromq_protocol::body::{MessageQueue, QueryConsumeTimeSpanBody, QueueTimeSpan};
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::answer_body;
use super::topic::unknown_topic;
use crate::answer::Answer;
use crate::broker::Broker;

/// Shown for a time that is not known.
const UNKNOWN_MS: i64 = -1;

pub(super) fn query_consume_time_span(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let (topic, group) = (request.text("topic")?, request.text("group")?);
    let Some(config) = broker.topics.get(topic) else { return Err(unknown_topic(topic)) };
    broker.store.dispatch_to_confirmed();
    let (broker_name, now_ms, time_zone) =
        (&broker.config().broker_name, Timestamp::now().as_millisecond(), TimeZone::system());
    let spans = (0..config.write_queue_nums).map(|queue_id| {
        let times = queue_times(broker, group, topic, queue_id);
        let queue = MessageQueue::new(topic, broker_name, queue_id);
        span(queue, &times, now_ms, &time_zone)
    });
    answer_body(&QueryConsumeTimeSpanBody { consume_time_span_set: spans.collect() })
}

/// Store times, ms, of messages of a queue.
#[derive(Default)]
struct QueueTimes {
    oldest: Option<i64>,
    newest: Option<i64>,
    last_consumed: Option<i64>,
    /// Of the message that is consumed next, if there is one.
    next: Option<i64>,
}

fn queue_times(broker: &Broker, group: &str, topic: &str, queue_id: i32) -> QueueTimes {
    let Some(queue) = broker.store.find_queue(topic, queue_id) else { return QueueTimes::default() };
    let (min_offset, max_offset) = (queue.min_offset(), queue.max_offset());
    let committed = broker.offsets.committed(group, topic, queue_id).unwrap_or(min_offset);
    let next = committed.max(min_offset);
    let time_at = |offset: i64| broker.store.store_time_at(&queue, offset);
    QueueTimes {
        oldest: broker.store.earliest_time(&queue),
        newest: time_at(max_offset - 1),
        last_consumed: if committed > 0 { time_at(committed - 1) } else { None },
        next: if next < max_offset { time_at(next) } else { None },
    }
}

/// RocketMQ takes the time since 1970 for the delay of a queue without messages; here nothing waits in it.
fn span(message_queue: MessageQueue, times: &QueueTimes, now_ms: i64, time_zone: &TimeZone) -> QueueTimeSpan {
    let min_time_stamp = times.oldest.unwrap_or(UNKNOWN_MS);
    let max_time_stamp = times.newest.unwrap_or(UNKNOWN_MS);
    let consume_time_stamp = times.last_consumed.unwrap_or(min_time_stamp);
    let text = |ms| Some(time_text(ms, time_zone));
    QueueTimeSpan {
        consume_time_stamp,
        consume_time_stamp_str: text(consume_time_stamp),
        delay_time: times.next.map_or(0, |next_ms| (now_ms - next_ms).max(0)),
        max_time_stamp,
        max_time_stamp_str: text(max_time_stamp),
        message_queue,
        min_time_stamp,
        min_time_stamp_str: text(min_time_stamp),
    }
}

/// `yyyy-MM-dd#HH:mm:ss:SSS`
fn time_text(ms: i64, time_zone: &TimeZone) -> String {
    let time = time_zone.to_datetime(Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH));
    format!("{}:{:03}", time.strftime("%Y-%m-%d#%H:%M:%S"), time.millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span_of(times: &QueueTimes) -> QueueTimeSpan {
        span(MessageQueue::default(), times, 2000, &TimeZone::UTC)
    }

    #[test]
    fn nothing_waits_in_an_empty_queue() {
        let span = span_of(&QueueTimes::default());
        assert_eq!((span.min_time_stamp, span.max_time_stamp, span.consume_time_stamp), (-1, -1, -1));
        assert_eq!(span.delay_time, 0);
        assert_eq!(span.min_time_stamp_str.as_deref(), Some("1969-12-31#23:59:59:999"));
    }

    #[test]
    fn the_delay_is_that_of_the_next_message() {
        let times =
            QueueTimes { oldest: Some(500), newest: Some(1500), last_consumed: None, next: Some(500) };
        let span = span_of(&times);
        assert_eq!((span.consume_time_stamp, span.delay_time), (500, 1500));
        let span = span_of(&QueueTimes { last_consumed: Some(1500), next: None, ..times });
        assert_eq!((span.consume_time_stamp, span.delay_time), (1500, 0));
    }
}
