//! QUERY_ASSIGNMENT (400): the broker shares out a topic's queues among a group's consumers
//! (`docs/spec/03-broker.md` 4.9).

use std::sync::Arc;

use ferromq_protocol::body::{
    MessageModel, MessageQueue, MessageQueueAssignment, MessageRequestMode, QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_protocol::names::RETRY_PREFIX;
use ferromq_remoting::Connection;

use crate::answer::Answer;
use crate::broker::Broker;
use crate::config::MessageRequestMode as ConfiguredMode;
use crate::service::Handler;
use crate::topics::PERM_READ;

pub(super) fn route(code: i32) -> Option<Handler> {
    (code == request::QUERY_ASSIGNMENT).then_some(Handler::Inline(query_assignment))
}

fn query_assignment(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    let question: QueryAssignmentRequestBody = json::from_slice(&request.body)?;
    let (mode, pop_share_queue_num) = mode_of(broker, &question.consumer_group, &question.topic);
    let queues = assign(broker, &question, mode, pop_share_queue_num);
    let assignment = |message_queue| MessageQueueAssignment { attachments: None, message_queue, mode };
    let body = QueryAssignmentResponseBody {
        message_queue_assignments: queues.map(|queues| queues.into_iter().map(assignment).collect()),
    };
    Ok(RemotingCommand::success().with_body(json::to_vec(&body)))
}

fn mode_of(broker: &Broker, group: &str, topic: &str) -> (MessageRequestMode, i32) {
    let config = broker.config();
    broker.request_modes.get(group, topic).unwrap_or_else(|| {
        let by_default = match config.default_message_request_mode {
            ConfiguredMode::Pop if !topic.starts_with(RETRY_PREFIX) => MessageRequestMode::Pop,
            _ => MessageRequestMode::Pull,
        };
        (by_default, config.default_pop_share_queue_num)
    })
}

/// The queues that the client shall have; `None` if that can't be said, and the client keeps what it has.
fn assign(
    broker: &Broker,
    question: &QueryAssignmentRequestBody,
    mode: MessageRequestMode,
    pop_share_queue_num: i32,
) -> Option<Vec<MessageQueue>> {
    let mut queues = readable_queues(broker, &question.topic)?;
    if question.message_model == Some(MessageModel::Broadcasting)
        || !broker.config().server_load_balancer_enable
    {
        return Some(queues);
    }
    queues.sort_unstable();
    let mut clients: Vec<_> = broker
        .consumers
        .clients(&question.consumer_group)
        .into_iter()
        .map(|client| client.client_id)
        .collect();
    // A client with two connections takes part once.
    clients.sort_unstable();
    clients.dedup();
    if clients.is_empty() {
        return None;
    }
    let Ok(index) = clients.binary_search_by(|client| (**client).cmp(question.client_id.as_str())) else {
        return Some(Vec::new());
    };
    match mode {
        MessageRequestMode::Pull => share(&question.strategy_name, &queues, clients.len(), index),
        MessageRequestMode::Pop => Some(share_for_pop(&queues, clients.len(), index, pop_share_queue_num)),
    }
}

/// The topic's queues. Only those of this broker: it knows no others yet.
fn readable_queues(broker: &Broker, topic: &str) -> Option<Vec<MessageQueue>> {
    let config = broker.topics.get(topic)?;
    let broker_config = broker.config();
    let readable = config.perm & PERM_READ != 0;
    let queues = if readable { config.read_queue_nums.max(0) } else { 0 };
    Some((0..queues).map(|queue_id| MessageQueue::new(topic, &broker_config.broker_name, queue_id)).collect())
}

/// The queues of one of `clients` consumers by one of the strategies that clients know as well.
fn share(strategy: &str, queues: &[MessageQueue], clients: usize, index: usize) -> Option<Vec<MessageQueue>> {
    match strategy {
        "AVG" => Some(average(queues, clients, index).to_vec()),
        "AVG_BY_CIRCLE" => Some(queues.iter().skip(index).step_by(clients).cloned().collect()),
        _ => None,
    }
}

/// Neighbouring queues, the same number for everyone and one more for the first ones.
fn average(queues: &[MessageQueue], clients: usize, index: usize) -> &[MessageQueue] {
    let (each, more) = (queues.len() / clients, queues.len() % clients);
    let start = index * each + index.min(more);
    &queues[start..start + each + usize::from(index < more)]
}

/// POP lets consumers share queues: all of them, or each its own and those of the next few.
fn share_for_pop(queues: &[MessageQueue], clients: usize, index: usize, with_next: i32) -> Vec<MessageQueue> {
    let with_next = usize::try_from(with_next).unwrap_or(0);
    if with_next == 0 || with_next >= clients - 1 {
        let mut all: Vec<_> =
            queues.iter().map(|queue| MessageQueue { queue_id: -1, ..queue.clone() }).collect();
        all.dedup();
        return all;
    }
    if clients > queues.len() {
        return queues.get(index % queues.len().max(1)).cloned().into_iter().collect();
    }
    let sharing = (0..=with_next).map(|step| (index + step) % clients);
    sharing.flat_map(|index| average(queues, clients, index)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(number: i32) -> Vec<MessageQueue> {
        (0..number).map(|queue_id| MessageQueue::new("T", "b", queue_id)).collect()
    }

    fn ids<'q>(queues: impl IntoIterator<Item = &'q MessageQueue>) -> Vec<i32> {
        queues.into_iter().map(|queue| queue.queue_id).collect()
    }

    fn shares(strategy: &str, number: i32, clients: usize) -> Vec<Vec<i32>> {
        let queues = queues(number);
        (0..clients).map(|index| ids(&share(strategy, &queues, clients, index).unwrap())).collect()
    }

    #[test]
    fn average_gives_neighbours() {
        assert_eq!(shares("AVG", 8, 3), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
        assert_eq!(shares("AVG", 4, 2), [[0, 1], [2, 3]]);
        assert_eq!(shares("AVG", 2, 3), [vec![0], vec![1], vec![]]);
        assert_eq!(shares("AVG", 0, 2), [[0; 0], []]);
    }

    #[test]
    fn circle_deals_out() {
        assert_eq!(shares("AVG_BY_CIRCLE", 8, 3), [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        assert_eq!(shares("AVG_BY_CIRCLE", 2, 3), [vec![0], vec![1], vec![]]);
    }

    #[test]
    fn other_strategies_are_not_ours_to_follow() {
        assert_eq!(share("CONFIG", &queues(4), 1, 0), None);
    }

    /// The formula of 4.9, which [`average`] simplifies.
    #[test]
    fn average_is_that_of_the_clients() {
        for number in 0..20_usize {
            for clients in 1..20 {
                for index in 0..clients {
                    let more = number % clients;
                    let size =
                        if number <= clients { 1 } else { number / clients + usize::from(index < more) };
                    let start = if more > 0 && index < more { index * size } else { index * size + more };
                    let expected: Vec<i32> =
                        (start..(start + size).min(number)).map(|queue_id| queue_id as i32).collect();
                    assert_eq!(ids(average(&queues(number as i32), clients, index)), expected);
                }
            }
        }
    }

    #[test]
    fn pop_shares_all_queues_of_each_broker() {
        let mut two_brokers = queues(4);
        two_brokers.extend((0..2).map(|queue_id| MessageQueue::new("T", "c", queue_id)));
        let all = share_for_pop(&two_brokers, 3, 0, 0);
        assert_eq!(all, [MessageQueue::new("T", "b", -1), MessageQueue::new("T", "c", -1)]);
        assert_eq!(share_for_pop(&two_brokers, 3, 0, -1), all);
        assert_eq!(share_for_pop(&two_brokers, 3, 0, 2), all);
    }

    #[test]
    fn pop_shares_the_queues_of_the_next_few() {
        let shared = |index| ids(&share_for_pop(&queues(4), 4, index, 1));
        assert_eq!([shared(0), shared(1), shared(3)], [[0, 1], [1, 2], [3, 0]]);
        assert_eq!(ids(&share_for_pop(&queues(2), 5, 3, 1)), [1]);
        assert_eq!(ids(&share_for_pop(&[], 5, 3, 1)), [0; 0]);
    }
}
