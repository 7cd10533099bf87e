//! A master and its slave, as clients see them.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::path::Path;
use std::time::Duration;

use ferromq_broker::RunningBroker;
use ferromq_namesrv::{Namesrv, NamesrvConfig};
use ferromq_protocol::body::{
    HARuntimeInfo, LockBatchRequestBody, LockBatchResponseBody, MessageQueue, SubscriptionGroupConfig,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use support::{Peer, pull_request, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(30);

/// A name server, a master, a slave, and a client of each broker.
struct Set {
    namesrv: Namesrv,
    master: RunningBroker,
    slave: RunningBroker,
    of_master: Peer,
    of_slave: Peer,
    directory: tempfile::TempDir,
}

impl Set {
    async fn start(settings: &[(&str, &str)]) -> Set {
        let directory = tempfile::tempdir().unwrap();
        let namesrv = start_namesrv(directory.path());
        let address = namesrv_address(&namesrv);
        let mut of_master = vec![("namesrvAddr", address.as_str())];
        of_master.extend(settings);
        let master = start(&directory.path().join("master"), &of_master).await;
        let slave = start_slave(directory.path(), &address, settings).await;
        let (to_master, to_slave) = (Peer::connect(&master).await, Peer::connect(&slave).await);
        Set { namesrv, master, slave, of_master: to_master, of_slave: to_slave, directory }
    }

    async fn stop(self) {
        self.slave.shutdown().await;
        self.master.shutdown().await;
        self.namesrv.shutdown().await;
    }
}

fn start_namesrv(directory: &Path) -> Namesrv {
    let file = |name: &str| directory.join(name).display().to_string();
    Namesrv::start(NamesrvConfig {
        listen_port: 0,
        support_acting_master: true,
        bind_address: "127.0.0.1".to_owned(),
        kv_config_path: file("kv.json"),
        config_store_path: file("namesrv.properties"),
        ..NamesrvConfig::default()
    })
    .unwrap()
}

fn namesrv_address(namesrv: &Namesrv) -> String {
    format!("127.0.0.1:{}", namesrv.address().port())
}

async fn start_slave(directory: &Path, namesrv: &str, settings: &[(&str, &str)]) -> RunningBroker {
    let mut of_slave = vec![
        ("namesrvAddr", namesrv),
        ("brokerRole", "SLAVE"),
        ("brokerId", "1"),
        ("brokerIP2", "127.0.0.1"),
        ("slaveReadEnable", "true"),
    ];
    of_slave.extend(settings.iter().filter(|(key, _)| *key != "brokerRole"));
    start(&directory.join("slave"), &of_slave).await
}

const ON_THIS_MACHINE: (&str, &str) = ("brokerIP2", "127.0.0.1");

fn send_request(properties: &str, body: &str) -> RemotingCommand {
    RemotingCommand::request(request::SEND_MESSAGE_V2)
        .with("a", "producers")
        .with("b", "T")
        .with("c", "TBW102")
        .with("d", 4)
        .with("e", 0)
        .with("f", 0)
        .with("g", 1_700_000_000_000i64)
        .with("h", 0)
        .with("i", properties)
        .with("j", 0)
        .with("k", false)
        .with("m", false)
        .with_body(body.to_owned())
}

async fn send(peer: &Peer, count: usize) {
    for number in 0..count {
        peer.done(send_request("", &format!("m{number}"))).await;
    }
}

async fn send_code(peer: &Peer, properties: &str) -> (i32, Duration) {
    let begun = Instant::now();
    let answer = peer.call(send_request(properties, "x")).await;
    assert!(answer.field("msgId").is_some(), "{answer:?}");
    (answer.code, begun.elapsed())
}

/// Asks until the answer is as wanted.
async fn until<T: std::fmt::Debug>(ask: impl AsyncFn() -> T, is_wanted: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let answer = ask().await;
        if is_wanted(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn max_offset(peer: &Peer) -> i64 {
    let question = RemotingCommand::request(request::GET_MAX_OFFSET).with("topic", "T").with("queueId", 0);
    peer.done(question).await.number("offset").unwrap()
}

fn pull(offset: i64) -> RemotingCommand {
    pull_request(0, offset)
}

fn commit(offset: i64) -> RemotingCommand {
    RemotingCommand::request(request::UPDATE_CONSUMER_OFFSET)
        .with("consumerGroup", "kept")
        .with("topic", "T")
        .with("queueId", 0)
        .with("commitOffset", offset)
}

async fn committed(peer: &Peer) -> Option<i64> {
    let question = RemotingCommand::request(request::QUERY_CONSUMER_OFFSET)
        .with("consumerGroup", "kept")
        .with("topic", "T")
        .with("queueId", 0)
        .with("setZeroIfNotFound", false);
    peer.call(question).await.field("offset").map(|offset| offset.parse::<i64>().unwrap())
}

fn group(name: &str) -> RemotingCommand {
    let group = SubscriptionGroupConfig { retry_max_times: 3, ..SubscriptionGroupConfig::new(name) };
    RemotingCommand::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(json::to_vec(&group))
}

async fn ha_status(peer: &Peer) -> HARuntimeInfo {
    let answer = peer.done(RemotingCommand::request(request::GET_BROKER_HA_STATUS)).await;
    json::from_slice(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_serves_what_its_master_has_also_when_the_master_is_gone() {
    let set = Set::start(&[ON_THIS_MACHINE]).await;
    send(&set.of_master, 20).await;
    until(async || max_offset(&set.of_slave).await, |offset| *offset == 20).await;
    // The topic comes with the tables.
    let answer = until(async || set.of_slave.call(pull(0)).await, |answer| answer.code == 0).await;
    let of_master = set.of_master.done(pull(0)).await;
    assert_eq!(answer.body, of_master.body);
    assert_eq!(answer.field("suggestWhichBrokerId"), Some("0"));

    let status = until(
        async || ha_status(&set.of_master).await,
        |status| status.ha_connection_info.first().is_some_and(|slave| slave.diff == 0),
    )
    .await;
    assert!(status.master && status.in_sync_slave_nums == 1 && status.ha_connection_info[0].in_sync);
    let of_slave = ha_status(&set.of_slave).await;
    assert!(!of_slave.master && of_slave.ha_connection_info.is_empty());
    let client = of_slave.ha_client_runtime_info;
    assert_eq!(client.max_offset, status.master_commit_log_max_offset);
    assert_eq!(
        client.master_addr,
        set.master.ha_address().map(|address| format!("127.0.0.1:{}", address.port()))
    );

    // Writes are for the master.
    let refused = set.of_slave.call(send_request("", "x")).await;
    let remark = "[REJECTREQUEST]system busy, start flow control for a while";
    assert_eq!((refused.code, refused.remark.as_deref()), (2, Some(remark)));
    let reset = RemotingCommand::request(request::INVOKE_BROKER_TO_RESET_OFFSET)
        .with("topic", "T")
        .with("group", "g")
        .with("timestamp", 0)
        .with("isForce", true);
    let refused = set.of_slave.call(reset).await;
    assert_eq!((refused.code, refused.remark.as_deref()), (1, Some("Can not reset offset in slave broker")));
    let told = RemotingCommand::request(908).with("masterFlushOffset", 77);
    set.of_slave.done(told).await;
    assert_eq!(ha_status(&set.of_slave).await.ha_client_runtime_info.master_flush_offset, 77);

    set.master.shutdown().await;
    let answer = set.of_slave.done(pull(0)).await;
    assert_eq!(answer.body, of_master.body);
    set.slave.shutdown().await;
    set.namesrv.shutdown().await;
}

/// `docs/spec/05-ha.md` 5.2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_a_consumer_should_ask_next() {
    let set = Set::start(&[ON_THIS_MACHINE]).await;
    send(&set.of_master, 50).await;
    until(async || max_offset(&set.of_slave).await, |offset| *offset == 50).await;
    until(async || set.of_slave.call(pull(0)).await.code, |code| *code == 0).await;
    let told = async |peer: &Peer, offset: i64| {
        let answer = peer.call(pull(offset)).await;
        let field = |name: &str| answer.field(name).unwrap().parse::<i64>().unwrap();
        (answer.code, field("suggestWhichBrokerId"), field("nextBeginOffset"))
    };
    assert_eq!(told(&set.of_slave, 0).await, (0, 0, 8));
    assert_eq!(told(&set.of_slave, 50).await, (19, 0, 50));
    assert_eq!(told(&set.of_slave, 500).await, (20, 0, 500), "the slave may lack what the master has");
    assert_eq!(told(&set.of_slave, -5).await, (20, 0, -5));
    assert_eq!(told(&set.of_master, 0).await, (0, 0, 8));
    assert_eq!(told(&set.of_master, 500).await, (21, 0, 50));
    assert_eq!(told(&set.of_master, -5).await, (21, 0, 0));
    set.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_those_of_the_master_and_progress_never_goes_back() {
    let set = Set::start(&[ON_THIS_MACHINE]).await;
    send(&set.of_master, 20).await;
    set.of_master.done(group("kept")).await;
    set.of_master.done(group("dropped")).await;
    set.of_master.done(commit(7)).await;
    until(async || committed(&set.of_slave).await, |offset| *offset == Some(7)).await;
    let find = async |name: &str| {
        let question = RemotingCommand::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG);
        let body = set.of_slave.done(question).await.body;
        String::from_utf8(body.to_vec()).unwrap().contains(name)
    };
    until(async || find("dropped").await, |found| *found).await;
    assert!(find("kept").await);

    // The slave knows more of the group than the master.
    until(async || max_offset(&set.of_slave).await, |offset| *offset == 20).await;
    set.of_slave.done(commit(15)).await;
    let delete = RemotingCommand::request(request::DELETE_SUBSCRIPTIONGROUP).with("groupName", "dropped");
    set.of_master.done(delete).await;
    until(async || find("dropped").await, |found| !*found).await;
    assert_eq!(committed(&set.of_slave).await, Some(15));
    assert_eq!(committed(&set.of_master).await, Some(7));
    set.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_returns_takes_over_how_far_consumers_have_come_at_the_slave() {
    let mut set = Set::start(&[ON_THIS_MACHINE]).await;
    set.of_master.done(group("kept")).await;
    send(&set.of_master, 20).await;
    set.of_master.done(commit(9)).await;
    until(async || committed(&set.of_slave).await, |offset| *offset == Some(9)).await;
    // An administrator's step back reaches the slave too.
    set.of_master.done(commit(5)).await;
    until(async || committed(&set.of_slave).await, |offset| *offset == Some(5)).await;
    until(async || max_offset(&set.of_slave).await, |offset| *offset == 20).await;

    set.master.shutdown().await;
    set.of_slave.done(commit(15)).await;
    let namesrv = namesrv_address(&set.namesrv);
    let master = set.directory.path().join("master");
    set.master = start(&master, &[("namesrvAddr", namesrv.as_str()), ON_THIS_MACHINE]).await;
    set.of_master = Peer::connect(&set.master).await;
    until(async || committed(&set.of_master).await, |offset| *offset == Some(15)).await;
    set.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_the_master_deleted_begins_empty_when_the_slave_takes_over() {
    let set = Set::start(&[ON_THIS_MACHINE]).await;
    set.of_master.done(group("kept")).await;
    send(&set.of_master, 20).await;
    set.of_master.done(commit(9)).await;
    until(async || committed(&set.of_slave).await, |offset| *offset == Some(9)).await;
    until(async || max_offset(&set.of_slave).await, |offset| *offset == 20).await;
    let delete = RemotingCommand::request(request::DELETE_TOPIC_IN_BROKER).with("topic", "T");
    set.of_master.done(delete).await;
    until(async || set.of_slave.call(pull(0)).await.code, |code| *code == response::TOPIC_NOT_EXIST).await;

    let Set { namesrv, master, slave, directory, .. } = set;
    master.shutdown().await;
    slave.shutdown().await;
    let address = namesrv_address(&namesrv);
    let promoted = start(&directory.path().join("slave"), &[("namesrvAddr", &address)]).await;
    let peer = Peer::connect(&promoted).await;
    send(&peer, 1).await;
    assert_eq!(max_offset(&peer).await, 1);
    assert_eq!(peer.done(pull(0)).await.field("minOffset"), Some("0"));
    assert_eq!(committed(&peer).await, None);
    promoted.shutdown().await;
    namesrv.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_that_was_stopped_goes_on() {
    let mut set = Set::start(&[ON_THIS_MACHINE]).await;
    send(&set.of_master, 20).await;
    until(async || max_offset(&set.of_slave).await, |offset| *offset == 20).await;
    set.slave.shutdown().await;
    send(&set.of_master, 20).await;
    let namesrv = namesrv_address(&set.namesrv);
    set.slave = start_slave(set.directory.path(), &namesrv, &[]).await;
    set.of_slave = Peer::connect(&set.slave).await;
    until(async || max_offset(&set.of_slave).await, |offset| *offset == 40).await;
    set.stop().await;
}

/// `docs/spec/05-ha.md` 3.3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_master_without_slaves_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let settings = [("brokerRole", "SYNC_MASTER"), ("slaveTimeout", "300")];
    let master = start(&directory.path().join("4"), &settings).await;
    let peer = Peer::connect(&master).await;
    assert_eq!(send_code(&peer, "").await.0, 11, "at once, and the message is stored");
    assert_eq!(send_code(&peer, "WAIT\u{1}false\u{2}").await.0, 0);
    assert_eq!(max_offset(&peer).await, 2);
    master.shutdown().await;

    let settings = [("brokerRole", "SYNC_MASTER"), ("slaveTimeout", "300"), ("inSyncReplicas", "2")];
    let master = start(&directory.path().join("5"), &settings).await;
    let peer = Peer::connect(&master).await;
    let (code, took) = send_code(&peer, "").await;
    assert_eq!(code, 12);
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert_eq!(send_code(&peer, "WAIT\u{1}false\u{2}").await.0, 0);
    master.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_master_waits_for_its_slaves() {
    let settings = [ON_THIS_MACHINE, ("brokerRole", "SYNC_MASTER"), ("inSyncReplicas", "2")];
    let set = Set::start(&settings).await;
    until(async || ha_status(&set.of_master).await.in_sync_slave_nums, |slaves| *slaves == 1).await;
    assert_eq!(send_code(&set.of_master, "").await.0, 0);
    // What was answered is at the slave.
    assert_eq!(max_offset(&set.of_slave).await, 1);
    set.stop().await;
}

/// A slave, byte for byte.
async fn slave_at(master: &RunningBroker, report: i64) -> TcpStream {
    let mut slave = TcpStream::connect(master.ha_address().unwrap()).await.unwrap();
    slave.write_all(&report.to_be_bytes()).await.unwrap();
    slave
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_counts_as_a_replica() {
    let directory = tempfile::tempdir().unwrap();
    let settings = [("brokerRole", "SYNC_MASTER"), ("slaveTimeout", "500"), ("inSyncReplicas", "2")];
    let master = start(directory.path(), &settings).await;
    let peer = Peer::connect(&master).await;
    assert_eq!(send_code(&peer, "").await.0, 12);
    let end = ha_status(&peer).await.master_commit_log_max_offset;

    // A bogus acknowledgement counts for nothing, and ends the connection.
    let mut bogus = slave_at(&master, i64::MAX).await;
    assert_eq!(bogus.read(&mut [0; 12]).await.unwrap_or(0), 0);
    assert_eq!(send_code(&peer, "").await.0, 12);
    let mut bogus = slave_at(&master, end).await;
    bogus.write_all(&i64::MAX.to_be_bytes()).await.unwrap();
    assert_eq!(send_code(&peer, "").await.0, 12);

    // One that is connected and never acknowledges.
    let silent = slave_at(&master, end).await;
    assert_eq!(send_code(&peer, "").await.0, 12);
    drop(silent);

    // Two connections of one slave, which acknowledge everything, are one replica.
    let acknowledge = |mut slave: TcpStream| async move {
        let mut received = vec![0; 1 << 16];
        let mut at = 0;
        loop {
            // Header and body come in one piece here.
            let read = slave.read(&mut received).await.unwrap_or(0);
            if read < 12 {
                return;
            }
            let offset = i64::from_be_bytes(*received.first_chunk().unwrap());
            at = at.max(offset + read as i64 - 12);
            if slave.write_all(&at.to_be_bytes()).await.is_err() {
                return;
            }
        }
    };
    let end = ha_status(&peer).await.master_commit_log_max_offset;
    tokio::spawn(acknowledge(slave_at(&master, end).await));
    tokio::spawn(acknowledge(slave_at(&master, end).await));
    until(async || ha_status(&peer).await.in_sync_slave_nums, |slaves| *slaves == 1).await;
    assert_eq!(send_code(&peer, "").await.0, 0);
    let wait_for_3 = RemotingCommand::request(request::UPDATE_BROKER_CONFIG).with_body("inSyncReplicas=3");
    peer.done(wait_for_3).await;
    assert_eq!(send_code(&peer, "").await.0, 12);
    timeout(PATIENCE, master.shutdown()).await.unwrap();
}

/// `docs/spec/05-ha.md` 6.8: what brokers of RocketMQ want to know before they take part in a set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_and_slave_tell_each_other_where_the_master_is() {
    let set = Set::start(&[ON_THIS_MACHINE, ("enableSlaveActingMaster", "true")]).await;
    let exchange = || RemotingCommand::request(request::EXCHANGE_BROKER_HA_INFO);
    let told = set.of_master.done(exchange()).await;
    let ha_port = set.master.ha_address().unwrap().port();
    assert_eq!(told.field("masterHaAddress"), Some(format!("127.0.0.1:{ha_port}").as_str()));
    assert_eq!(told.field("masterFlushOffset"), Some("0"), "where its log ended when it started");
    let address = told.field("masterAddress").unwrap().to_owned();
    assert!(address.ends_with(&format!(":{}", set.master.address().port())), "{address}");
    assert_eq!(set.of_slave.done(exchange()).await.field("masterHaAddress"), None, "a slave can't say");

    // A master that returns tells its slave, which connects at once.
    let returned = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tell = exchange()
        .with("masterHaAddress", returned.local_addr().unwrap().to_string())
        .with("masterFlushOffset", 0)
        .with("masterAddress", address);
    set.of_slave.done(tell).await;
    timeout(PATIENCE, returned.accept()).await.unwrap().unwrap();
    let check_point = || RemotingCommand::request(request::GET_TIMER_CHECK_POINT);
    assert_eq!(set.of_slave.done(check_point()).await.body, vec![0; 56], "older than any");
    assert_eq!(set.of_master.call(check_point()).await.code, response::REQUEST_CODE_NOT_SUPPORTED);
    set.stop().await;
}

/// `docs/spec/05-ha.md` 6.9: who acts for a dead master knows what it had locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_locks_queues_in_strict_mode() {
    let settings = [
        ON_THIS_MACHINE,
        ("enableSlaveActingMaster", "true"),
        ("lockInStrictMode", "true"),
        ("totalReplicas", "3"),
        ("syncBrokerMemberGroupPeriod", "100"),
    ];
    let mut set = Set::start(&settings).await;
    let asked = |client_id: &str, only_this_broker: bool| LockBatchRequestBody {
        client_id: client_id.to_owned(),
        consumer_group: "G".to_owned(),
        mq_set: [MessageQueue::new("T", "broker-a", 0)].into(),
        only_this_broker,
    };
    let locks = async |peer: &Peer, client_id: &str, only_this_broker: bool| {
        let answer: LockBatchResponseBody =
            peer.ask(request::LOCK_BATCH_MQ, &asked(client_id, only_this_broker)).await;
        !answer.lock_ok_mq_set.is_empty()
    };
    // As soon as the master knows its slave, two of three agree.
    until(async || locks(&set.of_master, "a", false).await, |is_locked| *is_locked).await;
    assert!(!locks(&set.of_slave, "b", true).await, "the slave knows that a holds it");
    let unlock =
        RemotingCommand::request(request::UNLOCK_BATCH_MQ).with_body(json::to_vec(&asked("a", false)));
    set.of_master.done(unlock).await;
    until(async || locks(&set.of_slave, "b", true).await, |is_locked| *is_locked).await;
    assert!(!locks(&set.of_master, "a", false).await, "only the master itself would grant it");

    set.slave.shutdown().await;
    assert!(!locks(&set.of_master, "a", false).await, "one is no majority");
    set.slave = start_slave(set.directory.path(), &namesrv_address(&set.namesrv), &settings).await;
    until(async || locks(&set.of_master, "a", false).await, |is_locked| *is_locked).await;
    set.stop().await;
}

/// `docs/spec/05-ha.md` 6: the slave is shown as the master, and brings delayed messages that are due to another set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_acts_for_its_master() {
    let settings = [
        ON_THIS_MACHINE,
        ("enableSlaveActingMaster", "true"),
        ("enableRemoteEscape", "true"),
        ("messageDelayLevel", "5s 1h"),
        ("flushDelayOffsetInterval", "100"),
    ];
    let mut set = Set::start(&settings).await;
    let namesrv = namesrv_address(&set.namesrv);
    let other = [("namesrvAddr", namesrv.as_str()), ("brokerName", "broker-b"), ON_THIS_MACHINE];
    let other = start(&set.directory.path().join("other"), &other).await;
    let of_other = Peer::connect(&other).await;
    send(&of_other, 1).await;
    send(&set.of_master, 1).await;
    set.of_master.done(send_request("DELAY\u{1}1\u{2}KEYS\u{1}late\u{2}", "late")).await;
    until(
        async || ha_status(&set.of_master).await,
        |status| status.ha_connection_info.first().is_some_and(|slave| slave.diff == 0),
    )
    .await;
    until(async || set.of_slave.call(pull(0)).await.code, |code| *code == 0).await;
    set.master.shutdown().await;

    // Clients are told that it is the master, and only for reading.
    let client = ferromq_remoting::Client::new();
    let shown = async || {
        let question = RemotingCommand::request(request::GET_ROUTEINFO_BY_TOPIC).with("topic", "T");
        let answer = client.invoke(&namesrv, question, PATIENCE).await.unwrap();
        let route: ferromq_protocol::body::TopicRouteData =
            json::from_slice(&answer.body).unwrap_or_default();
        let set = route.broker_datas.iter().find(|set| set.broker_name == "broker-a").cloned();
        set.and_then(|set| set.broker_addrs.get(&0).cloned())
    };
    let slave = format!("127.0.0.1:{}", set.slave.address().port());
    until(shown, |master| master.as_ref() == Some(&slave)).await;
    let refused = set.of_slave.call(send_request("", "x")).await;
    assert_eq!(refused.code, 14, "{refused:?}");

    // The delayed message comes to the other set, once.
    let total = async || {
        let mut total = 0;
        for queue in 0..4 {
            let question =
                RemotingCommand::request(request::GET_MAX_OFFSET).with("topic", "T").with("queueId", queue);
            total += of_other.done(question).await.number::<i64>("offset").unwrap();
        }
        total
    };
    until(total, |total| *total == 2).await;

    // The master that returns knows that it was delivered.
    let mut of_master = vec![("namesrvAddr", namesrv.as_str())];
    of_master.extend(settings);
    set.master = start(&set.directory.path().join("master"), &of_master).await;
    set.of_master = Peer::connect(&set.master).await;
    set.of_master.done(send_request("DELAY\u{1}1\u{2}", "later")).await;
    until(async || max_offset(&set.of_master).await, |offset| *offset == 2).await;
    let stored = set.of_master.done(pull(1)).await.body;
    assert!(String::from_utf8_lossy(&stored).contains("later"), "the second one, and not the first again");
    other.shutdown().await;
    set.stop().await;
}
