//! The readable form of a frame, in which the checks look up their values.

use ferromq_protocol::frame::{self, Frame, HeaderEncoding};
use ferromq_protocol::json;
use ferromq_protocol::message::{RecordView, properties};
use serde_json::{Map, Value, json};

use crate::support::client;

/// What came instead of a frame, as the recordings write it.
pub(crate) const CONNECTION_CLOSED: &str = "connection closed";

/// Header and body of a frame. A body of stored messages becomes `messages`; any other is there as text, and as JSON
/// if it is some.
pub(crate) fn decode(bytes: &[u8], has_messages: bool) -> Value {
    let (frame, _) = frame::split(bytes).expect("a frame").expect("a whole frame");
    let mut answer = Map::new();
    answer.insert("headerType".into(), frame.encoding.wire_byte().into());
    answer.insert("header".into(), header(&frame, bytes));
    let body = frame.body();
    if has_messages {
        answer.insert("messages".into(), messages(body));
    } else if !body.is_empty() {
        let text = String::from_utf8_lossy(body);
        if let Ok(value) = json::parse(&text) {
            answer.insert("json".into(), standard_json(&value, ""));
        }
        answer.insert("body".into(), text.into());
    }
    Value::Object(answer)
}

/// A JSON header is read by a strict reader that is not ours.
fn header(frame: &Frame<'_>, bytes: &[u8]) -> Value {
    if frame.encoding == HeaderEncoding::Json {
        return serde_json::from_slice(frame.header()).expect("a header in strict JSON");
    }
    let command = client::decode(bytes);
    let mut header = json!({
        "code": command.code, "flag": command.flag, "opaque": command.opaque, "version": command.version,
        "language": command.language.map(|language| language.name()),
    });
    if let Some(remark) = command.remark {
        header["remark"] = remark.into();
    }
    if let Some(fields) = command.fields {
        header["extFields"] =
            fields.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    }
    header
}

fn messages(mut body: &[u8]) -> Value {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let record = match RecordView::parse(body) {
            Ok(record) => record,
            Err(error) => return format!("not stored messages: {error}").into(),
        };
        body = &body[record.size()..];
        let properties: Map<_, _> = properties::iter(record.properties())
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        messages.push(json!({
            "totalSize": record.size(),
            "magic": format!("{:08x}", u32::from_be_bytes(record.bytes()[4..8].try_into().expect("four bytes"))),
            "bodyCrc": record.body_crc(),
            "queueId": record.queue_id(),
            "flag": record.flag(),
            "queueOffset": record.queue_offset(),
            "physicalOffset": record.physical_offset(),
            "sysFlag": record.sys_flag(),
            "bornTimestamp": record.born_timestamp(),
            "bornHost": record.born_host().to_string(),
            "storeTimestamp": record.store_timestamp(),
            "storeHost": record.store_host().to_string(),
            "reconsumeTimes": record.reconsume_times(),
            "preparedTransactionOffset": record.prepared_transaction_offset(),
            "body": record.body().iter().map(|byte| char::from(*byte)).collect::<String>(), // recorded as Latin-1
            "topic": record.topic(),
            "properties": properties,
        }));
    }
    messages.into()
}

/// Every key becomes its compact text, and every list whose order means nothing is sorted: nearly all of them are sets
/// in Java.
fn standard_json(value: &json::Value<'_>, name: &str) -> Value {
    match value {
        json::Value::Null => Value::Null,
        json::Value::Bool(value) => (*value).into(),
        json::Value::Number(digits) => serde_json::from_str(digits).expect("a number"),
        json::Value::String(text) => text.as_ref().into(),
        json::Value::Array(elements) => {
            let mut elements: Vec<_> = elements.iter().map(|element| standard_json(element, "")).collect();
            if name != "queueData" {
                elements.sort_by_cached_key(sort_key);
            }
            elements.into()
        }
        json::Value::Object(members) => {
            let member = |(key, value): &(json::Value<'_>, json::Value<'_>)| {
                let key = match key {
                    json::Value::String(text) => text.to_string(),
                    other => standard_json(other, "").to_string(),
                };
                let value = standard_json(value, &key);
                (key, value)
            };
            Value::Object(members.iter().map(member).collect())
        }
    }
}

/// The compact text of an element without what changes from run to run. `serde_json` sorts members by name.
fn sort_key(element: &Value) -> String {
    let mut element = element.clone();
    if let Value::Object(members) = &mut element {
        members.retain(|name, _| !["clientAddr", "remoteIP", "lastUpdateTimestamp"].contains(&name.as_str()));
    }
    element.to_string()
}

/// The value at a path such as `response.json.offsetTable."T@G".0` or `response.messages.length`.
pub(crate) fn find(response: &Value, path: &str) -> Option<Value> {
    let mut rest = path.strip_prefix("response").expect("a path that begins with response");
    let mut value = response;
    while !rest.is_empty() {
        if let Some(index) = rest.strip_prefix('[') {
            let (digits, behind) = index.split_once(']').expect("an index that ends");
            value = value.get(digits.parse::<usize>().expect("an index"))?;
            rest = behind;
            continue;
        }
        let (name, behind) = segment(&rest[1..]);
        rest = behind;
        if let (Value::Array(elements), "length") = (value, name.as_str()) {
            return Some(elements.len().into());
        }
        value = value.get(&name)?;
    }
    Some(value.clone())
}

/// The name at the start of a path, quoted if it holds other characters than names usually do.
fn segment(path: &str) -> (String, &str) {
    if path.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(path).into_iter::<String>();
        let name = names.next().expect("a name").expect("a quoted name");
        let end = names.byte_offset();
        return (name, &path[end..]);
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    (path[..end].to_owned(), &path[end..])
}
