//! One line of a recorded scenario: what is sent, what to wait for, and what has to be true of it.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use ferromq_protocol::message::id;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// Where the recorded broker listened.
const RECORDED_BROKER: &str = "127.0.0.1:11711";

/// A line of `vectors/remoting/*.jsonl`.
#[derive(Deserialize)]
pub(crate) struct Line {
    /// Unique in its file.
    pub(crate) name: String,
    /// Which connection of the scenario: opened at its first use, kept open.
    pub(crate) conn: String,
    /// `fast` for the port two below the broker's.
    pub(crate) port: Option<String>,
    #[serde(default)]
    pub(crate) wait_before_ms: u64,
    #[serde(rename = "await")]
    pub(crate) awaited: Awaited,
    /// The bytes to send.
    #[serde(default, deserialize_with = "hex_or_none")]
    pub(crate) request: Option<Vec<u8>>,
    /// Instead of `request` for large ones: the frame without its body, which is one repeated byte.
    #[serde(default, rename = "requestHead", deserialize_with = "hex_or_none")]
    pub(crate) request_head: Option<Vec<u8>>,
    /// The frame that came.
    #[serde(default, deserialize_with = "hex_or_none")]
    pub(crate) response: Option<Vec<u8>>,
    pub(crate) decoded: Decoded,
    /// Members of the request that depend on the run, and from what.
    #[serde(default)]
    pub(crate) subst: BTreeMap<String, String>,
    /// Names for values of the answer that later lines need.
    #[serde(default)]
    pub(crate) capture: BTreeMap<String, String>,
    pub(crate) expect: Vec<Expectation>,
}

/// The readable form of what came; the request's is for people only.
#[derive(Deserialize)]
pub(crate) struct Decoded {
    pub(crate) response: Value,
}

/// What to wait for after the bytes are sent.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Awaited {
    /// A response with the recorded opaque.
    Reply,
    /// No response.
    Silence,
    /// The server closes the connection.
    Close,
    /// The response belongs to a later line.
    Deferred,
    /// The response to an earlier line.
    #[serde(rename = "deferred reply")]
    DeferredReply,
    /// A request of the server, or that there is none.
    Push,
    /// Nothing.
    None,
    /// Nothing: the client closes the connection.
    #[serde(rename = "close by client")]
    CloseByClient,
}

/// A check of one value.
#[derive(Deserialize)]
pub(crate) struct Expectation {
    pub(crate) path: String,
    #[serde(flatten)]
    pub(crate) wanted: Wanted,
}

/// What a value has to be.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wanted {
    Equals(Value),
    Matches(String),
    Type(String),
    /// Not there. Of the reader's own making, like the next one.
    #[serde(skip)]
    Absent,
    /// An object with members of just these names, in alphabetical order.
    #[serde(skip)]
    Members(Vec<String>),
    /// A text in which each of these occurs.
    #[serde(skip)]
    Contains(Vec<String>),
}

impl Line {
    /// Reads a file of the test data.
    pub(crate) fn read_all(file: &str) -> Vec<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/vectors/remoting")
            .join(format!("{file}.jsonl"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{file}: {error}: {line:.80}"))
        };
        text.lines().map(parse).collect()
    }

    /// Whether the answer was recorded as stored messages.
    pub(crate) fn has_messages(&self) -> bool {
        self.decoded.response.get("messages").is_some()
    }

    /// The recorded checks, as they read for a broker at another address, and those that the recorded answer's shape
    /// implies: no other header fields, no remark and no body where there was none.
    pub(crate) fn expectations(mut self, broker: SocketAddr) -> Vec<Expectation> {
        for expectation in &mut self.expect {
            expectation.wanted.move_to(broker);
        }
        self.loosen();
        let recorded = &self.decoded.response;
        let is_of_body = |path: &str| path.starts_with("response.json") || path.starts_with("response.body");
        let is_body_checked = self.expect.iter().any(|expectation| is_of_body(&expectation.path));
        let mut shape = |path: &str, wanted| self.expect.push(Expectation { path: path.to_owned(), wanted });
        let Some(header) = recorded.get("header") else { return self.expect };
        if header.get("remark").is_none() {
            shape("response.header.remark", Wanted::Absent);
        }
        match header.get("extFields").and_then(Value::as_object) {
            None => shape("response.header.extFields", Wanted::Absent),
            Some(fields) if !fields.is_empty() => {
                let mut names: Vec<_> = fields.keys().cloned().collect();
                names.sort();
                shape("response.header.extFields", Wanted::Members(names));
            }
            Some(_) => {} // recorded as equal to {}
        }
        if let Some(body) = recorded.get("body").and_then(Value::as_str).filter(|_| !is_body_checked) {
            shape("response.body", Wanted::Contains(names_in(body)));
        }
        if ["body", "bodyHex", "messages"].iter().all(|body| recorded.get(body).is_none()) {
            shape("response.body", Wanted::Absent);
        }
        self.expect
    }

    /// Makes values free that are of no consequence: the size of a record with a message id that the broker generated
    /// (it holds the machine's address), and how often a table has changed (we count more, so that a name server looks
    /// again).
    fn loosen(&mut self) {
        let is_generated = |expectation: &&Expectation| matches!(expectation.wanted, Wanted::Matches(_));
        let ids = self.expect.iter().filter(is_generated);
        let messages = ids.filter_map(|expectation| expectation.path.strip_suffix(".properties.UNIQ_KEY"));
        let mut free: Vec<_> = messages.map(|message| format!("{message}.totalSize")).collect();
        free.push("response.json.dataVersion.counter".into());
        for expectation in self.expect.iter_mut().filter(|expectation| free.contains(&expectation.path)) {
            expectation.wanted = Wanted::Type("number".into());
        }
    }
}

impl Wanted {
    /// Replaces the address of the recorded broker, also inside message ids.
    fn move_to(&mut self, broker: SocketAddr) {
        let Self::Equals(Value::String(text)) = self else { return };
        let id_start = |address: SocketAddr| id::offset_id(address, 0)[..16].to_owned();
        let recorded: SocketAddr = RECORDED_BROKER.parse().expect("an address");
        *text = text
            .replace(RECORDED_BROKER, &broker.to_string())
            .replace(&id_start(recorded), &id_start(broker));
    }
}

/// The keys of a table of settings (`key=value` lines) or of runtime information (JSON), as they stand in the text. Of no
/// check in the recording, because all values are of the moment; but no key may vanish.
fn names_in(body: &str) -> Vec<String> {
    let settings = body.lines().filter_map(|line| Some(format!("{}=", line.split_once('=')?.0)));
    let table: Option<Value> = serde_json::from_str(body).ok();
    let keys =
        table.iter().filter_map(|table| table.get("table")?.as_object()).flat_map(|table| table.keys());
    let keys: Vec<_> = keys.filter(|key| !key.contains('/')).map(|key| format!("\"{key}\":")).collect();
    // There is no directory with an installation.
    if keys.is_empty() { settings.filter(|name| name != "rocketmqHome=").collect() } else { keys }
}

fn hex_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect::<Option<_>>().map(Some).ok_or_else(|| D::Error::custom("not hexadecimal"))
}
