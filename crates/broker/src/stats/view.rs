//! VIEW_BROKER_STATS_DATA: one counter over a minute, an hour and a day.

use std::sync::Arc;

use ferromq_protocol::body::{BrokerStatsData, BrokerStatsItem};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Connection;

use super::{BrokerStats, StatsItem, StatsName, Window};
use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::service::Handler;

pub(crate) fn route(code: i32) -> Option<Handler> {
    (code == request::VIEW_BROKER_STATS_DATA).then_some(Handler::Inline(view_broker_stats_data))
}

fn view_broker_stats_data(broker: &Arc<Broker>, _: &Arc<Connection>, request: &RemotingCommand) -> Answer {
    view(&broker.stats, request.text("statsName")?, request.text("statsKey")?)
}

/// What was never counted does not exist; tools take that for 0.
fn view(stats: &BrokerStats, name: &str, key: &str) -> Answer {
    let item = StatsName::parse(name).and_then(|name| stats.find(name, key));
    let item = item.ok_or_else(|| Refusal::system_error(format!("The stats <{name}> <{key}> not exist")))?;
    let data = BrokerStatsData {
        stats_day: body_of(&item, Window::Day),
        stats_hour: body_of(&item, Window::Hour),
        stats_minute: body_of(&item, Window::Minute),
    };
    Ok(RemotingCommand::success().with_body(json::to_vec(&data)))
}

fn body_of(item: &StatsItem, window: Window) -> BrokerStatsItem {
    let snapshot = item.snapshot(window);
    let sum = i64::try_from(snapshot.sum).unwrap_or(i64::MAX);
    BrokerStatsItem { avgpt: snapshot.avgpt, sum, tps: snapshot.tps }
}

#[cfg(test)]
mod tests {
    use ferromq_store::StoreStats;

    use super::*;

    #[test]
    fn an_item_is_shown_over_three_spans() {
        let stats = BrokerStats::new("DefaultCluster", [], -1);
        stats.topic_put("TopicA").add(20, 4000);
        stats.tick(1_000_000, &StoreStats::default());
        let answer = view(&stats, "TOPIC_PUT_NUMS", "TopicA").unwrap();
        let body = r#"{"statsDay":{"avgpt":20.0,"sum":20,"tps":0.005555555555555556},"statsHour":{"avgpt":20.0,"sum":20,"tps":0.03333333333333333},"statsMinute":{"avgpt":20.0,"sum":20,"tps":2.0}}"#;
        assert_eq!(String::from_utf8_lossy(&answer.body), body);
        assert_eq!((answer.code, answer.fields), (0, None));
    }

    #[test]
    fn what_was_never_counted_does_not_exist() {
        let stats = BrokerStats::new("DefaultCluster", [], -1);
        for (name, key) in [("X", "Y"), ("TOPIC_PUT_NUMS", "TopicA")] {
            let refusal = view(&stats, name, key).unwrap_err();
            assert_eq!(refusal, Refusal::system_error(format!("The stats <{name}> <{key}> not exist")));
        }
    }
}
