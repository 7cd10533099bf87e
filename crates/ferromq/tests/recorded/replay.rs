//! Plays the lines of a scenario against a broker of their own.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use ferromq_protocol::command::{FieldList, RemotingCommand};
use ferromq_protocol::frame::{self, HeaderEncoding};
use ferromq_protocol::{code, header};
use serde_json::Value;

use super::answer::{self, CONNECTION_CLOSED};
use super::check::{Finding, check};
use super::deviations;
use super::line::{Awaited, Line};
use super::scope;
use crate::support::client::{self, Arrival, Client, PATIENCE};
use crate::support::server::{self, BrokerPlace};

/// How long nothing has to come where nothing is expected.
const SILENCE: Duration = Duration::from_millis(700);

/// How long a pull is repeated until its messages are there.
const VISIBILITY: Duration = Duration::from_secs(8);

/// Messages stored one after the other have different times at least this far apart: the searches by time need it.
const SEND_SPACING: Duration = Duration::from_millis(3);

/// A pause before a pull that is longer than this is for a delayed message; a shorter one is for Java's dispatching.
/// With us, a message is visible when its send was answered.
const DISPATCH_PAUSE_MS_MAX: u64 = 1000;

/// Replays the lines of `file` that are in scope, each of which must meet its recorded checks or its deviation.
pub(crate) fn replay(file: &str, serialize: &'static str, settings: &[(&str, &str)]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
    let mut place = BrokerPlace::new(&directory.path().join("broker"), namesrv.address(), settings);
    place.serialize = serialize;
    let broker = place.start();

    for (count, reason) in scope::left_out_of(file) {
        println!("{file}: {count} lines left out: {reason}");
    }
    let mut player = Player::new(broker.address());
    let mut findings = Vec::new();
    for line in Line::read_all(file).into_iter().filter(|line| !scope::is_left_out(file, &line.name)) {
        let deviations = deviations::of_line(file, &line.name);
        let found = player.play(&line, deviations::is_silence(&deviations));
        let name = line.name.clone();
        let line_findings = check(&name, &line.expectations(broker.address()), &found);
        findings.extend(deviations::apply(&name, &deviations, line_findings, &found));
    }
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), report(&findings));
}

/// The first findings of each line: a wrong code brings many others with it.
fn report(findings: &[Finding]) -> String {
    const PER_LINE_MAX: usize = 12;
    let mut text = String::new();
    for of_line in findings.chunk_by(|one, other| one.line == other.line) {
        for finding in of_line.iter().take(PER_LINE_MAX) {
            text += &format!("  {finding}\n");
        }
        if of_line.len() > PER_LINE_MAX {
            text += &format!("  `{}`: … and {} more\n", of_line[0].line, of_line.len() - PER_LINE_MAX);
        }
    }
    text
}

struct Player {
    broker: SocketAddr,
    connections: HashMap<String, Connection>,
    /// Values of earlier answers, by the name that the recording gave them.
    captured: HashMap<String, Value>,
    /// Store times of the messages that were pulled last.
    store_times: Vec<i64>,
    /// Opaque of the request that the server sent last.
    pushed_opaque: Option<i32>,
}

impl Player {
    fn new(broker: SocketAddr) -> Self {
        let (connections, captured) = Default::default();
        Self { broker, connections, captured, store_times: Vec::new(), pushed_opaque: None }
    }

    /// Plays one line and returns what came. `is_silence`: nothing should, although something was recorded.
    fn play(&mut self, line: &Line, is_silence: bool) -> Value {
        let request = self.request(line);
        let is_pull = request.as_ref().is_some_and(|bytes| is_pull(bytes)) && line.has_messages();
        if server::is_reference() || !is_pull {
            thread::sleep(Duration::from_millis(line.wait_before_ms).max(SEND_SPACING));
        }
        if line.awaited == Awaited::CloseByClient {
            self.connections.remove(&line.conn);
            return Value::Null;
        }
        let deadline = Instant::now() + VISIBILITY;
        let repeats = is_pull && (server::is_reference() || line.wait_before_ms > DISPATCH_PAUSE_MS_MAX);
        let response = loop {
            let arrival = self.exchange(line, is_silence, request.as_deref());
            let response = match &arrival {
                Arrival::Frame(bytes) => answer::decode(bytes, line.has_messages()),
                Arrival::Closed => CONNECTION_CLOSED.into(),
                Arrival::Nothing => Value::Null,
            };
            let is_short = || message_count(&response) < message_count(&line.decoded.response);
            if repeats && is_short() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            break response;
        };
        self.remember(line, &response);
        response
    }

    fn exchange(&mut self, line: &Line, is_silence: bool, request: Option<&[u8]>) -> Arrival {
        let port = self.broker.port() - if line.port.as_deref() == Some("fast") { 2 } else { 0 };
        let address = SocketAddr::from((self.broker.ip(), port));
        // Each line of the connection `bad` was recorded on a connection of its own.
        if line.conn == "bad" {
            self.connections.remove("bad");
        }
        let connection =
            self.connections.entry(line.conn.clone()).or_insert_with(|| Connection::open(address));
        if let Some(bytes) = request {
            let written = connection.client.write(bytes);
            assert!(written.is_ok() || line.awaited == Awaited::Close, "`{}`: {written:?}", line.name);
        }
        let patience = if is_silence || line.response.is_none() { SILENCE } else { PATIENCE };
        match line.awaited {
            Awaited::Reply | Awaited::DeferredReply => connection.response(recorded_opaque(line), patience),
            Awaited::Silence => connection.response(None, SILENCE),
            Awaited::Close => connection.response(None, PATIENCE),
            Awaited::Push => connection.push(patience),
            Awaited::Deferred | Awaited::None | Awaited::CloseByClient => Arrival::Nothing,
        }
    }

    /// The bytes of the line with what depends on the run.
    fn request(&self, line: &Line) -> Option<Vec<u8>> {
        let mut bytes = match &line.request_head {
            Some(head) => with_filled_body(head),
            None => line.request.clone()?,
        };
        if !line.subst.is_empty() {
            let (frame, _) = frame::split(&bytes).expect("a frame").expect("a whole frame");
            let (encoding, mut command) = (frame.encoding, client::decode(&bytes));
            for (path, source) in &line.subst {
                self.substitute(&mut command, path, source);
            }
            bytes = encode(&command, encoding);
        }
        Some(bytes)
    }

    fn substitute(&self, command: &mut RemotingCommand, path: &str, source: &str) {
        if path == "request.header.opaque" && source == "opaque of the pushed request" {
            command.opaque = self.pushed_opaque.expect("the server sent a request");
            return;
        }
        let name = path.strip_prefix("request.header.extFields.").expect("a header field");
        let value = match source.split_once("last 16 hex digits of ") {
            Some((_, captured)) => self.physical_offset(captured),
            None => self.time(source),
        };
        assert!(command.field(name).is_some(), "the header has a field {name}");
        let fields = command.fields.iter().flat_map(FieldList::iter);
        let fields = fields
            .map(|(field, old)| (field, if field == name { value.to_string() } else { old.to_owned() }));
        command.fields = Some(fields.collect());
    }

    fn physical_offset(&self, captured: &str) -> i64 {
        let id = self.captured.get(captured).and_then(Value::as_str).expect("a captured message id");
        i64::from_str_radix(&id[16..], 16).expect("a physical offset")
    }

    /// `time of message 2`, `1 ms after the last, UPPER`, …
    fn time(&self, source: &str) -> i64 {
        let words = source.split(',').next().unwrap_or_default();
        let (shift, of) = if let Some(of) = words.strip_prefix("1 ms after ") {
            (1, of)
        } else if let Some(of) = words.strip_prefix("1 ms before ") {
            (-1, of)
        } else {
            (0, words.strip_prefix("time of ").expect("a time"))
        };
        let index = match of.strip_prefix("message ") {
            Some(index) => index.parse().expect("the index of a message"),
            None => self.store_times.len() - 1,
        };
        self.store_times[index] + shift
    }

    fn remember(&mut self, line: &Line, response: &Value) {
        for (name, path) in &line.capture {
            if let Some(value) = answer::find(response, path) {
                self.captured.insert(name.clone(), value);
            }
        }
        if let Some(Value::Array(messages)) = response.get("messages") {
            self.store_times =
                messages.iter().filter_map(|message| message["storeTimestamp"].as_i64()).collect();
        }
        if line.awaited == Awaited::Push {
            self.pushed_opaque = response["header"]["opaque"].as_i64().map(|opaque| opaque as i32);
        }
    }
}

/// A connection of the scenario with the frames that no line has asked for yet.
struct Connection {
    client: Client,
    inbox: VecDeque<Vec<u8>>,
}

impl Connection {
    fn open(address: SocketAddr) -> Self {
        Self { client: Client::connect(address), inbox: VecDeque::new() }
    }

    /// The next response, or the one with this opaque.
    fn response(&mut self, opaque: Option<i32>, patience: Duration) -> Arrival {
        self.take(patience, |head| {
            head.flag & header::FLAG_RESPONSE != 0 && opaque.is_none_or(|opaque| head.opaque == opaque)
        })
    }

    /// The next request of the server.
    fn push(&mut self, patience: Duration) -> Arrival {
        self.take(patience, |head| head.flag & header::FLAG_RESPONSE == 0)
    }

    fn take(&mut self, patience: Duration, is_wanted: impl Fn(&RemotingCommand) -> bool) -> Arrival {
        let deadline = Instant::now() + patience;
        if let Some(index) = self.inbox.iter().position(|bytes| is_wanted(&client::decode(bytes))) {
            return self.inbox.remove(index).map_or(Arrival::Nothing, Arrival::Frame);
        }
        loop {
            match self.client.read(deadline) {
                Arrival::Frame(bytes) if !is_wanted(&client::decode(&bytes)) => self.inbox.push_back(bytes),
                other => return other,
            }
        }
    }
}

/// The opaque that the answer has to have; none when the request left it to the server.
fn recorded_opaque(line: &Line) -> Option<i32> {
    if line.subst.contains_key("request.header.opaque") || line.name == "JSON: opaque absent" {
        return None;
    }
    line.response.as_ref().map(|bytes| client::decode(bytes).opaque)
}

fn message_count(response: &Value) -> usize {
    response.get("messages").and_then(Value::as_array).map_or(0, Vec::len)
}

fn is_pull(bytes: &[u8]) -> bool {
    let Ok(Some((frame, _))) = frame::split(bytes) else { return false };
    let pulls = [code::request::PULL_MESSAGE, code::request::LITE_PULL_MESSAGE];
    RemotingCommand::decode(&frame).is_ok_and(|command| pulls.contains(&command.code))
}

fn with_filled_body(head: &[u8]) -> Vec<u8> {
    let length = frame::announced_bytes(head).expect("a length field");
    let mut bytes = head.to_vec();
    bytes.resize(length, b'x');
    bytes
}

fn encode(command: &RemotingCommand, encoding: HeaderEncoding) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(encoding, &mut bytes);
    bytes
}
