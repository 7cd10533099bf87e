use super::*;

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn load(&self) -> SubscriptionGroups {
        SubscriptionGroups::load(self.0.path(), false).unwrap()
    }
}

#[test]
fn some_groups_are_always_there() {
    let groups = Home::new().load();
    let mut names: Vec<_> = groups.all().iter().map(|group| group.group_name.clone()).collect();
    names.sort_unstable();
    let mut expected = PREDEFINED.map(str::to_owned);
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert!(groups.get("CID_ONSAPI_PULL").unwrap().consume_broadcast_enable);
}

#[test]
fn a_consumer_makes_its_group_if_the_settings_allow_it() {
    let groups = Home::new().load();
    let mut config = BrokerConfig::default();
    assert_eq!(groups.get("G"), None);
    assert_eq!(*groups.get_or_create(&config, "G").unwrap(), SubscriptionGroupConfig::new("G"));
    assert_eq!(groups.snapshot().data_version.counter, 1);

    config.auto_create_subscription_group = false;
    assert!(groups.get_or_create(&config, "G").is_ok(), "it exists");
    assert_eq!(groups.get_or_create(&config, "H"), Err(NoGroup::NotAutomatic));
    assert!(groups.get_or_create(&config, "CID_RMQ_SYS_x").is_ok());
    config.enable_create_sys_group = false;
    assert_eq!(groups.get_or_create(&config, "CID_RMQ_SYS_y"), Err(NoGroup::NotAutomatic));
}

#[test]
fn a_name_that_breaks_a_rule_makes_no_group() {
    let groups = Home::new().load();
    let refused = groups.get_or_create(&BrokerConfig::default(), "bad group").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "The specified group: bad group, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    );
    assert_eq!(groups.get("bad group"), None);
}

#[test]
fn what_is_saved_is_loaded() {
    let home = Home::new();
    let groups = home.load();
    let changed = vec![
        SubscriptionGroupConfig { retry_max_times: 3, ..SubscriptionGroupConfig::new("G") },
        SubscriptionGroupConfig { consume_enable: false, ..SubscriptionGroupConfig::new("TOOLS_CONSUMER") },
    ];
    groups.wait_saved(groups.update(changed).unwrap()).unwrap();
    assert_eq!(groups.snapshot().data_version.counter, 2, "one for each group");
    groups.wait_saved(groups.forbid_read("G", "T", true)).unwrap();
    let snapshot = groups.snapshot();
    drop(groups);
    let groups = home.load();
    assert_eq!(groups.snapshot(), snapshot);
    assert!(!groups.get("TOOLS_CONSUMER").unwrap().consume_enable);
    assert!(groups.is_read_forbidden("G", "T"));
}

#[test]
fn attributes_are_refused_because_none_are_defined() {
    let groups = Home::new().load();
    let mut group = SubscriptionGroupConfig::new("G");
    group.attributes.insert("+k".into(), "v".into());
    assert_eq!(groups.update(vec![group]).unwrap_err().to_string(), "unsupported key: k");
    assert_eq!(groups.get("G"), None);
}

#[test]
fn reading_is_forbidden_topic_by_topic() {
    let groups = Home::new().load();
    groups.forbid_read("G", "T", true);
    groups.forbid_read("G", "U", true);
    groups.forbid_read("G", "T", false);
    assert!(!groups.is_read_forbidden("G", "T") && groups.is_read_forbidden("G", "U"));
    assert!(!groups.is_read_forbidden("H", "U"));
    groups.forbid_read("G", "U", false);
    assert!(groups.snapshot().forbidden_table.is_empty());
    assert!(groups.get("G").is_none(), "forbidding makes no group");
}

#[test]
fn a_group_takes_what_is_forbidden_to_it_along() {
    let groups = Home::new().load();
    groups.update(vec![SubscriptionGroupConfig::new("G")]).unwrap();
    groups.forbid_read("G", "T", true);
    assert!(groups.remove("G").is_some());
    assert!(groups.get("G").is_none() && !groups.is_read_forbidden("G", "T"));
    assert_eq!(groups.remove("G"), None);
}
