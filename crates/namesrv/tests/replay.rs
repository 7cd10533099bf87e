//! Conformance: exchanges that were recorded from a RocketMQ 5.3.3 name server, replayed against ours.
//!
//! Each file of `vectors/` is one scenario, a JSON object per line. Every step sends the recorded frame over the named
//! connection and holds the answer, taken apart, against the step's `expect`. `pushes` are frames that the name server
//! sends over connections of its own, and connections that it closes. Removals of brokers take effect after they were
//! answered: look-ups that the recording did after a pause are repeated until they are as expected.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ferromq_namesrv::{Namesrv, NamesrvConfig};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::{frame, json};
use ferromq_settings::Settings as _;
use serde_json::{Value, json};

/// Where ours answers otherwise on purpose: (step, path of the answer, our value). `docs/differences.md` tells users.
struct Deviation {
    step: &'static str,
    reason: &'static str,
    ours: fn() -> Vec<(&'static str, Value)>,
}

const NO_DEVIATIONS: &[Deviation] = &[];

const BASIC_DEVIATIONS: &[Deviation] = &[
    Deviation {
        step: "reg-b0-compressed-says-plain",
        reason: "a 5.x broker with compressedRegister=true sends this; RocketMQ never takes its registrations",
        ours: registered_with_order_table,
    },
    Deviation {
        step: "318-badint",
        reason: "a setting that is not changed is not answered with success",
        ours: names_the_setting,
    },
];

fn names_the_setting() -> Vec<(&'static str, Value)> {
    vec![("code", json!(1)), ("remark", json!("defaultThreadPoolNums: `abc` is not a 32-bit number"))]
}

fn registered_with_order_table() -> Vec<(&'static str, Value)> {
    vec![
        ("code", json!(0)),
        ("remark", Value::Null),
        ("ext", json!({})),
        ("body_text", json!(r#"{"table":{"T1":"a:4"}}"#)),
    ]
}

const COMPRESSED_BROKER_DEVIATIONS: &[Deviation] = &[
    Deviation { step: "broker-103-1", reason: "as above", ours: registered },
    Deviation { step: "broker-103-2", reason: "as above", ours: registered },
    Deviation { step: "broker-103-3", reason: "as above", ours: registered },
    Deviation { step: "broker-106-3", reason: "as above", ours: knows_broker_c },
];

fn registered() -> Vec<(&'static str, Value)> {
    vec![("code", json!(0)), ("remark", Value::Null)]
}

fn knows_broker_c() -> Vec<(&'static str, Value)> {
    vec![("body.brokerAddrTable.broker-c.brokerAddrs", json!({"0": "127.0.0.1:11851"}))]
}

#[test]
fn basic() {
    replay("5.3.3-basic.jsonl", BASIC_DEVIATIONS);
}

#[test]
fn acting_master() {
    replay("5.3.3-acting-master.jsonl", NO_DEVIATIONS);
}

#[test]
fn delete_with_registration() {
    replay("5.3.3-delete-with-registration.jsonl", NO_DEVIATIONS);
}

#[test]
fn broker_in_acting_mode() {
    replay("5.3.3-broker-acting-mode.jsonl", NO_DEVIATIONS);
}

#[test]
fn broker_with_compressed_registration() {
    replay("5.3.3-broker-compressed.jsonl", COMPRESSED_BROKER_DEVIATIONS);
}

/// How long something that happens by itself may take beyond the recorded pause.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Within this time a notice is sent, says the recording.
const PUSH_TIME: Duration = Duration::from_millis(500);

const GET_ROUTEINFO_BY_TOPIC: i32 = 105;
const GET_BROKER_CLUSTER_INFO: i32 = 106;
const GET_BROKER_MEMBER_GROUP: i32 = 901;

/// Brokers of the recordings that the name server connects to.
const RECORDED_BROKERS: [&str; 3] = ["127.0.0.1:11851", "127.0.0.1:11861", "127.0.0.1:11871"];

fn replay(file: &str, deviations: &[Deviation]) {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file))
            .unwrap();
    let steps: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut config = NamesrvConfig {
        kv_config_path: folder.path().join("kvConfig.json").to_string_lossy().into_owned(),
        config_store_path: folder.path().join("namesrv.conf").to_string_lossy().into_owned(),
        ..NamesrvConfig::default()
    };
    config.set("bindAddress", "127.0.0.1").unwrap();
    config.set("listenPort", "0").unwrap();
    for setting in steps[0]["config"].as_array().into_iter().flatten() {
        let (key, value) = setting.as_str().unwrap().split_once('=').unwrap();
        config.set(key, value).unwrap();
    }

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let namesrv = {
        let _entered = runtime.enter();
        Namesrv::start(config).unwrap()
    };
    let mut scenario = Scenario::new(namesrv.address());
    for deviation in deviations {
        assert!(steps.iter().any(|step| step["name"] == deviation.step), "no step {}", deviation.step);
    }
    for step in &steps {
        let deviation = deviations.iter().find(|deviation| step["name"] == deviation.step);
        scenario.run(step, deviation);
    }
    scenario.no_more_notices();
    runtime.block_on(namesrv.shutdown());
}

struct Scenario {
    address: SocketAddr,
    connections: HashMap<String, TcpStream>,
    brokers: Vec<FakeBroker>,
}

impl Scenario {
    fn new(address: SocketAddr) -> Self {
        let brokers = RECORDED_BROKERS.map(FakeBroker::start).into();
        Self { address, connections: HashMap::new(), brokers }
    }

    fn run(&mut self, step: &Value, deviation: Option<&Deviation>) {
        let name = step["name"].as_str().unwrap();
        let connection = step["connection"].as_str().unwrap_or("c").to_owned();
        if step["action"] == "close_connection" {
            self.connections.remove(&connection);
            return;
        }
        let Some(request) = step["request"].as_str() else { return };
        let request = self.with_our_addresses(unhex(request));
        let pause = Duration::from_millis(step["wait_ms"].as_u64().unwrap_or(0));
        let sent = decode(&request);
        let is_lookup =
            [GET_ROUTEINFO_BY_TOPIC, GET_BROKER_CLUSTER_INFO, GET_BROKER_MEMBER_GROUP].contains(&sent.code);
        if !is_lookup {
            thread::sleep(pause);
        }

        let deadline = Instant::now() + pause + PATIENCE;
        loop {
            let answer = self.exchange(&connection, &request, sent.is_oneway());
            let Some(answer) = answer else { break };
            assert_eq!(answer["opaque"], json!(sent.opaque), "{name}: another request's answer");
            match check(step, deviation, &answer) {
                Ok(()) => break,
                Err(_) if is_lookup && pause > Duration::ZERO && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(mismatch) => panic!("{name}: {mismatch}\nthe whole answer: {answer:#}"),
            }
        }
        for push in step["pushes"].as_array().into_iter().flatten() {
            self.expect_push(name, push);
        }
    }

    fn exchange(&mut self, connection: &str, request: &[u8], is_oneway: bool) -> Option<Value> {
        let stream = self.connections.entry(connection.to_owned()).or_insert_with(|| {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
            stream
        });
        stream.write_all(request).unwrap();
        if is_oneway {
            return None;
        }
        let bytes = read_frame(stream).unwrap().expect("the name server closed the connection");
        Some(describe(&decode(&self.with_recorded_addresses(bytes))))
    }

    fn expect_push(&mut self, step: &str, push: &Value) {
        let Some(to) = push["to"].as_str() else {
            let closed = push["connection"].as_str().unwrap();
            let mut stream = self.connections.remove(closed).unwrap();
            assert_eq!(read_frame(&mut stream).unwrap(), None, "{step}: {closed} is not closed");
            return;
        };
        let broker = self.brokers.iter().find(|broker| broker.recorded == to).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let bytes = loop {
            if let Some(bytes) = broker.take_notice() {
                break bytes;
            }
            assert!(Instant::now() < deadline, "{step}: no notice to {to}");
            thread::sleep(Duration::from_millis(5));
        };
        let mut notice = describe(&decode(&self.with_recorded_addresses(bytes)));
        notice["opaque"] = push["decoded"]["opaque"].clone();
        assert_eq!(notice, push["decoded"], "{step}: notice to {to}");
    }

    fn no_more_notices(&self) {
        if self.brokers.iter().any(|broker| *broker.was_reached.lock().unwrap()) {
            thread::sleep(PUSH_TIME);
        }
        for broker in &self.brokers {
            assert_eq!(
                broker.take_notice().map(|bytes| describe(&decode(&bytes))),
                None,
                "{}",
                broker.recorded
            );
        }
    }

    fn with_our_addresses(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.brokers.iter().fold(bytes, |bytes, broker| replace(bytes, broker.recorded, &broker.address))
    }

    fn with_recorded_addresses(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.brokers.iter().fold(bytes, |bytes, broker| replace(bytes, &broker.address, broker.recorded))
    }
}

/// Listens in the place of a recorded broker, on a port that the system chose.
struct FakeBroker {
    recorded: &'static str,
    address: String,
    notices: Arc<Mutex<Vec<Vec<u8>>>>,
    was_reached: Arc<Mutex<bool>>,
}

impl FakeBroker {
    fn start(recorded: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // The address is exchanged inside of frames, so it must be as long as the recorded one.
        assert_eq!(address.len(), recorded.len(), "the system's ports are expected to have five digits");
        let notices = Arc::new(Mutex::new(Vec::new()));
        let was_reached = Arc::new(Mutex::new(false));
        let (kept, reached) = (notices.clone(), was_reached.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                *reached.lock().unwrap() = true;
                let (mut stream, kept) = (stream.unwrap(), kept.clone());
                thread::spawn(move || {
                    while let Ok(Some(bytes)) = read_frame(&mut stream) {
                        kept.lock().unwrap().push(bytes);
                    }
                });
            }
        });
        Self { recorded, address, notices, was_reached }
    }

    fn take_notice(&self) -> Option<Vec<u8>> {
        let mut notices = self.notices.lock().unwrap();
        (!notices.is_empty()).then(|| notices.remove(0))
    }
}

/// One whole frame; `None` at the end of the stream.
fn read_frame(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; 4];
    match stream.read_exact(&mut bytes) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) =>
        {
            return Ok(None);
        }
        read => read?,
    }
    let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    bytes.resize(4 + length, 0);
    stream.read_exact(&mut bytes[4..])?;
    Ok(Some(bytes))
}

fn decode(bytes: &[u8]) -> RemotingCommand {
    let (frame, length) = frame::split(bytes).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    RemotingCommand::decode(&frame).unwrap()
}

/// A command as the recordings describe one.
fn describe(command: &RemotingCommand) -> Value {
    let mut description = json!({
        "code": command.code, "flag": command.flag, "version": command.version, "opaque": command.opaque,
    });
    if let Some(remark) = &command.remark {
        description["remark"] = json!(remark);
    }
    if let Some(fields) = &command.fields {
        description["ext"] = fields.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    }
    if !command.body.is_empty() {
        describe_body(&command.body, &mut description);
    }
    description
}

fn describe_body(body: &Bytes, description: &mut Value) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    description["body_text"] = json!(text);
    if let Ok(value) = json::parse(text) {
        description["body"] = with_text_keys(&value);
    }
}

fn with_text_keys(value: &json::Value<'_>) -> Value {
    match value {
        json::Value::Null => Value::Null,
        json::Value::Bool(value) => json!(value),
        json::Value::Number(digits) => serde_json::from_str(digits).unwrap(),
        json::Value::String(text) => json!(text),
        json::Value::Array(elements) => elements.iter().map(with_text_keys).collect(),
        json::Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.as_name().unwrap().to_owned(), with_text_keys(value)))
            .collect(),
    }
}

/// Holds an answer against what the step, or our deviation from it, expects.
fn check(step: &Value, deviation: Option<&Deviation>, answer: &Value) -> Result<(), String> {
    let ours = deviation.map(|deviation| (deviation.ours)()).unwrap_or_default();
    for (path, value) in &ours {
        let found = at(answer, path).unwrap_or(&Value::Null);
        if found != value {
            return Err(format!(
                "{path} is {found}, ours is {value} ({})",
                deviation.map_or("", |it| it.reason)
            ));
        }
    }
    for expected in step["expect"].as_array().into_iter().flatten() {
        let path = expected["path"].as_str().unwrap();
        if ours.iter().any(|(ours, _)| *ours == path) {
            continue;
        }
        let found = at(answer, path);
        if !meets(expected, found) {
            return Err(format!("{path} is {}, expected {expected}", found.unwrap_or(&Value::Null)));
        }
    }
    Ok(())
}

fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| match value {
        Value::Array(elements) => elements.get(part.parse::<usize>().ok()?),
        _ => value.get(part),
    })
}

fn meets(expected: &Value, found: Option<&Value>) -> bool {
    if let Some(value) = expected.get("equals") {
        return found == Some(value);
    }
    if let Some(members) = expected.get("set_equals") {
        let sorted = |list: &Value| {
            let mut list: Vec<String> = list.as_array().into_iter().flatten().map(Value::to_string).collect();
            list.sort();
            list
        };
        return found.is_some_and(|found| found.is_array() && sorted(found) == sorted(members));
    }
    if let Some(pattern) = expected.get("matches") {
        // The only expressions in these recordings say that a text stands somewhere.
        let part = pattern.as_str().unwrap().strip_prefix(".*").unwrap().strip_suffix(".*").unwrap();
        return found.and_then(Value::as_str).is_some_and(|text| text.contains(part));
    }
    match expected["type"].as_str().unwrap() {
        "string" => found.is_some_and(Value::is_string),
        "number" => found.is_some_and(Value::is_number),
        "boolean" => found.is_some_and(Value::is_boolean),
        "object" => found.is_some_and(Value::is_object),
        "array" => found.is_some_and(Value::is_array),
        "absent" => found.is_none(),
        other => panic!("the recordings have no type {other}"),
    }
}

fn replace(bytes: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut bytes = bytes;
    let mut position = 0;
    while let Some(found) = bytes[position..].windows(from.len()).position(|window| window == from) {
        bytes[position + found..][..to.len()].copy_from_slice(to);
        position += found + to.len();
    }
    bytes
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
