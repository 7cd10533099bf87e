use parking_lot::Mutex;

use super::*;

struct Home {
    directory: tempfile::TempDir,
    config: BrokerConfig,
}

impl Home {
    fn new() -> Self {
        let config = BrokerConfig {
            broker_name: "broker-a".into(),
            broker_cluster_name: "DefaultCluster".into(),
            ..BrokerConfig::default()
        };
        Self { directory: tempfile::tempdir().unwrap(), config }
    }

    fn load(&self) -> TopicTable {
        TopicTable::load(self.directory.path(), &self.config).unwrap()
    }
}

fn shape(table: &TopicTable, topic: &str) -> Option<(i32, i32, i32)> {
    table.get(topic).map(|topic| (topic.read_queue_nums, topic.write_queue_nums, topic.perm))
}

#[test]
fn system_topics_of_12_1() {
    let mut home = Home::new();
    let table = home.load();
    for (topic, queues, perm) in [
        ("SELF_TEST_TOPIC", 1, 6),
        ("TBW102", 8, 7),
        ("BenchmarkTest", 1024, 6),
        ("DefaultCluster", 16, 7),
        ("broker-a", 1, 7),
        ("OFFSET_MOVED_EVENT", 1, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("DefaultCluster_REPLY_TOPIC", 1, 6),
        ("rmq_sys_REVIVE_LOG_DefaultCluster", 8, 6),
        ("rmq_sys_SYNC_BROKER_MEMBER_broker-a", 1, 1),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, 6),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 6),
        ("rmq_sys_wheel_timer", 1, 6),
    ] {
        assert_eq!(shape(&table, topic), Some((queues, queues, perm)), "{topic}");
    }
    assert_eq!(table.snapshot().topic_config_table.len(), 13);

    home.config = BrokerConfig {
        auto_create_topic_enable: false,
        cluster_topic_enable: false,
        broker_topic_enable: false,
        trace_topic_enable: true,
        msg_trace_topic_name: "Trace".into(),
        timer_wheel_enable: false,
        ..home.config
    };
    let table = home.load();
    assert_eq!(shape(&table, "TBW102"), None);
    assert_eq!(shape(&table, "DefaultCluster"), Some((16, 16, 1)));
    assert_eq!(shape(&table, "broker-a"), Some((1, 1, 1)));
    assert_eq!(shape(&table, "Trace"), Some((1, 1, 6)));
    assert_eq!(shape(&table, "rmq_sys_wheel_timer"), None);
    assert!(table.is_system("Trace"));
}

/// The recorded answer to code 305.
#[test]
fn names_that_belong_to_the_system() {
    let table = Home::new().load();
    let recorded = [
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "BenchmarkTest",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TBW102",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "SELF_TEST_TOPIC",
        "DefaultCluster",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRACE_TOPIC",
        "DefaultCluster_REPLY_TOPIC",
        "rmq_sys_wheel_timer",
        "CHECKPOINT_TOPIC",
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "broker-a",
    ];
    assert_eq!(*table.system_topics(), recorded.map(str::to_owned).into());
    assert!(table.is_system("rmq_sys_anything") && table.is_system("broker-a"));
    assert!(!table.is_system("RMQ_SYS_anything") && !table.is_system("TopicA"));
}

#[test]
fn the_first_message_makes_its_topic() {
    let home = Home::new();
    let table = home.load();
    let (version, data_version) = (table.version(), table.data_version());
    let create = |topic, template, queues| table.create_by_send(&home.config, topic, template, queues, 0);
    let created = create("T1", "TBW102", 4).unwrap();
    assert_eq!(*created, TopicConfig::new("T1", 4));
    assert_ne!(table.version(), version);
    assert_eq!(table.data_version().counter, data_version.counter + 1);
    assert_eq!(create("T1", "none", 99).unwrap(), created, "it exists, so nothing else is looked at");
    assert_eq!(create("T2", "TBW102", 100).unwrap().write_queue_nums, 8, "not more than the template has");
    assert_eq!(create("T3", "DefaultCluster", 100).unwrap().write_queue_nums, 16);
    let unit = table.create_by_send(&home.config, "T4", "TBW102", 1, 1).unwrap();
    assert_eq!(unit.topic_sys_flag, 1);
}

#[test]
fn why_a_message_does_not_make_its_topic() {
    let mut home = Home::new();
    let table = home.load();
    let create = |config: &BrokerConfig, template, queues| {
        table.create_by_send(config, "T", template, queues, 0).unwrap_err().to_string()
    };
    assert_eq!(create(&home.config, "none", 4), "default topic none does not exist");
    assert_eq!(
        create(&home.config, "BenchmarkTest", 4),
        "default topic BenchmarkTest has no inherit permission"
    );
    for queues in [0, -1] {
        assert_eq!(create(&home.config, "TBW102", queues), "T would have no queues");
    }
    let Err(NotCreated::NoQueues(config)) = table.create_by_send(&home.config, "T", "TBW102", 0, 0) else {
        panic!("made a topic without queues")
    };
    assert_eq!(*config, TopicConfig::new("T", 0));

    home.config.auto_create_topic_enable = false;
    assert_eq!(create(&home.config, "TBW102", 4), "default topic TBW102 has no inherit permission");
    assert_eq!(shape(&table, "TBW102"), Some((8, 8, 6)), "the switch shows in the topic from now on");
    home.config.auto_create_topic_enable = true;
    assert_eq!(create(&home.config, "TBW102", 4), "default topic TBW102 has no inherit permission");
    assert!(!table.contains("T"));
}

#[test]
fn topics_of_retries() {
    let table = Home::new().load();
    let made = table.create_by_send_back("%RETRY%G", 1, false, 2);
    assert_eq!(*made, TopicConfig { topic_sys_flag: 2, ..TopicConfig::new("%RETRY%G", 1) });
    let version = table.version();
    assert_eq!(table.create_by_send_back("%RETRY%G", 5, false, 0), made);
    assert_eq!(table.version(), version, "nothing has changed");
    let ordered = table.create_by_send_back("%RETRY%G", 5, true, 0);
    assert_eq!(*ordered, TopicConfig { order: true, ..(*made).clone() });
    assert_eq!(table.get("%RETRY%G"), Some(ordered));
    assert_eq!(table.create_by_send_back("%RETRY%H", -1, false, 0).write_queue_nums, 0);
}

#[test]
fn an_update_is_all_or_nothing() {
    let table = Home::new().load();
    assert!(table.update(vec![TopicConfig::new("A", 4)]).unwrap().is_some());
    let (version, counter) = (table.version(), table.data_version().counter);
    assert_eq!(table.update(vec![TopicConfig::new("A", 4)]).unwrap(), None);
    let mut broken = TopicConfig::new("C", 4);
    broken.attributes.insert("+foo".into(), "bar".into());
    let error = table.update(vec![TopicConfig::new("B", 4), broken]).unwrap_err();
    assert_eq!(error.to_string(), "unsupported key: foo");
    assert!(!table.contains("B") && !table.contains("C"));
    assert_eq!((table.version(), table.data_version().counter), (version, counter));
    // Java leaves out the rest when it meets a topic that is already as wanted.
    table.update(vec![TopicConfig::new("A", 4), TopicConfig::new("B", 2), TopicConfig::new("C", 2)]).unwrap();
    assert!(table.contains("B") && table.contains("C"));
    assert_eq!(table.data_version().counter, counter + 2, "one for each topic that changed");
}

#[test]
fn attributes_outlive_an_update_without_them() {
    let table = Home::new().load();
    let mut topic = TopicConfig::new("A", 4);
    topic.attributes.insert("+message.type".into(), "FIFO".into());
    table.update(vec![topic]).unwrap();
    table.update(vec![TopicConfig::new("A", 8)]).unwrap();
    let topic = table.get("A").unwrap();
    assert_eq!((topic.write_queue_nums, topic.attributes["message.type"].as_str()), (8, "FIFO"));
}

#[test]
fn what_is_saved_is_loaded_over_the_system_topics() {
    let home = Home::new();
    let table = home.load();
    let changed = vec![TopicConfig::new("A", 4), TopicConfig::new("BenchmarkTest", 2)];
    let revision = table.update(changed).unwrap().unwrap();
    table.wait_saved(revision).unwrap();
    table.create_by_send(&home.config, "Auto", "TBW102", 4, 0).unwrap();
    let snapshot = table.snapshot();
    table.stop();
    let table = home.load();
    assert_eq!(table.snapshot(), snapshot);
    assert_eq!(shape(&table, "BenchmarkTest"), Some((2, 2, 6)));
    table.wait_saved(table.remove("A").unwrap()).unwrap();
    assert_eq!(table.remove("A"), None);
    drop(table);
    assert!(!home.load().contains("A"));
}

#[test]
fn a_damaged_file_stops_the_start() {
    let home = Home::new();
    std::fs::write(home.directory.path().join("topics.json"), "{\"topicConfigTable\":{").unwrap();
    assert!(matches!(TopicTable::load(home.directory.path(), &home.config), Err(LoadError::Damaged { .. })));
}

#[test]
fn a_listener_hears_of_every_change_when_it_is_in_force() {
    let home = Home::new();
    let table = Arc::new(home.load());
    let heard = Arc::new(Mutex::new(Vec::new()));
    table.set_listener({
        let (heard, table) = (heard.clone(), Arc::downgrade(&table));
        move |change| {
            let table = table.upgrade().unwrap();
            heard.lock().push(match change {
                TopicChange::Updated(topics) => {
                    assert!(topics.iter().all(|topic| table.get(&topic.topic_name).as_ref() == Some(topic)));
                    let names: Vec<_> = topics.iter().map(|topic| topic.topic_name.as_str()).collect();
                    format!("+{}", names.join(","))
                }
                TopicChange::Deleted(topic) => {
                    assert!(!table.contains(topic));
                    format!("-{topic}")
                }
                TopicChange::Version => "version".to_owned(),
            });
        }
    });
    table.update(vec![TopicConfig::new("A", 1), TopicConfig::new("B", 1)]).unwrap();
    table.update(vec![TopicConfig::new("A", 1), TopicConfig::new("B", 2)]).unwrap();
    table.create_by_send(&home.config, "C", "TBW102", 1, 0).unwrap();
    table.create_by_send_back("%RETRY%G", 1, false, 0);
    table.set_ordered(["A", "B", "unknown"]);
    table.set_ordered(["A"]);
    table.remove("A");
    table.bump_data_version();
    assert_eq!(*heard.lock(), ["+A,B", "+B", "+C", "+%RETRY%G", "+A,B", "-A", "version"]);
}
