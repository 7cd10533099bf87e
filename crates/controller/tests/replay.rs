//! Conformance: requests and answers that were recorded from leading controllers of RocketMQ 5.3.3, held against ours.
//!
//! The recorded brokers are stood for by listeners on ports of the system; their addresses and those of the controllers are
//! exchanged in what is sent and compared.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use ferromq_protocol::code::request::NOTIFY_BROKER_ROLE_CHANGED;
use ferromq_protocol::command::{FieldList, RemotingCommand};
use ferromq_protocol::{frame, json};
use serde_json::{Value, json};
use support::{Controllers, FakeBroker, PATIENCE, elect};
use tokio::time::timeout;

/// Ports of the recording.
const CONTROLLERS: [&str; 3] = ["127.0.0.1:9745", "127.0.0.1:9746", "127.0.0.1:9747"];
const BROKERS: [&str; 3] = ["127.0.0.1:11741", "127.0.0.1:11751", "127.0.0.1:11761"];

struct Recording(Vec<Value>);

impl Recording {
    fn read(file: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file);
        let text = std::fs::read_to_string(path).unwrap();
        Self(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    fn frame(&self, name: &str) -> RemotingCommand {
        let line = self.0.iter().find(|line| line["name"] == name).unwrap();
        decode(line["bytes"].as_str().unwrap())
    }
}

fn decode(hex: &str) -> RemotingCommand {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let (frame, length) = frame::split(&bytes).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    RemotingCommand::decode(&frame).unwrap()
}

/// What a peer can see of an answer. The body is compared as text: it must be what fastjson writes.
fn describe(answer: &RemotingCommand) -> Value {
    let fields = answer.fields.as_ref().map(|fields| {
        fields.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect::<serde_json::Map<_, _>>()
    });
    let body = String::from_utf8(answer.body.to_vec()).unwrap();
    json!({ "code": answer.code, "remark": answer.remark, "fields": fields, "body": body })
}

/// Addresses of the recording and ours.
struct Addresses(Vec<(&'static str, String)>);

impl Addresses {
    fn replace(&self, command: &RemotingCommand, ours: bool) -> RemotingCommand {
        let replace = |text: &str| {
            self.0.iter().fold(text.to_owned(), |text, (recorded, own)| match ours {
                true => text.replace(recorded, own),
                false => text.replace(own, recorded),
            })
        };
        let fields = command.fields.as_ref();
        RemotingCommand {
            fields: fields.map(|fields| fields.iter().map(|(key, value)| (key, replace(value))).collect()),
            body: replace(std::str::from_utf8(&command.body).unwrap()).into_bytes().into(),
            remark: command.remark.as_deref().map(replace),
            ..command.clone()
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_and_its_controllers() {
    let recording = Recording::read("controller.jsonl");
    let controllers = Controllers::start(3).await;
    let addresses = Addresses(
        CONTROLLERS.into_iter().enumerate().map(|(id, at)| (at, controllers.address(id))).collect(),
    );
    let same = async |request: &str, answer: &str| {
        let request = addresses.replace(&recording.frame(request), true);
        let ours = addresses.replace(&controllers.ask(request).await, false);
        assert_eq!(describe(&ours), describe(&recording.frame(answer)), "{answer}");
    };

    // Who leads is chance: only that is not compared.
    let leader = controllers.leader().await;
    let request = recording.frame("request-1005");
    let mut ours = describe(&addresses.replace(&controllers.ask_one(leader, request).await, false));
    assert_eq!(ours["fields"]["isLeader"], "true");
    assert_eq!(ours["fields"]["controllerLeaderId"], format!("n{leader}"));
    ours["fields"]["isLeader"] = json!("false");
    ours["fields"]["controllerLeaderId"] = json!("n0");
    ours["fields"]["controllerLeaderAddress"] = json!(CONTROLLERS[0]);
    assert_eq!(ours, describe(&recording.frame("response-1005-code-0")));

    same("request-1012", "response-1012-code-0").await;
    same("request-1013", "response-1013-code-0").await;
    same("request-1003", "response-1003-code-0").await;
    controllers
        .client
        .invoke(&controllers.address(leader), recording.frame("request-904"), PATIENCE)
        .await
        .unwrap();
    same("request-1002", "response-1002-code-0").await;
    same("request-1004", "response-1004-code-0").await;
    same("request-1006", "response-1006-code-0").await;

    let follower = (controllers.leader().await + 1) % 3;
    for code in ["1004", "1001"] {
        let answer = controllers.ask_one(follower, recording.frame(&format!("request-{code}"))).await;
        let recorded = recording.frame(&format!("response-{code}-code-2007"));
        assert_eq!(describe(&answer), describe(&recorded), "{code} to a follower");
    }
    let _second = FakeBroker::start(&controllers, 2).await;
    let altered = controllers.alter(1, &[1, 2]).await;
    assert_eq!(describe(&altered), describe(&recording.frame("response-1001-code-0")));
    controllers.stop().await;
}

/// The state of the recording: three replicas, master 2 in epoch 13, SyncStateSet {1, 2, 3} in epoch 26.
async fn three_replicas_in_epoch_13(controllers: &Controllers) -> [FakeBroker; 3] {
    let brokers = [
        FakeBroker::start(controllers, 1).await,
        FakeBroker::start(controllers, 2).await,
        FakeBroker::start(controllers, 3).await,
    ];
    controllers.succeed(elect(2, false)).await;
    for (old, new) in [(2, 1), (1, 2)].into_iter().cycle().take(12) {
        controllers.alter(old, &[1, 2]).await;
        controllers.succeed(elect(new, true)).await;
    }
    controllers.alter(2, &[1, 2, 3]).await;
    brokers
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests() {
    let recording = Recording::read("controller-errors.jsonl");
    let controllers = Controllers::start(1).await;
    let brokers = three_replicas_in_epoch_13(&controllers).await;
    let own = brokers.iter().map(|broker| broker.address.clone());
    let addresses = Addresses(BROKERS.into_iter().zip(own).collect());

    for line in &recording.0 {
        let name = line["name"].as_str().unwrap();
        let asked = &line["decoded"]["request"];
        let code = asked["code"].as_i64().unwrap().try_into().unwrap();
        let mut request = RemotingCommand::request(code);
        for (field, value) in asked["extFields"].as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            request = request.with(field.as_str(), text);
        }
        if let Some(body) = asked["body"].as_str() {
            request = request.with_body(body.as_bytes().to_vec());
        }
        let ours = addresses.replace(&controllers.ask(addresses.replace(&request, true)).await, false);
        let recorded = decode(line["bytes"].as_str().unwrap());
        assert_eq!(describe(&ours), describe(&recorded), "{name}");
    }
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_of_a_new_master() {
    let recording = Recording::read("controller.jsonl");
    let recorded = recording.frame("request-1008");
    let controllers = Controllers::start(1).await;
    let [first, second, mut third] = three_replicas_in_epoch_13(&controllers).await;
    while third.told.try_recv().is_ok() {}
    first.heartbeat(&controllers, 13, 1000).await;
    third.heartbeat(&controllers, 13, 999).await;
    second.die().await;
    controllers.until_master(1).await;
    let notice = timeout(PATIENCE, third.told.recv()).await.unwrap().unwrap();
    assert_eq!((notice.code, notice.is_oneway()), (NOTIFY_BROKER_ROLE_CHANGED, true));
    let expected = json!({
        "code": recorded.code,
        "remark": null,
        "fields": {
            "masterAddress": first.address, "masterBrokerId": "1", "syncStateSetEpoch": "27", "masterEpoch": "14",
        },
        "body": r#"{"syncStateSet":[1],"syncStateSetEpoch":27}"#,
    });
    assert_eq!(describe(&notice), expected);
    // The recording has the same parts.
    let names = |command: &RemotingCommand| {
        let mut names: Vec<_> =
            command.fields.iter().flat_map(FieldList::iter).map(|(name, _)| name.to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&notice), names(&recorded));
    assert!(json::from_slice::<ferromq_protocol::body::SyncStateSet>(&recorded.body).is_ok());
    controllers.stop().await;
}
