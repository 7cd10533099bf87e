use std::sync::Arc;
use std::time::{Duration, Instant};

use ferromq_protocol::body::{ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel, SubscriptionData};
use ferromq_remoting::Connection;
use tokio::net::TcpStream;

use super::super::testing::{client, connection};
use super::*;

/// A consumer of group `G` and what it says in its heartbeats.
struct Consumer {
    client: Client,
    data: ConsumerData,
    fingerprint: i32,
    _peer: TcpStream,
}

impl Consumer {
    async fn new(client_id: &str, subscriptions: &[(&str, &str, i64)]) -> Self {
        let (connection, peer) = connection().await;
        let data = ConsumerData {
            consume_from_where: Some(ConsumeFromWhere::ConsumeFromLastOffset),
            consume_type: Some(ConsumeType::ConsumePassively),
            group_name: "G".into(),
            message_model: Some(MessageModel::Clustering),
            subscription_data_set: Vec::new(),
            unit_mode: false,
        };
        let mut consumer = Self { client: client(client_id, &connection), data, fingerprint: 0, _peer: peer };
        consumer.subscribe(subscriptions);
        consumer
    }

    /// Sets topic, expression and version of each subscription.
    fn subscribe(&mut self, subscriptions: &[(&str, &str, i64)]) {
        let subscriptions = subscriptions.iter().map(|(topic, expression, version)| SubscriptionData {
            topic: (*topic).into(),
            sub_string: (*expression).into(),
            sub_version: *version,
            ..SubscriptionData::default()
        });
        self.data.subscription_data_set = subscriptions.collect();
    }

    fn beat(&self, table: &ConsumerTable) -> Registered {
        self.beat_at(table, 5_000, false)
    }

    fn short_beat(&self, table: &ConsumerTable) -> Registered {
        self.beat_at(table, 5_000, true)
    }

    fn beat_at(&self, table: &ConsumerTable, now_ms: i64, without_sub: bool) -> Registered {
        let (client, fingerprint) = (&self.client, self.fingerprint);
        let short = ConsumerData { subscription_data_set: Vec::new(), ..self.data.clone() };
        let data = if without_sub { &short } else { &self.data };
        table.register(&Membership { client, data, fingerprint, without_sub, now_ms })
    }

    fn connection(&self) -> &Arc<Connection> {
        &self.client.connection
    }

    fn pulls(&self, table: &ConsumerTable, topic: &str) -> Option<String> {
        let seen = table.for_pull(self.connection().id(), "G", topic).unwrap();
        seen.subscription.map(|subscription| subscription.sub_string.clone())
    }
}

#[tokio::test]
async fn a_new_consumer_is_a_change_and_a_known_one_is_not() {
    let table = ConsumerTable::default();
    let a = Consumer::new("a", &[("T", "*", 100)]).await;
    let b = Consumer::new("b", &[("T", "*", 100)]).await;
    assert!(a.beat(&table).changed);
    assert!(b.beat(&table).changed);
    assert_eq!(b.beat(&table), Registered::default());
    let ids: Vec<_> = table.clients("G").iter().map(|client| client.client_id.to_string()).collect();
    assert_eq!(ids, ["a", "b"]);
    assert!(table.find("G", "b").is_some_and(|found| found.connection.id() == b.connection().id()));
    assert!(table.find("G", "c").is_none());
    assert!(table.model("other").is_none());
    let model = table.model("G").unwrap();
    assert_eq!(model, (Some(ConsumeType::ConsumePassively), Some(MessageModel::Clustering)));
}

#[tokio::test]
async fn an_expression_is_no_change_but_a_topic_is() {
    let table = ConsumerTable::default();
    let a = Consumer::new("a", &[("T", "*", 100)]).await;
    let mut b = Consumer::new("b", &[("T", "*", 100)]).await;
    a.beat(&table);
    b.beat(&table);
    b.subscribe(&[("T", "TagA", 200)]);
    let registered = b.beat(&table);
    assert!(!registered.changed && registered.visible);
    assert_eq!(table.subscription("G", "T").unwrap().sub_string, "TagA");
    b.subscribe(&[("T", "TagA", 200), ("U", "*", 200)]);
    assert!(b.beat(&table).changed);
    assert!(a.beat(&table).changed, "the last heartbeat says what the group subscribes to");
    assert_eq!(table.subscription("G", "U"), None);
    assert_eq!(table.subscription("G", "T").unwrap().sub_string, "TagA", "an older version replaces nothing");
}

#[tokio::test]
async fn a_pull_is_judged_by_its_own_clients_subscription() {
    let table = ConsumerTable::default();
    let a = Consumer::new("a", &[("T", "TagA", 100)]).await;
    let b = Consumer::new("b", &[("T", "TagB", 200), ("U", "*", 200)]).await;
    a.beat(&table);
    b.beat(&table);
    assert_eq!(a.pulls(&table, "T"), Some("TagA".into()));
    assert_eq!(b.pulls(&table, "T"), Some("TagB".into()));
    assert_eq!(a.pulls(&table, "U"), Some("*".into()), "what is not its own is the group's");
    a.beat(&table);
    assert_eq!(b.pulls(&table, "U"), Some("*".into()), "its own, though the group dropped it");
    assert_eq!(a.pulls(&table, "U"), None);

    let stranger = connection().await.0;
    let seen = table.for_pull(stranger.id(), "G", "T").unwrap();
    assert_eq!(seen.subscription.unwrap().sub_string, "TagB");
    assert!(table.for_pull(stranger.id(), "other", "T").is_none());
}

#[tokio::test]
async fn members_that_subscribe_to_different_things_are_told_apart() {
    let table = ConsumerTable::default();
    let a = Consumer::new("a", &[("T", "TagA", 100)]).await;
    let mut b = Consumer::new("b", &[("T", "TagB", 200)]).await;
    assert!(!a.beat(&table).begins_to_differ);
    assert!(b.beat(&table).begins_to_differ);
    assert!(!a.beat(&table).begins_to_differ, "it is told once");
    let told = |client: &str, tag: &str| (client.to_owned(), "T".to_owned(), tag.to_owned());
    let expected = vec![told("a", "TagA"), told("b", "TagB")];
    assert_eq!(table.differing_subscriptions(), [("G".to_owned(), expected)]);

    b.subscribe(&[("T", "TagA", 300)]);
    b.beat(&table);
    assert!(table.differing_subscriptions().is_empty());
    b.subscribe(&[("T", "TagA", 300), ("U", "*", 300)]);
    assert!(b.beat(&table).begins_to_differ);
    table.on_close(a.connection().id());
    assert!(table.differing_subscriptions().is_empty());
}

/// The exchange of the recorded `V2 heartbeat` lines.
#[tokio::test]
async fn short_heartbeats() {
    let table = ConsumerTable::default();
    let mut a = Consumer::new("a", &[("T", "*", 100)]).await;
    a.fingerprint = 12345;
    let first = a.beat(&table);
    assert!(first.changed && !first.sub_change);
    assert!(!a.short_beat(&table).sub_change);
    a.fingerprint = 999;
    assert!(a.short_beat(&table).sub_change);
    assert!(!a.short_beat(&table).sub_change);
    assert_eq!(a.pulls(&table, "T"), Some("*".into()), "what was told before still counts");
}

#[tokio::test]
async fn a_short_heartbeat_of_an_unknown_client_asks_for_its_subscriptions() {
    let table = ConsumerTable::default();
    let mut a = Consumer::new("a", &[]).await;
    a.fingerprint = 7;
    let registered = a.short_beat(&table);
    assert!(registered.changed && registered.sub_change);
    assert!(a.short_beat(&table).sub_change, "until it told them");
    assert!(!a.beat(&table).sub_change);
    assert!(!a.short_beat(&table).sub_change, "having told that there are none is enough");
}

#[tokio::test]
async fn a_version_that_is_left_out_is_the_time_of_arrival() {
    let table = ConsumerTable::default();
    let cpp = Consumer::new("cpp", &[("T", "*", 0)]).await;
    cpp.beat_at(&table, 5_000, false);
    assert_eq!(cpp.beat_at(&table, 6_000, false), Registered::default());
    assert_eq!(table.subscription("G", "T").unwrap().sub_version, 5_000);
    let seen = table.for_pull(cpp.connection().id(), "G", "T").unwrap();
    assert_eq!(seen.subscription.unwrap().sub_version, 5_000);
}

#[tokio::test]
async fn a_connection_that_ends_takes_its_members_along() {
    let table = ConsumerTable::default();
    let a = Consumer::new("a", &[("T", "*", 1)]).await;
    let mut b = Consumer::new("b", &[("T", "*", 1)]).await;
    a.beat(&table);
    b.beat(&table);
    b.data.group_name = "H".into();
    b.beat(&table);
    let mut groups = table.on_close(b.connection().id());
    groups.sort_unstable();
    assert_eq!(groups, [Arc::from("G"), Arc::from("H")]);
    assert!(table.on_close(b.connection().id()).is_empty());
    assert!(table.model("G").is_some() && table.model("H").is_none());
    assert!(table.unregister(a.connection().id(), "G"));
    assert!(!table.unregister(a.connection().id(), "G"), "a stranger changes nothing");
    let state = table.state.read();
    assert!(state.groups.is_empty() && state.by_connection.is_empty());
}

#[tokio::test]
async fn two_connections_of_one_client_are_two_members() {
    let table = ConsumerTable::default();
    let one = Consumer::new("dup@1", &[("T", "*", 1)]).await;
    let other = Consumer::new("dup@1", &[("T", "*", 1)]).await;
    assert!(one.beat(&table).changed && other.beat(&table).changed);
    assert_eq!(table.clients("G").len(), 2);
    table.on_close(one.connection().id());
    assert!(table.find("G", "dup@1").is_some());
}

#[tokio::test]
async fn a_connection_whose_client_changes_its_name_is_no_new_member() {
    let table = ConsumerTable::default();
    let mut a = Consumer::new("a", &[("T", "*", 1)]).await;
    a.beat(&table);
    a.client.client_id = "renamed".into();
    let registered = a.beat(&table);
    assert!(!registered.changed && registered.visible);
    assert!(table.find("G", "renamed").is_some() && table.find("G", "a").is_none());
}

#[tokio::test]
async fn silent_consumers_are_removed() {
    let table = ConsumerTable::default();
    let a = Consumer::new("a", &[("T", "*", 1)]).await;
    let mut b = Consumer::new("b", &[("T", "*", 1)]).await;
    b.client.heard = a.client.heard + Duration::from_secs(60);
    a.beat(&table);
    b.beat(&table);
    let limit = Duration::from_secs(120);
    assert!(table.remove_silent(limit, a.client.heard + limit).1.is_empty());
    let (groups, clients) = table.remove_silent(limit, a.client.heard + limit + Duration::from_millis(1));
    assert_eq!(groups, [Arc::from("G")]);
    assert_eq!(clients.len(), 1);
    assert_eq!(&*clients[0].client_id, "a");
    assert!(table.find("G", "b").is_some());
    assert!(table.remove_silent(Duration::MAX, Instant::now()).0.is_empty());
}

#[tokio::test]
async fn what_administrators_see() {
    let table = ConsumerTable::default();
    let a = Consumer::new("a", &[("T", "*", 1)]).await;
    let mut b = Consumer::new("b", &[("T", "*", 1), ("U", "*", 1)]).await;
    b.data.group_name = "H".into();
    a.beat(&table);
    b.beat(&table);
    let seen = table.connections("G").unwrap();
    assert_eq!(seen.connection_set.len(), 1);
    assert_eq!(seen.connection_set[0].client_id, "a");
    assert_eq!(seen.connection_set[0].client_addr, a.connection().peer().to_string());
    assert_eq!(seen.subscription_table.keys().collect::<Vec<_>>(), ["T"]);
    assert!(table.connections("other").is_none());
    assert_eq!(table.groups_subscribing_to("T"), BTreeSet::from(["G".into(), "H".into()]));
    assert_eq!(table.groups_subscribing_to("U"), BTreeSet::from(["H".into()]));
}

#[tokio::test]
async fn groups_that_are_not_online_are_known_by_their_pulls() {
    let table = ConsumerTable::default();
    assert_eq!(table.subscription("G", "T"), None);
    table.compensation.told("G", "T", ("TAG", "x"), 1, || SubscriptionData {
        sub_string: "x".into(),
        ..SubscriptionData::default()
    });
    assert_eq!(table.subscription("G", "T").unwrap().sub_string, "x");
    Consumer::new("a", &[("T", "*", 1)]).await.beat(&table);
    assert_eq!(table.subscription("G", "T").unwrap().sub_string, "*");
}
