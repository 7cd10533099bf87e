//! The operations of administrators: against our own servers, and against another cluster if `FERROMQ_TEST_NAMESRV` names
//! its name servers. That one must be called `DefaultCluster`, have a broker `broker-a` alone, and user and ACL stores
//! (`authenticationMetadataProvider`, `authorizationMetadataProvider`).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferromq_client::admin::{Admin, Brokers, TrackType};
use ferromq_client::protocol::body::{
    AclInfo, CMResult, ConsumeType, PolicyEntryInfo, PolicyInfo, SubscriptionGroupConfig, TopicConfig,
    UserInfo,
};
use ferromq_client::protocol::code::response;
use ferromq_client::{Client, Error, Message, MessageQueue, SendResult};
use support::inbox::Inbox;
use support::stage::Stage;
use support::{Cluster, PATIENCE, eventually};

const CLUSTER: &str = "DefaultCluster";

fn masters() -> Brokers {
    Brokers::masters_of(CLUSTER)
}

/// Address of the only broker.
async fn broker(admin: &Admin) -> String {
    let mut addresses = admin.addresses(&masters()).await.unwrap();
    assert_eq!(addresses.len(), 1);
    addresses.pop().unwrap()
}

/// Patient with servers that a busy machine lets wait.
fn admin_of(client: &Client) -> Admin {
    client.admin().timeout(PATIENCE)
}

/// Creates a topic and sends it messages with these bodies, each with its body as key, to queue 0.
async fn fill(client: &Client, topic: &str, bodies: &[&str]) -> Vec<SendResult> {
    admin_of(client).update_topic(&masters(), &TopicConfig::new(topic, 1)).await.unwrap();
    eventually("the route", async || admin_of(client).topic_route(topic).await.is_ok()).await;
    let producer = client.producer(format!("filler-of-{topic}")).send_msg_timeout(PATIENCE);
    let producer = producer.start().await.unwrap();
    let mut results = Vec::new();
    for body in bodies {
        let message = Message::new(topic, (*body).to_owned()).keys([body]).tag("A");
        results.push(producer.send(message).await.unwrap());
    }
    producer.shutdown().await;
    results
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Option<i32> {
    result.unwrap_err().response_code()
}

#[tokio::test]
async fn topics_are_created_changed_and_deleted() {
    let stage = Stage::set().await;
    let (client, topic) = (stage.client(), stage.name("T"));
    let (admin, address) = (admin_of(&client), broker(&admin_of(&client)).await);
    let mut config = TopicConfig { write_queue_nums: 3, ..TopicConfig::new(&*topic, 4) };
    config.attributes = BTreeMap::from([("+message.type".to_owned(), "FIFO".to_owned())]);
    admin.update_topic(&masters(), &config).await.unwrap();
    let known = admin.topic_config(&address, &topic).await.unwrap();
    assert_eq!((known.read_queue_nums, known.write_queue_nums, known.perm), (4, 3, 6));
    assert_eq!(known.attributes["message.type"], "FIFO");
    assert_eq!(admin.topic_configs(&address).await.unwrap().topic_config_table[&topic], known);

    let (second, third) = (stage.name("T2"), stage.name("T3"));
    let more = [TopicConfig::new(&*second, 1), TopicConfig::new(&*third, 2)];
    admin.update_topics(&Brokers::at(&*address), &more).await.unwrap();
    eventually("all are registered", async || {
        let topics: BTreeSet<String> = admin.topics().await.unwrap().into_iter().collect();
        [&topic, &second, &third].iter().all(|topic| topics.contains(*topic))
    })
    .await;
    assert!(admin.topics_of_cluster(CLUSTER).await.unwrap().contains(&third));
    assert!(admin.system_topics(&address).await.unwrap().contains(&"TBW102".to_owned()));
    assert_eq!(admin.clusters_of_topic(&topic).await.unwrap(), BTreeSet::from([CLUSTER.to_owned()]));
    let route = admin.topic_route(&topic).await.unwrap();
    assert_eq!(route.broker_datas[0].broker_addrs[&0], address);

    admin.delete_topic(CLUSTER, &topic).await.unwrap();
    assert_eq!(code(admin.topic_route(&topic).await), Some(response::TOPIC_NOT_EXIST));
    assert_eq!(code(admin.topic_config(&address, &topic).await), Some(response::TOPIC_NOT_EXIST));
    stage.clear([client]).await;
}

#[tokio::test]
async fn bad_names_are_refused_with_the_reason() {
    let stage = Stage::set().await;
    let client = stage.client();
    let admin = admin_of(&client);
    let refused = admin.update_topic(&masters(), &TopicConfig::new("not a topic", 1)).await.unwrap_err();
    assert_eq!(refused.response_code(), Some(response::INVALID_PARAMETER));
    assert_eq!((refused.broker(), refused.topic()), (Some("broker-a"), Some("not a topic")));
    assert!(refused.remark().unwrap().contains("illegal characters"), "{refused}");
    let unknown = admin.update_topic(&Brokers::masters_of("nope"), &TopicConfig::new("T", 1)).await;
    assert!(matches!(unknown, Err(Error::Invalid { .. })), "{unknown:?}");
    stage.clear([client]).await;
}

#[tokio::test]
async fn groups_are_created_changed_and_deleted() {
    let stage = Stage::set().await;
    let (client, group) = (stage.client(), stage.name("g"));
    let (admin, address) = (admin_of(&client), broker(&admin_of(&client)).await);
    let config = SubscriptionGroupConfig { retry_max_times: 3, ..SubscriptionGroupConfig::new(&*group) };
    admin.update_group(&masters(), &config).await.unwrap();
    let known = admin.group_config(&address, &group).await.unwrap();
    assert_eq!((known.retry_max_times, known.consume_enable), (3, true));
    assert_eq!(admin.group_configs(&address).await.unwrap().subscription_group_table[&group], known);
    let other = stage.name("h");
    admin.update_groups(&masters(), &[SubscriptionGroupConfig::new(&*other)]).await.unwrap();
    assert!(admin.group_configs(&address).await.unwrap().subscription_group_table.contains_key(&other));

    let topic = stage.name("T");
    let forbidden = admin.group_forbidden(&address, &group, &topic, Some(false)).await.unwrap();
    assert!(!forbidden.readable);
    assert!(admin.group_forbidden(&address, &group, &topic, Some(true)).await.unwrap().readable);

    admin.delete_group(CLUSTER, &group, true).await.unwrap();
    assert!(!admin.group_configs(&address).await.unwrap().subscription_group_table.contains_key(&group));
    stage.clear([client]).await;
}

#[tokio::test]
async fn progress_is_seen_moved_and_cloned() {
    let stage = Stage::set().await;
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let (admin, group, heir) = (admin_of(&client), stage.name("g"), stage.name("heir"));
    let before = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    fill(&client, &topic, &["a", "b", "c"]).await;
    let queue = MessageQueue::new(&*topic, "broker-a", 0);
    eventually("all are in the queue", async || admin.max_offset(&queue).await.unwrap() == 3).await;
    assert_eq!(admin.min_offset(&queue).await.unwrap(), 0);
    assert_eq!(admin.search_offset(&queue, before).await.unwrap(), 0);
    assert!(admin.earliest_msg_store_time(&queue).await.unwrap() >= before);
    let offsets = admin.topic_stats(&topic).await.unwrap().offset_table[&queue];
    assert_eq!((offsets.min_offset, offsets.max_offset), (0, 3));
    assert!(offsets.last_update_timestamp >= before);

    let consumer = stage.collect(&client, &topic, "g", &inbox).await;
    let progress = async || -> Option<i64> {
        let stats = admin.consume_stats(&group, Some(&topic)).await.ok()?;
        stats.offset_table.get(&queue).map(|offsets| offsets.consumer_offset)
    };
    eventually("the group has consumed all", async || progress().await == Some(3)).await;
    consumer.shutdown().await;
    let span = admin.consume_time_span(&topic, &group).await.unwrap();
    assert!(span.iter().any(|span| span.message_queue == queue && span.min_time_stamp >= before));
    assert!(admin.groups_of_topic(&topic).await.unwrap().contains(&group));
    assert!(admin.topics_of_group(&group).await.unwrap().contains(&topic));

    let reset = admin.reset_offset_by_time(&group, &topic, before, true).await.unwrap();
    assert_eq!(reset, BTreeMap::from([(queue.clone(), 0)]));
    inbox.clear();
    let consumer = stage.collect(&client, &topic, "g", &inbox).await;
    eventually("they come again", async || inbox.len() == 3).await;
    consumer.shutdown().await;
    admin.reset_queue_offset(&group, &queue, 1).await.unwrap();
    eventually("the second is next", async || progress().await == Some(1)).await;

    admin.update_group(&masters(), &SubscriptionGroupConfig::new(&*heir)).await.unwrap();
    admin.clone_group_offset(&group, &heir, &topic).await.unwrap();
    let stats = admin.consume_stats(&heir, Some(&topic)).await.unwrap();
    assert_eq!(stats.offset_table[&queue].consumer_offset, 1);

    let skipped = admin.skip_accumulated_messages(&group, &topic).await.unwrap();
    assert_eq!(skipped, BTreeMap::from([(queue.clone(), 3)]));
    let address = broker(&admin).await;
    let all = admin.broker_consume_stats(&address, false).await.unwrap();
    assert!(all.consume_stats_list.iter().any(|groups| groups.contains_key(&group)));
    stage.clear([client]).await;
}

#[tokio::test]
async fn messages_are_found_by_key_id_and_offset() {
    let stage = Stage::set().await;
    let (client, topic) = (stage.client(), stage.name("T"));
    let admin = admin_of(&client);
    let sent = fill(&client, &topic, &["a", "b"]).await;
    let by_id = async || admin.query_message_by_unique_key(&topic, &sent[1].msg_id).await.unwrap();
    eventually("it is in the index", async || by_id().await.len() == 1).await;
    let message = by_id().await.remove(0);
    assert_eq!((&message.body[..], &*message.queue), (&b"b"[..], &sent[1].queue));
    let by_key = admin.query_message_by_key(&topic, "b", 32, 0..i64::MAX).await.unwrap();
    assert_eq!((by_key.len(), &by_key[0]), (1, &message));
    assert_eq!(admin.query_message_by_key(&topic, "nobody's", 32, 0..i64::MAX).await.unwrap(), []);
    assert_eq!(admin.view_message(&topic, &message.offset_msg_id()).await.unwrap(), message);
    assert!(matches!(admin.view_message(&topic, "no id").await, Err(Error::Invalid { .. })));
    assert_eq!(admin.message_at(&message.queue, 1).await.unwrap(), Some(message.clone()));
    assert_eq!(admin.message_at(&message.queue, 2).await.unwrap(), None);

    let address = broker(&admin).await;
    let units = admin.query_consume_queue(&address, &topic, 0, 0, 10, None).await.unwrap();
    assert_eq!((units.min_queue_index, units.max_queue_index), (0, 2));
    assert_eq!(units.queue_data[1].physic_offset, message.commit_log_offset as i64);
    stage.clear([client]).await;
}

#[tokio::test]
async fn clients_are_seen_and_consume_what_they_are_told_to() {
    let stage = Stage::set().await;
    let (client, topic, inbox) = (stage.client(), stage.name("T"), Inbox::default());
    let (admin, group, producing) = (admin_of(&client), stage.name("g"), stage.name("p"));
    fill(&client, &topic, &["a"]).await;
    let producer = client.producer(&*producing).start().await.unwrap();
    producer.send(Message::new(&*topic, "b")).await.unwrap();
    let queue = MessageQueue::new(&*topic, "broker-a", 0);
    eventually("both are in the queue", async || admin.max_offset(&queue).await.unwrap() == 2).await;
    let message = admin.message_at(&queue, 0).await.unwrap().unwrap();
    assert_eq!(code(admin.consumer_connection("nobody").await), Some(response::TOPIC_NOT_EXIST));

    let _consumer = stage.collect(&client, &topic, "g", &inbox).await;
    eventually("all came", async || inbox.len() == 2).await;
    let connection = admin.consumer_connection(&group).await.unwrap();
    assert_eq!(connection.connection_set[0].client_id, client.id());
    assert_eq!(connection.consume_type, Some(ConsumeType::ConsumePassively));
    assert_eq!(connection.subscription_table[&topic].sub_string, "*");
    let subscription = admin.subscription_of_group(&group, &topic).await.unwrap().unwrap();
    assert_eq!(subscription.sub_string, "*");
    eventually("the producer is known", async || {
        let known = admin.producer_connection(&producing, &topic).await;
        known.is_ok_and(|known| known.connection_set[0].client_id == client.id())
    })
    .await;
    let address = broker(&admin).await;
    assert!(admin.producers(&address).await.unwrap().data.contains_key(&producing));

    let info = admin.consumer_running_info(&group, client.id(), false).await.unwrap();
    assert!(info.subscription_set.iter().any(|subscription| subscription.topic == topic));
    let offsets = admin.consumer_offsets(&topic, &group, None).await.unwrap();
    assert_eq!(offsets[client.id()][&*message.queue], 2);
    assert_eq!(
        code(admin.consumer_running_info(&group, "nobody", false).await),
        Some(response::SYSTEM_ERROR)
    );

    inbox.clear();
    let result = admin.consume_message_directly(&group, client.id(), &message).await.unwrap();
    assert_eq!((result.consume_result, result.order), (Some(CMResult::Success), false));
    assert_eq!(inbox.bodies(), BTreeMap::from([("a".to_owned(), 1)]));

    eventually("the group's progress is behind it", async || {
        let tracks = admin.message_track_detail(&message).await.unwrap();
        tracks.iter().any(|track| track.consumer_group == group && track.track_type == TrackType::Consumed)
    })
    .await;
    stage.clear([client]).await;
}

#[tokio::test]
async fn brokers_tell_their_state_and_take_settings() {
    let stage = Stage::set().await;
    let client = stage.client();
    let (admin, address) = (admin_of(&client), broker(&admin_of(&client)).await);
    let info = admin.cluster_info().await.unwrap();
    assert_eq!(info.broker_addr_table["broker-a"].broker_addrs[&0], address);
    assert_eq!(admin.addresses(&Brokers::all_of(CLUSTER)).await.unwrap(), [&*address]);
    assert!(admin.broker_runtime_info(&address).await.unwrap().contains_key("brokerVersionDesc"));
    let setting = async || admin.broker_config(&address).await.unwrap()["longPollingEnable"].clone();
    assert_eq!(setting().await, "true");
    admin.update_broker_config(&masters(), &[("longPollingEnable", "false")]).await.unwrap();
    assert_eq!(setting().await, "false");
    admin.update_broker_config(&masters(), &[("longPollingEnable", "true")]).await.unwrap();
    let replication = admin.ha_status(&address).await.unwrap();
    assert!(replication.master && replication.ha_connection_info.is_empty());
    admin.clean_unused_topic(&masters()).await.unwrap();
    admin.clean_expired_consume_queue(&masters()).await.unwrap();
    admin.delete_expired_commit_log(&masters()).await.unwrap();
    let topic = stage.name("T");
    fill(&client, &topic, &["a"]).await;
    let stats = async || admin.broker_stats(&address, "TOPIC_PUT_NUMS", &topic).await;
    eventually("the send is counted", async || stats().await.is_ok()).await;
    assert_eq!(
        code(admin.broker_stats(&address, "TOPIC_PUT_NUMS", "nope").await),
        Some(response::SYSTEM_ERROR)
    );
    stage.clear([client]).await;
}

#[tokio::test]
async fn name_servers_keep_what_they_are_told() {
    let stage = Stage::set().await;
    let (client, key) = (stage.client(), stage.name("k"));
    let admin = admin_of(&client);
    assert_eq!(admin.kv_config("ORDERS", &key).await.unwrap(), None);
    admin.put_kv_config("ORDERS", &key, "broker-a:4").await.unwrap();
    assert_eq!(admin.kv_config("ORDERS", &key).await.unwrap().as_deref(), Some("broker-a:4"));
    assert_eq!(admin.kv_list("ORDERS").await.unwrap()[&key], "broker-a:4");
    assert_eq!(admin.kv_list(&stage.name("namespace")).await.unwrap(), BTreeMap::new());
    admin.delete_kv_config("ORDERS", &key).await.unwrap();
    assert_eq!(admin.kv_config("ORDERS", &key).await.unwrap(), None);

    let server = admin.name_servers().remove(0);
    assert!(admin.namesrv_config().await.unwrap()[&server].contains_key("listenPort"));
    admin.update_namesrv_config(&[("deleteTopicWithBrokerRegistration", "false")]).await.unwrap();
    // Another cluster has other users.
    let (name, has_topics) = if stage.own.is_some() { ("broker-a", true) } else { ("nobody", false) };
    assert_eq!(admin.wipe_write_perm(&server, name).await.unwrap() > 0, has_topics);
    if stage.own.is_some() {
        let route = admin.topic_route("TBW102").await.unwrap();
        assert_eq!(route.queue_datas[0].perm & 2, 0);
    }
    assert_eq!(admin.add_write_perm(&server, name).await.unwrap() > 0, has_topics);
    stage.clear([client]).await;
}

#[tokio::test]
async fn users_and_their_rules() {
    let stage = Stage::set().await;
    let (client, name) = (stage.client(), stage.name("user"));
    let (admin, address) = (admin_of(&client), broker(&admin_of(&client)).await);
    let (brokers, subject) = (Brokers::at(&*address), format!("User:{name}"));
    let text = |text: &str| Some(text.to_owned());
    let user = UserInfo { username: text(&name), password: text("secret"), ..UserInfo::default() };
    match admin.create_user(&brokers, &user).await {
        // Our own broker has no access control yet.
        Err(error) if stage.is_ours() => {
            assert_eq!(error.response_code(), Some(response::REQUEST_CODE_NOT_SUPPORTED));
            return stage.clear([client]).await;
        }
        created => created.unwrap(),
    }
    assert_eq!(admin.get_user(&address, &name).await.unwrap().unwrap().user_type.as_deref(), Some("Normal"));
    let disabled = UserInfo { username: text(&name), user_status: text("disable"), ..UserInfo::default() };
    admin.update_user(&brokers, &disabled).await.unwrap();
    let users = admin.list_users(&address, Some(&name)).await.unwrap();
    assert_eq!((users.len(), users[0].user_status.as_deref()), (1, Some("disable")));

    let entry = PolicyEntryInfo {
        actions: Some(vec!["Pub".to_owned()]),
        decision: text("Allow"),
        resource: text("Topic:orders"),
        source_ips: None,
    };
    let policy = PolicyInfo { entries: Some(vec![entry.clone()]), policy_type: text("Custom") };
    let acl = AclInfo { policies: Some(vec![policy]), subject: text(&subject) };
    admin.create_acl(&brokers, &acl).await.unwrap();
    let entries = |acl: AclInfo| acl.policies.unwrap_or_default().remove(0).entries.unwrap_or_default();
    let known = admin.get_acl(&address, &subject).await.unwrap().unwrap();
    assert_eq!(entries(known)[0].resource.as_deref(), Some("Topic:orders"));
    admin.update_acl(&brokers, &acl).await.unwrap();
    assert_eq!(admin.list_acls(&address, Some(&name), None).await.unwrap().len(), 1);
    admin.delete_acl(&brokers, &subject, None, None).await.unwrap();
    assert_eq!(admin.get_acl(&address, &subject).await.unwrap(), None);
    admin.delete_user(&brokers, &name).await.unwrap();
    assert_eq!(admin.get_user(&address, &name).await.unwrap(), None);
    stage.clear([client]).await;
}

#[tokio::test]
async fn a_client_that_is_shut_down_asks_nobody() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().start().unwrap();
    let admin = client.admin().timeout(Duration::from_secs(1));
    admin.topics().await.unwrap();
    client.shutdown().await;
    assert!(matches!(admin.topics().await, Err(Error::Closed { .. })));
    assert!(matches!(admin.topic_route("TBW102").await, Err(Error::Closed { .. })));
    assert!(admin.broker_config("127.0.0.1:1").await.is_err());
    cluster.shutdown().await;
}
